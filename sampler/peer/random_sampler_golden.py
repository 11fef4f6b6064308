"""Writes random_sampler_golden.txt: what Python's RandomSampler gives, for random_sampler_test.

  python3 random_sampler_golden.py > random_sampler_golden.txt      (PyTorch 2.11)

A line is: size num_samples replacement own_generator loader seed epochs stop  after count hash [index...]
own_generator: the sampler has one, seeded with `seed`; else the default one is. loader: Python's DataLoader iterates.
Epochs 1, 3, ... are left after `stop` indices. The indices are those of all epochs, and short lists are given in full.
`after` is what the generator draws next.
"""

import itertools
import random

import torch
from torch.utils.data import DataLoader, RandomSampler

from distributed_sampler_golden import FULL_UP_TO, hash_of

FIELDS = ("size", "num_samples", "replacement", "own_generator", "loader", "seed", "epochs", "stop")


def indices_of(size, num_samples, replacement, own_generator, loader, seed, epochs, stop):
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed) if own_generator else None
    sampler = RandomSampler(range(size), replacement=bool(replacement), num_samples=num_samples, generator=generator)
    iterated = DataLoader(range(size), batch_size=None, sampler=sampler, generator=generator) if loader else sampler
    indices = []
    for epoch in range(epochs):
        indices += itertools.islice(iterated, stop if epoch % 2 else None)
    return indices, int(torch.empty((), dtype=torch.int64).random_(generator=generator))


def random_case(generator, max_size):
    size = generator.randint(1, max_size)
    num_samples = generator.choice(
        [size, size, 1, 31, 32, 33, 64, 2 * size, generator.randint(1, size), generator.randint(1, 3 * size + 1)]
    )
    replacement = generator.randrange(2)
    if replacement and not generator.randrange(4):
        size = generator.choice([2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**40 + 7, 2**62])
    return (
        size,
        num_samples,
        replacement,
        generator.randrange(2),
        generator.randrange(2),
        generator.choice([0, 1, 42, -1, 2**31, 2**32 + 5, 2**63 - 1, generator.getrandbits(62)]),
        generator.randint(1, 3),
        generator.randint(0, num_samples),
    )


def cases():
    for size, num_samples in ((1, 1), (1, 3), (5, 5), (5, 2), (5, 10), (5, 13), (32, 32), (40, 64), (100, 95)):
        for replacement in (0, 1):
            for own_generator in (0, 1):
                for loader in (0, 1):
                    yield size, num_samples, replacement, own_generator, loader, 7, 2, min(3, num_samples)
    yield 60000, 60000, 0, 0, 0, 0, 2, 0
    yield 50000, 120000, 0, 1, 0, 17, 1, 0
    yield 50000, 50001, 1, 1, 0, 17, 1, 0
    generator = random.Random(13)
    for _ in range(100):
        yield random_case(generator, 12)
    for _ in range(60):
        yield random_case(generator, 2000)


def lines():
    for case in cases():
        indices, after = indices_of(*case)
        full = indices if len(indices) <= FULL_UP_TO else []
        yield " ".join(map(str, (*case, after, len(indices), hash_of(indices), *full)))


if __name__ == "__main__":
    print("\n".join(lines()))
