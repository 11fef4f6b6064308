"""Draws the figures of tools/bench:compare as bars, ours beside the peers'. It needs Python's standard library alone.

  python3 tools/bench/plot.py all_reduce.jsonl --svg=/tmp/x.svg    what compare --json wrote; the machine is not in that file
  python3 tools/bench/plot.py docs/performance.md                  all plots of the page, from its tables, into docs/plots

Lint and //tools/lint:documents_test fail if a plot differs from the table beside it.
"""

import argparse
import html
import math
import pathlib
import re
import sys

import figures

FOLDER = "plots"  # beside the page

# The sheet is light on a dark page too, so that a plot looks the same everywhere.
_SHEET, _LINE, _INK, _SOFT = "#fbfaf7", "#d8d4ca", "#22262b", "#5b636d"
_OURS, _OURS_TOO, _PEER, _ASIDE = "#2563b0", "#8fb4e3", "#aab2bb", "#d9d3c3"
_FONT = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', 'DejaVu Sans', sans-serif"
_MARGIN, _BAR, _ROW, _WIDTH = 24, 14, 19, 1010


class Bar:
    def __init__(self, name, value, text, ratio=None, colour=_PEER):
        self.name, self.value, self.text, self.ratio, self.colour = name, value, text, ratio, colour


class Plot:
    """columns: [(heading, [(name of the group, [Bar])])]."""

    def __init__(self, title, notes, columns, logarithmic=False, one_scale=False):
        self.title, self.notes, self.columns = title, notes, columns
        self.logarithmic, self.one_scale = logarithmic, one_scale or logarithmic


def in_words(value, unit):
    """Three digits and a unit."""
    if unit == "s":
        for size, name in ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")):
            if value >= 0.9995 * size or size == 1e-9:
                return f"{_digits(value / size)} {name}"
    return f"{_digits(value)} {unit}".strip()


def _digits(value):
    """Three digits, or all before the point."""
    exponent = int(f"{value:.2e}".partition("e")[2])
    return f"{value:.{max(0, 2 - exponent)}f}"


def ratio_in_words(ratio):
    return f"{ratio:.2f} ×" if ratio < 2.95 else f"{ratio:.1f} ×" if ratio < 10 else f"{ratio:.0f} ×"


def bars(values, programs, unit):
    """The bars of a case. `programs` is [(name in the figures, name in the plot, colour)]; a peer has its ratio."""
    out = []
    for program, name, colour in programs:
        if program not in values:
            continue
        value, ratio = values[program], None
        if colour == _PEER:
            ratio = values.get(("times", program), value / values["ours"] if unit == "s" else values["ours"] / value)
        out.append(Bar(name, value, in_words(value, unit), ratio, colour))
    return out


# One function a suite: from {case: {program: value}} to its plot.


def all_reduce(cases):
    columns = {}
    for case, values in cases.items():
        placement, size, dtype, ranks = case.split("/")
        if placement != "in_place" or dtype != "float32":
            continue
        # The peers have ordinary memory.
        values = {"in_place": values["ours"], **cases[f"ordinary/{size}/{dtype}/{ranks}"]}
        programs = [
            ("in_place", "Lockstep, in place", _OURS),
            ("ours", "Lockstep, ordinary", _OURS_TOO),
            ("openmpi", "Open MPI", _PEER),
            ("gloo", "PyTorch's Gloo", _PEER),
        ]
        heading = f"{ranks.removesuffix('ranks')} ranks"
        columns.setdefault(heading, []).append((re.sub(r"(\d)([KM])", r"\1 \2", size), bars(values, programs, "s")))
    notes = [
        "Time of a call, float32; shorter is better. Logarithmic scale. × is the time over Lockstep's for ordinary tensors."
    ]
    return Plot("all_reduce between processes of one host", notes, list(columns.items()), logarithmic=True)


def ddp(cases):
    programs = [
        ("ours", "Lockstep", _OURS),
        ("ours_without_gradient_allocator", "without its allocator", _OURS_TOO),
        ("python_ddp", "Python DDP", _PEER),
        ("python_ddp_bucket_view", "its bucket views", _PEER),
        ("python_ddp_noop_hook", "no communication", _ASIDE),
        ("python_local", "Python, not wrapped", _ASIDE),
        ("cpp_local", "C++, not wrapped", _ASIDE),
    ]
    names = {
        "resnet18/b8/64px": "ResNet-18",
        "mlp_784_512_512_10/b64": "MLP 784-512-512-10",
        "mlp_4x64/b32": "MLP 4 x 64",
    }
    groups = [(names.get(case, case), bars(values, programs, "s")) for case, values in cases.items()]
    notes = [
        "Time of a step of two ranks; shorter is better. Each network has its own scale. × is the time over Lockstep's."
    ]
    return Plot("A training step of DistributedDataParallel", notes, [("", groups)])


