"""Draws programs' output as a terminal, for README.md and other pages.

    run=docs/fashion_mnist_run.txt
    { echo '$ ./bazelw run //examples/fashion_mnist:train'; ./bazelw run //examples/fashion_mnist:train; } > $run 2>&1
    tools/lint/lint --fix

A line that begins with $ is what the reader types. A line of more than COLUMNS is wrapped.
"""

import html
import textwrap

# The pictures, and what a program wrote. launch_top.txt is the screen of `launch top` after a rank was killed.
PICTURES = {f"docs/{name}.svg": f"docs/{name}.txt" for name in ("fashion_mnist_run", "launch_top")}
COLUMNS = 100

_SIZE, _LINE, _MARGIN, _TITLE = 13, 20, 22, 34
_CHARACTER = 0.602 * _SIZE  # of the usual fonts of one width
_WINDOW, _BAR, _EDGE, _INK, _TYPED = "#1b1f24", "#2b3138", "#3d444d", "#dfe4ea", "#7ee2a0"
_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def _wrapped(line):
    return textwrap.wrap(line, COLUMNS, subsequent_indent="    ") if len(line) > COLUMNS else [line]


def _text(y, line):
    words, colour = html.escape(line), _INK
    if line.startswith("$ "):
        words = f'<tspan fill="{_TYPED}">$</tspan>{words[1:]}'
    return f'<text x="{_MARGIN}" y="{y}" fill="{colour}" xml:space="preserve">{words}</text>'


def picture(text):
    """The SVG of a program's output."""
    lines = [part for line in text.rstrip("\n").splitlines() for part in _wrapped(line.rstrip())]
    width = round(2 * _MARGIN + COLUMNS * _CHARACTER)
    height = _TITLE + 14 + _LINE * len(lines) + 12
    dots = "".join(
        f'<circle cx="{22 + 20 * index}" cy="17" r="6" fill="{colour}"/>'
        for index, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            f' font-family="{_FONT}" font-size="{_SIZE}">',
            "<title>A program's output in a terminal</title>",
            f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="9" fill="{_WINDOW}" stroke="{_EDGE}"/>',
            f'<path d="M1 {_TITLE} V10 Q1 1 10 1 H{width - 10} Q{width - 1} 1 {width - 1} 10 V{_TITLE} Z" fill="{_BAR}"/>',
            dots,
            *(_text(_TITLE + 14 + _LINE * (index + 1) - 6, line) for index, line in enumerate(lines)),
            "</svg>",
            "",
        ]
    )
