"""A network of the zoo with what it trains on."""

import dataclasses

import torch

ROWS, BATCH, CLASSES = 8, 4, 10


@dataclasses.dataclass
class Program:
    """`inputs` and `targets` have ROWS rows. `loss` is a value of --loss of examples/exported:train."""

    net: torch.nn.Module
    inputs: list
    targets: torch.Tensor
    loss: str = "cross_entropy"

    def batch(self, step):
        rows = [(step * BATCH + row) % ROWS for row in range(BATCH)]
        return [tensor[rows] for tensor in self.inputs], self.targets[rows]


def image_program(net, size):
    return Program(net, [torch.rand(ROWS, 3, size, size)], torch.randint(CLASSES, (ROWS,)))
