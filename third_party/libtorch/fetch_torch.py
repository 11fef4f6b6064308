"""Finds LibTorch, or fetches it with pip, and lays it out for a Bazel repository; run by libtorch.bzl and Lockstep's peer.bzl.

  fetch_torch.py cpu    what a CPU program needs: headers, libtorch_cpu, libc10, and the two NVIDIA runtime libraries they load
  fetch_torch.py cuda   everything else that libtorch_cuda links
  fetch_torch.py peer   an importable Python torch, and the packages that the peer tests compare with besides

Links `include`, `lib` (one link per library) or, for the peer, `site-packages` and `peers` into the working directory. Wheels come by name through
pip, which checks them against the SHA-256 in wheels.json, and are unpacked once per machine under the cache folder, whatever the
number of Bazel output bases. Errors are one line on standard error.
"""

import fcntl
import glob
import importlib.util
import json
import mmap
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

DEFAULT_VERSION = "2.11.0"
OLDEST = (2, 7)

# {version of torch: {machine: {requirement: SHA-256}}} of torch and all that it requires; pin_wheels.py writes it. A wheel for one
# Python serves every Python here that does not import it: its headers and C++ libraries are used.
WHEELS = json.loads((pathlib.Path(__file__).resolve().parent / "wheels.json").read_text())
WHEELS_TAG = "cp311"
CPU_WHEELS = re.compile(r"(torch|nvidia-cuda-(runtime|cupti)(-cu\d+)?)==")
CPU_MEMBERS = re.compile(
    r"torch/(include/|version\.py|lib/(libtorch_cpu|libc10)\.so|lib/libgomp)"
    r"|nvidia/(cu13|cuda_runtime|cuda_cupti)/(include/|lib/lib(cudart|cupti)\.so)"
)
CPU_LIBRARIES = ["libtorch_cpu.so", "libc10.so", "libgomp*.so*", "libcudart*.so*", "libcupti*.so*"]
# The wheel also has half of protobuf, fmt, pybind11 and others: they would come before a user's own.
INCLUDED = ["ATen", "c10", "caffe2", "torch"]
# The packages that the peer tests compare with besides torch and numpy.
TORCHVISION = {"2.7.0": "0.22.0", "2.11.0": "0.26.0", "2.15.0": "0.29.2"}  # by version of torch
PEERS = ["pillow==13.0.0", "safetensors==0.8.0", "sentencepiece==0.2.3"]
# Not libtorch.so, which is empty except for a part of an old std::filesystem: remove_all() crashes if a program links it. Not the libraries that
# LibTorch loads when it needs them: libtorch_cuda_linalg.so initializes CUDA at once, and libcaffe2_nvrtc.so needs a driver.
CUDA_LIBRARIES = [
    "libtorch_cuda.so",
    "libtorch_nvshmem.so",
    "libc10_cuda.so",
    "libcublas.so.*",
    "libcublasLt.so.*",
    "libcudnn*.so.*",
    "libcufft.so.*",
    "libcufile.so.*",
    "libcurand.so.*",
    "libcusolver.so.*",
    "libcusparse.so.*",
    "libcusparseLt.so.*",
    "libnccl.so.*",
    "libnvJitLink.so.*",
    "libnvshmem_host.so.*",
]


def die(message):
    sys.exit(f"LibTorch: {message}")


def cache():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.environ.get("HOME", "/root"), ".cache")
    path = pathlib.Path(base, "lockstep")
    path.mkdir(parents=True, exist_ok=True)
    return path


def pip(*arguments, what=None):
    for command in ([sys.executable, "-m", "pip"], ["pip3"], ["pip"]):
        if command[0] != sys.executable and not shutil.which(command[0]):
            continue
        if subprocess.run([*command, "--version"], capture_output=True).returncode == 0:
            break
    else:
        die("there is no pip to fetch it with: install python3-pip, or set LOCKSTEP_LIBTORCH to an unpacked LibTorch")
    run = subprocess.run(
        [*command, *arguments, "--quiet", "--disable-pip-version-check"], capture_output=True, text=True
    )
    if run.returncode:
        said = [line.strip() for line in (run.stderr or run.stdout).splitlines() if line.strip()]
        die(f"pip {arguments[0]} {what or arguments[-1]} failed: {'; '.join(said[-3:]) or 'it said nothing'}")


