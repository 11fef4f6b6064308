"""What the suites share."""

import json
import multiprocessing
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

# What --tuned_allocator is for a program that has no flag for it: the same mallopt settings.
TUNED = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "THP_MEM_ALLOC_ENABLE": "1",
}


def lines_of(command, environment=None):
    """The JSON lines that a program prints; ends this one where it fails."""
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(environment or {})})
    if run.returncode:
        sys.exit(f"compare: {' '.join(map(str, command))} ended with {run.returncode}:\n{run.stdout}{run.stderr}")
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def run_ranks(function, ranks, *arguments):
    """function(rank, ranks, store, *arguments) in a process for each rank; `store` is a file where they can meet. Ends this one if one fails."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    # Forked, so that torch is imported once.
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        processes = [fork.Process(target=function, args=(rank, ranks, store, *arguments)) for rank in range(ranks)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    if any(process.exitcode for process in processes):
        sys.exit(1)


def install(*packages):
    """Debian's packages, with apt-get; ends this program where that fails."""
    as_root = [] if os.geteuid() == 0 else ["sudo"]
    print(f"compare: installing {' '.join(packages)} (apt-get)", file=sys.stderr)
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        run = subprocess.run(
            [*as_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", *arguments], capture_output=True, text=True
        )
        if run.returncode:
            sys.exit(f"compare: apt-get {' '.join(arguments)} failed:\n{run.stdout}{run.stderr}")


def in_words(seconds):
    return f"{seconds * 1e6:.2f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def machine():
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    name = model.group(1) if model else platform.machine()
    return f"{name}, {os.cpu_count()} processors; Linux {platform.release().split('-')[0]}"
