"""Groups of Lockstep and Python PyTorch ranks: they meet, and every collective agrees on both sides."""

import os
import tempfile
import unittest

import mixed_ranks
import torch.distributed as dist


class MixedGroup(unittest.TestCase):
    def check(self, python_ranks, lockstep_ranks, init_method=None):
        init_method = init_method or f"tcp://127.0.0.1:{mixed_ranks.free_port()}"
        world_size = len(python_ranks) + len(lockstep_ranks)
        lockstep = {rank: mixed_ranks.start_lockstep(init_method, rank, world_size) for rank in lockstep_ranks}
        python = {rank: mixed_ranks.start_python(init_method, rank, world_size) for rank in python_ranks}
        mixed_ranks.expect_agreement(self, python, lockstep)

    def test_one_and_one_with_lockstep_as_rank_0(self):
        self.check(python_ranks=[1], lockstep_ranks=[0])

    def test_one_and_one_with_python_as_rank_0(self):
        self.check(python_ranks=[0], lockstep_ranks=[1])

    def test_two_and_two_with_lockstep_as_rank_0(self):
        self.check(python_ranks=[1, 3], lockstep_ranks=[0, 2])

    def test_two_and_two_with_python_as_rank_0(self):
        self.check(python_ranks=[0, 1], lockstep_ranks=[2, 3])

    def test_by_file(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check(python_ranks=[0], lockstep_ranks=[1], init_method=f"file://{folder}/store")

    def test_under_the_store_of_torchruns_agent(self):
        agent = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        variables = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(agent.port),
            "WORLD_SIZE": "2",
            "TORCHELASTIC_RUN_ID": "none",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "0",
        }
        lockstep = {0: mixed_ranks.start_lockstep("env://", -1, -1, env={**os.environ, **variables, "RANK": "0"})}
        os.environ.update(variables)
        try:
            python = {1: mixed_ranks.start_python("env://", 1, 2)}
        finally:
            for name in variables:
                del os.environ[name]
        mixed_ranks.expect_agreement(self, python, lockstep)


if __name__ == "__main__":
    unittest.main()
