#!/usr/bin/env python3
"""Exports the network that train.cc trains by default: resnet.py net.pt2."""

import re
import sys

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """Classifies Fashion-MNIST's images, float32 [n, 1, 28, 28] in [0, 1]."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(1, 8, 2), Block(8, 16, 2), Block(16, 24, 2))
        self.classifier = nn.Linear(24, 10)

    def forward(self, images):
        return self.classifier(self.blocks((images - 0.2860) / 0.3530).mean((2, 3)))


if __name__ == "__main__":
    torch.manual_seed(0)
    shapes = ({0: torch.export.Dim("batch")},)  # any number of images
    program = torch.export.export(ResNet(), (torch.rand(2, 1, 28, 28),), dynamic_shapes=shapes)
    for node in program.graph.nodes:  # the line of Python that each node comes from, without folders of this machine
        node.meta["stack_trace"] = re.sub(r'File "[^"]*/', 'File "', node.meta.get("stack_trace", ""))
    torch.export.save(program, sys.argv[1])
