"""Suite fsdp: steps of two fully sharded ranks, beside Python's fully_shard and DistributedDataParallel of both."""

import statistics
import sys

from measuring import PROGRESS, add_cases, check_cases, compared, in_words, lines_in_turn, machine

MARKS = ("<!-- measured fsdp: begin -->", "<!-- measured fsdp: end -->")
# Case: steps that are timed in one process and round, of which a figure is the median, and the seconds of a turn.
CASES = {"mlp_784_2048_2048_10/b64": (200, 2), "gpt_10m/512": (40, 3), "gpt_124m/128": (15, 8)}
# Program: its mode.
OURS = {"ours": "fsdp", "own_ddp": "ddp", "own_ddp_zero1": "ddp_zero1"}
PYTHON = {"python_fsdp2": "fsdp2", "python_ddp": "ddp"}


def add_arguments(parser):
    add_cases(parser, CASES)


def check_arguments(arguments, parser):
    check_cases(arguments, parser, CASES)


def command_of(programs, case, ours, python):
    steps, _ = CASES[case]
    if python:
        return [programs["python"], programs["fsdp_python"], python, case, str(steps)]
    return [programs["fsdp"], f"--case={case}", f"--mode={ours}", f"--steps={steps}"]


def spread(losses):
    return (max(losses) - min(losses)) / max(losses)


def check_losses(case, lines, python):
    """A GPT's initial weights are drawn in another order in Python, and the loss in step 12 depends on them."""
    losses = {name: line["loss"] for name, line in lines.items()}
    theirs = [loss for name, loss in losses.items() if name in python]
    ours = [loss for name, loss in losses.items() if name not in python]
    most = 0.2 if case.startswith("gpt") else 1e-2
    if max(spread(ours), spread(theirs)) > 1e-2 or spread(losses.values()) > most:
        sys.exit(f"compare: {case}: the programs do not train alike: losses {losses}")


def measure(suite, cases, rounds, programs, ours, python):
    """{case: {program: lines}}; `ours` and `python` are {program: its mode}."""
    names = (*ours, *python)
    measured = {case: {name: [] for name in names} for case in cases}
    for _ in PROGRESS.rounds(suite, rounds):
        for case, of_case in measured.items():
            commands = {name: command_of(programs, case, ours.get(name), python.get(name)) for name in names}
            lines = {name: line for name, (line,) in lines_in_turn(commands, CASES[case][1]).items()}
            check_losses(case, lines, python)
            for name, line in lines.items():
                of_case[name].append(line)
    return measured


def comparisons(suite, measured):
    for case, lines in measured.items():
        seconds = {name: [line["seconds"] for line in of] for name, of in lines.items()}
        peak = {name: statistics.median(line["peak_pss_bytes"] for line in of) for name, of in lines.items()}
        for row in compared(suite, case, seconds):
            yield {**row, "peak_pss_bytes": peak["ours"], "peer_peak_pss_bytes": peak[row["peer_name"]]}


def markdown(rows, rounds):
    out = [f"{machine()}; PyTorch 2.11.0. Medians of {rounds} rounds.", "The spread is that of the rounds' ratios.", ""]
    out += ["| case | ours | memory | peer | its time | its memory | times the peer | spread |", "|---" * 8 + "|"]
    for row in rows:
        ours = [row["case"], in_words(row["ours"]), f"{row['peak_pss_bytes'] / 2**20:.0f} MiB"]
        peer = [row["peer_name"], in_words(row["peer"]), f"{row['peer_peak_pss_bytes'] / 2**20:.0f} MiB"]
        spread = f"{row['least_ratio']:.2f} to {row['most_ratio']:.2f}"
        ratio = f"{row['ratio']:.2f}"
        out.append(f"| {' | '.join([*ours, *peer, ratio, spread])} |")
    return "\n".join(out)


def run(arguments, programs, _):
    """The comparisons, and the table of them."""
    measured = measure("fsdp", arguments.cases, arguments.rounds, programs, OURS, PYTHON)
    rows = list(comparisons("fsdp", measured))
    return rows, markdown(rows, arguments.rounds)
