"""A model of data-parallel training on many hosts, fitted to the tables of docs/performance.md and docs/performance_notes.md.

  python3 tools/bench/scaling.py                      writes the tables of docs/scaling.md, and the curves beside it
  python3 tools/bench/scaling.py --print              prints the tables
  python3 tools/bench/scaling.py --resnet50=0.1 --1GB=0.5 --latency=5e-6      prints them for other assumptions

It needs Python's standard library alone. Lint and //tools/lint:documents_test fail if the page differs from the tables it is made from.
"""

import argparse
import collections
import copy
import functools
import itertools
import math
import pathlib
import re
import statistics
import sys

import figures
import many_ranks
import plot

ROOT = pathlib.Path(__file__).resolve().parents[2]
MEASURED, PAGE, PICTURE = "docs/performance.md", "docs/scaling.md", "docs/plots/scaling.svg"
MARKS = "<!-- computed {}: begin -->", "<!-- computed {}: end -->"

# Assumptions. The steps are about as long as with a fast GPU for each rank.
LATENCY = 20e-6  # of the network, one way
STEPS = {"resnet50": 0.2, "1GB": 0.8}  # seconds of a step without communication
FORWARD = 1 / 3  # of a step; the rest is the backward pass, under which buckets are reduced
RANKS = 4  # of a host, the most that were measured

NAMES = {"resnet50": "ResNet-50", "1GB": "1 GB"}
GRADIENTS = {"resnet50": 25_557_032 * 4, "1GB": 10**9, "resnet18": 11_689_512 * 4, "mlp_26mb": 6_500_452 * 4}  # bytes
HOSTS = (8, 64, 512, 4096)
LINKS = {"10 Gbit/s": 10e9 / 8, "100 Gbit/s": 100e9 / 8}
BUCKET, FIRST_BUCKET = 25 << 20, 1 << 20  # of DDP
SMALL = 8 << 10  # a tensor of up to so many bytes goes whole to every other host
MESSAGES = (30e-6, 10e-6)  # seconds of a processor, beside the fitted
HEADERS = 1514 / 1448  # a full frame of Ethernet, and the bytes of a TCP connection in it
CHECKED = re.compile(r"all_reduce/(1MiB/1Gbit|25MiB/1Gbit|25MiB/unlimited)/.*|ddp/\w+/\d+[MG]bit/\w+")
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "Mbit": 1e6 / 8, "Gbit": 1e9 / 8}


def number(text):
    """25MiB in bytes, 1Gbit in bytes a second; None for a link without limit."""
    digits, unit = re.fullmatch(r"(\d*)(\w+)", text).groups()
    return int(digits) * UNITS[unit] if digits else None


def pieces(size, ranks, shares):
    """How many pieces comm/hierarchical/internal/pieces.cc cuts a tensor into, if each is divided among the `ranks` of a host, and each
    part into `shares` messages.
    """
    of_messages = (32 << 10) * ranks * shares
    return (
        math.ceil(size / min(max(size / 8, 256 << 10, of_messages), max(1 << 20, of_messages))) if size > SMALL else 1
    )


# The ways between hosts: (steps, one after the other; messages that a rank sends, and receives).


def direct(size, hosts, ranks=RANKS):
    """Each rank exchanges with the ranks at its place on all other hosts."""
    if size <= SMALL or hosts == 2:
        return 1, pieces(size, ranks, 1) * (hosts - 1)
    return 2, pieces(size, ranks, hosts) * 2 * (hosts - 1)


def rows_and_columns(size, hosts):
    """A power of two of hosts. Each row reduces, the columns exchange, each row gathers."""
    if hosts == 2:
        return direct(size, hosts)
    rows = 1 << (hosts.bit_length() - 1) // 2
    columns = hosts // rows
    return 4, pieces(size, RANKS, columns) * 2 * (rows - 1 + columns - 1)


def ring(size, hosts):
    steps = 2 * (hosts - 1)
    return steps, steps * math.ceil(size / RANKS / hosts / (1 << 20))


WAYS = {"as built": direct, "rows and columns (not built)": rows_and_columns, "ring (not built)": ring}


def wire_seconds(size, hosts, rate):
    """Returns the time that a link needs for the bytes that a host must send."""
    return 2 * (hosts - 1) / hosts * size * HEADERS / rate


# A case of suite network. `what` is all_reduce, or the network of a training step; `ranks` are of each host.
Case = collections.namedtuple("Case", "what size link hosts ranks")


def case_of(name):
    """None for a training step with a hook, or of another network."""
    match = re.fullmatch(rf"(?:all_reduce|ddp)/(\d\w+|{'|'.join(GRADIENTS)})/(\w+)/(\d+)x(\d+)ranks", name)
    if not match:
        return None
    what, link, hosts, ranks = match.groups()
    what, size = (what, GRADIENTS[what]) if what in GRADIENTS else ("all_reduce", number(what))
    return Case(what, size, number(link), int(hosts), int(ranks))


