#!/usr/bin/env python3
"""Puts the C++ blocks of Markdown pages into a source: expand.py TEMPLATE PAGE... > SOURCE.

A line of the template "BLOCK page.md 2" stands for the second C++ block of that page. Each block of each page must be used
once. The compiler reports errors at the page's line.
"""

import pathlib
import re
import sys

_FENCE = re.compile(r"^```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_USE = re.compile(r"^ *BLOCK (\S+) (\d+)$")


def blocks_of(path, text):
    """{"path N": the block, under a #line}."""
    blocks = {}
    for number, match in enumerate(_FENCE.finditer(text), start=1):
        line = text.count("\n", 0, match.start(1)) + 1
        blocks[f"{path} {number}"] = f'#line {line} "{path}"\n{match[1]}'
    return blocks


def expand(template_path, template, blocks):
    unused = dict(blocks)
    lines = []
    for number, line in enumerate(template.splitlines(), start=1):
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
    return "".join(lines)


def main():
    template, *pages = sys.argv[1:]
    blocks = {}
    for page in pages:
        blocks.update(blocks_of(page, pathlib.Path(page).read_text()))
    try:
        print(expand(template, pathlib.Path(template).read_text(), blocks), end="")
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
