#!/usr/bin/env python3
"""What the smallest user of each component costs: seconds to compile it, bytes of the program. Writes the table of docs/dependencies.md.

  tools/dependencies/cost.py

Builds each program with Bazel in a workspace of its own, as a user does, then compiles its source alone three times with each compiler.
"""

import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/dependencies.md"
COMPILERS = ["g++", "clang++"]

# Targets, headers, and the body of main().
PROGRAMS = {
    "sampler": (
        ["@lockstep//sampler"],
        ["sampler/distributed_sampler.h"],
        "return !lockstep::sampler::DistributedSampler::Create(10, {/*num_replicas=*/2, /*rank=*/0}).ok();",
    ),
    "dataset and loader": (
        ["@lockstep//data:fake_data", "@lockstep//data:loader", "@lockstep//sampler"],
        ["data/fake_data.h", "data/loader.h", "sampler/distributed_sampler.h"],
        "auto data = lockstep::data::FakeData::Create(); auto sampler = lockstep::sampler::DistributedSampler::Create(10, {});"
        "return !lockstep::data::Loader::Create(&*data, &*sampler, {}).ok();",
    ),
    "folder of images": (
        ["@lockstep//data:image_folder"],
        ["data/image_folder.h"],
        'return !lockstep::data::ImageFolder::Create("images").ok();',
    ),
    "checkpoint": (
        ["@lockstep//checkpoint"],
        ["checkpoint/checkpoint.h"],
        'return !lockstep::checkpoint::Save(lockstep::checkpoint::Value(int64_t{1}), "one.pt").ok();',
    ),
    "safetensors": (
        ["@lockstep//checkpoint/safetensors"],
        ["checkpoint/safetensors/safetensors.h"],
        'return !lockstep::checkpoint::LoadSafetensors("one.safetensors").ok();',
    ),
    "process group": (
        ["@lockstep//comm", "@lockstep//comm:cpu_backends"],
        ["comm/init_process_group.h"],
        "return !lockstep::comm::InitProcessGroup({}).ok();",
    ),
    "ddp": (
        ["@lockstep//ddp", "@lockstep//comm", "@lockstep//comm:cpu_backends"],
        ["torch/nn/modules/linear.h", "comm/init_process_group.h", "ddp/distributed_data_parallel.h"],
        "auto group = lockstep::comm::InitProcessGroup({});"
        "return !lockstep::ddp::Wrap(torch::nn::Linear(1, 1), group->get()).ok();",
    ),
    "dp": (
        ["@lockstep//dp"],
        ["torch/nn/modules/linear.h", "dp/data_parallel.h"],
        "return !lockstep::dp::Wrap(torch::nn::Linear(1, 1)).ok();",
    ),
    "launch": (
        ["@lockstep//tools/launch:spawn"],
        ["tools/launch/spawn.h"],
        "return !lockstep::launch::Spawn(2, [](int) { return absl::OkStatus(); }).ok();",
    ),
}


def source_of(headers, body):
    lines = [f"#include <{h}>" if h.startswith("torch/") else f'#include "lockstep/{h}"' for h in headers]
    return "\n".join([*lines, "", f"int main() {{ {body} }}", ""])


def workspace(folder):
    consumer = ROOT / "examples/consumer"
    shutil.copy(consumer / ".bazelrc", folder)
    shutil.copy(ROOT / ".bazelversion", folder)
    text = (consumer / "trainer/WORKSPACE").read_text()
    (folder / "WORKSPACE").write_text(text.replace('path = "../../.."', f'path = "{ROOT}"'))
    build = ['load("@rules_cc//cc:defs.bzl", "cc_binary")']
    for name, (targets, headers, body) in PROGRAMS.items():
        file = name.replace(" ", "_")
        (folder / f"{file}.cc").write_text(source_of(headers, body))
        targets = [*targets, "@lockstep//third_party:torch"] if "launch" != name else targets
        build.append(f'cc_binary(name = "{file}", srcs = ["{file}.cc"], deps = {targets})'.replace("'", '"'))
    (folder / "BUILD").write_text("\n".join(build) + "\n")


def bazel(folder, *arguments):
    command = [ROOT / "bazelw", f"--output_base={folder.parent}/output", *arguments]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"cost.py: bazel {arguments[0]} failed with exit code {done.returncode}")
    return done.stdout


def seconds(compiler, folder, file):
    """CPU seconds of the compiler, the least of three."""
    headers = folder.parent / "include"
    headers.mkdir(exist_ok=True)
    if not (headers / "lockstep").exists():
        (headers / "lockstep").symlink_to(ROOT)
    torch = folder.parent / "output/external/lockstep_libtorch/include"
    command = [compiler, "-std=c++17", "-O2", "-c", f"-I{headers}", f"-isystem{torch}"]
    command += [f"-isystem{torch}/torch/csrc/api/include", "-o/dev/null", folder / f"{file}.cc"]
    taken = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(taken)


def row(folder, name):
    file = name.replace(" ", "_")
    bazel(folder, "build", "--noshow_progress", f"//:{file}")
    program = folder.parent / "stripped"
    subprocess.run(["strip", "-o", program, folder / "bazel-bin" / file], check=True)
    query = f'kind(cc_library, deps(//:{file})) intersect filter("^@lockstep//", deps(//:{file})) except @lockstep//third_party/...'
    libraries = len(bazel(folder, "query", "--noshow_progress", query).split())
    times = " | ".join(f"{seconds(compiler, folder, file):.1f} s" for compiler in COMPILERS)
    targets = ", ".join(f"`{target.removeprefix('@lockstep')}`" for target in PROGRAMS[name][0])
    return f"| {targets} | {times} | {program.stat().st_size / 1024:.0f} KiB | {libraries} |"


def main():
    if sys.argv[1:]:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary, "cost")
        folder.mkdir()
        workspace(folder)
        rows = [row(folder, name) for name in PROGRAMS]
        bazel(folder, "shutdown")
        subprocess.run(["chmod", "-R", "u+w", temporary], check=True)  # Bazel's outputs are read-only
    head = f"| targets | {' | '.join(COMPILERS)} | program | libraries |\n|---|{'---|' * len(COMPILERS)}---|---|\n"
    text, count = re.subn(
        r"\| targets \| g\+\+ .*?\n\n", lambda _: head + "\n".join(rows) + "\n\n", PAGE.read_text(), flags=re.DOTALL
    )
    if count != 1:
        sys.exit(f"cost.py: {PAGE} has {count} tables of costs, expected one")
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
