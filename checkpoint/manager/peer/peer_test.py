"""A Manager's files, and random states, between Lockstep and Python PyTorch."""

import os
import subprocess
import sys
import tempfile
import unittest

import torch

PROGRAM = os.path.abspath(sys.argv.pop(1))


class PeerTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def run_program(self, *arguments):
        done = subprocess.run([PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def save(self):
        self.run_program("save", self.path("run"), self.path("drawn.pt"))
        return torch.load(self.path("run/step_00000005.pt"), weights_only=True)

    def assert_draws(self, normal, uniform):
        """Asserts that Python draws these numbers now."""
        self.assertEqual(torch.randn(3).tolist(), normal.tolist())
        self.assertEqual(torch.rand(5).tolist(), uniform.tolist())

    def test_python_finds_what_was_saved_where_it_was_put(self):
        checkpoint = self.save()
        self.assertEqual(list(checkpoint), ["state_dict", "epoch", "lockstep"])
        self.assertEqual(checkpoint["state_dict"]["w"].tolist(), [2.5] * 4)
        self.assertEqual(checkpoint["epoch"], 2)
        entry = checkpoint["lockstep"]
        self.assertEqual((entry["step"], entry["metrics"], entry["world_size"]), (5, {"accuracy": 0.5}, 2))
        self.assertEqual([state["rank"] for state in entry["rank_states"]], [0, 1])
        best = torch.load(self.path("run/model_best.pt"), weights_only=True)
        self.assertEqual(best["lockstep"]["step"], 5)

    def test_python_draws_on_from_a_cpp_state(self):
        state = self.save()["lockstep"]["rank_states"][1]["rng"]["cpu"]
        torch.set_rng_state(state)
        self.assert_draws(*torch.load(self.path("drawn.pt"), weights_only=True))

    def test_cpp_draws_on_from_a_python_state(self):
        torch.manual_seed(3)
        torch.randn(1)
        torch.save({"cpu": torch.get_rng_state()}, self.path("state.pt"))
        self.run_program("draw", self.path("state.pt"), self.path("drawn.pt"))
        self.assert_draws(*torch.load(self.path("drawn.pt"), weights_only=True))

    def test_a_checkpoint_that_python_saved_again_is_the_latest(self):
        checkpoint = self.save()
        self.assertEqual(self.run_program("latest", self.path("run")), "5 0.5 2.5\n")
        checkpoint["state_dict"]["w"] += 1
        checkpoint["lockstep"].update(step=6, metrics={"accuracy": 0.75})
        torch.save(checkpoint, self.path("run/step_00000006.pt"))
        self.assertEqual(self.run_program("latest", self.path("run")), "6 0.75 3.5\n")


if __name__ == "__main__":
    unittest.main()