def made_once(name, make):
    """The cache folder `name`; where it is missing, make(temporary folder) fills it. Safe when several builds start at once."""
    done = cache() / name
    with open(cache() / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.is_dir():
            with tempfile.TemporaryDirectory(dir=cache(), prefix=f"{name}.") as unfinished:
                make(pathlib.Path(unfinished, "tree"))
                os.rename(pathlib.Path(unfinished, "tree"), done)
    return done


def for_wheels(machine):
    """Arguments by which pip takes wheels for this machine and WHEELS_TAG's Python, whatever the Python that runs it."""
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(28, 4, -1)] + [f"manylinux2014_{machine}"]
    return [
        "--only-binary=:all:", "--python-version=3.11", "--implementation=cp", f"--abi={WHEELS_TAG}", "--abi=abi3", "--abi=none",
        *(f"--platform={name}" for name in platforms),
    ]  # fmt: skip


def pip_pinned(command, what, wheels, *arguments):
    """Runs pip for these wheels alone, which it refuses if their SHA-256 is another one. `what`: for its error."""
    with tempfile.NamedTemporaryFile("w", prefix="requirements.", dir=cache()) as file:
        file.writelines(f"{requirement} --hash=sha256:{sha256}\n" for requirement, sha256 in wheels.items())
        file.flush()
        flags = [*for_wheels(platform.machine()), "--no-deps", "--require-hashes", f"--requirement={file.name}"]
        pip(command, *arguments, *flags, what=what)


def unpack_cpu_wheels(wheels_of_release, tree):
    with tempfile.TemporaryDirectory(dir=cache(), prefix="wheels.") as wheels:
        for requirement, sha256 in wheels_of_release.items():
            pip_pinned("download", requirement, {requirement: sha256}, f"--dest={wheels}")
            (path,) = pathlib.Path(wheels).iterdir()
            with zipfile.ZipFile(path) as archive:
                archive.extractall(tree, [m for m in archive.namelist() if CPU_MEMBERS.match(m)])
            path.unlink()


def wheels_of(version):
    wheels = WHEELS.get(version, {}).get(platform.machine())
    if not wheels:
        pinned = [name for name, machines in WHEELS.items() if platform.machine() in machines]
        die(
            f"no wheels of torch {version} are pinned, only {', '.join(pinned)}: set LOCKSTEP_LIBTORCH_VERSION to one of these, "
            "or LOCKSTEP_LIBTORCH to an unpacked LibTorch"
        )
    return wheels


def fetch_cpu(version):
    wheels = {name: sha256 for name, sha256 in wheels_of(version).items() if CPU_WHEELS.match(name)}
    return made_once(f"libtorch-cpu-{version}", lambda tree: unpack_cpu_wheels(wheels, tree))


def fetch_python_torch(version, tag=WHEELS_TAG):
    """Torch and all that it requires; importable by the Python of this tag."""
    wheels = wheels_of(version)

    def make(tree):
        if tag == WHEELS_TAG:
            pip_pinned("install", f"torch=={version}", wheels, f"--target={tree}")
        else:
            pip("install", f"--target={tree}", f"torch=={version}", "numpy")

    return made_once(f"python-torch-{version}-{tag}", make)


def this_tag():
    return f"cp{sys.version_info.major}{sys.version_info.minor}"


def fetch_peers(version):
    wheels_of(version)
    peers = [f"torchvision=={TORCHVISION[version]}", *PEERS]
    name = "-".join(peer.replace("==", "-") for peer in peers)
    return made_once(f"{name}-{this_tag()}", lambda tree: pip("install", f"--target={tree}", "--no-deps", *peers))


def torch_version(torch):
    """Such as "2.11.0+cpu"; from LibTorch's own files, else from its headers, which have no "+cpu"."""
    for name, pattern in (("version.py", r"__version__ = '([^']+)'"), ("build-version", r"(\S+)")):
        if (torch / name).is_file():
            return re.search(pattern, (torch / name).read_text()).group(1)
    for header in ("headeronly", "csrc/api/include/torch"):
        path = torch / "include/torch" / header / "version.h"
        numbers = re.findall(
            r"define TORCH_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", path.read_text() if path.is_file() else ""
        )
        if len(numbers) == 3:
            return ".".join(numbers)
    return "unknown"


def installed(wanted):
    """The folder above the active Python's torch if it is of the wanted version, else None. "installed" wants any."""
    spec = importlib.util.find_spec("torch")
    if not spec or not spec.submodule_search_locations:
        if wanted == "installed":
            die(f"{sys.executable} has no torch: install it, or set LOCKSTEP_PYTHON to a Python that has it")
        return None
    torch = pathlib.Path(spec.submodule_search_locations[0])
    version = torch_version(torch)
    if wanted == "installed":
        check_version(torch, version)
    elif version.split("+")[0] != wanted:
        print(
            f"LibTorch: leaving the installed torch {version} in {torch} alone: Lockstep needs {wanted}; "
            "LOCKSTEP_LIBTORCH_VERSION chooses another",
            file=sys.stderr,
        )
        return None
    return torch.parent


