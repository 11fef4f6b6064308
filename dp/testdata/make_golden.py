"""Writes batch_norm.pt beside itself: three steps of a net with BatchNorm under torch.nn.DataParallel's rules, PyTorch 2.11.0.

Python's DataParallel runs on GPUs only, so its rules are spelled out: each forward runs copies of the module on the chunks that
Tensor.chunk gives, all with the module's parameters and with the buffers that it has now; copy 0 has the module's very buffers, what
the others write to theirs is lost.
"""

import pathlib

import torch

DEVICES = 3


def make_net():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(4 * 4 * 4, 2),
    )


def forward(net, inputs):
    parameters, own = dict(net.named_parameters()), dict(net.named_buffers())
    copies = [{name: buffer.clone() for name, buffer in own.items()} for _ in range(DEVICES - 1)]
    outputs = []
    for buffers, chunk in zip([own, *copies], inputs.chunk(DEVICES)):
        outputs.append(torch.func.functional_call(net, {**parameters, **buffers}, (chunk,)))
    return torch.cat(outputs)


def main():
    torch.manual_seed(0)
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    golden = {"state_dict": {name: value.clone() for name, value in net.state_dict().items()}, "steps": []}
    for _ in range(3):
        inputs = torch.randn(7, 3, 6, 6)
        optimizer.zero_grad()
        outputs = forward(net, inputs)
        outputs.pow(2).mean().backward()
        gradients = {name: parameter.grad.clone() for name, parameter in net.named_parameters()}
        optimizer.step()
        buffers = {name: buffer.clone() for name, buffer in net.named_buffers()}
        golden["steps"].append(
            {"inputs": inputs, "outputs": outputs.detach(), "gradients": gradients, "buffers": buffers}
        )
    torch.save(golden, pathlib.Path(__file__).parent / "batch_norm.pt")


if __name__ == "__main__":
    main()
