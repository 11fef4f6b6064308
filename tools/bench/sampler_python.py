"""Python's DistributedSampler, as sampler.cc measures ours; a JSON line a measurement.

  sampler_python.py CASES REPEAT
"""

import json
import pathlib
import statistics
import sys
import time

sys.path.append(str(pathlib.Path(__file__).absolute().parents[1]))
import required_packages

required_packages.check("torch")
import torch
from torch.utils.data.distributed import DistributedSampler

IMAGENET = 1281167


def measure(work, repeat):
    """The median of what work(epoch) takes in epochs 1, 2, ..., and its last result."""
    seconds = []
    for epoch in range(1, repeat + 1):
        start = time.perf_counter()
        result = work(epoch)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), result


def checksum_of(indices):
    return sum((i + 1) * index for i, index in enumerate(indices)) % 2**64


def main():
    cases, repeat = sys.argv[1].split(","), int(sys.argv[2])
    sampler = DistributedSampler(range(IMAGENET), num_replicas=8, rank=0)

    def in_epoch(take):
        def work(epoch):
            sampler.set_epoch(epoch)
            return take(sampler)

        return work

    for case in cases:
        if case == "first_index":
            seconds, checksum = measure(in_epoch(lambda sampler: next(iter(sampler))), repeat)
        elif case == "epoch":
            seconds, indices = measure(in_epoch(list), repeat)
            checksum = checksum_of(indices)
        else:  # randperm_1e9
            seconds, checksum = measure(lambda _: torch.randperm(10**9)[0].item(), 1)
        print(json.dumps({"case": case, "seconds": seconds, "checksum": checksum}), flush=True)


if __name__ == "__main__":
    main()
