#!/usr/bin/env python3
"""Scripts without the Python packages that they need: required_packages_test.py SCRIPT..."""

import os
import subprocess
import sys
import unittest

SCRIPTS = []


class RequiredPackages(unittest.TestCase):
    def test_a_script_says_in_one_line_what_to_install(self):
        for script in SCRIPTS:
            with self.subTest(script=script):
                # -S: without site-packages.
                done = subprocess.run([sys.executable, "-S", script], capture_output=True, text=True, timeout=60)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertRegex(done.stderr, rf"^{os.path.basename(script)}: .* -m pip install [a-z0-9=. ]+\n$")


if __name__ == "__main__":
    SCRIPTS = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
