"""C++ ranks that train programs which Python exported, beside Python over the modules before the export, bit for bit.

usage: exported_peer_test.py TRAINER. Also: what Python makes of the files that C++ saved, and train() and eval() of a program.
Python ranks are forked from this process, which computes no gradient itself: autograd does not survive a fork.
"""

import datetime
import multiprocessing
import os
import subprocess
import sys
import tempfile
import unittest
import warnings

import nets
import torch
import torch.distributed as dist
from processes import expect_same_bits, expect_success

TRAINER = os.path.abspath(sys.argv.pop(1))
FORK = multiprocessing.get_context("fork")
STEPS, MOMENTUM, PATIENCE = 10, 0.9, 60
OPTIMIZERS = {
    "sgd": (0.05, lambda parameters, lr: torch.optim.SGD(parameters, lr=lr, momentum=MOMENTUM)),
    "adamw": (0.01, lambda parameters, lr: torch.optim.AdamW(parameters, lr=lr)),
}


def logits(output):
    if isinstance(output, dict):
        return output["logits"]
    return output[0] if isinstance(output, tuple) else output


def run(net, batch):
    return logits(net(*batch["inputs"], **batch["named"]))


def loss_of(output, targets):
    if targets.is_floating_point():
        return torch.nn.functional.mse_loss(output, targets)
    return torch.nn.functional.cross_entropy(output, targets)


def python_rank(case, rank, output):
    torch.set_num_threads(1)
    net = ddp = case.eager
    if case.world_size > 1:
        dist.init_process_group(
            "gloo",
            init_method=case.meet("python"),
            rank=rank,
            world_size=case.world_size,
            timeout=datetime.timedelta(seconds=PATIENCE),
        )
        ddp = torch.nn.parallel.DistributedDataParallel(net, **case.net.ddp)
    torch.manual_seed(rank)
    lr, make = OPTIMIZERS[case.optimizer]
    optimizer = make(ddp.parameters(), lr)
    losses = []
    batches = torch.load(f"{case.folder}/batches.pt")[f"rank{rank}"]
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(run(ddp, batch), batch["targets"])
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    state_dict = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    with torch.no_grad():
        if case.evaluate:
            net.train(not net.training)
        torch.manual_seed(rank)
        evaluated = run(net, batches[-1])
    torch.save({"losses": losses, "state_dict": state_dict}, f"{output}.pt")
    torch.save(evaluated, f"{output}_logits.pt")
    if case.world_size > 1:
        dist.destroy_process_group()
    os._exit(0)  # without destructors: the one of Gloo may wait for a thread that waits for the interpreter


class Case:
    """A network that Python exported into `folder`, and its batches."""

    def __init__(self, name, optimizer, world_size, folder, evaluate=False, exported_training=True, decompose=False):
        self.net = nets.NETS[name]
        self.optimizer, self.world_size, self.folder, self.evaluate = optimizer, world_size, folder, evaluate
        batches = {f"rank{rank}": [self.net.draw(step, rank) for step in range(STEPS)] for rank in range(world_size)}
        torch.save(batches, f"{folder}/batches.pt")
        torch.manual_seed(3)
        net = self.net.make().train(exported_training)
        sample = batches["rank0"][0]
        shapes = self.net.dynamic_shapes
        program = torch.export.export(net, tuple(sample["inputs"]), sample["named"], dynamic_shapes=shapes)
        if decompose:
            program = program.run_decompositions({})  # changes of buffers become outputs
        torch.export.save(program, f"{folder}/net.pt2")
        self.eager = net
        if self.net.eager:
            self.eager = self.net.eager()
            self.eager.load_state_dict(net.state_dict())

    def meet(self, side):
        return f"file://{self.folder}/{side}_store"

    def start_python(self, rank):
        output = f"{self.folder}/python{rank}"
        process = FORK.Process(target=python_rank, args=(self, rank, output))
        process.start()
        return process, output

    def start_cpp(self, rank):
        output = f"{self.folder}/cpp{rank}"
        flags = {
            "program": f"{self.folder}/net.pt2",
            "batches": f"{self.folder}/batches.pt",
            "rank": rank,
            "world_size": self.world_size,
            "init_method": self.meet("cpp"),
            "timeout": PATIENCE,
            "output": output,
            "optimizer": self.optimizer,
            "lr": OPTIMIZERS[self.optimizer][0],
            "evaluate": str(self.evaluate).lower(),
            **self.net.ddp,
        }
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "FATAL"}
        command = [TRAINER] + [f"--{key}={value}" for key, value in flags.items()]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment), output


class Exported(unittest.TestCase):
    def check(self, name, optimizer="sgd", world_size=1, **options):
        with tempfile.TemporaryDirectory() as folder:
            case = Case(name, optimizer, world_size, folder, **options)
            python = [case.start_python(rank) for rank in range(world_size)]
            cpp = [case.start_cpp(rank) for rank in range(world_size)]
            expect_success(self, [process for process, _ in python + cpp], 2 * PATIENCE)
            for rank in range(world_size):
                self.compare(case, python[rank][1], cpp[rank][1], f"{name}, rank {rank}")

    def compare(self, case, expected_path, found_path, where):
        expected, found = (torch.load(f"{path}.pt", weights_only=True) for path in (expected_path, found_path))
        self.assertEqual(len(expected["losses"]), STEPS)
        self.assertEqual([loss.hex() for loss in found["losses"]], [loss.hex() for loss in expected["losses"]], where)
        expect_same_bits(self, expected["state_dict"], found["state_dict"], where)
        expected_logits, found_logits = (torch.load(f"{path}_logits.pt") for path in (expected_path, found_path))
        expect_same_bits(self, {"logits": expected_logits}, {"logits": found_logits}, where)
        self.compare_saved(case, expected["state_dict"], found_path, where)

    def compare_saved(self, case, state_dict, found_path, where):
        """Python loads the files that C++ saved."""
        program = torch.export.load(f"{found_path}.pt2")
        original = torch.export.load(f"{case.folder}/net.pt2")
        self.assertEqual(list(program.state_dict), list(original.state_dict), where)
        saved = {name: program.state_dict[name] for name in state_dict}
        expect_same_bits(self, state_dict, saved, f"{where}, the saved file")
        required = {name: parameter.requires_grad for name, parameter in original.named_parameters()}
        self.assertEqual({name: value.requires_grad for name, value in program.named_parameters()}, required)
        self.assertEqual(str(program.graph_module.code), str(original.graph_module.code), where)

    def test_averaging_without_changes_in_place_alone(self):
        self.check("averaging", decompose=True)

    def test_mode_evaluation_of_what_was_exported_for_training(self):
        for name in ("dropout", "conv_net", "gpt", "recurrent"):
            with self.subTest(name):
                self.check(name, evaluate=True)

    def test_mode_training_of_what_was_exported_for_evaluation(self):
        for name in ("dropout", "conv_net", "recurrent"):
            with self.subTest(name):
                self.check(name, evaluate=True, exported_training=False)


def add_test(net, optimizer, world_size):
    place = "alone" if world_size == 1 else f"on_{world_size}_ranks"
    setattr(Exported, f"test_{net}_{optimizer}_{place}", lambda self: self.check(net, optimizer, world_size))


for net_name, net_of_name in nets.NETS.items():
    for size in net_of_name.ranks:
        for optimizer_name in OPTIMIZERS if size == 1 else ("sgd",):
            add_test(net_name, optimizer_name, size)

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    unittest.main(verbosity=2, warnings="ignore")
