#!/usr/bin/env python3
"""The record of disable_options.py is complete, and what it names exists."""

import pathlib
import re
import unittest

import disable_options

DDP = pathlib.Path("ddp")


def expected_names():
    options = (DDP / "options.h").read_text()
    names = disable_options.fields(options, "Options")
    names += [f"mixed_precision.{field}" for field in disable_options.fields(options, "MixedPrecision")]
    names += [f"JoinOptions.{field}" for field in disable_options.fields((DDP / "join.h").read_text(), "JoinOptions")]
    return names + ["NoSync", "Join", "RegisterHook"]


def rows():
    lines = (DDP / "testing/disabled_options.md").read_text().splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")][1:]


class RecordTest(unittest.TestCase):
    def test_fields_are_found_whatever_their_type(self):
        header = """struct S {
  // int commented = 1;
  int plain;
  bool on = true;

  absl::optional<c10::Device> device;  // int behind;
  std::map<int, std::string> names = {{1, "a"}};
};
"""
        self.assertEqual(disable_options.fields(header, "S"), ["plain", "on", "device", "names"])

    def test_the_record_names_every_option(self):
        self.assertIn("static_graph", expected_names())
        recorded = {row[0] for row in rows()}
        self.assertEqual([name for name in expected_names() if name not in recorded], [])

    def test_the_record_is_the_scripts(self):
        self.assertEqual([row[:3] for row in rows()], [[s.name, s.does, s.case] for s in disable_options.SHOWN])

    def test_each_test_case_exists(self):
        sources = "".join(path.read_text() for path in sorted(DDP.glob("*_test.cc")))
        cases = set(re.findall(r"^TEST\((\w+), (\w+)\)", sources, re.MULTILINE))
        text = (DDP / "testing/disabled_options.md").read_text()
        named = set(re.findall(r"\b([A-Z]\w+)\.([A-Z]\w+)\b", text))
        self.assertGreater(len(named), 15)
        self.assertEqual(named - cases, set())

    def test_each_test_target_exists(self):
        targets = set(re.findall(r'"(\w+_test)"', (DDP / "BUILD").read_text()))
        self.assertEqual({s.test for s in disable_options.SHOWN} - targets, set())


if __name__ == "__main__":
    unittest.main()
