"""Two and three C++ ranks that train files which Python exported, beside Python's DDP over the same files, bit for bit.

usage: scripted_peer_test.py TRAINER. Also: without LibTorch's optimizer of code, beside Python's DDP over the modules before they were
scripted; a group with a C++ rank and a Python rank; what Python makes of the files that C++ saved.
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
STEPS, LR, MOMENTUM, PATIENCE = 20, 0.05, 0.9, 60


def logits(output):
    if isinstance(output, dict):
        return output["logits"]
    return output[0] if isinstance(output, tuple) else output


def python_rank(case, rank, init_method, output):
    torch.set_num_threads(1)
    timeout = datetime.timedelta(seconds=PATIENCE)
    dist.init_process_group("gloo", init_method=init_method, rank=rank, world_size=case.world_size, timeout=timeout)
    folder = case.folder
    net = case.net if case.eager else torch.jit.load(f"{folder}/net.ts")
    if rank == 0:
        net.load_state_dict(torch.load(f"{folder}/initial.pt", weights_only=True))
    ddp = torch.nn.parallel.DistributedDataParallel(net, **case.options)
    torch.manual_seed(rank)
    # In bfloat16, torch::optim::SGD rounds the momentum as foreach does.
    optimizer = torch.optim.SGD(ddp.parameters(), lr=LR, momentum=MOMENTUM, foreach=True)
    losses = []
    for *inputs, targets in torch.load(f"{folder}/batches.pt")[f"rank{rank}"]:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(logits(ddp(*inputs)), targets)
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    torch.save({"losses": losses, "state_dict": net.state_dict()}, f"{output}.pt")
    if not case.eager:
        net.save(f"{output}.ts")
    dist.destroy_process_group()


class Case:
    """A network that Python exported into `folder`, its batches, and weights other than the file's."""

    def __init__(self, name, world_size, folder, eager=False):
        make, draw, self.options, _ = nets.NETS[name]
        self.world_size, self.folder, self.eager = world_size, folder, eager
        torch.manual_seed(3)
        self.net = make()
        torch.jit.script(self.net).save(f"{folder}/net.ts")
        # A scripted module's state dict has non-persistent buffers too.
        self.initial = (make() if eager else torch.jit.script(make())).state_dict()
        torch.save(self.initial, f"{folder}/initial.pt")
        batches = {f"rank{rank}": [draw(step, rank) for step in range(STEPS)] for rank in range(world_size)}
        torch.save(batches, f"{folder}/batches.pt")

    def start_python(self, rank, side):
        output = f"{self.folder}/{side}{rank}"
        process = FORK.Process(target=python_rank, args=(self, rank, self._meet(side), output))
        process.start()
        return process, output

    def start_cpp(self, rank, side):
        output = f"{self.folder}/{side}{rank}"
        flags = {
            "module": f"{self.folder}/net.ts",
            "state_dict": f"{self.folder}/initial.pt",
            "batches": f"{self.folder}/batches.pt",
            "rank": rank,
            "world_size": self.world_size,
            "init_method": self._meet(side),
            "timeout": PATIENCE,
            "output": output,
            "lr": LR,
            "optimize": str(not self.eager).lower(),
            **self.options,
        }
        command = [TRAINER] + [
            f"--{key}={str(value).lower()}" if value is True else f"--{key}={value}" for key, value in flags.items()
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "FATAL"}
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment), output

    def _meet(self, side):
        return f"file://{self.folder}/{side}_store"


class Scripted(unittest.TestCase):
    def check(self, name, world_size, eager=False):
        with tempfile.TemporaryDirectory() as folder:
            case = Case(name, world_size, folder, eager)
            python = [case.start_python(rank, "python") for rank in range(world_size)]
            cpp = [case.start_cpp(rank, "cpp") for rank in range(world_size)]
            expect_success(self, [process for process, _ in python + cpp], 2 * PATIENCE)
            for rank in range(world_size):
                self.compare(case, python[rank][1], cpp[rank][1], f"rank {rank}")

    def compare(self, case, expected_path, found_path, where):
        expected, found = (torch.load(f"{path}.pt", weights_only=True) for path in (expected_path, found_path))
        self.assertEqual(len(expected["losses"]), STEPS)
        self.assertEqual([loss.hex() for loss in found["losses"]], [loss.hex() for loss in expected["losses"]], where)
        expect_same_bits(self, expected["state_dict"], found["state_dict"], where)
        for key, value in case.initial.items():
            if "never" not in key and "positions" not in key:
                self.assertFalse(torch.equal(found["state_dict"][key], value), key)  # it was trained
        # Python loads the files that C++ saved.
        of_file = case.net if case.eager else torch.jit.load(f"{case.folder}/net.ts")
        self.assertEqual(str(of_file.load_state_dict(found["state_dict"])), "<All keys matched successfully>")
        trained = torch.jit.load(f"{found_path}.ts").eval()
        expect_same_bits(self, expected["state_dict"], trained.state_dict(), where)
        of_python = case.net.eval() if case.eager else torch.jit.load(f"{expected_path}.ts").eval()
        required = {key: parameter.requires_grad for key, parameter in of_python.named_parameters()}
        self.assertEqual({key: parameter.requires_grad for key, parameter in trained.named_parameters()}, required)
        *inputs, _ = torch.load(f"{case.folder}/batches.pt")["rank0"][0]
        with torch.no_grad():
            self.assertTrue(torch.equal(logits(trained(*inputs)), logits(of_python(*inputs))))

    def check_mixed(self, name):
        """Rank 0 is C++, rank 1 Python."""
        with tempfile.TemporaryDirectory() as folder:
            case = Case(name, 2, folder)
            python = [case.start_python(rank, "python") for rank in range(2)]
            mixed = [case.start_cpp(0, "mixed"), case.start_python(1, "mixed")]
            expect_success(self, [process for process, _ in python + mixed], 2 * PATIENCE)
            for rank in range(2):
                self.compare(case, python[rank][1], mixed[rank][1], f"rank {rank}")

    def test_a_mixed_group_trains_conv_net(self):
        self.check_mixed("conv_net")

    def test_a_mixed_group_trains_branches(self):
        self.check_mixed("branches")


def add_test(net, world_size, eager):
    name = f"test_{net}_on_{world_size}_ranks" + ("_without_optimization" if eager else "")
    setattr(Scripted, name, lambda self: self.check(net, world_size, eager))


for net_name, (_, _, _, world_sizes) in nets.NETS.items():
    for size in world_sizes:
        add_test(net_name, size, eager=False)
add_test("mlp", 3, eager=True)
add_test("recurrent", 3, eager=True)

if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit
    unittest.main(verbosity=2, warnings="ignore")
