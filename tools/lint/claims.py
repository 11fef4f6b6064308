"""What pages claim, where another page or file says how it is."""

import re

_CODE = re.compile(r"^( *)```.*?^ *```[^\n]*$", re.M | re.S)
_BEGINS = re.compile(r" *(- |\d+\. |\||#)")
_BITS = re.compile(r"\bbits\b.*\bany\s+number\s+of\s+ranks\b|\bany\s+number\s+of\s+ranks\b.*\bbits\b", re.I | re.S)
_PLAIN_BAZEL = re.compile(r"^[ \t]*(?:\$ )?bazel (?:build|run|test|query)\b", re.M)
_MINUTES = re.compile(r"\bfirst\s+builds?\b.*\bminutes?\b|\bminutes?\b.*\bfirst\s+builds?\b", re.S)
_BUILD_TIMES = "examples/consumer/README.md"
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
    """The same bits on any number of ranks are a promise for data-parallel ranks only."""
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


def check(pages):
    """The problems of {path: text} of all Markdown pages."""
    of_a_page = (unqualified_promises, never_on_a_gpu, plain_bazel, build_times)
    return [problem for path, text in pages.items() for check_page in of_a_page for problem in check_page(path, text)]
