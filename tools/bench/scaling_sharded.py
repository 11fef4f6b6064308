"""The bytes, memory and time of a step of sharded training on many hosts: the tables of docs/scaling_sharded.md.

  python3 tools/bench/scaling_sharded.py              writes the tables
  python3 tools/bench/scaling_sharded.py --print      prints them
  python3 tools/bench/scaling_sharded.py --tokens=65536 --rate=1e14     prints them for another batch and another speed of a rank

It needs Python's standard library alone. The costs of messages and bytes come from the table of suite network. Lint and
//tools/lint:documents_test fail if the page differs.
"""

import argparse
import dataclasses
import functools
import math
import pathlib
import statistics
import sys

import figures
import scaling
import transformer_memory
from transformer_memory import CHUNK, HOST, Model

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = "docs/scaling_sharded.md"

# Assumptions.
TOKENS = 8192  # of a rank in a step
RATE = 1e12  # floating-point operations of a rank in a second
FLOAT = 4  # bytes
VIRTUAL = 4  # virtual ranks of a rank, where there are some

RANKS = (8, 64, 256, 1024)
LINKS = {f"{n} Gbit/s": n * 1e9 / 8 for n in (1, 10, 100, 400)}  # of a host
MODELS = (
    Model("TinyLlama 1.1B", "llama", 22, 2048, 5632, 32000, 32, 4),
    Model("Llama 2 7B", "llama", 32, 4096, 11008, 32000, 32, 32),
    Model("Llama 2 70B", "llama", 80, 8192, 28672, 32000, 64, 8),
)
PIECE = 1 << 18  # the most elements of a piece of a ShardedModel (elastic/sharded_model.h)
AGREEMENT = 40  # bytes that a rank tells the others before it gathers or reduces (fsdp/internal/unit_order.cc)


@dataclasses.dataclass
class Call:
    """What a collective over TCP takes, or `times` of them. Each rank receives as much as it sends."""

    rank: float  # bytes that a rank sends, to any other rank
    link: float  # bytes that a host sends to others
    messages: float  # that a rank sends
    steps: int  # one after the other
    times: int = 1


# The collectives of R ranks, numbered host by host.


