#!/usr/bin/env python3
"""Evaluates every BUILD and .bzl file, and MODULE.bazel, with what Bazel 9 has built in, and without Bazel.

  tools/newer_bazel/evaluate.py   exit code 1, and one line for each problem, if there is one

It finds a rule, a provider, an attribute or a flag that Bazel 9 no longer has, a load() or a label of something that does not
exist, a repository that MODULE.bazel does not name, and a file of another package that is not exported. It runs the module
extension and the repository rules, and evaluates the BUILD files that they write. It does not analyse: no implementation of a
rule is run. The interpreter is starlark-rust's, by pip, once per machine in ~/.cache/lockstep.
"""

import ast
import functools
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "third_party/libtorch"))
import fetch_torch

HERE = "tools/newer_bazel/"
LIBTORCH = "third_party/libtorch"  # a module of its own, and a package of Lockstep
CONSUMERS = ("examples/consumer/", f"{LIBTORCH}/consumer/")
INTERPRETER = "starlark-pyo3==2026.1.3"

# What the files of these modules export from rules_cc 0.0.11 to 0.2.22, and from rules_shell 0.3.0 to 0.6.1.
MODULES = {
    "rules_cc": {
        "cc/cc_binary.bzl": ["cc_binary"],
        "cc/cc_import.bzl": ["cc_import"],
        "cc/cc_library.bzl": ["cc_library"],
        "cc/cc_test.bzl": ["cc_test"],
        "cc/common/cc_common.bzl": ["cc_common"],
        "cc/common/cc_info.bzl": ["CcInfo"],
        "cc/defs.bzl": ["CcInfo", "cc_binary", "cc_common", "cc_import", "cc_library", "cc_test"],
        "cc/find_cc_toolchain.bzl": ["find_cc_toolchain", "find_cpp_toolchain", "use_cc_toolchain"],
    },
    "rules_shell": {
        "shell/sh_binary.bzl": ["sh_binary"],
        "shell/sh_library.bzl": ["sh_library"],
        "shell/sh_test.bzl": ["sh_test"],
    },
}
# Of @bazel_tools, which Bazel 4 and 9 both have.
BAZEL_TOOLS = ["tools/cpp:current_cc_toolchain", "tools/cpp:toolchain_type"]
# The public part of cc_common in these versions of rules_cc.
CC_COMMON = set(
    """CcToolchainInfo action_is_enabled compile configure_features create_cc_toolchain_config_info create_compilation_context
    create_compilation_outputs create_compile_variables create_library_to_link create_link_variables create_linker_input
    create_linking_context create_linking_context_from_compilation_outputs empty_variables get_environment_variables
    get_execution_requirements get_memory_inefficient_command_line get_tool_for_action is_enabled link merge_cc_infos
    merge_compilation_contexts merge_compilation_outputs merge_linking_contexts""".split()
)
# Flags that Bazel 4.2.3 and Bazel 9 both have. Look another one up before you add it.
FLAGS = set(
    """build_tag_filters build_tests_only color compilation_mode copt cxxopt disk_cache features force_pic host_copt host_cxxopt
    incompatible_strict_action_env linkopt repo_env sandbox_debug show_loading_progress show_progress show_result spawn_strategy
    strategy strip test_env test_output test_tag_filters test_timeout ui_event_filters""".split()
)

_BUILTINS = f"{HERE}builtins.bzl"
_FLAG = re.compile(r"\s--(no)?(\w+)")
_BUILD_FILES = ("BUILD", "BUILD.bazel")


def _install(folder):
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"--target={folder}"]
    run = subprocess.run([*command, INTERPRETER], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"evaluate.py: pip install {INTERPRETER} failed: {run.stderr.strip()[-300:]}")


@functools.cache
def interpreter():
    """The Python module `starlark`."""
    version = f"{INTERPRETER.replace('==', '-')}-cp{sys.version_info.major}{sys.version_info.minor}"
    sys.path.insert(0, str(fetch_torch.made_once(version, _install)))
    import starlark

    return starlark


