"""Measures Lockstep beside its peers, in one run on this machine.

  ./bazelw run //tools/bench:compare -- all_reduce [--json=FILE] [--markdown=FILE] [--rounds=N] [--sizes=4KiB,25MiB] [--ranks=2,4]
  ./bazelw run //tools/bench:compare -- checkpoint [--json=FILE] [--markdown=FILE] [--rounds=N] [--directory=/data]
  ./bazelw run //tools/bench:compare -- ddp [--json=FILE] [--markdown=FILE] [--rounds=N] [--cases=mlp_4x64/b32]
  ./bazelw run //tools/bench:compare -- dp [--json=FILE] [--markdown=FILE] [--rounds=N]
  ./bazelw run //tools/bench:compare -- exported [--json=FILE] [--markdown=FILE] [--rounds=N] [--cases=mlp_4x64]
  ./bazelw run //tools/bench:compare -- fsdp [--json=FILE] [--markdown=FILE] [--rounds=N] [--cases=gpt_10m/512]
  ./bazelw run //tools/bench:compare -- gpt [--json=FILE] [--markdown=FILE] [--rounds=N] [--cases=gpt_10m/b4x128]
  ./bazelw run //tools/bench:compare -- image_loader [--json=FILE] [--markdown=FILE] [--rounds=N] [--data=DIR]
  ./bazelw run //tools/bench:compare -- launch [--json=FILE] [--markdown=FILE] [--rounds=N] [--watched_ranks=64]
  ./bazelw run //tools/bench:compare -- network [--json=FILE] [--markdown=FILE] [--rounds=N] [--hosts=2x2] [--links=1Gbit] [--sizes=25MiB] [--programs=ours,python_gloo]
  ./bazelw run //tools/bench:compare -- optim [--json=FILE] [--markdown=FILE] [--rounds=N] [--cases=adamw/124M]
  ./bazelw run //tools/bench:compare -- recovery [--json=FILE] [--markdown=FILE] [--rounds=N] [--cases=kill/mlp/4ranks] [--peers=torchrun,torchft,ulfm] [--deaths=20] [--peer_deaths=5] [--seed=1]
  ./bazelw run //tools/bench:compare -- resnet [--json=FILE] [--markdown=FILE] [--rounds=N] [--batch=16] [--settings=float32,mkldnn] [--device=cpu]
  ./bazelw run //tools/bench:compare -- sampler [--json=FILE] [--markdown=FILE] [--rounds=N] [--randperm_1e9]
  ./bazelw run //tools/bench:compare -- virtual_ranks [--json=FILE] [--markdown=FILE] [--rounds=N]

Each round runs every program once, one after the other; a figure is the median of the rounds' medians. A ratio above 1 says that
Lockstep is faster. Open MPI, or a package of photographs, is installed (apt-get) if it is missing and the suite measures with it.
"""

import argparse
import difflib
import json
import os
import pathlib
import sys
import tempfile

import plot
import sources
import suite_all_reduce
import suite_checkpoint
import suite_ddp
import suite_dp
import suite_exported
import suite_fsdp
import suite_gpt
import suite_image_loader
import suite_launch
import suite_network
import suite_optim
import suite_recovery
import suite_resnet
import suite_sampler
import suite_virtual_ranks

SUITES = {
    "all_reduce": suite_all_reduce,
    "checkpoint": suite_checkpoint,
    "ddp": suite_ddp,
    "dp": suite_dp,
    "exported": suite_exported,
    "fsdp": suite_fsdp,
    "gpt": suite_gpt,
    "image_loader": suite_image_loader,
    "launch": suite_launch,
    "network": suite_network,
    "optim": suite_optim,
    "recovery": suite_recovery,
    "resnet": suite_resnet,
    "sampler": suite_sampler,
    "virtual_ranks": suite_virtual_ranks,
}


