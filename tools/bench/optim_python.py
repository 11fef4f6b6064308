"""Python's optimizers, as optim.cc measures ours; a JSON line.

  optim_python.py OPTIMIZER PARAMETERS MODE STEPS    and again for each line of standard input
"""

import itertools
import json
import pathlib
import statistics
import sys
import time

sys.path.append(str(pathlib.Path(__file__).absolute().parents[1]))
import required_packages

required_packages.check("torch")
import torch

MODES = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True}}


def gpt2_shapes(width=768):
    layer = [(width,), (width,), (width, 3 * width), (3 * width,), (width, width), (width,)]
    layer += [(width,), (width,), (width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return [(50257, width), (1024, width), *layer * 12, (width,), (width,)]


def convolution(out, inputs, kernel):
    return [(out, inputs, kernel, kernel), (out,), (out,)]


def resnet50_shapes():
    shapes = convolution(64, 3, 7)
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            shapes += convolution(width, inputs, 1) + convolution(width, width, 3) + convolution(4 * width, width, 1)
            if block == 0:
                shapes += convolution(4 * width, inputs, 1)
            inputs = 4 * width
    return [*shapes, (1000, inputs), (1000,)]


SHAPES = {"124M": gpt2_shapes, "resnet50": resnet50_shapes, "160x4KiB": lambda: [(1024,)] * 160}
OPTIMIZERS = {
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
    "sgd_momentum": (torch.optim.SGD, {"momentum": 0.9}),
}


def main():
    kind, parameters_of, mode, steps = sys.argv[1:]
    torch.manual_seed(0)
    parameters = []
    for shape in SHAPES[parameters_of]():
        parameters.append(torch.nn.Parameter(torch.randn(shape)))
        parameters[-1].grad = torch.randn(shape)
    make, options = OPTIMIZERS[kind]
    optimizer = make(parameters, lr=1e-3, **options, **MODES[mode])

    def step():
        start = time.perf_counter()
        optimizer.step()
        return time.perf_counter() - start

    for _ in range(2):
        step()
    for _ in itertools.chain([""], sys.stdin):
        seconds = statistics.median(step() for _ in range(int(steps)))
        checksum = parameters[-1].detach().double().sum().item()
        print(json.dumps({"seconds": seconds, "checksum": checksum}), flush=True)


if __name__ == "__main__":
    main()
