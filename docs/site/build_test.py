#!/usr/bin/env python3
"""The parts of build.py that need neither Doxygen nor Sphinx. `.ci/run` builds the whole site."""

import pathlib
import sys
import tempfile
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent))
import api
import build
import header_filter

HEADER = """// Sums. See "a_b".

#ifndef LOCKSTEP_X_SUM_H_
#define LOCKSTEP_X_SUM_H_

class Other;  // in other.h

// Adds `a_b` and *others*.
//
//   Sum sum;
class Sum {
  int x = 0;  // the #1
};

#endif  // LOCKSTEP_X_SUM_H_
"""

LOCATION = '<location file="x/sum.h" line="{}"/>'
FUNCTION = """<memberdef kind="function" id="{0}" prot="{1}"><type>int</type><argsstring>(int a)</argsstring><name>{0}</name>
<qualifiedname>x::Sum::{0}</qualifiedname><briefdescription>{2}</briefdescription>{3}</memberdef>"""
CLASS = f"""<doxygen><compounddef kind="class" id="sum"><compoundname>x::Sum</compoundname>
<sectiondef>
{FUNCTION.format("Get", "public", "", LOCATION.format(9))}
{FUNCTION.format("Add", "public", "<para>Adds. See <ref refid='Get'>Get()</ref>, <computeroutput>a_b</computeroutput> a_b.</para>", LOCATION.format(5))}
{FUNCTION.format("AddLater", "public", "", LOCATION.format(6))}
{FUNCTION.format("Hidden", "private", "", LOCATION.format(10))}
</sectiondef>
<detaileddescription><para>A sum.<verbatim>  Sum sum;
</verbatim></para></detaileddescription>{LOCATION.format(4)}</compounddef></doxygen>"""
FILE = f"""<doxygen><compounddef kind="file" id="f"><compoundname>sum.h</compoundname>
<briefdescription><para>Sums.</para></briefdescription>{LOCATION.format(1)}</compounddef></doxygen>"""


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


class TemporaryFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)


class HeadersTest(TemporaryFolder):
    def test_comments_become_doxygens_and_lines_keep_their_numbers(self):
        lines = header_filter.filtered(HEADER).splitlines()
        self.assertEqual(len(lines), HEADER.count("\n"))
        self.assertEqual(lines[:2], ['/// Sums. See "a_b".', "/// \\file"])
        self.assertEqual(lines[5], "class Other;  ")
        self.assertEqual(lines[7:10], ["/// Adds `a_b` and \\*others\\*.", "///", "///        Sum sum;"])
        self.assertEqual(lines[11], "  int x = 0;  ///< the \\#1")

    def test_the_page_of_a_header_has_its_declarations_in_their_order(self):
        write(
            self.root, {"xml/class_sum.xml": CLASS, "xml/sum_8h.xml": FILE, "x/sum.h": "\n".join("1234567") + "\n\n8\n"}
        )
        text = api.Api(self.root / "xml", self.root).page("x/sum.h")
        self.assertTrue(text.startswith("Sums.\n\n.. cpp:namespace:: x\n\n.. cpp:class:: Sum\n\n   A sum.\n\n"), text)
        self.assertIn("   .. code-block:: cpp\n      :force:\n\n      Sum sum;\n", text)
        together = "   .. cpp:function:: int Add(int a)\n                     int AddLater(int a)\n\n"
        comment = "      Adds. See \\ :cpp:any:`Get() <x::Sum::Get>`\\ , \\ ``a_b``\\  a\\_b.\n\n"
        self.assertTrue(text.endswith(together + comment + "   .. cpp:function:: int Get(int a)\n"), text)


class SiteTest(TemporaryFolder):
    FILES = {
        "README.md": "# A\n\n[guide](docs/guide.md#what-it-is), [x](x), [sum](x/sum.h), [code](x/sum.cc), `//x:sum`\n",
        "docs/README.md": "# Documents\n\nGuides:\n\n- [guide.md](guide.md)\n",
        "docs/guide.md": "# Guide\n\n## What it is\n\n[top](../README.md), [elsewhere](https://example.org), [gone](../gone)\n\n```sh\n[x](x)\n```\n",
        "docs/targets.md": "# Targets\n\n| target | purpose |\n|---|---|\n| `@lockstep//x:sum`, `:other` | [sums](../x) |\n",
        "x/README.md": "# x\n\n`lockstep/x/sum.h`, `lockstep/x/private.h`\n",
        "x/BUILD": 'cc_library(name = "sum", hdrs = ["sum.h"], visibility = ["//visibility:public"])\n',
        "x/sum.h": HEADER,
        "x/sum.cc": "int x;\n",
    }

    def pages(self):
        class Stub:
            def page(self, header):
                return f"(declarations of {header})\n"

        write(self.root, self.FILES)
        return build.Site(self.root, sorted(self.FILES), lambda headers: Stub()).pages

    def test_links_lead_to_pages_of_the_site(self):
        pages = self.pages()
        line = (
            "[guide](docs/guide.md#what-it-is), [x](x/README.md), [sum](targets/x--sum.md), [code](source/x/sum.cc.md)"
        )
        self.assertIn(line + ", [`//x:sum`](targets/x--sum.md)\n", pages["index.md"])
        rest = "[elsewhere](https://example.org), [gone](../gone)\n\n```sh\n[x](x)\n"
        self.assertIn(f"[top](../index.md), {rest}", pages["docs/guide.md"])
        self.assertIn("[`lockstep/x/sum.h`](../targets/x--sum.md), `lockstep/x/private.h`", pages["x/README.md"])
        self.assertIn("`````cpp\nint x;\n`````", pages["source/x/sum.cc.md"])

    def test_a_public_target_has_a_page_with_its_purpose_readme_and_headers(self):
        page = self.pages()["targets/x--sum.md"]
        self.assertIn("# `@lockstep//x:sum`\n\n[sums](../x/README.md)\n", page)
        self.assertIn("[x](../x/README.md)\n\n## `lockstep/x/sum.h`\n", page)
        self.assertIn("(declarations of x/sum.h)", page)

    def test_each_page_stands_in_the_side_bar(self):
        index = self.pages()["index.md"]
        self.assertIn(":caption: Guides\n\n/docs/guide\n```", index)
        self.assertIn(":caption: Folders\n\n/docs/README\n/x/README\n```", index)
        self.assertIn("/docs/targets\n```", self.pages()["docs/README.md"])


class DeadLinksTest(TemporaryFolder):
    PAGE = '<a href="{}">x</a><img src="p.svg"><h1 id="here">\n<a href="#here"><a href="https://example.org">'

    def found(self, page):
        write(self.root, {"a/b.html": page, "a/p.svg": "", "c.html": '<p id="x&amp;y">'})
        return list(build.dead_links(self.root))

    def test_a_site_with_right_links_is_right(self):
        self.assertEqual(self.found(self.PAGE.format("../c.html#x%26y")), [])

    def test_a_dead_link_a_dead_anchor_and_a_file_from_the_network_are_named(self):
        self.assertEqual(self.found(self.PAGE.format("d.html")), ["a/b.html: links to d.html: there is no such file"])
        anchor = "../c.html#z"
        self.assertEqual(
            self.found(self.PAGE.format(anchor)), [f"a/b.html: links to {anchor}: that page has no such anchor"]
        )
        script = '<script src="//example.org/x.js"></script>'
        self.assertEqual(self.found(script), ["a/b.html: loads //example.org/x.js from the network"])


if __name__ == "__main__":
    unittest.main()
