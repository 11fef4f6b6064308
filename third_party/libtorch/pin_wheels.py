#!/usr/bin/env python3
"""Writes wheels.json: the wheels of torch, all that they require, and their SHA-256 as pip's package index says them.

  pin_wheels.py             the versions that are in wheels.json, and the newest one of the index
  pin_wheels.py VERSION...  these versions

It pins the wheels for the machine on which it runs, and leaves other machines' as they are: pip resolves what a wheel requires for its
own machine. It needs a pip that resolves without downloading, such as version 26, and takes half a minute for each version.
"""

import json
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

import fetch_torch

TABLE = pathlib.Path(fetch_torch.__file__).resolve().parent / "wheels.json"
# With numpy the same wheels can be imported, as peer tests do.
BESIDES = ["numpy"]


def run_pip(*arguments):
    run = subprocess.run([sys.executable, "-m", "pip", *arguments], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"pin_wheels.py: pip {' '.join(arguments)} failed: {run.stderr.strip()[-300:]}")
    return run.stdout


def newest():
    return re.match(r"torch \((.*)\)", run_pip("index", "versions", "torch")).group(1)


def wheels(version):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        run_pip(
            "install", "--dry-run", "--ignore-installed", "--quiet", f"--report={report}", f"--target={folder}/tree",
            *fetch_torch.for_wheels(platform.machine()), f"torch=={version}", *BESIDES,
        )  # fmt: skip
        found = {}
        for package in json.loads(report.read_text())["install"]:
            name = package["metadata"]["name"].lower().replace("_", "-")
            sha256 = package["download_info"]["archive_info"]["hashes"]["sha256"]
            found[f"{name}=={package['metadata']['version']}"] = sha256
    return dict(sorted(found.items()))


def main():
    versions = sys.argv[1:] or {*fetch_torch.WHEELS, newest()}
    by_number = sorted(versions, key=lambda version: [int(number) for number in version.split(".")])
    table = {
        version: {**fetch_torch.WHEELS.get(version, {}), platform.machine(): wheels(version)} for version in by_number
    }
    TABLE.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
