#!/usr/bin/env python3
"""The pages, pictures and plots of this repository agree with the rest of it.

The test reads the whole checkout, which it finds through the link that Bazel makes to this file.
"""

import pathlib
import unittest

import claims
import documents
import pages  # lets sources be found
import sources

ROOT = pathlib.Path(__file__).resolve().parents[2]


class DocumentsTest(unittest.TestCase):
    maxDiff = None

    def test_every_file_that_repeats_others_is_up_to_date(self):
        self.assertEqual(pages.check(ROOT, documents.files_of(ROOT), fix=False), [])

    def test_links_labels_paths_names_flags_and_blocks_of_the_pages_are_right(self):
        self.assertEqual(documents.check(ROOT, documents.files_of(ROOT)), [])

    def test_what_the_pages_claim_agrees_with_the_other_pages_and_files(self):
        self.assertEqual(claims.check(ROOT, documents.files_of(ROOT)), [])

    def test_each_table_of_figures_says_what_code_was_measured(self):
        self.assertEqual(sources.check(ROOT)[0], [])


if __name__ == "__main__":
    unittest.main()
