"""The trainers against Python DDP: from one state dict and over one order of samples, the same losses and parameters to the bit.

usage: train_peer_test.py TRAIN RESUME DATA_FOLDER. RESUME resumes a checkpoint that Python wrote, and its checkpoints have the
parameters and the sums of the losses. TRAIN begins with the parameters of seed 0, and prints its losses' mean and its accuracy.
Both run under Python's real torchrun, and RESUME under Open MPI's mpirun too.
"""

import gzip
import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

BATCH_SIZE, LR, MOMENTUM, SEED, RANKS = 1024, 0.15, 0.9, 0, 2
TRAIN, RESUME, DATA = sys.argv[1:4]
IMAGES = 60000


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear_relu_stack = torch.nn.Sequential(
            torch.nn.Linear(784, 512),
            torch.nn.ReLU(),
            torch.nn.Linear(512, 512),
            torch.nn.ReLU(),
            torch.nn.Linear(512, 10),
        )

    def forward(self, images):
        return self.linear_relu_stack(images.flatten(1))


def read_idx(path, header):
    with gzip.open(path) as file:
        return torch.from_numpy(numpy.frombuffer(file.read(), numpy.uint8)[header:].copy())


def dataset(split):
    images = read_idx(f"{DATA}/{split}-images-idx3-ubyte.gz", 16).view(-1, 1, 28, 28)
    labels = read_idx(f"{DATA}/{split}-labels-idx1-ubyte.gz", 8).long()
    return torch.utils.data.TensorDataset(images.float().div(255).sub(0.2860).div(0.3530), labels)


def make_optimizer(net, adamw):
    parameters = net.parameters()
    return torch.optim.AdamW(parameters) if adamw else torch.optim.SGD(parameters, lr=LR, momentum=MOMENTUM)


def python_rank(rank, folder, adamw=False):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    net = Net()
    net.load_state_dict(torch.load(f"{folder}/initial.pt", weights_only=True))
    ddp = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = make_optimizer(ddp, adamw)
    learning_rate = optimizer.param_groups[0]["lr"]
    data = dataset("train")
    sampler = torch.utils.data.distributed.DistributedSampler(data, RANKS, rank, seed=SEED)
    sampler.set_epoch(0)
    loader = torch.utils.data.DataLoader(data, BATCH_SIZE // RANKS, sampler=sampler)
    losses = []
    steps = len(loader)
    for done, (images, labels) in enumerate(loader):
        warm_up = 0.3 * steps
        factor = (done + 1) / (warm_up + 1) if done < warm_up else (steps - done) / (steps - warm_up)
        optimizer.param_groups[0]["lr"] = learning_rate * factor
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(ddp(images), labels)
        loss.backward()
        optimizer.step()
        mean = torch.tensor(loss.item(), dtype=torch.float64)
        dist.all_reduce(mean)
        losses.append(mean.item() / RANKS)
    if rank == 0:
        images, labels = dataset("t10k").tensors
        accuracy = net(images).argmax(1).eq(labels).double().mean().item()
        result = {"losses": losses, "accuracy": accuracy, "state_dict": net.state_dict()}
        torch.save(result, f"{folder}/python.pt")
    dist.destroy_process_group()


def write_first_checkpoint(folder, state_dict, adamw=False):
    """Writes what RESUME would save before its first step."""
    optimizer = make_optimizer(Net(), adamw)
    sampler = {"size": IMAGES, "num_replicas": RANKS, "seed": SEED, "epoch": 0, "consumed": 0}
    sampler.update({"shuffle": True, "drop_last": False, "permutation": "torch"})
    checkpoint = {
        "batch_size": BATCH_SIZE,
        "state_dict": state_dict,
        "optimizer": optimizer.state_dict(),
        "sampler": sampler,
        "bucket_layout": {"world_size": RANKS, "buckets": []},
        "lockstep": {"step": 0, "metrics": {}, "world_size": RANKS, "rank_states": [None] * RANKS},
    }
    torch.save(checkpoint, f"{folder}/step_00000000.pt")


def run(launcher, program, flags):
    """Its stdout."""
    common = [f"--data_dir={DATA}", "--epochs=1", f"--batch_size={BATCH_SIZE}"]
    return subprocess.run(launcher + [program] + common + flags, check=True, stdout=subprocess.PIPE, text=True).stdout


def run_under_torchrun(program, flags):
    torchrun = ["-m", "torch.distributed.run", f"--nproc_per_node={RANKS}", "--standalone", "--no-python"]
    return run([sys.executable] + torchrun, program, flags)


def run_under_mpirun(program, flags):
    if not shutil.which("mpirun"):
        raise FileNotFoundError("no mpirun on this machine: install Debian's package openmpi-bin")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # Open MPI sets the ranks, but not the place where they meet.
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(RANKS)]
    return run(mpirun + ["-x", "MASTER_ADDR=127.0.0.1", "-x", f"MASTER_PORT={port}"], program, flags)


