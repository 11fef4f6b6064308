"""How clang compiles a source of the tree: for clang-tidy, and for editors that use clangd."""

import functools
import json
import pathlib
import subprocess


@functools.cache
def _output_base(root):
    """Bazel's folder for the tree at `root`, with LibTorch fetched into it."""
    if subprocess.run(["./bazelw", "fetch", "//third_party:torch"], cwd=root, capture_output=True).returncode:
        raise RuntimeError("./bazelw fetch //third_party:torch failed: run it to see why")
    info = subprocess.run(["./bazelw", "info", "output_base"], cwd=root, capture_output=True, text=True, check=True)
    return pathlib.Path(info.stdout.strip())


def header_folder(root):
    """The folder on the include path where lockstep/<folder>/<file>.h is a file of the tree, by a link to the tree.

    clangd resolves links of folders, so an editor opens the file in the tree. It does not resolve Bazel's links of files.
    """
    folder = _output_base(root) / "lockstep_headers"
    folder.mkdir(exist_ok=True)
    link = folder / "lockstep"
    if not link.is_symlink():
        link.symlink_to(root)
    return folder


def flags(headers, libtorch):
    """The include path and the macros of a source that uses Lockstep."""
    return [
        f"-I{headers}",
        f"-isystem{libtorch}",
        f"-isystem{libtorch}/torch/csrc/api/include",
        "-DUSE_DISTRIBUTED",
        "-DUSE_C10D_GLOO",
    ]


def entries(root, sources, headers, libtorch):
    """The entries of compile_commands.json for `sources`, whose names are relative to `root`."""
    command = ["clang++", "-std=c++17", *flags(headers, libtorch), "-c"]
    return [
        {"directory": str(root), "file": str(root / source), "arguments": [*command, str(root / source)]}
        for source in sources
    ]


def libtorch(root):
    """LibTorch's include folder."""
    return _output_base(root) / "external/lockstep_libtorch/include"


def write(folder, root, sources):
    """Writes `folder`/compile_commands.json for `sources`, and returns its path."""
    path = pathlib.Path(folder, "compile_commands.json")
    path.write_text(json.dumps(entries(root, sources, header_folder(root), libtorch(root)), indent=1) + "\n")
    return path
