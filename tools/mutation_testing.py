"""Shows that a simulator finds mistakes in the decisions that it runs. A script lists the mistakes, and calls main().

  sys.path.append(str(pathlib.Path(__file__).absolute().parents[2] / "tools"))  # the folder of this file
  import mutation_testing
  from mutation_testing import Mutant

  MUTANTS = [Mutant("too_early", "elastic/plan.cc", "if (ready) Go();", "if (ready || @) Go();", "goes at once")]
  sys.exit(mutation_testing.main(__doc__, __file__, "//elastic/simulator:simulate", ["--deaths"], MUTANTS))

main() copies the checkout into a temporary folder, gives the sources a switch for each mistake, which is made when
LOCKSTEP_MUTANT names it, and builds the simulator once. With no mistake no schedule may break a rule, and with one mistake
some schedule must. mutants.md beside the script is what came of it (not written with --only).
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
LONGEST = 180  # seconds of a set of schedules, which takes half a minute

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


class Mutant(NamedTuple):
    name: str
    source: str
    before: str
    after: str  # @ is whether the mistake is made
    does: str  # in words
    why_not: str = ""  # why no rule sees it
    first_seed: int = 1  # for a mistake that shows in few schedules
    equivalent: bool = False  # nothing that anybody sees depends on it


def mutate(root, mutants):
    """Gives the sources below `root` their switches."""
    for source in sorted({mutant.source for mutant in mutants}):
        path = root / source
        text = path.read_text()
        for mutant in (m for m in mutants if m.source == source):
            if text.count(mutant.before) != 1:
                sys.exit(f"{source}: expected once, found {text.count(mutant.before)} times: {mutant.before}")
            text = text.replace(mutant.before, mutant.after.replace("@", f'Mutant("{mutant.name}")'))
        path.write_text(text.replace("namespace lockstep", SWITCH + "namespace lockstep", 1))


def first_violation(simulate, name, runs):
    """The line of the first schedule that breaks a rule in one of `runs`, the flags of each; "" if there is none."""
    env = dict(os.environ, LOCKSTEP_MUTANT=name)
    for flags in runs:
        try:
            done = subprocess.run([simulate, *flags], env=env, capture_output=True, text=True, timeout=LONGEST)
        except subprocess.TimeoutExpired:
            return "a decision does not end"
        if done.returncode != 0:
            lines = [line for line in done.stdout.splitlines() if ": " in line and "seed" in line]
            return lines[0] if lines else f"it ended with {done.returncode}"
    return ""


def main(description, script, target, sets, mutants):
    """Runs `target` with random schedules, and with each flag of `sets`. The exit code: 0 if 95 % are found."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=100000)
    parser.add_argument("--only", default="", help="names of mistakes, separated by commas")
    args = parser.parse_args()
    only = set(filter(None, args.only.split(",")))

    def runs(first_seed):
        yield [f"--first_seed={first_seed}", f"--schedules={args.schedules}", "--until_violation"]
        for flag in sets:
            yield [flag]

    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "lockstep"
        shutil.copytree(ROOT, root, symlinks=True, ignore=shutil.ignore_patterns("bazel-*", ".git"))
        mutate(root, mutants)
        rows, found, counted = [], 0, 0
        try:
            subprocess.run(["./bazelw", "build", "--noshow_progress", target], cwd=root, check=True)
            simulate = root / "bazel-bin" / target[2:].replace(":", "/")
            if violation := first_violation(simulate, "", runs(1)):
                sys.exit(f"without a mistake a rule is broken: {violation}")
            for mutant in (m for m in mutants if not only or m.name in only):
                violation = first_violation(simulate, mutant.name, runs(mutant.first_seed))
                found += bool(violation)
                counted += bool(violation) or not mutant.equivalent
                print(f"{mutant.name}: {violation or 'NOT FOUND'}", flush=True)
                result = violation or ": ".join(filter(None, ["not found", mutant.why_not]))
                rows.append(f"| {mutant.name} | {mutant.does} | {result} |")
        finally:
            subprocess.run(["./bazelw", "clean", "--expunge"], cwd=root, stderr=subprocess.DEVNULL)
    print(f"{found} of {counted} found")
    if not only:
        (pathlib.Path(script).resolve().parent / "mutants.md").write_text(
            "# Mistakes that the simulator finds\n\n"
            "mutants.py wrote this page; its first lines explain the method.\n"
            f"{found} of {counted} mistakes break a rule within {args.schedules} random schedules, or a death at each event.\n"
            f"{len(rows) - counted} more change nothing that anybody sees, and do not count.\n\n"
            "| Mistake | What it does | First schedule that breaks a rule |\n|---|---|---|\n" + "\n".join(rows) + "\n"
        )
    return 0 if found >= 0.95 * counted else 1
