"""The trainer beside Python: the losses and the weights of eager training on one rank, and of Python's DDP on two and three, to the bit.

usage: train_peer_test.py TRAIN EXPORT RESNET NET. Also: NET, which is checked in, is what RESNET writes; the newcomer's way with EXPORT;
Python loads the programs that TRAIN saves. Python ranks are forked from this process, which computes no gradient itself.
"""

import importlib.util
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import unittest

import torch
import torch.distributed as dist
from processes import bits, expect_same_bits, expect_success
from torch import nn
from torch.nn import functional as F

TRAIN, EXPORT, RESNET, NET = (os.path.abspath(path) for path in sys.argv[1:5])
FORK = multiprocessing.get_context("fork")
BATCH, ROWS, STEPS, PATIENCE = 12, 30, 20, 120  # the rows end within a batch
OPTIMIZERS = {
    "sgd": (0.05, lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9)),
    "adamw": (0.002, lambda parameters: torch.optim.AdamW(parameters, lr=0.002)),
}
LOSSES = {"cross_entropy": F.cross_entropy, "mse": F.mse_loss, "output": lambda output, _: output}


def load_script(path):
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Tokens(nn.Module):
    """Two inputs, dropout and tied weights. Returns a dict that begins with the logits."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(40, 16)
        self.norm = nn.LayerNorm(16)
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(16, 40, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens, scale):
        states = self.dropout(self.norm(self.embedding(tokens))) * scale
        return {"logits": self.head(states.mean(1)), "states": states}


class Autoencoder(nn.Module):
    """Computes its loss itself."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 3), nn.Linear(3, 8)

    def forward(self, x):
        decoded = self.decoder(torch.tanh(self.encoder(x)))
        return F.mse_loss(decoded, x), decoded


def cases():
    resnet, tokens = load_script(RESNET), [torch.randint(40, (ROWS, 6)), torch.rand(ROWS, 1, 1)]
    return {
        "resnet": (resnet.ResNet, "cross_entropy", [torch.rand(ROWS, 1, 28, 28)], torch.randint(10, (ROWS,))),
        "tokens": (Tokens, "cross_entropy", tokens, torch.randint(40, (ROWS,))),
        "autoencoder": (Autoencoder, "output", [torch.rand(ROWS, 8)], torch.zeros(ROWS)),
        "regression": (lambda: nn.Linear(8, 3), "mse", [torch.rand(ROWS, 8)], torch.rand(ROWS, 3)),
    }


def first(output):
    output = next(iter(output.values())) if isinstance(output, dict) else output
    return output[0] if isinstance(output, tuple) else output


