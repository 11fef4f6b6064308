"""Python's side of suite resnet: eager training steps as PyTorch's ImageNet example has them, a JSON line for a setting.

  resnet_python.py settings
  resnet_python.py SETTING BATCH STEPS

SETTING: float32, channels_last, bf16 (autocast), channels_last_bf16; `settings` prints those that this processor has instructions for.
Images are in memory, so that no loading is timed; STEPS are timed after one that is not.
"""

import contextlib
import json
import statistics
import sys
import time

import torch
import torchvision


def settings():
    bf16 = ["bf16", "channels_last_bf16"] if torch.ops.mkldnn._is_mkldnn_bf16_supported() else []
    return ["float32", "channels_last", *bf16]


class Trainer:
    def __init__(self, setting, batch):
        torch.manual_seed(7)
        self._format = torch.channels_last if setting.startswith("channels_last") else torch.contiguous_format
        self._precision = (
            torch.autocast("cpu", torch.bfloat16) if setting.endswith("bf16") else contextlib.nullcontext()
        )
        self._net = torchvision.models.resnet50().to(memory_format=self._format)
        self._images = torch.randn((batch, 3, 224, 224)).to(memory_format=self._format)
        self._targets = torch.randint(1000, (batch,))
        self._optimizer = torch.optim.SGD(self._net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

    def step(self):
        """The loss, read as the example's meters read it."""
        with self._precision:
            loss = torch.nn.functional.cross_entropy(self._net(self._images), self._targets)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return loss.item()

    def timed_step(self):
        """Its seconds, and its loss."""
        begin = time.perf_counter()
        loss = self.step()
        return time.perf_counter() - begin, loss


def main():
    if sys.argv[1] == "settings":
        print("\n".join(json.dumps({"setting": setting}) for setting in settings()))
        return
    setting, batch, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(2)
    trainer = Trainer(setting, batch)
    trainer.step()
    seconds, losses = zip(*(trainer.timed_step() for _ in range(steps)))
    rate = batch / statistics.median(seconds)
    print(json.dumps({"setting": setting, "images_per_second": rate, "loss": losses[-1]}), flush=True)


if __name__ == "__main__":
    main()
