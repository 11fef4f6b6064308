#!/usr/bin/env python3
"""Shows that the simulators find mistakes in the decisions that they run.

  tools/mutants.py [--level=launch|elastic] [--schedules=100000] [--only=name,name]

The mistakes are listed in launch/simulator/mutants.txt and elastic/simulator/mutants.txt:

  == launch/job
  min_nodes: one node fewer than the least is enough
  - if (candidates < job_.limits.min_nodes) {
  + if (candidates < job_.limits.min_nodes - @) {

The line behind "-" occurs once in the sources of the folder behind "==", @ is whether the mistake is made, and several lines are a text of several
lines. Lines ahead of them may say "first seed: N", for a mistake that shows in few schedules; "not found: " and why no rule
sees it; or "changes nothing: " and why nothing that anybody sees depends on it.

This program copies the checkout into a temporary folder, gives the sources a switch for each mistake, which is made when
LOCKSTEP_MUTANT names it, and builds the simulator once. With no mistake no schedule may break a rule, and with one mistake
some schedule must, unless the list says why not.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
LEVELS = "launch", "elastic"
LONGEST = 180  # seconds of a processor for a set of schedules, which takes half a minute

# Ahead of the namespace of a source.
SWITCH = """
#include <cstdlib>
#include <cstring>
namespace {
bool Mutant(const char* name) {
  static const char* const mutant = std::getenv("LOCKSTEP_MUTANT");
  return mutant && std::strcmp(mutant, name) == 0;
}
}  // namespace

"""


@dataclasses.dataclass
class Mutant:
    folder: str
    name: str
    does: str  # in words
    notes: dict = dataclasses.field(default_factory=dict)  # "first seed", "not found" and "changes nothing"
    before: list = dataclasses.field(default_factory=list)  # lines
    after: list = dataclasses.field(default_factory=list)


def mutants_of(level):
    """Those in the list of a level."""
    mutants, folder = [], ""
    for line in (ROOT / level / "simulator/mutants.txt").read_text().splitlines():
        sign, _, text = line.partition(" ")
        key, _, note = line.partition(": ")
        if sign == "==":
            folder = text
        elif sign == "-":
            mutants[-1].before.append(text)
        elif sign == "+":
            mutants[-1].after.append(text)
        elif key in ("first seed", "not found", "changes nothing"):
            mutants[-1].notes[key] = note
        elif re.fullmatch(r"\w+", key):
            mutants.append(Mutant(folder, key, note))
        elif line and sign != "#":
            sys.exit(f"{level}/simulator/mutants.txt: expected the name of a mistake, found {line}")
    return mutants


def sources_in(folder):
    return [path for path in sorted(folder.glob("*.cc")) if not path.stem.endswith("_test")]


def mutate(root, mutants):
    """Gives the sources below `root` their switches."""
    for folder in sorted({mutant.folder for mutant in mutants}):
        texts = {path: path.read_text() for path in sources_in(root / folder)}
        changed = set()
        for mutant in (m for m in mutants if m.folder == folder):
            before, after = "\n".join(mutant.before), "\n".join(mutant.after)
            found = [path for path, text in texts.items() for _ in range(text.count(before))]
            if len(found) != 1:
                sys.exit(f"{folder}: {mutant.name}: expected once, found {len(found)} times: {before}")
            texts[found[0]] = texts[found[0]].replace(before, after.replace("@", f'Mutant("{mutant.name}")'))
            changed.add(found[0])
        for path in changed:
            path.write_text(texts[path].replace("namespace lockstep", SWITCH + "namespace lockstep", 1))


def limit_processor():
    """Ends this process after LONGEST, however long it waits for a processor that others use."""
    resource.setrlimit(resource.RLIMIT_CPU, (LONGEST, LONGEST + 1))


def first_violation(simulate, schedules, mutant=None):
    """The line of the first schedule that breaks a rule, at random or with a death before each event; "" if none does."""
    env = dict(os.environ, LOCKSTEP_MUTANT=mutant.name if mutant else "")
    first = mutant.notes.get("first seed", 1) if mutant else 1
    for flags in [f"--first_seed={first}", f"--schedules={schedules}", "--until_violation"], ["--deaths"]:
        done = subprocess.run([simulate, *flags], env=env, capture_output=True, text=True, preexec_fn=limit_processor)
        if done.returncode == -signal.SIGXCPU:
            return "a decision does not end"
        if done.returncode != 0:
            lines = [line for line in done.stdout.splitlines() if line.startswith("seed ")]
            return lines[0] if lines else f"it ended with {done.returncode}"
    return ""


def bazel(root, *arguments):
    """In an output tree beside the copy, so that nothing happens to one that .bazelrc.user names."""
    subprocess.run(["./bazelw", f"--output_base={root.parent}/out", *arguments], cwd=root, check=True)


def run(level, schedules, only):
    """Makes the mistakes of a level, and returns whether all are found but those of which the list says otherwise."""
    mutants = mutants_of(level)
    chosen = [mutant for mutant in mutants if not only or mutant.name in only]
    if not chosen:
        return True
    found, missed, notes = 0, 0, ("not found", "changes nothing")
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "lockstep"
        shutil.copytree(ROOT, root, symlinks=True, ignore=shutil.ignore_patterns("bazel-*", ".git"))
        mutate(root, mutants)
        try:
            bazel(root, "build", "--noshow_progress", f"//{level}/simulator:simulate")
            simulate = root / f"bazel-bin/{level}/simulator/simulate"
            if violation := first_violation(simulate, schedules):
                sys.exit(f"without a mistake a rule is broken: {violation}")
            for mutant in chosen:
                violation = first_violation(simulate, schedules, mutant)
                found += bool(violation)
                missed += not violation and not mutant.notes.keys() & set(notes)
                why = "; ".join(f"{note}: {mutant.notes[note]}" for note in notes if note in mutant.notes)
                print(f"{mutant.name} ({mutant.does}): {violation or why or 'NOT FOUND'}", flush=True)
        finally:
            bazel(root, "clean", "--expunge")
    print(f"{level}: {found} of {len(chosen)} found, {missed} missed")
    return not missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", choices=LEVELS, help="both unless given")
    parser.add_argument("--schedules", type=int, default=100000)
    parser.add_argument("--only", default="", help="names of mistakes, separated by commas")
    args = parser.parse_args()
    only = set(filter(None, args.only.split(",")))
    found = [run(level, args.schedules, only) for level in ([args.level] if args.level else LEVELS)]
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
