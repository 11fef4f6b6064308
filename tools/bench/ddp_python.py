"""Python's side of suite ddp, timed as ddp.cc times ours: `ddp_python.py VARIANT CASE,CASE,...` prints the same lines.

VARIANT: local, ddp, ddp_bucket_view, ddp_noop_hook (the gradients of each rank stay its own), ddp_fp16, all with two ranks over
Gloo; overhead.

On one of several hosts of this machine: `ddp_python.py VARIANT CASE,CASE,... STEPS STORE HOST HOSTS RANKS`, with RANKS of each host, and
a file STORE where the ranks meet.
"""

import json
import pathlib
import statistics
import sys
import time

sys.path.append(str(pathlib.Path(__file__).absolute().parents[1]))
import required_packages

required_packages.check("torch", "torchvision")
import torch
import torch.distributed as dist
import torchvision
from measuring import run_ranks
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

RANKS = 2


def mlp(*widths):
    layers = []
    for i, (n, m) in enumerate(zip(widths, widths[1:])):
        layers += ([torch.nn.ReLU()] if i else []) + [torch.nn.Linear(n, m)]
    return torch.nn.Sequential(*layers)


def mlp_4x64():
    return mlp(64, 64, 64, 64, 64)


# The network, the shape of a batch, the number of classes, steps to warm up, steps that are timed: as in ddp.cc.
CASES = {
    "mlp_4x64/b32": (mlp_4x64, (32, 64), 64, 50, 2500),
    "mlp_784_512_512_10/b64": (lambda: mlp(784, 512, 512, 10), (64, 784), 10, 10, 400),
    "mlp_26mb/b8": (lambda: mlp(1024, 2048, 2048, 100), (8, 1024), 100, 5, 40),
    "resnet18/b8/64px": (torchvision.models.resnet18, (8, 3, 64, 64), 1000, 3, 16),
}


def noop_hook(_, bucket):
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def wrap(net, variant):
    if variant == "local":
        return net
    ddp = torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=variant == "ddp_bucket_view")
    if variant == "ddp_noop_hook":
        ddp.register_comm_hook(None, noop_hook)
    if variant == "ddp_fp16":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return ddp


class Trainer:
    def __init__(self, model, shape, classes, rank):
        generator = torch.Generator().manual_seed(100 + rank)
        self._model = model
        self._inputs = torch.randn(shape, generator=generator)
        self._targets = torch.randint(classes, shape[:1], generator=generator)
        self._optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step(self):
        self._optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self._model(self._inputs), self._targets)
        loss.backward()
        self._optimizer.step()
        return loss

    def timed_step(self):
        begin = time.perf_counter()
        self.step()
        return time.perf_counter() - begin


def run_case(name, variant, rank, steps_wanted):
    make, shape, classes, warm_up, steps = CASES[name]
    steps = steps_wanted or steps
    torch.manual_seed(7)
    trainer = Trainer(wrap(make(), variant), shape, classes, rank)
    for _ in range(warm_up):
        loss = trainer.step().item()
    dist.barrier()
    if rank == 0 and steps_wanted:
        print(json.dumps({"case": "ready"}), flush=True)
    slowest = torch.tensor(statistics.median(trainer.timed_step() for _ in range(steps)), dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    if rank == 0:
        print(json.dumps({"case": name, "seconds": slowest.item(), "loss": loss}), flush=True)


def run_overhead(name, hook, **options):
    torch.manual_seed(7)
    ddp = torch.nn.parallel.DistributedDataParallel(mlp_4x64(), **options)
    if hook:
        ddp.register_comm_hook(None, hook)
    unwrapped, wrapped = Trainer(mlp_4x64(), (32, 64), 64, 0), Trainer(ddp, (32, 64), 64, 0)
    block = lambda trainer: statistics.median(trainer.timed_step() for _ in range(60))
    block(unwrapped), block(wrapped)
    differences = [-block(unwrapped) + block(wrapped) for _ in range(31)]
    print(json.dumps({"case": name, "seconds": statistics.median(differences)}), flush=True)


def run_rank(rank, ranks, store, variant, cases, steps=0):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    if variant == "overhead":
        run_overhead("mlp_4x64/b32/plain", None)
        hook = default_hooks.allreduce_hook
        run_overhead("mlp_4x64/b32/bucket_view_hook_checks", hook, gradient_as_bucket_view=True)
    for case in cases:
        run_case(case, variant, rank, steps)
    dist.destroy_process_group()


def main():
    variant, cases = sys.argv[1], [case for case in sys.argv[2].split(",") if case]
    if len(sys.argv) > 3:
        steps, store, host, hosts, ranks = int(sys.argv[3]), sys.argv[4], *map(int, sys.argv[5:])
        of_hosts = {"first_rank": host * ranks, "world_size": hosts * ranks, "store": store}
        run_ranks(run_rank, ranks, variant, cases, steps, **of_hosts)
        return
    ranks = 1 if variant == "overhead" else RANKS
    run_ranks(run_rank, ranks, variant, cases)


if __name__ == "__main__":
    main()
