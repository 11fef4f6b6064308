"""Suite sampler: how long rank 0 of 8 waits for its indices, beside Python's DistributedSampler."""

import statistics
import sys

from measuring import PROGRESS, in_words, lines_of, machine

MARKS = ("<!-- measured sampler: begin -->", "<!-- measured sampler: end -->")
# In one process and round.
REPEAT = 9

PEER = "python_distributed_sampler"
# case: what both programs call it. Their results must be equal.
CASES = {"first_index/torch/1.28M/8ranks": "first_index", "epoch/torch/1.28M/8ranks": "epoch"}
# Ours alone, and what else may be measured beside it.
FEISTEL_CASE = "first_index/feistel/1e9"


def add_arguments(parser):
    parser.add_argument("--randperm_1e9", action="store_true", help="also torch.randperm(10**9): 8 GB and a minute")


def check_arguments(arguments, parser):
    pass


def measure(programs, arguments):
    """{(program, name): line}, with the medians over the rounds."""
    lines = {}
    names = ",".join(CASES.values())
    for round_ in PROGRESS.rounds("sampler", arguments.rounds):
        ours = lines_of([programs["sampler"], f"--repeat={REPEAT}"])
        large = ",randperm_1e9" if arguments.randperm_1e9 and round_ == 0 else ""
        peers = lines_of([programs["python"], programs["sampler_python"], names + large, str(REPEAT)])
        for program, of in (("ours", ours), ("python", peers)):
            for line in of:
                lines.setdefault((program, line["case"]), []).append(line)
    for name in CASES.values():
        checksums = {line["checksum"] for program in ("ours", "python") for line in lines[program, name]}
        if len(checksums) > 1:
            sys.exit(f"compare: {name}: indices differ: checksums {sorted(checksums)}")
    return {key: median_of(of) for key, of in lines.items()}


def median_of(lines):
    return {field: statistics.median(line[field] for line in lines) for field in lines[0] if field != "case"}


def comparisons(measured):
    for case, name in CASES.items():
        yield row_of(case, measured["ours", name]["seconds"], PEER, measured["python", name]["seconds"])
    large = measured.get(("python", "randperm_1e9"))
    yield {
        **row_of(
            FEISTEL_CASE,
            measured["ours", "feistel_first_index"]["seconds"],
            "torch.randperm(10**9)" if large else None,
            large["seconds"] if large else None,
        ),
        "seconds_per_index": measured["ours", "feistel_index"]["seconds"],
        "state_bytes": measured["ours", "feistel_state"]["bytes"],
    }


def row_of(case, ours, peer_name, peer):
    return {
        "suite": "sampler",
        "case": case,
        "ours": ours,
        "peer_name": peer_name,
        "peer": peer,
        "unit": "s",
        "ratio": peer / ours if peer else None,
    }


def markdown(rows, rounds):
    out = [f"{machine()}; PyTorch 2.11.0. Medians of {rounds} rounds of {REPEAT} epochs.", ""]
    out += ["| case | ours | peer | its time | times the peer |", "|---|---|---|---|---|"]
    for row in rows:
        peer = [row["peer_name"], in_words(row["peer"]), f"{row['ratio']:.1f}"] if row["peer"] else ["", "", ""]
        out.append(f"| {row['case']} | {in_words(row['ours'])} | {' | '.join(peer)} |")
    feistel = rows[-1]
    nanoseconds = feistel["seconds_per_index"] * 1e9
    out += [
        "",
        f"After its first index, `feistel` takes {nanoseconds:.1f} ns per index; it holds {feistel['state_bytes']:.0f} bytes.",
    ]
    return "\n".join(out)


def run(arguments, programs, _):
    """The comparisons, and the table of them."""
    rows = list(comparisons(measure(programs, arguments)))
    return rows, markdown(rows, arguments.rounds)
