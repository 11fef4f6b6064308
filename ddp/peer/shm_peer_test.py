"""C++ DDP over shared memory: of two ranks the bits of Python DDP over Gloo; of four those of the sum in rank order."""

import tempfile
import unittest

import ranks


class OverSharedMemory(unittest.TestCase):
    def check_against_gloo(self, case):
        with tempfile.TemporaryDirectory() as folder:
            initial = ranks.save_initial(case, folder)
            python, expected = ranks.start_group(ranks.start_python, "python", case, 2, folder, initial)
            self.compare(case, 2, folder, initial, python, expected)

    def check_against_sum_in_rank_order(self, case):
        with tempfile.TemporaryDirectory() as folder:
            initial = ranks.save_initial(case, folder)
            expected = [f"{folder}/alone{rank}.pt" for rank in range(4)]
            self.compare(case, 4, folder, initial, [ranks.start_alone(case, 4, initial, expected)], expected)

    def compare(self, case, world_size, folder, initial, python, expected):
        cpp, found = ranks.start_group(ranks.start_cpp, "cpp", case, world_size, folder, initial, backend="shm")
        ranks.expect_success(self, cpp + python)
        for rank in range(world_size):
            ranks.expect_same_bits(self, expected[rank], found[rank], f"rank {rank}")
        ranks.expect_learning(self, initial, found[0])


def add_tests(case):
    setattr(OverSharedMemory, f"test_{case}_on_2_ranks", lambda self: self.check_against_gloo(case))
    setattr(OverSharedMemory, f"test_{case}_on_4_ranks", lambda self: self.check_against_sum_in_rank_order(case))


for case in ranks.CASES:
    add_tests(case)

if __name__ == "__main__":
    unittest.main(verbosity=2)
