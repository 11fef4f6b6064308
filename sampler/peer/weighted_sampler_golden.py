"""Writes weighted_sampler_golden.txt: what Python's WeightedRandomSampler gives, for weighted_sampler_test.

  python3 weighted_sampler_golden.py > weighted_sampler_golden.txt      (PyTorch 2.11)

A line is: num_samples num_replicas rank replacement seed epoch number_of_weights [weight...]  count hash [index...]
The indices are the rank's part of those drawn, repeated from the start; short lists are given in full too.
"""

import itertools
import random

import torch
from torch.utils.data import WeightedRandomSampler

from distributed_sampler_golden import FULL_UP_TO, hash_of

FIELDS = ("num_samples", "num_replicas", "rank", "replacement", "seed", "epoch", "number_of_weights", "weights")


def indices_of(num_samples, num_replicas, rank, replacement, seed, epoch, _, *weights):
    generator = torch.Generator().manual_seed(seed + epoch)
    drawn = list(WeightedRandomSampler(weights, num_samples, bool(replacement), generator=generator))
    total_size = -(-num_samples // num_replicas) * num_replicas
    return list(itertools.islice(itertools.cycle(drawn), rank, total_size, num_replicas))


def random_case(generator, max_weights, max_replicas):
    kinds = generator.choice([(0.0, 1.0), (0.0, 0.5, 2.0, 1e-12, 1e12), (1.0,), (None,), (0.0, None)])
    weights = [generator.choice(kinds) for _ in range(generator.randint(1, max_weights))]
    weights = [generator.random() if weight is None else weight for weight in weights] + [0.75]
    generator.shuffle(weights)
    replacement = generator.randrange(2)
    drawable = sum(weight > 0 for weight in weights)
    num_replicas = generator.randint(1, max_replicas)
    return (
        generator.choice([1, drawable, generator.randint(1, (3 if replacement else 1) * drawable)]),
        num_replicas,
        generator.randrange(num_replicas),
        replacement,
        generator.choice([0, 1, 42, -1, -(2**62), 2**31, 2**32 + 5, generator.getrandbits(62)]),
        generator.choice([0, 1, 2, 99, 2**31, generator.getrandbits(40)]),
        len(weights),
        *weights,
    )


def cases():
    generator = random.Random(17)
    for max_weights, max_replicas, number in ((4, 3, 100), (20, 30, 60), (60, 9, 40)):
        for _ in range(number):
            yield random_case(generator, max_weights, max_replicas)


def lines():
    for case in cases():
        indices = indices_of(*case)
        full = indices if len(indices) <= FULL_UP_TO else []
        yield " ".join(map(str, (*case, len(indices), hash_of(indices), *full)))


if __name__ == "__main__":
    print("\n".join(lines()))
