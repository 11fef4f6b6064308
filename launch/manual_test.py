#!/usr/bin/env python3
"""The manual page and the completion of `launch`: manual_test.py LAUNCH launch.1 launch.bash. Needs groff and bash."""

import re
import subprocess
import sys
import unittest

LAUNCH, PAGE, COMPLETION = sys.argv[1:4]


def run(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)


def complete(*words):
    """The answers for the last of the words, and whether bash adds no space behind one."""
    script = 'compopt() { echo "$*"; }; source "$1"; shift; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _launch; '
    result = run("bash", "-c", script + 'printf "%s\\n" "${COMPREPLY[@]}"', "bash", COMPLETION, *words)
    assert result.stderr == "", result.stderr
    return [line for line in result.stdout.splitlines() if line]


class Manual(unittest.TestCase):
    def setUp(self):
        help_text = run(LAUNCH, "--help").stdout
        self.flags = re.findall(r"^  (?:-\w, )?(--\w+)(=?)", help_text, re.M)
        self.variables = re.findall(r"^  ([A-Z]\w+)=", help_text, re.M)
        self.assertGreater(len(self.flags), 30)
        self.assertEqual(self.variables, ["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "PYTHON_EXEC"])
        rendered = run("groff", "-man", "-Tascii", "-rLL=300n", "-P-cbou", "-ww", PAGE)
        self.assertEqual((rendered.returncode, rendered.stderr), (0, ""))
        self.page = rendered.stdout

    def section(self, name):
        return re.search(rf"^{name}\n(.*?)(?=^\S|\Z)", self.page, re.M | re.S)[1]

    def test_the_page_has_each_flag_and_variable_of_help_in_its_section(self):
        options, environment = self.section("OPTIONS"), self.section("ENVIRONMENT")
        for flag, value in self.flags:
            self.assertRegex(options, rf"(?m)^ +(?:-\w, )?{flag}{value}")
        for variable in [*self.variables, "PET_FLAG"]:
            self.assertRegex(environment, rf"(?m)^ +{variable}")
            self.assertNotRegex(options, rf"(?m)^ +{variable}")

    def test_the_page_has_the_sections_that_a_reader_looks_for(self):
        self.assertIn("launch [FLAG]... PROGRAM [ARGUMENT]...\n", self.section("SYNOPSIS"))
        self.assertIn("launch - start the ranks of a job", self.section("NAME"))
        self.assertIn("128 + the signal that killed the rank", self.section("EXIT STATUS"))
        self.assertIn("LOCKSTEP_JOB_SECRET_FILE", self.section("ENVIRONMENT"))
        self.assertIn("launch --nproc_per_node=2 ./train", self.section("EXAMPLES"))
        self.assertIn("srun(1)", self.section("SEE ALSO"))
        self.assertIn(run(LAUNCH, "--version").stdout.split()[-1], self.page.strip().splitlines()[-1])
        for command in ("status", "top", "drain", "resize"):
            self.assertRegex(self.section("COMMANDS"), rf"(?m)^   launch {command} ")

    def test_bash_completes_each_flag_in_both_spellings(self):
        for flag, value in self.flags:
            for whole in (flag, "--" + flag[2:].replace("_", "-")):
                self.assertIn(whole + value, complete("launch", whole[:-1]))

    def test_a_flag_with_a_value_waits_for_it(self):
        self.assertEqual(complete("launch", "--nproc"), ["-o nospace", "--nproc_per_node="])
        self.assertEqual(complete("launch", "--nproc-"), ["-o nospace", "--nproc-per-node="])
        self.assertEqual(complete("launch", "--stand"), ["--standalone"])

    def test_flags_end_where_the_program_begins(self):
        for before in (["--tee", "=", "3"], ["--tee", "3"], ["-t", "3"], ["-t3"], ["--module"], ["--log-dir", "x"]):
            self.assertEqual(complete("launch", *before, "--vers"), ["--version"])
            self.assertEqual(complete("launch", *before, "./train", "--vers"), [])
        self.assertEqual(complete("launch", "--", "--vers"), [])
        self.assertEqual(complete("launch", "--tee", "--vers"), [])

    def test_commands_are_completed_as_the_first_argument_only(self):
        self.assertEqual(complete("launch", "resi"), ["resize"])
        self.assertEqual(complete("launch", "--standalone", "resi"), [])
        self.assertEqual(complete("launch", "status", "--"), ["--json", "--help"])
        self.assertEqual(complete("launch", "drain", "--"), ["--help"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