@functools.cache
def _builtins():
    """The text of builtins.bzl, and the names that each kind of file sees of it."""
    text = (ROOT / _BUILTINS).read_text()
    defined = {}
    for node in ast.parse(text).body:
        for name in (
            [node.name] if isinstance(node, ast.FunctionDef) else map(ast.unparse, getattr(node, "targets", []))
        ):
            defined[name] = node
    rules = {key.value for key in defined["_RULES"].value.keys}
    native = {keyword.arg for keyword in defined["native"].value.keywords if keyword.arg} | rules
    everywhere = {"select", "str"}
    of_build = {"exports_files", "glob", "package", "package_group", "package_name"} | rules
    of_module = {name for name in defined if re.match(r"module$|bazel_dep|use_|register_|\w+_override", name)}
    names = {
        "BUILD": of_build | everywhere,
        "MODULE.bazel": of_module,
        ".bzl": {name for name in defined if name[0] != "_"} - of_build - of_module | everywhere,
    }
    return text, names, native


class Reported(Exception):
    """A file has a problem that is in the list already."""


class Repository:
    """{path: text} of the files, and the repositories that labels in them can name, as {apparent name: name}.

    The name of a repository within this one is its folder.
    """

    def __init__(self, name, files, sees=()):
        self.name = name
        self.files = files
        self.sees = dict(sees)
        self.packages = {_folder(path) for path in files if path.rpartition("/")[2] in _BUILD_FILES}
        self.targets = {package: set() for package in self.packages}
        self.exported = {package: set() for package in self.packages}

    def package_of(self, path):
        """The innermost package around a file."""
        folder = _folder(path)
        while folder and folder not in self.packages:
            folder = _folder(folder)
        return folder

    def show(self, path):
        if self.name == "lockstep":
            return path
        return f"{self.name}/{path}" if "/" in self.name else f"@{self.name}//{path}"


def _folder(path):
    return path.rpartition("/")[0]


def _stub(names):
    loads = "".join(f'load("//:all.bzl", _{name} = "{name}")\n' for name in names)
    return loads + "".join(f"{name} = _{name}\n" for name in names)