def checkpoint(cases):
    names = {
        "save/durable": "save, on the disk",
        "save/unsynced": "save, not flushed",
        "load/cached": "load from the page cache",
        "async_stall": "pause for a save in the background",
    }
    groups = []
    for case, values in cases.items():
        peers = [
            (peer, peer.replace("raw_o_direct", "the disk alone"), _PEER)
            for peer in values
            if peer != "ours" and isinstance(peer, str)
        ]
        groups.append(
            (names.get(case.rpartition("/")[0], case), bars(values, [("ours", "Lockstep", _OURS), *peers], "s"))
        )
    half = (len(groups) + 1) // 2
    notes = ["Time for 1 GiB; shorter is better. Each case has its own scale. × is the time over Lockstep's."]
    return Plot("Saving and loading checkpoints", notes, [("", groups[:half]), ("", groups[half:])])


def sampler(cases):
    names = {
        "first_index/torch/1.28M/8ranks": "first index, ImageNet, Python's order",
        "epoch/torch/1.28M/8ranks": "all indices of an epoch, ImageNet, Python's order",
        "first_index/feistel/1e9": "first index of 10⁹, Feistel order",
    }
    programs = [
        ("ours", "Lockstep", _OURS),
        ("python_distributed_sampler", "Python", _PEER),
        ("torch.randperm(10**9)", "torch.randperm", _PEER),
    ]
    groups = [(names.get(case, case), bars(values, programs, "s")) for case, values in cases.items()]
    notes = ["Time of rank 0 of 8; shorter is better. Logarithmic scale. × is the time over Lockstep's."]
    return Plot("The indices of an epoch", notes, [("", groups)], logarithmic=True)


def dp(cases):
    columns = {}
    for case, values in cases.items():
        network, _, replicas, ours = case.rsplit("/", 3)
        of = columns.setdefault(replicas.replace("replicas", " replicas"), {}).setdefault(network, {})
        of[ours], of["peer"] = values["ours"], values["peer"]
        if ours == "ours" and ("times", "peer") in values:
            of["times", "peer"] = values["times", "peer"]
    programs = [
        ("ours", "Lockstep, shared", _OURS),
        ("ours_copying", "Lockstep, copying", _OURS_TOO),
        ("peer", "LibTorch's algorithm", _PEER),
    ]
    names = {"mlp_784_512_512_10": "MLP 784-512-512-10", "resnet18/b8": "ResNet-18"}
    columns = [
        (heading, [(names.get(network, network), bars(values, programs, "s")) for network, values in groups.items()])
        for heading, groups in columns.items()
    ]
    notes = [
        "Time that the replicas add to a step; shorter is better. Each case has its own scale. × is the time over Lockstep's."
    ]
    return Plot("Several devices of one process", notes, columns)


def image_loader(cases):
    programs = [
        ("ours", "Lockstep", _OURS),
        ("dataloader_defaults", "DataLoader", _PEER),
        ("dataloader_prefetch_4", "DataLoader, prefetch 4", _PEER),
        ("dataloader_tensors", "DataLoader, other pixels", _PEER),
    ]
    (values,) = cases.values()
    notes = ["Images a second; longer is better. × is Lockstep's rate over the other."]
    return Plot(
        "Images from files",
        notes,
        [("", [("RandomResizedCrop(224), two workers", bars(values, programs, "images/s"))])],
    )


def launch(cases):
    names = {
        "start/2ranks": "start of 2 ranks",
        "start/16ranks": "start of 16 ranks",
        "teardown/exit": "end after a rank exited",
        "teardown/sigkill": "end after a rank was killed",
        "restart/2ranks": "restart of 2 ranks",
    }
    programs = [
        ("ours", "Lockstep", _OURS),
        ("torchrun", "torchrun", _PEER),
        ("torchrun_standalone", "torchrun --standalone", _PEER),
    ]
    groups = [(name, bars(cases[case], programs, "s")) for case, name in names.items() if case in cases]
    notes = ["Time; shorter is better. Logarithmic scale. × is the time over Lockstep's."]
    return Plot("Starting and ending ranks", notes, [("", groups)], logarithmic=True)


def resnet(cases):
    programs = [
        ("ours", "Lockstep", _OURS),
        ("python", "Python", _PEER),
        ("python_jemalloc", "Python, jemalloc", _PEER),
    ]
    columns = {}
    for case, values in cases.items():
        setting, _, ranks = case.partition(", ")
        columns.setdefault(ranks or "1 process", []).append((setting, bars(values, programs, "")))
    notes = ["Images a second; longer is better. × is Lockstep's rate over the other."]
    return Plot("ResNet-50 on the CPU", notes, list(columns.items()), one_scale=True)


