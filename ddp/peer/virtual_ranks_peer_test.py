"""Two virtual ranks, on two C++ ranks and on one, against two ranks of Python's DDP over Gloo: bit for bit."""

import tempfile
import unittest

import ranks

# Enough for the first layout of the buckets and the second; more would show the same.
STEPS = 8


class VirtualRanks(unittest.TestCase):
    def check(self, case):
        with tempfile.TemporaryDirectory() as folder:
            group = ranks.Group(case, 2, folder, STEPS)
            python, expected = group.start(ranks.start_python, "python")
            two, on_two = group.start(ranks.start_cpp, "two", backend="shm", virtual_ranks=2)
            on_one = f"{folder}/one.pt"
            meet = f"file://{folder}/one_store"
            one = ranks.start_cpp(group, 0, meet, on_one, backend="gloo", virtual_ranks=2, world_size=1)
            ranks.expect_success(self, [*python, *two, one])
            for rank in range(2):
                ranks.expect_same_bits(self, group, expected[rank], on_two[rank], f"on two, rank {rank}")
            ranks.expect_same_state(self, expected[0], on_one, "on one")
            ranks.expect_learning(self, group, on_one)


def add_test(case):
    setattr(VirtualRanks, f"test_{case}", lambda self: self.check(case))


for case in ranks.CASES:
    if case != "resnet18_bucket_view":
        add_test(case)

if __name__ == "__main__":
    unittest.main(verbosity=2)
