#!/usr/bin/env python3
"""The command line of every program: programs_test.py PROGRAM...

--help prints the program's own usage and flags, and a misspelled flag is answered with the nearest one.
"""

import concurrent.futures
import os
import re
import subprocess
import sys
import unittest

# Flags of gflags and glog.
OF_LIBRARIES = ("alsologtostderr", "flagfile", "helpxml", "minloglevel", "tab_completion_word", "undefok")
MOST_LINES = 130

PROGRAMS = []


def run(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)


class Programs(unittest.TestCase):
    def check_help(self, program, result):
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertTrue(result.stdout.startswith(f"usage: {os.path.basename(program)} "), result.stdout[:200])
        self.assertLess(result.stdout.count("\n"), MOST_LINES)
        for flag in OF_LIBRARIES:
            self.assertNotIn(f"-{flag}", result.stdout)

    def check_program(self, program):
        help_text = run(program, "--help")
        self.check_help(program, help_text)
        flag = max(re.findall(r"^  (?:-[^ ]*, )*--([a-z_]+)", help_text.stdout, re.MULTILINE), key=len)
        misspelled = run(program, f"--{flag}x=1")
        self.assertEqual((misspelled.returncode, misspelled.stdout), (2, ""))
        expected = f"unknown flag --{flag}x; did you mean --{flag}? --help lists the flags\n"
        self.assertEqual(misspelled.stderr, f"{os.path.basename(program)}: {expected}")

    def test_h_is_help(self):
        # One program stands for all: base/command_line parses both.
        self.assertEqual(run(PROGRAMS[0], "-h").stdout, run(PROGRAMS[0], "--help").stdout)

    def test_help_shows_the_programs_own_flags_and_an_unknown_one_is_answered_with_the_nearest(self):
        # Programs with LibTorch take a third of a second to load.
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            checks = {program: pool.submit(self.check_program, program) for program in PROGRAMS}
        for program, check in checks.items():
            with self.subTest(program=program):
                check.result()


if __name__ == "__main__":
    PROGRAMS = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
