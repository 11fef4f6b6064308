#!/usr/bin/env python3
"""Runs every recipe: recipes_test.py PROGRAM..."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

PROGRAMS = {}

NUMBER = r"[0-9.e-]+"

# What each recipe prints.
EXPECTED = {
    "custom_dataset": "2 ranks saw each of 1000 examples once; the rare class is 10 % of them, and NUMBER % if weighted",
    "data_parallel": r"2 replicas \(cpu, cpu\) trained on 40 batches of 600 images; loss NUMBER to NUMBER; "
    "test accuracy NUMBER; the module alone ends within NUMBER",
    "overlapped_optimizer": "3 ranks ended with the bits of a step after backward\n"
    r"overlapped_optimizer: rank 1 \(.*\) is the slowest of 3: .* \(10 steps\)",
    "power_sgd": "2 ranks exchanged NUMBER times fewer numbers; loss NUMBER instead of NUMBER",
    "resume_epoch": "2 ranks resumed after step 3 of 8 and ended with the bits of the uninterrupted run",
    "sharded_checkpoint": "4 ranks saved 250 of 1000 rows each, and a model with loss NUMBER\n"
    "sharded_checkpoint: 3 ranks loaded 333 of 1000 rows or one more, and the model with loss NUMBER; "
    "trained on to NUMBER",
    "sync_batch_norm": "4 ranks with 2 samples each end within NUMBER of one process with all 8; "
    "with BatchNorm, within NUMBER",
    "uneven_inputs": "3 ranks trained on 4 to 10 batches; one process on all of them ends within NUMBER",
    "zero_amp": "BFloat16: 2 ranks ended with plain Adam's bits; rank 0 keeps NUMBER of NUMBER numbers; "
    "NUMBER of 20 steps clipped\n"
    "zero_amp: Half: 2 ranks ended with plain Adam's bits; rank 0 keeps NUMBER of NUMBER numbers; "
    "NUMBER of 20 steps clipped",
}

# Flags of a recipe.
FLAGS = {"data_parallel": ["--data_dir=external/lockstep_fashion_mnist"]}


def run(name, *flags):
    environment = {**os.environ, "TORCH_DISTRIBUTED_DEBUG": "OFF"}  # no line about the backend
    return subprocess.run(
        [PROGRAMS[name], *FLAGS.get(name, []), *flags], env=environment, capture_output=True, text=True, timeout=60
    )


class Recipes(unittest.TestCase):
    def test_each_recipe_is_tested(self):
        self.assertEqual(set(PROGRAMS), set(EXPECTED))

    def test_a_recipe_checks_its_claim_and_prints_it(self):
        for name in PROGRAMS:
            with self.subTest(recipe=name):
                result = run(name)
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                self.assertRegex(result.stdout, f"^{name}: {EXPECTED[name].replace('NUMBER', NUMBER)}\n$")

    def test_a_wrong_number_makes_a_recipe_fail(self):
        for name in PROGRAMS:
            with self.subTest(recipe=name):
                result = run(name, "--off_by=1e6")
                self.assertEqual(result.returncode, 1, result.stdout)
                self.assertRegex(result.stderr, rf"^{name}: .*the .* is {NUMBER.replace('-', '+-')}, expected .*\n$")

    def test_a_rank_that_is_killed_leaves_no_temporary_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "TMPDIR": folder}
            with subprocess.Popen([PROGRAMS["sharded_checkpoint"]], env=environment, stderr=subprocess.PIPE) as recipe:
                while not any(name.startswith("lockstep_sharded_checkpoint.") for name in os.listdir(folder)):
                    self.assertIsNone(recipe.poll())
                ranks = pathlib.Path(f"/proc/{recipe.pid}/task/{recipe.pid}/children")
                while not ranks.read_text().split():
                    self.assertIsNone(recipe.poll())
                os.kill(int(ranks.read_text().split()[0]), signal.SIGKILL)
                self.assertIn(b"was killed by signal 9", recipe.communicate(timeout=60)[1])
                self.assertEqual(os.listdir(folder), [])

    def test_a_timeout_must_be_a_positive_number_of_seconds(self):
        result = run("power_sgd", "--timeout=0")
        expected = "power_sgd: --timeout=0: expected a positive number of seconds, at most 1000000000\n"
        self.assertEqual((result.returncode, result.stderr), (1, expected))


if __name__ == "__main__":
    PROGRAMS = {os.path.basename(path): path for path in sys.argv[1:]}
    unittest.main(argv=sys.argv[:1])
