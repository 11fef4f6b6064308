"""Formats every file of a kind, by running that kind's formatter over its text."""

import io
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import tokenize

LINE_LENGTH = "120"


class CannotFormat(Exception):
    """The formatter refuses the text; says why in one line."""


def cpp(texts, style):
    """{name: the formatted text, or CannotFormat} of C++ files, by the .clang-format at `style`.

    A process for many files, because each start of clang-format takes 0.04 s of CPU time.
    """
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(style, folder)
        for name, text in texts.items():
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        names, parts = list(texts), os.cpu_count()
        runs = [
            (part, subprocess.Popen(["clang-format", "-i", *part], cwd=folder, stderr=subprocess.PIPE, text=True))
            for part in (names[start::parts] for start in range(parts))
            if part
        ]
        formatted = {}
        for part, run in runs:
            errors = run.communicate()[1].strip().splitlines()
            for name in part:
                text = (pathlib.Path(folder) / name).read_text()
                formatted[name] = CannotFormat((errors or ["no output"])[-1]) if run.returncode else text
        return formatted


def _blacken(texts, *flags):
    """{name: what black makes of the text, or CannotFormat}, by one run: black takes a quarter of a second to start."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: pathlib.Path(folder) / f"{number}.py" for number, name in enumerate(texts)}
        for name, path in paths.items():
            path.write_text(texts[name])
        command = ["black", "--quiet", f"--line-length={LINE_LENGTH}", *flags, *map(str, paths.values())]
        environment = {**os.environ, "BLACK_CACHE_DIR": folder}
        run = subprocess.run(command, capture_output=True, text=True, env=environment) if texts else None
        errors = dict(re.findall(r"cannot format (\S+): (.*)", run.stderr)) if texts else {}
        if texts and run.returncode and not errors:
            raise CannotFormat((run.stderr.strip().splitlines() or [f"exit code {run.returncode}"])[-1])
        return {
            name: CannotFormat(errors[str(path)]) if str(path) in errors else path.read_text()
            for name, path in paths.items()
        }


def python(texts):
    """{name: the formatted text, or CannotFormat} of Python files."""
    return _blacken(texts)


def bazel(texts):
    """black, and then what Bazel files have otherwise than Python: `name = value` in calls, and `select({` on one line.

    py33 keeps black from putting a comma after **kwargs, which Starlark does not take.
    """
    blackened = _blacken(texts, "--target-version=py33")
    return {
        name: text if isinstance(text, CannotFormat) else _hug_dictionaries(_space_keywords(text))
        for name, text in blackened.items()
    }


def _space_keywords(text):
    lines = text.splitlines(keepends=True)
    depth, equals = 0, []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.OP:
            continue
        depth += (token.string in "([{") - (token.string in ")]}")
        if token.string == "=" and depth > 0:
            equals.append(token.start)
    for row, column in reversed(equals):
        line = lines[row - 1]
        lines[row - 1] = f"{line[:column].rstrip()} = {line[column + 1:].lstrip()}"
    return "".join(lines)


def _hug_dictionaries(text):
    lines = text.splitlines(keepends=True)
    for first in range(len(lines) - 1, 0, -1):
        indent = lines[first][: -len("{\n")]
        if lines[first].strip() != "{" or not lines[first - 1].endswith("(\n"):
            continue
        last = lines.index(indent + "}\n", first) if indent + "}\n" in lines[first:] else len(lines)
        if last + 1 >= len(lines) or not lines[last + 1].strip().startswith(")"):
            continue
        body = [line.removeprefix("    ") for line in lines[first + 1 : last]]
        lines[first - 1 : last + 2] = [
            lines[first - 1][:-1] + "{\n", *body, lines[last].rstrip().removeprefix("    ") + lines[last + 1].lstrip(),
        ]  # fmt: skip
    return "".join(lines)
