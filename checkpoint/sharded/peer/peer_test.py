"""Sharded checkpoints between Lockstep and torch.distributed.checkpoint, both ways, to the bit."""

import os
import socket
import subprocess
import sys
import tempfile
import unittest
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

PROGRAM = os.path.abspath(sys.argv.pop(1)) if __name__ == "__main__" else None
WORLD_SIZE = 2

warnings.simplefilter("ignore")


def make_training():
    """A network and its optimizer, the same in every process."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3, bias=False))
    return net, torch.rand(7, 6)


def train(net, optimizer, inputs, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        net(inputs).square().mean().backward()
        optimizer.step()


def nested():
    return {
        "model": {
            "layer.weight": torch.rand(5, 3),
            "layer.bias": torch.nn.Parameter(torch.rand(5)),
            "transposed": torch.rand(3, 4).t(),
            "tail": torch.arange(10)[7:],
            "scalar": torch.tensor(7),
            "empty": torch.empty(0, 3),
            "deep": torch.rand(2, 3, 2, 3, 2),
            "conjugate": torch.rand(2, dtype=torch.complex64).conj(),
        },
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1, "params": [0, 1]}]},
        "lists": [torch.ones(1), [torch.zeros(2)], 5],
        "plain": [1, "zwei \u20ac", None, b"\xff", {"x": 1}],
        "tuple": (1, torch.arange(3)),
        "nothing": None,
        "epoch": 7,
        "many": {f"weight{i}": torch.full((i + 1,), float(i)) for i in range(50)},
    }


def string_keys(value):
    """What DCP makes of a nested state dict: keys are strings, and a conjugate is written out."""
    if isinstance(value, dict):
        return {str(key): string_keys(item) for key, item in value.items()}
    return [string_keys(item) for item in value] if isinstance(value, list) else value


def raw(tensor):
    return bytes(tensor.detach().resolve_conj().contiguous().flatten().view(torch.uint8).tolist())


def join_group(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(WORLD_SIZE))
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    return init_device_mesh("cpu", (WORLD_SIZE,))


def leave_group():
    """Ends the process: one that has used a DTensor over Gloo often aborts when Python ends (PyTorch 2.11)."""
    dist.destroy_process_group()
    os._exit(0)


def dtensors(mesh, fill):
    layouts = {
        "rows": ([Shard(0)], torch.float32, (5, 3)),
        "columns": ([Shard(1)], torch.float64, (4, 7)),
        "replicated": ([Replicate()], torch.int64, (4,)),
        "one_row": ([Shard(0)], torch.bfloat16, (1, 2)),
    }
    whole = {
        name: fill(torch.arange(torch.Size(sizes).numel(), dtype=dtype).view(sizes), number)
        for number, (name, (_, dtype, sizes)) in enumerate(layouts.items())
    }
    return {name: distribute_tensor(tensor, mesh, layouts[name][0]) for name, tensor in whole.items()}


def sharded_training(mesh):
    net, inputs = make_training()
    fully_shard(net, mesh=mesh)
    return net, torch.optim.Adam(net.parameters(), lr=0.01), inputs


def training_state(net, optimizer):
    model, states = get_state_dict(net, optimizer)
    return {"model": model, "optimizer": states}


def save_on_rank(rank, port, folder):
    mesh = join_group(rank, port)
    dcp.save(
        {"tensors": dtensors(mesh, lambda tensor, number: tensor + number), "n": 3}, checkpoint_id=folder + "/dtensor"
    )
    net, optimizer, inputs = sharded_training(mesh)
    train(net, optimizer, inputs, 3)
    dcp.save(training_state(net, optimizer), checkpoint_id=folder + "/fsdp")
    train(net, optimizer, inputs, 2)
    torch.save([p.full_tensor() for p in net.parameters()], f"{folder}/trained_{rank}.pt")
    leave_group()


def load_on_rank(rank, port, folder):
    mesh = join_group(rank, port)
    state = {"tensors": dtensors(mesh, lambda tensor, number: torch.zeros_like(tensor)), "n": 0}
    dcp.load(state, checkpoint_id=folder + "/dtensor_again")
    expected = dtensors(mesh, lambda tensor, number: tensor + number)
    assert state["n"] == 3
    for name, tensor in expected.items():
        assert raw(state["tensors"][name].full_tensor()) == raw(tensor.full_tensor()), name
    net, optimizer, inputs = sharded_training(mesh)
    state = training_state(net, optimizer)
    dcp.load(state, checkpoint_id=folder + "/fsdp_again")
    set_state_dict(net, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    train(net, optimizer, inputs, 2)
    for found, wanted in zip(net.parameters(), torch.load(f"{folder}/trained_{rank}.pt"), strict=True):
        assert raw(found.full_tensor()) == raw(wanted), "training went another way"
    leave_group()


def spawn(function, folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(function, args=(port, folder), nprocs=WORLD_SIZE)


class ShardedPeerTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        torch.manual_seed(0)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def run_program(self, *arguments):
        done = subprocess.run([PROGRAM, *map(str, arguments)], stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def whole(self, name):
        self.run_program("whole", self.path(name), self.path("whole.pt"))
        return torch.load(self.path("whole.pt"), weights_only=True)

    def assert_same(self, a, b, where="state"):
        if isinstance(a, torch.Tensor):
            self.assertEqual((a.dtype, a.shape), (b.dtype, b.shape), where)
            self.assertEqual(raw(a), raw(b), where)
            return
        self.assertIs(type(a), type(b), where)
        if isinstance(a, dict):
            self.assertEqual(list(a), list(b), f"{where}: keys")
        for key in a if isinstance(a, dict) else range(len(a)) if isinstance(a, (list, tuple)) else ():
            self.assert_same(a[key], b[key], f"{where}[{key!r}]")
        if not isinstance(a, (dict, list, tuple)):
            self.assertEqual(a, b, where)

    def test_cpp_loads_a_nested_state_dict_of_python(self):
        dcp.save(nested_once := nested(), checkpoint_id=self.path("python"), no_dist=True)
        self.assert_same(self.whole("python"), string_keys(nested_once))

    def test_python_loads_what_any_number_of_cpp_ranks_saved(self):
        state = nested()
        dcp.save(state, checkpoint_id=self.path("python"), no_dist=True)
        for ranks in (1, 5):
            cpp = self.path(f"cpp{ranks}")
            self.run_program("resave", self.path("python"), cpp, ranks)
            torch.manual_seed(1)
            again = nested()
            again["optimizer"]["param_groups"][0] = {"lr": None, "params": None}
            again["lists"][2] = again["tuple"] = again["epoch"] = None
            again["plain"] = [None, None, 0, None, {"x": None}]
            dcp.load(again, checkpoint_id=cpp, no_dist=True)
            self.assert_same(again, state)
            dcp_to_torch_save(cpp, self.path("converted.pt"))
            self.assert_same(torch.load(self.path("converted.pt"), weights_only=True), string_keys(state))

    def test_every_dtype_survives(self):
        bits = torch.tensor([1, 0, 0, 1] * 8, dtype=torch.uint8)
        dtypes = set(torch.storage._dtype_to_storage_type_map()) | torch.storage._new_dtypes()
        plain = sorted((dtype for dtype in dtypes if not str(dtype).startswith(("torch.q", "torch.bits"))), key=str)
        state = {str(dtype).replace(".", "_"): bits.clone().view(dtype) for dtype in plain}
        self.assertEqual(len(state), 22 + hasattr(torch, "bcomplex32"))
        dcp.save(state, checkpoint_id=self.path("python"), no_dist=True)
        self.assert_same(self.whole("python"), state)
        self.run_program("resave", self.path("python"), self.path("cpp"), 2)
        again = {name: torch.zeros_like(bits).view(tensor.dtype) for name, tensor in state.items()}
        dcp.load(again, checkpoint_id=self.path("cpp"), no_dist=True)
        self.assert_same(again, state)

    def test_dtensors_and_a_training_with_fully_shard_go_through_cpp(self):
        spawn(save_on_rank, self.folder.name)
        whole = self.whole("dtensor")
        self.assert_same(whole["tensors"]["rows"], torch.arange(15.0).view(5, 3))
        self.assert_same(whole["tensors"]["columns"], torch.arange(28.0, dtype=torch.float64).view(4, 7) + 1)
        for name in ("dtensor", "fsdp"):
            self.run_program("resave", self.path(name), self.path(name + "_again"), 3)
        spawn(load_on_rank, self.folder.name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
