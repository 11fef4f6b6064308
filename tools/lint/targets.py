"""The targets of the BUILD files: which exist, and which sources a program is made of."""

import ast
import fnmatch
import pathlib
import re

_TEST_FOLDERS = {"failures", "fuzz", "peer", "testing"}
_USES = ("deps", "actual", "library", "data", "srcs", "hdrs", "script", "inputs")
_WITH_ABSL = ["//base:status", "//third_party:absl"]
_WITH_FLAGS = [*_WITH_ABSL, "//base:command_line", "//base:flag_error", "//third_party:gflags"]
_FAMILIES = {"cc": [], "absl": _WITH_ABSL, "torch": [*_WITH_ABSL, "//base:torch_status", "//third_party:torch"]}
_FLAG = re.compile(r"""DEFINE_\w+\(\s*(\w+)|["'](?:--)?([a-z][\w-]*)(?:=[^"']*)?["']""")


def package_of(name):
    return name.rpartition("/")[0]


def _expression(value):
    return ast.parse(repr(value), mode="eval").body


def _expanded(kind, keywords, package):
    """The rules of Bazel's that a macro of tools/cc.bzl makes."""
    if names := keywords.pop("names", None):
        for name in ast.literal_eval(names):
            yield from _expanded(kind.removesuffix("s"), {**keywords, "name": _expression(name)}, package)
        return
    if kind == "peer_test" and isinstance(keywords["name"], ast.Constant):
        keywords.setdefault("script", _expression(f"{keywords['name'].value}.py"))
    if kind == "script_test" and isinstance(keywords["name"], ast.Constant):
        keywords.setdefault("srcs", _expression(f"{keywords['name'].value}.py"))
    family, _, rule = kind.partition("_")
    name = getattr(keywords.get("name"), "value", None)
    if family not in _FAMILIES or rule not in ("library", "binary", "program", "test") or name is None:
        yield kind, keywords
        return
    deps = _FAMILIES[family]
    if rule == "test":
        deps = [*deps, *_WITH_ABSL, "//third_party:gtest"]
    elif rule == "program":
        deps, rule = [*deps, *_WITH_FLAGS], "binary"
    if deps:
        keywords["deps"] = ast.List([keywords.get("deps", ast.List([])), _expression(deps)])
    if programs := keywords.pop("programs", None):
        keywords["data"] = ast.List([keywords.get("data", ast.List([])), *programs.values])
    if rule == "library":
        default = [] if {"srcs", "hdrs"} & set(keywords) else [name]
        units = ast.literal_eval(keywords.pop("units", _expression(default)))
        for files, suffix in (("srcs", ".cc"), ("hdrs", ".h")):
            if units:
                own = keywords.get(files, ast.List([]))
                keywords[files] = ast.List([_expression([f"{unit}{suffix}" for unit in units]), own])
    elif "srcs" not in keywords:
        keywords["srcs"] = _expression([f"{name}.cc"])
    files = [file for of in ("srcs", "hdrs") for file in _strings(keywords.get(of, ast.List([])))]
    if rule != "test" and all(
        _TEST_FOLDERS & set(pathlib.PurePath(package, file).parts[:-1]) for file in files or ["*"]
    ):
        keywords.setdefault("testonly", _expression(True))
    yield f"cc_{rule}", keywords


def rules_of(text, package=""):
    """Each rule of a BUILD file: its kind and its keywords."""
    for statement in ast.parse(text).body:
        call = getattr(statement, "value", None)
        if isinstance(statement, ast.Expr) and isinstance(call, ast.Call):
            keywords = {keyword.arg: keyword.value for keyword in call.keywords}
            yield from _expanded(getattr(call.func, "id", ""), keywords, package)


def absolute(label, package):
    """The label as //package:name."""
    label = label.replace("@lockstep//", "//")
    if label.startswith("//"):
        package, _, name = label[2:].partition(":")
        return f"//{package}:{name or package.rpartition('/')[2]}"
    return f"//{package}:{label.lstrip(':')}"


