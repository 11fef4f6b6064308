"""Suite resnet: images a second of ResNet-50's training steps on the CPU, beside Python eager in each of its settings."""

import statistics
import sys

from measuring import TUNED, lines_of, machine

MARKS = ("<!-- measured resnet: begin -->", "<!-- measured resnet: end -->")
# Timed in one process and round, after a step that is not.
STEPS = 1
# How PyTorch's ImageNet example runs; any other setting is tuning.
EXAMPLE = "float32"


def add_arguments(parser):
    parser.add_argument("--batch", type=int, default=16)


def check_arguments(arguments, parser):
    pass


def settings_of(programs):
    """Those that this processor has instructions for, with and without a tuned allocator."""
    lines = lines_of([programs["python"], programs["resnet_python"], "settings"])
    return [line["setting"] + allocator for allocator in ("", "+allocator") for line in lines]


def run_program(programs, name, setting, batch):
    setting, tuned, _ = setting.partition("+allocator")
    if name == "ours":
        command = [programs["resnet"], f"--setting={setting}", f"--batch={batch}", f"--steps={STEPS}"]
        # THP_MEM_ALLOC_ENABLE is LibTorch's own setting, which has no other way in.
        environment = {"THP_MEM_ALLOC_ENABLE": TUNED["THP_MEM_ALLOC_ENABLE"]}
        (line,) = lines_of(command + ["--tuned_allocator"], environment) if tuned else lines_of(command)
    else:
        command = [programs["python"], programs["resnet_python"], setting, str(batch), str(STEPS)]
        (line,) = lines_of(command, TUNED if tuned else None)
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
            lines = {name: run_program(programs, name, setting, batch) for name in ("ours", "python")}
            check_losses(setting, [line["loss"] for line in lines.values()])
            for name, line in lines.items():
                rates.setdefault((name, setting), []).append(line["images_per_second"])
    return {key: statistics.median(values) for key, values in rates.items()}


def best_of(program, rates):
    return max((setting for of, setting in rates if of == program), key=lambda setting: rates[program, setting])


def comparisons(rates, batch):
    """Every setting beside its like, and our best beside each of Python's."""
    best = best_of("ours", rates)
    settings = [setting for of, setting in rates if of == "ours"]
    pairs = [(setting, setting) for setting in settings] + [(best, peer) for peer in settings if peer != best]
    for mine, peer in pairs:
        yield {
            "suite": "resnet",
            "case": f"resnet50/b{batch}/{mine}",
            "ours": rates["ours", mine],
            "peer_name": f"python_{peer}",
            "peer": rates["python", peer],
            "unit": "images/s",
            "ratio": rates["ours", mine] / rates["python", peer],
        }


def markdown(rates, rounds, batch):
    steps = f"Images a second: medians of {rounds} rounds, steps of {batch} images"
    out = [f"{machine()}; PyTorch 2.11.0. {steps}.", "", "| setting | ours | Python | times it |", "|---|---|---|---|"]
    for setting in (setting for of, setting in rates if of == "ours"):
        mine, peer = rates["ours", setting], rates["python", setting]
        out.append(f"| {setting} | {mine:.2f} | {peer:.2f} | {mine / peer:.2f} |")
    best, peers_best = best_of("ours", rates), best_of("python", rates)
    eager, tuned = (rates["ours", best] / rates["python", setting] for setting in (EXAMPLE, peers_best))
    against = f"{eager:.2f} times Python as the example runs it and {tuned:.2f} times its best, {peers_best}"
    out += ["", f"Our best, {best}, is {against}."]
    return "\n".join(out)


def run(arguments, programs, _):
    """The comparisons, and the table of them."""
    rates = measure(programs, arguments.rounds, arguments.batch)
    return list(comparisons(rates, arguments.batch)), markdown(rates, arguments.rounds, arguments.batch)
