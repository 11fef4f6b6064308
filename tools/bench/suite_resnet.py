"""Suite resnet: images a second of ResNet-50's training steps, beside Python eager in each of its settings."""

import statistics
import sys

from measuring import PROGRESS, lines_of, machine

MARKS = ("<!-- measured resnet: begin -->", "<!-- measured resnet: end -->")
# Timed in one process and round, after a step that is not; the figure of a process is their median.
STEPS = 5
PROGRAMS = ("ours", "python", "python_jemalloc")
# What //base:jemalloc is to ours.
JEMALLOC = {"LD_PRELOAD": "libjemalloc.so.2", "MALLOC_CONF": "dirty_decay_ms:-1"}
# How PyTorch's ImageNet example runs: setting and ranks. Anything else is tuning.
EXAMPLE = ("float32", 1)


def add_arguments(parser):
    parser.add_argument("--batch", type=int, default=16, help="images a step, which ranks share")
    parser.add_argument("--settings", default="", help="those of resnet.cc, separated by commas, to run these alone")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="cuda: in a build with --config=cuda")


def check_arguments(arguments, parser):
    arguments.settings = [setting for setting in arguments.settings.split(",") if setting]
    if arguments.settings and EXAMPLE[0] not in arguments.settings:
        parser.error(f"--settings: {','.join(arguments.settings)}: expected {EXAMPLE[0]} among them, the example's")


def ways_of(programs, wanted, device):
    """(setting, ranks): each wanted setting that this machine has what it takes for, by one process and, on the CPU, by two ranks."""
    possible = [
        line["setting"] for line in lines_of([programs["python"], programs["resnet_python"], "settings", device])
    ]
    for setting in wanted:
        if setting not in possible:
            sys.exit(f"compare: --settings: {setting}: expected some of {','.join(possible)}")
    settings = wanted or possible
    return [(setting, ranks) for ranks in ((1, 2) if device == "cpu" else (1,)) for setting in settings]


def run_program(programs, name, way, batch, device):
    setting, ranks = way
    if name == "ours":
        flags = {"setting": setting, "ranks": ranks, "batch": batch, "steps": STEPS, "device": device}
        (line,) = lines_of([programs["resnet"], *(f"--{flag}={value}" for flag, value in flags.items())])
    else:
        command = [programs["python"], programs["resnet_python"], setting, *map(str, (ranks, batch, STEPS)), device]
        (line,) = lines_of(command, JEMALLOC if name == "python_jemalloc" else None)
    return line


def check_losses(way, losses):
    tolerance = 5e-2 if way[0].endswith(("bf16", "fp16")) else 1e-3
    if max(losses) - min(losses) > tolerance * max(losses):
        sys.exit(f"compare: {in_words(way)}: the programs do not train alike: losses {sorted(losses)}")


def measure(programs, arguments):
    """{(program, way): images a second}, medians over the rounds."""
    rates = {}
    ways = ways_of(programs, arguments.settings, arguments.device)
    for _ in PROGRESS.rounds("resnet", arguments.rounds):
        for way in ways:
            lines = {name: run_program(programs, name, way, arguments.batch, arguments.device) for name in PROGRAMS}
            check_losses(way, [line["loss"] for line in lines.values()])
            for name, line in lines.items():
                rates.setdefault((name, way), []).append(line["images_per_second"])
    return {key: statistics.median(values) for key, values in rates.items()}


def best_of(rates, ours):
    """The (program, way) that is fastest, of ours or of the others."""
    return max((key for key in rates if (key[0] == "ours") == ours), key=rates.get)


def in_words(way):
    setting, ranks = way
    return setting if ranks == 1 else f"{setting}, {ranks} ranks"


def comparisons(rates, batch):
    """Every way beside Python's, and our best beside all of them."""
    best = best_of(rates, ours=True)
    for mine in (key for key in rates if key[0] == "ours"):
        for peer in (key for key in rates if key[0] != "ours" and (mine == best or key[1] == mine[1])):
            yield {
                "suite": "resnet",
                "case": f"resnet50/b{batch}/{in_words(mine[1])}",
                "ours": rates[mine],
                "peer_name": f"{peer[0]}, {in_words(peer[1])}",
                "peer": rates[peer],
                "unit": "images/s",
                "ratio": rates[mine] / rates[peer],
            }


def markdown(rates, rounds, batch):
    steps = f"Images a second: medians of {rounds} rounds of {STEPS} steps of {batch} images"
    out = [f"{machine()}; PyTorch 2.11.0. {steps}.", "", f"| setting | {' | '.join(PROGRAMS)} |"]
    out.append("|---" * (len(PROGRAMS) + 1) + "|")
    for way in dict.fromkeys(way for _, way in rates):
        out.append(f"| {in_words(way)} | {' | '.join(f'{rates[name, way]:.2f}' for name in PROGRAMS)} |")
    best, peer = best_of(rates, ours=True), best_of(rates, ours=False)
    against = f"{rates[best] / rates['python', EXAMPLE]:.2f} times Python as the example runs it"
    out += [
        "",
        f"Our best ({in_words(best[1])}) is {against} and {rates[best] / rates[peer]:.2f} times its best ({peer[0]}, {in_words(peer[1])}).",
    ]
    return "\n".join(out)


def run(arguments, programs, _):
    """The comparisons, and the table of them."""
    rates = measure(programs, arguments)
    return list(comparisons(rates, arguments.batch)), markdown(rates, arguments.rounds, arguments.batch)
