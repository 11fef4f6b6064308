"""nets.h's networks and batches, in Python: the same operations in the same order."""

import torch
import torchvision
from torch import nn

BATCH, FEATURES, HIDDEN, CLASSES = 8, 32, 64, 10
TOKENS, WIDTH, HEADS, LENGTH = 50, 32, 2, 12


def generator(micro_step, rank):
    return torch.Generator().manual_seed(64 * micro_step + rank)


def draw_features(micro_step, rank):
    source = generator(micro_step, rank)
    inputs = torch.randn(BATCH, FEATURES, generator=source)
    return inputs, torch.randint(CLASSES, (BATCH,), generator=source), 0


def draw_branch(micro_step, rank):
    inputs, targets, _ = draw_features(micro_step, rank)
    return inputs, targets, 0 if micro_step % 4 == 3 else (micro_step + rank) % 3


def draw_tokens(micro_step, rank):
    tokens = torch.randint(TOKENS, (4, LENGTH + 1), generator=generator(micro_step, rank))
    return tokens[:, :LENGTH], tokens[:, 1:].flatten(), 0


def draw_words(micro_step, rank):
    source = generator(micro_step, rank)
    return (
        torch.randint(TOKENS, (BATCH, LENGTH), generator=source),
        torch.randint(CLASSES, (BATCH,), generator=source),
        0,
    )


def draw_images(micro_step, rank):
    source = generator(micro_step, rank)
    return torch.randn(4, 3, 32, 32, generator=source), torch.randint(CLASSES, (4,), generator=source), 0


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(FEATURES, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, CLASSES),
        )

    def forward(self, inputs, _):
        return self.layers(inputs)


class AttentionBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x, mask):
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (part.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        scores = torch.matmul(q, k.transpose(-2, -1)) * 0.25 + mask
        mixed = torch.matmul(torch.softmax(scores, -1), v)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.position = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.output = self.embedding.weight
        self.block0 = AttentionBlock(WIDTH, HEADS)
        self.block1 = AttentionBlock(WIDTH, HEADS)

    def forward(self, inputs, _):
        mask = torch.full((LENGTH, LENGTH), -float("inf")).triu(1)
        x = self.embedding(inputs) + self.position
        x = self.block1(self.block0(x, mask), mask)
        return nn.functional.linear(x, self.output).flatten(0, 1)


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(FEATURES, HIDDEN)
        self.branch0 = nn.Linear(HIDDEN, HIDDEN)
        self.branch1 = nn.Linear(HIDDEN, HIDDEN)
        self.branch2 = nn.Linear(HIDDEN, HIDDEN)
        self.never = nn.Linear(HIDDEN, HIDDEN)
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, inputs, branch):
        layer = (self.branch0, self.branch1, self.branch2)[branch]
        return self.head(torch.relu(layer(torch.relu(self.trunk(inputs)))))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(FEATURES, HIDDEN)
        self.twice = nn.Linear(HIDDEN, HIDDEN)
        self.never = nn.Linear(HIDDEN, HIDDEN)
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, inputs, _):
        x = torch.relu(self.first(inputs))
        return self.head(torch.relu(self.twice(torch.relu(self.twice(x)))))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(TOKENS, WIDTH, sparse=True)
        self.bag = nn.EmbeddingBag(TOKENS, WIDTH, mode="sum", sparse=True)
        self.hidden = nn.Linear(WIDTH, HIDDEN)
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, inputs, _):
        x = torch.tanh(self.words(inputs)).sum(1) + self.bag(inputs)
        return self.head(torch.relu(self.hidden(x)))


class ResNet18(torchvision.models.ResNet):
    def __init__(self):
        super().__init__(torchvision.models.resnet.BasicBlock, [2, 2, 2, 2], num_classes=CLASSES)

    def forward(self, inputs, _):
        return super().forward(inputs)


# By trainer.cc's --net: the network, and what draws rank's batch of a micro-step.
NETS = {
    "mlp": (Mlp, draw_features),
    "resnet18": (ResNet18, draw_images),
    "transformer": (Transformer, draw_tokens),
    "branches": (Branches, draw_branch),
    "recurrent": (Recurrent, draw_features),
    "words": (Words, draw_words),
}
