#!/usr/bin/env python3
"""expand.py: each block once, with the page's line for the compiler."""

import unittest

import expand

PAGE = "# Page\n\n```cpp\nint x = 1;\n```\n\n```sh\nls\n```\n\n```cpp\nint y = 2;\nint z = 3;\n```\n"


class Expand(unittest.TestCase):
    def expand(self, template):
        return expand.expand("blocks.cc.in", template, expand.blocks_of("a/page.md", PAGE))

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


if __name__ == "__main__":
    unittest.main()
