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
import mmap
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

DEFAULT_VERSION = "2.11.0"
OLDEST = (2, 7)

# By version of torch: the SHA-256 of the wheels that a CPU program needs, and what goes with this torch in peer tests. A wheel for one
# Python serves every Python here: only its headers and C++ libraries are used.
RELEASES = {
    "2.7.0": {
        "wheels": {
            "torch==2.7.0": "fd5cfbb4c3bbadd57ad1b27d56a28008f8d8753733411a140fcfb84d7f933a25",
            "nvidia-cuda-runtime-cu12==12.6.77": "ba3b56a4f896141e25e19ab287cd71e52a6a0f4b29d0d31609f60e3b4d5219b7",
            "nvidia-cuda-cupti-cu12==12.6.80": "6768bad6cab4f19e8292125e5f1ac8aa7d1718704012a0e3272a6f61c4bce132",
        },
        "torchvision": "0.22.0",
    },
    "2.11.0": {
        "wheels": {
            "torch==2.11.0": "7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a",
            "nvidia-cuda-runtime==13.0.96": "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
            "nvidia-cuda-cupti==13.0.85": "4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8",
        },
        "torchvision": "0.26.0",
    },
    "2.15.0": {
        "wheels": {
            "torch==2.15.0": "48c2d861134c0b5697c7602cb5ffa68f62a2989fdcd1717e593356f67996ca1e",
            "nvidia-cuda-runtime==13.2.86": "3498247680dfddce31bad102af7e3e26fc795342a3cac64722bb0fa95e7f60f0",
            "nvidia-cuda-cupti==13.2.86": "8fa29f15dd8336181f961764d9d95236fc6b931dd0c8fcf8cd70aab0c310b586",
        },
        "torchvision": "0.29.2",
    },
}
CPU_MEMBERS = re.compile(
    r"torch/(include/|version\.py|lib/(libtorch_cpu|libc10)\.so|lib/libgomp)"
    r"|nvidia/(cu13|cuda_runtime|cuda_cupti)/(include/|lib/lib(cudart|cupti)\.so)"
)
CPU_LIBRARIES = ["libtorch_cpu.so", "libc10.so", "libgomp*.so*", "libcudart*.so*", "libcupti*.so*"]
# The wheel also has half of protobuf, fmt, pybind11 and others: they would come before a user's own.
INCLUDED = ["ATen", "c10", "caffe2", "torch"]
# The packages that the peer tests compare with besides torch, numpy and torchvision.
PEERS = ["pillow==13.0.0", "safetensors==0.8.0"]
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


def unpack_cpu_wheels(wheels_of_release, tree):
    with tempfile.TemporaryDirectory(dir=cache(), prefix="wheels.") as wheels:
        for requirement, sha256 in wheels_of_release.items():
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


def release(version):
    if version not in RELEASES:
        die(
            f"no wheels of torch {version} are pinned, only {', '.join(RELEASES)}: set LOCKSTEP_LIBTORCH_VERSION to one of these, "
            "or LOCKSTEP_LIBTORCH to an unpacked LibTorch"
        )
    return RELEASES[version]


def fetch_cpu(version):
    wheels = release(version)["wheels"]
    return made_once(f"libtorch-cpu-{version}", lambda tree: unpack_cpu_wheels(wheels, tree))


def fetch_python_torch(version):
    release(version)
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return made_once(
        f"python-torch-{version}-{tag}", lambda tree: pip("install", f"--target={tree}", f"torch=={version}", "numpy")
    )


def fetch_peers(version):
    peers = [f"torchvision=={release(version)['torchvision']}", *PEERS]
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    name = "-".join(peer.replace("==", "-") for peer in peers)
    return made_once(f"{name}-{tag}", lambda tree: pip("install", f"--target={tree}", "--no-deps", *peers))


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
        os.symlink(torch or fetch_python_torch(version), "site-packages")
        os.symlink(fetch_peers(version), "peers")
    else:
        die(f"unknown kind {kind!r}")


if __name__ == "__main__":
    main()
