"""Two ranks of C++ DDP, over Gloo and over shared memory, against Python's over Gloo: the same losses, parameters and buffers, bit for bit."""

import tempfile
import unittest

import ranks


class TwoRanks(unittest.TestCase):
    def check(self, case, steps=ranks.STEPS):
        with tempfile.TemporaryDirectory() as folder:
            group = ranks.Group(case, 2, folder, steps)
            python, expected = group.start(ranks.start_python, "python")
            gloo, over_gloo = group.start(ranks.start_cpp, "gloo", backend="gloo")
            shm, over_shm = group.start(ranks.start_cpp, "shm", backend="shm")
            ranks.expect_success(self, gloo + shm + python)
            for rank in range(2):
                ranks.expect_same_bits(self, group, expected[rank], over_gloo[rank], f"Gloo, rank {rank}")
                ranks.expect_same_bits(self, group, expected[rank], over_shm[rank], f"shm, rank {rank}")
            ranks.expect_learning(self, group, over_gloo[0])

    def test_zero_redundancy_adamw(self):
        ranks.CASES["zero"] = ("mlp", {"bucket_cap_mb": 0.012, "zero": True}, 1)
        self.check("zero", steps=50)


def add_test(case):
    setattr(TwoRanks, f"test_{case}", lambda self: self.check(case))


for case in ranks.CASES:
    add_test(case)

if __name__ == "__main__":
    unittest.main(verbosity=2)
