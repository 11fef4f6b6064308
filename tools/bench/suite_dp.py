"""Suite dp: what several replicas in one process add to a training step, beside LibTorch's data_parallel or its algorithm."""

import statistics
import sys

from measuring import PROGRESS, in_words, lines_of, machine

MARKS = ("<!-- measured dp: begin -->", "<!-- measured dp: end -->")
CASES = ("mlp_784_512_512_10/b64", "resnet18/b8/64px")
OURS = ("ours", "ours_copying")


def add_arguments(parser):
    pass


def check_arguments(arguments, parser):
    pass


def check_losses(lines):
    losses = {}
    for line in lines:
        if line["program"] != "one_device":  # whose batches are whole, which BatchNorm notices
            losses.setdefault(line["case"], []).append(line["loss"])
    for case, of in losses.items():
        if max(of) - min(of) > 1e-3 * max(of):
            sys.exit(f"compare: {case}: the programs do not train alike: losses {sorted(of)}")


def measure(programs, rounds):
    """{(case, program): seconds}, medians over the rounds."""
    seconds = {}
    for _ in PROGRESS.rounds("dp", rounds):
        lines = lines_of([programs["dp"], f"--case={','.join(CASES)}"])
        check_losses(lines)
        for line in lines:
            seconds.setdefault((line["case"], line["program"]), []).append(line["seconds"])
    return {key: statistics.median(values) for key, values in seconds.items()}


def comparisons(seconds):
    for case in dict.fromkeys(case for case, _ in seconds):
        alone = seconds[case, "one_device"]
        (peer,) = (program for of, program in seconds if of == case and program not in (*OURS, "one_device"))
        for name in OURS:
            ours, peers = seconds[case, name] - alone, seconds[case, peer] - alone
            yield {
                "suite": "dp",
                "case": f"{case}/{name}",
                "ours": ours,
                "peer_name": peer,
                "peer": peers,
                "unit": "s over one device",
                "ratio": peers / ours if ours > 0 else None,
                "seconds": {"one_device": alone, "ours": seconds[case, name], "peer": seconds[case, peer]},
            }


def markdown(rows, rounds):
    out = [f"{machine()}; PyTorch 2.11.0. Medians of {rounds} rounds; the peer is {rows[0]['peer_name']}.", ""]
    out += [
        "| case | one device | ours | peer | ours over one device | peer over it | times the peer |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        steps = [in_words(row["seconds"][name]) for name in ("one_device", "ours", "peer")]
        ratio = f"{row['ratio']:.1f}" if row["ratio"] else "no overhead"
        out.append(
            f"| {row['case']} | {' | '.join(steps)} | {in_words(row['ours'])} | {in_words(row['peer'])} | {ratio} |"
        )
    return "\n".join(out)


def run(arguments, programs, _):
    """The comparisons, and the table of them."""
    rows = list(comparisons(measure(programs, arguments.rounds)))
    return rows, markdown(rows, arguments.rounds)
