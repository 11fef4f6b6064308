"""The trainer against Python: checkpoints both ways, validation by torchvision, TensorBoard's event files, torchrun.

usage: train_peer_test.py TRAIN
"""

import glob
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

import torch
import torch.multiprocessing
import torchvision

TRAIN = sys.argv[1]
CLASSES, TRAIN_IMAGES, VAL_IMAGES, SIZE, SEED = 7, 40, 13, 16, 3
FLAGS = [
    "--dummy",
    f"--dummy-train-images={TRAIN_IMAGES}",
    f"--dummy-val-images={VAL_IMAGES}",
    f"--image-size={SIZE}",
    f"--num-classes={CLASSES}",
    f"--seed={SEED}",
    "-b=4",
    "-p=1",
    "--lr=0.01",
]


def torchrun(ranks, flags):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        f"--nproc_per_node={ranks}",
        "--standalone",
        "--no-python",
        TRAIN,
    ]
    subprocess.run(command + FLAGS + flags, check=True, stdout=subprocess.DEVNULL)


def validated_by_python(state_dict):
    """Mean loss, and images whose class is the likeliest and among the five likeliest."""
    net = torchvision.models.resnet18(num_classes=CLASSES)
    net.load_state_dict(state_dict)
    net.eval()
    data = torchvision.datasets.FakeData(VAL_IMAGES, (3, SIZE, SIZE), CLASSES, torchvision.transforms.ToTensor())
    images = torch.stack([image for image, _ in data])
    targets = torch.tensor([int(target) for _, target in data])
    with torch.no_grad():
        logits = net(images)
    hits = logits.topk(5).indices.eq(targets[:, None])
    return torch.nn.functional.cross_entropy(logits, targets).item(), hits[:, 0].sum().item(), hits.sum().item()


def python_rank(rank, ranks, epochs, kind, folder):
    """A rank of Python's example. Rank 0 writes its losses and its state."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    net = torchvision.models.resnet18(num_classes=CLASSES)
    optimizer = kind(net.parameters(), lr=0.01, weight_decay=1e-4)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    ddp = torch.nn.parallel.DistributedDataParallel(net)
    data = torchvision.datasets.FakeData(TRAIN_IMAGES, (3, SIZE, SIZE), CLASSES, torchvision.transforms.ToTensor())
    sampler = torch.utils.data.distributed.DistributedSampler(data, ranks, rank, seed=SEED)
    losses = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for images, targets in torch.utils.data.DataLoader(data, batch_size=4 // ranks, sampler=sampler):
            loss = torch.nn.functional.cross_entropy(ddp(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    if rank == 0:
        torch.save({"losses": losses, "state_dict": net.state_dict()}, f"{folder}/python.pt")
    torch.distributed.destroy_process_group()


def sgd(parameters, **options):
    return torch.optim.SGD(parameters, momentum=0.9, **options)


def events(path, kind):
    with open(path) as file:
        return [event for event in map(json.loads, file) if event["event"] == kind]


def records(path):
    """What TFRecord's framing holds; tensorboard itself, where it is installed, also checks the sums."""
    with open(path, "rb") as file:
        content = file.read()
    while content:
        (length,) = struct.unpack_from("<Q", content)
        yield content[12 : 12 + length]
        content = content[16 + length :]


