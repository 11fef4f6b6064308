"""Writes lr_scheduler.pt, learning rates and states of Python PyTorch 2.11's schedulers; lr_scheduler_test.cc reads it.

  ./bazelw run //third_party:peer_python -- $PWD/checkpoint/testdata/make_lr_scheduler_golden.py $PWD/checkpoint/testdata

{name: {"lrs": [[a group's rate, ...] of an epoch, ...], "state": state_dict() after the last}}, from epoch 0 to 60.
"""

import os
import sys
import warnings

import torch
from torch.optim import lr_scheduler

SCHEDULERS = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 7, 0.3),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [30, 10, 30, 45], 0.2),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.93),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 13, 0.001),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, 0.01, 0.9, 23),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, 0.3, 9),
    "warm-up": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.01, 1.0, 5), lr_scheduler.CosineAnnealingLR(o, 55, 0.0007)], [5]
    ),
    "four": lambda o: lr_scheduler.SequentialLR(
        o,
        [
            lr_scheduler.ConstantLR(o, 0.1, 3),
            lr_scheduler.MultiStepLR(o, [0, 4, 8], 0.3),
            lr_scheduler.StepLR(o, 5, 0.7),
            lr_scheduler.ExponentialLR(o, 0.9),
        ],
        [3, 20, 40],
    ),
}


def golden(make):
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in (0.1, 0.0123)]
    scheduler = make(torch.optim.SGD(groups))
    lrs = [scheduler.get_last_lr()]
    for _ in range(60):
        scheduler.step()
        lrs.append(scheduler.get_last_lr())
    return {"lrs": lrs, "state": scheduler.state_dict()}


warnings.simplefilter("ignore")  # that no optimizer stepped
torch.save(
    {name: golden(make) for name, make in SCHEDULERS.items()},
    os.path.join(sys.argv[1], "lr_scheduler.pt"),
)
