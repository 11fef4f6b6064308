#!/usr/bin/env python3
"""The programs name headers and targets that exist, and the page has a line for each; how the figures are read."""

import json
import re
import unittest

import smallest_users as users

HEADERS_PAGE = """
| header | target | CMake |
|---|---|---|
| `lockstep/a/a.h` | `@lockstep//a` | `lockstep::a` |
| `lockstep/a/b.h` | `@lockstep//a:b` | `lockstep::a` |

- `@lockstep//linked`, `lockstep::linked`
"""


class ProgramsTest(unittest.TestCase):
    def test_each_uses_headers_and_targets_that_exist(self):
        headers_page = (users.ROOT / "docs/headers.md").read_text()
        for name, (_, extra) in users.PROGRAMS.items():
            with self.subTest(name):
                self.assertTrue(users.targets_of(users.source_of(name).read_text(), extra, headers_page))

    def test_each_source_is_measured(self):
        self.assertEqual(set(users.USERS.glob("*.cc")), {users.source_of(name) for name in users.PROGRAMS})

    def test_each_has_a_line_in_the_page(self):
        page = (users.ROOT / users.PAGE).read_text()
        lines = page[page.index(users.BEGIN) : page.index(users.END)]
        parts = [part for part, _ in users.PROGRAMS.values()]
        self.assertEqual(re.findall(r"^\| \[(.*?)\]", lines, re.M), parts, "run tools/dependencies/smallest_users.py")


class SmallestUsersTest(unittest.TestCase):
    def test_targets_are_those_of_the_headers_and_those_that_are_linked(self):
        source = '#include <vector>\n#include "lockstep/a/b.h"\n#include "lockstep/a/a.h"\n#include "lockstep/a/b.h"\n'
        self.assertEqual(users.targets_of(source, ["//linked"], HEADERS_PAGE), ["//a:b", "//a", "//linked"])

    def test_a_header_or_a_target_that_is_gone_is_named(self):
        with self.assertRaisesRegex(ValueError, "no lockstep/a/c.h$"):
            users.targets_of('#include "lockstep/a/c.h"\n', [], HEADERS_PAGE)
        with self.assertRaisesRegex(ValueError, "no //a:b among"):
            users.targets_of("", ["//a:b"], HEADERS_PAGE)

    def test_commands_lose_what_they_write(self):
        arguments = ["clang", "-O2", "-MD", "-MF", "out/a.d", "-iquote", ".", "-c", "a.cc", "-o", "out/a.o"]
        found = users.compile_commands(json.dumps({"actions": [{"arguments": arguments}]}))
        self.assertEqual(found, {"a.cc": ["clang", "-O2", "-iquote", "."]})

    def test_processor_seconds_count_what_a_command_starts(self):
        seconds = users.processor_seconds(
            ["sh", "-c", "sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done'; :"], "."
        )
        self.assertGreater(seconds, 0)
        self.assertLess(users.processor_seconds(["sleep", "0.1"], "."), 0.1)

    def test_lines_that_only_say_where_they_are_from_do_not_count(self):
        self.assertEqual(users.lines_of(b'# 1 "a.h" 1\n\n  \nint a;\nint b;\n# 2 "a.cc" 2\n'), 2)

    def test_libraries_are_named_without_those_of_every_program(self):
        names = ["libglog.so.1", "libtorch_cpu.so", "libc10.so", "libstdc++.so.6", "libc.so.6", "libabsl_status.so.1"]
        text = "\n".join(f" 0x0001 (NEEDED)   Shared library: [{name}]" for name in names)
        self.assertEqual(users.libraries_of(text), ["Abseil", "libglog", "LibTorch"])

    def test_the_table_replaces_what_is_between_the_marks(self):
        page = f"before\n{users.BEGIN}\nold\n{users.END}\nafter\n"
        self.assertEqual(users.with_table(page, "new"), f"before\n{users.BEGIN}\nnew\n{users.END}\nafter\n")


if __name__ == "__main__":
    unittest.main()