def exchange(size, ranks):
    """comm/hierarchical/internal/exchange.h: each rank sends each other rank of its column as many bytes. `size`: bytes of all ranks."""
    hosts = max(1, ranks // HOST)
    link = (hosts - 1) / hosts * size
    return Call(link / HOST, link, scaling.pieces(size / HOST, hosts, 1) * (hosts - 1), min(1, hosts - 1))


def all_gather(size, ranks):
    """comm/hierarchical/internal/gather_exchange.cc: each rank sends its part to its column, and the ranks of a host pass on what they
    receive over shm. `size`: bytes of all parts."""
    return exchange(size, ranks)


def all_to_all(size, ranks):
    """Gloo's (gloo/alltoall.cc, alltoallv.cc): each rank sends every other rank its slice, directly. `size`: bytes of all slices."""
    return Call((ranks - 1) / ranks * size, HOST * max(0, ranks - HOST) / ranks * size, ranks - 1, 1)


def all_reduce(size, ranks):
    """comm/hierarchical/internal/pipeline.cc: within a host over shm, then each rank exchanges its part with its column."""
    hosts = max(1, ranks // HOST)
    link = 2 * (hosts - 1) / hosts * size
    steps, messages = scaling.direct(size, hosts, HOST) if hosts > 1 else (0, 0)
    return Call(link / HOST, link, messages, steps)


def tree_scatter(size, ranks):
    """comm/hierarchical/internal/host_exchange.cc: the ranks of a host add over shm, then each sends the host's sums of slices to its
    column. `size`: bytes of all slices."""
    return exchange(size, ranks)


# The ways to train: the collectives of a step.


def size_of(model):
    return FLOAT * model.parameters()


def units(model):
    """Bytes of each unit, and how many passes gather it: with two whole units backward finds the norm and the head of forward, and does
    not read the embedding."""
    sizes = [FLOAT * sum(parameters) for parameters in model.units()]
    return list(zip(sizes, [1, *[2] * model.layers, 1, 1]))


def of_pages(gathered, sent, ranks):
    """fsdp/internal/paged_memory.cc gathers, shard_reducer.cc reduces. `gathered`: [(bytes of all ranks' shares of a unit, how often)].
    `sent`: bytes of each unit's buffer of gradients."""
    agreements = sum(gathers + 1 for _, gathers in gathered)
    calls = [dataclasses.replace(all_gather(AGREEMENT * ranks, ranks), times=agreements)]
    calls += [dataclasses.replace(all_gather(size, ranks), times=gathers) for size, gathers in gathered]
    return calls + [in_chunks(size, ranks) for size in sent]


def in_chunks(size, ranks):
    """A unit's gradients: fsdp/internal/unit_plan.cc, CutIntoChunks()."""
    chunks = math.ceil(size / CHUNK)
    return dataclasses.replace(tree_scatter(size / chunks, ranks), times=chunks)


def paged(model, ranks, virtual_ranks=1):
    """`virtual_ranks`: of each rank."""
    calls = of_pages(units(model), [size for size, _ in units(model)], ranks)
    return [dataclasses.replace(call, times=call.times * virtual_ranks) for call in calls]


def published(parameters, ranks):
    """The most bytes of a unit that a rank owns, if pieces are dealt in turn, as elastic/internal/shard_plan.cc does."""
    whole, rest = sum(count // PIECE for count in parameters), max(count % PIECE for count in parameters)
    return FLOAT * max(math.ceil(whole / ranks) * PIECE, rest)


def sharded_model(model, ranks):
    """An elastic::ShardedModel: all shares have the size of the largest one, and a buffer of gradients has each of them twice
    (fsdp/internal/unit_plan.cc, LayOut() of kept pieces)."""
    shares = [ranks * published(parameters, ranks) for parameters in model.units()]
    gathers = [times for _, times in units(model)]
    return of_pages(list(zip(shares, gathers)), [2 * size for size, _ in units(model)], ranks)


def ddp(model, ranks):
    return [all_reduce(size_of(model), ranks)]


def ddp_virtual(model, ranks):
    """comm/tree_sum/tree_sum.cc, StartExchange(), if each rank has one partial sum."""
    return [all_to_all(size_of(model), ranks), all_gather(size_of(model), ranks)]


def overlaps(owned, part):
    """{(from, to): elements} that the all-to-all of ShareTensors() sends (elastic/internal/shards.cc): all elements, in the order of the
    ranks, are cut into parts."""
    sent, end = {}, 0
    for rank, count in enumerate(owned):
        begin, end = end, end + count
        for to in range(begin // part, -(-end // part)):
            if to != rank:
                sent[rank, to] = min(end, (to + 1) * part) - max(begin, to * part)
    return sent


def cut(owned, part, of):
    """That all-to-all, which has a message to every other rank. `of`: statistics.mean for the mean of all ranks and hosts, max for the rank
    and the host that send or receive the most."""
    ranks = len(owned)
    of_ranks, of_hosts = [0] * 2 * ranks, [0] * 2 * max(1, ranks // HOST)  # sent and received
    for pair, count in overlaps(owned, part).items():
        hosts = [rank // HOST for rank in pair]
        for received in (0, 1):
            of_ranks[2 * pair[received] + received] += FLOAT * count
            if hosts[0] != hosts[1]:
                of_hosts[2 * hosts[received] + received] += FLOAT * count
    return Call(of(of_ranks), of(of_hosts), ranks - 1, 1)


def shared_parameters(model, ranks, of=statistics.mean):
    """elastic/internal/shards.cc, ShareTensors(). `of`: as for cut()."""
    owned, _ = transformer_memory.shards(model, ranks)
    part = transformer_memory.gathered(owned)
    cuts = [cut(owned, part, of)] if max(owned) > part else []
    return [all_gather(FLOAT * part * ranks, ranks), *cuts]


def link_bytes(calls):
    return sum(call.times * call.link for call in calls)


def rank_bytes(calls):
    return sum(call.times * call.rank for call in calls)


class Costs:
    """What suite network measured of Gloo, whose all_reduce is a ring: the processor time of a message, and of a byte sent."""

    def __init__(self, of, fit):
        self.share_of_link = fit.share_of_link
        cases = of.get("network_processor", {}).items()
        gloo = {scaling.case_of(name): values["python_gloo"] for name, values in cases if "python_gloo" in values}
        ranks = lambda case: case.hosts * case.ranks
        small = {case: seconds for case, seconds in gloo.items() if case.size <= scaling.SMALL and ranks(case) == 4}
        pairs = [(seconds, gloo.get(case._replace(ranks=2 * case.ranks))) for case, seconds in small.items()]
        # A ring of N ranks has 4 (N - 1) messages.
        messages = [(more - less) / 16 for less, more in pairs if more]
        self.message = scaling.median(messages, "Gloo's processor time of an all_reduce of 4KiB on 4 and on 8 ranks")
        large = [(c, seconds) for c, seconds in gloo.items() if not c.link and c.size >= scaling.BUCKET]
        of_bytes = [seconds / (2 * (ranks(c) - 1) / ranks(c) * c.size) for c, seconds in large]
        self.byte = scaling.median(of_bytes, "Gloo's processor time of an all_reduce of 25MiB without limit")

    def wire(self, call, rate):
        return call.times * call.link * scaling.HEADERS / (rate * self.share_of_link)

    def processor(self, call):
        return call.times * (call.messages * self.message + call.rank * self.byte)

    def seconds(self, calls, rate):
        """Of calls that nothing hides."""
        return sum(
            max(self.wire(call, rate), self.processor(call)) + call.times * call.steps * scaling.LATENCY
            for call in calls
        )


def computation(model, tokens, rate):
    return 6 * model.parameters() * tokens / rate


class Steps:
    """Seconds of a step by the way to train: f(model, ranks, compute, link)."""

    def __init__(self, fit, costs):
        self._fit, self._costs = fit, costs

    def ddp(self, model, ranks, compute, link):
        way = functools.partial(scaling.direct, ranks=HOST)
        return self._fit.step(way, size_of(model), compute, ranks // HOST, link, scaling.LATENCY)

    def sharded_optimizer(self, model, ranks, compute, link):
        shared = self._costs.seconds(shared_parameters(model, ranks, max), link)
        return self.ddp(model, ranks, compute, link) + shared

    def paged(self, model, ranks, compute, link):
        return compute + self._costs.seconds(paged(model, ranks), link)

    def sharded_model(self, model, ranks, compute, link):
        return compute + self._costs.seconds(sharded_model(model, ranks), link)


def enough(step, compute_of_token):
    """The tokens with which a step takes twice its computation."""
    low, high = 1, 1
    while step(high * compute_of_token) > 2 * high * compute_of_token:
        high *= 2
    for _ in range(10):
        middle = (low + high) / 2
        low, high = (middle, high) if step(middle * compute_of_token) > 2 * middle * compute_of_token else (low, middle)
    return high


# The page.


def size_in_words(count):
    """GB, as in docs/transformer.md, with a comma in thousands."""
    return f"{count / 1e9:,.0f}" if count and count >= 1e12 else transformer_memory.size(count)


def two_digits(number):
    unit = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return f"{round(number / unit) * unit:,}"


def traffic_table():
    rows = [
        [
            "model",
            "ranks",
            "a host sends: DDP",
            "DDP, virtual ranks",
            "sharded optimizer, all-gather",
            "sharded optimizer, all-to-all",
            "fsdp, gathers",
        ]
    ]
    rows[0] += ["fsdp, gradients", f"fsdp, {VIRTUAL} virtual ranks a rank"]
    rows[0] += ["ShardModel", "a rank sends: fsdp", "ShardModel"]
    for model in MODELS:
        for ranks in RANKS[1:]:
            calls = paged(model, ranks)
            gradients = sum(tree_scatter(size, ranks).link for size, _ in units(model))
            gather, *cuts = shared_parameters(model, ranks)
            of = [link_bytes(way) for way in (ddp(model, ranks), ddp_virtual(model, ranks), [gather], cuts)]
            of += [link_bytes(calls) - gradients, gradients, link_bytes(paged(model, ranks, VIRTUAL))]
            kept = sharded_model(model, ranks)
            of += [link_bytes(kept), rank_bytes(calls), rank_bytes(kept)]
            rows.append([model.name, f"{ranks:,}", *map(size_in_words, of)])
    return scaling.table(*rows)


def memory_table():
    ways = transformer_memory.ways
    rows = [["model", "parameters", "ranks", *ways(MODELS[0], RANKS[0]), "the sharded optimizer's buffers alone"]]
    for model in MODELS:
        for ranks in RANKS:
            of = [*ways(model, ranks).values(), transformer_memory.sharded_optimizer(model, ranks)[1]]
            rows.append([model.name, f"{model.parameters() / 1e6:,.0f} M", f"{ranks:,}", *map(size_in_words, of)])
    return scaling.table(*rows)


def time_table(steps, costs, tokens, rate):
    rows = [["model", "ranks", "computation", *(f"step at {link}" for link in LINKS)]]
    rows[0] += ["communication with no limit of the link", "the link is the limit below"]
    for model in MODELS:
        compute = computation(model, tokens, rate)
        for ranks in RANKS[1:]:
            calls = paged(model, ranks)
            processor = sum(map(costs.processor, calls))
            row = [model.name, f"{ranks:,}", f"{compute:,.0f} s"]
            for link in LINKS.values():
                step = steps.paged(model, ranks, compute, link)
                row.append(f"{step:,.0f} s ({scaling.percent(compute / step)})")
            row.append(f"{costs.seconds(calls, math.inf):,.0f} s")
            rows.append([*row, f"{sum(costs.wire(call, 1) for call in calls) * 8e-9 / processor:.2g} Gbit/s"])
    return scaling.table(*rows)


def batch_table(steps, rate):
    model, ways = MODELS[1], {"DDP": steps.ddp, "sharded optimizer": steps.sharded_optimizer, "fsdp": steps.paged}
    ways["ShardModel"] = steps.sharded_model
    rows = [["way", "ranks", *LINKS]]
    for name, way in ways.items():
        for ranks in RANKS[1:]:
            of = [
                enough(lambda compute: way(model, ranks, compute, link), computation(model, 1, rate))
                for link in LINKS.values()
            ]
            rows.append([name, f"{ranks:,}", *map(two_digits, of)])
    return scaling.table(*rows)


def costs_table(costs):
    return scaling.table(
        ("parameter", "value"),
        ("processor time of a rank for a message over Gloo, sent and received", scaling.in_words(costs.message)),
        ("for a byte over Gloo, sent and received", f"{costs.byte * 1e9:.2f} ns: {1e-9 / costs.byte:.2f} GB/s"),
    )


def computed(root, tokens=TOKENS, rate=RATE):
    """{name: table} of the page."""
    of, _ = figures.of_page((root / scaling.MEASURED).read_text())
    fit = scaling.Fit(of)
    costs = Costs(of, fit)
    steps = Steps(fit, costs)
    return {
        "bytes": traffic_table(),
        "memory of ranks": memory_table(),
        "time": time_table(steps, costs, tokens, rate),
        "batch": batch_table(steps, rate),
        "costs": costs_table(costs),
    }


def of_root(root):
    """{file: text} of the page."""
    return {PAGE: scaling.with_tables(PAGE, (root / PAGE).read_text(), computed(root))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--print", action="store_true", help="print the tables, as with each of the other flags")
    parser.add_argument("--tokens", type=scaling.positive, default=TOKENS, help="of a rank in a step")
    parser.add_argument(
        "--rate", type=scaling.positive, default=RATE, help="floating-point operations of a rank in a second"
    )
    arguments = parser.parse_args()
    try:
        if arguments.print or (arguments.tokens, arguments.rate) != (TOKENS, RATE):
            return print(*computed(ROOT, arguments.tokens, arguments.rate).values(), sep="\n\n")
        for name, text in of_root(ROOT).items():
            (ROOT / name).write_text(text)
    except (OSError, figures.Missing) as error:
        sys.exit(f"scaling_sharded: {error}")


if __name__ == "__main__":
    main()
