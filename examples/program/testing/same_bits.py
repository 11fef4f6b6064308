#!/usr/bin/env python3
"""Trains an epoch of Fashion-MNIST with --virtual_ranks=8 on several numbers of ranks, and compares the last checkpoints.

  ./bazelw run //examples/fashion_mnist:same_bits

It prints the digest of each run's parameters and optimizer as `inspect digest` computes it, and the seconds of training.
The run on "8, 3, 5" ranks is interrupted twice in mid-epoch and resumes on another number of ranks. Exit code 1: two digests
differ.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time

VIRTUAL_RANKS = 8
RANKS = (1, 2, 3, 4, 5, 8)
TRAIN, INSPECT, DATA = sys.argv[1:4]
STEPS = 59  # 60,000 images in batches of 1,024
EVERY = 20


def checkpoint(folder, step):
    return os.path.join(folder, f"step_{step:08}.pt")


def train(folder, ranks, backend):
    """Trains to the end of the epoch, from the newest checkpoint in the folder."""
    flags = [f"--virtual_ranks={VIRTUAL_RANKS}", f"--nproc_per_node={ranks}", f"--backend={backend}", "--epochs=1"]
    flags += [f"--data_dir={DATA}", f"--checkpoint_dir={folder}", f"--checkpoint_every={EVERY}"]
    run = subprocess.run([TRAIN] + flags, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if run.returncode:
        sys.exit(f"{' '.join(flags)}\n{run.stdout}")


def digest(folder):
    run = subprocess.run([INSPECT, "digest", checkpoint(folder, STEPS)], stdout=subprocess.PIPE, text=True, check=True)
    return run.stdout.splitlines()[-1].split()[0]


def resumed(root, before):
    """Takes up the run in `before` after 20 steps on 3 ranks, and that one after 40 on 5."""
    for ranks, step in (3, EVERY), (5, 2 * EVERY):
        folder = os.path.join(root, f"resumed on {ranks}")
        os.mkdir(folder)
        shutil.copy(checkpoint(before, step), folder)
        train(folder, ranks, "gloo")
        before = folder
    return before


def main():
    print(f"{'ranks':7} {'backend':8} {'digest':64} {'seconds':>7}", flush=True)
    digests = set()

    def row(ranks, backend, run):
        start = time.monotonic()
        folder = run()
        seconds = time.monotonic() - start
        digests.add(digest(folder))
        print(f"{ranks:7} {backend:8} {digest(folder)} {seconds:7.1f}", flush=True)
        return folder

    def whole(ranks, backend):
        def run():
            folder = os.path.join(root, f"{ranks} {backend}")
            train(folder, ranks, backend)
            return folder

        return row(str(ranks), backend, run)

    with tempfile.TemporaryDirectory() as root:
        for backend in "shm", "gloo":
            for ranks in RANKS:
                last = whole(ranks, backend)
        row("8, 3, 5", "gloo", lambda: resumed(root, last))
    print("the digests are equal" if len(digests) == 1 else f"{len(digests)} digests differ")
    return 0 if len(digests) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
