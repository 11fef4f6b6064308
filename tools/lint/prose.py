"""How Markdown pages, comments and subjects of commits must read: none of some phrases that are not plain English."""

import re

import cpp

COLUMNS = 100
MOST_IN_SUBJECT = 72

_PHRASES = (
    (
        re.compile(r"(?<!there )\b(?:is|are|was|were)\s+no\s+(?!longer\b|more\b|less\b|\w+er\b)[a-z]+", re.I),
        'write "is not a ..."',
    ),
    (re.compile(r"(?<!because )\bof\s+(?:its|their|your|one's)\s+own\b", re.I), 'write "its own ..." before the noun'),
    (re.compile(r"\b(?:those\s+(?:that|of)|that\s+that)\b", re.I), "repeat the noun"),
    (re.compile(r"\b(?:is|are)\s+(?:told|meant)\s", re.I), "say who does what"),
    (re.compile(r"(?:^|[.;:|]\s+)(?:Who|What)(?:ever)?\s+[a-z]+s\b(?!.*\?)", re.M), "begin with a noun"),
    (re.compile(r"\bbut\s+for\b", re.I), 'write "except for" or "apart from"'),
    (re.compile(r"\b(?:is|are|was|were)\s+born\b", re.I), 'memory "is allocated", a file "is created"'),
)
_FENCE = re.compile(r"^ *```.*?^ *```", re.M | re.S)
_SPAN = re.compile(r"`[^`]*`")
_NO_SUBJECT = re.compile(r"//+ *(Of|Whether|What|The same)\b")
_LINK_TARGET = re.compile(r"\]\([^)]*\)")


def _blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def _is_prose(line):
    return not line.lstrip().startswith("|") and not line.startswith("    ")


def _phrases(path, text):
    for phrase, remedy in _PHRASES:
        for match in phrase.finditer(text):
            number = text.count("\n", 0, match.end()) + 1
            found = " ".join(match.group().split())
            yield f'{path}:{number}: "{found}": {remedy}; CONTRIBUTING.md has the rules for prose'


def plain_markdown(path, text):
    """A page wraps at 100 columns, apart from tables, code and the targets of links, and avoids the phrases."""
    if path.suffix != ".md":
        return
    text = _FENCE.sub(_blank, text)
    for number, line in enumerate(text.splitlines(), 1):
        if _is_prose(line) and len(_LINK_TARGET.sub("]", line).rstrip()) > COLUMNS:
            yield f"{path}:{number}: is longer than {COLUMNS} columns: wrap it"
    yield from _phrases(path, _SPAN.sub(_blank, text))


def plain_comments(path, text):
    """The comments of a header avoid the phrases."""
    if path.suffix == ".h":
        comments = [" " * line.find("//") + "  " + line.partition("//")[2] for line in text.splitlines()]
        lines = [comment if "//" in line else "" for line, comment in zip(text.splitlines(), comments)]
        yield from _phrases(path, _SPAN.sub(_blank, "\n".join(lines)))


def comments_with_subjects(path, text):
    """A comment of C++ begins with a subject or a verb. A comment in the same column as the one above continues it."""
    if path.suffix not in (".h", ".cc"):
        return
    end, column = 0, -1
    for match in cpp.comments(text):
        start, above = match.start() - text.rfind("\n", 0, match.start()), column
        continues = (
            start == above and not text[end : match.start()].strip() and text.count("\n", end, match.start()) == 1
        )
        end, column = match.end(), start
        found = _NO_SUBJECT.match(match.group())
        if found and not continues:
            line = text.count("\n", 0, match.start()) + 1
            yield f'{path}:{line}: a comment begins with "{found.group(1)}": write "Returns whether ...", "True if ..." or a noun'


def subjects(log):
    """The subjects of commits are short, and have no full stop; `log` has a commit a line: its name and its subject."""
    for line in log.splitlines():
        name, _, subject = line.partition(" ")
        if len(subject) > MOST_IN_SUBJECT:
            yield f"commit {name}: the subject has {len(subject)} characters: write at most {MOST_IN_SUBJECT}"
        if subject.endswith("."):
            yield f"commit {name}: the subject ends with a full stop: leave it out"
