#!/usr/bin/env python3
"""entries.py writes what an archive says; look_up.py writes what a registry says."""

import base64
import hashlib
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

import look_up

HERE = pathlib.Path(look_up.__file__).resolve().parent
LIBTORCH = 'module(\n    name = "libtorch",\n    version = "1.2.3",\n)\n'
LOCKSTEP = 'module(name = "lockstep", version = "1.2.4")\n'
WHOLE = {"lockstep-1/MODULE.bazel": LOCKSTEP, "lockstep-1/third_party/libtorch/MODULE.bazel": LIBTORCH}


class Entries(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.archive = self.folder / "lockstep.tar.gz"

    def write(self, files):
        with tarfile.open(self.archive, "w:gz") as archive:
            for name, text in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))

    def run_entries(self, registry="registry"):
        """The exit code and the error."""
        arguments = ["--url=file:///lockstep.tar.gz", "--homepage=https://a.example", "--repository=github:a/b"]
        command = [sys.executable, HERE / "entries.py", *arguments, self.archive, self.folder / registry]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stderr.strip()

    def files(self, registry="registry"):
        top = self.folder / registry
        return {str(path.relative_to(top)): path.read_text() for path in top.rglob("*") if path.is_file()}

    def test_each_module_has_an_entry_that_the_archive_determines(self):
        self.write(WHOLE)
        self.assertEqual(self.run_entries(), (0, ""))
        files = self.files()
        self.assertEqual(files["modules/libtorch/1.2.3/MODULE.bazel"], LIBTORCH)
        self.assertEqual(files["modules/lockstep/1.2.4/MODULE.bazel"], LOCKSTEP)
        digest = base64.b64encode(hashlib.sha256(self.archive.read_bytes()).digest()).decode()
        source = {
            "integrity": f"sha256-{digest}",
            "strip_prefix": "lockstep-1/third_party/libtorch",
            "url": "file:///lockstep.tar.gz",
        }
        self.assertEqual(json.loads(files["modules/libtorch/1.2.3/source.json"]), source)
        source["strip_prefix"] = "lockstep-1"
        self.assertEqual(json.loads(files["modules/lockstep/1.2.4/source.json"]), source)
        self.assertIn("module_path: consumer\n", files["modules/libtorch/1.2.3/presubmit.yml"])
        self.assertIn('"@lockstep//base:status"', files["modules/lockstep/1.2.4/presubmit.yml"])
        self.assertEqual(self.run_entries("second"), (0, ""))
        self.assertEqual(self.files("second"), files)

    def test_a_registry_keeps_the_versions_and_maintainers_that_it_has(self):
        metadata = self.folder / "registry/modules/libtorch/metadata.json"
        metadata.parent.mkdir(parents=True)
        metadata.write_text(
            '{"maintainers": [{"name": "A"}], "versions": ["1.2.2"], "yanked_versions": {"1.2.2": "broken"}}'
        )
        self.write(WHOLE)
        for _ in range(2):
            self.assertEqual(self.run_entries(), (0, ""))
            found = json.loads(metadata.read_text())
            self.assertEqual(found["versions"], ["1.2.2", "1.2.3"])
            self.assertEqual((found["maintainers"], found["yanked_versions"]), ([{"name": "A"}], {"1.2.2": "broken"}))

    def test_another_archive_is_refused(self):
        self.write({"lockstep-1/third_party/libtorch/README.md": ""})
        wanted = (
            f"{self.archive} has no lockstep-1/third_party/libtorch/MODULE.bazel: name an archive of Lockstep's tree"
        )
        self.assertEqual(self.run_entries(), (1, f"entries.py: {wanted}"))
        self.write({"a/b": "", "c/d": ""})
        self.assertEqual(self.run_entries(), (1, f"entries.py: {self.archive} has 2 folders at its top; expected one"))
        self.archive.write_text("no archive")
        code, error = self.run_entries()
        self.assertEqual((code, error.endswith("expected a .tar.gz")), (1, True), error)


class LookUp(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.clone = pathlib.Path(folder.name)
        for version, level in (("1.0", ", compatibility_level = 1"), ("2.0", "")):
            entry = self.clone / "modules/zlib" / version
            entry.mkdir(parents=True)
            (entry / "MODULE.bazel").write_text(f'module(name = "zlib", version = "{version}"{level})\n')
        git = ["git", "-C", str(self.clone), "-c", "user.name=a", "-c", "user.email=a"]
        for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message=a"]):
            subprocess.run(git + command, check=True)

    def test_levels_are_those_of_the_registry(self):
        levels = [look_up.level(self.clone, "HEAD", "zlib", version) for version in ("1.0", "2.0", "3.0")]
        self.assertEqual(levels, [1, 0, None])
        self.assertEqual(look_up.level(self.clone, "HEAD", "libz", "1.0"), None)


if __name__ == "__main__":
    unittest.main()
