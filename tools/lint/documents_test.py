#!/usr/bin/env python3
"""The pages, pictures and plots of this repository agree with the rest of it.

The test reads the whole checkout, which it finds through the link that Bazel makes to this file.
"""

import os
import pathlib
import subprocess
import unittest

import claims
import documents
import pages  # lets sources be found
import sources

ROOT = pathlib.Path(__file__).resolve().parents[2]


def files_of(root):
    """The files that git knows or would add, or all of them where git cannot be asked."""
    command = ["git", "-c", f"safe.directory={root}", "ls-files", "--cached", "--others", "--exclude-standard"]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if run.returncode == 0:
        return [name for name in sorted(set(run.stdout.splitlines())) if (root / name).is_file()]
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != ".git" and not name.startswith("bazel-")]
        found += [str((pathlib.Path(folder) / name).relative_to(root)) for name in names]
    return sorted(found)


class DocumentsTest(unittest.TestCase):
    maxDiff = None

    def test_every_file_that_repeats_others_is_up_to_date(self):
        self.assertEqual(pages.check(ROOT, files_of(ROOT), fix=False), [])

    def test_links_labels_paths_names_flags_and_blocks_of_the_pages_are_right(self):
        self.assertEqual(documents.check(ROOT, files_of(ROOT)), [])

    def test_what_the_pages_claim_agrees_with_the_other_pages_and_files(self):
        self.assertEqual(claims.check(ROOT, files_of(ROOT)), [])

    def test_each_table_of_figures_says_what_code_was_measured(self):
        self.assertEqual(sources.check(ROOT)[0], [])


if __name__ == "__main__":
    unittest.main()