def _strings(value):
    return [node.value for node in ast.walk(value) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _computed(name, loop, tree):
    """The names that a loop over what the BUILD file itself lists gives to its rules, or None."""
    constants = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            try:
                constants[ast.unparse(statement.targets[0])] = ast.literal_eval(statement.value)
            except ValueError:
                pass
    try:
        names = ast.fix_missing_locations(ast.Expression(ast.ListComp(name, loop.generators)))
        return eval(compile(names, "BUILD", "eval"), {"__builtins__": {}, **constants})
    except (AttributeError, NameError, TypeError):
        return None


class Targets:
    """From {path: text} of all BUILD files, and the names of all files."""

    def __init__(self, build_files, files):
        self._files = set(files)
        self._packages = {package_of(path) for path in build_files}
        self._uses = {}  # {label: labels of what it names}
        self._patterns = []  # for names that a BUILD file computes
        for path, text in build_files.items():
            self._read(package_of(path), ast.parse(text))

    def _read(self, package, tree):
        lists = {ast.unparse(line.targets[0]): line.value for line in tree.body if isinstance(line, ast.Assign)}
        loops = {id(loop.elt): loop for loop in ast.walk(tree) if isinstance(loop, ast.ListComp)}
        calls = [call for call in ast.walk(tree) if isinstance(call, ast.Call)]
        rules = [
            (call, keywords)
            for call in calls
            for _, keywords in _expanded(
                getattr(call.func, "id", ""), {keyword.arg: keyword.value for keyword in call.keywords}, package
            )
        ]
        for call, keywords in rules:
            name = keywords.get("name")
            if name is None:
                continue
            values = [keywords[of] for of in _USES if of in keywords]
            values += [
                lists[node.id] for value in values for node in ast.walk(value) if getattr(node, "id", "") in lists
            ]
            uses = {absolute(label, package) for value in values for label in _strings(value)}
            names = [name.value] if isinstance(name, ast.Constant) else _computed(name, loops.get(id(call)), tree)
            for each in names or []:
                self._uses.setdefault(f"//{package}:{each}", set()).update(uses)
                for out in _strings(keywords["outs"]) if "outs" in keywords else []:
                    self._uses.setdefault(f"//{package}:{out}", set())
            if names is None:
                words = ".*".join(re.escape(part) for part in re.split(r"%s|\{\w*\}", "".join(_strings(name)[:1])))
                self._patterns.append(re.compile(f"//{re.escape(package)}:{words or '.*'}"))

    def has(self, label):
        """Returns whether a label or a pattern such as //comm/... names something."""
        label = label.replace("@lockstep//", "//")
        if label.endswith("..."):
            folder = label[2:-3].rstrip("/")
            return any(
                package == folder or package.startswith(f"{folder}/") or not folder for package in self._packages
            )
        label = absolute(label, "")
        package, _, name = label[2:].partition(":")
        return (
            label in self._uses
            or package in self._packages
            and (name in ("all", "__pkg__", "__subpackages__") or f"{package}/{name}".lstrip("/") in self._files)
            or any(pattern.fullmatch(label) for pattern in self._patterns)
        )

    def sources(self, label):
        """The files that a target is made of, with those of everything that it uses."""
        waiting, seen = [absolute(label, "")], set()
        while waiting:
            label = waiting.pop()
            if label in seen:
                continue
            seen.add(label)
            waiting.extend(self._uses.get(label, ()))
        names = {label[2:].replace(":", "/", 1).lstrip("/") for label in seen}
        globbed = [file for name in names if "*" in name for file in fnmatch.filter(self._files, name)]
        return sorted(names & self._files | set(globbed))

    def flags(self, label, read):
        """Returns the words that the sources of a program define or compare as a flag."""
        found = set()
        for name in self.sources(label):
            if name.endswith((".cc", ".h", ".py", ".sh")):
                found.update(name for pair in _FLAG.findall(read(name)) for name in pair if name)
        return found
