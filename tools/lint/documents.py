"""Checks what Markdown pages say about the tree: links, labels, paths, includes, names, flags, commands and code blocks.

Every check is one that needs no compiler. The first program of README.md is also compiled and run (//:readme_example_test).
"""

import ast
import functools
import os
import pathlib
import posixpath
import re
import subprocess

import targets

FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```", re.M | re.S)
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)|<img[^>]*\bsrc=\"([^\"]+)\"")
_LABEL = re.compile(r"(?<![:\w/.])(?:@lockstep)?//(?:[a-z]\w*(?:/[\w.]+)*(?::[\w./+-]*[\w])?|:[\w./-]*\w|\.\.\.)")
_SHORT_LABEL = re.compile(r"`(:\w[\w.]*)`")
_HEADER = re.compile(r"\blockstep/([\w/]+\.h)\b")
_PATH = re.compile(r"`((?:\.\./)*\.?[\w-]+(?:/[\w.-]+)*/[\w.-]+\.(?:h|cc|py|md|sh|bzl|c|svg|txt|json))`")
_NAME = re.compile(
    r"\b(?:lockstep::)?(?:base|checkpoint|comm|data|ddp|dp|launch|models|optim|sampler|tensorboard)::((?:\w+::)*)(\w+)"
)
_OWN = re.compile(r"\bmy_|\bmine\b|\byour_")  # names that the reader chooses
_CONFIG = re.compile(r"--config=(\w+)")
_PROGRAM = re.compile(r"(?:\brun\b.*?\s((?:@lockstep)?//[\w/]*(?::\w+)?)\s+--|(?:^|\s)bazel-bin/((?:\w+/)*\w+))(\s.*)")
_FLAG = re.compile(r"(?<!\S)--([a-z][\w-]*)")
_CODE = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|//[^\n]*|/\*.*?\*/', re.S)
_MEMBER = re.compile(r"(?:\.|->)([A-Z]\w+)\s*[(<]")
_CAMEL = re.compile(r"(?<![\w.])[A-Z][a-z]+[A-Z]\w*")
_PYTORCH = {"DetectAnomalyGuard", "MixedPrecisionPolicy", "StatefulDistributedSampler"}
_PAIRS = {")": "(", "]": "[", "}": "{"}
_RC_COMMANDS = ("build", "test", "run", "common", "startup", "import", "try-import")


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def _lines(text, match):
    return line_of(text, match.start()), line_of(text, match.end()) + 1


def _blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def slug(heading):
    """GitHub's anchor of a heading."""
    words = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", lambda match: match.group(1) or "", heading.strip()).lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def headings(text):
    """The anchors of a page."""
    found, anchors = {}, set()
    for heading in re.findall(r"^#+ +(.*)$", FENCE.sub(_blank, text), re.M):
        anchor = slug(heading)
        anchors.add(f"{anchor}-{found[anchor]}" if anchor in found else anchor)
        found[anchor] = found.get(anchor, 0) + 1
    return anchors


def unbalanced(code):
    """The first bracket without its other, or None."""
    waiting = []
    for bracket in re.findall(r"[()\[\]{}]", _CODE.sub("", code)):
        if bracket not in _PAIRS:
            waiting.append(bracket)
        elif not waiting or waiting.pop() != _PAIRS[bracket]:
            return bracket
    return waiting[-1] if waiting else None


def files_of(root):
    """The files that git knows or would add, or all of them where git cannot be asked."""
    command = ["git", "-c", f"safe.directory={root}", "ls-files", "--cached", "--others", "--exclude-standard"]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if run.returncode == 0:
        return [name for name in sorted(set(run.stdout.splitlines())) if (root / name).is_file()]
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != ".git" and not name.startswith("bazel-")]
        found += [str((pathlib.Path(folder) / name).relative_to(root)) for name in names]
    return sorted(found)


class Tree:
    """The files of the repository, read once."""

    def __init__(self, root, files):
        self._root = root
        self.files = set(files)
        self.folders = {str(folder) for name in files for folder in pathlib.PurePath(name).parents}
        build_files = {
            name: self.read(name)
            for name in files
            if name.endswith("BUILD") and pathlib.PurePath(name).name == "BUILD" and "consumer/" not in name
        }
        self.targets = targets.Targets(build_files, files)
        self.configs = (
            set(re.findall(r"^\w+:(\w+) ", self.read(".bazelrc"), re.M)) if ".bazelrc" in self.files else set()
        )

    @functools.lru_cache(maxsize=None)
    def read(self, name):
        return (self._root / name).read_text()

    @functools.cached_property
    def names(self):
        """Every word of every source."""
        sources = [name for name in self.files if name.endswith((".h", ".cc", ".py")) and "tools/lint/" not in name]
        return set(re.findall(r"\w+", "\n".join(map(self.read, sources))))

    @functools.lru_cache(maxsize=None)
    def flags(self, label):
        return self.targets.flags(label, self.read)


def broken_links(tree, path, text):
    prose = re.sub(r"`[^`\n]*`", _blank, FENCE.sub(_blank, text))
    for match in LINK.finditer(prose):
        link = match.group(1) or match.group(2)
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        place = f"{path}:{line_of(text, match.start())}"
        name = posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) if target else path
        if name not in tree.files and name not in tree.folders:
            yield f"{place}: links to {link}: there is no {name}"
        elif anchor and name.endswith(".md") and anchor not in headings(tree.read(name)):
            yield f"{place}: links to {link}: {name} has no heading of that name"


