"""Four ranks of C++ DDP, bit for bit: over Gloo against Python's over Gloo, over shared memory against sums in rank order.

The two backends differ: in which order Gloo adds four numbers depends on where in the bucket they are.
"""

import tempfile
import unittest

import ranks


class FourRanks(unittest.TestCase):
    def check_gloo(self, case):
        with tempfile.TemporaryDirectory() as folder:
            initial = ranks.save_initial(case, folder)
            python, expected = ranks.start_group(ranks.start_python, "python", case, 4, folder, initial)
            self.compare(case, "gloo", folder, initial, python, expected)

    def check_shm(self, case):
        with tempfile.TemporaryDirectory() as folder:
            initial = ranks.save_initial(case, folder)
            expected = [f"{folder}/alone{rank}.pt" for rank in range(4)]
            self.compare(case, "shm", folder, initial, [ranks.start_alone(case, 4, initial, expected)], expected)

    def compare(self, case, backend, folder, initial, python, expected):
        cpp, found = ranks.start_group(ranks.start_cpp, "cpp", case, 4, folder, initial, backend=backend)
        ranks.expect_success(self, cpp + python)
        for rank in range(4):
            ranks.expect_same_bits(self, expected[rank], found[rank], f"rank {rank}")
        ranks.expect_learning(self, initial, found[0])


def add_tests(case):
    setattr(FourRanks, f"test_{case}_over_gloo", lambda self: self.check_gloo(case))
    setattr(FourRanks, f"test_{case}_over_shm", lambda self: self.check_shm(case))


for case in ranks.CASES:
    if case != "resnet18_bucket_view":  # a minute more, for what smaller networks show
        add_tests(case)

if __name__ == "__main__":
    unittest.main(verbosity=2)
