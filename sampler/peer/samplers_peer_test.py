"""Compares RandomSampler and WeightedSampler with the installed PyTorch's, case by case and index by index."""

import pathlib
import random
import subprocess
import sys
import unittest

import random_sampler_golden
import weighted_sampler_golden

CASES = 1000


def draw(make_case, choices):
    generator = random.Random()
    seed = generator.randrange(2**32)
    print("cases are drawn with seed", seed)
    generator.seed(seed)
    return [make_case(generator, *generator.choice(choices)) for _ in range(CASES)]


def random_answer(case):
    indices, after = random_sampler_golden.indices_of(*case)
    return [*indices, after]


def weighted_answer(case):
    return weighted_sampler_golden.indices_of(*case)


class SamplersPeerTest(unittest.TestCase):
    def compare(self, kind, cases, answer_to):
        lines = "".join(" ".join(map(str, (kind, *case))) + "\n" for case in cases)
        run = subprocess.run([PRINT], input=lines, capture_output=True, text=True, check=True)
        answers = run.stdout.splitlines()
        self.assertEqual(len(answers), CASES)
        total = 0
        for case, answer in zip(cases, answers):
            expected = answer_to(case)
            found = [int(word) for word in answer.split()]
            self.assertTrue(found == expected, f"{kind} {case}: Python gives {expected[:20]}, we {found[:20]}")
            total += len(expected)
        print(f"{CASES} {kind} cases, {total} numbers, all equal")

    def test_random_sampler_gives_what_python_gives(self):
        cases = draw(random_sampler_golden.random_case, [(1,), (20,), (200,), (2000,)])
        self.compare("random", cases, random_answer)

    def test_weighted_sampler_gives_what_python_gives(self):
        cases = draw(weighted_sampler_golden.random_case, [(3, 4), (40, 60), (2000, 9)])
        self.compare("weighted", cases, weighted_answer)

    def test_the_golden_files_are_this_pytorchs(self):
        for path, golden in ((RANDOM, random_sampler_golden), (WEIGHTED, weighted_sampler_golden)):
            self.assertEqual(pathlib.Path(path).read_text().splitlines(), list(golden.lines()))


if __name__ == "__main__":
    PRINT, RANDOM, WEIGHTED = sys.argv[1:]
    unittest.main(argv=sys.argv[:1], verbosity=2)
