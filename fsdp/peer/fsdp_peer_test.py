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
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
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


def state_of(net, optimizer, options):
    model, states = get_state_dict(net, optimizer, options=options)
    return {"model": model, "optim": states}


def python_rank(training, net, units, rank, meeting, output):
    torch.set_num_threads(1)
    timeout = datetime.timedelta(seconds=PATIENCE)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS, timeout=timeout)
    mesh = init_device_mesh("cpu", (RANKS,))
    policy = MixedPrecisionPolicy()
    if "mixed" in training:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=getattr(torch, training["mixed"]))
    for unit in units:
        fully_shard(net.get_submodule(unit), mesh=mesh, mp_policy=policy)
    fully_shard(net, mesh=mesh, mp_policy=policy)
    optimizer = OPTIMIZERS[training["optimizer"]](net.parameters())
    options = StateDictOptions(flatten_optimizer_state_dict=training.get("flat", False))
    if "load" in training:
        state = state_of(net, optimizer, options)
        dcp.load(state, checkpoint_id=training["load"])
        set_state_dict(
            net, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"], options=options
        )
    train(net, optimizer, training["inputs"][rank], training["micro_steps"], net.set_requires_gradient_sync)
    if "save" in training:
        dcp.save(state_of(net, optimizer, options), checkpoint_id=training["save"])
    if "full" in training:
        whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
        model, states = get_state_dict(net, optimizer, options=whole)
        if rank == 0:
            torch.save({"model": model, "optimizer": states}, training["full"])
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

    def run_ranks(self, start, ranks=RANKS):
        processes = [start(rank) for rank in range(ranks)]
        for process in processes:
            process.join(PATIENCE)
            self.assertEqual(process.exitcode, 0)

    def training_of(self, name, optimizer, micro_steps):
        """The network, and what both sides get."""
        make, draw, units = NETS[name]
        torch.manual_seed(3)
        net = make()
        program = f"{self.folder}/{name}.pt2"
        torch.export.save(torch.export.export(copy.deepcopy(net), (draw(),)), program)
        return net, {
            "program": program,
            "units": units,
            "optimizer": optimizer,
            "micro_steps": micro_steps,
            "inputs": [[draw() for _ in range(STEPS * micro_steps)] for _ in range(RANKS)],
        }

    def run_python(self, net, training):
        output = tempfile.mktemp(dir=self.folder)

        def start(rank):
            arguments = (training, net, training["units"], rank, f"{output}.meeting", output)
            process = FORK.Process(target=python_rank, args=arguments)
            process.start()
            return process

        self.run_ranks(start)
        return torch.load(output)

    def run_cpp(self, training, ranks=RANKS, backend="shm"):
        """The parameters on each rank."""
        output = tempfile.mktemp(dir=self.folder)
        torch.save(training, f"{output}.training")
        words = [
            [
                PROGRAM,
                f"{output}.training",
                f"{output}{rank}",
                f"file://{output}.meeting",
                str(rank),
                str(ranks),
                backend,
            ]
            for rank in range(ranks)
        ]
        running = [subprocess.Popen(rank) for rank in words]
        self.assertEqual([rank.wait(PATIENCE) for rank in running], [0] * ranks)
        return [torch.load(f"{output}{rank}") for rank in range(ranks)]

    def assert_same(self, found, expected):
        self.assertEqual(list(found), list(expected))
        for key, tensor in expected.items():
            self.assertTrue(torch.equal(found[key], tensor), key)

    def compare(self, name, optimizer, micro_steps):
        net, training = self.training_of(name, optimizer, micro_steps)
        expected = self.run_python(net, training)
        before = dict(net.named_parameters())
        for backend in BACKENDS:
            for found in self.run_cpp(training, backend=backend):
                self.assert_same(found, expected)
        for key, tensor in expected.items():
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

    def parts_of(self, training, *bounds):
        """The training, cut before the steps `bounds`."""
        for first, last in zip((0, *bounds), (*bounds, STEPS), strict=True):
            yield {**training, "inputs": [inputs[first:last] for inputs in training["inputs"]]}

    def test_training_goes_on_in_the_other_language_and_on_other_ranks(self):
        for name, optimizer, flat in (("gpt", "adamw", False), ("mlp", "sgd", True)):
            with self.subTest(f"{name}, {optimizer}, {flat=}"):
                net, training = self.training_of(name, optimizer, micro_steps=1)
                expected = self.run_python(net, training)
                first, middle, last = self.parts_of({**training, "flat": flat}, 7, 14)
                nothing = {**last, "inputs": [[], [], []]}
                python, rows, elements, three = (f"{self.folder}/{name}_{step}" for step in range(4))
                self.run_python(net, {**first, "save": python})
                # Optimizers that are not fused give rows and other slices the same bits.
                self.run_cpp({**middle, "load": python, "save": rows, "rows": True})
                self.run_cpp({**middle, "load": python, "save": elements, "rows": False}, backend="gloo")
                self.run_cpp({**nothing, "load": elements, "save": three, "rows": False}, ranks=3, backend="gloo")
                self.assert_same(self.run_python(net, {**last, "load": three}), expected)
                for found in self.run_cpp({**last, "load": rows, "rows": False}):
                    self.assert_same(found, expected)

    def test_shards_have_the_bits_of_fully_shard_in_mixed_precision(self):
        for name in NETS:
            for reduce_dtype, micro_steps in (("bfloat16", 1), ("float32", 1), ("float32", 3)):
                with self.subTest(name, reduce_dtype=reduce_dtype, micro_steps=micro_steps):
                    net, training = self.training_of(name, "adamw", micro_steps)
                    training["mixed"] = reduce_dtype
                    python = f"{self.folder}/mixed_python.pt"
                    self.run_python(net, {**training, "full": python})
                    expected = torch.load(python, weights_only=True)
                    self.assertEqual({tensor.dtype for tensor in expected["model"].values()}, {torch.float32})
                    for backend in BACKENDS:
                        file = f"{self.folder}/mixed_{backend}.pt"
                        self.run_cpp({**training, "full": file}, backend=backend)
                        found = torch.load(file, weights_only=True)
                        self.assert_same({**found["model"]}, {**expected["model"]})

    def test_full_files_have_the_states_of_fully_shard(self):
        net, training = self.training_of("mlp", "adamw", micro_steps=1)
        files = {side: f"{self.folder}/full_{side}.pt" for side in ("python", "cpp")}
        first, second = self.parts_of({**training, "rows": False}, 10)
        self.run_python(net, {**first, "full": files["python"]})
        self.run_cpp({**first, "full": files["cpp"]}, backend="gloo")
        expected = self.run_cpp(training)[0]
        for file in files.values():
            for found in self.run_cpp({**second, "load_full": file}):
                self.assert_same(found, expected)
        python, cpp = (torch.load(files[side], weights_only=True) for side in ("python", "cpp"))
        self.assert_same({**cpp["model"]}, {**python["model"]})
        optimizer = OPTIMIZERS["adamw"](net.parameters())
        optimizer.load_state_dict(cpp["optimizer"])
        names = {parameter: name for name, parameter in net.named_parameters()}
        self.assertEqual(len(optimizer.state), len(names))
        for parameter, state in optimizer.state.items():
            self.assert_same(state, python["optimizer"]["state"][names[parameter]])


if __name__ == "__main__":
    unittest.main(verbosity=2)
