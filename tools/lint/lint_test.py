#!/usr/bin/env python3
import ast
import contextlib
import io
import pathlib
import tempfile
import unittest

import cmake_sources
import compile_commands
import cpp
import documents
import formatting
import header_warnings
import labels
import pages
import plan
import prose
import rooms
import rules
import targets
import terminal
import tidy


class RulesTest(unittest.TestCase):
    def test_finds_notes_to_do_something_later_but_no_longer_words(self):
        self.assertEqual(len(rules.check("a/b.cc", "// TO" + "DO: more\n// FIX" + "ME\n")), 2)
        self.assertEqual(rules.check("a/b.cc", 'mkstemp("/tmp/x.XXXXXX");\n'), [])

    def test_external_repositories_are_named_in_third_party_only(self):
        text = 'x = "@lockstep_zlib//:lib"\n'
        self.assertIn("a/BUILD:1: names the external repository @lockstep_zlib//", rules.check("a/BUILD", text)[0])
        self.assertEqual(rules.check("MODULE.bazel", text), [])
        self.assertEqual(rules.check("third_party/BUILD", text), [])
        self.assertEqual(rules.check("a/README.md", text), [])
        self.assertEqual(rules.check("examples/consumer/BUILD", 'load("@rules_cc//cc:defs.bzl", "cc_binary")\n'), [])

    def test_only_two_packages_are_public_by_default(self):
        text = 'package(\n    default_visibility = ["//visibility:public"],\n)\n'
        self.assertIn("a/BUILD:2: everything here is public", rules.check("a/BUILD", text)[0])
        self.assertEqual(rules.check("third_party/BUILD", text), [])
        self.assertEqual(rules.check("tools/flags/BUILD", text), [])
        self.assertEqual(rules.check("a/BUILD", text.replace("public", "private")), [])

    def test_a_build_file_that_is_no_python_is_a_problem_not_a_crash(self):
        self.assertIn("a/BUILD:1: is not Python's syntax", rules.check("a/BUILD", "package(\n")[0])


class LabelsTest(unittest.TestCase):
    LIBRARY = 'torch_library(\n    name = "%s",\n    visibility = ["//visibility:public"],\n)\n'

    def gone(self, changes, after):
        return list(labels.gone({"a/BUILD": self.LIBRARY % "a", "a/b/BUILD": self.LIBRARY % "c"}, after, changes))

    def test_a_public_target_that_has_gone_is_named_in_the_changes(self):
        after = {"a/BUILD": self.LIBRARY % "a"}
        self.assertIn("a/b/BUILD: the public target //a/b:c has gone", self.gone("", after)[0])
        self.assertEqual(self.gone("Depend on `//a` in place of `//a/b:c`.", after), [])
        self.assertIn("public target //a has gone", self.gone("`//a/b:c`", {})[0])
        self.assertEqual(self.gone("`//a`, `//a/b:c`", {}), [])

    def test_one_that_is_private_now_has_gone(self):
        private = 'torch_library(name = "c")\n'
        self.assertEqual(len(self.gone("", {"a/BUILD": self.LIBRARY % "a", "a/b/BUILD": private})), 1)

    def test_a_deprecated_alias_is_still_there(self):
        alias = 'alias(name = "c", actual = "//d", deprecation = "use //d", visibility = ["//visibility:public"])\n'
        self.assertEqual(self.gone("", {"a/BUILD": self.LIBRARY % "a", "a/b/BUILD": alias}), [])


