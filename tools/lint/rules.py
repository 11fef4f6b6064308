"""The rules of the house that a look at one file's text can check. Each returns the problems it finds, one line each."""

import ast
import pathlib
import re

import cpp
import prose

# Spelt in two parts: this file is checked too.
_REMINDERS = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
_EXTERNAL_LABEL = re.compile(r"@(?!lockstep//|bazel_tools//)[\w.~-]+//")
_PUBLIC = "//visibility:public"


def is_bazel_file(path):
    return path.name in ("BUILD", "WORKSPACE", "BUILD.bazel", "MODULE.bazel") or path.suffix == ".bzl"


def is_shell_script(path, text):
    return path.suffix == ".sh" or re.match(r"#!.*\b(sh|bash)\b", text) is not None


def is_python_script(path, text):
    return path.suffix == ".py" or re.match(r"#!.*\bpython3?\b", text) is not None


def _in_third_party(path):
    return "third_party" in path.parts[:-1]


def no_reminders(path, text):
    """An unfinished matter is an issue, not a note in the code."""
    for number, line in enumerate(text.splitlines(), 1):
        if _REMINDERS.search(line):
            yield f"{path}:{number}: a note to do something later: do it, or file an issue and delete the note"


def external_repositories_only_in_third_party(path, text):
    of_another_workspace = path.parts[:2] == ("examples", "consumer")
    if not is_bazel_file(path) or _in_third_party(path) or of_another_workspace or path.name == "MODULE.bazel":
        return
    for number, line in enumerate(text.splitlines(), 1):
        if label := _EXTERNAL_LABEL.search(line):
            yield f"{path}:{number}: names the external repository {label.group()}: depend on its alias in //third_party"


def _default_visibility(text):
    for call in ast.walk(ast.parse(text)):
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "package":
            for keyword in call.keywords:
                if keyword.arg == "default_visibility":
                    yield keyword.value.lineno, ast.unparse(keyword.value)


def private_by_default(path, text):
    """third_party and tools/flags are there for everybody; elsewhere a target is opened by itself."""
    if path.name != "BUILD" or path.parent in (pathlib.PurePath("third_party"), pathlib.PurePath("tools/flags")):
        return
    for number, value in _default_visibility(text):
        if _PUBLIC in value:
            yield f"{path}:{number}: everything here is public: set default_visibility to private and open single targets"


TEXT_RULES = (
    no_reminders,
    external_repositories_only_in_third_party,
    private_by_default,
    prose.plain_markdown,
    prose.plain_comments,
    prose.comments_with_subjects,
    cpp.check,
)


def check(path, text):
    """The problems of one file; `path` is relative to the repository."""
    path = pathlib.PurePath(path)
    try:
        return [problem for rule in TEXT_RULES for problem in rule(path, text)]
    except SyntaxError as error:
        return [f"{path}:{error.lineno}: is not Python's syntax: {error.msg}"]
