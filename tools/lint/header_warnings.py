#!/usr/bin/env python3
"""Compiles the public headers with the warnings that a user's project may have as errors.

  tools/lint/header_warnings.py           all in one source: as C++17 with clang++, and in the reverse order as C++20 with g++
  tools/lint/header_warnings.py --alone   then each header alone, which takes minutes

A header that needs an include before it is found if it comes before that include in one of the two orders; alone, always. Exit code 1
if a compiler says anything.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time

import compile_commands
import pages

ROOT = pathlib.Path(__file__).resolve().parents[2]
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wsign-conversion", "-Wshadow"]
_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.M)


def public_headers(root):
    """The headers that users may include, other than those for tests, as lockstep/<folder>/<file>.h."""
    files = subprocess.run(["git", "ls-files", "*BUILD"], cwd=root, capture_output=True, text=True, check=True).stdout
    names = [name for name in files.split() if not name.startswith(("third_party/", "examples/"))]
    return pages.public_headers({name: (root / name).read_text() for name in names})


def included(header, read):
    """The headers of other libraries that a header includes, itself or through Lockstep's; read(name) is the text of one of these."""
    found, seen, waiting = set(), set(), [header]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            for other in _INCLUDE.findall(read(name)):
                (waiting.append if other.startswith("lockstep/") else found.add)(other)
    return found


def said_by(compiler, standard, headers, flags):
    """Returns the compiler's warnings about a source that includes the headers, under a line with its name, or nothing."""
    command = [compiler, f"-std={standard}", "-x", "c++", *flags, *WARNINGS, "-fsyntax-only", "-"]
    text = "".join(f"#include <{header}>\n" for header in headers)
    run = subprocess.run(command, input=text, capture_output=True, text=True)
    said = (run.stderr + run.stdout).strip() or (f"ended with code {run.returncode}" if run.returncode else "")
    name = headers[0] if len(headers) == 1 else f"{len(headers)} headers"
    return f"{compiler} -std={standard}, {name}:\n{said}" if said else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alone", action="store_true", help="also compile each header alone")
    arguments = parser.parse_args()
    started = time.monotonic()
    folder = compile_commands.header_folder(ROOT)
    flags = compile_commands.flags(folder, compile_commands.libtorch(ROOT))
    # Those first that include the least.
    read = lambda name: (folder / name).read_text()
    headers = sorted(public_headers(ROOT), key=lambda header: len(included(header, read)))
    runs = [("clang++", "c++17", headers), ("g++", "c++20", headers[::-1])]
    if arguments.alone:
        runs += [("clang++", "c++17", [header]) for header in headers]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        problems = [problem for problem in pool.map(lambda run: said_by(*run, flags), runs) if problem]
    print("\n".join(problems), end="\n" if problems else "")
    print(f"header_warnings: {len(headers)} headers, {len(problems)} problems, {time.monotonic() - started:.0f} s")
    return 1 if problems or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
