"""C++ and Python ranks that train one model in one Gloo group: every rank ends with the bits of a group of Python ranks alone."""

import tempfile
import unittest

import ranks


class MixedGroup(unittest.TestCase):
    def check(self, case, python_ranks, cpp_ranks):
        world_size = len(python_ranks) + len(cpp_ranks)
        meet = f"tcp://127.0.0.1:{ranks.free_port()}"
        with tempfile.TemporaryDirectory() as folder:
            group = ranks.Group(case, world_size, folder)
            alone, expected = group.start(ranks.start_python, "python")
            found = [f"{folder}/mixed{rank}.pt" for rank in range(world_size)]
            mixed = [ranks.start_cpp(group, rank, meet, found[rank], backend="gloo") for rank in cpp_ranks]
            mixed += [ranks.start_python(group, rank, meet, found[rank]) for rank in python_ranks]
            ranks.expect_success(self, mixed + alone)
            for rank in range(world_size):
                ranks.expect_same_bits(self, group, expected[rank], found[rank], f"rank {rank}")
            ranks.expect_learning(self, group, found[0])

    def test_resnet18_with_python_as_rank_0(self):
        self.check("resnet18", python_ranks=[0], cpp_ranks=[1])

    def test_resnet18_bucket_view_with_cpp_as_rank_0(self):
        self.check("resnet18_bucket_view", python_ranks=[1], cpp_ranks=[0])

    def test_transformer_with_tied_weights_two_and_two(self):
        self.check("transformer_with_tied_weights", python_ranks=[0, 3], cpp_ranks=[1, 2])

    def test_unused_parameters(self):
        self.check("unused_parameters", python_ranks=[0], cpp_ranks=[1])

    def test_accumulation(self):
        self.check("accumulation", python_ranks=[1], cpp_ranks=[0])

    def test_sparse_embeddings(self):
        self.check("sparse_embeddings", python_ranks=[0], cpp_ranks=[1])

    def test_sparse_embeddings_on_three_ranks(self):
        self.check("sparse_embeddings", python_ranks=[1], cpp_ranks=[0, 2])

    def test_static_graph(self):
        self.check("static_graph", python_ranks=[0], cpp_ranks=[1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
