"""Suite optim: the time of an optimizer's step, beside LibTorch's optimizer and Python's in each of its modes."""

import statistics
import sys

from measuring import PROGRESS, add_cases, check_cases, compared, in_words, lines_in_turn, machine

MARKS = ("<!-- measured optim: begin -->", "<!-- measured optim: end -->")
# By parameters: the steps of a turn, of which a figure is the median.
STEPS = {"124M": 3, "resnet50": 15, "160x4KiB": 200}
TURNS = 10  # in a round
# case: optimizer, parameters, our mode.
CASES = {
    "adamw/124M": ("adamw", "124M", "fused"),
    "adamw_default/124M": ("adamw", "124M", "default"),
    "adamw/160x4KiB": ("adamw", "160x4KiB", "fused"),
    "adamw_default/160x4KiB": ("adamw", "160x4KiB", "default"),
    "sgd_momentum/resnet50": ("sgd_momentum", "resnet50", "fused"),
    "sgd_momentum_default/resnet50": ("sgd_momentum", "resnet50", "default"),
    "adam/124M": ("adam", "124M", "fused"),
}
# Peers of each of our modes. Python's have the same bits.
PEERS = {"fused": ("libtorch", "python_fused"), "default": ("libtorch", "python_default", "python_foreach")}


def add_arguments(parser):
    add_cases(parser, CASES)


def check_arguments(arguments, parser):
    check_cases(arguments, parser, CASES)


def command_of(programs, name, optimizer, parameters):
    steps = STEPS[parameters]
    if name.startswith("python_"):
        words = [optimizer, parameters, name.removeprefix("python_"), str(steps)]
        return [programs["python"], programs["optim_python"], *words]
    flags = {"optimizer": optimizer, "parameters": parameters, "mode": name, "steps": steps, "turns": "true"}
    return [programs["optim"], *(f"--{flag}={value}" for flag, value in flags.items())]


def check_bits(case, lines):
    checksums = {name: line["checksum"] for name, line in lines.items() if name != "libtorch"}
    if len(set(checksums.values())) > 1:
        sys.exit(f"compare: {case}: the programs do not step alike: checksums {checksums}")


def measure(programs, arguments):
    """{case: {program: lines}}; our program's name is its mode."""
    measured = {case: {} for case in arguments.cases}
    for _ in PROGRESS.rounds("optim", arguments.rounds):
        for case in arguments.cases:
            optimizer, parameters, mode = CASES[case]
            commands = {name: command_of(programs, name, optimizer, parameters) for name in (mode, *PEERS[mode])}
            lines = lines_in_turn(commands, TURNS)
            check_bits(case, lines)
            for name, line in lines.items():
                measured[case].setdefault(name, []).append(line)
    return measured


def comparisons(measured):
    for case, lines in measured.items():
        mode = CASES[case][2]
        seconds = {name: [line["seconds"] for line in of] for name, of in lines.items()}
        share = statistics.median(line["share_of_copy_rate"] for line in lines[mode])
        for row in compared("optim", case, seconds, ours=mode):
            yield {**row, "bytes": lines[mode][0]["bytes"], "share_of_copy_rate": share}


def markdown(rows, rounds):
    out = [f"{machine()}; PyTorch 2.11.0. Medians of {rounds} rounds.", "The spread is that of the rounds' ratios.", ""]
    out += ["| case | ours | of a copy's rate | peer | its time | times the peer | spread |", "|---" * 7 + "|"]
    for row in rows:
        ours = [row["case"], in_words(row["ours"]), f"{row['share_of_copy_rate']:.0%}"]
        peer = [row["peer_name"], in_words(row["peer"]), f"{row['ratio']:.2f}"]
        spread = f"{row['least_ratio']:.2f} to {row['most_ratio']:.2f}"
        out.append(f"| {' | '.join([*ours, *peer, spread])} |")
    return "\n".join(out)


def run(arguments, programs, _):
    """The comparisons, and the table of them."""
    rows = list(comparisons(measure(programs, arguments)))
    return rows, markdown(rows, arguments.rounds)
