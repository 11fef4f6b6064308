"""Scripts that were written for torchrun, unchanged under our launcher: launch_peer_test.py LAUNCH DDP_SCRIPT ELASTIC_SCRIPT."""

import os
import subprocess
import sys
import tempfile
import unittest

import torch

LAUNCH, DDP_SCRIPT, ELASTIC_SCRIPT = map(os.path.abspath, sys.argv[1:4])
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
# Our launcher starts Python scripts with this interpreter.
ENVIRONMENT = {**os.environ, "PYTHON_EXEC": sys.executable, "OMP_NUM_THREADS": "1"}
# Otherwise ranks that torchrun starts again find the addresses of the dead ones in its store. They fail if they are read first.
ENVIRONMENT["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
PATIENCE = 240
RANKS = 2


def run(launcher, *arguments):
    """Its exit code and what it wrote to stderr."""
    command = [*launcher, f"--nproc_per_node={RANKS}", *arguments]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stderr


class LaunchPeerTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def expect_same(self, expected, found):
        self.assertEqual(list(found), list(expected))
        for name, value in expected.items():
            self.assertTrue(torch.equal(found[name], value), name)

    def test_a_script_with_ddp_trains_under_our_launcher(self):
        code, error = run([LAUNCH], DDP_SCRIPT, self.folder)
        self.assertEqual(code, 0, error)
        results = [torch.load(f"{self.folder}/{rank}.pt", weights_only=True) for rank in range(RANKS)]
        for rank, result in enumerate(results):
            expected = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
            expected.update({"GROUP_RANK": "0", "TORCHELASTIC_RESTART_COUNT": "0"})
            self.assertEqual(result["variables"], expected)
            self.assertLess(result["losses"][-1], 0.8 * result["losses"][0])
        self.assertNotEqual(results[0]["losses"], results[1]["losses"])  # each rank has its own part of the data
        self.expect_same(results[0]["parameters"], results[1]["parameters"])

    def variables_of_rank_1(self, name, launcher):
        """Those that the launcher adds or changes."""
        file = f"{self.folder}/{name}"
        code, error = run(launcher, "--no_python", "sh", "-c", f'[ $RANK = 0 ] || env -0 > "{file}"')
        self.assertEqual(code, 0, error)
        with open(file) as variables:
            all_variables = dict(variable.split("=", 1) for variable in variables.read().split("\0") if variable)
        return {name: value for name, value in all_variables.items() if ENVIRONMENT.get(name) != value}

    def test_ranks_have_all_variables_of_torchrun(self):
        ours, expected = self.variables_of_rank_1("ours", [LAUNCH]), self.variables_of_rank_1("torchrun", TORCHRUN)
        self.assertGreater(len(expected), 15)
        self.assertEqual(set(expected) - set(ours), set())
        differing = {name for name, value in expected.items() if ours[name] != value}
        # Where rank 0 listens and for which job, who binds its socket there, and the file for an error.
        places = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"}
        self.assertLessEqual(differing, places | {"TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE"})

    def train_elastically(self, name, launcher):
        """The snapshot and the starts of the elastic script, of which rank 1 dies in epoch 2, and what the launcher wrote to stderr."""
        folder = f"{self.folder}/{name}"
        os.mkdir(folder)
        code, error = run(launcher, "--max_restarts=1", ELASTIC_SCRIPT, folder, "2")
        self.assertEqual(code, 0, error)
        with open(f"{folder}/starts.txt") as starts:
            return torch.load(f"{folder}/snapshot.pt", weights_only=True), sorted(starts.read().splitlines()), error

    def test_an_elastic_script_continues_after_a_death_to_the_same_bits_as_under_torchrun(self):
        snapshot, starts, error = self.train_elastically("ours", [LAUNCH])
        self.assertEqual(starts, ["0 0 0", "0 1 2", "1 0 0", "1 1 2"])  # rank, restarts, first epoch
        self.assertRegex(error, r"rank 1 \(local rank 1, pid \d+\) was killed by signal 9 \(SIGKILL\).*restart 1 of 1")
        expected, starts_under_torchrun, _ = self.train_elastically("torchrun", TORCHRUN)
        self.assertEqual(starts_under_torchrun, starts)
        self.assertEqual(snapshot["next_epoch"], expected["next_epoch"])
        self.expect_same(expected["net"], snapshot["net"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
