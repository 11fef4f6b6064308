#!/usr/bin/env python3
"""Trains with --virtual_ranks=8 on several numbers of ranks, over shm and over Gloo, and compares the last checkpoints.

  ./bazelw run //examples/fashion_mnist:same_bits
  ./bazelw run //examples/imagenet:same_bits -- FOLDER [FLAG...]      the folder of train/ and val/, and flags of the trainer

It prints the digest of each run's last checkpoint as `inspect digest` computes it, and the seconds of the run.
The run on "8, 3, 5" ranks is interrupted twice and resumes on another number of ranks. Exit code 1: two digests differ.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time

RANKS = (1, 2, 3, 4, 5, 8)


def checkpoints(folder):
    """Their paths, by step."""
    return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.startswith("step_"))


def callers(argument):
    """A path as the caller of `bazelw run` has it, or any other argument."""
    path = os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", "."), argument)
    return path if not argument.startswith("-") and os.path.exists(path) else argument


class Trainer:
    """Runs a trainer; RANKS, BACKEND and FOLDER in its flags stand for the run's."""

    def __init__(self, program, inspect, flags):
        self._program, self._inspect, self._flags = program, inspect, flags

    def train(self, folder, ranks, backend):
        """Trains to the end, from the newest checkpoint in the folder."""
        command = [self._program]
        for flag in self._flags:
            command.append(flag.replace("RANKS", str(ranks)).replace("BACKEND", backend).replace("FOLDER", folder))
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if run.returncode:
            sys.exit(f"{' '.join(command)}\n{run.stdout}")

    def resume(self, root, before):
        """Takes up the run in `before` after a third of its checkpoints on 3 ranks, and that one after two thirds on 5."""
        saved = [os.path.basename(path) for path in checkpoints(before)]
        if len(saved) < 3:
            sys.exit(f"expected at least 3 checkpoints of a run, found {len(saved)}: train longer")
        for ranks, third in (3, 1), (5, 2):
            folder = os.path.join(root, f"resumed on {ranks}")
            os.mkdir(folder)
            shutil.copy(os.path.join(before, saved[third * len(saved) // 3 - 1]), folder)
            self.train(folder, ranks, "gloo")
            before = folder
        return before

    def digest(self, folder):
        last = checkpoints(folder)[-1]
        run = subprocess.run([self._inspect, "digest", last], stdout=subprocess.PIPE, text=True, check=True)
        return run.stdout.splitlines()[-1].split()[0]


def main():
    if len(sys.argv) < 4 or {"-h", "--help"} & set(sys.argv):
        print(__doc__.strip())
        return 0
    trainer = Trainer(sys.argv[1], sys.argv[2], [callers(flag) for flag in sys.argv[3:]])
    print(f"{'ranks':7} {'backend':8} {'digest':64} {'seconds':>7}", flush=True)
    digests = set()

    def row(ranks, backend, run):
        start = time.monotonic()
        folder = run()
        seconds = time.monotonic() - start
        digests.add(trainer.digest(folder))
        print(f"{ranks:7} {backend:8} {trainer.digest(folder)} {seconds:7.1f}", flush=True)
        return folder

    def whole(ranks, backend, before):
        def run():
            if before:
                shutil.rmtree(before)
            folder = os.path.join(root, f"{ranks} {backend}")
            os.mkdir(folder)
            trainer.train(folder, ranks, backend)
            return folder

        return row(str(ranks), backend, run)

    with tempfile.TemporaryDirectory() as root:
        last = None
        for backend in "shm", "gloo":
            for ranks in RANKS:
                last = whole(ranks, backend, last)
        row("8, 3, 5", "gloo", lambda: trainer.resume(root, last))
    print("the digests are equal" if len(digests) == 1 else f"{len(digests)} digests differ")
    return 0 if len(digests) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
