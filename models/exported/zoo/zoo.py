#!/usr/bin/env python3
"""Exports networks of torchvision, timm and transformers, and trains each in Python and in C++: are all bits equal?

  zoo.py export FOLDER [PATTERN...]          # NAME/program.pt2, NAME/data.pt and what Python's training gives, NAME/OPTIMIZER.pt
  zoo.py compare FOLDER TRAIN [PATTERN...]   # TRAIN is examples/exported:train
  zoo.py operators FOLDER [PATTERN...]       # what the programs use: operators, higher-order operators, kinds of arguments

A PATTERN chooses networks by a part of their name. Needs torch, torchvision, timm and transformers.
"""

import collections
import copy
import json
import pathlib
import re
import subprocess
import sys
import time
import zipfile

sys.path.append(str(pathlib.Path(__file__).absolute().parents[3] / "tools"))
import required_packages  # noqa: E402

required_packages.check("torch", "torchvision", "timm", "transformers", "safetensors")
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import plain  # noqa: E402
import text  # noqa: E402
import vision  # noqa: E402
from program import BATCH  # noqa: E402

PROGRAMS = {**plain.PROGRAMS, **vision.PROGRAMS, **text.PROGRAMS}
STEPS = 20
OPTIMIZERS = {
    "sgd": (0.01, lambda parameters, lr: torch.optim.SGD(parameters, lr=lr, momentum=0.9)),
    "adamw": (0.001, lambda parameters, lr: torch.optim.AdamW(parameters, lr=lr)),
}
LOSSES = {
    "cross_entropy": torch.nn.functional.cross_entropy,
    "mse": torch.nn.functional.mse_loss,
    "output": lambda output, _: output,
}


def chosen(patterns):
    return [name for name in PROGRAMS if not patterns or any(pattern in name for pattern in patterns)]


def one_line(error):
    return re.sub(r"\s+", " ", f"{type(error).__name__}: {error}")[:300]


def train(program, optimizer_name):
    """Eager training of a copy: the losses, and the module's state afterwards."""
    net = copy.deepcopy(program.net)
    lr, make = OPTIMIZERS[optimizer_name]
    optimizer = make(net.parameters(), lr)
    torch.manual_seed(0)
    losses = []
    for step in range(STEPS):
        inputs, targets = program.batch(step)
        optimizer.zero_grad()
        output = net(*inputs)
        output = output[0] if isinstance(output, tuple) else output
        loss = LOSSES[program.loss](output, targets)
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    return {"losses": losses, "state_dict": net.state_dict()}


def export(name, folder):
    """Writes a network's files, and returns the seconds that they took."""
    begin = time.time()
    torch.manual_seed(0)
    program = PROGRAMS[name]()
    program.net.train()
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({"inputs": program.inputs, "targets": program.targets}, folder / "data.pt")
    (folder / "loss").write_text(program.loss)
    results = {optimizer: train(program, optimizer) for optimizer in OPTIMIZERS}
    for optimizer, result in results.items():
        torch.save(result, folder / f"{optimizer}.pt")
    inputs, _ = program.batch(0)
    exported = torch.export.export(program.net, tuple(inputs))
    torch.export.save(exported, folder / "program.pt2")
    return time.time() - begin


def export_all(folder, patterns):
    failures = {}
    for name in chosen(patterns):
        try:
            seconds = export(name, folder / name)
            print(f"{name}: {(folder / name / 'program.pt2').stat().st_size / 1e6:.2f} MB, {seconds:.1f} s", flush=True)
        except Exception as error:  # whatever a network's own code raises
            failures[name] = one_line(error)
            print(f"{name}: cannot be exported: {failures[name]}", flush=True)
    print(f"{len(chosen(patterns)) - len(failures)} exported, {len(failures)} not")


def bits_differ(expected, found):
    """Names a difference, or returns None."""
    if set(expected) != set(found):
        return f"the names differ: {sorted(set(expected) ^ set(found))[:4]}"
    for name, tensor in expected.items():
        if tensor.dtype != found[name].dtype or tensor.shape != found[name].shape:
            return f"{name} is {found[name].dtype} {list(found[name].shape)}"
        if tensor.contiguous().view(-1).view(torch.uint8).ne(found[name].contiguous().view(-1).view(torch.uint8)).any():
            return f"{name} differs by {(tensor.double() - found[name].double()).abs().max():.3g}"
    return None


