"""Networks that Python exports for trainer.cc, and the batches on which both sides train them.

A batch is a list: the arguments of forward, and last the targets. forward returns logits, a tuple that begins with them, or a dict in
which they are "logits".
"""

from typing import Dict, Tuple

import torch
from torch import nn

BATCH, FEATURES, HIDDEN, CLASSES, TOKENS, LENGTH = 8, 32, 64, 10, 50, 12


def mlp():
    return nn.Sequential(
        nn.Linear(FEATURES, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.Tanh(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.GELU(),
        nn.Linear(HIDDEN, CLASSES),
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
        x = torch.relu(self.norm2(self.conv2(x)))
        return self.head(nn.functional.max_pool2d(x, 2).flatten(1))


class Branches(nn.Module):
    """Uses one of three layers, and never the fourth."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(FEATURES, HIDDEN)
        self.branch0 = nn.Linear(HIDDEN, HIDDEN)
        self.branch1 = nn.Linear(HIDDEN, HIDDEN)
        self.branch2 = nn.Linear(HIDDEN, HIDDEN)
        self.never = nn.Linear(HIDDEN, HIDDEN)
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, inputs, branch: int) -> Dict[str, torch.Tensor]:
        x = torch.relu(self.trunk(inputs))
        if branch == 0:
            x = self.branch0(x)
        elif branch == 1:
            x = self.branch1(x)
        else:
            x = self.branch2(x)
        return {"logits": self.head(torch.relu(x)), "hidden": x}


class Recurrent(nn.Module):
    """Loops as often as the data says, and returns a tuple."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(FEATURES, HIDDEN)
        self.again = nn.Linear(HIDDEN, HIDDEN)
        self.gru = nn.GRU(HIDDEN, HIDDEN, batch_first=True)
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, inputs, times: int) -> Tuple[torch.Tensor, int]:
        x = torch.tanh(self.first(inputs))
        steps = 0
        for _ in range(times):
            x = x + torch.sigmoid(self.again(x))
            if bool(x.mean() > 2):
                break
            steps += 1
        states, _ = self.gru(torch.stack([x, x * x, x.roll(1)], 1))
        return self.head(states[:, -1]), steps


class Tied(nn.Module):
    """A language model whose output projection is its embedding; of the positions no gradient is asked."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, FEATURES)
        self.positions = nn.Parameter(torch.randn(LENGTH, FEATURES), requires_grad=False)
        self.norm = nn.LayerNorm(FEATURES)
        self.attention = nn.MultiheadAttention(FEATURES, 2, batch_first=True)
        self.output = nn.Linear(FEATURES, TOKENS, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions
        y = self.norm(x)
        x = x + self.attention(y, y, y)[0]
        return self.output(x).flatten(0, 1)


class Averaging(nn.Module):
    """Assigns to its buffers in forward."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)
        self.register_buffer("mean", torch.zeros(FEATURES))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, inputs):
        logits = self.layer(inputs - self.mean)
        self.mean = 0.9 * self.mean + 0.1 * inputs.mean(0)
        self.seen = self.seen + inputs.size(0)
        return logits


class NonPersistent(nn.Module):
    """Its forward uses and changes a buffer that is not in its state dict. torch.jit.script makes it persistent."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)
        self.register_buffer("mean", torch.zeros(FEATURES), persistent=False)

    def forward(self, inputs):
        self.mean.mul_(0.9).add_(0.1 * inputs.mean(0))
        return self.layer(inputs - self.mean)


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)
        self.register_forward_hook(double_outputs)

    def forward(self, inputs):
        return self.layer(inputs)


def double_outputs(self, inputs: Tuple[torch.Tensor], outputs: torch.Tensor):
    return outputs * 2


def dropout():
    return nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.Dropout(0.3), nn.ReLU(), nn.Dropout(0.5), nn.Linear(HIDDEN, CLASSES)
    )


def generator(step, rank):
    return torch.Generator().manual_seed(64 * step + rank)


def features(step, rank, dtype=torch.float):
    source = generator(step, rank)
    inputs = torch.randn(BATCH, FEATURES, generator=source)
    return [inputs.to(dtype), torch.randint(CLASSES, (BATCH,), generator=source)]


def with_number(step, rank):
    inputs, targets = features(step, rank)
    return [inputs, 0 if step % 4 == 3 else (step + rank) % 3, targets]


def images(step, rank):
    source = generator(step, rank)
    # The size differs at times, which is another specialisation for the interpreter.
    rows = 6 if step % 5 == 4 else 4
    return [
        torch.randn(rows, 3, 16, 16, generator=source),
        torch.randint(CLASSES, (rows,), generator=source),
    ]


def tokens(step, rank):
    drawn = torch.randint(TOKENS, (4, LENGTH + 1), generator=generator(step, rank))
    return [drawn[:, :LENGTH].contiguous(), drawn[:, 1:].flatten()]


# The network, what draws a rank's batch of a step, the options of DDP, and the world sizes to test. Buckets are small enough for several
# of them.
NETS = {
    "mlp": (mlp, features, {"bucket_cap_mb": 0.012}, (2, 3)),
    "mlp_double": (lambda: mlp().double(), lambda *at: features(*at, torch.double), {"bucket_cap_mb": 0.024}, (3,)),
    "mlp_bfloat16": (
        lambda: mlp().bfloat16(),
        lambda *at: features(*at, torch.bfloat16),
        {"bucket_cap_mb": 0.006},
        (3,),
    ),
    "conv_net": (ConvNet, images, {"bucket_cap_mb": 0.004}, (2, 3)),
    "branches": (Branches, with_number, {"bucket_cap_mb": 0.012, "find_unused_parameters": True}, (2, 3)),
    "recurrent": (Recurrent, with_number, {"bucket_cap_mb": 0.012, "find_unused_parameters": True}, (2, 3)),
    "tied": (Tied, tokens, {"bucket_cap_mb": 0.006}, (2, 3)),
    "static_graph": (mlp, features, {"bucket_cap_mb": 0.012, "static_graph": True}, (3,)),
    "bucket_view": (ConvNet, images, {"bucket_cap_mb": 0.004, "gradient_as_bucket_view": True}, (3,)),
    "averaging": (Averaging, features, {}, (2, 3)),
    "non_persistent": (NonPersistent, features, {}, (2, 3)),
    "hooked": (Hooked, features, {}, (2,)),
    "dropout": (dropout, features, {"bucket_cap_mb": 0.004}, (2, 3)),
}
