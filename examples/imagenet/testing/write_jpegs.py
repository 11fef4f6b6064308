"""Writes Fashion-MNIST as JPEGs in the folders that image trainers take: FOLDER/train/CLASS/*.jpg and FOLDER/val/CLASS/*.jpg.

  write_jpegs.py FOLDER [--source=DIR] [--size=28] [--limit=N] [--val-limit=N]

Classes sort as their labels do. The images are grey, at quality 95, so close to the dataset's own; --limit is of each class, the first ones.
"""

import argparse
import gzip
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).absolute().parents[3] / "tools"))
import required_packages

required_packages.check("numpy", "PIL")
import numpy
from PIL import Image

CLASSES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")


def read_idx(path, dimensions):
    with gzip.open(path) as file:
        data = file.read()
    shape = numpy.frombuffer(data, ">i4", count=dimensions, offset=4)
    return numpy.frombuffer(data, numpy.uint8, offset=4 + 4 * dimensions).reshape(shape)


def write_split(source, prefix, folder, size, limit):
    images = read_idx(source / f"{prefix}-images-idx3-ubyte.gz", 3)
    labels = read_idx(source / f"{prefix}-labels-idx1-ubyte.gz", 1)
    for label, name in enumerate(CLASSES):
        of_class = folder / f"{label}_{name}"
        of_class.mkdir(parents=True)
        for index in numpy.flatnonzero(labels == label)[:limit]:
            image = Image.fromarray(images[index])
            if image.size != (size, size):
                image = image.resize((size, size), Image.Resampling.BICUBIC)
            image.save(of_class / f"{index:05}.jpg", quality=95)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--source", type=pathlib.Path, default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--size", type=int, default=28, help="pixels along an edge")
    parser.add_argument("--limit", type=int, help="training images of each class")
    parser.add_argument("--val-limit", type=int, help="validation images of each class")
    arguments = parser.parse_args()
    write_split(arguments.source, "train", arguments.folder / "train", arguments.size, arguments.limit)
    write_split(arguments.source, "t10k", arguments.folder / "val", arguments.size, arguments.val_limit)


if __name__ == "__main__":
    main()
