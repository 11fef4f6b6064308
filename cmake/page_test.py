#!/usr/bin/env python3
"""docs/cmake.md's first way, as the page shows it, and what Lockstep is compiled with in it. Nothing is compiled.

  LOCKSTEP_LIBTORCH=... cmake/page_test.py   needs cmake and ninja; .ci/cmake runs it
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "docs/cmake.md").read_text(), re.M | re.S)


class CmakePageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        pathlib.Path(folder.name, "lockstep").symlink_to(ROOT)
        self.folder = pathlib.Path(folder.name, "trainer")
        self.folder.mkdir()
        (self.folder / "trainer.cc").touch()

    def configure(self, project, *arguments):
        """The output of `cmake`, and the -O flags of Lockstep's sources and of trainer.cc."""
        (self.folder / "CMakeLists.txt").write_text(project)
        shutil.rmtree(self.folder / "build", ignore_errors=True)
        command = ["cmake", "-G", "Ninja", "-S", ".", "-B", "build", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *arguments]
        run = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        flags = {True: set(), False: set()}
        for entry in json.loads((self.folder / "build/compile_commands.json").read_text()):
            of_us = not entry["file"].endswith("/trainer.cc")
            flags[of_us].add(tuple(re.findall(r" (-O\w*)\b", entry["command"]))[:1])
        return run.stdout, flags[True], flags[False]

    def test_the_commands_of_the_page_build_the_program_and_the_launcher_that_they_start(self):
        commands = blocks("sh")[0]
        (configure,) = re.findall(r"^cmake -S \. -B build (.*)$", commands, re.M)
        configure = configure.replace("$HOME/libtorch", os.environ["LOCKSTEP_LIBTORCH"])
        self.configure(blocks("cmake")[0], *configure.split())
        run = subprocess.run(
            ["ninja", "-t", "targets", "all"], cwd=self.folder / "build", capture_output=True, text=True
        )
        built = {line.partition(":")[0] for line in run.stdout.splitlines()}
        (start,) = re.findall(r"^build/.*launch .*$", commands, re.M)
        started = re.findall(r"\bbuild/(\S+)", start)
        self.assertEqual(len(started), 2)
        self.assertLessEqual(set(started), built)

    def test_without_a_build_type_lockstep_is_optimised_and_a_line_says_that_the_project_is_not(self):
        output, ours, theirs = self.configure(blocks("cmake")[0])
        self.assertEqual((ours, theirs), ({("-O2",)}, {()}))
        self.assertIn("your own targets without optimisation", output)

    def test_the_projects_choice_is_kept(self):
        project = blocks("cmake")[0]
        for arguments, flags in ((["-DCMAKE_BUILD_TYPE=Debug"], set()), (["-DCMAKE_CXX_FLAGS=-O1"], {"-O1"})):
            output, ours, _ = self.configure(project, *arguments)
            # Single sources have an -O3 that their BUILD files name.
            self.assertEqual({flag for found in ours for flag in found} - {"-O3"}, flags)
            self.assertNotIn("without optimisation", output)
        output, ours, theirs = self.configure(
            project.replace("add_subdirectory", "add_compile_options(-O1)\nadd_subdirectory"), "-DCMAKE_CXX_FLAGS="
        )
        self.assertEqual((ours, theirs), ({("-O1",)}, {("-O1",)}))
        self.assertNotIn("without optimisation", output)

    def test_find_package_takes_the_headers_version_and_those_that_promise_the_same(self):
        header = (ROOT / "base/version.h").read_text()
        major, minor, patch = (
            int(re.search(rf"^#define LOCKSTEP_VERSION_{part} (\d+)$", header, re.M)[1])
            for part in ("MAJOR", "MINOR", "PATCH")
        )
        version = f"{major}.{minor}.{patch}"
        self.configure(blocks("cmake")[0], "-DLOCKSTEP_INSTALL=ON")
        # The version's file alone: the package itself needs what is installed.
        package = self.folder / "package"
        package.mkdir()
        shutil.copy(self.folder / "build/lockstep/lockstepConfigVersion.cmake", package)
        (package / "lockstepConfig.cmake").touch()
        for asked, taken in (
            ("", True),
            (f"{major}.{minor}", True),
            (f"{version} EXACT", True),
            (f"{major}.{minor}.{patch + 1}", False),
            (f"{major}.{minor + 1}", False),
            (f"{major + 2}.0", False),
        ):
            (self.folder / "find.cmake").write_text(
                f"set(lockstep_DIR {package})\n"
                f"find_package(lockstep {asked} CONFIG REQUIRED)\n"
                "message(STATUS ${lockstep_VERSION})\n"
            )
            run = subprocess.run(
                ["cmake", "-P", self.folder / "find.cmake"], capture_output=True, text=True, check=False
            )
            self.assertEqual(run.returncode == 0, taken, f"{asked}: {run.stderr}")
            self.assertIn(f"-- {version}" if taken else f"version: {version}", run.stdout + run.stderr)


if __name__ == "__main__":
    if "LOCKSTEP_LIBTORCH" not in os.environ:
        raise SystemExit("page_test.py: set LOCKSTEP_LIBTORCH to a LibTorch: see docs/cmake.md")
    unittest.main()
