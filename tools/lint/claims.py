"""Checks the claims of pages, where another page or file says how it is."""

import json
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "registry"))
import look_up

_CODE = re.compile(r"^( *)```.*?^ *```[^\n]*$", re.M | re.S)
_BEGINS = re.compile(r" *(- |\d+\. |\||#)")
_BITS = re.compile(r"\bbits\b.*\bany\s+number\s+of\s+ranks\b|\bany\s+number\s+of\s+ranks\b.*\bbits\b", re.I | re.S)
_PLAIN_BAZEL = re.compile(r"^[ \t]*(?:\$ )?bazel (?:build|run|test|query)\b", re.M)
_MINUTES = re.compile(r"\bfirst\s+builds?\b.*\bminutes?\b|\bminutes?\b.*\bfirst\s+builds?\b", re.S)
_BUILD_TIMES = "examples/consumer/README.md"
_UNCHECKED = re.compile(r"\*(?:\w+::)*(?:Create|Load|Open|Wrap)\(")
_COMPILED = "tools/code_blocks/BUILD"
_EXAMPLE, _RUN = "examples/fashion_mnist/README.md", "docs/fashion_mnist_run.txt"
_VERSION_HEADER = "base/version.h"
_VERSIONS = {
    _VERSION_HEADER: r'^#define LOCKSTEP_VERSION "(.*)"$',
    "MODULE.bazel": r'^    version = "(.*)",$',
    "third_party/libtorch/MODULE.bazel": r'^    version = "(.*)",$',
    "CITATION.cff": r"^version: (.*)$",
}
_REGISTRY = "tools/registry/modules.json"
_NEVER_ON_GPU = re.compile(r"\bnever\s+(?:been\s+)?run\s+on\s+a\s+GPU\b")


def _blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def paragraphs(text):
    """(line, text) of each paragraph, list item and row of a table, outside of code blocks."""
    found = []
    for number, line in enumerate(_CODE.sub(_blank, text).splitlines(), 1):
        if not line.strip():
            found.append(None)
        elif not found or found[-1] is None or _BEGINS.match(line):
            found.append((number, line))
        else:
            found[-1] = (found[-1][0], f"{found[-1][1]}\n{line}")
    return list(filter(None, found))


def unqualified_promises(path, text):
    """Equal bits on any number of ranks are a promise for data-parallel ranks only."""
    if path != "README.md" and not path.startswith("docs/"):
        return
    for line, paragraph in paragraphs(text):
        if not paragraph.lstrip().startswith("|") and _BITS.search(paragraph) and "data-parallel" not in paragraph:
            yield f'{path}:{line}: promises the same bits on any number of ranks: say "data-parallel ranks"'


def never_on_a_gpu(path, text):
    """It is false as soon as a test that needs a GPU covers the thing; a reader can ask a test that is named."""
    for line, paragraph in paragraphs(text):
        if _NEVER_ON_GPU.search(paragraph) and "_test" not in paragraph:
            yield f"{path}:{line}: says that something has never run on a GPU: name the test that would run it"


def plain_bazel(path, text):
    """bazelw takes clang and plain bazel g++, so that a reader of both kinds of commands would compile everything twice."""
    for code in _CODE.finditer(text):
        for match in _PLAIN_BAZEL.finditer(code.group()):
            line = text.count("\n", 0, code.start() + match.start()) + 1
            yield f"{path}:{line}: calls bazel: call bazelw, which the other commands of the pages call too"


def build_times(path, text):
    """One page says how long a first build takes, and how that was measured."""
    for line, paragraph in paragraphs(text) if path != _BUILD_TIMES else ():
        if _MINUTES.search(paragraph):
            yield f"{path}:{line}: says how long a first build takes: link to {_BUILD_TIMES}, which does"


def unchecked_results(path, text):
    """A program that dereferences a StatusOr with an error ends there, without the message."""
    for match in _UNCHECKED.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield f"{path}:{line}: dereferences {match.group()[1:]}...) at once: show how the error is handled"


def uncompiled_blocks(pages, compiled):
    """Every C++ block is compiled, README.md's by //:readme_example_test."""
    for path, text in pages.items():
        folder, _, name = path.rpartition("/")
        label = f"//{folder}:{name}"
        if path != "README.md" and re.search(r"^ *```cpp$", text, re.M) and f'"{label}"' not in compiled:
            yield f"{path}: has C++ that no test compiles: add {label} to {_COMPILED}"


def other_figures(page, run):
    """The figures that a page prints of a run stand in the run whose picture README.md shows."""
    lines = set(run.splitlines())
    for number, line in enumerate(page.splitlines(), 1):
        if re.match(r"    ( +\d+ +\d+\.\d|done: )", line) and line[4:] not in lines:
            yield f"{_EXAMPLE}:{number}: prints figures that {_RUN} does not have"


def other_versions(texts):
    """Each file of {path: text} has the version that the numbers of base/version.h make."""
    version = ".".join(re.findall(r"^#define LOCKSTEP_VERSION_[A-Z]+ (\d+)$", texts[_VERSION_HEADER], re.M))
    for path, pattern in _VERSIONS.items():
        if (found := re.findall(pattern, texts[path], re.M)) != [version]:
            yield f"{path}: has the version {', '.join(found) or 'none'}: the numbers of {_VERSION_HEADER} are {version}"


def unknown_modules(texts, registry):
    """{path: text} of MODULE.bazel files name modules of the tree, and of the registry: {module: {version: level}}."""
    known = {**registry, **look_up.own(texts)}
    for path, line, name, version, level in look_up.asked_for(texts):
        versions = known.get(name, {})
        place = f"{path}:{line}: names the module {name}"
        if not versions:
            yield f"{place}, which {_REGISTRY} lacks: tools/registry/look_up.py adds what the registry has"
        elif version not in versions and (version or name in registry):
            yield f"{place} {version or 'without a version'}: {_REGISTRY} has {', '.join(versions)}"
        elif level is not None and level not in versions.values():
            levels = ", ".join(map(str, sorted(set(versions.values()))))
            yield f"{place} with the compatibility level {level}: {_REGISTRY} has {levels}"


def of_pages(pages, compiled):
    """The problems of {path: text} of all Markdown pages; `compiled` is the text of tools/code_blocks/BUILD."""
    of_a_page = (unqualified_promises, never_on_a_gpu, plain_bazel, build_times, unchecked_results)
    found = [problem for path, text in pages.items() for check_page in of_a_page for problem in check_page(path, text)]
    return found + list(uncompiled_blocks(pages, compiled))


def check(root, files):
    pages = {name: (root / name).read_text() for name in files if name.endswith(".md")}
    modules = {name: (root / name).read_text() for name in files if name.rpartition("/")[2] == "MODULE.bazel"}
    return [
        *of_pages(pages, (root / _COMPILED).read_text()),
        *other_figures(pages[_EXAMPLE], (root / _RUN).read_text()),
        *other_versions({path: (root / path).read_text() for path in _VERSIONS}),
        *unknown_modules(modules, json.loads((root / _REGISTRY).read_text())["modules"]),
    ]
