"""Suite ddp: a training step of two ranks with one thread each on this host, beside Python's DistributedDataParallel over Gloo."""

import statistics
import sys

from measuring import PROGRESS, TUNED, in_words, lines_of, machine

CASES = ("resnet18/b8/64px", "mlp_784_512_512_10/b64", "mlp_4x64/b32")
MARKS = ("<!-- measured ddp: begin -->", "<!-- measured ddp: end -->")

# Those that average gradients train alike, and those whose ranks train apart. Ours is measured with its gradient allocator,
# which a program installs, and without.
AVERAGING = ("ours", "ours_without_gradient_allocator", "python_ddp", "python_ddp_bucket_view")
APART = ("cpp_local", "python_ddp_noop_hook", "python_local")
PROGRAMS = AVERAGING + APART
SUITES = ("ddp", "ddp_tuned")


def add_arguments(parser):
    parser.add_argument("--cases", default=",".join(CASES))


def check_arguments(arguments, parser):
    arguments.cases = [case for case in arguments.cases.split(",") if case]
    for case in arguments.cases:
        if case not in CASES:
            parser.error(f"--cases: {case}: expected some of {','.join(CASES)}")


def run_program(programs, name, cases, tuned):
    if name.startswith("ours") or name == "cpp_local":
        backend = "local" if name == "cpp_local" else "shm"
        command = [programs["ddp"], f"--case={','.join(cases)}", f"--backend={backend}"]
        command += ["--gradient_allocator"] if name == "ours" else []
        # THP_MEM_ALLOC_ENABLE is LibTorch's own setting, which has no other way in.
        environment = {"THP_MEM_ALLOC_ENABLE": TUNED["THP_MEM_ALLOC_ENABLE"]}
        return lines_of(command + ["--tuned_allocator"], environment) if tuned else lines_of(command)
    command = [programs["python"], programs["ddp_python"], name[len("python_") :], ",".join(cases)]
    return lines_of(command, TUNED if tuned else None)


def check_losses(losses):
    """Ends the run unless all programs of a kind have trained the same network on the same data to the same loss."""
    for kind in (AVERAGING, APART):
        for case in {case for _, case in losses}:
            reference = losses[kind[0], case]
            for name in kind:
                if not abs(losses[name, case] - reference) <= 1e-3 * abs(reference):
                    sys.exit(
                        f"compare: {case}: the loss of {name} is {losses[name, case]}, that of {kind[0]} {reference}"
                    )


def measure(programs, rounds, cases):
    """{(suite, program, case): seconds}, and {case: figures} of what wrapping adds to a step of two ranks."""
    seconds, in_turn = {}, {}
    for _ in PROGRESS.rounds("ddp", rounds):
        for suite in SUITES:
            losses = {}
            for name in PROGRAMS:
                for line in run_program(programs, name, cases, tuned=suite == "ddp_tuned"):
                    seconds.setdefault((suite, name, line["case"]), []).append(line["seconds"])
                    losses[name, line["case"]] = line["loss"]
            check_losses(losses)
        for name, command in (
            ("ours", [programs["ddp"], "--overhead", "--world_size=1"]),
            ("python_ddp", [programs["python"], programs["ddp_python"], "overhead", ""]),
        ):
            for line in lines_of(command):
                seconds.setdefault(("ddp_world_size_1", name, line["case"]), []).append(line["seconds"])
        for line in lines_of([programs["ddp"], "--overhead", "--gradient_allocator", f"--case={','.join(cases)}"]):
            in_turn.setdefault(line["case"], []).append(line)
    medians = {key: statistics.median(values) for key, values in seconds.items()}
    figures = ("wrapped", "local", "ratio")
    return medians, {
        case: {figure: statistics.median(line[figure] for line in lines) for figure in figures}
        for case, lines in in_turn.items()
    }


def comparisons(seconds, in_turn):
    for (suite, name, case), peer in seconds.items():
        if name == "ours":
            continue
        ours = seconds[suite, "ours", case]
        yield {
            "suite": suite,
            "case": case,
            "ours": ours,
            "peer_name": name,
            "peer": peer,
            "unit": "s",
            "ratio": peer / ours,
        }
    for case, figures in in_turn.items():
        yield {
            "suite": "ddp_in_turn",
            "case": case,
            "ours": figures["wrapped"],
            "peer_name": "cpp_local",
            "peer": figures["local"],
            "unit": "s",
            "ratio": 1 / figures["ratio"],
        }


def markdown(seconds, in_turn, cases, rounds):
    out = [f"{machine()}; PyTorch 2.11.0. Medians of {rounds} rounds.", ""]
    header = "| allocator | step | ours | without its gradient allocator | C++ local | Python DDP | its bucket views | its no-op hook | Python local | times Python DDP |"
    out += [header, "|---|---|---|---|---|---|---|---|---|---|"]
    order = (
        "ours",
        "ours_without_gradient_allocator",
        "cpp_local",
        "python_ddp",
        "python_ddp_bucket_view",
        "python_ddp_noop_hook",
        "python_local",
    )
    for suite in SUITES:
        for case in cases:
            figures = [in_words(seconds[suite, name, case]) for name in order]
            times = seconds[suite, "python_ddp", case] / seconds[suite, "ours", case]
            allocator = "tuned" if suite == "ddp_tuned" else "default"
            out.append(f"| {allocator} | {case} | {' | '.join(figures)} | {times:.2f} |")
    out += [
        "",
        "Ours beside C++ local, in turn in blocks of steps in the same processes; `times` is the median of the blocks' ratios:",
    ]
    out += ["", "| step | ours | C++ local | times |", "|---|---|---|---|"]
    for case, figures in in_turn.items():
        step, local = in_words(figures["wrapped"]), in_words(figures["local"])
        out.append(f"| {case} | {step} | {local} | {figures['ratio']:.2f} |")
    out += [
        "",
        "The time that wrapping adds to a step at world size 1:",
        "",
        "| step | ours | Python DDP |",
        "|---|---|---|",
    ]
    for suite, name, case in seconds:
        if suite == "ddp_world_size_1" and name == "ours":
            peer = seconds[suite, "python_ddp", case]
            out.append(f"| {case} | {in_words(seconds[suite, name, case])} | {in_words(peer)} |")
    return "\n".join(out)


def run(arguments, programs, _):
    """The comparisons, and the table of them."""
    seconds, in_turn = measure(programs, arguments.rounds, arguments.cases)
    return list(comparisons(seconds, in_turn)), markdown(seconds, in_turn, arguments.cases, arguments.rounds)
