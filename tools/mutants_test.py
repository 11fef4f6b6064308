#!/usr/bin/env python3
"""Makes the mistakes of each simulator's mutants.txt, without building anything: each must find its line once."""

import pathlib
import shutil
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]

sys.dont_write_bytecode = True
sys.path.append(str(ROOT / "tools"))
import mutants


class MutantsTest(unittest.TestCase):
    def test_each_mistake_can_be_made(self):
        for level in mutants.LEVELS:
            mistakes = mutants.mutants_of(level)
            with self.subTest(level), tempfile.TemporaryDirectory() as copy:
                for folder in {mutant.folder for mutant in mistakes}:
                    shutil.copytree(ROOT / folder, pathlib.Path(copy) / folder)
                mutants.mutate(pathlib.Path(copy), mistakes)
                text = "".join(path.read_text() for path in pathlib.Path(copy).rglob("*.cc"))
                for mutant in mistakes:
                    self.assertIn(f'Mutant("{mutant.name}")', text)

    def test_names_occur_once(self):
        for level in mutants.LEVELS:
            names = [mutant.name for mutant in mutants.mutants_of(level)]
            self.assertEqual(len(names), len(set(names)), level)


if __name__ == "__main__":
    unittest.main()
