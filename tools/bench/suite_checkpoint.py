"""Suite checkpoint: saving and loading a state dict of 64 tensors on one disk, beside torch.save and torch.load."""

import os
import statistics
import sys
import tempfile

from measuring import PROGRESS, in_words, lines_of, machine

MARKS = ("<!-- measured checkpoint: begin -->", "<!-- measured checkpoint: end -->")
TENSORS = 64
# In one process and round.
REPEAT = 3

# case: ours, and the peers', each a program and what it calls the case.
CASES = {
    "save/durable": ("save", {"torch.save+fsync": ("python", "save"), "raw_o_direct": ("ours", "raw_o_direct")}),
    "save/unsynced": ("save_unsynced", {"torch.save": ("python", "save_unsynced")}),
    "load/cached": ("load", {"torch.load": ("python", "load")}),
    "async_stall": ("async_stall", {"torch.save": ("python", "save_unsynced")}),
}


def add_arguments(parser):
    parser.add_argument("--directory", help="a folder on the disk to measure (default: the working directory)")
    parser.add_argument("--mebibytes", type=int, default=1024)


def check_arguments(arguments, parser):
    if arguments.mebibytes < TENSORS:
        parser.error(f"--mebibytes: {arguments.mebibytes}: expected at least {TENSORS}")


def wanted(program):
    """The names of all that a program measures, in order."""
    names = [ours for ours, _ in CASES.values()] if program == "ours" else []
    names += [name for _, peers in CASES.values() for of, name in peers.values() if of == program]
    return list(dict.fromkeys(names))


def measure(programs, arguments, directory):
    """{(program, name): {"seconds", "extra_bytes"}}, medians over the rounds; one measurement after the other."""
    lines = {}
    for _ in PROGRESS.rounds("checkpoint", arguments.rounds):
        # By name, so that the two programs take turns at the disk.
        for program, name in [("ours", n) for n in wanted("ours")] + [("python", n) for n in wanted("python")]:
            if program == "ours":
                command = [programs["checkpoint"], f"--directory={directory}", f"--case={name}", f"--repeat={REPEAT}"]
                command += [f"--mebibytes={arguments.mebibytes}", f"--tensors={TENSORS}"]
            else:
                command = [programs["python"], programs["checkpoint_python"], directory, name]
                command += map(str, (arguments.mebibytes, TENSORS, REPEAT))
            for line in lines_of(command):
                lines.setdefault((program, name), []).append(line)
    return {
        key: {field: statistics.median(line[field] for line in of) for field in ("seconds", "extra_bytes")}
        for key, of in lines.items()
    }


def size_in_words(mebibytes):
    return f"{mebibytes // 1024}GiB" if mebibytes % 1024 == 0 else f"{mebibytes}MiB"


def comparisons(measured, size):
    for case, (ours, peers) in CASES.items():
        for peer_name, key in peers.items():
            seconds, peer = measured["ours", ours]["seconds"], measured[key]["seconds"]
            yield {
                "suite": "checkpoint",
                "case": f"{case}/{size}",
                "ours": seconds,
                "peer_name": peer_name,
                "peer": peer,
                "unit": "s",
                "ratio": peer / seconds,
                "extra_bytes": measured["ours", ours]["extra_bytes"],
                "peer_extra_bytes": measured[key]["extra_bytes"],
            }


def markdown(rows, rounds, size):
    out = [
        f"{machine()}; PyTorch 2.11.0; {TENSORS} tensors, {size} together. Medians of {rounds} rounds of {REPEAT}.",
        "",
    ]
    out += [
        "| case | ours | extra memory | peer | its time | extra memory | times the peer |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        extra, peer_extra = (f"{row[key] / 2**20:.1f} MiB" for key in ("extra_bytes", "peer_extra_bytes"))
        times = [in_words(row["ours"]), extra, row["peer_name"], in_words(row["peer"]), peer_extra]
        out.append(f"| {row['case']} | {' | '.join(times)} | {row['ratio']:.2f} |")
    return "\n".join(out)


def run(arguments, programs, _):
    """The comparisons, and the table of them."""
    top = os.environ.get("BUILD_WORKING_DIRECTORY", ".")
    where = os.path.join(top, arguments.directory or "")
    if not os.path.isdir(where):
        sys.exit(f"compare: --directory: {where} is no folder")
    with tempfile.TemporaryDirectory(dir=where, prefix="checkpoint_benchmark.") as directory:
        measured = measure(programs, arguments, directory)
    rows = list(comparisons(measured, size_in_words(arguments.mebibytes)))
    return rows, markdown(rows, arguments.rounds, size_in_words(arguments.mebibytes))
