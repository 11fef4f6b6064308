"""Networks that Python exports for trainer.cc, and the batches on which both sides train them.

A batch is {"inputs": positional arguments of forward, "named": keyword arguments, "targets": classes or numbers}. forward returns logits,
a tuple that begins with them, or a dict in which they are "logits".
"""

import dataclasses

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import checkpoint

ROWS, FEATURES, HIDDEN, CLASSES, TOKENS, LENGTH = 8, 16, 32, 10, 50, 12


def mlp():
    return nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES)
    )


def dropout():
    return nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.Dropout(0.3), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(HIDDEN, CLASSES)
    )


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16 * 16, CLASSES)  # before the layers that run first
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(16)

    def forward(self, images):
        x = torch.relu(self.norm1(self.conv1(images)))
        x = F.relu(self.norm2(self.conv2(x)), inplace=True)
        return self.head(F.max_pool2d(x, 2).flatten(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, FEATURES)
        self.lstm = nn.LSTM(FEATURES, HIDDEN, num_layers=2, dropout=0.2, batch_first=True)
        self.norm = nn.LayerNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, TOKENS)

    def forward(self, tokens):
        states, (hidden, _) = self.lstm(self.embedding(tokens))
        return self.head(self.norm(states)).flatten(0, 1), hidden


class Gpt(nn.Module):
    """One block with causal attention; the output projection is the embedding."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, HIDDEN)
        self.positions = nn.Parameter(torch.randn(LENGTH, HIDDEN), requires_grad=False)
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.qkv, self.project = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)
        self.output = nn.Linear(HIDDEN, TOKENS, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions[: tokens.size(1)]
        rows, length, _ = x.shape
        heads = self.qkv(self.norm1(x)).view(rows, length, 3, 4, HIDDEN // 4).permute(2, 0, 3, 1, 4)
        q, k, v = heads.unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0, is_causal=True)
        x = x + self.project(y.transpose(1, 2).reshape(rows, length, HIDDEN))
        x = x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))
        return {"logits": self.output(x).flatten(0, 1), "states": [x, rows]}


class Structured(nn.Module):
    """Keyword arguments, nested inputs, an argument that is left out, and nested outputs."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def forward(self, inputs, mask=None, *, pair, scale=1.0):
        x = self.first(inputs["left"] + inputs["rights"][0] * inputs["rights"][1])
        if mask is not None:
            x = x * mask
        x = torch.relu(x) * pair[0] / scale
        return self.second(x), {"hidden": (x, None), "pair": list(pair)}


class Averaging(nn.Module):
    """Assigns to its buffers, also to one that is not in its state dict, and needs the old value in backward."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)
        self.register_buffer("mean", torch.ones(CLASSES))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.register_buffer("last", torch.ones(FEATURES), persistent=False)

    def forward(self, inputs):
        x = self.layer(inputs + self.last)
        logits = x * self.mean
        self.last.mul_(0.5).add_(0.1 * inputs.mean(0))
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        self.seen = self.seen + inputs.size(0)
        return logits


class InPlace(nn.Module):
    """Copies to a buffer, which a view shows afterwards."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)
        self.register_buffer("last", torch.ones(FEATURES))

    def forward(self, inputs):
        view = self.last[:CLASSES]
        logits = self.layer(inputs)
        self.last.copy_(inputs.mean(0))
        return logits + view


