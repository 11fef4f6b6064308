"""The memory of a rank that trains a language model: the table of docs/transformer.md.

  python3 tools/bench/transformer_memory.py           writes the table
  python3 tools/bench/transformer_memory.py --print   prints it

It needs Python's standard library alone. Parameters, gradients and AdamW's two states are float.
"""

import argparse
import dataclasses
import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = "docs/transformer.md"
BEGIN, END = "<!-- computed memory: begin -->\n", "<!-- computed memory: end -->"
RANKS = (8, 64)  # of the job, eight of a host
HOST = 8
CHUNK = 25 << 20  # fsdp::Options::unit_bytes: of gradients that are reduced at once
BLOCK = 1024  # tokens of a micro-batch


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    family: str
    layers: int
    hidden: int
    inner: int
    vocabulary: int
    heads: int = 0
    kv_heads: int = 0
    tied: bool = False
    positions: int = 0

    def layer(self):
        """Parameters of a layer."""
        if self.family == "gpt2":
            return 4 * self.hidden**2 + 2 * self.hidden * self.inner + 9 * self.hidden + self.inner
        return (2 + 2 * self.kv_heads / self.heads) * self.hidden**2 + 3 * self.hidden * self.inner + 2 * self.hidden

    def parameters(self):
        embeddings = (1 if self.tied else 2) * self.vocabulary * self.hidden + self.positions * self.hidden
        norm = (2 if self.family == "gpt2" else 1) * self.hidden
        return int(self.layers * self.layer() + embeddings + norm)

    def units(self):
        """Elements of each parameter of the units: one of each layer, and of each module beside them."""
        hidden, inner = self.hidden, self.hidden * self.inner
        square, embedding = hidden**2, [self.vocabulary * hidden]
        head = [] if self.tied else [embedding]
        if self.family == "gpt2":
            attention = [3 * square, 3 * hidden, square, hidden]
            layer = [*attention, inner, self.inner, inner, hidden, *[hidden] * 4]
            return [embedding, [self.positions * hidden], *[layer] * self.layers, [hidden, hidden], *head]
        keys = square * self.kv_heads // self.heads
        layer = [square, keys, keys, square, inner, inner, inner, hidden, hidden]
        return [embedding, *[layer] * self.layers, [hidden], *head]

    def largest_unit(self):
        """Parameters: of a layer, or of the embedding."""
        return max(self.layer(), self.vocabulary * self.hidden)

    def activations(self, recompute):
        """Bytes that autograd keeps of BLOCK tokens, and the logits' with their gradient."""
        inputs = 4 * self.hidden
        if self.family == "gpt2":  # norm, q k v, attention, projection, norm, and the feed-forward part
            whole = 4 * (8 * self.hidden + 2 * self.inner)
        else:
            whole = 4 * ((8 + 2 * self.kv_heads / self.heads) * self.hidden + 4 * self.inner)
        layers = self.layers * inputs + whole if recompute else self.layers * whole
        return BLOCK * (layers + 3 * 4 * self.vocabulary)


MODELS = (
    Model("GPT-2", "gpt2", 12, 768, 3072, 50257, tied=True, positions=1024),
    Model("GPT-2 XL", "gpt2", 48, 1600, 6400, 50257, tied=True, positions=1024),
    Model("Llama 3.1 8B", "llama", 32, 4096, 14336, 128256, 32, 8),
    Model("Llama 3.1 70B", "llama", 80, 8192, 28672, 128256, 64, 8),
)


