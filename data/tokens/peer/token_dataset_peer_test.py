"""Compares TokenDataset under a DistributedSampler with a page of Python, on random files, weights, ranks and places to go on."""

import os
import random
import subprocess
import sys
import tempfile
import unittest
import zlib

import numpy
import torch
from torch.utils.data.distributed import DistributedSampler

sys.path.append("sampler/peer")
from feistel_permutation_golden import index_at  # noqa: E402

CASES = int(os.environ.get("TOKEN_CASES", "1000"))
DETECT, UINT16, UINT32, LLM_C = range(4)


class Files:
    """Files of all formats: their paths by format, and the tokens of each."""

    def __init__(self, folder, generator):
        self.paths = {kind: [] for kind in (UINT16, UINT32, LLM_C)}
        self.tokens = {}
        for number in range(60):
            kind = generator.choice(list(self.paths))
            wide = kind == UINT32 or kind == LLM_C and generator.random() < 0.5
            count = generator.choice([0, 1, 2, generator.randrange(300), generator.randrange(9000)])
            tokens = [
                generator.randrange(2**32 if wide else 2**16) if generator.random() < 0.9 else 7
                for _ in range(count)
            ]
            header = numpy.zeros(256, numpy.int32)
            header[:3] = (20240801, 7, count) if wide else (20240520, 1, count)
            path = os.path.join(folder, str(number))
            with open(path, "wb") as file:
                file.write(header.tobytes() if kind == LLM_C else b"")
                file.write(numpy.array(tokens, numpy.uint32 if wide else numpy.uint16).tobytes())
            self.paths[kind].append(path)
            self.tokens[path] = numpy.array(tokens, numpy.int64)


def draw(files, generator):
    block = generator.choice([1, 2, generator.randrange(1, 40), generator.randrange(1, 400), 5000])
    sources = []
    weighted = generator.random() < 0.5
    for _ in range(generator.randrange(1, 4)):
        kind = generator.choice(list(files.paths))
        paths = generator.choices(files.paths[kind], k=generator.randrange(1, 6))
        formats = [kind, DETECT] if kind != UINT32 else [kind]
        sources.append((generator.choice(formats), generator.choice([1, 2, 0.3]) if weighted else 0, paths))
    size = generator.randrange(1, 60) if weighted else 0
    return block, size, generator.randrange(-5, 2**40), generator.choice([-1, 7]), sources


def blocks_of(files, paths, block):
    for path in paths:
        tokens = files.tokens[path]
        for begin in range(0, len(tokens) - block, block):
            yield tokens[begin : begin + block], tokens[begin + 1 : begin + block + 1]


def examples_of(files, block, size, seed, sources):
    if size == 0:
        return [example for _, _, paths in sources for example in blocks_of(files, paths, block)]
    total = sum(weight for _, weight, _ in sources)
    shares = [size * (weight / total) for _, weight, _ in sources]
    counts = [int(share) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: (counts[i] - shares[i], i))
    for i in by_remainder[: size - sum(counts)]:
        counts[i] += 1
    examples = []
    for count, (_, _, paths) in zip(counts, sources):
        blocks = list(blocks_of(files, paths, block))
        examples += [blocks[index_at(len(blocks), seed, k // len(blocks), k % len(blocks))] for k in range(count)]
    return examples


def remaining(size, ranks, seed, epoch, used, ranks_after):
    """The indices of each rank of `ranks_after` after each of `ranks` has used `used`."""
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(size, generator=generator).tolist()
    left = order[used * ranks :]
    each = -(-len(left) // ranks_after)
    while left and len(left) < each * ranks_after:
        left += order[: each * ranks_after - len(left)]
    return [left[rank::ranks_after] for rank in range(ranks_after)]


class TokenDatasetPeerTest(unittest.TestCase):
    def test_a_new_training_has_pythons_order(self):
        for rank in range(3):
            sampler = DistributedSampler(range(20), 3, rank, seed=9)
            sampler.set_epoch(2)
            self.assertEqual(list(sampler), remaining(20, 3, 9, 2, 0, 3)[rank])

    def test_examples_are_those_of_a_page_of_python(self):
        seed = random.Random().randrange(2**32)
        print("cases are drawn with seed", seed)
        generator = random.Random(seed)
        lines, expected = [], []
        with tempfile.TemporaryDirectory() as folder:
            files = Files(folder, generator)
            while len(lines) < CASES:
                block, size, order_seed, end_of_text, sources = draw(files, generator)
                if size and any(not list(blocks_of(files, paths, block)) for _, _, paths in sources):
                    continue  # refused
                examples = examples_of(files, block, size, order_seed, sources)
                if not 0 < len(examples) < 2000:
                    continue
                ranks, ranks_after = generator.randrange(1, 5), generator.randrange(1, 5)
                sampling = (
                    ranks,
                    generator.randrange(1000),
                    generator.randrange(9),
                    generator.randrange(len(examples) // ranks + 1),
                    ranks_after,
                )
                words = [block, size, order_seed, end_of_text, len(sources)]
                for kind, weight, paths in sources:
                    words += [kind, weight, len(paths), *paths]
                lines.append(" ".join(map(str, [*words, *sampling])))
                answer = []
                for indices in remaining(len(examples), *sampling):
                    crc = 0
                    for index in indices:
                        inputs, targets = examples[index]
                        if end_of_text >= 0:
                            targets = numpy.where(inputs == end_of_text, -100, targets)
                        crc = zlib.crc32(targets.tobytes(), zlib.crc32(inputs.tobytes(), crc))
                    answer += [len(indices), crc]
                expected.append(answer)
            run = subprocess.run([PRINT], input="\n".join(lines), capture_output=True, text=True)
            self.assertEqual(run.returncode, 0, run.stderr)
        answers = [[int(word) for word in line.split()] for line in run.stdout.splitlines()]
        self.assertEqual(len(answers), len(lines))
        for line, found, answer in zip(lines, answers, expected):
            self.assertEqual(found, answer, line)
        print(f"{len(lines)} cases, {sum(sum(answer[::2]) for answer in expected)} examples, all equal")


if __name__ == "__main__":
    PRINT = sys.argv.pop(1)
    unittest.main()
