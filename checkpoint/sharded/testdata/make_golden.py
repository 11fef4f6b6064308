"""Writes the checkpoints of this folder; golden_test.cc says what they hold.

  ./bazelw run //third_party:peer_python -- $PWD/checkpoint/sharded/testdata/make_golden.py \\
      $PWD/checkpoint/sharded/testdata

With Python PyTorch 2.11 "nested" is saved by one process, and "dtensor" by two that share DTensors. With
LOCKSTEP_LIBTORCH_VERSION=2.15.0 only "strides" is saved, in which a tensor's properties have one more item.
"""

import os
import shutil
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


def nested():
    return {
        "model": {
            "layer.weight": torch.arange(12.0).view(3, 4),
            "layer.bias": torch.nn.Parameter(torch.ones(2)),
            "half": torch.arange(6, dtype=torch.bfloat16)[2:5],
            "scalar": torch.tensor(7),
            "empty": torch.empty(2, 0),
        },
        "optimizer": {
            "state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.arange(6).view(2, 3).t()}},
            "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999), "params": [0, 1]}],
        },
        "lists": [torch.ones(1), [torch.zeros(2)], 5],
        "plain": [1, "two", None, b"\xff"],
        "nothing": None,
        "epoch": 7,
    }


def save(rank, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,))
    rows = torch.arange(15.0).view(5, 3)
    state = {
        "rows": distribute_tensor(rows, mesh, [Shard(0)]),
        "columns": distribute_tensor(rows.to(torch.float64), mesh, [Shard(1)]),
        "replicated": distribute_tensor(torch.arange(4), mesh, [Replicate()]),
        "one_row": distribute_tensor(torch.full((1, 2), 5.0), mesh, [Shard(0)]),
        "plain": {"rank_independent": 3},
    }
    dcp.save(state, checkpoint_id=folder)
    dist.destroy_process_group()


def main():
    warnings.simplefilter("ignore")
    os.chdir(sys.argv[1])
    if torch.__version__.startswith("2.15."):
        shutil.rmtree("strides", ignore_errors=True)
        dcp.save({"transposed": torch.arange(12.0).view(3, 4).t()}, checkpoint_id="strides", no_dist=True)
        return
    for folder in ("nested", "dtensor"):
        shutil.rmtree(folder, ignore_errors=True)
    dcp.save(nested(), checkpoint_id="nested", no_dist=True)
    mp.spawn(save, args=("dtensor",), nprocs=2)


if __name__ == "__main__":
    main()