# The programs that the suites run, which lie beside this file.
PROGRAMS = (
    "all_reduce",
    "all_reduce_gloo.py",
    "all_reduce_mpi.c",
    "checkpoint",
    "checkpoint_python.py",
    "ddp",
    "ddp_python.py",
    "dp",
    "exported",
    "exported_python.py",
    "fsdp",
    "fsdp_python.py",
    "hook_accuracy",
    "image_loader",
    "image_loader_python.py",
    "../../launch/launch",
    "launch_rank",
    "photographs.py",
    "optim",
    "optim_python.py",
    "recovery",
    "recovery_python.py",
    "resnet",
    "resnet_python.py",
    "sampler",
    "sampler_python.py",
)


def find_programs():
    """{name without its ending: path}, and "python", the peer's."""
    here = pathlib.Path(__file__).absolute().parent
    programs = {pathlib.Path(name).stem: str(here / name) for name in PROGRAMS}
    python = (here / "peer_python_path.txt").read_text().strip()
    return {**programs, "python": str(here.parent.parent / python)}


def write_between_marks(path, marks, text):
    page = path.read_text()
    before, after = page.split(marks[0])[0], page.split(marks[1])[1]
    path.write_text(f"{before}{marks[0]}\n{text}\n{marks[1]}{after}")


def unknown(argument, known):
    """The error for an argument that no parser took."""
    if not argument.startswith("-"):
        return f'unexpected argument "{argument}"; --help lists the flags'
    flag = argument.split("=")[0]
    nearest = difflib.get_close_matches(flag.lstrip("-"), [name.lstrip("-") for name in known], n=1)
    return f"unknown flag {flag}; {f'did you mean --{nearest[0]}? ' if nearest else ''}--help lists the flags"


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = {}
    suites = parser.add_subparsers(dest="suite", required=True)
    for name, suite in SUITES.items():
        of_suite = suites.add_parser(name, description=suite.__doc__)
        of_suite.add_argument("--json", metavar="FILE", help="write a line for each comparison")
        of_suite.add_argument(
            "--markdown", metavar="FILE", help="replace the table between the marks in this file, and its plot"
        )
        of_suite.add_argument("--rounds", type=int, default=3)
        suite.add_arguments(of_suite)
        known[name] = list(of_suite._option_string_actions)
    arguments, rest = parser.parse_known_args()
    if rest:
        print(f"compare: {unknown(rest[0], known[arguments.suite])}", file=sys.stderr)
        sys.exit(2)
    SUITES[arguments.suite].check_arguments(arguments, parser)
    return arguments


def check_outputs(arguments, suite, top):
    """Ends the program if a file cannot be written, before minutes of measuring."""
    try:
        for path in filter(None, (arguments.json, arguments.markdown)):
            open(top / path, "a" if path == arguments.json else "r+").close()
        page = (top / arguments.markdown).read_text() if arguments.markdown else None
    except OSError as error:
        sys.exit(f"compare: {error}")
    if page is not None and any(mark not in page for mark in suite.MARKS):
        sys.exit(f"compare: --markdown: {arguments.markdown} lacks the marks {' and '.join(suite.MARKS)}")


def main():
    arguments = parse_arguments()
    suite = SUITES[arguments.suite]
    # Files are the caller's, not Bazel's.
    top = pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    check_outputs(arguments, suite, top)
    page = top / arguments.markdown if arguments.markdown else None
    code = sources.hash_in(page.resolve().parent.parent, arguments.suite) if page else None  # measuring takes minutes
    programs = find_programs()
    with tempfile.TemporaryDirectory() as folder:
        rows, text = suite.run(arguments, programs, folder)
    print(text, flush=True)  # before the files, which may fail
    try:
        if arguments.json:
            (top / arguments.json).write_text("".join(json.dumps(row) + "\n" for row in rows))
        if page:
            write_between_marks(page, suite.MARKS, f"{text}\n\n{sources.line_of(arguments.suite, code)}")
            if page.with_name(plot.FOLDER).is_dir():
                plot.write_plots(page)
    except OSError as error:
        sys.exit(f"compare: {error}")


if __name__ == "__main__":
    main()