def ours(cases):
    """{Case: our seconds}."""
    return {case_of(name): values["ours"] for name, values in cases.items() if case_of(name)}


def median(values, what):
    if not values:
        command = f"./bazelw run //tools/bench:compare -- network --json=network.jsonl --markdown={MEASURED}"
        raise figures.Missing(f"{MEASURED} lacks {what}: run {command}")
    return statistics.median(values)


class Fit:
    """What the measurements of suite network say."""

    def __init__(self, of):
        self.seconds, processor = ours(of.get("network", {})), ours(of.get("network_processor", {}))
        large = [(c, s) for c, s in self.seconds.items() if c.what == "all_reduce" and c.link and c.size >= BUCKET]
        shares = [wire_seconds(c.size, c.hosts, c.link) / seconds for c, seconds in large]
        self.share_of_link = median(shares, "an all_reduce of 25MiB on a link of 1Gbit")
        small = {case: seconds for case, seconds in processor.items() if case.size <= SMALL}
        pairs = [(small[case], small.get(case._replace(hosts=4))) for case in small if case.hosts == 2]
        pairs = [(two, four) for two, four in pairs if four]
        what = "the processor time of an all_reduce of 4KiB on 2 and on 4 hosts of as many ranks"
        self.messages = [max(0, four - two) / 2 for two, four in pairs]
        self.message = median(self.messages, what)
        self.fixed = median([two - self.message for two, _ in pairs], what)
        large = [(case, seconds) for case, seconds in processor.items() if not case.link and case.size >= BUCKET]
        rest = lambda case: self.fixed + direct(case.size, case.hosts, case.ranks)[1] * self.message
        of_bytes = [(seconds - rest(case)) / case.size for case, seconds in large]
        self.byte = median(of_bytes, "the processor time of an all_reduce of 25MiB on a link without limit")

    def all_reduce(self, way, size, hosts, rate, latency, others=1):
        """(seconds, what limits it). `others`: how many ranks share a processor. A rate of None is a link without limit."""
        steps, messages = way(size, hosts)
        of_messages, of_bytes = others * messages * self.message, others * size * self.byte
        wire = wire_seconds(size, hosts, rate * self.share_of_link) if rate else 0
        processor = f"processor, mostly {'messages' if of_messages > of_bytes else 'bytes'}"
        limit = "wire" if wire > of_messages + of_bytes else processor
        return others * self.fixed + steps * latency + max(wire, of_messages + of_bytes), limit

    def step(self, way, size, compute, hosts, rate, latency, others=1):
        """Seconds of a training step. Buckets are reduced one after the other, in the order in which they are ready."""
        done, ready = 0, 0
        while ready < size:
            bucket = min(BUCKET if ready else FIRST_BUCKET, size - ready)
            ready += bucket
            done = max(done, compute * (FORWARD + (1 - FORWARD) * ready / size))
            done += self.all_reduce(way, bucket, hosts, rate, latency, others)[0]
        return done

    def check(self, case, others):
        """Seconds that the model gives for a measured case."""
        where = (case.hosts, case.link, 0, others)
        way = functools.partial(direct, ranks=case.ranks)
        if case.what == "all_reduce":
            return self.all_reduce(way, case.size, *where)[0]
        # Computation is the step on a link without limit, less the calls: both take the processors that the ranks share.
        unlimited = case._replace(link=None)
        compute = self.seconds[unlimited] - self.step(way, case.size, 0, case.hosts, None, 0, others)
        return self.step(way, case.size, compute, *where)


# The page.


def in_words(seconds):
    return plot.in_words(seconds, "s")


def percent(share):
    return f"{share:.0%}" if share >= 0.005 else "<1%"


def table(*rows):
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def fit_table(fit, latency):
    spread = f"{in_words(min(fit.messages))} to {in_words(max(fit.messages))}"
    return table(
        ("parameter", "value"),
        ("share of a link that tensors of 25 MiB and more reach", f"{fit.share_of_link:.0%}"),
        ("processor time of a rank for a call, whatever its size", in_words(fit.fixed)),
        ("for a message to another host, and one from it", f"{in_words(fit.message)} ({spread})"),
        ("for the bytes of a large tensor", f"{fit.byte * 1e9:.2f} ns a byte: {1e-9 / fit.byte:.2f} GB/s"),
        ("latency of the network, one way: assumed", in_words(latency)),
    )


