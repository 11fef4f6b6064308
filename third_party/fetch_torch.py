"""Finds LibTorch, or fetches it with pip, and lays it out for a Bazel repository; run by libtorch.bzl and peer.bzl.

  fetch_torch.py cpu    what a CPU program needs: headers, libtorch_cpu, libc10, and the two NVIDIA runtime libraries they load
  fetch_torch.py cuda   everything else that libtorch_cuda links
  fetch_torch.py peer   an importable Python torch, and the packages that the peer tests compare with besides

Links `include`, `lib` (one link per library) or, for the peer, `site-packages` and `peers` into the working directory. Wheels come by name through
pip, are checked against the pinned SHA-256, and are unpacked once per machine under the cache folder, whatever the number of Bazel
output bases. Errors are one line on standard error.
"""

import fcntl
import glob
import hashlib
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

VERSION = "2.11.0"

# A wheel for one Python serves every Python here: only its headers and C++ libraries are used.
CPU_WHEELS = {
    f"torch=={VERSION}": "7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a",
    "nvidia-cuda-runtime==13.0.96": "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
    "nvidia-cuda-cupti==13.0.85": "4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8",
}
CPU_MEMBERS = re.compile(
    r"torch/(include/|version\.py|lib/(libtorch_cpu|libc10)\.so|lib/libgomp)|nvidia/cu13/(include/|lib/lib(cudart|cupti)\.so)"
)
CPU_LIBRARIES = ["libtorch_cpu.so", "libc10.so", "libgomp*.so*", "libcudart.so.*", "libcupti.so.*"]
# What goes with this torch, and what that needs besides torch and numpy.
PEERS = ["torchvision==0.26.0", "pillow==13.0.0", "safetensors==0.8.0"]
CUDA_LIBRARIES = [
    "libtorch.so",
    "libtorch_cuda.so",
    "libtorch_cuda_linalg.so",
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


def pip(*arguments):
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
        die(f"pip {arguments[0]} {arguments[-1]} failed: {'; '.join(said[-3:]) or 'it said nothing'}")


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


def unpack_cpu_wheels(tree):
    with tempfile.TemporaryDirectory(dir=cache(), prefix="wheels.") as wheels:
        for requirement, sha256 in CPU_WHEELS.items():
            before = set(os.listdir(wheels))
            pip(
                "download", "--no-deps", "--only-binary=:all:", "--python-version=3.11", "--implementation=cp", "--abi=cp311",
                "--abi=none", "--platform=manylinux_2_28_x86_64", "--platform=manylinux_2_25_x86_64",
                "--platform=manylinux_2_17_x86_64", "--platform=manylinux2014_x86_64", f"--dest={wheels}", requirement,
            )  # fmt: skip
            (name,) = set(os.listdir(wheels)) - before
            path = pathlib.Path(wheels, name)
            digest = hashlib.sha256()
            with open(path, "rb") as wheel:
                while block := wheel.read(1 << 20):
                    digest.update(block)
            if digest.hexdigest() != sha256:
                die(f"{name} has SHA-256 {digest.hexdigest()}, expected {sha256}")
            with zipfile.ZipFile(path) as archive:
                archive.extractall(tree, [m for m in archive.namelist() if CPU_MEMBERS.match(m)])
            path.unlink()


def fetch_cpu():
    return made_once(f"libtorch-cpu-{VERSION}", unpack_cpu_wheels)


def fetch_python_torch():
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return made_once(
        f"python-torch-{VERSION}-{tag}", lambda tree: pip("install", f"--target={tree}", f"torch=={VERSION}", "numpy")
    )


def fetch_peers():
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    name = "-".join(peer.replace("==", "-") for peer in PEERS)
    return made_once(f"{name}-{tag}", lambda tree: pip("install", f"--target={tree}", "--no-deps", *PEERS))


def torch_version(torch):
    for name, pattern in (("version.py", r"__version__ = '([^']+)'"), ("build-version", r"(\S+)")):
        if (torch / name).is_file():
            return re.search(pattern, (torch / name).read_text()).group(1)
    return "unknown"


def installed():
    """The folder above the active Python's torch if it is the pinned version, else None."""
    spec = importlib.util.find_spec("torch")
    if not spec or not spec.submodule_search_locations:
        return None
    torch = pathlib.Path(spec.submodule_search_locations[0])
    version = torch_version(torch)
    if version.split("+")[0] != VERSION:
        print(
            f"LibTorch: leaving the installed torch {version} in {torch} alone: Lockstep needs {VERSION}",
            file=sys.stderr,
        )
        return None
    return torch.parent


def named_by_user():
    """LOCKSTEP_LIBTORCH: an unpacked LibTorch, or the `torch` folder of a Python installation."""
    value = os.environ.get("LOCKSTEP_LIBTORCH")
    if not value:
        return None
    torch = pathlib.Path(value).resolve()
    if not (torch / "include/torch/csrc/api/include/torch/torch.h").is_file():
        die(
            f"LOCKSTEP_LIBTORCH={value} has no include/torch/csrc/api/include/torch/torch.h: name an unpacked LibTorch or a torch folder"
        )
    version = torch_version(torch)
    if version.split("+")[0] != VERSION:
        print(f"LibTorch: LOCKSTEP_LIBTORCH={value} is {version}; Lockstep is tested with {VERSION}", file=sys.stderr)
    return torch


def link(torch, patterns, required):
    os.symlink(torch / "include", "include")
    os.mkdir("lib")
    folders = [torch / "lib", *map(pathlib.Path, glob.glob(str(torch.parent / "nvidia/*/lib")))]
    for pattern in patterns:
        found = next((f for folder in folders for f in sorted(folder.glob(pattern))), None)
        if found and "*" in pattern:
            for f in sorted(found.parent.glob(pattern)):
                os.symlink(f, pathlib.Path("lib", f.name))
        elif found:
            os.symlink(found, pathlib.Path("lib", found.name))
        elif pattern in required:
            die(f"{torch}/lib has no {pattern}")
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
    if kind == "cpu":
        torch = named_by_user() or (installed() or fetch_cpu()) / "torch"
        link(torch, CPU_LIBRARIES, ["libtorch_cpu.so", "libc10.so"])
    elif kind == "cuda":
        torch = named_by_user() or (installed() or fetch_python_torch()) / "torch"
        link(torch, CUDA_LIBRARIES, ["libtorch_cuda.so", "libc10_cuda.so"])
    elif kind == "peer":
        os.symlink(installed() or fetch_python_torch(), "site-packages")
        os.symlink(fetch_peers(), "peers")
    else:
        die(f"unknown kind {kind!r}")


if __name__ == "__main__":
    main()
