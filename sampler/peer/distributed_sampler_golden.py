"""Writes distributed_sampler_golden.txt: what Python's DistributedSampler gives, for distributed_sampler_test.

  python3 distributed_sampler_golden.py > distributed_sampler_golden.txt      (PyTorch 2.11)

A line is: size num_replicas rank seed epoch shuffle drop_last num_samples total_size hash [index...]
The hash is hash_of() below; short orders are given in full too.
"""

import random

from torch.utils.data.distributed import DistributedSampler

FIELDS = ("size", "num_replicas", "rank", "seed", "epoch", "shuffle", "drop_last")
FULL_UP_TO = 12


def indices_of(size, num_replicas, rank, seed, epoch, shuffle, drop_last):
    sampler = DistributedSampler(
        range(size), num_replicas=num_replicas, rank=rank, shuffle=bool(shuffle), seed=seed, drop_last=bool(drop_last)
    )
    sampler.set_epoch(epoch)
    return list(sampler), sampler.num_samples, sampler.total_size


def hash_of(indices):
    """FNV-1a over whole indices in place of bytes."""
    value = 0xCBF29CE484222325
    for index in indices:
        value = ((value ^ index) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def random_case(generator, max_size, max_replicas):
    num_replicas = generator.randint(1, max_replicas)
    return (
        generator.randint(1, max_size),
        num_replicas,
        generator.randrange(num_replicas),
        generator.choice([0, 1, 42, -1, -(2**63), 2**31, 2**32 + 5, 2**63 - 1, generator.getrandbits(62)]),
        generator.choice([0, 1, 2, 99, 2**31, 2**63 - 1, generator.getrandbits(40)]),
        generator.randrange(2),
        generator.randrange(2),
    )


def cases():
    for num_replicas, rank in ((1, 0), (2, 0), (2, 1), (3, 2), (7, 0), (7, 6)):
        for size in (0, 1, 2, 3, 6, 7, 8, 13, 14, 100):
            for shuffle in (0, 1):
                for drop_last in (0, 1):
                    yield size, num_replicas, rank, 0, 1, shuffle, drop_last
    for rank in (0, 1):
        for epoch in (0, 1):
            yield 60000, 2, rank, 0, epoch, 1, 0
    yield 50000, 3, 2, 17, 5, 1, 0
    yield 50000, 3, 2, 17, 5, 1, 1
    generator = random.Random(11)
    for _ in range(400):
        yield random_case(generator, 40, 70)
    for _ in range(1200):
        yield random_case(generator, 60, 9)
    for _ in range(1200):
        yield random_case(generator, 3000, 9)


def lines():
    for case in cases():
        indices, num_samples, total_size = indices_of(*case)
        full = indices if len(indices) <= FULL_UP_TO else []
        yield " ".join(map(str, (*case, num_samples, total_size, hash_of(indices), *full)))


if __name__ == "__main__":
    print("\n".join(lines()))
