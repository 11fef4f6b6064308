"""Python's side of the suites fsdp and gpt: two ranks of a host over Gloo, a JSON line.

  fsdp_python.py fsdp2|zero3|ddp|ddp_compiled CASE STEPS        and again for each line of standard input
  fsdp_python.py fsdp2|ddp|ddp_compiled CASE STEPS STORE HOST HOSTS
"""

import json
import os
import pathlib
import statistics
import sys
import threading
import time

sys.path.append(str(pathlib.Path(__file__).absolute().parents[1]))
import required_packages

required_packages.check("torch")
import torch
import torch.distributed as dist
from gpt_python import Gpt
from measuring import run_ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

RANKS = 2


def mlp():
    return nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))


def gpt_units(net):
    return list(net.blocks)


# case: network, its units, a batch of a rank, classes.
CASES = {
    "mlp_784_2048_2048_10/b64": (mlp, lambda net: [net[0], net[2], net[4]], lambda: torch.randn(64, 784), 10),
    "gpt_10m/512": (lambda: Gpt(tied=True), gpt_units, lambda: torch.randint(512, (4, 128)), 512),
    "gpt_124m/128": (
        lambda: Gpt(12, 768, 12, 50257, 1024, tied=True),
        gpt_units,
        lambda: torch.randint(50257, (1, 128)),
        50257,
    ),
}


class PeakPss(threading.Thread):
    """As peak_pss.h."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peak, self._stopped = 0, threading.Event()
        self.start()

    def run(self):
        while not self._stopped.wait(0.002):
            kibibytes = 0
            for line in pathlib.Path("/proc/self/smaps_rollup").read_text().splitlines():
                if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                    kibibytes += int(line.split()[1])
            self.peak = max(self.peak, kibibytes * 1024)

    def stop(self):
        self._stopped.set()
        self.join()
        return self.peak


def zero3(rank, ranks, net, optimizer):
    """DeepSpeed's engine: it takes the place of the network, of backward and of the optimizer."""
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_SIZE": ranks}
    os.environ.update({"DS_ACCELERATOR": "cpu", **{name: str(value) for name, value in places.items()}})
    import deepspeed

    deepspeed.init_distributed(dist_backend="gloo")
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 3},
        "gradient_clipping": 0.0,  # its default is 1
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 10**9,
    }
    return deepspeed.initialize(model=net, optimizer=optimizer, config=config)[0]


def wrap(mode, ranks, net, units):
    if mode == "zero3":
        return net
    if mode != "fsdp2":
        ddp = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
        return torch.compile(ddp) if mode == "ddp_compiled" else ddp
    mesh = init_device_mesh("cpu", (ranks,))
    for unit in units:
        fully_shard(unit, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def run_rank(rank, ranks, store, mode, case, steps):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    make, units_of, draw, classes = CASES[case]
    torch.manual_seed(0)
    net = make()
    net = wrap(mode, ranks, net, units_of(net))
    torch.manual_seed(7)  # the same batch, so that ranks which train alone have the same losses
    inputs = draw()
    rows = inputs.shape[0] if inputs.is_floating_point() else inputs.numel()
    targets = torch.randint(classes, (rows,))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    engine = zero3(rank, ranks, net, optimizer) if mode == "zero3" else None

    def step():
        loss = functional.cross_entropy((engine or net)(inputs).flatten(0, -2), targets)
        if engine:
            engine.backward(loss)
            engine.step()
        else:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return loss

    def run(steps):
        seconds = []
        for _ in range(steps):
            start = time.perf_counter()
            loss = step()
            seconds.append(time.perf_counter() - start)
            loss = loss.item()
        return statistics.median(seconds), loss

    pss = PeakPss()
    run(2)
    peak = torch.tensor(pss.stop())
    dist.all_reduce(peak)
    _, early_loss = run(1)
    if ranks > RANKS and rank == 0:
        print(json.dumps({"ready": True}), flush=True)
    more = torch.ones(1)
    with open(f"/proc/{os.getppid()}/fd/0") as lines:  # a process of multiprocessing has no standard input
        while more.item():
            seconds, _ = run(steps)
            slowest = torch.tensor(seconds, dtype=torch.float64)
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            if rank == 0:
                line = {"seconds": slowest.item(), "loss": early_loss, "peak_pss_bytes": peak.item()}
                print(json.dumps(line), flush=True)
                more.fill_(bool(lines.readline()))
            dist.broadcast(more, 0)
    dist.barrier()
    os._exit(0)  # ~ProcessGroupGloo waits forever for its own lock at times (PyTorch 2.11)


def main():
    mode, case, steps, *place = sys.argv[1:]
    of_hosts = {}
    if place:
        host, hosts = map(int, place[1:])
        of_hosts = {"first_rank": host * RANKS, "world_size": hosts * RANKS, "store": place[0]}
    run_ranks(run_rank, RANKS, mode, case, int(steps), **of_hosts)


if __name__ == "__main__":
    main()
