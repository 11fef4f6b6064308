#!/usr/bin/env python3
"""evaluate.py finds what Bazel 9 refuses, and nothing in this tree."""

import pathlib
import unittest

import evaluate

ROOT = pathlib.Path(evaluate.__file__).resolve().parents[2]


class EvaluateTest(unittest.TestCase):
    maxDiff = None

    # The least of Lockstep that is evaluated with its rules.
    FILES = {
        "MODULE.bazel": """module(name = "lockstep")
bazel_dep(name = "rules_cc")
bazel_dep(name = "rules_shell")
lockstep = use_extension("//third_party:extensions.bzl", "lockstep")
use_repo(lockstep, "lockstep_rules", "lockstep_zlib")
""",
        "third_party/BUILD": 'alias(name = "zlib", actual = "@lockstep_zlib//:lib")\n',
        "third_party/extensions.bzl": '''"""."""
load("//third_party:module_library.bzl", "module_library")
load("//third_party:rules.bzl", "rules_repository")

def _impl(module_ctx):
    rules_repository(name = "lockstep_rules", built_in = False)
    module_library(name = "lockstep_zlib", targets = ["@rules_cc//:zlib"])

lockstep = module_extension(implementation = _impl, tag_classes = {"path": tag_class({"path": attr.string()})})
''',
        **{
            name: (ROOT / name).read_text()
            for name in ("third_party/cc_rules.bzl", "third_party/module_library.bzl", "third_party/rules.bzl")
        },
    }

    def problems(self, files):
        return evaluate.Evaluation().run(evaluate.repositories_of({**self.FILES, **files}))[0]

    def test_this_tree_has_no_problem(self):
        problems, count = evaluate.Evaluation().run(evaluate.repositories_of(evaluate.files_of(ROOT)))
        self.assertEqual(problems, [])
        self.assertGreater(count, 100)

    def test_what_bazel_9_has_is_no_problem(self):
        load = 'load("//third_party:cc_rules.bzl", "cc_library")\n'
        for files in (
            {},
            {
                "a/BUILD": load + 'cc_library(name = "a", srcs = ["a.cc"], deps = ["//third_party:zlib"])\n',
                "a/a.cc": "",
            },
            {"a/BUILD": 'exports_files(["x"])\n', "a/x": "", "b/BUILD": 'filegroup(name = "b", srcs = ["//a:x"])\n'},
            {"a/BUILD": 'genrule(name = "g", outs = ["o"], cmd = "")\nalias(name = "b", actual = ":o")\n'},
            {"a/BUILD": 'filegroup(name = "f", srcs = glob(["**/*.cc"]))\n', "a/x/y.cc": ""},
            {"a/x.bzl": "a = struct(b = Label('//a').package)\n", "a/BUILD": 'load(":x.bzl", "a")\n'},
            {".bazelrc": "build --copt=-O2 --noshow_progress\n# --javac\n"},
            {
                "examples/consumer/MODULE.bazel": 'module(name = "c")\nbazel_dep(name = "lockstep")\n'
                'e = use_extension("@lockstep//third_party:extensions.bzl", "lockstep")\ne.path(path = "/opt")\n',
                "examples/consumer/BUILD": 'alias(name = "z", actual = "@lockstep//third_party:zlib")\n',
            },
            {
                "third_party/libtorch/MODULE.bazel": 'module(name = "libtorch")\n',
                "third_party/libtorch/BUILD": 'filegroup(name = "libtorch")\n',
                "third_party/libtorch/consumer/MODULE.bazel": 'bazel_dep(name = "libtorch")\n',
                "third_party/libtorch/consumer/BUILD": 'alias(name = "a", actual = "@libtorch")\n',
                "a/BUILD": 'alias(name = "a", actual = "//third_party/libtorch")\n',
            },
        ):
            self.assertEqual(self.problems(files), [], files)

    def check(self, wanted, files):
        found = self.problems(files)
        self.assertEqual(len(found), 1, found)
        self.assertIn(wanted, found[0])

    def test_rules_and_providers_that_are_gone_are_found(self):
        self.check("a/BUILD:2: Variable `cc_library` not found", {"a/BUILD": '\ncc_library(name = "a")\n'})
        self.check("a/BUILD:1: Variable `sh_test` not found", {"a/BUILD": 'sh_test(name = "a")\n'})
        self.check(
            "a/x.bzl:1: Object of type `struct` has no attribute `cc_library`", self.bzl("x = native.cc_library\n")
        )
        self.check("a/x.bzl:2: Variable `CcInfo` not found", self.bzl("\nx = [CcInfo]\n"))
        self.check("a/x.bzl:1: Variable `alias` not found", self.bzl("x = alias\n"))
        self.check(
            "Variable `cc_binary`", {"examples/consumer/WORKSPACE": "", "examples/consumer/BUILD": "cc_binary()\n"}
        )

    def test_functions_that_nobody_calls_are_read(self):
        function = '"""."""\n\ndef x():\n    native.%s(name = "x")\n'
        self.check("a/x.bzl:4: Bazel 9 has no native.sh_binary", self.bzl(function % "sh_binary"))
        self.assertEqual(self.problems(self.bzl(function % "filegroup")), [])
        self.assertEqual(self.problems({"a/BUILD": "", "a/only_workspace.bzl": function % "local_repository"}), [])
        self.check("a/x.bzl:3: cc_common has no gone", self.bzl('"""."""\ndef x(cc):\n    return cc.common.gone\n'))

    def test_attributes_that_are_gone_are_found(self):
        rule = "x = rule(implementation = None, %s)\n"
        self.check('a/x.bzl:1: there is no cfg = "host"', self.bzl('x = attr.label(cfg = "host")\n'))
        self.check(
            "incompatible_use_toolchain_transition", self.bzl(rule % "incompatible_use_toolchain_transition = True")
        )
        self.check("has no attribute distribs", {"a/BUILD": 'filegroup(name = "a", distribs = [])\n'})
        platforms = self.bzl(rule % 'attrs = {"x": attr.label(default = "@bazel_tools//platforms")}', 'x(name = "y")\n')
        self.check("a/BUILD:2: names @bazel_tools//platforms:platforms: Bazel 9 is not known", platforms)

    def test_loads_of_what_does_not_exist_are_found(self):
        self.check("a/BUILD:1: load of :x.bzl: there is no such file", {"a/BUILD": 'load(":x.bzl", "x")\n'})
        self.check(
            "load of //b:x.bzl: there is no such file in a package",
            {"a/BUILD": 'load("//b:x.bzl", "x")\n', "b/x.bzl": ""},
        )
        self.check("a/BUILD:1", {"a/BUILD": 'load(":x.bzl", "y")\n', "a/x.bzl": "x = 1\n"})
        self.check(
            "names no repository @rules_java", {"a/BUILD": 'load("@rules_java//java:defs.bzl", "java_library")\n'}
        )
        self.check(
            "no such file", {"a/x.bzl": 'load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "x")\n', "a/BUILD": ""}
        )
        toolchain = 'load("@rules_cc//cc:find_cc_toolchain.bzl", _x = "cc_library")\nx = _x\n'
        self.check("a/x.bzl:1: Module has no symbol `cc_library`", self.bzl(toolchain))

    def test_labels_of_what_does_not_exist_or_is_not_exported_are_found(self):
        alias = '\nalias(name = "b", actual = "%s")\n'
        self.check("b/BUILD:2: names //c:c: there is no such package", {"b/BUILD": alias % "//c"})
        self.check("b/BUILD:2: names //b:c: there is no such target", {"b/BUILD": alias % ":c"})
        self.check(
            "names @libtorch//:libtorch: there is no such package",
            {
                "third_party/libtorch/consumer/WORKSPACE": "",
                "third_party/libtorch/consumer/MODULE.bazel": 'bazel_dep(name = "libtorch")',
                "third_party/libtorch/consumer/BUILD": alias % "@libtorch",
            },
        )
        self.check("a/y: there is no such target", {"b/BUILD": alias % "//b:a/y", "b/a/BUILD": "", "b/a/y": ""})
        self.check(
            "b/BUILD:2: names //a:x: a file that //a does not export",
            {"a/BUILD": "", "a/x": "", "b/BUILD": alias % "//a:x"},
        )
        self.check(
            "the glob pattern *.md can match nothing", {"a/BUILD": 'filegroup(name = "a", srcs = glob(["*.md"]))\n'}
        )

    def test_repositories_and_tags_that_the_module_lacks_are_found(self):
        for name, old, new, wanted in (
            (
                "MODULE.bazel",
                ', "lockstep_zlib"',
                "",
                "third_party/BUILD:1: @lockstep_zlib//:lib: MODULE.bazel names no",
            ),
            ("MODULE.bazel", "_zlib", '_zlib", "lockstep_x', "MODULE.bazel:5: names the repository lockstep_x"),
            ("MODULE.bazel", ")\nuse_repo", ")\nlockstep.wheel()\nuse_repo", "MODULE.bazel:5: Object of type"),
            ("MODULE.bazel", ")\nuse_repo", ")\nlockstep.path(x = 1)\nuse_repo", "the tag path has no attribute x"),
            ("third_party/extensions.bzl", "@rules_cc//:zlib", "@zlib//:z", "MODULE.bazel names no repository @zlib"),
            (
                "third_party/extensions.bzl",
                ", targets",
                ", deps",
                "extensions.bzl:7: the rule of repository lockstep_zlib",
            ),
        ):
            self.assertIn(old, self.FILES[name])
            found = self.problems({name: self.FILES[name].replace(old, new)})
            self.assertIn(wanted, found[0])

    def test_flags_that_are_gone_are_found(self):
        self.check(".bazelrc:2: --gone is not known", {".bazelrc": "build --copt=-O2\nbuild --gone\n"})

    def bzl(self, text, use=""):
        """A .bzl file that defines x, and a BUILD file that loads it."""
        return {"a/x.bzl": text, "a/BUILD": f'load(":x.bzl", "x")\n{use}'}


if __name__ == "__main__":
    unittest.main()
