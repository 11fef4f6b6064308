"""C++ DDP over Gloo against Python DDP over Gloo: the same losses, parameters and buffers on every rank, bit for bit."""

import tempfile
import unittest

import ranks


class OverGloo(unittest.TestCase):
    def check(self, case, world_size):
        with tempfile.TemporaryDirectory() as folder:
            initial = ranks.save_initial(case, folder)
            python, expected = ranks.start_group(ranks.start_python, "python", case, world_size, folder, initial)
            cpp, found = ranks.start_group(ranks.start_cpp, "cpp", case, world_size, folder, initial)
            ranks.expect_success(self, cpp + python)
            for rank in range(world_size):
                ranks.expect_same_bits(self, expected[rank], found[rank], f"rank {rank}")
            ranks.expect_learning(self, initial, found[0])


def add_test(case, world_size):
    name = f"test_{case}_on_{world_size}_ranks"
    setattr(OverGloo, name, lambda self: self.check(case, world_size))


for case in ranks.CASES:
    for world_size in (2, 4):
        add_test(case, world_size)

if __name__ == "__main__":
    unittest.main(verbosity=2)
