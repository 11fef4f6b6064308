"""What the suites share."""

import json
import os
import pathlib
import platform
import re
import subprocess
import sys


def lines_of(command, environment=None):
    """The JSON lines that a program prints; ends this one where it fails."""
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(environment or {})})
    if run.returncode:
        sys.exit(f"compare: {' '.join(map(str, command))} ended with {run.returncode}:\n{run.stdout}{run.stderr}")
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def in_words(seconds):
    return f"{seconds * 1e6:.2f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def machine():
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    name = model.group(1) if model else platform.machine()
    return f"{name}, {os.cpu_count()} processors; Linux {platform.release().split('-')[0]}"
