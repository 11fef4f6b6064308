"""Starts the ranks of groups of which some are Lockstep's and some Python PyTorch's, over Gloo.

Python ranks are forked from this process, which has imported torch; Lockstep ranks are the program `mixed_rank`, whose path is the
test's first argument.
"""

import datetime
import multiprocessing
import os
import socket
import subprocess
import sys

import torch
import torch.distributed as dist

MIXED_RANK = os.path.abspath(sys.argv.pop(1))
FORK = multiprocessing.get_context("fork")
PATIENCE = 25


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_collectives():
    """Makes the same calls, in the same order, as RunCollectives of mixed_rank.cc."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for root in range(size):
        tensor = torch.full((5,), 10.0 * rank + root)
        dist.broadcast(tensor, root)
        assert torch.equal(tensor, torch.full((5,), 11.0 * root)), tensor
    total = torch.arange(1000, dtype=torch.float32) * (rank + 1)
    dist.all_reduce(total)
    assert torch.equal(total, torch.arange(1000, dtype=torch.float32) * (size * (size + 1) // 2)), total
    largest = torch.full((3, 2), rank)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    assert torch.equal(largest, torch.full((3, 2), size - 1)), largest
    gathered = [torch.zeros(4, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(gathered, torch.arange(4) + 100 * rank)
    for other, tensor in enumerate(gathered):
        assert torch.equal(tensor, torch.arange(4) + 100 * other), gathered
    # By their places in memory.
    images = torch.arange(120, dtype=torch.float32).view(2, 3, 4, 5)
    laid = (images * (rank + 1)).to(memory_format=torch.channels_last)
    dist.all_reduce(laid)
    assert torch.equal(laid, images * (size * (size + 1) // 2)), laid
    for root in range(size):
        copied = (images * (rank + 1)).to(memory_format=torch.channels_last)
        dist.broadcast(copied, root)
        assert torch.equal(copied, images * (root + 1)), copied
    # By their indices.
    gathered = [torch.zeros_like(laid) for _ in range(size)]
    dist.all_gather(gathered, (images * (rank + 1)).to(memory_format=torch.channels_last))
    for other, tensor in enumerate(gathered):
        assert torch.equal(tensor, images * (other + 1)), gathered
    dist.barrier()


def python_rank(init_method, rank, world_size):
    torch.set_num_threads(1)
    timeout = datetime.timedelta(seconds=PATIENCE)
    dist.init_process_group("gloo", init_method=init_method, rank=rank, world_size=world_size, timeout=timeout)
    run_collectives()
    dist.destroy_process_group()


def start_python(init_method, rank, world_size):
    process = FORK.Process(target=python_rank, args=(init_method, rank, world_size))
    process.start()
    return process


def start_lockstep(init_method, rank, world_size, timeout=PATIENCE, env=None):
    command = [MIXED_RANK, init_method, str(rank), str(world_size), str(timeout)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)


def expect_agreement(test, python, lockstep):
    for rank, process in lockstep.items():
        output, _ = process.communicate(timeout=2 * PATIENCE)
        test.assertEqual((process.returncode, output), (0, f"rank {rank} agrees\n"))
    for process in python.values():
        process.join(2 * PATIENCE)
        test.assertEqual(process.exitcode, 0)