class TrainAgainstPython(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = cls.temporary.name
        torch.manual_seed(0)
        cls.initial = Net().state_dict()
        torch.save(cls.initial, f"{cls.folder}/initial.pt")
        mp.spawn(python_rank, args=(cls.folder,), nprocs=RANKS)
        cls.python = torch.load(f"{cls.folder}/python.pt", weights_only=True)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def test_losses_fall(self):
        losses = self.python["losses"]
        self.assertGreaterEqual(len(losses), 50)
        self.assertLess(losses[-1], 0.5 * losses[0])

    def test_mean_loss_and_accuracy_are_equal_under_torchrun(self):
        lines = run_under_torchrun(TRAIN, []).splitlines()
        self.assertEqual(len(lines), 3, lines)  # a heading, an epoch and the result: one group, not one of each process
        loss = sum(self.python["losses"]) / len(self.python["losses"])
        self.assertEqual(lines[1].split()[:3], ["1", f"{loss:.4f}", f"{self.python['accuracy']:.4f}"])

    def expect_python_losses(self, folder):
        sums = list(itertools.accumulate(self.python["losses"]))
        for step in 20, 40:
            checkpoint = torch.load(f"{folder}/step_{step:08}.pt", weights_only=True)
            self.assertEqual((checkpoint["losses"], checkpoint["loss_steps"]), (sums[step - 1], step))

    def expect_python_parameters(self, folder, python):
        """Returns the checkpoint after the last step."""
        last = f"{folder}/step_{len(python['losses']):08}.pt"
        checkpoint = torch.load(last, weights_only=True)
        self.assertEqual(list(checkpoint["state_dict"]), list(python["state_dict"]))
        for name, value in python["state_dict"].items():
            self.assertTrue(torch.equal(checkpoint["state_dict"][name], value), name)
        return checkpoint

    def test_parameters_are_bit_equal_under_mpirun(self):
        folder = f"{self.folder}/mpirun"
        os.mkdir(folder)
        write_first_checkpoint(folder, self.initial)
        output = run_under_mpirun(RESUME, [f"--checkpoint_dir={folder}"])
        self.assertEqual(output.count("done: test accuracy"), 1, output)  # one group, not one of each process
        self.expect_python_parameters(folder, self.python)

    def test_parameters_are_bit_equal_with_adamw(self):
        folder = f"{self.folder}/adamw"
        os.mkdir(folder)
        torch.save(self.initial, f"{folder}/initial.pt")
        mp.spawn(python_rank, args=(folder, True), nprocs=RANKS)
        write_first_checkpoint(folder, self.initial, adamw=True)
        run_under_torchrun(RESUME, [f"--checkpoint_dir={folder}", "--adamw"])
        self.expect_python_parameters(folder, torch.load(f"{folder}/python.pt", weights_only=True))

    def test_losses_and_parameters_are_bit_equal_under_torchrun_from_a_checkpoint_of_python(self):
        write_first_checkpoint(self.folder, self.initial)
        run_under_torchrun(RESUME, [f"--checkpoint_dir={self.folder}"])
        self.expect_python_losses(self.folder)
        checkpoint = self.expect_python_parameters(self.folder, self.python)
        # Python continues from the file that C++ saved, without a conversion.
        net = Net()
        net.load_state_dict(checkpoint["state_dict"])
        optimizer = make_optimizer(net, adamw=False)
        optimizer.load_state_dict(checkpoint["optimizer"])
        self.assertEqual(len(optimizer.state_dict()["state"]), 6)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    unittest.main(argv=sys.argv[:1], verbosity=2)