SUITES = {
    "all_reduce": all_reduce,
    "ddp": ddp,
    "checkpoint": checkpoint,
    "sampler": sampler,
    "dp": dp,
    "image_loader": image_loader,
    "resnet": resnet,
    "launch": launch,
}


def gains(of):
    """The picture for a front page: how many times as fast as PyTorch, a bar for each thing that a training does."""
    times = lambda suite, case, peer: of[suite][case]["times", peer]
    rate = lambda case: of["resnet"][case]["ours"] / of["resnet"][case]["python"]
    steps = [
        ("small MLP, 2 ranks", times("ddp", "mlp_4x64/b32", "python_ddp")),
        ("wide MLP, 2 ranks", times("ddp", "mlp_784_512_512_10/b64", "python_ddp")),
        ("ResNet-18, 2 ranks", times("ddp", "resnet18/b8/64px", "python_ddp")),
        ("ResNet-50, 2 ranks", rate("float32, 2 ranks")),
        ("ResNet-50, 1 process", rate("float32")),
    ]
    parts = [
        ("all-reduce of 25 MiB", times("all_reduce", "ordinary/25MiB/float32/2ranks", "gloo")),
        ("images from JPEG files", times("image_loader", "images", "dataloader_prefetch_4")),
        ("save a checkpoint", times("checkpoint", "save/durable/1GiB", "torch.save+fsync")),
        ("load a checkpoint", times("checkpoint", "load/cached/1GiB", "torch.load")),
    ]
    columns = [
        (heading, [("", [Bar(name, value, ratio_in_words(value), None, _OURS) for name, value in of_heading])])
        for heading, of_heading in (("A training step", steps), ("Its parts", parts))
    ]
    notes = [
        "How many times as fast as Python PyTorch 2.11 with Gloo, on a CPU with two processors. The dashed line is PyTorch.",
    ]
    return Plot("Lockstep beside Python PyTorch", notes, columns)


# The drawing.


def _width(words, size):
    """Not less than any usual font without serifs takes."""
    return sum(0.33 if c in "ijltf.,:;|()' " else 0.92 if c in "mwMW@" else 0.62 for c in words) * size


def _text(x, y, words, size=12, colour=_INK, anchor="start", weight="normal"):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" font-weight="{weight}">'
        f"{html.escape(words)}</text>"
    )


def _wrapped(words, width, size):
    lines, line = [], ""
    for word in words.split():
        if line and _width(f"{line} {word}", size) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return [*lines, line]


class _Scale:
    def __init__(self, values, width, logarithmic):
        self._width, self._logarithmic = width, logarithmic
        self._least = 10 ** math.floor(math.log10(min(values)) - 0.01) if logarithmic else 0
        self._most = max(values)

    def __call__(self, value):
        if self._logarithmic:
            return self._width * math.log(value / self._least) / math.log(self._most / self._least)
        return self._width * value / self._most


def _draw_bar(x, y, bar, scale, names_width):
    length = max(1.5, scale(bar.value))
    left = x + names_width
    ratio = f'<tspan fill="{_INK}" font-weight="bold" dx="7">{ratio_in_words(bar.ratio)}</tspan>' if bar.ratio else ""
    value = f'<tspan fill="{_INK if bar.colour == _OURS else _SOFT}">{html.escape(bar.text)}</tspan>'
    return [
        _text(left - 8, y + 11.5, bar.name, 12, _INK if bar.colour == _OURS else _SOFT, "end"),
        f'<rect x="{left:.1f}" y="{y:.1f}" width="{length:.1f}" height="{_BAR}" rx="2" fill="{bar.colour}"/>',
        f'<text x="{left + length + 6:.1f}" y="{y + 11.5:.1f}" font-size="12">{value}{ratio}</text>',
    ]