def check_table(fit, names, processors):
    rows = [("case", "measured", "computed", "computed over measured")]
    for name in filter(CHECKED.fullmatch, names):
        case = case_of(name)
        if case.what != "all_reduce" and case._replace(link=None) not in fit.seconds:
            continue
        measured = fit.seconds[case]
        computed = fit.check(case, max(1, case.hosts * case.ranks / processors))
        rows.append((name, in_words(measured), in_words(computed), f"{computed / measured:.2f}"))
    return table(*rows)


def prediction_table(fit, latency, steps):
    rows = [["gradients", "link", "hosts", "all_reduce of 25 MiB, as built", "limit", "step, as built"]]
    rows[0] += [f"{'efficiency: ' * (way is direct)}{name}" for name, way in WAYS.items()]
    for (model, compute), (link, rate), hosts in itertools.product(steps.items(), LINKS.items(), HOSTS):
        seconds, limit = fit.all_reduce(direct, BUCKET, hosts, rate, latency)
        of = [fit.step(way, GRADIENTS[model], compute, hosts, rate, latency) for way in WAYS.values()]
        row = [f"{NAMES[model]}, {in_words(compute)} a step", link, f"{hosts:,}", in_words(seconds), limit]
        rows.append([*row, in_words(of[0]), *(percent(compute / seconds) for seconds in of)])
    return table(*rows)


def message_table(fit, latency, steps):
    """A step of ResNet-50 as built, if a message costs something else."""
    rows = [["a message takes", *(f"{hosts:,} hosts" for hosts in HOSTS)]]
    for message in (fit.message, *MESSAGES):
        other, model = copy.copy(fit), "resnet50"
        other.message = message
        of = [other.step(direct, GRADIENTS[model], steps[model], n, LINKS["100 Gbit/s"], latency) for n in HOSTS]
        rows.append(
            [
                in_words(message) + " (fitted)" * (message == fit.message),
                *(percent(steps[model] / seconds) for seconds in of),
            ]
        )
    return table(*rows)


def curves(fit, latency, steps):
    def efficiency(way, model, rate, hosts):
        return steps[model] / fit.step(way, GRADIENTS[model], steps[model], hosts, rate, latency)

    panels = []
    for (model, seconds), (link, rate) in itertools.product(steps.items(), LINKS.items()):
        of = {name: {2**n: efficiency(way, model, rate, 2**n) for n in range(1, 13)} for name, way in WAYS.items()}
        panels.append((f"{NAMES[model]}, {in_words(seconds)} a step, {link}", of))
    note = "Efficiency over the number of hosts: the speed beside the speed if communication took no time."
    return plot.curves("Data-parallel training on many hosts: a prediction", note, list(WAYS), (2, *HOSTS), panels)


def computed(root, latency=LATENCY, steps=STEPS):
    """({name: table} of the page, its curves)."""
    of, machines = figures.of_page((root / MEASURED).read_text())
    fit = Fit(of)
    processors = int(re.search(r"(\d+) processor", machines["network"]).group(1))
    return {
        "prediction": prediction_table(fit, latency, steps),
        "messages": message_table(fit, latency, steps),
        "fit": fit_table(fit, latency),
        "check": check_table(fit, of["network"], processors),
        "forming": table(*many_ranks.rows((root / many_ranks.PAGE).read_text(), RANKS, LINKS)),
    }, curves(fit, latency, steps)


def with_tables(name, page, tables):
    """The text `page` of the file `name`, with {name: table} between their marks."""
    for of, text in tables.items():
        begin, end = (mark.format(of) for mark in MARKS)
        page, count = re.subn(f"(?<={begin}\n).*?(?={end})", lambda _: f"{text}\n", page, flags=re.S)
        if count != 1:
            raise figures.Missing(f"{name} lacks {begin} or {end}")
    return page


def of_root(root):
    """{file: text} of the page and its curves."""
    tables, picture = computed(root)
    return {PAGE: with_tables(PAGE, (root / PAGE).read_text(), tables), PICTURE: picture}


def positive(text):
    if not float(text) > 0:
        raise ValueError
    return float(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--print", action="store_true", help="print the tables, as with each of the other flags")
    parser.add_argument("--latency", type=positive, default=LATENCY, help="of the network, one way, in seconds")
    for model, seconds in STEPS.items():
        parser.add_argument(f"--{model}", type=positive, default=seconds, help="seconds of a step's computation")
    arguments = vars(parser.parse_args())
    steps = {model: arguments[model] for model in STEPS}
    try:
        if arguments["print"] or (arguments["latency"], steps) != (LATENCY, STEPS):
            return print(*computed(ROOT, arguments["latency"], steps)[0].values(), sep="\n\n")
        for name, text in of_root(ROOT).items():
            (ROOT / name).write_text(text)
    except (OSError, figures.Missing) as error:
        sys.exit(f"scaling: {error}")


if __name__ == "__main__":
    main()
