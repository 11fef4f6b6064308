#!/usr/bin/env python3
"""Which changes of the sources make a table's figures old."""

import pathlib
import re
import unittest

import sources

HERE = pathlib.Path(__file__).absolute().parent
TREE = {
    "dp/a.h": "#ifndef LOCKSTEP_DP_A_H_\n#define LOCKSTEP_DP_A_H_\n// Of a.\nint A();\n#endif\n",
    "dp/internal/b.cc": '#include "lockstep/dp/a.h"\n\nint A() { return 1; }\n',
    "dp/a_test.cc": "int main() {}\n",
    "dp/testing/c.h": "int C();\n",
    "dp/other/d.h": "int D();\n",
    "sampler/e.cc": "int E();\n",
}


class SourcesTest(unittest.TestCase):
    def hash_of(self, tree):
        return sources.hash_of("dp", sorted(tree), tree.__getitem__)

    def changed(self, name, before, after):
        self.assertIn(before, TREE[name])
        return self.hash_of({**TREE, name: TREE[name].replace(before, after)}) != self.hash_of(TREE)

    def test_code_that_is_timed_counts(self):
        self.assertTrue(self.changed("dp/internal/b.cc", "return 1", "return 2"))
        self.assertTrue(self.changed("dp/a.h", "int A", "long A"))
        self.assertNotEqual(self.hash_of({**TREE, "dp/f.cc": "int F();\n"}), self.hash_of(TREE))

    def test_tests_comments_other_folders_and_paths_do_not(self):
        for name, before, after in (
            ("dp/a_test.cc", "main", "other"),
            ("dp/testing/c.h", "C", "D"),
            ("dp/other/d.h", "D", "E"),
            ("sampler/e.cc", "E", "F"),
            ("dp/a.h", "Of a", "Of another"),
            ("dp/a.h", "DP_A_H_", "DP_INTERNAL_A_H_"),
            ("dp/internal/b.cc", "dp/a.h", "dp/internal/a.h"),
            ("dp/internal/b.cc", "int A", "  int A"),
        ):
            self.assertFalse(self.changed(name, before, after), (name, before))
        moved = {("dp/internal/a.h" if name == "dp/a.h" else name): text for name, text in TREE.items()}
        self.assertEqual(self.hash_of(moved), self.hash_of(TREE))

    def test_where_there_is_nothing_to_time_the_hash_is_unknown(self):
        self.assertEqual(self.hash_of({"x/a.cc": "int A();"}), sources.UNKNOWN)

    def test_a_table_has_one_line_of_its_suite(self):
        table = "<!-- measured{0}: begin -->\n| a |\n{1}<!-- measured{0}: end -->\n"
        for page in (
            table.format(" dp", "<!-- sources dp: 12ab -->\n"),
            table.format("", "<!-- sources all_reduce: unknown -->\n"),
        ):
            self.assertEqual(list(sources.problems("p.md", page)), [])
        for body in ("", "<!-- sources sampler: 12ab -->\n", "<!-- sources dp: 1 -->\n<!-- sources dp: 2 -->\n"):
            (found,) = sources.problems("p.md", table.format(" dp", body))
            self.assertIn("p.md: the table of suite dp has [", found)
        (found,) = sources.problems("p.md", "<!-- sources gone: 12ab -->\n")
        self.assertIn("the sources of gone", found)

    def test_a_line_of_other_code_is_a_notice(self):
        page = "a\n<!-- sources dp: {} -->\n"
        self.assertEqual(
            list(sources.notices(sources.ROOT, "p.md", page.format(sources.hash_in(sources.ROOT, "dp")))), []
        )
        (found,) = sources.notices(sources.ROOT, "p.md", page.format("12ab"))
        self.assertEqual(found, "p.md:2: figures of dp were measured with other code: measure again before a release")
        (found,) = sources.notices(sources.ROOT, "p.md", page.format(sources.UNKNOWN))
        self.assertIn("at an unknown time", found)

    def test_every_suite_of_compare_says_what_it_times(self):
        suites = re.findall(r'^    "(\w+)": suite_', (HERE / "compare.py").read_text(), re.M)
        self.assertEqual(set(suites) | {"fashion_mnist"}, set(sources.SUITES))


if __name__ == "__main__":
    unittest.main()
