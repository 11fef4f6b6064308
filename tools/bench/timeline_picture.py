"""Draws the timeline of a disturbed training, as chaos --timeline writes it, as one SVG: faults, ranks, steps.

  bazel run //elastic/chaos -- --faults=20 --timeline=/tmp/run.json
  python3 tools/bench/timeline_picture.py docs/elastic_run.svg /tmp/run.json
"""

import html
import json
import sys

WIDTH, LEFT, RIGHT = 1000, 92, 130
FAULTS, RANKS, STEPS, RATE, GAP = 215, 70, 34, 90, 26  # heights
APART = 15  # between the names of two faults at least
BIN = 0.25  # seconds
FAULT_COLOUR, RANKS_COLOUR, STEP_COLOUR, RATE_COLOUR, GRID = "#d62728", "#9ecae1", "#2171b5", "#2171b5", "#dddddd"


def read(path):
    """{event: its lines} of the file."""
    events = {"fault": [], "generation": [], "step": []}
    with open(path) as file:
        for line in file:
            event = json.loads(line)
            events[event["event"]].append(event)
    if not events["step"]:
        sys.exit("timeline_picture: no step in this file")
    return events


def text(x, y, words, anchor="start", turn=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turn}>{html.escape(words)}</text>'


class Band:
    """A part of the picture from `top` down, with the time from left to right."""

    def __init__(self, name, top, height, begin, end):
        self.top, self.height, self.begin = top, height, begin
        self.scale = (WIDTH - LEFT - RIGHT) / (end - begin)
        self.out = [text(LEFT - 8, top + height / 2 + 4, name, "end")]

    def x(self, seconds):
        return LEFT + (seconds - self.begin) * self.scale

    def y(self, share):
        return self.top + self.height * (1 - share)


def faults_of(events, band):
    place = 0
    for fault in events["fault"]:
        x, y = band.x(fault["s"]), band.y(0)
        title = html.escape(f'{fault["name"]}: next step after {fault["next_step_ms"]:.0f} ms')
        band.out.append(
            f'<circle cx="{x:.1f}" cy="{y - 4:.1f}" r="3" fill="{FAULT_COLOUR}"><title>{title}</title></circle>'
        )
        place = max(place + APART, x)
        turn = f' transform="rotate(-50 {place:.1f} {y - 10:.1f})"'
        band.out.append(text(place, y - 10, fault["name"], turn=turn))


def ranks_of(events, band, end):
    generations = sorted(events["generation"], key=lambda generation: generation["number"])
    most = max(generation["ranks"] for generation in generations)
    for number, generation in enumerate(generations):
        begin = max(generation["s"], band.begin)
        until = generations[number + 1]["s"] if number + 1 < len(generations) else end
        if until <= begin:
            continue
        y, width = band.y(generation["ranks"] / most), (until - begin) * band.scale
        title = f'generation {generation["number"]}: {generation["ranks"]} ranks'
        band.out.append(
            f'<rect x="{band.x(begin):.1f}" y="{y:.1f}" width="{width:.1f}" height="{band.y(0) - y:.1f}"'
            f' fill="{RANKS_COLOUR}"><title>{title}</title></rect>'
        )
    for ranks in range(1, most + 1):
        band.out.append(text(LEFT + 2, band.y(ranks / most) + 11, str(ranks)))


def steps_of(times, band):
    ticks = "".join(f"M{band.x(second):.1f} {band.top}v{band.height}" for second in times)
    band.out.append(f'<path d="{ticks}" stroke="{STEP_COLOUR}" stroke-width="0.5" fill="none"/>')


def rate_of(times, band, end):
    bins = [0] * (int((end - band.begin) / BIN) + 1)
    for second in times:
        bins[int((second - band.begin) / BIN)] += 1
    most = max(bins)
    points = " ".join(
        f"{band.x(band.begin + BIN * (i + 0.5)):.1f},{band.y(n / most):.1f}" for i, n in enumerate(bins[:-1])
    )
    band.out.append(f'<path d="M{LEFT} {band.y(0):.1f}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
    band.out.append(f'<polyline points="{points}" fill="none" stroke="{RATE_COLOUR}" stroke-width="1.5"/>')
    band.out.append(text(LEFT + 2, band.y(1) + 9, f"{most / BIN:.0f}"))


def picture(events):
    """The SVG from the first step on, or half a second before the first fault, to the last step."""
    end = max(step["s"] for step in events["step"])
    first = min([0.0] + [fault["s"] - 0.5 for fault in events["fault"]])
    begin = max(first, min(step["s"] for step in events["step"]))
    times = sorted(step["s"] for step in events["step"] if step["s"] >= begin)
    bands, top = [], 10
    for name, height in (("faults", FAULTS), ("ranks", RANKS), ("each step", STEPS), ("steps a second", RATE)):
        bands.append(Band(name, top, height, begin, end))
        top += height + GAP
    faults_of(events, bands[0])
    ranks_of(events, bands[1], end)
    steps_of(times, bands[2])
    rate_of(times, bands[3], end)
    lines = [
        text(bands[0].x(second), top - 8, f"{second} s", "middle")
        for second in range(0, int(end) + 1, max(1, int(end / 12)))
    ]
    for fault in events["fault"]:
        x = bands[0].x(fault["s"])
        lines.insert(
            0,
            f'<path d="M{x:.1f} {bands[0].y(0):.1f}V{bands[3].y(0):.1f}" stroke="{FAULT_COLOUR}" stroke-width="0.5" stroke-dasharray="3 3"/>',
        )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" font-family="sans-serif" font-size="11">'
    )
    body = [line for band in bands for line in band.out]
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *body, *lines, "</svg>", ""])


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    events = read(sys.argv[2])
    with open(sys.argv[1], "w") as file:
        file.write(picture(events))


if __name__ == "__main__":
    main()
