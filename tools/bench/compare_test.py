#!/usr/bin/env python3
"""compare as a program that a user starts, from any folder and without bazel run."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).absolute().parent


class CompareTest(unittest.TestCase):
    def run_compare(self, *arguments):
        """As bazel-bin has it: the script, and beside it the folder of its runfiles."""
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(HERE / "compare.sh", f"{folder}/compare")
            os.makedirs(f"{folder}/compare.runfiles/lockstep/tools")
            os.symlink(HERE, f"{folder}/compare.runfiles/lockstep/tools/bench")
            return subprocess.run(
                [f"{folder}/compare", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd="/"
            )

    def test_help_lists_the_suites_and_a_suites_flags(self):
        for flag in ("--help", "-h"):
            run = self.run_compare(flag)
            self.assertEqual((run.returncode, run.stderr), (0, ""))
            self.assertTrue(run.stdout.startswith("usage: compare [-h]"), run.stdout)
        self.assertIn("--rounds", self.run_compare("ddp", "-h").stdout)

    def test_a_misspelled_flag_is_answered_with_the_nearest_one(self):
        run = self.run_compare("ddp", "--rouns=3")
        self.assertEqual(run.returncode, 2)
        self.assertEqual(run.stderr, "compare: unknown flag --rouns; did you mean --rounds? --help lists the flags\n")

        self.assertEqual(
            self.run_compare("ddp", "--bogus").stderr, "compare: unknown flag --bogus; --help lists the flags\n"
        )

    def test_a_file_that_cannot_be_written_is_an_error_before_anything_is_measured(self):
        for flag in ("--json", "--markdown"):
            run = self.run_compare("sampler", f"{flag}=/no/such/file")
            self.assertEqual(run.returncode, 1)
            self.assertEqual(run.stderr, "compare: [Errno 2] No such file or directory: '/no/such/file'\n")

    def test_while_it_measures_it_says_what_and_how_long(self):
        measure = """
import measuring
measuring.HEARTBEAT = 0.2
for round_ in measuring.PROGRESS.rounds("ddp", 2):
    print(measuring.lines_of(["/bin/sh", "-c", "sleep 0.5; echo {}"]))
"""
        run = subprocess.run(
            ["python3", "-c", measure], stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=HERE
        )
        self.assertEqual((run.returncode, run.stdout), (0, "[{}]\n[{}]\n"), run.stderr)
        lines = run.stderr.splitlines()
        self.assertEqual(
            lines[0],
            "compare: ddp, round 1 of 2: sh -c sleep 0.5; echo {}, 0 s; time left: known after the first round",
        )
        self.assertRegex(lines[-1], r"^compare: ddp, round 2 of 2: .*, [01] s; about 0:00:0[01] left$")
        self.assertGreaterEqual(len(lines), 4)

    def test_programs_in_turn_never_run_at_the_same_time(self):
        measure = """
import json, measuring, sys, tempfile
step = '''
import itertools, json, sys, time
seen = []
for i, _ in enumerate(itertools.chain([""], sys.stdin)):
    begin = time.monotonic()
    time.sleep(0.01)
    seen.append((begin, time.monotonic()))
    print("text", json.dumps({}), flush=True)
    print(json.dumps({"seconds": i, "seen": seen}), flush=True)
'''
program = [sys.executable, "-c", step]
lines = measuring.lines_in_turn({"one": program, "two": program}, turns=5)
one, two = lines["one"], lines["two"]
print(one["seconds"], len(two["seen"]), any(a[0] < b[1] and b[0] < a[1] for a in one["seen"] for b in two["seen"]))
measuring.lines_in_turn({"one": program, "bad": ["/bin/sh", "-c", "echo text; echo why >&2; exit 3"]}, turns=2)
"""
        run = subprocess.run(
            ["python3", "-c", measure], stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=HERE
        )
        self.assertEqual((run.returncode, run.stdout), (1, "3 6 False\n"), run.stderr)
        self.assertTrue(run.stderr.endswith("exit 3 ended with 3:\nwhy\n\n"), run.stderr[-300:])

    def test_without_a_suite_it_says_what_is_missing(self):
        run = self.run_compare()
        self.assertEqual(run.returncode, 2)
        self.assertIn("the following arguments are required: suite", run.stderr)


if __name__ == "__main__":
    unittest.main()
