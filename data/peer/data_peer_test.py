"""ImageFolder and FakeData beside torchvision's."""

import itertools
import os
import random
import subprocess
import sys
import tempfile
import unittest

import torch
from torchvision import datasets, transforms

PROGRAM = os.path.abspath(sys.argv.pop(1))
TREES = 200
NAMES = [
    *("a", "B", "b", "10", "9", "_", "a b", "a-b", "a.b", ".a", "...", "-", "~", "$x", "a\nb", "'\"", "\\", "%s", "*"),
    *("é", "e\u0301", "Ж", "日本", "😀", "İ", "ﬀ", "\u212a", "\ud7ff", "\ue000", "\uffff"),
    *("\udc80", "\udcff", "é\udcc3"),
]
EXTENSIONS = [*datasets.folder.IMG_EXTENSIONS, *".JPG .Jpeg .PnG .TIF .gif .txt .jpg.txt .jpg~ jpg".split(), ""]
LINKED = ["folder", "/dev/null", "nowhere", "itself"]


class RandomTree:
    """Classes of nested folders with files of odd names, links of every kind, and files where none are expected."""

    def __init__(self, root, seed):
        self.leads_back = False  # whether a link leads to a folder that it lies in
        self._random = random.Random(seed)
        self._folders = [root]
        os.mkdir(root)
        for _ in range(self._random.randrange(6)):
            self._fill(self._new_folder(root), self._random.randrange(4))
        self._files(root)
        for target in self._random.sample(LINKED, self._random.choice([0, 0, 1, 4])):
            self._link(self._random.choice(self._folders), target)

    def _free_path(self, folder, ending=""):
        while True:
            path = os.path.join(folder, "".join(self._random.choices(NAMES, k=self._random.randint(1, 2))) + ending)
            if not os.path.lexists(path) and os.path.basename(path) not in (".", ".."):
                return path

    def _new_folder(self, inside):
        path = self._free_path(inside, self._random.choice(["", "", "", ".jpg"]))
        os.mkdir(path)
        self._folders.append(path)
        return path

    def _files(self, folder):
        for _ in range(self._random.randrange(5)):
            open(self._free_path(folder, self._random.choice(EXTENSIONS)), "w").close()

    def _fill(self, folder, depth):
        self._files(folder)
        for _ in range(self._random.randrange(3) if depth else 0):
            self._fill(self._new_folder(folder), depth - 1)

    def _link(self, folder, target):
        """One to a folder is enough: so it leads back only if it leads to a folder that it lies in."""
        path = self._free_path(folder, self._random.choice(["", ".png", ".txt"]))
        if target == "folder":
            above = self._random.choice(self._folders)
            self.leads_back = f"{folder}/".startswith(f"{above}/")
            target = os.path.relpath(above, folder)
        os.symlink(os.path.basename(path) if target == "itself" else target, path)


def torchvisions(root, allow_empty, leads_back):
    """What PROGRAM should print, or a part of the message; torchvision follows a link that leads back 40 times."""
    try:
        folder = datasets.ImageFolder(root, allow_empty=allow_empty)
    except OSError as error:
        message = str(error)
        if message.startswith("Couldn't find any class folder"):
            return ["error", "found no folder"]
        if not message.startswith("Found no valid file for the classes"):
            return ["error", error.strerror]
        if not leads_back:
            return ["error", "found none for"]
    if leads_back:
        return ["error", "a link leads back to"]
    samples = [text for path, target in folder.samples for text in (path, str(target))]
    return ["ok", str(len(folder.classes)), *folder.classes, str(len(folder.samples)), *samples]


def next_tree(fields):
    """Takes what PROGRAM printed of one tree."""
    take = lambda count: list(itertools.islice(fields, count))
    tree = take(2)
    if tree[0] == "error":
        return tree
    tree += take(int(tree[1]) + 1)
    return tree + take(2 * int(tree[-1]))


class DataPeerTest(unittest.TestCase):
    def test_image_folder_finds_the_same_in_random_trees(self):
        outcomes = {}
        with tempfile.TemporaryDirectory() as folder:
            roots = [os.path.join(folder, str(seed)) for seed in range(TREES)]
            leads_back = {root: RandomTree(root, seed).leads_back for seed, root in enumerate(roots)}
            trees = [(root, allow_empty) for root in roots for allow_empty in (False, True)]
            arguments = [("allow_empty:" if allow_empty else "") + root for root, allow_empty in trees]
            run = subprocess.run([PROGRAM, "image_folder", *arguments], check=True, capture_output=True)
            fields = (os.fsdecode(field) for field in run.stdout.split(b"\0"))
            for root, allow_empty in trees:
                found, expected = next_tree(fields), torchvisions(root, allow_empty, leads_back[root])
                if expected[0] == "ok":
                    self.assertEqual(found, expected)
                else:
                    self.assertEqual(found[0], "error")
                    self.assertIn(expected[1], found[1])
                outcome = expected[0 if expected[0] == "ok" else 1]
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
        self.assertEqual(list(fields), [""])
        print(f"{TREES} trees, with and without empty classes: {outcomes}", flush=True)
        self.assertGreater(outcomes["ok"], TREES / 2)
        self.assertGreater(outcomes["found none for"], TREES / 10)

    def test_fake_data_is_the_same_to_the_bit(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([PROGRAM, "fake_data", f"{folder}/fake.pt"], check=True)
            found = torch.load(f"{folder}/fake.pt", weights_only=True)
        for image_size, values in (((3, 20, 17), found[:60]), ((1, 8, 8), found[60:])):
            fake = datasets.FakeData(30, image_size, 1000, transforms.ToTensor(), random_offset=12345)
            for i in range(30):
                image, target = fake[i]
                self.assertTrue(torch.equal(values[2 * i], image), i)
                self.assertTrue(torch.equal(values[2 * i + 1], torch.tensor(target)), i)


if __name__ == "__main__":
    unittest.main(warnings="ignore")  # torchvision leaves a folder open where a link cannot be followed