def difference(folder, trainer, optimizer):
    """Trains in C++ and names a difference from Python, or returns None."""
    flags = {
        "program": folder / "program.pt2",
        "data": folder / "data.pt",
        "batch": BATCH,
        "steps": STEPS,
        "optimizer": optimizer,
        "lr": OPTIMIZERS[optimizer][0],
        "loss": (folder / "loss").read_text(),
        "weights": folder / f"{optimizer}.safetensors",
        "losses": folder / f"{optimizer}.json",
        "out": folder / f"{optimizer}.pt2",
    }
    command = [trainer] + [f"--{key}={value}" for key, value in flags.items()]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        return (result.stderr.strip().splitlines() or [f"exit code {result.returncode}"])[-1][:300]
    expected = torch.load(folder / f"{optimizer}.pt", weights_only=True)
    losses = [float(f"{loss:.9g}") for loss in expected["losses"]]
    found = json.loads(flags["losses"].read_text())
    if losses != found:
        step = next((step for step in range(STEPS) if losses[step : step + 1] != found[step : step + 1]), STEPS)
        return f"the loss of step {step}: {found[step : step + 1]}, expected {losses[step : step + 1]}"
    weights = safetensors.torch.load_file(flags["weights"])
    kept = {name: tensor for name, tensor in expected["state_dict"].items() if name in weights}
    missing = set(weights) ^ set(expected["state_dict"])
    with safetensors.safe_open(flags["weights"], "pt") as file:
        missing -= set(file.metadata() or {})  # tied weights, of which one name is in the file
    if missing:
        return f"the names differ: {sorted(missing)[:4]}"
    again = torch.export.load(flags["out"]).state_dict
    return bits_differ(kept, {name: weights[name] for name in kept}) or bits_differ(expected["state_dict"], again)


def compare_all(folder, trainer, patterns):
    equal = failed = 0
    print("| program | sgd | adamw |\n|---|---|---|")
    for name in chosen(patterns):
        if not (folder / name / "program.pt2").exists():
            continue
        found = [difference(folder / name, trainer, optimizer) for optimizer in OPTIMIZERS]
        equal += found == [None, None]
        failed += found != [None, None]
        print(f"| {name} | " + " | ".join(what or "equal" for what in found) + " |", flush=True)
    print(f"\n{equal} equal, {failed} not")
    return failed


def argument_kinds(argument, counts):
    (kind, value), *_ = argument.items()
    counts[kind] += 1
    if isinstance(value, dict) and len(value) == 1:
        (inner, _), *_ = value.items()
        counts[f"{kind}.{inner}"] += 1
    if kind in ("as_tensors", "as_ints", "as_floats", "as_bools", "as_strings") and not value:
        counts[f"{kind}, empty"] += 1


def count_graph(graph, operators, arguments):
    for node in graph["nodes"]:
        operators[node["target"]] += 1
        for given in node["inputs"]:
            argument_kinds(given["arg"], arguments)
            if "as_graph" in given["arg"]:
                count_graph(given["arg"]["as_graph"]["graph"], operators, arguments)
        for output in node["outputs"]:
            arguments["output of a node: " + next(iter(output))] += 1


def operators_of_all(folder, patterns):
    operators, arguments, used_by = collections.Counter(), collections.Counter(), collections.defaultdict(set)
    specs = collections.Counter()
    for name in chosen(patterns):
        path = folder / name / "program.pt2"
        if not path.exists():
            continue
        with zipfile.ZipFile(path) as archive:
            (record,) = [record for record in archive.namelist() if record.endswith("models/model.json")]
            model = json.loads(archive.read(record))
        own = collections.Counter()
        module = model["graph_module"]
        count_graph(module["graph"], own, arguments)
        operators.update(own)
        for operator in own:
            used_by[operator].add(name)
        for side in ("input_specs", "output_specs"):
            specs.update(f"{side}: {next(iter(spec))}" for spec in module["signature"][side])
    for operator, count in operators.most_common():
        print(f"{count:6} nodes in {len(used_by[operator]):3} programs  {operator}   e.g. {min(used_by[operator])}")
    for title, counts in (("kinds of arguments", arguments), ("kinds of specifications", specs)):
        print(f"\n{title}")
        for kind, count in counts.most_common():
            print(f"{count:6}  {kind}")


def main():
    torch.set_num_threads(1)
    command, folder, *rest = sys.argv[1:] if len(sys.argv) > 2 else ("help", "")
    folder = pathlib.Path(folder)
    if command == "export":
        export_all(folder, rest)
    elif command == "compare" and rest:
        sys.exit(compare_all(folder, rest[0], rest[1:]) > 0)
    elif command == "operators":
        operators_of_all(folder, rest)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