def draw(plot, machine=""):
    """The SVG."""
    column_width = (_WIDTH - 2 * _MARGIN - 28 * (len(plot.columns) - 1)) / len(plot.columns)
    everything = [bar for _, groups in plot.columns for _, of in groups for bar in of]
    names_width = max(_width(bar.name, 12) for bar in everything) + 10
    room = max(
        _width(bar.text, 12) + (_width(f"{ratio_in_words(bar.ratio)}", 13) + 12 if bar.ratio else 0)
        for bar in everything
    )
    space = column_width - names_width - room - 8
    out = [_text(_MARGIN, 34, plot.title, 17, weight="bold")]
    y = 54
    for note in plot.notes:
        for line in _wrapped(note, _WIDTH - 2 * _MARGIN, 12.5):
            out.append(_text(_MARGIN, y, line, 12.5, _SOFT))
            y += 17
    bottom, start = y, y
    for index, (heading, groups) in enumerate(plot.columns):
        x, y = _MARGIN + index * (column_width + 28), start + 8
        if heading:
            out.append(_text(x, y + 12, heading, 13.5, weight="bold"))
            y += 20
        for name, of in groups:
            shared = plot.one_scale or not name
            scale = _Scale([bar.value for bar in (everything if shared else of)], space, plot.logarithmic)
            if name:
                out.append(_text(x, y + 15, name, 12.5, weight="600"))
                y += 21
            top = y
            for bar in of:
                out += _draw_bar(x, y, bar, scale, names_width)
                y += _ROW
            if not name:  # ratios: a line where both are as fast
                one = x + names_width + scale(1)
                out.append(f'<path d="M{one:.1f} {top - 4:.1f} V{y:.1f}" stroke="{_INK}" stroke-dasharray="3 3"/>')
            y += 7
        bottom = max(bottom, y)
    y = bottom + 12
    for line in _wrapped(machine, _WIDTH - 2 * _MARGIN, 11.5) if machine else []:
        out.append(_text(_MARGIN, y, line, 11.5, _SOFT))
        y += 15
    return _sheet(plot.title, y + 4, out)


def _sheet(title, height, content):
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}"'
            f' height="{height:.0f}" font-family="{_FONT}">',
            f"<title>{html.escape(title)}</title>",
            f'<rect x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1:.0f}" rx="10" fill="{_SHEET}" stroke="{_LINE}"/>',
            *content,
            "</svg>",
            "",
        ]
    )


def curves(title, note, names, ticks, panels):
    """The SVG of shares (0 to 1) over counts that are powers of two: panels of two columns, each (heading, {name: {count: share}})."""
    colours = dict(zip(names, (_OURS, "#c2641a", "#2f8f5b")))
    out = [_text(_MARGIN, 34, title, 17, weight="bold"), _text(_MARGIN, 54, note, 12.5, _SOFT)]
    left = _MARGIN
    for name, colour in colours.items():
        out += [_curve([(left, 72), (left + 26, 72)], colour), _text(left + 34, 76, name, 12.5)]
        left += 34 + _width(name, 12.5) + 20
    width, height, row = 400, 150, 220
    for index, (heading, shares) in enumerate(panels):
        left, top = _MARGIN + 42 + index % 2 * 490, 124 + index // 2 * row
        counts = list(next(iter(shares.values())))
        x = lambda count: left + width * math.log(count / counts[0], counts[-1] / counts[0])
        y = lambda share: top + height * (1 - share)
        out.append(_text(left - 36, top - 14, heading, 13.5, weight="bold"))
        for share in (0, 0.25, 0.5, 0.75, 1):
            out.append(f'<path d="M{left} {y(share):.1f} h{width}" stroke="{_LINE}"/>')
            out.append(_text(left - 6, y(share) + 4, f"{share:.0%}", 11.5, _SOFT, "end"))
        for count in ticks:
            out.append(_text(x(count), y(0) + 17, f"{count:,}", 11.5, _SOFT, "middle"))
        for name in reversed(names):
            out.append(_curve([(x(count), y(share)) for count, share in shares[name].items()], colours[name]))
    return _sheet(title, 90 + -(-len(panels) // 2) * row, out)


def _curve(points, colour):
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.2" stroke-linejoin="round"/>'


def of_page(text):
    """{name: SVG} of every plot that a page's tables have."""
    of, machines = figures.of_page(text)
    plots = {suite: draw(make(of[suite]), machines[suite]) for suite, make in SUITES.items() if suite in of}
    try:
        plots["gains"] = draw(gains(of))
    except KeyError:
        pass  # a page without all of its tables
    return plots


def write_plots(page):
    """The plots of a page's tables, into the folder beside it."""
    folder = page.parent / FOLDER
    folder.mkdir(exist_ok=True)
    for name, svg in of_page(page.read_text()).items():
        (folder / f"{name}.svg").write_text(svg)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path, help="the JSON lines of compare, or a page with its tables")
    parser.add_argument("--svg", type=pathlib.Path, help="where to write the plot of JSON lines")
    parser.add_argument("--machine", default="", help="a line about the machine, for the plot of JSON lines")
    arguments = parser.parse_args()
    if arguments.source.suffix == ".md":
        return write_plots(arguments.source)
    of = figures.of_json(arguments.source.read_text().splitlines())
    suite = next((suite for suite in SUITES if suite in of), None)
    if suite is None or arguments.svg is None:
        sys.exit(f"plot: {arguments.source}: {'no suite of compare' if suite is None else 'give --svg'}")
    arguments.svg.write_text(draw(SUITES[suite](of[suite]), arguments.machine))


if __name__ == "__main__":
    main()
