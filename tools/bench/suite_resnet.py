"""Suite resnet: images a second of ResNet-50's training steps on the CPU, beside Python eager in each of its settings."""

import statistics
import sys

from measuring import lines_of, machine

MARKS = ("<!-- measured resnet: begin -->", "<!-- measured resnet: end -->")
# Timed in one process and round, after a step that is not; the figure of a process is their median.
STEPS = 3
PROGRAMS = ("ours", "python", "python_jemalloc")
# What //base:jemalloc is to ours.
JEMALLOC = {"LD_PRELOAD": "libjemalloc.so.2", "MALLOC_CONF": "dirty_decay_ms:-1"}
# How PyTorch's ImageNet example runs; any other setting is tuning.
EXAMPLE = "float32"


def add_arguments(parser):
    parser.add_argument("--batch", type=int, default=16)


def check_arguments(arguments, parser):
    pass


def settings_of(programs):
    """Those that this processor has instructions for."""
    return [line["setting"] for line in lines_of([programs["python"], programs["resnet_python"], "settings"])]


def run_program(programs, name, setting, batch):
    if name == "ours":
        (line,) = lines_of([programs["resnet"], f"--setting={setting}", f"--batch={batch}", f"--steps={STEPS}"])
    else:
        command = [programs["python"], programs["resnet_python"], setting, str(batch), str(STEPS)]
        (line,) = lines_of(command, JEMALLOC if name == "python_jemalloc" else None)
    return line


def check_losses(setting, losses):
    tolerance = 5e-2 if "bf16" in setting else 1e-3
    if max(losses) - min(losses) > tolerance * max(losses):
        sys.exit(f"compare: {setting}: the programs do not train alike: losses {sorted(losses)}")


def measure(programs, rounds, batch):
    """{(program, setting): images a second}, medians over the rounds."""
    rates = {}
    settings = settings_of(programs)
    for _ in range(rounds):
        for setting in settings:
            lines = {name: run_program(programs, name, setting, batch) for name in PROGRAMS}
            check_losses(setting, [line["loss"] for line in lines.values()])
            for name, line in lines.items():
                rates.setdefault((name, setting), []).append(line["images_per_second"])
    return {key: statistics.median(values) for key, values in rates.items()}


def best_of(rates, ours):
    """The (program, setting) that is fastest, of ours or of the others."""
    return max((key for key in rates if (key[0] == "ours") == ours), key=rates.get)


def comparisons(rates, batch):
    """Every setting beside Python's, and our best beside all of them."""
    best = best_of(rates, ours=True)
    for mine in (key for key in rates if key[0] == "ours"):
        for peer in (key for key in rates if key[0] != "ours" and (mine == best or key[1] == mine[1])):
            yield {
                "suite": "resnet",
                "case": f"resnet50/b{batch}/{mine[1]}",
                "ours": rates[mine],
                "peer_name": "_".join(peer),
                "peer": rates[peer],
                "unit": "images/s",
                "ratio": rates[mine] / rates[peer],
            }


def markdown(rates, rounds, batch):
    steps = f"Images a second: medians of {rounds} rounds of {STEPS} steps of {batch} images"
    out = [f"{machine()}; PyTorch 2.11.0. {steps}.", "", f"| setting | {' | '.join(PROGRAMS)} |"]
    out.append("|---" * (len(PROGRAMS) + 1) + "|")
    for setting in dict.fromkeys(setting for _, setting in rates):
        out.append(f"| {setting} | {' | '.join(f'{rates[name, setting]:.2f}' for name in PROGRAMS)} |")
    best, peer = best_of(rates, ours=True), best_of(rates, ours=False)
    against = f"{rates[best] / rates['python', EXAMPLE]:.2f} times Python as the example runs it"
    out += [
        "",
        f"Our best, {best[1]}, is {against} and {rates[best] / rates[peer]:.2f} times its best, {'_'.join(peer)}.",
    ]
    return "\n".join(out)


def run(arguments, programs, _):
    """The comparisons, and the table of them."""
    rates = measure(programs, arguments.rounds, arguments.batch)
    return list(comparisons(rates, arguments.batch)), markdown(rates, arguments.rounds, arguments.batch)
