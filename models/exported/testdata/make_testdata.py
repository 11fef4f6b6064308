"""Makes the files beside it: make_testdata.py FOLDER.

With PyTorch 2.11:
net.pt2       a program in training mode, of double precision, with a dynamic number of rows
net.pt        what it computes in Python: its inputs, logits, gradients and buffers afterwards
programs.pt2  two programs, "train" and "eval", of one network

With another version, such as 2.7: net_2.7.pt2 and net_2.7.pt, the counterparts of the first two.
"""

import re
import sys

import torch
from torch import nn

VERSION = ".".join(torch.__version__.split(".")[:2])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(5, 4)  # before the layers that run first
        self.first = nn.Linear(4, 5)
        self.norm = nn.BatchNorm1d(5)
        self.tied = nn.Linear(5, 4)
        self.tied.weight = self.last.weight
        self.register_buffer("scale", torch.full((4,), 2.0), persistent=False)

    def forward(self, rows, shift=None, *, factor):
        x = torch.relu(self.norm(self.first(rows)))
        if shift is not None:
            x = x + shift
        return {"logits": self.last(x) * self.scale * factor, "parts": [x, self.tied(x)]}


def export(net, args, kwargs=None, **options):
    # torch.export.export of 2.7 replaces composite operators, such as linear.
    export_for_training = getattr(torch.export, "export_for_training", None) if VERSION == "2.7" else None
    program = (export_for_training or torch.export.export)(net, args, kwargs, strict=False, **options)
    for node in program.graph.nodes:  # only lines of this file, without folders of this machine
        lines = re.findall(r'File "[^"]*/(make_testdata.py", line [^\n]*\n[^\n]*)', node.meta.get("stack_trace", ""))
        node.meta["stack_trace"] = "".join(f'  File "{line}\n' for line in lines)
    return program


def main(folder):
    name = "net" if VERSION == "2.11" else f"net_{VERSION}"
    torch.manual_seed(1)
    net = Net().double()
    rows, factor = torch.randn(6, 4, dtype=torch.double), torch.randn(4, dtype=torch.double)
    shapes = {"rows": {0: torch.export.Dim("n", min=3, max=100)}, "factor": None}
    program = export(net, (rows,), {"factor": factor}, dynamic_shapes=shapes)
    torch.export.save(program, f"{folder}/{name}.pt2")
    output = net(rows, factor=factor)
    (output["logits"].square().sum() + output["parts"][1].sum()).backward()
    expected = {
        "rows": rows,
        "factor": factor,
        "logits": output["logits"].detach(),
        "gradients": {name: parameter.grad for name, parameter in net.named_parameters()},
        "state_dict": net.state_dict(),
    }
    torch.save(expected, f"{folder}/{name}.pt")
    if VERSION != "2.11":
        return
    from torch.export.pt2_archive._package import package_pt2  # new in 2.9

    small = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    rows, shapes = torch.ones(3, 2), ({0: torch.export.Dim("n", max=100)},)
    programs = {mode: export(getattr(small, mode)(), (rows,), dynamic_shapes=shapes) for mode in ("train", "eval")}
    package_pt2(f"{folder}/programs.pt2", exported_programs=programs)


if __name__ == "__main__":
    main(sys.argv[1])
