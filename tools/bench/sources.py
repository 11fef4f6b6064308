#!/usr/bin/env python3
"""Which measured figures are older than the code that they measure.

  tools/bench/sources.py             a line for each table and picture of a run that is older; exit code 0
  tools/bench/sources.py --release   the same, with exit code 1 if there is one
  tools/bench/sources.py SUITE       the hash of what the suite times, as this tree has it

A table of suite ddp has `<!-- sources ddp: HASH -->` below it. `compare --markdown` writes that line. The hash is of the code
as it was when the table was measured, or `unknown`. It is made of the files' lines, and not of their paths: a file may be
moved, and comments may change.
"""

import hashlib
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

_LAUNCH = (
    "launch",
    "launch/cpu",
    "launch/flags",
    "launch/job",
    "launch/link",
    "launch/node",
    "launch/output",
    "launch/process",
    "launch/report",
)

# What each suite times: the sources in these folders and their internal/ folders, apart from tests.
SUITES = {
    "all_reduce": ("comm", "comm/shm"),
    "checkpoint": (
        "checkpoint",
        "checkpoint/archive",
        "checkpoint/file",
        "checkpoint/pickle",
        "checkpoint/tensors",
        "checkpoint/zip",
    ),
    "ddp": ("comm", "comm/shm", "ddp"),
    "dp": ("dp",),
    "exported": ("models/exported", "optim"),
    "fsdp": ("comm", "comm/shm", "comm/tree_sum", "fsdp"),
    "gpt": ("comm", "comm/shm", "ddp", "fsdp", "models/transformer", "optim"),
    "image_loader": ("data", "sampler"),
    "launch": _LAUNCH,
    "network": ("comm", "comm/gloo", "comm/hierarchical", "comm/shm", "ddp", "ddp/hooks"),
    "optim": ("optim",),
    "recovery": (
        "comm",
        "comm/shm",
        "comm/watch",
        "ddp",
        "elastic",
        *_LAUNCH,
    ),
    "resnet": ("comm", "comm/shm", "ddp", "ddp/amp", "models"),
    "sampler": ("sampler",),
    "virtual_ranks": ("comm", "comm/shm", "comm/tree_sum", "ddp"),
    # The run whose picture README.md shows.
    "fashion_mnist": ("comm", "comm/shm", "data", "ddp", "examples/fashion_mnist", "sampler"),
}
UNKNOWN = "unknown"
PAGES = ("README.md", "docs/performance.md")

_LINE = re.compile(r"^<!-- sources (\w+): (\w+) -->$", re.M)
_MARKED = re.compile(r"^<!-- measured ?(\w*): begin -->\n(.*?)^<!-- measured ?\w*: end -->$", re.M | re.S)
_OF_A_PATH = re.compile(r"#\s*(?:include|ifndef LOCKSTEP_|define LOCKSTEP_\w+_H_$|endif\b)|//")


def code(text):
    """The lines without blanks around them, and without comments and the lines that name paths."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not _OF_A_PATH.match(line))


def files_of(folders, names):
    """Those of the names that are sources in the folders."""
    for name in names:
        path = pathlib.PurePosixPath(name)
        parents = [str(parent) for parent in path.parents]
        if (
            path.suffix in (".h", ".cc", ".cu")
            and not path.stem.endswith("_test")
            and not {"testing", "peer", "fuzz"} & set(path.parts)
            and (parents[0] in folders or any(f"{folder}/internal" in parents for folder in folders))
        ):
            yield name


def hash_of(suite, names, read):
    """Returns the hash of the code that the suite times. `names` are the files of a tree, and `read` returns the text of one."""
    hashes = sorted(
        hashlib.sha256(code(read(name)).encode()).hexdigest() for name in files_of(set(SUITES[suite]), names)
    )
    return hashlib.sha256("".join(hashes).encode()).hexdigest()[:16] if hashes else UNKNOWN


def hash_in(root, suite):
    names = (
        path.relative_to(root).as_posix()
        for folder in SUITES[suite]
        for pattern in ("*.*", "internal/**/*.*")
        for path in (root / folder).glob(pattern)
    )
    return hash_of(suite, sorted(set(names)), lambda name: (root / name).read_text())


def line_of(suite, found):
    return f"<!-- sources {suite}: {found} -->"


def problems(name, page):
    """The tables of the page that do not say what they have measured."""
    for suite, body in _MARKED.findall(page):
        suite = suite or "all_reduce"
        found = [of for of, _ in _LINE.findall(body)]
        if found != [suite]:
            yield f"{name}: the table of suite {suite} has {found}: expected one line {line_of(suite, 'HASH')}"
    for suite, _ in _LINE.findall(page):
        if suite not in SUITES:
            yield f"{name}: has the sources of {suite}, which tools/bench/sources.py does not know"


def notices(root, name, page):
    """Yields the figures that are older than the code that they measure, in one line each."""
    for match in _LINE.finditer(page):
        suite, found = match.groups()
        if suite in SUITES and found != hash_in(root, suite):
            place = f"{name}:{page.count(chr(10), 0, match.start()) + 1}"
            when = "at an unknown time" if found == UNKNOWN else "with other code"
            yield f"{place}: figures of {suite} were measured {when}: measure again before a release"


def check(root):
    """(what is wrong with the lines, what is older than the code that it measures) of the pages."""
    pages = {name: (root / name).read_text() for name in PAGES}
    text = "\n".join(pages.values())
    missing = [suite for suite in SUITES if not re.search(f"^<!-- sources {suite}: ", text, re.M)]
    return (
        [problem for name, page in pages.items() for problem in problems(name, page)]
        + [f"{' and '.join(PAGES)} have no line {line_of(suite, 'HASH')}" for suite in missing],
        [notice for name, page in pages.items() for notice in notices(root, name, page)],
    )


def main():
    if len(sys.argv) == 2 and sys.argv[1] in SUITES:
        print(hash_in(ROOT, sys.argv[1]))
        return 0
    if sys.argv[1:] not in ([], ["--release"]):
        raise SystemExit(__doc__)
    wrong, old = check(ROOT)
    print("\n".join(wrong + old))
    return 1 if wrong or old and sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
