#!/usr/bin/env python3
"""Compares what each public target pulls in with the table of docs/dependencies.md, by one `./bazelw query`.

  tools/dependencies/check.py [STARTUP_OPTION...]   options of Bazel's before the command, such as --output_base=...

It prints a line for each problem, with the path to a dependency that the table does not allow; exit code 1 if there is one.
Both branches of a select count.
"""

import dataclasses
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = "docs/dependencies.md"

_ROW = re.compile(r"^\| (`.*?) \| (.*?) \| (.*?) \|$", re.M)
_LIBRARY = "//third_party:"
# Parts of the rules in tools/cc.bzl.
_BUILD = ("//tools:", "//tools/flags:")
# Libraries that only tests and programs use, and the targets that lead programs to them.
_OF_PROGRAMS = {"benchmark": (), "gflags": ("//base:command_line",), "gtest": (), "gtest_main": ()}


@dataclasses.dataclass
class Target:
    kind: str
    inputs: list
    public: bool = False
    testonly: bool = False


def targets_of(query):
    """{label: Target} of the XML that `bazel query --output=xml` prints."""
    found = {}
    for rule in xml.etree.ElementTree.fromstring(query).iter("rule"):
        visibility = [label.get("value") for label in rule.findall("list[@name='visibility']/label")]
        testonly = rule.find("boolean[@name='testonly']")
        found[rule.get("name")] = Target(
            rule.get("class"),
            [label.get("name") for label in rule.findall("rule-input")],
            # A deprecated target forwards to another one, whose line counts.
            "//visibility:public" in visibility and rule.find("string[@name='deprecation']") is None,
            testonly is not None and testonly.get("value") == "true",
        )
    return found


def _name(label):
    package, _, name = label.partition(":")
    return package if package.endswith(f"/{name}") else label


def _house(label):
    """The part of the tree that the table names: a top-level folder, or one in tools."""
    folders = label[2:].partition(":")[0].split("/")
    return "/".join(folders[: 2 if folders[0] == "tools" else 1])


def pulled_in(targets, label):
    """{library or folder: the path to it} of what a target depends on, apart from its own folder."""
    paths, found = {label: [label]}, {}
    waiting = [label]
    for current in waiting:
        for used in targets[current].inputs if current in targets else []:
            if used in paths or used.startswith("@") or used.startswith(_BUILD):
                continue
            paths[used] = [*paths[current], used]
            if used.startswith(_LIBRARY):
                found.setdefault(used.removeprefix(_LIBRARY), paths[used])
            elif used in targets:
                waiting.append(used)
                if _house(used) != _house(label):
                    found.setdefault(_house(used), paths[used])
    return found


def rows_of(page):
    """[labels, allowed]: the lines of the table. `//a:all` is for those targets of //a that have no line."""
    rows = []
    for first, *others in _ROW.findall(page):
        labels, package = [], ""
        for label in re.findall(r"`(.*?)`", first):
            package = package if label.startswith(":") else label.partition(":")[0]
            name = label.partition(":")[2] or package.rpartition("/")[2]
            labels.append(f"{package}:{name}")
        rows.append((labels, re.findall(r"`(.*?)`", " ".join(others))))
    return rows


def problems(targets, rows):
    allowed = {label: index for index, (labels, _) in enumerate(rows) for label in labels}
    used_by_row = [set() for _ in rows]
    for label, target in sorted(targets.items()):
        if (
            not target.public
            or target.testonly
            or _house(label) == "third_party"
            or target.kind in ("sh_test", "filegroup")
        ):
            continue
        index = allowed.get(label, allowed.get(f"{label.partition(':')[0]}:all"))
        if index is None:
            yield f"{PAGE}: has no line for {_name(label)}"
            continue
        for name, path in pulled_in(targets, label).items():
            used_by_row[index].add(name)
            if name not in rows[index][1]:
                yield f"{_name(label)} pulls in {name}: {' -> '.join(map(_name, path))}"
    for (labels, names), used in zip(rows, used_by_row):
        for label in labels:
            if not label.endswith(":all") and not (label in targets and targets[label].public):
                yield f"{PAGE}: names {_name(label)}, which is not a public target"
        for name in sorted(set(names) - used):
            yield f"{PAGE}: lets {', '.join(map(_name, labels))} pull in {name}: delete it, nothing there does"
    yield from _libraries_for_programs(targets)


def _libraries_for_programs(targets):
    for label, target in sorted(targets.items()):
        if target.kind != "cc_library" or target.testonly or _house(label) in ("examples", "tools/bench"):
            continue
        for name, exceptions in _OF_PROGRAMS.items():
            if _LIBRARY + name in target.inputs and label not in exceptions and not label.startswith(_BUILD):
                yield f"{_name(label)} is a library and depends on {_LIBRARY}{name}, which is for tests and programs"


def main():
    query = ["query", "--noshow_progress", "--noimplicit_deps", "--output=xml", "kind(rule, //...)"]
    run = subprocess.run(["./bazelw", *sys.argv[1:], *query], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if run.returncode:
        sys.exit(f"check.py: bazel query ended with code {run.returncode}")
    rows = rows_of((ROOT / PAGE).read_text())
    found = list(problems(targets_of(run.stdout), rows))
    for problem in found:
        print(problem)
    print(f"{sum(len(labels) for labels, _ in rows)} targets in {len(rows)} lines, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
