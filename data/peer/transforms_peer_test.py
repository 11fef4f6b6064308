"""ImageTransform and ImageDataset beside torchvision's transforms and ImageFolder on PIL images."""

import os
import random
import subprocess
import sys
import tempfile
import unittest

import torch
from PIL import Image
from torchvision import datasets, transforms

PROGRAM = os.path.abspath(sys.argv.pop(1))
CASES = 600
IMAGES = 40
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FINISH = {
    "float": [transforms.ToTensor()],
    "normalized": [transforms.ToTensor(), transforms.Normalize(MEAN, STD)],
    "byte": [transforms.PILToTensor()],
}
RATIOS = [(3 / 4, 4 / 3)] * 3 + [(0.6, 0.7), (1.5, 1.9), (0.01, 100.0)]
SCALES = [(0.08, 1.0)] * 3 + [(0.001, 0.01), (1.0, 1.0), (0.0, 3.0)]


def any_length(rng):
    return rng.randint(1, rng.choice([3, 40, 400]))


def any_steps(rng):
    """Steps of a trainer, in numbers of any kind."""
    size = any_length(rng)
    flip = ("RandomHorizontalFlip", rng.choice([0.5, 0.1, 0.0, 1.0]))
    crop = ("RandomResizedCrop", size, *rng.choice(SCALES), *rng.choice(RATIOS))
    edge = ("Resize", rng.randint(1, 90))
    exact = ("Resize", any_length(rng), any_length(rng))
    center = ("CenterCrop", size)
    return rng.choice(
        [[crop, flip], [edge, center], [flip, center], [exact, flip, center], [center, flip], [flip, flip], [exact]]
    )


def torchvisions(steps, finish):
    def step(name, *numbers):
        if name == "RandomResizedCrop":
            return transforms.RandomResizedCrop(numbers[0], numbers[1:3], numbers[3:5])
        if name == "Resize":
            return transforms.Resize(numbers if len(numbers) > 1 else numbers[0])
        return getattr(transforms, name)(*numbers)

    return transforms.Compose([step(*words) for words in steps] + FINISH[finish])


def line(*words, steps):
    return " ".join([*map(str, words), *(":".join(map(str, step)) for step in steps)])


def run(mode, folder, lines):
    with open(f"{folder}/cases", "w") as cases:
        cases.write("\n".join(lines) + "\n")
    subprocess.run([PROGRAM, mode, f"{folder}/cases", f"{folder}/found.pt"], check=True)
    return iter(torch.load(f"{folder}/found.pt", weights_only=True))


def any_picture(rng, width, height):
    """Smooth, as photographs are, with some noise."""
    rough = Image.frombytes("RGB", (5, 5), rng.randbytes(75)).resize((width, height), Image.Resampling.BICUBIC)
    return Image.blend(rough, Image.frombytes("RGB", (width, height), rng.randbytes(width * height * 3)), 0.15)


class TransformsPeerTest(unittest.TestCase):
    def test_draws_and_pixels_are_the_same_to_the_bit(self):
        rng = random.Random(1)
        with tempfile.TemporaryDirectory() as folder:
            lines, cases = [], []
            for seed in range(CASES):
                width, height, steps = any_length(rng), any_length(rng), any_steps(rng)
                picture, finish = rng.randbytes(width * height * 3), rng.choice(list(FINISH))
                with open(f"{folder}/{seed}", "wb") as out:
                    out.write(picture)
                layout = rng.choice(["planes", "channels_last"])
                lines.append(line(seed, f"{finish},{layout}", f"{folder}/{seed}", height, width, steps=steps))
                cases.append((seed, Image.frombytes("RGB", (width, height), picture), torchvisions(steps, finish)))
            found = run("images", folder, lines)
        for text, (seed, picture, transform) in zip(lines, cases, strict=True):
            torch.manual_seed(seed)
            for _ in range(2):
                image, expected = next(found), transform(picture)
                self.assertEqual((image.shape, image.dtype), (expected.shape, expected.dtype), text)
                self.assertTrue(torch.equal(image, expected), text)
        self.assertEqual(list(found), [])

    def test_a_folder_of_jpeg_files_is_the_same_to_the_bit(self):
        rng = random.Random(2)
        with tempfile.TemporaryDirectory() as folder:
            root = f"{folder}/root"
            for i in range(IMAGES):
                os.makedirs(f"{root}/{i % 3}", exist_ok=True)
                options = {"quality": rng.choice([60, 90, 100]), "subsampling": i % 3, "progressive": i % 5 == 0}
                any_picture(rng, rng.randint(1, 600), rng.randint(1, 600)).save(f"{root}/{i % 3}/{i:02}.jpg", **options)
            chains = [
                [("RandomResizedCrop", 224, 0.08, 1.0, 3 / 4, 4 / 3), ("RandomHorizontalFlip", 0.5)],
                [("Resize", 256), ("CenterCrop", 224)],
            ]
            lines = [line(100 * i, "normalized,planes", root, steps=steps) for i, steps in enumerate(chains)]
            found = run("dataset", folder, lines)
            for i, steps in enumerate(chains):
                dataset = datasets.ImageFolder(root, torchvisions(steps, "normalized"))
                for index in range(IMAGES):
                    torch.manual_seed(100 * i + index)
                    expected, target = dataset[index]
                    self.assertTrue(torch.equal(next(found), expected), (steps, dataset.samples[index]))
                    self.assertEqual(next(found).item(), target)
        self.assertEqual(list(found), [])


if __name__ == "__main__":
    unittest.main()
