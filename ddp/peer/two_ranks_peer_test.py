"""Two ranks of C++ DDP, over Gloo and over shared memory, against Python's over Gloo: the same losses, parameters and buffers, bit for bit."""

import tempfile
import unittest

import ranks


class TwoRanks(unittest.TestCase):
    def check(self, case):
        with tempfile.TemporaryDirectory() as folder:
            initial = ranks.save_initial(case, folder)
            python, expected = ranks.start_group(ranks.start_python, "python", case, 2, folder, initial)
            gloo, over_gloo = ranks.start_group(ranks.start_cpp, "gloo", case, 2, folder, initial)
            shm, over_shm = ranks.start_group(ranks.start_cpp, "shm", case, 2, folder, initial, backend="shm")
            ranks.expect_success(self, gloo + shm + python)
            for rank in range(2):
                ranks.expect_same_bits(self, expected[rank], over_gloo[rank], f"Gloo, rank {rank}")
                ranks.expect_same_bits(self, expected[rank], over_shm[rank], f"shm, rank {rank}")
            ranks.expect_learning(self, initial, over_gloo[0])


def add_test(case):
    setattr(TwoRanks, f"test_{case}", lambda self: self.check(case))


for case in ranks.CASES:
    add_test(case)

if __name__ == "__main__":
    unittest.main(verbosity=2)
