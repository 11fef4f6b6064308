"""clang-tidy on the sources that a change touches."""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import tempfile

_DIAGNOSTIC = re.compile(r"^(?P<where>[^\s:]+:\d+:\d+): (warning|error): (?P<what>.*)$")


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


def _libtorch_include(root):
    """LibTorch's headers where Bazel has put them."""
    bazel = ["./bazelw"]
    if subprocess.run([*bazel, "fetch", "//third_party:torch"], cwd=root, capture_output=True, text=True).returncode:
        raise RuntimeError("clang-tidy: ./bazelw fetch //third_party:torch failed: run it to see why")
    info = subprocess.run([*bazel, "info", "output_base"], cwd=root, capture_output=True, text=True, check=True)
    return pathlib.Path(info.stdout.strip(), "external/lockstep_libtorch/include")


def _command(root, include, headers):
    return [
        "clang-tidy",
        "--quiet",
        f"--header-filter={re.escape(str(headers))}/.*",
        "--extra-arg=-std=c++17",
        f"--extra-arg=-I{headers}",
        f"--extra-arg=-isystem{include}",
        f"--extra-arg=-isystem{include}/torch/csrc/api/include",
        "--extra-arg=-DUSE_DISTRIBUTED",
        "--extra-arg=-DUSE_C10D_GLOO",
    ]


def _readable(line, root, headers):
    found = _DIAGNOSTIC.match(line)
    if not found:
        return None
    where = found["where"].removeprefix(f"{headers}/lockstep/").removeprefix(f"{root}/")
    return f"{where}: {found['what'].replace(',-warnings-as-errors', '')}"


def check(root, sources):
    """The diagnostics of `sources` (relative to `root`), one line each, each once."""
    if not sources:
        return []
    include = _libtorch_include(root)
    with tempfile.TemporaryDirectory() as headers:
        # Headers are included as lockstep/<folder>/<file>.h.
        os.symlink(root, os.path.join(headers, "lockstep"))
        command = _command(root, include, headers)

        def run(source):
            found = subprocess.run([*command, source, "--"], cwd=root, capture_output=True, text=True)
            problems = [problem for line in found.stdout.splitlines() if (problem := _readable(line, root, headers))]
            if found.returncode and not problems:
                problems = [f"{source}: clang-tidy failed: {(found.stderr.strip().splitlines() or ['no output'])[-1]}"]
            return problems

        # A source that includes LibTorch takes about 1 GB of memory.
        with concurrent.futures.ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            return sorted({problem for problems in pool.map(run, sources) for problem in problems})
