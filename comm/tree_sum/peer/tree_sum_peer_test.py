"""The average of 3 to 16 leaves is what a page of Python gets with torch's additions, for any number of ranks, bit for bit."""

import os
import subprocess
import sys
import tempfile
import unittest

import torch

ADD_LEAVES = os.path.abspath(sys.argv.pop(1))
NUMEL = 257
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}


def leaves_of(count, dtype):
    """Numbers of very different sizes, so that another order gives other bits."""
    generator = torch.Generator().manual_seed(count)
    numbers = torch.randn(count, NUMEL, generator=generator, dtype=torch.float64)
    sizes = torch.randint(-8, 9, (count, NUMEL), generator=generator)
    return (numbers * 2.0**sizes).to(dtype)


def tree_sum(leaves):
    """A node of n leaves is the sum of its first p leaves and the others; p is the largest power of two less than n."""
    if len(leaves) == 1:
        return leaves[0]
    p = 1 << ((len(leaves) - 1).bit_length() - 1)
    return tree_sum(leaves[:p]) + tree_sum(leaves[p:])


def to_bytes(tensor):
    return bytes(tensor.contiguous().flatten().view(torch.uint8).tolist())


class TreeSum(unittest.TestCase):
    def test_the_order(self):
        class Text(str):
            def __add__(self, other):
                return Text(f"({self}{other})")

        self.assertEqual(tree_sum([Text(i) for i in range(7)]), "(((01)(23))((45)6))")

    def test_every_number_of_leaves(self):
        found = 0
        with tempfile.TemporaryDirectory() as folder:
            expected = {}
            for count in range(3, 17):
                for name, dtype in DTYPES.items():
                    leaves = leaves_of(count, dtype)
                    expected[count, name] = to_bytes(tree_sum(leaves) / count)
                    in_rank_order = to_bytes(sum(leaves[1:], leaves[0]) / count)
                    self.assertEqual(expected[count, name] == in_rank_order, count == 3, name)
                    with open(f"{folder}/{count}_{name}", "wb") as file:
                        file.write(to_bytes(leaves))
            subprocess.run([ADD_LEAVES, folder], check=True, timeout=240)
            for result in sorted(os.listdir(folder)):
                if "_on_" not in result:
                    continue
                count, name = result.split("_")[:2]
                with open(f"{folder}/{result}", "rb") as file:
                    self.assertTrue(file.read() == expected[int(count), name], result)
                found += 1
        self.assertEqual(found, 14 * 3 * 7)


if __name__ == "__main__":
    unittest.main(verbosity=2)
