#!/usr/bin/env python3
import contextlib
import io
import pathlib
import tempfile
import unittest

import compile_commands
import formatting
import pages
import rules
import tidy


class RulesTest(unittest.TestCase):
    def test_finds_notes_to_do_something_later_but_no_longer_words(self):
        self.assertEqual(len(rules.check("a/b.cc", "// TO" + "DO: more\n// FIX" + "ME\n")), 2)
        self.assertEqual(rules.check("a/b.cc", 'mkstemp("/tmp/x.XXXXXX");\n'), [])

    def test_external_repositories_are_named_in_third_party_only(self):
        text = 'x = "@lockstep_zlib//:lib"\n'
        self.assertIn("a/BUILD:1: names the external repository @lockstep_zlib//", rules.check("a/BUILD", text)[0])
        self.assertEqual(rules.check("third_party/BUILD", text), [])
        self.assertEqual(rules.check("a/README.md", text), [])
        self.assertEqual(rules.check("examples/consumer/BUILD", 'x = "@lockstep//sampler"\n'), [])

    def test_only_two_packages_are_public_by_default(self):
        text = 'package(\n    default_visibility = ["//visibility:public"],\n)\n'
        self.assertIn("a/BUILD:2: everything here is public", rules.check("a/BUILD", text)[0])
        self.assertEqual(rules.check("third_party/BUILD", text), [])
        self.assertEqual(rules.check("tools/flags/BUILD", text), [])
        self.assertEqual(rules.check("a/BUILD", text.replace("public", "private")), [])

    def test_a_build_file_that_is_no_python_is_a_problem_not_a_crash(self):
        self.assertIn("a/BUILD:1: is not Python's syntax", rules.check("a/BUILD", "package(\n")[0])


class ProseTest(unittest.TestCase):
    def problems(self, text):
        return rules.check("a/README.md", text)

    def test_a_long_line_is_a_problem_in_prose_but_not_in_tables_code_and_links(self):
        long = "word " * 25
        self.assertEqual(self.problems(f"ok\n{long}\n"), ["a/README.md:2: is longer than 100 columns: wrap it"])
        for text in (f"| {long} |\n", f"```sh\n{long}\n```\n", f"    {long}\n", f"[a]({'x' * 120})\n"):
            self.assertEqual(self.problems(text), [])
        self.assertEqual(rules.check("a/b.txt", long), [])

    def test_phrases_that_are_not_plain_english_are_named_with_their_line(self):
        found = self.problems("A root that is\nno rank fails.\n")
        self.assertEqual(len(found), 1)
        self.assertIn('a/README.md:2: "is no rank": write "is not a ..."', found[0])
        for text in (
            "a dataset of your own.",
            "those that died",
            "Ready. Who knows it",
            "What uses it",
            "equal but for one",
        ):
            self.assertEqual(len(self.problems(text)), 1, text)

    def test_plain_sentences_code_and_questions_are_left_alone(self):
        for text in (
            "There is no queue, and it is no longer empty.",
            "It failed because of its own error.",
            "Print `is no rank` and `those that`.",
            "What happens if a rank dies?",
            "## What differs",
        ):
            self.assertEqual(self.problems(text), [], text)


class FormattingTest(unittest.TestCase):
    def test_keywords_get_spaces_and_assignments_stay(self):
        self.assertEqual(
            formatting._space_keywords('A = "x=1"\nf(a=1, b=[g(c=2)])\n'), 'A = "x=1"\nf(a = 1, b = [g(c = 2)])\n'
        )

    def test_select_hugs_its_dictionary(self):
        black = "f(\n    a = select(\n        {\n            1: 2,\n        }\n    ),\n)\n"
        self.assertEqual(formatting._hug_dictionaries(black), "f(\n    a = select({\n        1: 2,\n    }),\n)\n")

    def test_dictionaries_beside_other_arguments_stay(self):
        black = "f(\n    {\n        1: 2,\n    },\n    b = 3,\n)\n"
        self.assertEqual(formatting._hug_dictionaries(black), black)


class PagesTest(unittest.TestCase):
    BUILD = """
cc_library(
    name = "b",
    srcs = ["b.cc"],
    hdrs = ["b.h", "internal/c.h"],
    visibility = ["//visibility:public"],
)
cc_library(name = "private", hdrs = ["private.h"], visibility = ["//visibility:private"])
link_only(name = "linked", visibility = ["//visibility:public"])
alias(name = "a", actual = ":renamed", visibility = ["//visibility:public"])
cc_library(name = "renamed", hdrs = ["renamed.h"], visibility = ["//visibility:public"])
"""

    def test_the_page_has_the_public_headers_with_their_targets(self):
        page = pages.headers_page({"x/a/BUILD": self.BUILD})
        self.assertIn(
            "| `lockstep/x/a/b.h` | `@lockstep//x/a:b` |\n| `lockstep/x/a/renamed.h` | `@lockstep//x/a` |\n", page
        )
        self.assertTrue(page.endswith("\n\n- `@lockstep//x/a:linked`\n"), page)
        for other in ("internal/c.h", "private"):
            self.assertNotIn(other, page)

    def test_a_page_that_is_out_of_date_is_a_problem_until_it_is_written(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {
                "a/BUILD": self.BUILD,
                "README.md": "before\n```bazelrc\nbuild --old\n```\nafter\n",
                "examples/consumer/.bazelrc": "build --new\n",
                "docs/headers.md": "",
            }.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            self.assertEqual(len(pages.check(root, ["a/BUILD"], fix=False)), 2)
            with contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(pages.check(root, ["a/BUILD"], fix=True), [])
            self.assertEqual(pages.check(root, ["a/BUILD"], fix=False), [])
            self.assertEqual((root / "README.md").read_text(), "before\n```bazelrc\nbuild --new\n```\nafter\n")
            (root / "README.md").write_text("nothing to copy\n")
            self.assertEqual(pages.check(root, ["a/BUILD"], fix=False), ["README.md: has no block ```bazelrc"])


class TidyTest(unittest.TestCase):
    def test_a_header_is_checked_through_the_source_or_else_the_test_beside_it(self):
        files = ["a/x.cc", "a/x.h", "a/x_test.cc", "a/y.h", "a/y_test.cc", "a/z.h"]
        self.assertEqual(tidy.sources_of(["a/x.h", "a/y.h", "a/z.h", "BUILD"], files), ["a/x.cc", "a/y_test.cc"])
        self.assertEqual(tidy.sources_of(["a/x_test.cc"], files), ["a/x_test.cc"])


class CompileCommandsTest(unittest.TestCase):
    def test_an_entry_compiles_one_source_with_the_headers_of_the_tree_and_libtorch(self):
        root, headers, libtorch = pathlib.Path("/tree"), pathlib.Path("/headers"), pathlib.Path("/libtorch")
        (entry,) = compile_commands.entries(root, ["a/x.cc"], headers, libtorch)
        self.assertEqual(entry["directory"], "/tree")
        self.assertEqual(entry["file"], "/tree/a/x.cc")
        self.assertEqual(entry["arguments"][-2:], ["-c", "/tree/a/x.cc"])
        for flag in ("-std=c++17", "-I/headers", "-isystem/libtorch"):
            self.assertIn(flag, entry["arguments"])


if __name__ == "__main__":
    unittest.main()
