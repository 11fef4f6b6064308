"""Suite fsdp: steps of fully sharded ranks, beside Python's fully_shard and DistributedDataParallel of both.

A case has two ranks. One that begins with hosts/ has two hosts of two ranks, behind links of 1 Gbit/s: see suite network.
"""

import itertools
import os
import pathlib
import statistics
import sys
import tempfile

import network_links
from measuring import PROGRESS, add_cases, check_cases, compared, in_words, lines_in_turn, machine

sys.path.append(str(pathlib.Path(__file__).absolute().parents[2] / "third_party/libtorch"))
import fetch_torch

MARKS = ("<!-- measured fsdp: begin -->", "<!-- measured fsdp: end -->")
# Case: the steps of a turn, of which a figure is the median, and the turns in a round. Programs of hosts run one after the other.
CASES = {
    "mlp_784_2048_2048_10/b64": (10, 15),
    "gpt_10m/512": (3, 12),
    "gpt_124m/128": (1, 8),
    "hosts/gpt_10m/512": (10, None),
}
HOSTS, LINK = 2, "1Gbit"
# Six of its programs do not fit into the memory of a usual machine, so each has all of its turns before the next.
APART = ("gpt_124m/128",)
# Program: its mode.
OURS = {"ours": "fsdp", "own_ddp": "ddp", "own_ddp_zero1": "ddp_zero1"}
PYTHON = {"python_fsdp2": "fsdp2", "deepspeed_zero3": "zero3", "python_ddp": "ddp"}
DEEPSPEED = (
    "deepspeed==0.19.8", "annotated-types==0.8.0", "einops==0.8.2", "hjson==3.1.0", "msgpack==1.2.4", "ninja==1.13.2",
    "numpy==2.4.6", "packaging==26.4", "psutil==7.2.2", "py-cpuinfo==9.0.0", "pydantic==2.14.4",
    "pydantic-core==2.50.5", "tqdm==4.70.1", "typing-inspection==0.4.5",
)  # fmt: skip


def add_arguments(parser):
    add_cases(parser, CASES)


def check_arguments(arguments, parser):
    check_cases(arguments, parser, CASES)


def on_hosts(case):
    return case.startswith("hosts/")


def fetch_deepspeed():
    """A folder with DeepSpeed and the packages that it imports, besides torch."""
    name = f"{DEEPSPEED[0].replace('==', '-')}-cp{sys.version_info.major}{sys.version_info.minor}"
    flags = "--no-deps", "--no-build-isolation"
    return fetch_torch.made_once(name, lambda tree: fetch_torch.pip("install", f"--target={tree}", *flags, *DEEPSPEED))


def command_of(programs, case, ours, python):
    steps, _ = CASES[case]
    case = case.removeprefix("hosts/")
    if python:
        path = ["env", f"PYTHONPATH={fetch_deepspeed()}"] if python == "zero3" else []
        return [*path, programs["python"], programs["fsdp_python"], python, case, str(steps)]
    return [programs["fsdp"], f"--case={case}", f"--mode={ours}", f"--steps={steps}", "--turns"]


def lines_on_hosts(case, commands, python):
    """{program: its line, with the bytes that a host sends in a step}."""
    ports, lines = itertools.count(29500), {}
    with network_links.Hosts(HOSTS, LINK) as hosts, tempfile.TemporaryDirectory() as folder:
        for name, command in commands.items():
            if name in python:
                each = [[*command, os.path.join(folder, name), h, HOSTS] for h in range(HOSTS)]
            else:
                master = [f"--master_addr={hosts.address(0)}", f"--master_port={next(ports)}"]
                each = [[*command, f"--nnodes={HOSTS}", f"--node_rank={h}", *master] for h in range(HOSTS)]
            line, sent = hosts.measure(each)
            lines[name] = {**line, "sent_bytes": sent / CASES[case][0]}
    return lines


def spread(losses):
    return (max(losses) - min(losses)) / max(losses)


def check_losses(case, lines, python):
    """A GPT's initial weights are drawn in another order in Python, and the loss in step 3 depends on them."""
    losses = {name: line["loss"] for name, line in lines.items()}
    theirs = [loss for name, loss in losses.items() if name in python]
    ours = [loss for name, loss in losses.items() if name not in python]
    most = 0.2 if case.startswith("gpt") else 1e-2
    if max(spread(ours), spread(theirs)) > 1e-2 or spread(losses.values()) > most:
        sys.exit(f"compare: {case}: the programs do not train alike: losses {losses}")


def measure(suite, cases, rounds, programs, ours, python, apart=()):
    """{case: {program: lines}}; `ours` and `python` are {program: its mode}."""
    # The ranks of DeepSpeed share memory, also between hosts that are one machine.
    skipped = {case: {"deepspeed_zero3"} if on_hosts(case) else set() for case in cases}
    measured = {case: {name: [] for name in (*ours, *python) if name not in skipped[case]} for case in cases}
    for _ in PROGRESS.rounds(suite, rounds):
        for case, of_case in measured.items():
            commands = {name: command_of(programs, case, ours.get(name), python.get(name)) for name in of_case}
            if on_hosts(case):
                lines = lines_on_hosts(case, commands, python)
            else:
                together = [{name: command} for name, command in commands.items()] if case in apart else [commands]
                lines = {name: line for some in together for name, line in lines_in_turn(some, CASES[case][1]).items()}
            check_losses(case, lines, python)
            for name, line in lines.items():
                of_case[name].append(line)
    return measured


def comparisons(suite, measured):
    for case, lines in measured.items():
        seconds = {name: [line["seconds"] for line in of] for name, of in lines.items()}
        counts = ("peak_pss_bytes", "sent_bytes") if on_hosts(case) else ("peak_pss_bytes",)
        for row in compared(suite, case, seconds):
            for count in counts:
                row[count] = statistics.median(line[count] for line in lines["ours"])
                row[f"peer_{count}"] = statistics.median(line[count] for line in lines[row["peer_name"]])
            yield row


def mebibytes(row, count):
    return f"{row[count] / 2**20:.0f} MiB" if count in row else ""


def markdown(rows, rounds):
    out = [f"{machine()}; PyTorch 2.11.0. Medians of {rounds} rounds.", "The spread is that of the rounds' ratios.", ""]
    counts = {"memory": "peak_pss_bytes", "sent": "sent_bytes"}
    if not any("sent_bytes" in row for row in rows):
        del counts["sent"]
    head = ["case", "ours", *counts, "peer", "its time", *(f"its {count}" for count in counts)]
    head += ["times the peer", "spread"]
    out += [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        ours = [row["case"], in_words(row["ours"]), *(mebibytes(row, key) for key in counts.values())]
        peer = [row["peer_name"], in_words(row["peer"]), *(mebibytes(row, f"peer_{key}") for key in counts.values())]
        spread = f"{row['least_ratio']:.2f} to {row['most_ratio']:.2f}"
        ratio = f"{row['ratio']:.2f}"
        out.append(f"| {' | '.join([*ours, *peer, ratio, spread])} |")
    return "\n".join(out)


def run(arguments, programs, _):
    """The comparisons, and the table of them."""
    if any(map(on_hosts, arguments.cases)):
        network_links.as_root()
    measured = measure("fsdp", arguments.cases, arguments.rounds, programs, OURS, PYTHON, APART)
    rows = list(comparisons("fsdp", measured))
    return rows, markdown(rows, arguments.rounds)
