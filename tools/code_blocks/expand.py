#!/usr/bin/env python3
"""Puts the C++ of Markdown pages into a source: expand.py TEMPLATE PAGE... > SOURCE.

A line of the template "BLOCK page.md 2" stands for the second C++ block of that page. Each block of each page must be used
once. A line "SPAN page.md f(x)" stands for a span of code in the page's text, as a statement. If a template has one of a
page, it must have each span of that page that calls something, apart from the Python column of tables. The compiler
reports errors at the page's line.
"""

import pathlib
import re
import sys

_FENCE = re.compile(r"^```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`]+)`")
_CALL = re.compile(r"\w\(|^for \(|;$")
_USE = re.compile(r"^ *BLOCK (\S+) (\d+)$")
_USE_OF_SPAN = re.compile(r"^ *SPAN (\S+) (.+)$")


def blocks_of(path, text):
    """{"path N": the block, under a #line}."""
    blocks = {}
    for number, match in enumerate(_FENCE.finditer(text), start=1):
        line = text.count("\n", 0, match.start(1)) + 1
        blocks[f"{path} {number}"] = f'#line {line} "{path}"\n{match[1]}'
    return blocks


def spans_of(path, text):
    """{(path, a span that calls something): a statement, under a #line}."""
    spans = {}
    prose = _CODE.sub(lambda match: "\n" * match[0].count("\n"), text)
    for number, line in enumerate(prose.splitlines(), start=1):
        for span in _SPAN.findall(line.rsplit(" | ", 1)[-1]):
            if _CALL.search(span):
                spans.setdefault((path, span), f'#line {number} "{path}"\n{span.rstrip(";")};\n')
    return spans


def expand(template_path, template, blocks, spans):
    unused = dict(blocks)
    lines, used_spans = [], set()
    for number, line in enumerate(template.splitlines(), start=1):
        if span := _USE_OF_SPAN.match(line):
            if span.groups() not in spans:
                raise ValueError(f"{template_path}:{number}: {span[1]} has no span `{span[2]}` that calls something")
            used_spans.add(span.groups())
            lines.append(f'{spans[span.groups()]}#line {number + 1} "{template_path}"\n')
            continue
        use = _USE.match(line)
        if not use:
            lines.append(line + "\n")
            continue
        name = f"{use[1]} {use[2]}"
        if name not in unused:
            raise ValueError(f"{template_path}:{number}: {name} is not a C++ block, or is used twice")
        lines.append(f'{unused.pop(name)}#line {number + 1} "{template_path}"\n')
    if unused:
        raise ValueError(f"{template_path}: no BLOCK line for {', '.join(sorted(unused))}")
    pages = {path for path, _ in used_spans}
    for path, span in spans:
        if path in pages and (path, span) not in used_spans:
            raise ValueError(f"{template_path}: no line SPAN {path} {span}")
    return "".join(lines)


def main():
    template, *pages = sys.argv[1:]
    texts = {page: pathlib.Path(page).read_text() for page in pages}
    blocks = {name: block for page, text in texts.items() for name, block in blocks_of(page, text).items()}
    spans = {key: span for page, text in texts.items() for key, span in spans_of(page, text).items()}
    try:
        print(expand(template, pathlib.Path(template).read_text(), blocks, spans), end="")
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
