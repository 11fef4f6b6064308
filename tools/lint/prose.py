"""How Markdown pages must read: lines of at most 100 columns, and none of some phrases that are not plain English."""

import re

COLUMNS = 100

_OWN = r"\bof\s+(?:its|their|your|one's)\s+own\b(?=[^\s\w]|\s+(?:and|by|for|in|on|or|that|to|where|with)\b)"
_PHRASES = (
    (
        re.compile(r"(?<!there )\b(?:is|are|was|were)\s+no\s+(?!longer\b|more\b|less\b|\w+er\b)\w+", re.I),
        'write "is not a ..."',
    ),
    (re.compile(_OWN, re.I), 'write "its own ..." before the noun'),
    (re.compile(r"\b(?:those|that)\s+that\b", re.I), "repeat the noun"),
    (re.compile(r"(?:^|[.;:|]\s+)(?:Who|What)(?:ever)?\s+[a-z]+s\b(?!.*\?)", re.M), "begin with a noun"),
    (re.compile(r"\bbut\s+for\b", re.I), 'write "except for" or "apart from"'),
    (re.compile(r"\b(?:is|are|was|were)\s+born\b", re.I), 'memory "is allocated", a file "is created"'),
)
_FENCE = re.compile(r"^ *```.*?^ *```", re.M | re.S)
_SPAN = re.compile(r"`[^`]*`")
_LINK_TARGET = re.compile(r"\]\([^)]*\)")


def _blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def _is_prose(line):
    return not line.lstrip().startswith("|") and not line.startswith("    ")


def plain_markdown(path, text):
    """A page wraps at 100 columns, apart from tables, code and the targets of links, and avoids the phrases."""
    if path.suffix != ".md":
        return
    text = _FENCE.sub(_blank, text)
    for number, line in enumerate(text.splitlines(), 1):
        if _is_prose(line) and len(_LINK_TARGET.sub("]", line).rstrip()) > COLUMNS:
            yield f"{path}:{number}: is longer than {COLUMNS} columns: wrap it"
    text = _SPAN.sub(_blank, text)
    for phrase, remedy in _PHRASES:
        for match in phrase.finditer(text):
            number = text.count("\n", 0, match.end()) + 1
            found = " ".join(match.group().split())
            yield f'{path}:{number}: "{found}": {remedy}; CONTRIBUTING.md has the rules for prose'