def python_rank(rank, ranks, net, case, optimizer_name, folder):
    torch.set_num_threads(1)
    _, loss_name, inputs, targets = case
    model = net
    if ranks > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
        model = nn.parallel.DistributedDataParallel(net)
    optimizer = OPTIMIZERS[optimizer_name][1](model.parameters())
    torch.manual_seed(rank)
    losses = []
    for step in range(STEPS):
        begin = step * BATCH + rank * (BATCH // ranks)
        rows = torch.arange(begin, begin + BATCH // ranks) % ROWS
        optimizer.zero_grad()
        loss = LOSSES[loss_name](first(model(*[tensor[rows] for tensor in inputs])), targets[rows])
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    if ranks > 1:
        gathered = [None] * ranks
        dist.all_gather_object(gathered, losses)
        losses = [sum(step) / ranks for step in zip(*gathered)]
        dist.destroy_process_group()
    if rank == 0:
        torch.save({"losses": losses, "state_dict": net.state_dict()}, f"{folder}/python.pt")
    os._exit(0)  # without destructors: the one of Gloo may wait for a thread that waits for the interpreter


class Exported(unittest.TestCase):
    def train(self, folder, files, **flags):
        files = {**files, "out": "trained.pt2", "losses": "losses.json"}
        flags.update({flag: f"{folder}/{name}" for flag, name in files.items()})
        command = [TRAIN] + [f"--{flag}={value}" for flag, value in flags.items()]
        result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(f"{folder}/losses.json") as file:
            return json.load(file), torch.export.load(f"{folder}/trained.pt2")

    def check(self, name, optimizer, ranks):
        torch.manual_seed(5)
        case = cases()[name]
        make, loss, inputs, targets = case
        net = make()
        with tempfile.TemporaryDirectory() as folder:
            shapes = tuple({0: torch.export.Dim("batch")} for _ in inputs)
            exported = torch.export.export(net, tuple(tensor[:5] for tensor in inputs), dynamic_shapes=shapes)
            torch.export.save(exported, f"{folder}/net.pt2")
            torch.save({"inputs": inputs, "targets": targets}, f"{folder}/data.pt")
            shared = (ranks, net, case, optimizer, folder)
            processes = [FORK.Process(target=python_rank, args=(rank, *shared)) for rank in range(ranks)]
            for process in processes:
                process.start()
            expect_success(self, processes, PATIENCE)
            files = {"program": "net.pt2", "data": "data.pt", "weights": "trained.safetensors"}
            lr = OPTIMIZERS[optimizer][0]
            flags = {"batch": BATCH, "steps": STEPS, "optimizer": optimizer, "lr": lr, "loss": loss}
            losses, trained = self.train(folder, files, nproc_per_node=ranks, **flags)
            expected = torch.load(f"{folder}/python.pt", weights_only=True)
            self.assertEqual(losses, [float(f"{loss:.9g}") for loss in expected["losses"]])
            self.assertLess(losses[-1], losses[0])
            self.assertEqual(sorted(trained.state_dict), sorted(expected["state_dict"]))
            found = {name: trained.state_dict[name] for name in expected["state_dict"]}  # in the order of the module
            expect_same_bits(self, expected["state_dict"], found)
            net.load_state_dict(expected["state_dict"])
            with torch.no_grad():
                torch.manual_seed(1)  # for dropout
                of_python = first(net(*inputs))
                torch.manual_seed(1)
                self.assertTrue(torch.equal(first(trained.module()(*inputs)), of_python))
            self.check_weights(f"{folder}/trained.safetensors", expected["state_dict"])

    def check_weights(self, path, state_dict):
        """Reads the file by its specification: the length of the header, the header and the tensors' bytes."""
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            data = file.read()
        tied = header.pop("__metadata__", {})
        self.assertEqual(sorted([*header, *tied]), sorted(state_dict))
        for name, tensor in header.items():
            begin, end = tensor["data_offsets"]
            self.assertEqual(data[begin:end], bytes(bits(state_dict[name]).tolist()), name)

    def test_the_release_has_the_network_of_the_script(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, RESNET, f"{folder}/net.pt2"], check=True, stderr=subprocess.DEVNULL)
            written, kept = torch.export.load(f"{folder}/net.pt2"), torch.export.load(NET)
        expect_same_bits(self, written.state_dict, kept.state_dict)
        self.assertEqual(str(kept.graph), str(written.graph))

    def test_a_newcomers_network_learns_on_two_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            files = {"program": "net.pt2", "data": "data.pt"}
            paths = [f"{folder}/{name}" for name in files.values()]
            subprocess.run([sys.executable, EXPORT, *paths], check=True, stderr=subprocess.DEVNULL)
            losses, trained = self.train(folder, files, batch=64, steps=80, nproc_per_node=2)
            data = torch.load(paths[1], weights_only=True)
            with torch.no_grad():
                found = trained.module()(data["inputs"][0]).argmax(1)
        self.assertEqual(len(losses), 80)
        self.assertGreater(found.eq(data["targets"]).double().mean().item(), 0.95)


# Each network with each optimizer, each optimizer on each number of ranks. models/exported/peer has more networks.
for chosen in [
    ("resnet", "sgd", 1),
    ("resnet", "adamw", 2),
    ("tokens", "sgd", 3),
    ("tokens", "adamw", 1),
    ("autoencoder", "sgd", 2),
    ("autoencoder", "adamw", 3),
    ("regression", "sgd", 1),
    ("regression", "adamw", 2),
]:
    name = "test_{}_with_{}_on_{}_ranks".format(*chosen)
    setattr(Exported, name, lambda self, chosen=chosen: self.check(*chosen))

if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    unittest.main(argv=sys.argv[:1], verbosity=2, warnings="ignore")
