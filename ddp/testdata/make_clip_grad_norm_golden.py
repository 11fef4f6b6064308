"""Writes clip_grad_norm_golden.json: what torch.nn.utils.clip_grad_norm_ of PyTorch 2.11 makes of the gradients of clip_grad_norm_test.cc.

usage: python3 make_clip_grad_norm_golden.py > clip_grad_norm_golden.json

A case's numbers are the norm and three clipped elements of each gradient.
"""

import json

import torch

SHAPES = [[5, 7], [3], [40, 50]]
DTYPES = {
    "float": [torch.float32],
    "double": [torch.float64],
    "half": [torch.float16],
    "bfloat16": [torch.bfloat16],
    "mixed": [torch.float32, torch.bfloat16, torch.float64],
}
MAX_NORM = 0.3


def parameters(dtypes, count):
    """Whose gradients are random numbers."""
    made = []
    for seed, shape in enumerate(SHAPES[:count]):
        values = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        made.append(torch.zeros(shape, dtype=dtypes[seed % len(dtypes)], requires_grad=True))
        made[-1].grad = values.to(made[-1].dtype)
    return made


def clipped(dtypes, count, norm_type):
    clip = parameters(dtypes, count)
    norm = torch.nn.utils.clip_grad_norm_(clip, MAX_NORM, norm_type)
    return [norm.item()] + [value for parameter in clip for value in parameter.grad.flatten()[:3].tolist()]


def main():
    lines = []
    for name, dtypes in DTYPES.items():
        for count in [1, 3]:
            for norm_type in [2.0, 1.0, 3.5, float("inf"), 0.0]:
                values = clipped(dtypes, count, norm_type)
                lines.append(f'"{name}, {count} gradients, norm_type {norm_type:g}": {json.dumps(values)}')
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main()
