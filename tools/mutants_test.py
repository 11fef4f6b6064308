#!/usr/bin/env python3
"""Makes the mistakes of each simulator's mutants.py, without building anything: each must find its line of the source once."""

import importlib.util
import pathlib
import shutil
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCRIPTS = "elastic/simulator/mutants.py", "tools/launch/simulator/mutants.py"

sys.dont_write_bytecode = True
sys.path.append(str(ROOT / "tools"))
import mutation_testing


def mutants_of(script):
    spec = importlib.util.spec_from_file_location("mutants", ROOT / script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.MUTANTS


class MutantsTest(unittest.TestCase):
    def test_each_mistake_can_be_made(self):
        for script in SCRIPTS:
            mutants = mutants_of(script)
            with self.subTest(script), tempfile.TemporaryDirectory() as folder:
                for source in {mutant.source for mutant in mutants}:
                    copy = pathlib.Path(folder) / source
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(ROOT / source, copy)
                mutation_testing.mutate(pathlib.Path(folder), mutants)
                for mutant in mutants:
                    self.assertIn(f'Mutant("{mutant.name}")', (pathlib.Path(folder) / mutant.source).read_text())

    def test_names_occur_once(self):
        for script in SCRIPTS:
            names = [mutant.name for mutant in mutants_of(script)]
            self.assertEqual(len(names), len(set(names)), script)


if __name__ == "__main__":
    unittest.main()
