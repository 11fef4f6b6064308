"""Compares Lockstep's sampler with the installed PyTorch's, case by case and index by index."""

import pathlib
import random
import subprocess
import sys
import unittest

import distributed_sampler_golden as golden
from torch.utils.data import BatchSampler

CASES = 3000


def random_cases():
    generator = random.Random()
    seed = generator.randrange(2**32)
    print("cases are drawn with seed", seed)
    generator.seed(seed)
    for _ in range(CASES):
        max_size, max_replicas = generator.choice([(20, 50), (200, 9), (2000, 17), (20000, 64)])
        yield golden.random_case(generator, max_size, max_replicas)


def answers_to(lines):
    text = "".join(" ".join(map(str, line)) + "\n" for line in lines)
    run = subprocess.run([PRINT], input=text, capture_output=True, text=True, check=True)
    return run.stdout.splitlines()


class DistributedSamplerPeerTest(unittest.TestCase):
    def test_gives_what_python_gives(self):
        cases = list(random_cases())
        answers = answers_to((*case, 0, 0) for case in cases)
        self.assertEqual(len(answers), CASES)
        total = 0
        for case, answer in zip(cases, answers):
            indices, num_samples, total_size = golden.indices_of(*case)
            expected = " ".join(map(str, [num_samples, total_size, *indices]))
            self.assertTrue(
                answer == expected, f"{golden.FIELDS} = {case}: Python gives {expected[:99]}, we {answer[:99]}"
            )
            total += len(indices)
        print(f"{CASES} cases, {total} indices, all equal")

    def test_gives_pythons_batches(self):
        generator = random.Random(5)
        cases = [golden.random_case(generator, 200, 9) for _ in range(500)]
        cases += [(0, 3, 1, 0, 1, shuffle, drop_last) for shuffle in (0, 1) for drop_last in (0, 1)]
        batches = [(generator.randint(1, 30), generator.randrange(2)) for _ in cases]
        answers = answers_to((*case, *batch) for case, batch in zip(cases, batches))
        for case, (batch_size, drop_last), answer in zip(cases, batches, answers, strict=True):
            sampler = BatchSampler(golden.indices_of(*case)[0], batch_size, bool(drop_last))
            expected = [len(sampler), *(word for batch in sampler for word in ("|", *batch))]
            self.assertEqual(answer, " ".join(map(str, expected)), (case, batch_size, drop_last))

    def test_the_golden_file_is_this_pytorchs(self):
        self.assertEqual(pathlib.Path(GOLDEN).read_text().splitlines(), list(golden.lines()))


if __name__ == "__main__":
    PRINT, GOLDEN = sys.argv[1:]
    unittest.main(argv=sys.argv[:1], verbosity=2)
