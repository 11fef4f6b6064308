#!/usr/bin/env python3
"""Tests the checks of the claims of pages."""

import unittest

import claims


class ClaimsTest(unittest.TestCase):
    def problems(self, path, text):
        return claims.of_pages({path: text}, '"//a:README.md"\n"//docs:page.md"\n')

    def test_a_paragraph_an_item_and_a_row_stand_alone_and_code_is_left_out(self):
        text = "# a\nb\nc\n\n- d\n  e\n- f\n\n| g |\n|---|\n\n```\nh\n```\ni\n"
        self.assertEqual(
            claims.paragraphs(text),
            [(1, "# a\nb\nc"), (5, "- d\n  e"), (7, "- f"), (9, "| g |"), (10, "|---|"), (15, "i")],
        )

    def test_the_same_bits_on_any_number_of_ranks_are_promised_to_data_parallel_ranks(self):
        for text in (
            "Train to the same bits on any number\nof ranks.",
            "**Any number of ranks.** It has the bits of V.",
        ):
            (found,) = self.problems("docs/page.md", f"# A\n\n{text}\n")
            self.assertIn("docs/page.md:3: promises the same bits", found)
            self.assertEqual(self.problems("docs/page.md", f"{text} Of data-parallel ranks.\n"), [])
            self.assertEqual(self.problems("sampler/README.md", text), [])
        self.assertEqual(self.problems("README.md", "| a sum with the same bits on any number of ranks |\n"), [])

    def test_what_has_never_run_on_a_gpu_names_the_test_that_would_run_it(self):
        (found,) = self.problems("a/README.md", "- NCCL is used too. It has never run\n  on a GPU.\n")
        self.assertIn("a/README.md:1: says that something has never run on a GPU", found)
        self.assertEqual(self.problems("a/README.md", "It has never run on a GPU: see `//a:gpu_test`.\n"), [])

    def test_commands_of_pages_call_bazelw(self):
        for text in ("a\n```sh\nbazel build //a\n```\n", "a\n```\n$ bazel run //a\n```\n"):
            (found,) = self.problems("a/README.md", text)
            self.assertIn("a/README.md:3: calls bazel", found)
        for text in (
            "```sh\n../lockstep/bazelw build //a\n```\n",
            "Run `bazel build //a`.\n",
            "```\nbazel-bin/a\n```\n",
        ):
            self.assertEqual(self.problems("a/README.md", text), [])

    def test_one_page_says_how_long_a_first_build_takes(self):
        text = "The first build takes\nthree minutes.\n"
        (found,) = self.problems("README.md", text)
        self.assertIn("README.md:1: says how long a first build takes", found)
        self.assertEqual(self.problems("examples/consumer/README.md", text), [])
        self.assertEqual(
            self.problems("README.md", "The first build fetches LibTorch.\n\nA job takes 2 minutes.\n"), []
        )

    def test_a_result_is_not_dereferenced_at_once(self):
        (found,) = self.problems("a/README.md", "| a | `B::Create(*data::ImageFolder::Create(root), x)` |\n")
        self.assertIn("a/README.md:1: dereferences data::ImageFolder::Create(...)", found)
        self.assertEqual(self.problems("a/README.md", "`B::Create(*group, x)`, `std::unique_ptr<B> *Create`\n"), [])

    def test_every_block_is_compiled(self):
        block = "```cpp\nint x;\n```\n"
        (found,) = self.problems("b/README.md", block)
        self.assertIn("b/README.md: has C++ that no test compiles: add //b:README.md to tools/code_blocks/BUILD", found)
        for path in ("README.md", "a/README.md", "docs/page.md"):
            self.assertEqual(self.problems(path, block), [])

    def test_the_figures_of_a_run_are_those_of_its_picture(self):
        run = "epoch   loss\n    1       1.18\ndone: 0.88\n"
        page = "It prints\n\n    epoch   loss\n        1       1.17\n    ...\n    done: 0.87\n"
        found = list(claims.other_figures(page, run))
        self.assertEqual(
            [problem.split(": ")[0] for problem in found], [f"{claims._EXAMPLE}:4", f"{claims._EXAMPLE}:6"]
        )
        self.assertEqual(list(claims.other_figures(page.replace("1.17", "1.18").replace("0.87", "0.88"), run)), [])

    def test_each_file_has_the_version_that_the_numbers_of_the_header_make(self):
        header = "".join(
            f"#define LOCKSTEP_VERSION_{part} {n}\n" for part, n in (("MAJOR", 1), ("MINOR", 2), ("PATCH", 30))
        )
        texts = {
            "base/version.h": f'{header}#define LOCKSTEP_VERSION "1.2.30"\n',
            "MODULE.bazel": 'module(\n    version = "1.2.30",\n)\nbazel_dep(name = "zlib", version = "1.3.1")\n',
            "third_party/libtorch/MODULE.bazel": 'module(\n    version = "1.2.30",\n)\n',
            "CITATION.cff": "cff-version: 1.2.0\nversion: 1.2.30\n",
        }
        self.assertEqual(list(claims.other_versions(texts)), [])
        for path, text in texts.items():
            for other, named in (("1.2.3", "1.2.3"), (None, "none")):
                changed = text.replace("1.2.30", other) if other else ""
                wanted = f"{path}: has the version {named}: the numbers of base/version.h are "
                self.assertIn(wanted, "\n".join(claims.other_versions({**texts, path: changed})))

    def test_modules_are_those_of_the_registry(self):
        registry = {"zlib": {"1.3": 1, "1.4": 2}, "abseil-cpp": {"2024": 1}}
        module = 'module(name = "lockstep", version = "0.1.0")\n'

        def problems(line):
            texts = {"MODULE.bazel": module + line, "a/MODULE.bazel": 'module(name = "libtorch", version = "0.1.0")\n'}
            return list(claims.unknown_modules(texts, registry))

        for line in (
            'bazel_dep(name = "zlib", version = "1.3", max_compatibility_level = 2)\n',
            'bazel_dep(name = "libtorch", version = "0.1.0")\nbazel_dep(name = "lockstep")\n',
            'single_version_override(module_name = "abseil-cpp", version = "2024")\n',
        ):
            self.assertEqual(problems(line), [], line)
        for line, wanted in (
            ('bazel_dep(name = "libz", version = "1.3")', "libz, which tools/registry/modules.json lacks: "),
            ('bazel_dep(name = "zlib", version = "1.5")', "zlib 1.5: tools/registry/modules.json has 1.3, 1.4"),
            ('bazel_dep(name = "zlib")', "zlib without a version: "),
            (
                'bazel_dep(name = "zlib", version = "1.3", max_compatibility_level = 3)',
                "zlib with the compatibility level 3: tools/registry/modules.json has 1, 2",
            ),
            ('single_version_override(module_name = "abseil-cpp", version = "2025")', "abseil-cpp 2025: "),
            ('bazel_dep(name = "libtorch", version = "0.2.0")', "libtorch 0.2.0: "),
        ):
            found = problems(line)
            self.assertEqual(len(found), 1, line)
            self.assertTrue(found[0].startswith("MODULE.bazel:2: names the module " + wanted), found)


if __name__ == "__main__":
    unittest.main()
