"""Writes feistel_permutation_golden.txt: the orders of FeistelPermutation by another program, for its test.

  python3 feistel_permutation_golden.py > feistel_permutation_golden.txt

A line is: size seed epoch position index
The file must never change: checkpoints resume by these orders.
"""

import math

GAMMA = 0x9E3779B97F4A7C15
MASK = 2**64 - 1


def split_mix(state):
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & MASK
    state = (state ^ state >> 27) * 0x94D049BB133111EB & MASK
    return state ^ state >> 31


def keys_of(size, seed, epoch):
    state = 0
    for value in (size, seed, epoch):
        state = split_mix(state + value + GAMMA & MASK)
    return [split_mix(state + i * GAMMA & MASK) for i in range(1, 49 if size < 256 else 13)]


def shift(other, key, side):
    value = other * GAMMA + key & MASK
    return ((value ^ value >> 32) * 0xD6E8FEB86659FD93 & MASK) * side >> 64


def index_at(size, seed, epoch, position):
    root = math.isqrt(size - 1) + 1
    sides = [root + root % 2]
    sides.append(-(-size // sides[0]))
    while True:
        cell = [position % sides[0], position // sides[0]]
        for i, key in enumerate(keys_of(size, seed, epoch)):
            moved = i % 2
            cell[moved] = (cell[moved] + shift(cell[1 - moved], key, sides[moved])) % sides[moved]
        position = cell[1] * sides[0] + cell[0]
        if position < size:
            return position


def cases():
    for size in (1, 2, 3, 10, 255, 256, 1281167, 10**9, 2**53 + 1, 2**62 - 1, 2**62):
        for seed, epoch in ((0, 0), (0, 1), (1, 0), (-5, 90), (2**63 - 1, 2**40)):
            for position in sorted({0, 1 % size, size // 3, size - 1}):
                yield size, seed, epoch, position


if __name__ == "__main__":
    for case in cases():
        print(*case, index_at(*case))
