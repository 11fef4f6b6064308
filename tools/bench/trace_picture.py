"""Draws Chrome traces, as ddp::WriteChromeTrace writes them, as one SVG: a band a rank, a row for what it computes and one a bucket.

  python3 tools/bench/trace_picture.py OUT.svg TRACE...
"""

import html
import json
import sys

WIDTH, LEFT, ROW, GAP = 1000, 110, 22, 14
COLOURS = {"forward": "#9ecae1", "backward": "#4292c6", "wait for buckets": "#fdae6b"}
BUCKET_COLOUR = "#74c476"


def read(paths):
    """[(rank, row, row's name, begin, end, name)] in microseconds, and the time at which it all begins."""
    spans, rows = [], {}
    for path in paths:
        with open(path) as file:
            events = json.load(file)["traceEvents"]
        for event in events:
            if event["name"] == "thread_name":
                rows[event["pid"], event["tid"]] = event["args"]["name"]
        for event in events:
            if event["ph"] == "X":
                key = event["pid"], event["tid"]
                spans.append((*key, rows[key], event["ts"], event["ts"] + event["dur"], event["name"]))
    if not spans:
        sys.exit("trace_picture: no step in these traces")
    return sorted(spans), min(span[3] for span in spans)


def text(x, y, words, anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>'


def picture(spans, start):
    length = max(span[4] for span in spans) - start
    scale = (WIDTH - LEFT - 10) / length
    out, y, place = [], 24, {}
    for rank, row, name, *_ in spans:
        if (rank, row) in place:
            continue
        if row == 0:
            y += GAP
        place[rank, row] = y
        out.append(text(LEFT - 6, y + 15, f"rank {rank} {name}", "end"))
        y += ROW
    for rank, row, _, begin, end, name in spans:
        x, width = LEFT + (begin - start) * scale, max(0.6, (end - begin) * scale)
        top = place[rank, row] + 2
        colour = COLOURS.get(name, BUCKET_COLOUR)
        title = html.escape(f"{name}: {(end - begin) / 1e3:.2f} ms")
        out.append(
            f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{ROW - 4}" fill="{colour}"><title>{title}</title></rect>'
        )
        if width > 7 * len(name):
            out.append(text(x + 4, top + 13, name))
    for tick in range(11):
        out.append(text(LEFT + tick * length * scale / 10, 16, f"{tick * length / 1e4:.0f}", "middle"))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 8}" font-family="sans-serif" font-size="11">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', text(4, 16, "ms"), *out, "</svg>", ""])


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    spans, start = read(sys.argv[2:])
    with open(sys.argv[1], "w") as file:
        file.write(picture(spans, start))


if __name__ == "__main__":
    main()
