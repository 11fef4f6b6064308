#!/usr/bin/env python3
"""The comparison of what targets pull in with a table, on small graphs."""

import unittest

import check

QUERY = """<query version="2">
<rule class="cc_library" name="//a:a"><list name="visibility"><label value="//visibility:public"/></list>
  <rule-input name="//a:inner"/><rule-input name="//a:a.cc"/></rule>
<rule class="cc_test" name="//a:a_test"><boolean name="testonly" value="true"/><rule-input name="//third_party:gtest"/></rule>
</query>"""


def targets(**changes):
    """//a -> //a:inner -> //b -> zlib and, by the rules' own parts, torch."""
    public = dict(public=True)
    found = {
        "//a:a": check.Target("cc_library", ["//a:inner", "//a:a.cc"], **public),
        "//a:inner": check.Target("cc_library", ["//b:b", "//tools:headers"]),
        "//b:b": check.Target("cc_library", ["//third_party:zlib"], **public),
        "//tools:headers": check.Target("precompiled_header", ["//third_party:torch"]),
        "//third_party:zlib": check.Target("alias", ["@lockstep_zlib//:lib"], **public),
    }
    for label, inputs in changes.items():
        found[f"//{label}:{label}"].inputs += inputs
    return found


class CheckTest(unittest.TestCase):
    PAGE = "| targets | folders | libraries |\n|---|---|---|\n| `//a` | `b` | `zlib` |\n| `//b:all` |  | `zlib` |\n"

    def problems(self, page=PAGE, **changes):
        return list(check.problems(targets(**changes), check.rows_of(page)))

    def test_a_table_that_is_right_has_no_problem(self):
        self.assertEqual(self.problems(), [])

    def test_what_the_table_does_not_allow_is_named_with_the_path_to_it(self):
        self.assertEqual(
            self.problems(b=["//third_party:glog"]),
            [
                "//a pulls in glog: //a -> //a:inner -> //b -> //third_party:glog",
                "//b pulls in glog: //b -> //third_party:glog",
            ],
        )
        self.assertEqual(self.problems(self.PAGE.replace("`b` |", " |")), ["//a pulls in b: //a -> //a:inner -> //b"])

    def test_what_the_table_allows_for_nothing_is_a_problem(self):
        found = self.problems(self.PAGE.replace("`zlib` |\n| `//b", "`absl`, `zlib` |\n| `//b"))
        self.assertEqual(found, ["docs/dependencies.md: lets //a pull in absl: delete it, nothing there does"])

    def test_lines_and_public_targets_belong_together(self):
        self.assertEqual(
            self.problems(self.PAGE.replace("| `//b:all` |  | `zlib` |\n", "")),
            ["docs/dependencies.md: has no line for //b"],
        )
        self.assertEqual(
            self.problems(self.PAGE.replace("`//a`", "`//a`, `:inner`")),
            ["docs/dependencies.md: names //a:inner, which is not a public target"],
        )

    def test_libraries_do_not_use_what_is_for_tests_and_programs(self):
        found = self.problems(self.PAGE.replace("`zlib`", "`gflags`, `zlib`"), b=["//third_party:gflags"])
        self.assertEqual(
            found, ["//b is a library and depends on //third_party:gflags, which is for tests and programs"]
        )

    def test_bazels_xml_is_read(self):
        found = check.targets_of(QUERY)
        self.assertEqual(found["//a:a"], check.Target("cc_library", ["//a:inner", "//a:a.cc"], public=True))
        self.assertTrue(found["//a:a_test"].testonly)
        self.assertFalse(found["//a:a_test"].public)


if __name__ == "__main__":
    unittest.main()
