#!/usr/bin/env python3
"""Measures the smallest program that uses each part of Lockstep, and writes the table into docs/dependencies.md.

  tools/dependencies/smallest_users.py [FOLDER]

It builds users/*.cc with ./bazelw as a workspace of their own in FOLDER, else in ~/.cache/lockstep/smallest_users. The folder is kept,
and makes the next run quick. CC names the compiler, as for ./bazelw.
"""

import argparse
import collections
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
USERS = ROOT / "tools/dependencies/users"
PAGE = "docs/dependencies.md"
RUNS = 3
BEGIN, END = "<!-- smallest users: begin -->", "<!-- smallest users: end -->"

# The source in users, without .cc: (the part, targets beside those of the headers that the source includes).
PROGRAMS = {
    "status": ("status macros", []),
    "logging": ("glog beside LibTorch", []),
    "report": ("errors for the launcher", []),
    "spawn": ("ranks as processes", []),
    "watch": ("finding dead ranks", []),
    "store": ("key-value store", []),
    "sampler": ("sampler", []),
    "checkpoint": ("`.pt` files", []),
    "safetensors": ("safetensors files", []),
    "sharded": ("sharded checkpoints, read whole", []),
    "manager": ("checkpoints by step", []),
    "fashion_mnist": ("data without images", []),
    "images": ("folder of images, and loader", []),
    "models": ("models", []),
    "scripted": ("TorchScript models", []),
    "dp": ("data parallel in one process", []),
    "comm_shm": ("ranks of one host", ["//comm/shm"]),
    "comm_gloo": ("ranks, with Gloo", ["//comm/gloo"]),
    "comm_hierarchical": ("ranks of several hosts", ["//comm/hierarchical"]),
    "tree_sum": ("sum with the same bits on any number of ranks", ["//comm/shm"]),
    "ddp": ("DDP on one host", ["//comm/shm"]),
    "zero": ("ZeRO-1 on one host", ["//comm/shm"]),
    "batch_norm": ("synchronized BatchNorm on one host", ["//comm/shm"]),
    "elastic": ("training that outlives its ranks", ["//comm/shm"]),
}

# Libraries that every C++ program has.
_OF_CXX = re.compile(r"^(libstdc\+\+|libm|libgcc_s|libc|libpthread|ld-linux.*|linux-vdso)\.so")
# Projects that are several libraries, with the names of these.
_PARTS = {"LibTorch": r"^lib(torch|torch_cpu|c10|cudart|cupti|gomp)\b", "Abseil": r"^libabsl_"}

WORKSPACE = """workspace(name = "smallest_users")

local_repository(
    name = "lockstep",
    path = "{root}",
)

load("@lockstep//third_party:repositories.bzl", "lockstep_repositories")

lockstep_repositories()
"""

PROGRAM = """
cc_binary(
    name = "{name}",
    srcs = ["{name}.cc"],
    deps = {deps},
)
"""

Row = collections.namedtuple("Row", "name targets seconds lines bytes libraries")


def source_of(name):
    """Programs that differ only in what is linked share a source: comm_shm and comm_gloo have comm.cc."""
    return USERS / f"{name}.cc" if (USERS / f"{name}.cc").exists() else USERS / f"{name.partition('_')[0]}.cc"


def targets_of(source, extra, headers_page):
    """The labels, in this repository, that a source needs by docs/headers.md, and those of libraries that only are linked."""
    target_of = dict(re.findall(r"^\| `(lockstep/\S+)` \| `@lockstep(\S+)` \|", headers_page, re.M))
    without_header = re.findall(r"^- `@lockstep(\S+?)`", headers_page, re.M)
    targets = []
    for header in re.findall(r'^#include "(lockstep/.+)"', source, re.M):
        if header not in target_of:
            raise ValueError(f"docs/headers.md has no {header}")
        targets.append(target_of[header])
    for target in extra:
        if target not in without_header:
            raise ValueError(f"docs/headers.md has no {target} among the targets without a header")
    return list(dict.fromkeys([*targets, *extra]))


def write_workspace(folder):
    """Another project's files. What did not change is not touched, so that Bazel need not read it."""
    headers_page = (ROOT / "docs/headers.md").read_text()
    build, targets = 'load("@rules_cc//cc:defs.bzl", "cc_binary")\n', {}
    files = {"WORKSPACE": WORKSPACE.format(root=ROOT), ".bazelrc": (ROOT / "examples/consumer/.bazelrc").read_text()}
    for name, (_, extra) in PROGRAMS.items():
        source = source_of(name).read_text()
        targets[name] = targets_of(source, extra, headers_page)
        deps = [f"@lockstep{target}" for target in targets[name]]
        # LibTorch's own headers come with any target that has LibTorch, but a project that names them asks for it.
        deps += ["@lockstep//third_party:torch"] if "#include <torch/" in source else []
        build += PROGRAM.format(name=name, deps=json.dumps(deps))
        files[f"{name}.cc"] = source
    for name, text in {**files, "BUILD": build}.items():
        if not (folder / name).exists() or (folder / name).read_text() != text:
            (folder / name).write_text(text)
    return targets