class Evaluation:
    """Of repositories, in which problems are collected."""

    def __init__(self):
        self._problems = {}  # an ordered set
        self._evaluated = set()
        self._starlark = interpreter()
        extension = self._starlark.LibraryExtension
        self._globals = self._starlark.Globals.extended_by([extension.StructType, extension.CallStack, extension.Json])
        self._repositories = {"bazel_tools": Repository("bazel_tools", {})}
        for name, files in MODULES.items():
            texts = {path: _stub(names) for path, names in files.items()}
            texts["all.bzl"] = (ROOT / HERE / "modules.bzl").read_text()
            self._repositories[name] = Repository(name, {**texts, **{f"{_folder(path)}/BUILD": "" for path in texts}})
        self._modules = {}  # {(repository, path): what a .bzl file exports, or None}
        self._building = None  # (repository, package) of the BUILD file that is evaluated
        self._references = []  # (repository, package, place, label)
        self._uses = []  # each use_extension: a dictionary
        self._written = {}  # {repository: {path: text}} by repository rules

    def run(self, repositories):
        """The problems of these repositories, and the number of files that were evaluated."""
        self._repositories.update({repository.name: repository for repository in repositories})
        for repository in repositories:
            self._quietly(self._module_file, repository)
        for repository in [*repositories, *self._extensions(repositories)]:
            for path in repository.files:
                if path.rpartition("/")[2] in _BUILD_FILES:
                    self._quietly(self._build_file, repository, path)
        self._names_in_functions()
        for repository in repositories:
            for path in repository.files:
                if path.endswith(".bzl") and not path.startswith(HERE):
                    self._quietly(self._module, repository, path)
        self._check_references()
        for repository in repositories:
            self._check_flags(repository)
        return list(self._problems), len(self._evaluated)

    def _problem(self, place, what):
        self._problems.setdefault(f"{place}: {what}")

    def _quietly(self, evaluate, *arguments):
        try:
            return evaluate(*arguments)
        except Reported:
            return None

    # Labels.

    def _resolve(self, label, repository, package):
        """(name of the repository, package, name) of a label in a file of that package."""
        if isinstance(label, dict):
            return label["repo_name"], label["package"], label["name"]
        if label[0] == "@" and "//" not in label:
            label += f"//:{label[1:]}"
        apparent, slashes, rest = label.partition("//")
        if not slashes:
            return repository.name, package, label.removeprefix(":")
        package, _, name = rest.partition(":")
        name = name or package.rpartition("/")[2]
        if apparent.startswith("@@"):
            return apparent[2:], package, name
        if apparent.lstrip("@") and apparent[1:] not in repository.sees:
            raise ValueError(f"{label}: MODULE.bazel names no repository {apparent}")
        return repository.sees[apparent[1:]] if apparent.lstrip("@") else repository.name, package, name

    def _label(self, label, repository, package):
        """The fields of a Label."""
        of, package, name = self._resolve(label, repository, package)
        root = "" if of == "lockstep" else f"external/{of}"
        return {"name": name, "package": package, "repo_name": of, "workspace_name": of, "workspace_root": root}

    def _refer(self, stack, labels):
        """The BUILD file that is evaluated names these."""
        if self._building:
            repository, package = self._building
            places = re.findall(r"^  \* (\S+:\d+), in <module>", stack, re.M)
            self._references += [(repository, package, places[0], label) for label in labels]

    def _check_references(self):
        for repository, package, place, label in self._references:
            try:
                of, other, name = self._resolve(label, repository, package)
            except ValueError as error:
                self._problem(place, error)
                continue
            shown = f"//{other}:{name}" if of == repository.name else f"@{of}//{other}:{name}"
            target = self._repositories.get(of)
            if of == "bazel_tools":
                if f"{other}:{name}" not in BAZEL_TOOLS:
                    self._problem(place, f"names {shown}: Bazel 9 is not known to have it")
            elif target is None or of in MODULES or other == "conditions":
                pass  # what the other modules have is not known here
            elif other not in target.packages:
                self._problem(place, f"names {shown}: there is no such package")
            elif name not in target.targets[other] | target.exported[other]:
                path = f"{other}/{name}".lstrip("/")
                if path not in target.files or target.package_of(path) != other:
                    self._problem(place, f"names {shown}: there is no such target")
                elif (target, other) != (repository, package):
                    self._problem(place, f"names {shown}: a file that //{other} does not export")

    # Files.

    def _evaluate(self, repository, path, text, **variables):
        """Evaluates the text in an environment of its own."""
        starlark, shown, package = self._starlark, repository.show(path), repository.package_of(path)
        module = starlark.Module()
        for name, value in variables.items():
            module[name] = value
        kind = ".bzl" if path.endswith(".bzl") else "MODULE.bazel" if path == "MODULE.bazel" else "BUILD"
        # On the first line of the text, so that its lines keep their numbers.
        names = ", ".join(f'"{name}"' for name in sorted(_builtins()[1][kind]))
        injected = f'load("{_BUILTINS}", {names}); '
        builtins = self._builtins_for(repository, package)

        def load(label):
            return builtins if label == _BUILTINS else self._load(label, repository, package)

        try:
            parsed = starlark.parse(shown, injected + text, self._dialect(path))
            starlark.eval(module, parsed, self._globals, starlark.FileLoader(load))
        except starlark.StarlarkError as error:
            if "Reported:" not in str(error):
                self._problem(*_place_and_message(str(error), shown))
            raise Reported(shown) from None
        self._evaluated.add(shown)
        return module

    def _dialect(self, path):
        dialect = self._starlark.Dialect.standard()
        dialect.enable_keyword_only_arguments = True
        dialect.enable_def = dialect.enable_lambda = path.endswith(".bzl")
        return dialect

    def _builtins_for(self, repository, package):
        """builtins.bzl for one file: Label() is relative to this file, and glob() to the BUILD file that is evaluated."""
        functions = {
            "resolve": lambda label: self._label(label, repository, package),
            "package_relative": lambda label: self._label(label, *self._now()),
            "package": lambda: self._now()[1],
            "references": self._refer,
            "target": self._target,
            "exports": lambda names: self._now()[0].exported[self._now()[1]].update(names),
            "glob": self._glob,
            "write": lambda name, path, text: self._written.setdefault(name, {}).update({path: text}),
            "sees": lambda apparent, name: repository.sees.update({apparent: name}),
            "use_extension": lambda file, name: self._use_extension(repository, file, name),
            "tag": lambda number, name, values: self._uses[number]["tags"].setdefault(name, []).append(values),
            "use_repo": lambda stack, number, apparent, name: self._use_repo(stack, self._uses[number], apparent, name),
        }
        module = self._starlark.Module()
        for name, function in functions.items():
            module.add_callable(f"_python_{name}", function)
        self._starlark.eval(
            module, self._starlark.parse(_BUILTINS, _builtins()[0], self._dialect(_BUILTINS)), self._globals
        )
        return module.freeze()

    def _build_file(self, repository, path):
        self._building = repository, _folder(path)
        try:
            self._evaluate(repository, path, repository.files[path])
        finally:
            self._building = None

    def _load(self, label, repository, package):
        of, folder, name = self._resolve(label, repository, package)
        path = f"{folder}/{name}".lstrip("/")
        found = self._repositories.get(of)
        if not found or path not in found.files or found.package_of(path) != folder:
            raise ValueError(f"load of {label}: there is no such file in a package of that name")
        return self._module(found, path)

    def _module(self, repository, path):
        """What a .bzl file exports."""
        key = repository.name, path
        if key not in self._modules:
            self._modules[key] = None
            building, self._building = self._building, None
            try:
                self._modules[key] = self._evaluate(repository, path, repository.files[path]).freeze()
            finally:
                self._building = building
        if not self._modules[key]:
            raise Reported(path)
        return self._modules[key]

    def _names_in_functions(self):
        """Functions of the files that were loaded need not have been called: what they call `native` and `cc_common` for."""
        for (name, path), module in self._modules.items():
            repository = self._repositories[name]
            for node in ast.walk(ast.parse(repository.files[path])) if module and name not in MODULES else []:
                owner = ast.unparse(node.value) if isinstance(node, ast.Attribute) else ""
                place = f"{repository.show(path)}:{getattr(node, 'lineno', 0)}"
                if owner == "native" and node.attr not in _builtins()[2]:
                    self._problem(place, f"Bazel 9 has no native.{node.attr}")
                if re.fullmatch(r"(\w+\.)?(cc_)?common", owner) and node.attr not in CC_COMMON:
                    self._problem(place, f"cc_common has no {node.attr}")

    # What BUILD files call.

    def _now(self):
        if not self._building:
            raise ValueError("this can be called for a BUILD file only")
        return self._building

    def _target(self, stack, name, labels, outs):
        repository, package = self._now()
        repository.targets[package].update([name, *_flat(outs)])
        self._refer(stack, _flat(labels))

    def _glob(self, include, exclude, allow_empty):
        repository, package = self._now()
        start = f"{package}/".lstrip("/")
        paths = [path for path in repository.files if path.startswith(start) and repository.package_of(path) == package]

        def matches(pattern):
            return {path[len(start) :] for path in paths if _pattern(pattern).fullmatch(path[len(start) :])}

        for pattern in include:
            if not allow_empty and not matches(pattern):
                raise ValueError(f"the glob pattern {pattern} can match nothing: say allow_empty = True")
        return sorted(set().union(*map(matches, include)) - set().union(*map(matches, exclude)))

    # Modules.

    def _module_file(self, repository):
        if "MODULE.bazel" in repository.files:
            repository.sees.update({"bazel_tools": "bazel_tools"})
            self._evaluate(repository, "MODULE.bazel", repository.files["MODULE.bazel"])

    def _use_extension(self, repository, file, name):
        of, package, file = self._resolve(file, repository, "")
        extension = f'load("@@{of}//{package}:{file}", extension = "{name}")\n'
        tags = self._evaluate(repository, "use_extension.bzl", extension + "tags = extension.tags")["tags"]
        self._uses.append({"of": of, "by": repository, "extension": extension, "tags": {}, "repositories": []})
        return {"id": len(self._uses) - 1, "tags": tags}

    def _use_repo(self, stack, use, apparent, name):
        use["by"].sees[apparent] = name
        use["repositories"].append((re.findall(r"^  \* (\S+:\d+), in <module>", stack, re.M)[0], name))

    def _extensions(self, repositories):
        """Runs the extension of every use, and returns the repositories that they make."""
        made = {}
        for use in self._uses:
            self._written = {}
            root = {"name": use["by"].name, "is_root": True, "tags": use["tags"]}
            text = use["extension"] + "extension.run(modules)"
            if not self._quietly(lambda: self._evaluate(use["by"], "use_extension.bzl", text, modules=[root])):
                continue
            for place, name in use["repositories"]:
                if name not in self._written:
                    self._problem(place, f"names the repository {name}: the extension does not make it")
            sees = {**self._repositories[use["of"]].sees, **{name: name for name in self._written}}
            made.update({name: Repository(name, files, sees) for name, files in self._written.items()})
        self._repositories.update(made)
        return made.values()

    def _check_flags(self, repository):
        for number, line in enumerate(repository.files.get(".bazelrc", "").splitlines(), 1):
            for no, name in [] if line.startswith("#") else _FLAG.findall(line):
                if name not in FLAGS and no + name not in FLAGS:
                    self._problem(
                        f"{repository.show('.bazelrc')}:{number}", f"--{no}{name} is not known to be in Bazel 9"
                    )


