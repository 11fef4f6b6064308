"""Writes golden.json: what the communication hooks of PyTorch 2.11 make of the gradients of two ranks.

usage: python3 make_golden.py > golden.json
"""

import json
import math
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

SHAPES = [[8, 9], [6], [7, 10], [8, 9]]
STEPS = 5
POWER_SGD = {
    "rank 1": {"matrix_approximation_rank": 1},
    "rank 2": {"matrix_approximation_rank": 2},
    "cold": {"matrix_approximation_rank": 2, "warm_start": False, "random_seed": 5},
    "no feedback": {"matrix_approximation_rank": 1, "use_error_feedback": False, "orthogonalization_epsilon": 0.01},
}
DEFAULT = {
    "all-reduce": default_hooks.allreduce_hook,
    "fp16": default_hooks.fp16_compress_hook,
    "bf16": default_hooks.bf16_compress_hook,
}


class Bucket:
    """The only bucket of a step."""

    def __init__(self, rank, step):
        numel = sum(math.prod(shape) for shape in SHAPES)
        values = [math.sin(0.7 * ((k + 1) * (k + 1) % 101) + rank + 2 * step) for k in range(numel)]
        self.flat = torch.tensor(values, dtype=torch.float64).to(torch.float32)

    def buffer(self):
        return self.flat

    def gradients(self):
        parts = self.flat.split([math.prod(shape) for shape in SHAPES])
        return [part.view(shape) for part, shape in zip(parts, SHAPES)]

    def index(self):
        return 0

    def is_last(self):
        return True


def run_rank(rank, store, output):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    golden = {}
    for name, hook in DEFAULT.items():
        golden[name] = hook(dist.group.WORLD, Bucket(rank, 0)).wait().tolist()
    for name, options in POWER_SGD.items():
        state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, **options)
        for step in range(STEPS):
            reduced = powerSGD_hook.powerSGD_hook(state, Bucket(rank, step)).wait()
        golden[name] = reduced.tolist()
    if rank == 0:
        with open(output, "w") as file:
            json.dump(golden, file)
    dist.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as directory:
        output = os.path.join(directory, "golden.json")
        mp.spawn(run_rank, (os.path.join(directory, "store"), output), nprocs=2)
        with open(output) as file:
            golden = json.load(file)
    lines = [f'"{name}": [{", ".join(format(value, ".9g") for value in values)}]' for name, values in golden.items()]
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main()
