#!/usr/bin/env python3
"""README.md's first program: readme_example_test.py PROGRAM LAUNCH."""

import os
import subprocess
import sys
import unittest

PROGRAM, LAUNCH = "", ""
OF_LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def run(*command):
    environment = {name: value for name, value in os.environ.items() if name not in OF_LAUNCHERS}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


class ReadmeExample(unittest.TestCase):
    def test_two_ranks_train_over_the_fastest_backend_of_one_host(self):
        result = run(LAUNCH, "--nproc_per_node=2", PROGRAM)
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stderr.splitlines()
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertTrue(lines[0].startswith('rank 0 of 2: group "world" over cpu:shm ('), lines[0])
        self.assertIn("also linked: gloo", lines[0])

    def test_without_a_launcher_it_says_how_to_start_it(self):
        result = run(PROGRAM)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.assertIn("launch --nproc_per_node=2 readme_example", result.stderr)


if __name__ == "__main__":
    PROGRAM, LAUNCH = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