def _flat(value):
    """The labels in an attribute's value: those of a list, and the keys of a dictionary."""
    if isinstance(value, str) or isinstance(value, dict) and "workspace_root" in value:
        return [value]
    return [label for part in value or [] for label in _flat(part)]


@functools.cache
def _pattern(glob):
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
    return re.compile("".join(parts.get(part) or re.escape(part) for part in re.split(r"(\*\*/|\*\*|\*)", glob)))


def _place_and_message(error, shown):
    """Of starlark-rust's text: the innermost place that is not in builtins.bzl, and what is wrong there."""
    places = re.findall(r"^(?:  \*|\s*-->) (\S+?:\d+)", error, re.M)
    message = re.search(r"^error: (?:\w*Error: |fail: )*(.*)", error, re.M)
    outside = [place for place in places if not place.startswith(HERE)]
    return (outside or [shown])[-1], message.group(1) if message else error.splitlines()[0]


def repositories_of(files):
    """Lockstep, the module libtorch, and each workspace or module among the consumers."""
    folders = {
        _folder(path)
        for path in files
        if path.startswith(CONSUMERS) and path.rpartition("/")[2] in ("WORKSPACE", "MODULE.bazel")
    }
    parts = {folder: {} for folder in ["", *sorted(folders)]}
    for path, text in files.items():
        folder = max((folder for folder in parts if not folder or path.startswith(folder + "/")), key=len)
        parts[folder][path[len(folder) :].lstrip("/")] = text
    # A consumer without a MODULE.bazel is given what it would name there.
    sees = {"lockstep": "lockstep", "rules_cc": "rules_cc", "rules_shell": "rules_shell"}
    libtorch = {path[len(LIBTORCH) + 1 :]: text for path, text in parts[""].items() if path.startswith(LIBTORCH + "/")}
    return [
        Repository("libtorch", libtorch, {"libtorch": "libtorch"}),
        *(
            Repository(name or "lockstep", texts, sees if name else {"lockstep": "lockstep"})
            for name, texts in parts.items()
        ),
    ]


def files_of(root):
    """{path: text} of the files that git knows or would add. Only Bazel's are read."""
    command = ["git", "-c", f"safe.directory={root}", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()
    read = re.compile(r"(.*/)?(BUILD|BUILD\.bazel|MODULE\.bazel|\.bazelrc|[^/]*\.bzl)")
    paths = [name for name in sorted(set(names)) if (root / name).is_file()]
    return {name: (root / name).read_text() if read.fullmatch(name) else "" for name in paths}


def main():
    problems, count = Evaluation().run(repositories_of(files_of(ROOT)))
    for problem in problems:
        print(problem)
    print(f"{count} files evaluated as Bazel 9 would, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