def check_version(torch, version):
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and tuple(map(int, numbers.groups())) < OLDEST:
        die(f"{torch} is version {version}: Lockstep needs {'.'.join(map(str, OLDEST))} or newer")


def named_by_user():
    """LOCKSTEP_LIBTORCH: an unpacked LibTorch, the `torch` folder of a Python installation, or /usr for Debian's libtorch-dev."""
    value = os.environ.get("LOCKSTEP_LIBTORCH")
    if not value:
        return None
    torch = pathlib.Path(value).resolve()
    if not (torch / "include/torch/csrc/api/include/torch/torch.h").is_file():
        die(
            f"LOCKSTEP_LIBTORCH={value} has no include/torch/csrc/api/include/torch/torch.h: name an unpacked LibTorch or a torch folder"
        )
    check_version(torch, torch_version(torch))
    return torch


def library_folders(torch):
    return [
        torch / "lib",
        *torch.glob("lib/*-linux-gnu"),
        *map(pathlib.Path, glob.glob(str(torch.parent / "nvidia/*/lib"))),
    ]


def check_abi(library):
    """LibTorch built for the C++ library of before 2015 compiles, and then does not link."""
    if b"NSt7__cxx1112basic_string" not in library.read_bytes():
        die(
            f"{library} is built with the old C++ ABI (_GLIBCXX_USE_CXX11_ABI=0): get the LibTorch that is called cxx11 ABI"
        )


def names(library, text):
    with open(library, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(text) >= 0


def link_gloo(torch):
    """Debian's libtorch_cpu has Gloo as a library of its own; the wheels' contains it, and a second copy must not be linked."""
    if names("lib/libtorch_cpu.so", b"\0libgloo.so"):
        found = next((f for folder in library_folders(torch) if (f := folder / "libgloo.so").exists()), None)
        if not found:
            die(
                f"{torch}/lib has no libgloo.so, which libtorch_cpu.so needs: install it (Debian: apt-get install libgloo-dev)"
            )
        os.symlink(found, "lib/libgloo.so")


def link(torch, patterns, required):
    """`required`: what is missed, by pattern."""
    os.mkdir("include")
    for name in INCLUDED:
        if (torch / "include" / name).is_dir():
            os.symlink(torch / "include" / name, pathlib.Path("include", name))
    os.mkdir("lib")
    folders = library_folders(torch)
    for pattern in patterns:
        found = next((f for folder in folders for f in sorted(folder.glob(pattern))), None)
        if found and "*" in pattern:
            for f in sorted(found.parent.glob(pattern)):
                os.symlink(f, pathlib.Path("lib", f.name))
        elif found:
            os.symlink(found, pathlib.Path("lib", found.name))
        elif pattern in required:
            die(f"{torch}/lib has no {pattern}: {required[pattern]}")
    if os.path.exists("lib/libc10.so"):
        check_abi(pathlib.Path("lib/libc10.so").resolve())
    cuda = next(
        (f for f in glob.glob(str(torch.parent / "nvidia/*/include")) if os.path.exists(f + "/cuda_runtime_api.h")),
        None,
    )
    cuda = cuda or (os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include"))
    if os.path.exists(cuda + "/cuda_runtime_api.h"):
        os.symlink(cuda, "cuda_include")
    nccl = torch.parent / "nvidia/nccl/include"
    if nccl.is_dir():
        os.symlink(nccl, "nccl_include")


def main():
    kind = sys.argv[1]
    version = os.environ.get("LOCKSTEP_LIBTORCH_VERSION") or "".join(sys.argv[2:]) or DEFAULT_VERSION
    if kind == "cpu":
        torch = named_by_user() or (installed(version) or fetch_cpu(version)) / "torch"
        missed = "name the folder that holds include and lib"
        link(torch, CPU_LIBRARIES, {"libtorch_cpu.so": missed, "libc10.so": missed})
        link_gloo(torch)
    elif kind == "cuda":
        torch = named_by_user() or (installed(version) or fetch_python_torch(version)) / "torch"
        missed = "it is LibTorch for CPUs only; name one with CUDA, or build without --config=cuda (--@lockstep//tools/flags:cuda)"
        link(torch, CUDA_LIBRARIES, {"libtorch_cuda.so": missed, "libc10_cuda.so": missed})
    elif kind == "peer":
        torch = installed(version)
        if version == "installed":
            version = torch_version(torch / "torch").split("+")[0]
        os.symlink(torch or fetch_python_torch(version, this_tag()), "site-packages")
        os.symlink(fetch_peers(version), "peers")
    else:
        die(f"unknown kind {kind!r}")


if __name__ == "__main__":
    main()
