#!/usr/bin/env python3
"""Writes the module that train.cc trains: export_model.py net.ts."""

import sys
from typing import Tuple

import torch
from torch import nn


class Net(nn.Module):
    """Classifies Fashion-MNIST's images, float32 [n, 1, 28, 28] in [0, 1]."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
        )
        self.dropout = nn.Dropout(0.1)
        self.classifier = nn.Linear(16 * 7 * 7, 10)

    def forward(self, images):
        normalized = (images - 0.2860) / 0.3530
        return self.classifier(self.dropout(self.features(normalized).flatten(1)))

    @torch.jit.export
    def classify(self, images) -> Tuple[torch.Tensor, torch.Tensor]:
        """The most probable class of each image, and its probability."""
        probabilities, classes = self.forward(images).softmax(1).max(1)
        return classes, probabilities


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.jit.script(Net()).save(sys.argv[1])
