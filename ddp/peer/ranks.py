"""Starts ranks that train, C++ ones (trainer.cc, the test's first argument) and Python ones, and compares what came out.

Python ranks are forked from this process, which has imported torch. It computes no gradient itself: autograd does not survive a fork.
"""

import multiprocessing
import os
import socket
import subprocess
import sys

import nets
import processes
import torch
import training

TRAINER = os.path.abspath(sys.argv.pop(1))
FORK = multiprocessing.get_context("fork")
STEPS = 20

# name: the network, options of DDP, and how many backward passes a step has. Buckets are small enough for at least three of them.
CASES = {
    "mlp": ("mlp", {"bucket_cap_mb": 0.012}, 1),
    "resnet18": ("resnet18", {"bucket_cap_mb": 8}, 1),
    "resnet18_bucket_view": ("resnet18", {"bucket_cap_mb": 8, "gradient_as_bucket_view": True}, 1),
    "transformer_with_tied_weights": ("transformer", {"bucket_cap_mb": 0.02}, 1),
    "unused_parameters": ("branches", {"bucket_cap_mb": 0.012, "find_unused_parameters": True}, 1),
    "unused_parameters_bucket_view": (
        "branches",
        {"bucket_cap_mb": 0.012, "find_unused_parameters": True, "gradient_as_bucket_view": True},
        1,
    ),
    "accumulation": ("mlp", {"bucket_cap_mb": 0.012}, 3),
    "accumulation_bucket_view": ("mlp", {"bucket_cap_mb": 0.012, "gradient_as_bucket_view": True}, 3),
    "sparse_embeddings": ("words", {"bucket_cap_mb": 0.006}, 1),
    "static_graph": ("recurrent", {"bucket_cap_mb": 0.012, "static_graph": True}, 1),
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Group:
    """Ranks of one case that all start from rank 0's weights, which are saved in `folder`."""

    def __init__(self, case, world_size, folder, steps=STEPS):
        self.net, self.options, self.accumulate = CASES[case]
        self.world_size, self.folder, self.steps = world_size, folder, steps
        self.initial = f"{folder}/initial.pt"
        torch.manual_seed(3)
        torch.save(nets.NETS[self.net][0]().state_dict(), self.initial)

    def start(self, start_rank, side, **keywords):
        """Starts all ranks of one side, which meet in a file; returns them and their outputs."""
        outputs = self._outputs(side)
        meet = f"file://{self.folder}/{side}_store"
        return [start_rank(self, rank, meet, outputs[rank], **keywords) for rank in range(self.world_size)], outputs

    def start_alone(self):
        """Starts the one process that does what all ranks do."""
        outputs = self._outputs("alone")
        arguments = (self.net, self.world_size, self.steps, self.initial, outputs, self.accumulate)
        process = FORK.Process(target=training.train_alone, args=arguments)
        process.start()
        return [process], outputs

    def _outputs(self, side):
        return [f"{self.folder}/{side}{rank}.pt" for rank in range(self.world_size)]


def start_cpp(group, rank, init_method, output, backend, **more_flags):
    flags = {
        "net": group.net,
        "rank": rank,
        "world_size": group.world_size,
        "init_method": init_method,
        "backend": backend,
        "initial": group.initial,
        "output": output,
        "steps": group.steps,
        "lr": training.LR,
        "timeout": training.PATIENCE,
        "accumulate": group.accumulate,
        **group.options,
        **more_flags,
    }
    command = [TRAINER] + [
        f"--{name}={str(value).lower() if value is True else value}" for name, value in flags.items()
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "FATAL"}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)


def start_python(group, rank, init_method, output):
    arguments = (group.net, rank, group.world_size, group.steps, init_method, group.initial, output, group.accumulate)
    process = FORK.Process(target=training.train_rank, args=arguments, kwargs=group.options)
    process.start()
    return process


def expect_success(test, ranks):
    processes.expect_success(test, ranks, 2 * training.PATIENCE)


def expect_same_bits(test, group, expected_path, found_path, where):
    expected, found = (torch.load(path, weights_only=True) for path in (expected_path, found_path))
    test.assertEqual(len(expected["losses"]), group.steps * group.accumulate)
    test.assertEqual([loss.hex() for loss in found["losses"]], [loss.hex() for loss in expected["losses"]], where)
    expect_same_state(test, expected_path, found_path, where)


def expect_same_state(test, expected_path, found_path, where):
    expected, found = (torch.load(path, weights_only=True) for path in (expected_path, found_path))
    processes.expect_same_bits(test, expected["state_dict"], found["state_dict"], where)


def expect_learning(test, group, path):
    """Every weight has moved, so that equal bits are not those of a training that did nothing."""
    initial, trained = torch.load(group.initial, weights_only=True), torch.load(path, weights_only=True)["state_dict"]
    for name, value in initial.items():
        if "never" not in name:
            test.assertFalse(torch.equal(trained[name], value), name)
