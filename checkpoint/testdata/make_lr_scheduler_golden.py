"""Writes lr_scheduler.pt, learning rates and states of Python PyTorch 2.11's schedulers; lr_scheduler_test.cc reads it.

  ./bazelw run //third_party:peer_python -- $PWD/checkpoint/testdata/make_lr_scheduler_golden.py $PWD/checkpoint/testdata

{name: {"lrs": [[a group's rate, ...] of an epoch, ...], "state": state_dict() after the last}}, from epoch 0 to 60.
ReduceLROnPlateau's metric at an epoch is epoch % 9.
"""

import os
import sys
import warnings

import torch
from torch.optim import lr_scheduler, swa_utils

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
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 31, 1.7),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 1 / (1 + epoch)),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda epoch: 1 / (1 + epoch)),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 7, 2, 0.001),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, [0.7, 0.9], 61),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, [0.01, 0.02], [0.7, 0.9], 7, 5, "exp_range", 0.99),
    "SWALR": lambda o: swa_utils.SWALR(o, [0.05, 0.07], 23),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, "max", 0.3, 4, cooldown=2, min_lr=[0.001, 0.002]),
    "chain": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.LinearLR(o, 0.01, 1.0, 5), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
}


def metric(epoch):
    return float(epoch % 9)


def golden(make):
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in (0.1, 0.0123)]
    scheduler = make(torch.optim.SGD(groups))
    lrs = [scheduler.get_last_lr()]
    for epoch in range(1, 61):
        scheduler.step(*([metric(epoch)] if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) else []))
        lrs.append(scheduler.get_last_lr())
    return {"lrs": lrs, "state": scheduler.state_dict()}


warnings.simplefilter("ignore")  # that no optimizer stepped
torch.save(
    {name: golden(make) for name, make in SCHEDULERS.items()},
    os.path.join(sys.argv[1], "lr_scheduler.pt"),
)
