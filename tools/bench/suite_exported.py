"""Suite exported: training steps of a torch.export program in C++, beside Python eager and the network in C++."""

import os
import subprocess
import sys
import tempfile

from measuring import PROGRESS, add_cases, check_cases, compared, in_words, lines_in_turn, machine

MARKS = ("<!-- measured exported: begin -->", "<!-- measured exported: end -->")
# Case: the steps of a turn, of which a figure is the median. add_64 is a chain of 64 additions of 64 numbers, which shows the
# interpreter's own time.
CASES = {"resnet50/b8": 1, "gpt_12l/512": 3, "mlp_4x64": 2000, "add_64": 1000}
TURNS = 15  # in a round
PEERS = ("python_eager", "cpp_native")


def add_arguments(parser):
    add_cases(parser, CASES)


def check_arguments(arguments, parser):
    check_cases(arguments, parser, CASES)


def command_of(programs, name, case, file):
    steps = CASES[case]
    if name == "python_eager":
        return [programs["python"], programs["exported_python"], case, str(steps)]
    mode = "native" if name == "cpp_native" else "exported"
    flags = {"case": case, "program": file, "mode": mode, "steps": steps, "turns": "true"}
    return [programs["exported"], *(f"--{flag}={value}" for flag, value in flags.items())]


def check_losses(case, lines):
    """The program has Python's bits; C++'s torch::nn::Linear rounds otherwise."""
    losses = {name: line["loss"] for name, line in lines.items()}
    native_differs = abs(losses["cpp_native"] - losses["ours"]) > 1e-3 * abs(losses["ours"])
    if losses["ours"] != losses["python_eager"] or native_differs:
        sys.exit(f"compare: {case}: the programs do not train alike: losses {losses}")


def measure(programs, arguments):
    """{case: {program: [seconds of a step in each round]}}."""
    measured = {case: {name: [] for name in ("ours", *PEERS)} for case in arguments.cases}
    with tempfile.TemporaryDirectory() as folder:
        files = {case: os.path.join(folder, f"{case.replace('/', '_')}.pt2") for case in arguments.cases}
        for case, file in files.items():
            subprocess.run([programs["python"], programs["exported_python"], case, file], check=True)
        for _ in PROGRESS.rounds("exported", arguments.rounds):
            for case, file in files.items():
                commands = {name: command_of(programs, name, case, file) for name in measured[case]}
                lines = lines_in_turn(commands, TURNS)
                check_losses(case, lines)
                for name, line in lines.items():
                    measured[case][name].append(line["seconds"])
    return measured


def comparisons(measured):
    for case, seconds in measured.items():
        yield from compared("exported", case, seconds)


def markdown(rows, rounds):
    out = [f"{machine()}; PyTorch 2.11.0. Medians of {rounds} rounds.", "The spread is that of the rounds' ratios.", ""]
    out += ["| case | ours | peer | its time | times the peer | spread |", "|---" * 6 + "|"]
    for row in rows:
        peer = [row["peer_name"], in_words(row["peer"]), f"{row['ratio']:.2f}"]
        spread = f"{row['least_ratio']:.2f} to {row['most_ratio']:.2f}"
        out.append(f"| {' | '.join([row['case'], in_words(row['ours']), *peer, spread])} |")
    return "\n".join(out)


def run(arguments, programs, _):
    """The comparisons, and the table of them."""
    rows = list(comparisons(measure(programs, arguments)))
    return rows, markdown(rows, arguments.rounds)
