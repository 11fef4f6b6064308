"""PyTorch's Gloo, timed as all_reduce.cc times ours: `all_reduce_gloo.py RANKS CASE,CASE,...` prints the same lines.

On one of several hosts of this machine: `all_reduce_gloo.py RANKS CASE,CASE,... BATCHES STORE HOST HOSTS`, with RANKS of each host, and
a file STORE where the ranks meet.
"""

import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).absolute().parents[1]))
import required_packages

required_packages.check("torch")
import torch
import torch.distributed as dist


def run_case(name, rank, ranks, batches_wanted):
    _, size, dtype_name = name.split("/")
    size, dtype = int(size), getattr(torch, dtype_name)
    count = size // dtype.itemsize
    batch = min(64, max(1, (4 << 20) // size))
    batches = batches_wanted or min(100, max(5, (512 << 20) // (size * batch)))
    base = torch.arange(count).remainder(13).to(dtype)
    tensors = [torch.empty(count, dtype=dtype) for _ in range(batch)]
    warm_up = (batches_wanted + 2) // 3 if batches_wanted else min(batches, 5)
    seconds, cpu = [], 0.0
    for step in range(-warm_up, batches):
        offset = (step + warm_up) % 5
        for tensor in tensors:
            tensor.copy_(base).add_(offset + rank)
        dist.barrier()
        cpu_begin, begin = time.process_time(), time.perf_counter()
        for tensor in tensors:
            dist.all_reduce(tensor)
        took = time.perf_counter() - begin
        if step >= 0:
            seconds.append(took / batch)
            cpu += time.process_time() - cpu_begin
        expected = base * ranks + sum(offset + r for r in range(ranks))
        for tensor in tensors:
            if not torch.equal(tensor, expected):
                raise SystemExit(f"{name}: a sum is wrong")
    slowest = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    all_cpu = torch.tensor([cpu], dtype=torch.float64)
    dist.all_reduce(all_cpu)
    if rank == 0:
        reduced = size * batch * batches
        line = {
            "case": name,
            "seconds": statistics.median(slowest.tolist()),
            "cpu_ns_per_byte": all_cpu.item() * 1e9 / reduced,
        }
        print(json.dumps(line), flush=True)


def run_rank(local_rank, first_rank, ranks, cases, batches, store):
    rank = first_rank + local_rank
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    if rank == 0 and batches:
        print(json.dumps({"case": "ready"}), flush=True)
    for case in cases:
        run_case(case, rank, ranks, batches)
    dist.destroy_process_group()


def main():
    ranks, cases = int(sys.argv[1]), sys.argv[2].split(",")
    if len(sys.argv) > 3:
        batches, store, host, hosts = int(sys.argv[3]), sys.argv[4], int(sys.argv[5]), int(sys.argv[6])
        arguments = (host * ranks, hosts * ranks, cases, batches, store)
        torch.multiprocessing.spawn(run_rank, arguments, nprocs=ranks)
        return
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run_rank, (0, ranks, cases, 0, os.path.join(folder, "store")), nprocs=ranks)


if __name__ == "__main__":
    main()
