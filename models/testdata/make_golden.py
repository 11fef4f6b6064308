"""Writes a file for each of ARCHS beside itself, from torchvision 0.26.0 with PyTorch 2.11.0.

A line a tensor of the state dict: name, shape, and for floating-point ones the sum in a network made after torch.manual_seed(11).
The last line: "logits", shape and sum of what it gives in eval mode for linspace(-1, 1) as 2 images of 64x64.
"""

import pathlib

import torch
import torchvision

ARCHS = ("resnet18", "resnet34", "resnet50", "resnext50_32x4d")


def line(name, tensor):
    shape = ",".join(map(str, tensor.shape)) or "scalar"
    total = f"{tensor.double().sum().item():.5f}" if tensor.is_floating_point() else "-"
    return f"{name} {shape} {total}\n"


def main():
    torch.set_num_threads(1)
    for arch in ARCHS:
        torch.manual_seed(11)
        net = getattr(torchvision.models, arch)().eval()
        with torch.no_grad():
            logits = net(torch.linspace(-1, 1, 2 * 3 * 64 * 64).view(2, 3, 64, 64))
        lines = [line(name, tensor) for name, tensor in net.state_dict().items()] + [line("logits", logits)]
        (pathlib.Path(__file__).parent / f"{arch}.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
