"""What every file of a kind should look like, by running that kind's formatter over its text."""

import io
import subprocess
import tokenize

LINE_LENGTH = "120"


class CannotFormat(Exception):
    """The formatter refuses the text; says why in one line."""


def _filter(command, text):
    run = subprocess.run(command, input=text, capture_output=True, text=True)
    if run.returncode:
        raise CannotFormat((run.stderr.strip().splitlines() or [f"exit code {run.returncode}"])[-1])
    return run.stdout


def cpp(path, text):
    return _filter(["clang-format", f"--assume-filename={path}"], text)


def python(path, text):
    return _filter(["black", "--quiet", f"--line-length={LINE_LENGTH}", "-"], text)


def bazel(path, text):
    """black, and then what Bazel files have otherwise than Python: `name = value` in calls, and `select({` on one line.

    py33 keeps black from putting a comma after **kwargs, which Starlark does not take.
    """
    text = _filter(["black", "--quiet", f"--line-length={LINE_LENGTH}", "--target-version=py33", "-"], text)
    return _hug_dictionaries(_space_keywords(text))


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
