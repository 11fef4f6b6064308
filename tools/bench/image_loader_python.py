"""Python's side of suite image_loader: torchvision's ImageFolder in a DataLoader, as PyTorch's ImageNet example has it.

  image_loader_python.py SETTING FOLDER WORKERS BATCH EPOCHS

SETTING: defaults, prefetch_4, and tensors, torchvision's faster decoder and transforms whose pixels are not those of the others. (Workers
compute with one thread each of themselves.) Prints a JSON line an epoch, the first of which starts the workers, and then one with the memory
of all processes at its peak, in an epoch that is not timed.
"""

import json
import multiprocessing
import os
import pathlib
import re
import sys
import time

sys.path.append(str(pathlib.Path(__file__).absolute().parents[1]))
import required_packages

required_packages.check("torch", "torchvision")
import torch
import torchvision
from torchvision.transforms import v2

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def dataset(setting, folder):
    if setting == "tensors":
        transform = [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()]
        transform += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
        return torchvision.datasets.ImageFolder(folder, v2.Compose(transform), loader=torchvision.io.decode_image)
    of = torchvision.transforms
    transform = [of.RandomResizedCrop(224), of.RandomHorizontalFlip(), of.ToTensor(), of.Normalize(MEAN, STD)]
    return torchvision.datasets.ImageFolder(folder, of.Compose(transform))


def resident_bytes():
    """Of this process and its workers, what they share counted once."""
    total = 0
    for pid in [os.getpid(), *(worker.pid for worker in multiprocessing.active_children())]:
        rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
        total += int(re.search(r"^Pss:\s*(\d+)", rollup, re.MULTILINE).group(1)) * 1024
    return total


def timed_epoch(loader):
    begin = time.perf_counter()
    images = sum(len(targets) for _, targets in loader)
    return {"seconds": time.perf_counter() - begin, "images": images}


def main():
    setting, folder, workers, batch, epochs = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    loader = torch.utils.data.DataLoader(
        dataset(setting, folder),
        batch_size=batch,
        shuffle=True,
        num_workers=workers,
        persistent_workers=True,
        prefetch_factor=4 if setting == "prefetch_4" else 2,
    )
    for _ in range(epochs):
        print(json.dumps(timed_epoch(loader)), flush=True)
    print(json.dumps({"max_resident_bytes": max(resident_bytes() for _ in loader)}), flush=True)


if __name__ == "__main__":
    main()