class CppTest(unittest.TestCase):
    def namespace_problems(self, path, *namespaces):
        return cpp.check(path, "".join(f"namespace {namespace} {{\n}}\n" for namespace in namespaces))

    def test_a_namespace_is_made_of_the_folders_of_its_file(self):
        for path, *namespaces in (
            ("comm/x.h", "lockstep::comm"),
            ("comm/x.h", "lockstep::comm", "lockstep::comm::internal"),
            ("comm/watch/x.h", "lockstep::comm"),
            ("comm/watch/x.cc", "lockstep::comm::watch::internal"),
            ("comm/watch/internal/x.h", "lockstep::comm::internal"),
            ("comm/watch/internal/x.h", "lockstep::comm::watch::internal"),
            ("base/x.h", "lockstep"),
            ("base/testing/x.h", "lockstep::testing"),
            ("tools/bench/x.h", "lockstep"),
            ("launch/internal/x.h", "lockstep::launch::internal"),
            ("comm/x_test.cc", "lockstep::comm::internal"),
            ("comm/failures/x.cc", "lockstep::comm"),
        ):
            self.assertEqual(self.namespace_problems(path, *namespaces), [], (path, namespaces))
        for path, *namespaces in (
            ("comm/x.h", "lockstep"),
            ("comm/x.h", "lockstep::ddp"),
            ("comm/x.h", "lockstep::comm::internal"),
            ("comm/watch/x.h", "lockstep::watch"),
            ("comm/watch/x.h", "lockstep::comm::internal"),
            ("comm/watch/x.cc", "lockstep::comm::internal"),
            ("comm/internal/x.h", "lockstep::comm"),
            ("comm/testing/x.h", "lockstep::comm"),
        ):
            found = self.namespace_problems(path, *namespaces)
            self.assertEqual(len(found), 1, (path, namespaces))
            self.assertIn(f"{path}:1: namespace {namespaces[0]} is not the folder's: lockstep", found[0])

    def test_a_file_that_only_defines_members_is_in_the_namespace_of_their_class(self):
        members = "namespace lockstep::comm {\ntemplate <typename T>\nWork Group::Call(T x) const {\n  if (x) { f(); }\n}\n}\n"
        self.assertEqual(cpp.check("comm/internal/x.h", members), [])
        self.assertEqual(len(cpp.check("comm/internal/x.h", members + "\n" + members.replace("Group::", ""))), 1)

    def test_optional_is_the_standard_librarys(self):
        self.assertIn("a/x.cc:2: absl::optional", cpp.check("a/x.cc", "\nabsl::optional<int> x;\n")[0])
        self.assertEqual(cpp.check("a/x.cc", "// absl::optional\nstd::optional<int> x;\n"), [])
        self.assertIn("a/x.cc:1: clang 18", cpp.check("a/x.cc", "t.const_data_ptr<float>();\n")[0])
        self.assertEqual(cpp.check("a/x.cc", "t.const_data_ptr(); t.data_ptr<float>();\n"), [])

    def test_headers_of_samplers_and_datasets_leave_torch_data_to_the_adapters(self):
        text = "#pragma once\n#include <torch/data/example.h>\n"
        for path in ("sampler/x.h", "data/internal/x.h"):
            self.assertIn(f"{path}:2: includes torch/data/example.h, which takes", cpp.check(path, text)[0])
        for name in ("torch/types.h", "torch/torch.h"):
            self.assertEqual(len(cpp.check("data/x.h", f"#include <{name}>\n")), 1, name)
        for path in ("sampler/torch_sampler.h", "data/torch_dataset.h", "data/testing/x.h", "data/x.cc", "ddp/x.h"):
            self.assertEqual(cpp.check(path, text), [], path)
        self.assertEqual(cpp.check("data/x.h", "#include <torch/nn/module.h>\n// #include <torch/torch.h>\n"), [])

    def test_headers_test_includes_every_header_of_its_folder(self):
        sources = {
            "data/headers_test.cc": '#include "lockstep/data/a.h"\n',
            "data/a.h": "",
            "data/b.h": "",
            "data/internal/c.h": "",
            "data/torch_dataset.h": "",
        }
        self.assertEqual(
            cpp.unlisted_headers(sources),
            ["data/headers_test.cc: does not include lockstep/data/b.h: it finds slow headers behind it"],
        )

    def test_a_condition_does_not_compare_with_nullptr(self):
        for text in ("if (x != nullptr) {}", "while (f(y) &&\n nullptr == x) {}"):
            self.assertEqual(len(cpp.check("a/x.cc", text)), 1, text)
        for text in (
            "return x == nullptr;",
            "if (x) f(y == 1);",
            "if (x) f(z != nullptr);",
            'if (s == "== nullptr") {}',
        ):
            self.assertEqual(cpp.check("a/x.cc", text), [], text)

    def test_a_function_that_is_declared_and_nowhere_defined_is_found(self):
        header = """
namespace lockstep {
class A : public B {
 public:
  explicit A(int x = f(1), std::map<int, int> y = {});
  ~A();
  virtual void Pure() = 0;
  A(const A&) = delete;
  void Inline() const { g(); }
  template <typename T>
  void Template(T x);
  void Gone(int x) const;
  static absl::StatusOr<A> Create(const std::vector<int>& sizes = {1, 2}) ABSL_LOCKS_EXCLUDED(m);
  std::function<void(int)> field;
  int guarded_ ABSL_GUARDED_BY(m);
  void (*pointer)(int);
};
int Free(A* a);
int FreeGone(A* a);
}  // namespace lockstep
"""
        source = """
A::A(int x, std::map<int, int> y) : x_(x), y_{y} {}
A::~A() = default;
absl::StatusOr<A> A::Create(const std::vector<int>& sizes) { return A(); }
int Free(A* a) {
  if (FreeGone(a)) { a->Gone(1); }
  return 0;
}
"""
        self.assertEqual(
            cpp.undefined({"a/a.h": header, "a/a.cc": source}),
            [
                "a/a.h:12: A::Gone is declared and not defined anywhere: delete it",
                "a/a.h:19: FreeGone is declared and not defined anywhere: delete it",
            ],
        )


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

    def test_comments_of_headers_read_like_pages(self):
        header = "// An index that is\n// no rank fails.\nint x;  // those of Python\nint is_no; bool those_of();\n"
        found = rules.check("a/x.h", header)
        self.assertEqual([problem.split(": ")[0] for problem in found], ["a/x.h:2", "a/x.h:3"])
        self.assertEqual(rules.check("a/x.cc", header), [])

    def test_a_comment_in_a_header_or_a_source_begins_with_a_subject(self):
        text = '// %s x.\nint y;  // %s x.\n        // %s x.\n// A z.\n// %s x.\nf("// %s x.");\n'
        for words in ("Of", "Whether", "What", "The same"):
            for path in ("a/x.h", "a/x.cc", "examples/x.cc"):
                found = rules.check(path, text.replace("%s", words))
                self.assertEqual([problem.split(": ")[0] for problem in found], [f"{path}:1", f"{path}:2"], words)
                self.assertIn(f'a comment begins with "{words}": write "Returns whether ..."', found[0])
        for words in ("Whatever", "Often", "Returns whether", "What_ever"):
            self.assertEqual(rules.check("a/x.cc", text.replace("%s", words)), [], words)

    def test_the_subject_of_a_commit_is_short_and_has_no_full_stop(self):
        self.assertEqual(list(prose.subjects(f"1a {'x' * 72}\n2b Fix it\n")), [])
        self.assertEqual(
            list(prose.subjects(f"1a {'x' * 73}\n2b Fix it.\n")),
            [
                "commit 1a: the subject has 73 characters: write at most 72",
                "commit 2b: the subject ends with a full stop: leave it out",
            ],
        )
        self.assertEqual(list(prose.subjects("")), [])

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
            "| `lockstep/x/a/b.h` | `@lockstep//x/a:b` | |\n| `lockstep/x/a/renamed.h` | `@lockstep//x/a` | |\n", page
        )
        self.assertTrue(page.endswith("\n\n- `@lockstep//x/a:linked`\n"), page)
        for other in ("internal/c.h", "private"):
            self.assertNotIn(other, page)

    def test_the_page_has_the_cmake_target_of_what_is_not_for_tests(self):
        text = 'cc_library(name = "{}", hdrs = ["{}.h"], {}visibility = ["//visibility:public"])\n'
        page = pages.headers_page(
            {"comm/BUILD": text.format("a", "a", "") + text.format("b", "b", "testonly = True, ")}
        )
        self.assertIn("| `lockstep/comm/a.h` | `@lockstep//comm:a` | `lockstep::comm` |\n", page)
        self.assertIn("| `lockstep/comm/b.h` | `@lockstep//comm:b` | |\n", page)

    def test_public_headers_are_those_of_targets_that_are_not_for_tests(self):
        text = 'cc_library(name = "{}", hdrs = ["{}.h"], {}visibility = ["//visibility:public"])\n'
        build = (
            text.format("a", "a", "") + text.format("b", "b", "testonly = True, ") + text.format("c", "internal/c", "")
        )
        self.assertEqual(pages.public_headers({"comm/BUILD": build}), ["lockstep/comm/a.h"])

    def test_a_public_header_without_a_comment_on_itself_or_its_main_class_is_named(self):
        guard = "#ifndef X_H_\n#define X_H_\n\nnamespace a {\n\n// In b.h.\nclass B;\n\n{}class C {\n  // A field.\n  int x;\n};\n\n}  // namespace a\n"
        texts = {
            "x/a/b.h": guard.replace("{}", ""),
            "x/a/renamed.h": guard.replace("{}", "// What it is for.\n"),
            "x/a/internal/c.h": "",
        }
        found = list(pages.undocumented_headers({"x/a/BUILD": self.BUILD}, texts.get))
        self.assertEqual(found, ["x/a/b.h: does not say what it is for: begin it, or its main class, with a comment"])
        texts["x/a/b.h"] = "// What it is for.\n\n" + texts["x/a/b.h"]
        self.assertEqual(list(pages.undocumented_headers({"x/a/BUILD": self.BUILD}, texts.get)), [])

    def test_the_macros_of_cc_bzl_stand_for_the_rules_that_they_make(self):
        text = 'torch_library(name = "a", deps = [":b"])\ncc_tests(names = ["x_test"], programs = {"RUN": ":run"})\n'
        (library, of_library), (test, of_test) = targets.rules_of(text, "testing")
        self.assertEqual((library, test), ("cc_library", "cc_test"))
        words = lambda value: [node.value for node in ast.walk(value) if isinstance(node, ast.Constant)]
        self.assertEqual(
            {name: words(value) for name, value in of_library.items()},
            {
                "name": ["a"],
                "deps": [":b", "//base:status", "//third_party:absl", "//base:torch_status", "//third_party:torch"],
                "srcs": ["a.cc"],
                "hdrs": ["a.h"],
                "testonly": [True],
            },
        )
        self.assertEqual((words(of_test["srcs"]), words(of_test["data"])), (["x_test.cc"], [":run"]))

    def test_a_header_includes_what_the_headers_that_it_includes_include(self):
        texts = {
            "lockstep/a.h": '#include <vector>\n\n#include "lockstep/b.h"\n',
            "lockstep/b.h": '#include "absl/status/status.h"\n#include "lockstep/a.h"\n',
        }
        self.assertEqual(header_warnings.included("lockstep/a.h", texts.get), {"vector", "absl/status/status.h"})

    def test_a_page_that_is_out_of_date_is_a_problem_until_it_is_written(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {
                "x/a/BUILD": self.BUILD,
                "docs/headers.md": "",
                "docs/architecture.md": "## Folders\n\n```\nx/   a house\n  a/   a room\ny/   another\n```\n",
                "y/BUILD": library("y", "//x/a:b"),
            }.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            self.assertEqual(len(pages.check(root, ["x/a/BUILD", "y/BUILD"], fix=False)), 2)
            with contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(pages.check(root, ["x/a/BUILD", "y/BUILD"], fix=True), [])
            self.assertEqual(pages.check(root, ["x/a/BUILD", "y/BUILD"], fix=False), [])


def library(name, *deps):
    return f'cc_library(name = "{name}", deps = {list(deps)})\n'


class CmakeSourcesTest(unittest.TestCase):
    BUILD_FILES = {
        "base/BUILD": """
cc_library(name = "status", srcs = ["status.cc"], hdrs = ["status.h"], deps = ["//third_party:absl"])
cc_library(name = "testing", testonly = True, srcs = ["testing.cc"], deps = [":status"])
""",
        "comm/BUILD": """
alias(name = "comm", actual = ":group", visibility = ["//visibility:public"])
cc_library(
    name = "group",
    srcs = ["group.cc"],
    hdrs = ["group.h", "internal/a.h", "internal/b.h"],
    deps = ["//base:status"],
)
cc_test(name = "group_test", srcs = ["group_test.cc"], deps = [":comm", "//base:testing", "//third_party:gtest"])
""",
        "comm/nccl/BUILD": """
link_only(name = "nccl", library = select({"//tools/flags:cuda_enabled": ":real", "//conditions:default": ":stub"}))
cc_library(
    name = "real",
    srcs = ["real.cc"],
    copts = ["-O3"],
    deps = ["//comm", "//third_party:torch_cuda"],
    alwayslink = True,
)
cc_library(name = "stub", srcs = ["stub.cc"], deps = ["//comm"], alwayslink = True)
""",
    }

    def page(self, **others):
        read = {"comm/group.h": '#include "lockstep/comm/internal/a.h"\n'}
        files = {**self.BUILD_FILES, **{f"{folder}/BUILD": text for folder, text in others.items()}}
        return cmake_sources.page(files, lambda name: read.get(name, ""), ["//comm:group_test"])

    def test_a_component_has_the_sources_of_its_targets_and_uses_what_they_use(self):
        page = self.page()
        for line in (
            "set(lockstep_base_sources base/status.cc)",
            "set(lockstep_base_third_party absl)",
            "set(lockstep_comm_sources comm/group.cc)",
            "set(lockstep_comm_components base)",
            "set(lockstep_comm_nccl_components comm)",
            "set(lockstep_comm_nccl_whole_archive TRUE)",
            'lockstep_source_options("-O3"\n  comm/nccl/real.cc\n)',
        ):
            self.assertIn(f"\n{line}\n", page)
        self.assertNotIn("testing.cc", page.partition("lockstep_all_tests")[0])

    def test_users_get_the_public_headers_and_what_these_include(self):
        self.assertIn("\nset(lockstep_comm_headers comm/group.h comm/internal/a.h)\n", self.page())

    def test_sources_of_builds_with_and_without_cuda_are_apart(self):
        page = self.page()
        self.assertIn("\nset(lockstep_comm_nccl_cpu_sources comm/nccl/stub.cc)\n", page)
        self.assertIn("\nset(lockstep_comm_nccl_cuda_sources comm/nccl/real.cc)\n", page)
        self.assertIn("\nset(lockstep_comm_nccl_cuda_third_party torch_cuda)\n", page)

    def test_a_test_has_the_sources_of_what_only_tests_use(self):
        self.assertIn("\nset(lockstep_test_comm_group_test_sources base/testing.cc comm/group_test.cc)\n", self.page())
        self.assertIn("\nset(lockstep_test_comm_group_test_components base comm)\n", self.page())

    def test_a_library_in_no_component_and_a_circle_of_components_are_errors(self):
        with self.assertRaisesRegex(cmake_sources.CannotWrite, "other/BUILD: //other:other is in no component"):
            self.page(other='cc_library(name = "other", srcs = ["other.cc"])')
        with self.assertRaisesRegex(cmake_sources.CannotWrite, "use each other in a circle: data, models"):
            self.page(data=library("data", "//models"), models=library("models", "//data"))


class PlanTest(unittest.TestCase):
    FOLDERS = "## Folders\n\n```\n{}```\n"

    def test_rooms_are_two_folders_deep_and_tests_are_left_out(self):
        uses = rooms.rooms_and_uses(
            {
                "top/BUILD": library("top", "//mid/a/internal:x", "//low"),
                "mid/a/internal/BUILD": library("x", "//low")
                + 'cc_library(name = "t", testonly = True, deps = ["//top"])\n'
                + 'cc_test(name = "x_test", deps = ["//top"])\n',
                "mid/testing/BUILD": library("testing", "//top"),
                "low/BUILD": 'cc_library(name = "low", deps = select({"//flags:on": ["//low/b"], "//x": []}))\n',
                "low/b/BUILD": library("b"),
                "flags/BUILD": 'config_setting(name = "on")\n',
            }
        )
        self.assertEqual(
            uses, {"flags": set(), "low": {"low/b"}, "low/b": set(), "mid/a": {"low"}, "top": {"mid/a", "low"}}
        )

    def test_an_arrow_is_left_out_if_others_lead_to_the_same_house(self):
        houses = rooms.houses_of({"top": {"mid", "low"}, "mid": {"low"}, "low": set()})
        self.assertEqual(
            {name: house.own for name, house in houses.items()}, {"top": {"mid"}, "mid": {"low"}, "low": set()}
        )

    def test_an_arrow_starts_at_the_only_room_that_needs_it(self):
        houses = rooms.houses_of({"a": {"low"}, "a/room": {"a", "b"}, "b": {"low"}, "low": set()})
        self.assertEqual(houses["a"].own, {"low"})
        self.assertEqual(houses["a"].of_room, {"a/room": {"b"}})

    def test_a_folder_whose_rooms_belong_into_different_rows_is_split(self):
        houses = rooms.houses_of({"tools/top": {"mid"}, "mid": {"tools/low"}, "tools/low": set()})
        self.assertEqual(sorted(houses), ["mid", "tools/low", "tools/top"])
        self.assertEqual(plan.rows_of_houses(houses), [["tools/top"], ["mid"], ["tools/low"]])

    def test_inside_a_house_rooms_stand_above_those_they_use(self):
        houses = rooms.houses_of({"a/x": {"a/y"}, "a/y": {"a/z"}, "a/z": {"a/y"}, "a/w": set()})
        self.assertEqual(houses["a"].rooms, [["a/x"], ["a/w", "a/y", "a/z"]])

    def test_rooms_that_use_each_other_in_a_circle_are_an_error(self):
        with self.assertRaisesRegex(rooms.CannotDraw, "circle"):
            rooms.houses_of({"a": {"b"}, "b": {"a"}})

    def test_words_are_those_of_the_list_up_to_the_first_colon(self):
        page = self.FOLDERS.format("a/     one: more\n  b/ c/  two,\n         three; four\nd/\n       five (six)\n")
        self.assertEqual(plan.captions(page), {"a": "one", "a/b": "two, three", "a/c": "two, three", "d": "five"})
        self.assertEqual(
            plan.missing_folders(["a/BUILD", "a/z/BUILD", "a/testing/BUILD"], page),
            ["docs/architecture.md: its list of folders does not name a/z/"],
        )

    def test_every_house_and_arrow_is_drawn_even_where_arrows_must_cross(self):
        build_files = {f"{name}/BUILD": library(name) for name in "xyz"}
        build_files.update({f"{name}/BUILD": library(name, "//x", "//y", "//z") for name in "bcd"})
        build_files["a/BUILD"] = library("a", "//b", "//c", "//d")
        page = self.FOLDERS.format("".join(f"{name}/   words of {name}\n" for name in "abcdxyz"))
        svg = plan.picture(build_files, page)
        for name in "abcdxyz":
            self.assertIn(f">{name}</text>", svg)
            self.assertIn(f">words of {name}</text>", svg)
        self.assertEqual(svg.count('Z" fill='), 3 + 9)
        self.assertEqual(svg, plan.picture(build_files, page))


class TerminalTest(unittest.TestCase):
    def test_a_line_of_the_output_is_a_line_of_the_picture_and_long_ones_are_wrapped(self):
        svg = terminal.picture("$ run <it>\n    1   2\n" + "long " * 25 + "\n\n")
        self.assertIn(">$</tspan> run &lt;it&gt;</text>", svg)
        self.assertIn(">    1   2</text>", svg)
        self.assertEqual(svg.count("<text "), 4)


class DocumentsTest(unittest.TestCase):
    FILES = {
        ".bazelrc": "build:peer --x\n",
        "BUILD": "",
        "a/BUILD": 'cc_binary(name = "run", srcs = ["run.cc"], deps = [":b"])\ncc_library(name = "b", hdrs = ["b.h"])\n'
        'cc_test(name = "%s_test" % x)\n[cc_test(name = y + "_test") for y in ["one"]]\n',
        "a/z/BUILD": 'NAMES = {"two": []}\n[cc_test(name = y, deps = deps) for y, deps in NAMES.items()]\n',
        "a/b.h": "int Known();",
        "a/run.cc": 'DEFINE_int32(epochs, 5, "");',
        "a/README.md": "# a\n\n## Two words, `code`\n",
    }

    def problems(self, text):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, content in {**self.FILES, "docs/page.md": text}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(content)
            return documents.check(root, [*self.FILES, "docs/page.md"])

    def test_a_folder_with_a_public_target_has_a_readme_with_the_same_headings(self):
        headings = "# c\n\n## Targets\n\n## Example\n\n```sh\n# c\n```\n\n## Guarantees\n\n## Limits\n\n## More\n"
        build = 'cc_library(name = "c", visibility = ["//visibility:public"])\n'.replace("(", "(\n    ")
        for readme, words in (
            (headings, None),
            (None, "is missing"),
            (headings.replace("## Example", "## Use"), "expected"),
            (headings.replace("# c\n\n## T", "# C\n\n## T"), "expected"),
        ):
            with tempfile.TemporaryDirectory() as folder:
                root, names = pathlib.Path(folder), ["c/BUILD"]
                (root / "c").mkdir()
                (root / "c/BUILD").write_text(build)
                if readme:
                    (root / "c/README.md").write_text(readme)
                    names.append("c/README.md")
                found = documents.check(root, names)
                self.assertEqual(len(found), 1 if words else 0, found)
                self.assertIn(words or "", "".join(found))

    def test_what_exists_is_no_problem(self):
        for text in (
            "[a](../a), [b](../a/README.md#two-words-code), [c](https://x.y), [d](#top)\n# Top\n",
            "`//a:run`, `:b`, `//a/...`, `//...`, `@lockstep//a:b.h`, `//a:x_test`, https://x.y//z\n",
            "`//a:all`, `@lockstep//a/...`, `//a/z:two`, `//a:one_test`, `//<folder>:name`, `//my_net`, `//visibility:public`\n",
            "```sh\n./bazelw run //a:run -- --epochs=3 --help\n./bazelw test --config=peer //...\n```\n",
            "    bazel-bin/a/run --epochs 3\n",
            '```cpp\n#include "lockstep/a/b.h"\nf("(", x);  // :-)\n```\n',
            "`a/b.h`, `../a/b.h`, `comm::Known`, `comm/mine/x.h`\n",
            "```python\nlocal(name = 'x')\n```\n\n```bazelrc\nbuild --x\n# y\n```\n",
        ):
            self.assertEqual(self.problems(text), [], text)

    def test_what_does_not_exist_is_one(self):
        for text, words in (
            ("[a](../c)", "there is no c"),
            ("[a](../a/README.md#three)", "has no heading"),
            ("`//a:c`", "no BUILD file has it"),
            ("`//a:run`, `:c`", "names //a:c"),
            ("`//a`", "names //a: no BUILD"),
            ("`@lockstep//a:c`", "names @lockstep//a:c: no BUILD"),
            ("`//a/amp`", "names //a/amp: no BUILD"),
            ("`//c/...`", "names //c/...: no BUILD"),
            ("`//a/b/...`", "names //a/b/...: no BUILD"),
            ("`//c:all`", "names //c:all: no BUILD"),
            ("`//a/z:three`", "names //a/z:three: no BUILD"),
            ("```sh\n./bazelw test //a:gone\n```", "names //a:gone: no BUILD"),
            ('```python\ndeps = ["@lockstep//c"]\n```', "names @lockstep//c: no BUILD"),
            ("```\n./bazelw run //a:run -- --epoch=3\n```", "the flag --epoch: its sources do not define it"),
            ("    bazel-bin/a/run --epoch 3", "the flag --epoch"),
            ("```\n./bazelw test --config=gone //...\n```", ".bazelrc does not have it"),
            ('```cpp\n#include "lockstep/a/c.h"\n```', "there is no a/c.h"),
            ("```cpp\nf(x;\n```", "a ( without its other"),
            ("```cpp\nx.Known();\ny->Gone(1);\nMine();\n```", "the block calls Gone"),
            ("`GoneFunction(x)`", "names GoneFunction"),
            ("`a/c.h`", "names a/c.h"),
            ("`comm::Unknown`", "no source has the word Unknown"),
            ("```sh\nif\n```", "bash cannot read"),
            ("```python\n(\n```", "not Python's syntax"),
            ("```bazelrc\nbuidl --x\n```", "not a command of a .bazelrc"),
        ):
            found = self.problems(text + "\n")
            self.assertEqual(len(found), 1, (text, found))
            self.assertIn(words, found[0])
            self.assertTrue(found[0].startswith("docs/page.md:"), found)


class TidyTest(unittest.TestCase):
    def test_a_header_is_checked_through_the_source_or_else_the_test_beside_it(self):
        files = ["a/x.cc", "a/x.h", "a/x_test.cc", "a/y.h", "a/y_test.cc", "a/z.h"]
        self.assertEqual(tidy.sources_of(["a/x.h", "a/y.h", "a/z.h", "BUILD"], files), ["a/x.cc", "a/y_test.cc"])
        self.assertEqual(tidy.sources_of(["a/x_test.cc"], files), ["a/x_test.cc"])

    def test_tests_are_checked_last(self):
        self.assertEqual(tidy.in_order(["a_test.cc", "z.cc", "b.cc"]), ["b.cc", "z.cc", "a_test.cc"])

    def test_a_source_that_needs_cuda_is_not_checked(self):
        for header in ("c10/cuda/CUDAStream.h", "nccl.h", "torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp"):
            self.assertTrue(tidy.needs_cuda(f"#include <vector>\n#include <{header}>\n"))
        self.assertFalse(tidy.needs_cuda("#include <torch/cuda.h>\n// #include <nccl.h>\n"))


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
