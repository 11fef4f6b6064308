"""Python's side of suite resnet: eager training steps as PyTorch's ImageNet example has them, a JSON line for a setting.

  resnet_python.py settings cpu|cuda
  resnet_python.py SETTING RANKS BATCH STEPS DEVICE

SETTING: as in resnet.cc; `settings` prints those that this machine has what it takes for. RANKS above 1 train by DistributedDataParallel over
Gloo. Images are in memory, so that no loading is timed; STEPS are timed after one that is not.
"""

import contextlib
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

THREADS = 2  # the ranks share them
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def settings(device):
    if device == "cuda":
        return ["float32", "channels_last_fp16"]
    bf16 = ["bf16", "channels_last_bf16"] if torch.ops.mkldnn._is_mkldnn_bf16_supported() else []
    return ["float32", "channels_last", "mkldnn", *bf16]


def make_net(setting):
    net = torchvision.models.resnet50()
    if setting == "mkldnn":
        net.avgpool.register_forward_hook(lambda _, __, output: output.to_dense())  # flatten() wants it so
    return net


class Trainer:
    def __init__(self, setting, batch, device, wrap):
        memory_format = torch.channels_last if setting.startswith("channels_last") else torch.contiguous_format
        dtype = AUTOCAST.get(setting.split("_")[-1])
        self._autocast = torch.autocast(device, dtype) if dtype else contextlib.nullcontext()
        self._scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)
        self._net = wrap(make_net(setting).to(device, memory_format=memory_format))
        images = torch.randn((batch, 3, 224, 224)).to(device, memory_format=memory_format)
        self._images = images.to_mkldnn() if setting == "mkldnn" else images
        self._targets = torch.randint(1000, (batch,)).to(device)
        self._optimizer = torch.optim.SGD(self._net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

    def step(self):
        """The loss, read as the example's meters read it."""
        with self._autocast:
            loss = torch.nn.functional.cross_entropy(self._net(self._images), self._targets)
        self._optimizer.zero_grad()
        self._scaler.scale(loss).backward()
        self._scaler.step(self._optimizer)
        self._scaler.update()
        return loss.item()

    def timed_step(self):
        """Its seconds, and its loss."""
        begin = time.perf_counter()
        loss = self.step()
        return time.perf_counter() - begin, loss


def run_rank(rank, ranks, store, setting, batch, steps, device):
    torch.set_num_threads(THREADS // ranks)
    torch.manual_seed(7 + rank)
    wrap = lambda net: net
    if ranks > 1:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
        wrap = torch.nn.parallel.DistributedDataParallel
    trainer = Trainer(setting, batch // ranks, device, wrap)
    trainer.step()
    seconds, losses = zip(*(trainer.timed_step() for _ in range(steps)))
    if rank == 0:
        rate = batch / statistics.median(seconds)
        line = {"setting": setting, "ranks": ranks, "images_per_second": rate, "loss": losses[-1]}
        print(json.dumps(line), flush=True)
    if ranks > 1:
        dist.destroy_process_group()


def main():
    if sys.argv[1] == "settings":
        print("\n".join(json.dumps({"setting": setting}) for setting in settings(sys.argv[2])))
        return
    setting, ranks, batch, steps, device = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
    run_ranks(run_rank, ranks, setting, batch, steps, device)


if __name__ == "__main__":
    main()
