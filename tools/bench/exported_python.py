"""Python's side of suite exported: the networks in eager mode, and their files for C++; a JSON line.

  exported_python.py CASE STEPS       trains, and again for each line of standard input
  exported_python.py CASE FILE.pt2    writes torch.export's program
"""

import itertools
import json
import pathlib
import statistics
import sys
import time

sys.path.append(str(pathlib.Path(__file__).absolute().parents[1]))
import required_packages

required_packages.check("torch", "torchvision")
import torch
import torchvision
from gpt_python import Gpt
from torch import nn
from torch.nn import functional


class Adds(nn.Module):
    def __init__(self):
        super().__init__()
        self.addend = nn.Parameter(torch.randn(64))

    def forward(self, x):
        for _ in range(64):
            x = x + self.addend
        return x


def mlp():
    return nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.ReLU())))


# case: network, input, number of classes.
CASES = {
    "resnet50/b8": (torchvision.models.resnet50, lambda: torch.randn(8, 3, 224, 224), 1000),
    "gpt_12l/512": (Gpt, lambda: torch.randint(512, (4, 128)), 512),
    "mlp_4x64": (mlp, lambda: torch.randn(32, 64), 64),
    "add_64": (Adds, lambda: torch.randn(1, 64), 64),
}


def train(net, inputs, classes, steps):
    targets = torch.randint(
        classes, inputs.shape[:1] if inputs.dim() != 2 or inputs.is_floating_point() else inputs.shape
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)

    def step():
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(inputs).flatten(0, -2), targets.flatten())
        loss.backward()
        optimizer.step()
        taken = time.perf_counter() - start
        return taken, loss.item()

    for _ in range(2):
        step()
    for _ in itertools.chain([""], sys.stdin):
        done = [step() for _ in range(steps)]
        seconds = statistics.median(seconds for seconds, _ in done)
        print(json.dumps({"seconds": seconds, "loss": done[-1][1]}), flush=True)


def main():
    case, steps_or_file = sys.argv[1:]
    make, make_inputs, classes = CASES[case]
    torch.manual_seed(0)
    net = make()
    torch.manual_seed(7)
    inputs = make_inputs()
    if steps_or_file.endswith(".pt2"):
        torch.export.save(torch.export.export(net, (inputs,)), steps_or_file)
    else:
        train(net, inputs, classes, int(steps_or_file))


if __name__ == "__main__":
    main()
