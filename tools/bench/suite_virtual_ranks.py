"""Suite virtual_ranks: a training step with ddp::Options::virtual_ranks, beside a step without, in turn in the same processes.

At as many virtual ranks as ranks, both steps have the same batches. With fewer ranks a rank of the other step has its virtual
ranks' samples in one batch.
"""

import statistics

from measuring import PROGRESS, in_words, lines_of, machine

CASES = ("resnet18/b8/64px", "mlp_784_512_512_10/b64", "mlp_4x64/b32")
MARKS = ("<!-- measured virtual_ranks: begin -->", "<!-- measured virtual_ranks: end -->")
# Virtual ranks, ranks.
SIZES = ((2, 2), (8, 2), (8, 1))


def add_arguments(parser):
    pass


def check_arguments(arguments, parser):
    pass


def measure(programs, rounds):
    """{(virtual ranks, ranks, case): the figures of a line, medians over the rounds}."""
    lines = {}
    for _ in PROGRESS.rounds("virtual_ranks", rounds):
        for virtual_ranks, ranks in SIZES:
            command = [programs["ddp"], f"--virtual_ranks={virtual_ranks}", f"--world_size={ranks}"]
            for line in lines_of(command + [f"--case={','.join(CASES)}"]):
                lines.setdefault((virtual_ranks, ranks, line["case"]), []).append(line)
    figures = ("seconds", "seconds_without", "ratio", "samples")
    return {
        key: {figure: statistics.median(line[figure] for line in of_case) for figure in figures}
        for key, of_case in lines.items()
    }


def comparisons(measured):
    for (virtual_ranks, ranks, case), line in measured.items():
        yield {
            "suite": "virtual_ranks",
            "case": f"{case}/{virtual_ranks}on{ranks}",
            "ours": line["seconds"],
            "peer_name": "without",
            "peer": line["seconds_without"],
            "unit": "s",
            "ratio": 1 / line["ratio"],
        }


def markdown(measured, rounds):
    out = [f"{machine()}; PyTorch 2.11.0. Medians of {rounds} round{'s' if rounds > 1 else ''}.", ""]
    out += ["| virtual ranks | ranks | step | with them | without | times | samples/s with | without |"]
    out += ["|---|---|---|---|---|---|---|---|"]
    for (virtual_ranks, ranks, case), line in measured.items():
        speeds = [f"{line['samples'] / line[name]:.0f}" for name in ("seconds", "seconds_without")]
        out.append(
            f"| {virtual_ranks} | {ranks} | {case} | {in_words(line['seconds'])} | {in_words(line['seconds_without'])} | "
            f"{line['ratio']:.3f} | {speeds[0]} | {speeds[1]} |"
        )
    return "\n".join(out)


def run(arguments, programs, _):
    """The comparisons, and the table of them."""
    measured = measure(programs, arguments.rounds)
    return list(comparisons(measured)), markdown(measured, arguments.rounds)