class Scatter(nn.Module):
    """Gathers and scatters, with tensors as indices, constants and slices."""

    def __init__(self):
        super().__init__()
        self.encode, self.head = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.table = torch.arange(6.0).reshape(3, 2)

    def forward(self, nodes, edges):
        x = torch.relu(self.encode(nodes))
        messages = x[edges[0]] * torch.tensor([2.0, 0.5]).repeat(HIDDEN // 2)
        summed = torch.zeros_like(x).index_add(0, edges[1], messages)
        best = torch.full_like(x, -1.0).scatter_reduce(
            0, edges[1][:, None].expand(-1, HIDDEN), messages, "amax", include_self=False
        )
        x = torch.where(best > 0, summed, summed + self.table[1, 1])
        x[:, ::2] = x[:, ::2] * 0.5
        return self.head(torch.cat([x[:, :4], x[:, 4:]], 1))


class Regions(nn.Module):
    """A part without gradients, a part in bfloat16, and a branch."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def forward(self, inputs):
        x = self.first(inputs)
        with torch.no_grad():
            scale = x.abs().mean() + 1
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.second(x / scale)
        return y.float() * 2


class Loops(nn.Module):
    """A part that backward computes again, a loop, and a map over rows."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def repeat(self, x):
        def more(i, x):
            return i < 3

        def step(i, x):
            return i + 1, x * 0.5 + i

        return torch._higher_order_ops.while_loop(more, step, (torch.tensor(0), x))[1]

    def each(self, x, factor):
        return torch._higher_order_ops.map(lambda row, factor: row * factor, x, factor)

    def forward(self, inputs):
        x = checkpoint.checkpoint(lambda x: torch.relu(self.first(x)), inputs, use_reentrant=False)
        x = x + self.repeat(inputs.detach().mean(1, keepdim=True))
        return self.second(self.each(x, inputs.mean()))


class EagerLoops(Loops):
    def repeat(self, x):
        for i in range(3):
            x = x * 0.5 + i
        return x

    def each(self, x, factor):
        return torch.stack([row * factor for row in x.unbind(0)])


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def forward(self, inputs):
        x = self.first(inputs)
        x = torch.cond(inputs.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
        return self.second(x)


class EagerBranch(Branch):
    """torch.cond compiles its branches, also outside export."""

    def forward(self, inputs):
        x = self.first(inputs)
        return self.second(x.sin() if inputs.sum() > 0 else x.cos())


class Sizes(nn.Module):
    """Computes with the number of rows and the length."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def forward(self, inputs):
        rows, length, _ = inputs.shape
        x = self.layer(inputs).reshape(rows * length, HIDDEN)
        x = x + torch.arange(rows * length)[:, None] / (rows * length)
        x = x.view(rows, length, -1).mean(1) * (length**2 % 7 + 1) / (length - 1)
        return self.head(x - torch.sym_max(rows, length) // 3)


def generator(step, rank):
    return torch.Generator().manual_seed(64 * step + rank)


def batch(inputs, targets, **named):
    return {"inputs": inputs, "named": named, "targets": targets}


def features(step, rank, rows=ROWS):
    source = generator(step, rank)
    inputs = torch.randn(rows, FEATURES, generator=source)
    return batch([inputs], torch.randint(CLASSES, (rows,), generator=source))


def varied(step, rank):
    return features(step, rank, (8, 3, 11)[step % 3])


def images(step, rank):
    source = generator(step, rank)
    return batch([torch.randn(4, 3, 16, 16, generator=source)], torch.randint(CLASSES, (4,), generator=source))


def tokens(step, rank):
    drawn = torch.randint(TOKENS, (4, LENGTH + 1), generator=generator(step, rank))
    return batch([drawn[:, :LENGTH].contiguous()], drawn[:, 1:].flatten())


def structured(step, rank):
    source = generator(step, rank)
    left, right, factor = (torch.randn(ROWS, FEATURES, generator=source) for _ in range(3))
    pair = (torch.randn(HIDDEN, generator=source), torch.randn(2, generator=source))
    targets = torch.randint(CLASSES, (ROWS,), generator=source)
    return batch([{"left": left, "rights": [right, factor]}], targets, pair=pair, scale=2.0)


def edges(step, rank):
    source = generator(step, rank)
    nodes = torch.randn(ROWS, FEATURES, generator=source)
    return batch(
        [nodes, torch.randint(ROWS, (2, 20), generator=source)], torch.randint(CLASSES, (ROWS,), generator=source)
    )


def sequences(step, rank):
    source = generator(step, rank)
    rows, length = 3 + step % 3, 4 + step % 4
    return batch([torch.randn(rows, length, FEATURES, generator=source)], torch.randn(rows, CLASSES, generator=source))


ROW = torch.export.Dim("row", min=1, max=64)


@dataclasses.dataclass
class Net:
    make: object
    draw: object
    ranks: tuple = (1,)
    dynamic_shapes: object = None
    eager: object = None  # the network in Python, if not the exported one
    ddp: dict = dataclasses.field(default_factory=dict)


NETS = {
    "mlp": Net(mlp, features, (1, 2, 3), ddp={"bucket_cap_mb": 0.004}),
    "dynamic": Net(mlp, varied, dynamic_shapes=({0: ROW},)),
    "dropout": Net(dropout, features, (1, 2)),
    "conv_net": Net(ConvNet, images, (1, 2, 3), ddp={"bucket_cap_mb": 0.004}),
    "recurrent": Net(Recurrent, tokens),
    "gpt": Net(Gpt, tokens, (1, 2, 3), ddp={"bucket_cap_mb": 0.02}),
    "structured": Net(Structured, structured),
    "averaging": Net(Averaging, features, (1, 2)),
    "in_place": Net(InPlace, features),
    "scatter": Net(Scatter, edges),
    "regions": Net(Regions, features),
    "branch": Net(Branch, features, eager=EagerBranch),
    "loops": Net(Loops, features, eager=EagerLoops),
    "sizes": Net(Sizes, sequences, dynamic_shapes=({0: ROW, 1: torch.export.Dim("length", min=3, max=32)},)),
}
