"""Suite gpt: steps of a GPT-2 on two ranks, beside the same network in Python with DistributedDataParallel over Gloo."""

import suite_fsdp
from measuring import add_cases, check_cases

MARKS = ("<!-- measured gpt: begin -->", "<!-- measured gpt: end -->")
# Case: its name in suite fsdp, whose programs run it.
CASES = {"gpt_10m/b4x128": "gpt_10m/512", "gpt2_124m/b1x128": "gpt_124m/128"}
# Program: its mode. ours_no_sync does not communicate: the difference is the share of communication.
OURS = {"ours": "ddp", "ours_shard": "fsdp", "ours_no_sync": "ddp_no_sync"}
PYTHON = {"nanogpt_ddp": "ddp", "nanogpt_ddp_compiled": "ddp_compiled"}


def add_arguments(parser):
    add_cases(parser, CASES)


def check_arguments(arguments, parser):
    check_cases(arguments, parser, CASES)


def run(arguments, programs, _):
    """The comparisons, and the table of them."""
    names = {CASES[case]: case for case in arguments.cases}
    measured = suite_fsdp.measure("gpt", names, arguments.rounds, programs, OURS, PYTHON)
    rows = list(suite_fsdp.comparisons("gpt", {names[case]: lines for case, lines in measured.items()}))
    return rows, suite_fsdp.markdown(rows, arguments.rounds)