def keepers(sizes, nodes):
    """(owner, second) of each parameter: elastic/internal/shard_plan.cc, if all ranks have all parameters. `nodes`: of each rank."""
    ranks, one_node = range(len(nodes)), len(set(nodes)) == 1
    limit = -(-2 * sum(sizes) // len(nodes))
    kept, owned, plan = [0] * len(nodes), [0] * len(nodes), [[] for _ in sizes]
    order = sorted(range(len(sizes)), key=lambda p: -sizes[p])

    def least(p, other_node):
        if not plan[p]:
            return min(ranks, key=kept.__getitem__)
        places, first = (nodes, nodes[plan[p][0]]) if other_node and not one_node else (ranks, plan[p][0])
        return min((rank for rank in ranks if places[rank] != first), key=kept.__getitem__)

    def add(p, rank):
        plan[p].append(rank)
        kept[rank] += sizes[p]

    for _ in range(2):
        for p in order:
            rank = least(p, True)
            if kept[rank] + sizes[p] <= limit:
                add(p, rank)
    for p in order:
        while len(plan[p]) < 2:
            elsewhere = least(p, True)
            add(p, elsewhere if kept[elsewhere] < 2 * limit else least(p, False))
    for p in order:
        plan[p].sort(key=owned.__getitem__)
        owned[plan[p][0]] += sizes[p]
    return plan


@functools.cache
def shards(model, ranks):
    """(elements of the parameters that each rank owns, that it keeps) with a sharded optimizer."""
    sizes = [size for unit in model.units() for size in unit]
    owned, kept = [0] * ranks, [0] * ranks
    for size, (owner, second) in zip(sizes, keepers(sizes, [rank // HOST for rank in range(ranks)])):
        owned[owner] += size
        kept[owner] += size
        kept[second] += size
    return owned, kept


def gathered(owned):
    """Elements of each rank that the all-gather of ShareTensors() brings (elastic/internal/shards.cc). If a rank owns more, all elements
    are first cut evenly."""
    most, equal = max(owned), -(-sum(owned) // len(owned))
    return equal if most > 2 * equal else most


def sharing(owned):
    """Elements that ShareTensors() has allocated on each rank: `own`, `all` and `flat`."""
    return [(len(owned) + 1) * gathered(owned) + flat for flat in owned]


def sharded_optimizer(model, ranks):
    """(bytes of the states of the rank that needs the most, and of its buffers to share the parameters)."""
    owned, kept = shards(model, ranks)
    return max(((8 * count, 4 * buffers) for count, buffers in zip(kept, sharing(owned))), key=sum)


def ways(model, ranks):
    """Bytes of a rank by the way it trains, without activations."""
    p = 4 * model.parameters()
    gradients, states, unit, host = p, 2 * p, 4 * model.largest_unit(), min(ranks, HOST)
    assert unit > CHUNK
    one_host = ranks <= HOST
    return {
        "DDP": p + gradients + states,
        "sharded optimizer": p + gradients + sum(sharded_optimizer(model, ranks)),
        "fsdp, shared pages": (p / host + (gradients + states) / ranks + unit + 2 * CHUNK) if one_host else None,
        "fsdp, paged": (p + gradients + states) / ranks + 3 * unit + CHUNK,
        # On one host the parameters are also in shared pages, and nothing is gathered.
        "ShardModel": 2 * (p + gradients + states) / ranks
        + (p / ranks + unit + 2 * CHUNK if one_host else 5 * unit + CHUNK),
    }


def size(count):
    if count is None:
        return "-"
    return f"{count / 1e9:.0f}" if count >= 1e11 else f"{count / 1e9:.3g}"


def table():
    names = list(ways(MODELS[0], 8))
    rows = [["model", "parameters", "ranks", *names, "activations", "with recompute"]]
    for model in MODELS:
        for ranks in RANKS:
            kept = [size(model.activations(recompute)) for recompute in (False, True)]
            rows.append(
                [
                    model.name,
                    f"{model.parameters() / 1e6:,.0f} M",
                    str(ranks),
                    *map(size, ways(model, ranks).values()),
                    *kept,
                ]
            )
    rows.insert(1, ["---"] + ["---:"] * (len(rows[0]) - 1))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def of_root(root):
    """{file: text} of the page with the table."""
    page = (root / PAGE).read_text()
    assert BEGIN in page and END in page, f"{PAGE} lacks {BEGIN} or {END}"
    return {PAGE: re.sub(f"(?<={BEGIN}).*?(?={END})", lambda _: table(), page, flags=re.S)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--print", action="store_true", help="print the table")
    if parser.parse_args().print:
        return print(table(), end="")
    for name, text in of_root(ROOT).items():
        (ROOT / name).write_text(text)


if __name__ == "__main__":
    main()
