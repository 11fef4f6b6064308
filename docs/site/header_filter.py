#!/usr/bin/env python3
"""Prints a header for Doxygen: header_filter.py FILE. Its comments, which are plain //, become ///. Lines keep their numbers.

A comment at the end of a line belongs to that line. Deeper lines of a comment are code. The first comment is about the file.
"""

import re
import sys

_COMMENT = re.compile(r"^(?P<before>.*?)(?P<slashes>//)(?P<text>( .*)?)$")
_STRING = re.compile(r'"(?:\\.|[^"\\])*"')


def escaped(text):
    """The text without marks that Doxygen would obey; spans of code stay."""
    parts = re.split(r'(`[^`]*`|"[^"]*"|\\file)', text)
    return "".join(part if i % 2 else re.sub(r"([\\@<>#&*_%|\[\]~])", r"\\\1", part) for i, part in enumerate(parts))


def comment(text, marks):
    if re.match(r" {2,}", text):
        return f"{marks}     {text}"  # Markdown's code
    return f"{marks}{escaped(text)}"


def filtered(text):
    if text.startswith("//"):
        text = text.replace("\n\n", "\n// \\file\n", 1)  # takes a line that was empty: the others stay where they are
    lines = []
    for line in text.splitlines():
        match = _COMMENT.match(_STRING.sub(lambda string: "s" * len(string.group()), line))
        if not match:
            lines.append(line)
            continue
        before, words = line[: match.end("before")], line[match.end("slashes") :]
        if not before.strip():
            lines.append(before + comment(words, "///"))
        elif re.match(r"[#}]|\s*(?:class|struct) \w+;", before) or words.startswith(" NOLINT"):
            lines.append(before)  # not about a declaration of this header, or not for readers
        else:
            lines.append(before + comment(words, "///<"))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    with open(sys.argv[1]) as header:
        sys.stdout.write(filtered(header.read()))
