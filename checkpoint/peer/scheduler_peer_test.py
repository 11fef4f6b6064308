"""Learning-rate schedules in Python, in C++, and begun in one and resumed in the other: one sequence of rates, to the bit."""

import os
import subprocess
import sys
import tempfile
import unittest

import torch

PROGRAM = os.path.abspath(sys.argv.pop(1))
EPOCHS = 200
SWITCHES = (3, 120)
LRS = (0.1, 0.0123, 3.0)

COSINE = {"type": "CosineAnnealingLR", "T_max": 195, "eta_min": 1e-5}
SHORT_COSINE = {"type": "CosineAnnealingLR", "T_max": 17, "eta_min": 0.0}
LINEAR = {"type": "LinearLR", "start_factor": 0.01, "end_factor": 1.0, "total_iters": 5}
STEP = {"type": "StepLR", "step_size": 30, "gamma": 0.1}
MULTI_STEP = {"type": "MultiStepLR", "milestones": [30, 80, 80, 150], "gamma": 0.3}
EXPONENTIAL = {"type": "ExponentialLR", "gamma": 0.97}
CONSTANT = {"type": "ConstantLR", "factor": 1 / 3, "total_iters": 40}

# Schedulers, and where one follows another.
CASES = {
    "StepLR": ([STEP], None),
    "MultiStepLR": ([MULTI_STEP], None),
    "ExponentialLR": ([EXPONENTIAL], None),
    "CosineAnnealingLR": ([COSINE], None),
    "CosineAnnealingLR, up and down": ([SHORT_COSINE], None),
    "LinearLR": ([LINEAR], None),
    "LinearLR, down": ([{**LINEAR, "start_factor": 1.0, "end_factor": 0.0, "total_iters": 100}], None),
    "ConstantLR": ([CONSTANT], None),
    "warm-up, then cosine": ([LINEAR, COSINE], [5]),
    "warm-up, then steps": ([LINEAR, STEP], [5]),
    "all": ([CONSTANT, MULTI_STEP, SHORT_COSINE, EXPONENTIAL, STEP, LINEAR], [10, 50, 90, 110, 180]),
}


class Training:
    """One parameter a group, whose gradient is itself."""

    def __init__(self, case, checkpoint=None):
        schedulers, milestones = CASES[case]
        state_dict = checkpoint["state_dict"] if checkpoint else {f"p{i}": torch.full((3,), 1.0) for i in range(3)}
        self.epoch = checkpoint["epoch"] if checkpoint else 0
        self.parameters = {name: torch.nn.Parameter(tensor.clone()) for name, tensor in state_dict.items()}
        groups = [{"params": [parameter], "lr": lr} for parameter, lr in zip(self.parameters.values(), LRS)]
        self.optimizer = torch.optim.SGD(groups, momentum=0.9)
        made = [self.make(**scheduler) for scheduler in schedulers]
        self.scheduler = (
            torch.optim.lr_scheduler.SequentialLR(self.optimizer, made, milestones) if milestones else made[0]
        )
        if checkpoint:
            self.optimizer.load_state_dict(checkpoint["optimizer"])
            self.scheduler.load_state_dict(checkpoint["scheduler"])
        self.lrs = [self.scheduler.get_last_lr()]

    def make(self, type, **options):
        return getattr(torch.optim.lr_scheduler, type)(self.optimizer, **options)

    def epochs(self, count):
        for _ in range(count):
            for parameter in self.parameters.values():
                parameter.grad = parameter.detach().clone()
            self.optimizer.step()
            self.scheduler.step()
            self.lrs.append([group["lr"] for group in self.optimizer.param_groups])
            self.epoch += 1
        return self

    def checkpoint(self):
        """As Python's ImageNet example saves it."""
        return {
            "epoch": self.epoch,
            "arch": "resnet18",
            "state_dict": {name: parameter.detach().clone() for name, parameter in self.parameters.items()},
            "best_acc1": torch.tensor(71.5),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
        }


class SchedulerPeerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        source, result = os.path.join(cls.folder.name, "from.pt"), os.path.join(cls.folder.name, "to.pt")
        torch.save(list(cls.cases()), source)
        subprocess.run([PROGRAM, source, result], check=True)
        cls.results = torch.load(result, weights_only=True)
        cls.python = {name: Training(name).epochs(EPOCHS) for name in CASES}

    @classmethod
    def cases(cls):
        """C++ begins each and goes to a switch, goes all the way, and resumes what Python brought to a switch."""
        for name, (schedulers, milestones) in CASES.items():
            case = {"schedulers": schedulers, "milestones": milestones, "lrs": list(LRS)}
            fresh = {**Training(name).checkpoint(), "optimizer": None, "scheduler": None}
            yield {**case, "name": name, "epochs": EPOCHS, "checkpoint": fresh}
            for switch in SWITCHES:
                begun = cls.through_a_file(Training(name).epochs(switch).checkpoint())
                yield {**case, "name": f"{name}, {switch} first", "epochs": switch, "checkpoint": fresh}
                yield {**case, "name": f"{name}, {switch} done", "epochs": EPOCHS - switch, "checkpoint": begun}

    @classmethod
    def through_a_file(cls, checkpoint):
        path = os.path.join(cls.folder.name, "checkpoint.pt")
        torch.save(checkpoint, path)
        return torch.load(path, weights_only=True)

    def assert_same_end(self, checkpoint, name):
        expected = self.python[name].checkpoint()
        self.assertEqual(list(checkpoint), list(expected))
        self.assertEqual(checkpoint["epoch"], EPOCHS)
        self.assertEqual(checkpoint["arch"], "resnet18")
        self.assertEqual(checkpoint["best_acc1"], expected["best_acc1"])
        self.assertEqual(checkpoint["scheduler"], expected["scheduler"])
        for parameter, tensor in expected["state_dict"].items():
            self.assertTrue(torch.equal(checkpoint["state_dict"][parameter], tensor))

    def test_rates_are_equal_over_200_epochs(self):
        for name in CASES:
            with self.subTest(name):
                self.assertEqual(self.results[name]["lrs"], self.python[name].lrs)
                self.assert_same_end(self.results[name]["checkpoint"], name)

    def test_the_state_has_pythons_keys_and_types(self):
        for name in CASES:
            with self.subTest(name):
                found, expected = (
                    self.results[name]["checkpoint"]["scheduler"],
                    self.python[name].scheduler.state_dict(),
                )
                self.assertEqual(repr(found), repr(expected))

    def test_a_schedule_begun_in_python_goes_on_in_cpp(self):
        for name in CASES:
            for switch in SWITCHES:
                with self.subTest(name, switch=switch):
                    resumed = self.results[f"{name}, {switch} done"]
                    self.assertEqual(resumed["lrs"], self.python[name].lrs[switch:])
                    self.assert_same_end(resumed["checkpoint"], name)

    def test_a_schedule_begun_in_cpp_goes_on_in_python(self):
        for name in CASES:
            for switch in SWITCHES:
                with self.subTest(name, switch=switch):
                    begun = self.results[f"{name}, {switch} first"]["checkpoint"]
                    resumed = Training(name, begun).epochs(EPOCHS - switch)
                    self.assertEqual(resumed.lrs, self.python[name].lrs[switch:])
                    self.assert_same_end(resumed.checkpoint(), name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
