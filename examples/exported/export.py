#!/usr/bin/env python3
"""Exports a small network, and writes what to train it on: export.py NET.pt2 DATA.pt."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
inputs = torch.randn(512, 16)
targets = inputs[:, :4].argmax(1)
shapes = ({0: torch.export.Dim("batch")},)  # the first dimension may have any size
torch.export.save(torch.export.export(net, (inputs[:8],), dynamic_shapes=shapes), sys.argv[1])
torch.save({"inputs": [inputs], "targets": targets}, sys.argv[2])