def unknown_labels(tree, path, text):
    """Labels of the root package are the reader's own workspace, unless they stand in a sentence."""
    blocks = {line for match in FENCE.finditer(text) for line in range(*_lines(text, match))}
    for number, line in enumerate(text.splitlines(), 1):
        package = None
        for match in re.finditer(f"{_LABEL.pattern}|{_SHORT_LABEL.pattern}", line):
            label = match.group()
            if short := match.group(1):
                if package is None:
                    continue
                label = f"//{package}{short}"
            else:
                package = targets.absolute(label, "")[2:].partition(":")[0]
            own = label.startswith("//:") and number in blocks or label.startswith("//visibility") or _OWN.search(label)
            if not own and not tree.targets.has(label):
                yield f"{path}:{number}: names {label}: no BUILD file has it"


def unknown_files(tree, path, text):
    for match in _HEADER.finditer(text):
        if match.group(1) not in tree.files and not _OWN.search(match.group(1)):
            yield f"{path}:{line_of(text, match.start())}: names {match.group()}: there is no {match.group(1)}"
    for match in _PATH.finditer(text):
        name = match.group(1)
        if name.startswith("lockstep/") or _OWN.search(name):
            continue
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
        if name not in tree.files and beside not in tree.files:
            yield f"{path}:{line_of(text, match.start())}: names {name}: there is no such file"


def unknown_names(tree, path, text):
    for match in _NAME.finditer(text):
        for name in [*filter(None, match.group(1).split("::")), match.group(2)]:
            if name not in tree.names:
                yield f"{path}:{line_of(text, match.start())}: names {match.group()}: no source has the word {name}"


def unknown_words(tree, path, text):
    """Names like this in a span of code are words of some source, apart from PyTorch's that only pages name."""
    for span in re.finditer(r"`[^`\n]+`", FENCE.sub(_blank, text)):
        for name in set(_CAMEL.findall(span.group())) - _PYTORCH - tree.names:
            if not _OWN.search(name):
                yield f"{path}:{line_of(text, span.start())}: names {name}: no source has the word"


def unknown_flags(tree, path, text):
    joined = re.sub(r"\\\n", lambda match: "  ", text)
    for number, line in enumerate(joined.splitlines(), 1):
        for config in _CONFIG.findall(line):
            if "bazel" in line and config not in tree.configs:
                yield f"{path}:{number}: names --config={config}: .bazelrc does not have it"
        line = re.split(r"\s#\s|`", line)[0] if line.startswith((" ", ".", "b", "t")) else ""
        for match in _PROGRAM.finditer(line):
            label, program, rest = match.groups()
            label = label or f"//{program.rpartition('/')[0]}:{program.rpartition('/')[2]}"
            if not tree.targets.has(label) or program and "external" in program:
                continue
            for flag in _FLAG.findall(re.split(r"\s(?:bazel-bin/|--\s|\$)", rest)[0] if program else rest):
                if flag not in tree.flags(label) and flag not in ("help",):
                    yield f"{path}:{number}: gives {label} the flag --{flag}: its sources do not define it"


def wrong_blocks(tree, path, text):
    for match in FENCE.finditer(text):
        indent, language, body = match.groups()
        body = re.sub(rf"^{indent}", "", body, flags=re.M)
        place = f"{path}:{line_of(text, match.start())}"
        if language in ("sh", "bash"):
            run = subprocess.run(["bash", "-n"], input=body, capture_output=True, text=True)
            if run.returncode:
                yield f"{place}: bash cannot read the block: {run.stderr.strip().splitlines()[0]}"
        elif language in ("cpp", "c++"):
            if bracket := unbalanced(body):
                yield f"{place}: the block has a {bracket} without its other bracket"
            for name in sorted(set(_MEMBER.findall(_CODE.sub("", body))) - tree.names):
                yield f"{place}: the block calls {name}: no source has the word"
        elif language in ("python", "starlark"):
            try:
                ast.parse(body)
            except SyntaxError as error:
                yield f"{place}: the block is not Python's syntax: {error.msg}"
        elif language == "bazelrc":
            for line in body.splitlines():
                if line.strip() and not line.startswith("#") and not re.split(r"[: ]", line)[0] in _RC_COMMANDS:
                    yield f"{place}: {line.split()[0]} is not a command of a .bazelrc"


_PUBLIC = re.compile(r'visibility = \[[^\]]*"//visibility:public"')
_DEPRECATED = re.compile(r"^\w+\(\n(?:    .*\n)*?    deprecation = .*\n(?:    .*\n)*?\)", re.M)
_HEADINGS = ["## Targets", "## Example", "## Guarantees", "## Limits"]


def wrong_readmes(tree):
    """A folder with a public target has a README with the same headings in the same order; more may follow.

    A deprecated target needs none.
    """
    for build_file in sorted(name for name in tree.files if name.endswith("/BUILD")):
        folder = posixpath.dirname(build_file)
        text = _DEPRECATED.sub("", tree.read(build_file))
        if folder == "third_party" or not re.search(r"^(absl|cc|torch)_\w+\(", text, re.M) or not _PUBLIC.search(text):
            continue
        name = f"{folder}/README.md"
        if name not in tree.files:
            yield f"{name}: is missing: {build_file} has a public target"
            continue
        found = re.findall(r"^##? .*$", FENCE.sub(_blank, tree.read(name)), re.M)[: 1 + len(_HEADINGS)]
        wanted = [f"# {folder}", *_HEADINGS]
        if found != wanted:
            yield f"{name}: begins with the headings {found}: expected {wanted}"


CHECKS = (broken_links, unknown_labels, unknown_files, unknown_names, unknown_words, unknown_flags, wrong_blocks)


def check(root, files):
    """The problems of all pages."""
    tree = Tree(root, files)
    pages = [name for name in files if name.endswith(".md")]
    problems = [
        problem for name in pages for check_page in CHECKS for problem in check_page(tree, name, tree.read(name))
    ]
    return problems + list(wrong_readmes(tree))