class Bazel:
    """Bazel on the workspace, with its outputs beside it."""

    def __init__(self, folder):
        self.workspace = folder / "workspace"
        self.workspace.mkdir(parents=True, exist_ok=True)
        self._command = [ROOT / "bazelw", f"--output_base={folder}/output"]

    def run(self, command, *arguments):
        self._run(command, *arguments)

    def read(self, command, *arguments):
        quiet = ["--noshow_progress", "--ui_event_filters=-info,-warning"]
        return self._run(command, *quiet, *arguments, stdout=subprocess.PIPE).stdout

    def _run(self, *arguments, **streams):
        return subprocess.run([*self._command, *arguments], cwd=self.workspace, check=True, text=True, **streams)


def compile_commands(actions):
    """{source: the compiler's arguments without its outputs}, of the JSON that `bazel aquery` prints."""
    found = {}
    for action in json.loads(actions)["actions"]:
        arguments = action["arguments"]
        source = arguments[arguments.index("-c") + 1]
        kept, skip = [], False
        for argument in arguments:
            if not skip and argument not in ("-c", "-o", "-MD", "-MF", source):
                kept.append(argument)
            skip = argument in ("-o", "-MF")
        found[source] = kept
    return found


def processor_seconds(command, folder):
    """User's and system's, of the command and all that it starts."""
    process = subprocess.Popen(command, cwd=folder)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return usage.ru_utime + usage.ru_stime


def lines_of(preprocessed):
    """Lines with something in them; the others say where they are from, or hold only what was a comment."""
    return sum(1 for line in preprocessed.splitlines() if line.strip() and not line.startswith(b"#"))


def libraries_of(dynamic_section):
    """The names that `readelf --dynamic` lists as needed, without those of every C++ program; those of a project in _PARTS are one."""
    found = set()
    for file in re.findall(r"\(NEEDED\).*\[(.*?)\]", dynamic_section):
        name = next((project for project, files in _PARTS.items() if re.match(files, file)), None)
        if not _OF_CXX.match(file):
            found.add(name or re.sub(r"\.so.*", "", file))
    return sorted(found, key=str.lower)


def measure(name, targets, bazel, root, command, work):
    compile_source = [*command, "-c", f"{name}.cc", "-o", work / "user.o"]
    seconds = statistics.median(processor_seconds(compile_source, root) for _ in range(RUNS))
    preprocessed = subprocess.run([*command, "-E", f"{name}.cc"], cwd=root, check=True, stdout=subprocess.PIPE).stdout
    program = bazel.workspace / "bazel-bin" / name
    subprocess.run(["strip", "-o", work / "user", program], check=True)
    dynamic = subprocess.run(["readelf", "--dynamic", program], check=True, stdout=subprocess.PIPE, text=True).stdout
    return Row(name, targets, seconds, lines_of(preprocessed), (work / "user").stat().st_size, libraries_of(dynamic))


def table(rows):
    lines = ["| part | targets | compile, s | lines | program, kB | libraries |", "|---|---|---|---|---|---|"]
    for row in rows:
        source = os.path.relpath(source_of(row.name), ROOT / "docs")
        targets = ", ".join(f"`{target}`" for target in row.targets)
        libraries = ", ".join(row.libraries)
        lines.append(
            f"| [{PROGRAMS[row.name][0]}]({source}) | {targets} | {row.seconds:.1f} | {row.lines:,} "
            f"| {round(row.bytes / 1000):,} | {libraries} |"
        )
    return "\n".join(lines)


def where(compiler):
    """The line above the table."""
    processor = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    version = subprocess.run([compiler, "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return (
        f"Measured on {datetime.date.today()}: {version.splitlines()[0]}, Bazel {(ROOT / '.bazelversion').read_text().strip()},\n"
        f"{os.cpu_count()} processors of type {processor[1] if processor else 'unknown'}."
    )


def with_table(page, text):
    """The page with `text` between the marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=cache / "lockstep/smallest_users")
    folder = parser.parse_args().folder.resolve()
    bazel = Bazel(folder)
    targets = write_workspace(bazel.workspace)
    bazel.run("build", "--noshow_progress", "--show_result=0", "//:all")
    commands = compile_commands(bazel.read("aquery", "--output=jsonproto", 'mnemonic("CppCompile", //:all)'))
    root = bazel.read("info", "execution_root").strip()
    rows = []
    for name in PROGRAMS:
        rows.append(measure(name, targets[name], bazel, root, commands[f"{name}.cc"], folder))
        print(f"{name}: {rows[-1].seconds:.1f} s, {rows[-1].bytes / 1000:.0f} kB", flush=True)
    bazel.run("shutdown")
    compiler = next(iter(commands.values()))[0]
    (ROOT / PAGE).write_text(with_table((ROOT / PAGE).read_text(), f"{where(compiler)}\n\n{table(rows)}"))


if __name__ == "__main__":
    sys.exit(main())