class TrainAgainstPython(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = cls.temporary.name
        cls.json = f"{cls.folder}/json"
        torchrun(
            2,
            [
                f"--checkpoint-dir={cls.folder}",
                "--epochs=2",
                f"--json-file={cls.json}",
                f"--tensorboard-dir={cls.folder}/events",
            ],
        )
        cls.checkpoint = torch.load(f"{cls.folder}/step_00000020.pt", weights_only=True)  # 10 steps to an epoch

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def expect_pythons_bits(self, ranks, epochs, kind, flags):
        with tempfile.TemporaryDirectory() as folder:
            torchrun(ranks, [f"--checkpoint-dir={folder}", f"--epochs={epochs}", f"--json-file={folder}/json", *flags])
            torch.multiprocessing.spawn(python_rank, (ranks, epochs, kind, folder), nprocs=ranks)
            python = torch.load(f"{folder}/python.pt", weights_only=True)
            self.assertEqual([event["loss"] for event in events(f"{folder}/json", "step")], python["losses"])
            checkpoint = torch.load(f"{folder}/step_{len(python['losses']):08}.pt", weights_only=True)
            for name, value in python["state_dict"].items():
                self.assertTrue(torch.equal(checkpoint["state_dict"][name], value), name)

    def test_every_step_has_the_loss_that_python_has_to_the_bit(self):
        self.expect_pythons_bits(1, 2, sgd, [])

    def test_fifty_steps_of_adamw_on_two_ranks_have_the_bits_of_pythons_ddp(self):
        self.expect_pythons_bits(2, 5, torch.optim.AdamW, ["--optimizer=adamw"])

    def test_torchvision_validates_the_checkpoint_to_the_same_numbers(self):
        loss, top1, top5 = validated_by_python(self.checkpoint["state_dict"])
        ours = events(self.json, "validation")[-1]
        self.assertAlmostEqual(ours["loss"] / loss, 1, delta=1e-4)
        self.assertAlmostEqual(ours["acc1"], 100 * top1 / VAL_IMAGES)
        self.assertAlmostEqual(ours["acc5"], 100 * top5 / VAL_IMAGES)
        self.assertEqual(ours["images"], VAL_IMAGES)

    def test_pythons_example_goes_on_from_it(self):
        net = torchvision.models.resnet18(num_classes=CLASSES)
        optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9, weight_decay=1e-4)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)
        net.load_state_dict(self.checkpoint["state_dict"])
        optimizer.load_state_dict(self.checkpoint["optimizer"])
        scheduler.load_state_dict(self.checkpoint["scheduler"])
        self.assertEqual(self.checkpoint["epoch"], 2)
        self.assertEqual(self.checkpoint["arch"], "resnet18")
        self.assertIsInstance(self.checkpoint["best_acc1"], torch.Tensor)
        self.assertEqual(scheduler.last_epoch, 2)
        self.assertEqual(scheduler.get_last_lr(), [0.01])
        self.assertEqual(len(optimizer.state_dict()["state"]), len(list(net.parameters())))

    def test_the_trainer_goes_on_from_what_pythons_example_saved(self):
        torch.manual_seed(1)
        net = torchvision.models.resnet18(num_classes=CLASSES)
        wrapped = torch.nn.DataParallel(net)
        optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9, weight_decay=1e-4)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)
        torch.nn.functional.cross_entropy(net(torch.rand(4, 3, SIZE, SIZE)), torch.arange(4)).backward()
        optimizer.step()
        scheduler.step()
        state = {"epoch": 1, "arch": "resnet18", "state_dict": wrapped.state_dict(), "best_acc1": 99.5}
        state.update(optimizer=optimizer.state_dict(), scheduler=scheduler.state_dict())
        with tempfile.TemporaryDirectory() as folder:
            torch.save(state, f"{folder}/checkpoint.pth.tar")
            flags = [
                f"--checkpoint-dir={folder}",
                f"--resume={folder}/checkpoint.pth.tar",
                f"--json-file={folder}/json",
            ]
            torchrun(1, flags + ["-e"])
            loss, top1, _ = validated_by_python(net.state_dict())
            ours = events(f"{folder}/json", "validation")[-1]
            self.assertAlmostEqual(ours["loss"] / loss, 1, delta=1e-4)
            self.assertAlmostEqual(ours["acc1"], 100 * top1 / VAL_IMAGES)
            torchrun(2, flags + ["--epochs=2"])
            ours = torch.load(f"{folder}/step_00000020.pt", weights_only=True)
            self.assertEqual(ours["epoch"], 2)
            self.assertEqual(ours["best_acc1"].item(), 99.5)
            self.assertEqual(ours["scheduler"]["last_epoch"], 2)

    def test_the_event_file_has_the_curves(self):
        (path,) = glob.glob(f"{self.folder}/events/events.out.tfevents.*")
        found = list(records(path))
        self.assertIn(b"brain.Event:2", found[0])
        expected = events(self.json, "validation")[-1]["acc1"]
        points = [record for record in found if b"val/acc1" in record]
        self.assertEqual(len(points), 2)
        self.assertEqual(points[-1][-4:], struct.pack("<f", expected))
        try:
            from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        except ImportError:
            return
        accumulator = EventAccumulator(path).Reload()
        self.assertAlmostEqual(accumulator.Scalars("val/acc1")[-1].value, expected, places=4)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    unittest.main(argv=sys.argv[:1], verbosity=2)
