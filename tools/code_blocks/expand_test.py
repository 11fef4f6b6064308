#!/usr/bin/env python3
"""expand.py: each block once, with the page's line for the compiler."""

import unittest

import expand

PAGE = "# Page\n\n```cpp\nint x = 1;\n```\n\n```sh\nls\n```\n\n```cpp\nint y = 2;\nint z = 3;\n```\n"


class Expand(unittest.TestCase):
    def expand(self, template):
        return expand.expand("blocks.cc.in", template, expand.blocks_of("a/page.md", PAGE), {})

    def test_a_line_stands_for_a_block_with_its_place_in_the_page(self):
        self.assertEqual(
            self.expand("void f() {\n  BLOCK a/page.md 2\n}\nBLOCK a/page.md 1\n"),
            'void f() {\n#line 12 "a/page.md"\nint y = 2;\nint z = 3;\n#line 3 "blocks.cc.in"\n}\n'
            '#line 4 "a/page.md"\nint x = 1;\n#line 5 "blocks.cc.in"\n',
        )

    def test_a_block_that_is_left_out_is_named(self):
        with self.assertRaisesRegex(ValueError, r"^blocks\.cc\.in: no BLOCK line for a/page\.md 2$"):
            self.expand("BLOCK a/page.md 1\n")

    def test_a_block_that_does_not_exist_or_is_used_twice_is_named_with_its_line(self):
        for line in ("BLOCK a/page.md 3", "BLOCK b/page.md 1", "BLOCK a/page.md 1"):
            with self.assertRaisesRegex(
                ValueError, r"^blocks\.cc\.in:3: \S+ \d is not a C\+\+ block, or is used twice$"
            ):
                self.expand(f"BLOCK a/page.md 1\nBLOCK a/page.md 2\n{line}\n")

    def test_a_span_that_calls_something_becomes_a_statement_and_none_may_be_left_out(self):
        page = "`a` and `f(x)`\n\n```sh\n`g(x)`\n```\n\n| Python | here |\n|---|---|\n| `h()` | `i()`, `int j;` |\n"
        spans = expand.spans_of("p.md", page)
        self.assertEqual(list(spans), [("p.md", "f(x)"), ("p.md", "i()"), ("p.md", "int j;")])
        template = "SPAN p.md f(x)\n  SPAN p.md int j;\nSPAN p.md f(x)\n"
        self.assertEqual(
            expand.expand("t.in", template + "SPAN p.md i()\n", {}, spans),
            '#line 1 "p.md"\nf(x);\n#line 2 "t.in"\n#line 9 "p.md"\nint j;\n#line 3 "t.in"\n'
            '#line 1 "p.md"\nf(x);\n#line 4 "t.in"\n#line 9 "p.md"\ni();\n#line 5 "t.in"\n',
        )
        with self.assertRaisesRegex(ValueError, r"^t\.in: no line SPAN p\.md i\(\)$"):
            expand.expand("t.in", template, {}, spans)
        with self.assertRaisesRegex(ValueError, r"^t\.in:1: p\.md has no span `h\(\)` that calls something$"):
            expand.expand("t.in", "SPAN p.md h()\n", {}, spans)
        self.assertEqual(expand.expand("t.in", "", {}, spans), "")


if __name__ == "__main__":
    unittest.main()
