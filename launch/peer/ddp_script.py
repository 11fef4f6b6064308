"""A script as users have it for torchrun: DistributedDataParallel over Gloo, on images of random numbers.

usage: ddp_script.py FOLDER. Each rank leaves its variables, its parameters and its last loss in FOLDER/<rank>.pt.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "TORCHELASTIC_RESTART_COUNT")


def random_images():
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(256, 1, 28, 28, generator=generator)
    return TensorDataset(images, images.flatten(1)[:, :10].argmax(1))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())  # DDP gives all ranks the weights of rank 0
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data = random_images()
    sampler = DistributedSampler(data)
    losses = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for images, labels in DataLoader(data, batch_size=32, sampler=sampler):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    result = {
        "variables": {name: os.environ.get(name) for name in VARIABLES},
        "parameters": net.state_dict(),
        "losses": losses,
    }
    torch.save(result, f"{sys.argv[1]}/{dist.get_rank()}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
