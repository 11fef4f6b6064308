#!/usr/bin/env python3
"""Tests the errors of fetch_torch.py for a LibTorch that it cannot use, and its layout of one that it can."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

SCRIPT = pathlib.Path(__file__).resolve().parent / "libtorch/fetch_torch.py"
CXX11 = b"\x7fELF std::__cxx11 _ZNSt7__cxx1112basic_string"


class FetchTorch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.torch = pathlib.Path(folder.name, "torch")
        self.cwd = pathlib.Path(folder.name, "repository")
        self.cwd.mkdir()

    def libtorch(self, version="2.11.0", libraries=("libtorch_cpu.so", "libc10.so"), c10=CXX11, cpu=b"\x7fELF"):
        header = self.torch / "include/torch/csrc/api/include/torch/torch.h"
        header.parent.mkdir(parents=True)
        header.write_text("")
        for name in ("ATen", "c10", "google/protobuf"):
            (self.torch / "include" / name).mkdir(parents=True)
        (self.torch / "build-version").write_text(f"{version}\n")
        (self.torch / "lib").mkdir()
        for name in libraries:
            (self.torch / "lib" / name).write_bytes(c10 if name == "libc10.so" else cpu)
        return self.torch

    def fetch(self, kind, **variables):
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(self.cwd), **variables}
        done = subprocess.run(
            [sys.executable, SCRIPT, kind], cwd=self.cwd, env=environment, capture_output=True, text=True, timeout=60
        )
        return done.returncode, done.stdout, done.stderr

    def error(self, kind, **variables):
        code, output, error = self.fetch(kind, **variables)
        self.assertEqual((code, output), (1, ""))
        return error

    def test_only_the_headers_of_libtorch_itself(self):
        self.assertEqual(self.fetch("cpu", LOCKSTEP_LIBTORCH=str(self.libtorch())), (0, "", ""))
        self.assertEqual(sorted(os.listdir(self.cwd / "include")), ["ATen", "c10", "torch"])
        self.assertEqual(sorted(os.listdir(self.cwd / "lib")), ["libc10.so", "libtorch_cpu.so"])

    def test_no_libtorch_in_the_folder(self):
        self.assertEqual(
            self.error("cpu", LOCKSTEP_LIBTORCH="/nonexistent/libtorch"),
            "LibTorch: LOCKSTEP_LIBTORCH=/nonexistent/libtorch has no include/torch/csrc/api/include/torch/torch.h: "
            "name an unpacked LibTorch or a torch folder\n",
        )

    def test_too_old(self):
        self.assertEqual(
            self.error("cpu", LOCKSTEP_LIBTORCH=str(self.libtorch(version="2.6.0+cpu"))),
            f"LibTorch: {self.torch} is version 2.6.0+cpu: Lockstep needs 2.7 or newer\n",
        )

    def test_old_abi(self):
        self.libtorch(c10=b"\x7fELF _ZNSs4swapERSs")
        self.assertEqual(
            self.error("cpu", LOCKSTEP_LIBTORCH=str(self.torch)),
            f"LibTorch: {self.torch}/lib/libc10.so is built with the old C++ ABI (_GLIBCXX_USE_CXX11_ABI=0): "
            "get the LibTorch that is called cxx11 ABI\n",
        )

    def test_no_library(self):
        self.assertEqual(
            self.error("cpu", LOCKSTEP_LIBTORCH=str(self.libtorch(libraries=["libc10.so"]))),
            f"LibTorch: {self.torch}/lib has no libtorch_cpu.so: name the folder that holds include and lib\n",
        )

    def test_gloo_of_its_own(self):
        self.libtorch(cpu=b"\x7fELF\0libgloo.so.0\0")
        self.assertEqual(
            self.error("cpu", LOCKSTEP_LIBTORCH=str(self.torch)),
            f"LibTorch: {self.torch}/lib has no libgloo.so, which libtorch_cpu.so needs: install it (Debian: apt-get install "
            "libgloo-dev)\n",
        )

    def test_cuda_asked_of_one_for_cpus(self):
        self.assertEqual(
            self.error("cuda", LOCKSTEP_LIBTORCH=str(self.libtorch())),
            f"LibTorch: {self.torch}/lib has no libtorch_cuda.so: it is LibTorch for CPUs only; name one with CUDA, or build "
            "without --config=cuda (--@lockstep//tools/flags:cuda)\n",
        )

    def test_a_version_that_is_not_pinned(self):
        self.assertEqual(
            self.error("cpu", LOCKSTEP_LIBTORCH_VERSION="2.9.9"),
            "LibTorch: no wheels of torch 2.9.9 are pinned, only 2.7.0, 2.11.0, 2.15.0: set LOCKSTEP_LIBTORCH_VERSION to one "
            "of these, or LOCKSTEP_LIBTORCH to an unpacked LibTorch\n",
        )

    def test_a_wheel_of_other_bytes_is_refused(self):
        wheels = self.cwd.parent / "wheels"
        wheels.mkdir()
        for name in ("torch-2.11.0-cp311-cp311", "nvidia_cuda_cupti-13.0.85-py3-none"):
            with zipfile.ZipFile(wheels / f"{name}-manylinux_2_28_x86_64.whl", "w") as wheel:
                wheel.writestr("torch/lib/libtorch_cpu.so", "")
        error = self.error("cpu", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheels), PYTHONNOUSERSITE="1")
        self.assertRegex(
            error, "^LibTorch: pip download nvidia-cuda-cupti==13.0.85 failed: .*Expected sha256 4eb01c08.*Got "
        )
        self.assertFalse((self.cwd / "lib").exists())

    def test_installed_where_none_is(self):
        code, output, error = self.fetch("cpu", LOCKSTEP_LIBTORCH_VERSION="installed", PYTHONNOUSERSITE="1")
        if code == 0:
            self.skipTest("this Python has torch")
        self.assertEqual(
            (code, output, error),
            (
                1,
                "",
                f"LibTorch: {sys.executable} has no torch: install it, or set LOCKSTEP_PYTHON to a Python that has it\n",
            ),
        )


if __name__ == "__main__":
    unittest.main()
