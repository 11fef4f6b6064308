"""Three and four ranks of C++ DDP, bit for bit: over Gloo against Python's over Gloo, over shared memory against sums in rank order.

The two backends differ: in which order Gloo adds numbers of more than two ranks depends on where in the bucket they are. Of three ranks
a gradient times 1/3, as DDP has it, is not the gradient divided by 3, as it has it where gradients live in the buckets.
"""

import tempfile
import unittest

import ranks

# Enough for the first layout of the buckets and the second; more would show the same.
RESNET_STEPS = 8


class MoreRanks(unittest.TestCase):
    def check_gloo(self, case, world_size):
        with tempfile.TemporaryDirectory() as folder:
            group = ranks.Group(case, world_size, folder, steps_of(case))
            python, expected = group.start(ranks.start_python, "python")
            self.compare(group, "gloo", python, expected)

    def check_shm(self, case):
        with tempfile.TemporaryDirectory() as folder:
            group = ranks.Group(case, 4, folder, steps_of(case))
            python, expected = group.start_alone()
            self.compare(group, "shm", python, expected)

    def compare(self, group, backend, python, expected):
        cpp, found = group.start(ranks.start_cpp, "cpp", backend=backend)
        ranks.expect_success(self, cpp + python)
        for rank in range(group.world_size):
            ranks.expect_same_bits(self, group, expected[rank], found[rank], f"rank {rank}")
        ranks.expect_learning(self, group, found[0])


def steps_of(case):
    return RESNET_STEPS if "resnet" in case else ranks.STEPS


def add_tests(case):
    setattr(MoreRanks, f"test_{case}_on_4_ranks_over_gloo", lambda self: self.check_gloo(case, 4))
    setattr(MoreRanks, f"test_{case}_on_4_ranks_over_shm", lambda self: self.check_shm(case))
    if "resnet" not in case:
        setattr(MoreRanks, f"test_{case}_on_3_ranks_over_gloo", lambda self: self.check_gloo(case, 3))


for case in ranks.CASES:
    if case != "resnet18_bucket_view":
        add_tests(case)

if __name__ == "__main__":
    unittest.main(verbosity=2)
