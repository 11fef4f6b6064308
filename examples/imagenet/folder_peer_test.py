"""A run on a folder of JPEGs from its files to Python: two ranks under the launcher, one is killed, the run is resumed, and torchvision
evaluates its checkpoint to the same numbers.

usage: folder_peer_test.py TRAIN LAUNCH WRITE_JPEGS EVALUATE
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TRAIN, LAUNCH, WRITE_JPEGS, EVALUATE = sys.argv[1:]
CLASSES, TRAIN_IMAGES, VAL_IMAGES, SIZE = 10, 120, 23, 28


def command(folder, *flags):
    train = [TRAIN, f"{folder}/images", f"--image-size={SIZE}", "-b32", "--lr=0.02", "--epochs=2", "--seed=1"]
    return [LAUNCH, "--nproc_per_node=2", *train, f"--checkpoint-dir={folder}", *flags]


def newest_checkpoint(folder):
    return max(folder.glob("step_*.pt"), default=None)


def children(pid):
    """The oldest comes first."""
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def ranks(launch):
    """The children of the launcher, which is the child of launch's child (launch/process/keeper.h)."""
    return children(children(children(launch)[0])[0])


def kill_a_rank(launcher, folder):
    """As soon as the folder has a checkpoint; returns the rank's pid."""
    while newest_checkpoint(folder) is None:
        if launcher.poll() is not None:
            raise AssertionError("the run ended before it saved a checkpoint")
        time.sleep(0.01)
    pid = ranks(launcher.pid)[-1]
    os.kill(pid, signal.SIGKILL)
    return pid


def evaluated_by_python(folder):
    run = [sys.executable, EVALUATE, newest_checkpoint(folder), f"{folder}/images", f"--image-size={SIZE}"]
    return json.loads(subprocess.run(run, check=True, stdout=subprocess.PIPE).stdout)


class FolderOfImages(unittest.TestCase):
    def test_a_run_that_was_killed_and_resumed_is_evaluated_by_torchvision_to_the_same_numbers(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            write = [sys.executable, WRITE_JPEGS, f"{folder}/images", "--size=32", f"--limit={TRAIN_IMAGES}"]
            subprocess.run([*write, f"--val-limit={VAL_IMAGES}"], check=True)

            flags = ["--checkpoint-every=5", f"--json-file={folder}/json"]
            launcher = subprocess.Popen(command(folder, *flags), stderr=subprocess.PIPE, text=True)
            pid = kill_a_rank(launcher, folder)
            report = launcher.communicate()[1]
            self.assertNotEqual(launcher.returncode, 0)
            self.assertRegex(report, f"rank [01].*{pid}.*SIGKILL")

            subprocess.run(command(folder, *flags, f"--resume={newest_checkpoint(folder)}"), check=True)
            with open(folder / "json") as file:
                *_, ours = (line for line in map(json.loads, file) if line["event"] == "validation")
            theirs = evaluated_by_python(folder)
            self.assertEqual(ours["images"], CLASSES * VAL_IMAGES)
            self.assertEqual(theirs["images"], CLASSES * VAL_IMAGES)
            self.assertAlmostEqual(ours["acc1"], theirs["acc1"])
            self.assertAlmostEqual(ours["acc5"], theirs["acc5"])
            self.assertGreater(ours["acc1"], 2 * 100 / CLASSES)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    unittest.main(argv=sys.argv[:1], verbosity=2)
