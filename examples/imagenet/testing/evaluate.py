"""Evaluates a checkpoint of the ImageNet trainer in Python: torchvision's network, ImageFolder and transforms.

  evaluate.py CHECKPOINT FOLDER [--image-size=224] [--batch-size=256]

FOLDER has val/CLASS/*.jpg. Prints a JSON line: how many of the images were right at first, how many among five, and both in percent.
"""

import argparse
import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).absolute().parents[3] / "tools"))
import required_packages

required_packages.check("torch", "torchvision")
import torch
import torchvision
from torchvision import transforms


def load(path, classes):
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    net = getattr(torchvision.models, checkpoint["arch"])(num_classes=classes)
    # A wrapped network's names begin with its wrapper's.
    net.load_state_dict({name.removeprefix("module."): value for name, value in checkpoint["state_dict"].items()})
    return net.eval()


def validation_images(folder, size):
    steps = [transforms.Resize(size * 256 // 224), transforms.CenterCrop(size), transforms.ToTensor()]
    steps.append(transforms.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)))
    return torchvision.datasets.ImageFolder(f"{folder}/val", transforms.Compose(steps))


@torch.no_grad()
def count_correct(net, loader):
    """How many images have their class first, and among the first five."""
    correct = torch.zeros(2, dtype=torch.int64)
    for images, targets in loader:
        hits = net(images).topk(5).indices == targets[:, None]
        correct += torch.stack([hits[:, 0].sum(), hits.sum()])
    return correct.tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("folder")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=256)
    arguments = parser.parse_args()
    images = validation_images(arguments.folder, arguments.image_size)
    net = load(arguments.checkpoint, len(images.classes))
    top1, top5 = count_correct(net, torch.utils.data.DataLoader(images, arguments.batch_size))
    line = {"images": len(images), "correct1": top1, "correct5": top5}
    print(json.dumps({**line, "acc1": 100 * top1 / len(images), "acc5": 100 * top5 / len(images)}))


if __name__ == "__main__":
    main()
