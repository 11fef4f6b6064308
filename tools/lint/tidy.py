"""clang-tidy on the sources that a change touches."""

import concurrent.futures
import os
import re
import subprocess
import tempfile
import time

import compile_commands

_DIAGNOSTIC = re.compile(r"^(?P<where>[^\s:]+:\d+:\d+): (warning|error): (?P<what>.*)$")
# Headers that LibTorch for CPUs lacks. They compile with --config=cuda only.
_CUDA = re.compile(r"^#include <(ATen/cuda/|c10/cuda/|cuda|nccl|\S*ProcessGroupNCCL)", re.MULTILINE)


def needs_cuda(text):
    """Returns whether a source of this text compiles only with --config=cuda, so that it cannot be checked here."""
    return _CUDA.search(text) is not None


def sources_of(changed, files):
    """The .cc files of `files` to check for the `changed` ones: themselves, and for a header the source or else the test beside it."""
    sources = set()
    for path in changed:
        stem = path.removesuffix(".h") if path.endswith(".h") else path.removesuffix(".cc")
        candidates = (
            [path] if path.endswith(".cc") else [f"{stem}.cc", f"{stem}_test.cc"] if path.endswith(".h") else []
        )
        sources.update([candidate for candidate in candidates if candidate in files][:1])
    return sorted(sources)


def _readable(line, root, headers):
    found = _DIAGNOSTIC.match(line)
    if not found:
        return None
    where = found["where"].removeprefix(f"{headers}/lockstep/").removeprefix(f"{root}/")
    return f"{where}: {found['what'].replace(',-warnings-as-errors', '')}"


def in_order(sources):
    """`sources`, tests last: what `check` takes first."""
    return sorted(sources, key=lambda source: (source.endswith("_test.cc"), source))


def check(root, sources, seconds):
    """The diagnostics of `sources` (relative to `root`), one line each, each once; and how many sources were checked.

    No source is begun once so many `seconds` have passed.
    """
    sources = [source for source in in_order(sources) if not needs_cuda((root / source).read_text())]
    if not sources:
        return [], 0
    end = time.monotonic() + seconds
    headers = compile_commands.header_folder(root)
    with tempfile.TemporaryDirectory() as database:
        compile_commands.write(database, root, sources)
        command = ["clang-tidy", "--quiet", f"--header-filter={re.escape(str(headers))}/.*", "-p", database]

        def run(source):
            if time.monotonic() >= end:
                return None
            found = subprocess.run([*command, source], cwd=root, capture_output=True, text=True)
            problems = [problem for line in found.stdout.splitlines() if (problem := _readable(line, root, headers))]
            if found.returncode and not problems:
                problems = [f"{source}: clang-tidy failed: {(found.stderr.strip().splitlines() or ['no output'])[-1]}"]
            return problems

        # A source that includes LibTorch takes about 1 GB of memory.
        with concurrent.futures.ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            found = [problems for problems in pool.map(run, sources) if problems is not None]
        return sorted({problem for problems in found for problem in problems}), len(found)
