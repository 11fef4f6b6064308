#!/usr/bin/env python3
"""Writes a small program that has a bit of everything, for tests that damage it: small.py small.pt2."""

import re
import sys

import torch
from torch import nn


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("scales", torch.tensor([0.5, 1, 2]), persistent=False)

    def forward(self, x, parts, *, shift=None):
        with torch.no_grad():
            scale = x.abs().mean() * torch.tensor(2.0)
        x = torch.cat([self.norm(self.linear(x)), parts["left"] * self.scales], 0)
        if shift is not None:
            x = x + shift
        x = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x * 2, (x,))
        return {"out": x * scale, "pair": (x[: x.shape[0] // 2], None)}


torch.manual_seed(0)
batch = torch.export.Dim("batch", min=2, max=64)
net, inputs = Small(), (torch.rand(4, 3), {"left": torch.rand(4, 3)})
shapes = {"x": {0: batch}, "parts": {"left": {0: batch}}, "shift": None}
program = torch.export.export(net, inputs, {"shift": torch.ones(3)}, dynamic_shapes=shapes)
for module in program.graph_module.modules():
    for node in module.graph.nodes:  # one short line for each node, without folders of this machine
        lines = re.findall(r'File "[^"]*/(small.py", line .*)\n', node.meta.get("stack_trace", ""))
        node.meta["stack_trace"] = "".join(f'  File "{line}\n' for line in lines[-1:])
        node.meta.pop("nn_module_stack", None)
        node.meta.pop("torch_fn", None)
torch.export.save(program, sys.argv[1])
