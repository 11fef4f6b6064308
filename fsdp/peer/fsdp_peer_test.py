"""Fully sharded training in C++ beside Python's fully_shard, on two ranks, bit for bit. usage: fsdp_peer_test.py PROGRAM

The networks are exported by Python, so that C++ runs the same operators. Python ranks are forked from this process, which computes no
gradient itself: autograd does not survive a fork.
"""

import copy
import datetime
import multiprocessing
import os
import subprocess
import sys
import tempfile
import unittest

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

PROGRAM = os.path.abspath(sys.argv.pop(1))
FORK = multiprocessing.get_context("fork")
RANKS, STEPS, PATIENCE = 2, 20, 60
BACKENDS = ["shm", "gloo"]  # with parameters in shared pages, and paged


class Block(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 101), nn.Linear(101, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(x)))


class Gpt(nn.Module):
    """Its head has the weight of its embedding."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(53, 64)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm = nn.LayerNorm(64)
        self.frozen = nn.Linear(64, 64)
        self.frozen.requires_grad_(False)

    def forward(self, tokens):
        x = self.frozen(self.norm(self.blocks(self.tokens(tokens))))
        return functional.linear(x, self.tokens.weight)


def mlp():
    return nn.Sequential(nn.Linear(37, 101), nn.ReLU(), nn.Linear(101, 53), nn.ReLU(), nn.Linear(53, 10))


# name: the network, its input, and the modules that are units.
NETS = {
    "mlp": (mlp, lambda: torch.randn(8, 37), ["0", "2"]),
    "gpt": (Gpt, lambda: torch.randint(53, (2, 9)), ["blocks.0", "blocks.1"]),
}
OPTIMIZERS = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, foreach=False),
    "fused_adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, fused=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, foreach=False),
}


def train(net, optimizer, inputs, micro_steps, set_sync):
    for number, x in enumerate(inputs, start=1):
        last = number % micro_steps == 0
        set_sync(last)
        net(x).square().mean().backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()


def python_rank(training, net, units, rank, meeting, output):
    torch.set_num_threads(1)
    timeout = datetime.timedelta(seconds=PATIENCE)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS, timeout=timeout)
    mesh = init_device_mesh("cpu", (RANKS,))
    for unit in units:
        fully_shard(net.get_submodule(unit), mesh=mesh)
    fully_shard(net, mesh=mesh)
    optimizer = OPTIMIZERS[training["optimizer"]](net.parameters())
    train(net, optimizer, training["inputs"][rank], training["micro_steps"], net.set_requires_gradient_sync)
    parameters = {name: parameter.full_tensor() for name, parameter in net.named_parameters()}
    if rank == 0:
        torch.save(parameters, output)
    dist.destroy_process_group()
    os._exit(0)  # without destructors: the one of Gloo may wait for a thread that waits for the interpreter


class FsdpPeerTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_ranks(self, start):
        processes = [start(rank) for rank in range(RANKS)]
        for process in processes:
            process.join(PATIENCE)
            self.assertEqual(process.exitcode, 0)

    def compare(self, name, optimizer, micro_steps):
        make, draw, units = NETS[name]
        torch.manual_seed(3)
        net = make()
        program, training_file = f"{self.folder}/{name}.pt2", f"{self.folder}/training.pt"
        torch.export.save(torch.export.export(copy.deepcopy(net), (draw(),)), program)
        training = {
            "program": program,
            "units": units,
            "optimizer": optimizer,
            "micro_steps": micro_steps,
            "inputs": [[draw() for _ in range(STEPS * micro_steps)] for _ in range(RANKS)],
        }
        torch.save(training, training_file)
        prefix = f"{self.folder}/{name}_{optimizer}_{micro_steps}"
        python_output = f"{prefix}_python.pt"

        def start_python(rank):
            arguments = (training, net, units, rank, f"{python_output}.meeting", python_output)
            process = FORK.Process(target=python_rank, args=arguments)
            process.start()
            return process

        self.run_ranks(start_python)
        expected, before = torch.load(python_output), dict(net.named_parameters())
        for backend in BACKENDS:
            outputs = [f"{prefix}_{backend}{rank}.pt" for rank in range(RANKS)]
            meeting = f"file://{outputs[0]}.meeting"
            ranks = [
                subprocess.Popen([PROGRAM, training_file, output, meeting, str(rank), str(RANKS), backend])
                for rank, output in enumerate(outputs)
            ]
            self.assertEqual([rank.wait(PATIENCE) for rank in ranks], [0] * RANKS)
            for output in outputs:
                found = torch.load(output)
                self.assertEqual(list(found), list(expected))
                for key, tensor in expected.items():
                    self.assertTrue(torch.equal(found[key], tensor), f"{output}: {key}")
                    self.assertEqual(torch.equal(before[key], tensor), key.startswith("frozen"), key)

    def test_parameters_have_the_bits_of_fully_shard(self):
        for name in NETS:
            for optimizer in OPTIMIZERS:
                with self.subTest(f"{name}, {optimizer}"):
                    self.compare(name, optimizer, micro_steps=1)

    def test_accumulated_gradients_have_the_bits_of_fully_shard(self):
        for name in NETS:
            with self.subTest(name):
                self.compare(name, "adamw", micro_steps=3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
