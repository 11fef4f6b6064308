"""Learning-rate schedules in Python, in C++, and begun in one and resumed in the other: the same rates and momenta, to the bit."""

import os
import random
import subprocess
import sys
import tempfile
import unittest
import warnings

import torch
from torch.optim import lr_scheduler, swa_utils

PROGRAM = os.path.abspath(sys.argv.pop(1))
STEPS = 210
SWITCHES = (3, 120)
LRS = (0.1, 0.0123, 3.0)
RANDOM_CASES = 100

COSINE = {"type": "CosineAnnealingLR", "T_max": 195, "eta_min": 1e-5}
SHORT_COSINE = {"type": "CosineAnnealingLR", "T_max": 17, "eta_min": 0.0}
LINEAR = {"type": "LinearLR", "start_factor": 0.01, "end_factor": 1.0, "total_iters": 5}
STEP = {"type": "StepLR", "step_size": 30, "gamma": 0.1}
MULTI_STEP = {"type": "MultiStepLR", "milestones": [30, 80, 80, 150], "gamma": 0.3}
EXPONENTIAL = {"type": "ExponentialLR", "gamma": 0.97}
CONSTANT = {"type": "ConstantLR", "factor": 1 / 3, "total_iters": 40}
POLYNOMIAL = {"type": "PolynomialLR", "total_iters": 150, "power": 0.9}
RESTARTS = {"type": "CosineAnnealingWarmRestarts", "T_0": 10, "T_mult": 2, "eta_min": 1e-4}
ONE_CYCLE = {"type": "OneCycleLR", "max_lr": [0.3], "total_steps": STEPS}


def sequence(schedulers, milestones):
    return {"type": "SequentialLR", "schedulers": schedulers, "milestones": milestones}


def chain(*schedulers):
    return {"type": "ChainedScheduler", "schedulers": list(schedulers)}


SCHEDULES = {
    "StepLR": STEP,
    "MultiStepLR": MULTI_STEP,
    "ExponentialLR": EXPONENTIAL,
    "CosineAnnealingLR": COSINE,
    "CosineAnnealingLR, up and down": SHORT_COSINE,
    "LinearLR": LINEAR,
    "LinearLR, down": {**LINEAR, "start_factor": 1.0, "end_factor": 0.0, "total_iters": 100},
    "ConstantLR": CONSTANT,
    "warm-up, then cosine": sequence([LINEAR, COSINE], [5]),
    "warm-up, then steps": sequence([LINEAR, STEP], [5]),
    "all": sequence(
        [CONSTANT, MULTI_STEP, SHORT_COSINE, EXPONENTIAL, STEP, POLYNOMIAL, RESTARTS, ONE_CYCLE, LINEAR],
        [10, 50, 90, 110, 120, 140, 150, 180],
    ),
    "a chain, then cosine": sequence([chain(LINEAR, EXPONENTIAL), COSINE], [12]),
    "a sequence, then steps": sequence([sequence([LINEAR, COSINE], [5]), STEP], [100]),
    "a chain of a sequence": chain(sequence([CONSTANT, POLYNOMIAL], [7]), EXPONENTIAL, RESTARTS),
}


class Draw:
    """Random schedules, and values for their steps."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def per_group(self, low, high):
        return [self.random.uniform(low, high) for _ in range(self.random.choice([1, len(LRS)]))]

    def momentum(self, momentum):
        cycles = momentum and self.random.random() < 0.8
        return {
            "cycle_momentum": cycles,
            "base_momentum": self.per_group(0.7, 0.85),
            "max_momentum": self.per_group(0.85, 0.97),
        }

    def of_functions(self, momentum):
        kind = self.random.choice(["LambdaLR", "MultiplicativeLR"])
        return {"type": kind, "slopes": self.per_group(1e-4, 1e-2)}

    def simple(self, momentum):
        uniform, randint = self.random.uniform, self.random.randint
        return self.random.choice(
            [
                {"type": "StepLR", "step_size": randint(1, 60), "gamma": uniform(0.1, 1.1)},
                {
                    "type": "MultiStepLR",
                    "milestones": [randint(0, STEPS) for _ in range(randint(0, 6))],
                    "gamma": uniform(0.1, 1.1),
                },
                {"type": "ExponentialLR", "gamma": uniform(0.9, 1.01)},
                {"type": "CosineAnnealingLR", "T_max": randint(1, 250), "eta_min": uniform(0, 1e-2)},
                {
                    "type": "LinearLR",
                    "start_factor": uniform(1e-3, 1),
                    "end_factor": uniform(0, 1),
                    "total_iters": randint(1, 250),
                },
                {"type": "ConstantLR", "factor": uniform(1e-3, 1), "total_iters": randint(1, 250)},
                {"type": "PolynomialLR", "total_iters": randint(1, 250), "power": uniform(0, 3)},
            ]
        )

    def restarts(self, momentum):
        kind = "CosineAnnealingWarmRestarts"
        randint, eta_min = self.random.randint, self.random.uniform(0, 1e-2)
        return {"type": kind, "T_0": randint(1, 30), "T_mult": randint(1, 3), "eta_min": eta_min}

    def one_cycle(self, momentum):
        steps = self.random.randint(STEPS, 400)
        length = {"epochs": 7, "steps_per_epoch": steps // 7 + 1} if steps % 2 else {"total_steps": steps}
        return {
            "type": "OneCycleLR",
            "max_lr": self.per_group(0.1, 2),
            **length,
            "pct_start": self.random.uniform(0.02, 0.49),
            "anneal_strategy": self.random.choice(["cos", "linear"]),
            **self.momentum(momentum),
            "div_factor": self.random.uniform(2, 30),
            "final_div_factor": self.random.uniform(10, 1e4),
            "three_phase": self.random.random() < 0.5,
        }

    def cyclic(self, momentum):
        options = {
            "type": "CyclicLR",
            "base_lr": self.per_group(1e-3, 0.1),
            "max_lr": self.per_group(0.1, 2),
            "step_size_up": self.random.randint(1, 40),
            "mode": self.random.choice(["triangular", "triangular2", "exp_range"]),
            "gamma": self.random.uniform(0.95, 1),
            **self.momentum(momentum),
        }
        if self.random.random() < 0.5:
            options["step_size_down"] = self.random.randint(0, 40)
        if self.random.random() < 0.3:
            options["scale_mode"] = self.random.choice(["cycle", "iterations"])
            options["scale_slope"] = self.random.uniform(1e-3, 0.1)
        return options

    def swa(self, momentum):
        strategy = self.random.choice(["cos", "linear"])
        epochs = self.random.randint(0, 100)
        return {
            "type": "SWALR",
            "swa_lr": self.per_group(1e-3, 0.1),
            "anneal_epochs": epochs,
            "anneal_strategy": strategy,
        }

    def plateau(self, momentum):
        return {
            "type": "ReduceLROnPlateau",
            "mode": self.random.choice(["min", "max"]),
            "factor": self.random.uniform(0.3, 0.95),
            "patience": self.random.randint(0, 5),
            "threshold": self.random.choice([0.0, 1e-4, 0.1, 1.0]),
            "threshold_mode": self.random.choice(["rel", "abs"]),
            "cooldown": self.random.randint(0, 4),
            "min_lr": self.per_group(0, 1e-2),
            "eps": self.random.choice([1e-8, 1e-3]),
        }

    def member(self, momentum):
        kinds = [self.simple, self.simple, self.restarts, self.one_cycle, self.cyclic, self.swa, self.of_functions]
        return self.random.choice(kinds)(momentum)

    def chain(self, momentum):
        return chain(*[self.member(momentum) for _ in range(self.random.randint(1, 3))])

    def sequence(self, momentum, depth=0):
        first = self.random.choice([self.member, self.member, self.chain, self.sequence if depth < 2 else self.chain])
        members = [first(momentum, depth + 1) if first == self.sequence else first(momentum)]
        members += [self.member(momentum) for _ in range(self.random.randint(0, 3))]
        return sequence(members, sorted(self.random.sample(range(1, STEPS), len(members) - 1)))

    def values(self, schedule):
        """What each step gets: nothing, a metric, or an epoch."""
        if schedule["type"] == "ReduceLROnPlateau":
            odd = [float("nan"), float("inf"), -float("inf"), 0.0]
            return [
                self.random.choice(odd) if self.random.random() < 0.1 else self.random.gauss(1 - step / STEPS, 0.2)
                for step in range(STEPS)
            ]
        if "schedulers" in schedule or self.random.random() < 0.6:
            return [None] * STEPS
        fractions = schedule["type"] == "CosineAnnealingWarmRestarts"
        epochs = [self.random.uniform(0, STEPS) if fractions else self.random.randrange(STEPS) for _ in range(STEPS)]
        values = [epoch if self.random.random() < 0.1 else None for epoch in epochs]
        limit = schedule.get("total_steps") or schedule.get("epochs")
        return [None] * STEPS if limit else values  # OneCycleLR would pass its end

    def case(self, number):
        kinds = [self.simple, self.of_functions, self.restarts, self.one_cycle, self.cyclic, self.swa, self.plateau]
        draw = (kinds + [self.chain, self.sequence, self.sequence])[number % 10]
        optimizer = self.random.choice(["SGD", "SGD", "RMSprop", "Adam", "AdamW", "Adagrad"])
        schedule = draw(optimizer != "Adagrad")
        return {"optimizer": optimizer, "schedule": schedule, "values": self.values(schedule)}


CASES = {
    name: {"optimizer": "SGD", "schedule": schedule, "values": [None] * STEPS} for name, schedule in SCHEDULES.items()
}
CASES.update({f"random {number}": Draw(number).case(number) for number in range(RANDOM_CASES)})


def one_or_all(numbers):
    """In Python one number for all groups is no list."""
    return numbers[0] if len(numbers) == 1 else numbers


def hyperbola(slope):
    return lambda x: 1 / (1 + slope * x)


class Training:
    """One parameter a group, whose gradient is itself."""

    def __init__(self, case, checkpoint=None):
        state_dict = checkpoint["state_dict"] if checkpoint else {f"p{i}": torch.full((3,), 1.0) for i in range(3)}
        self.values = case["values"]
        self.epoch = checkpoint["epoch"] if checkpoint else 0
        self.parameters = {name: torch.nn.Parameter(tensor.clone()) for name, tensor in state_dict.items()}
        groups = [{"params": [parameter], "lr": lr} for parameter, lr in zip(self.parameters.values(), LRS)]
        options = {"momentum": 0.9} if case["optimizer"] in ("SGD", "RMSprop") else {}
        self.optimizer = getattr(torch.optim, case["optimizer"])(groups, **options)
        self.scheduler = self.make(**case["schedule"])
        if checkpoint:
            self.optimizer.load_state_dict(checkpoint["optimizer"])
            self.scheduler.load_state_dict(checkpoint["scheduler"])
        self.rates = [self.rates_now()]

    def make(self, type, **options):
        for key in ("max_lr", "base_lr", "swa_lr", "min_lr", "base_momentum", "max_momentum"):
            if key in options:
                options[key] = one_or_all(options[key])
        if "slopes" in options:
            options["lr_lambda"] = one_or_all([hyperbola(slope) for slope in options.pop("slopes")])
        if "scale_slope" in options:
            options["scale_fn"] = hyperbola(options.pop("scale_slope"))
        if "schedulers" in options:
            options["schedulers"] = [self.make(**scheduler) for scheduler in options["schedulers"]]
        if "milestones" in options:
            options["milestones"] = list(options["milestones"])  # the scheduler keeps the list
        made = getattr(swa_utils if type == "SWALR" else lr_scheduler, type)
        return made(optimizer=self.optimizer, **options)

    def rates_now(self):
        groups = self.optimizer.param_groups
        momenta = [group["betas"][0] if "betas" in group else group.get("momentum", 0.0) for group in groups]
        return [[group["lr"] for group in groups], momenta]

    def steps(self, count):
        for value in self.values[self.epoch : self.epoch + count]:
            for parameter in self.parameters.values():
                parameter.grad = parameter.detach().clone()
            self.optimizer.step()
            self.scheduler.step(*([] if value is None else [value]))
            self.rates.append(self.rates_now())
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
        warnings.simplefilter("ignore")  # that step(epoch) is deprecated
        source, result = os.path.join(cls.folder.name, "from.pt"), os.path.join(cls.folder.name, "to.pt")
        torch.save(list(cls.cases()), source)
        subprocess.run([PROGRAM, source, result], check=True)
        cls.results = torch.load(result, weights_only=True)
        cls.python = {name: Training(case).steps(STEPS) for name, case in CASES.items()}

    @classmethod
    def cases(cls):
        """C++ begins each and goes to a switch, goes all the way, and resumes what Python brought to a switch."""
        for name, case in CASES.items():
            case = {**case, "lrs": list(LRS)}
            fresh = {**Training(case).checkpoint(), "optimizer": None, "scheduler": None}
            yield {**case, "name": name, "steps": STEPS, "checkpoint": fresh}
            for switch in SWITCHES:
                begun = cls.through_a_file(Training(case).steps(switch).checkpoint())
                yield {**case, "name": f"{name}, {switch} first", "steps": switch, "checkpoint": fresh}
                yield {**case, "name": f"{name}, {switch} done", "steps": STEPS - switch, "checkpoint": begun}

    @classmethod
    def through_a_file(cls, checkpoint):
        path = os.path.join(cls.folder.name, "checkpoint.pt")
        torch.save(checkpoint, path)
        return torch.load(path, weights_only=True)

    def assert_same_rates(self, rates, name, first=0):
        """The text of two floats is equal if their bits are, or if both are NaN."""
        for step, (found, expected) in enumerate(zip(rates, self.python[name].rates[first:], strict=True)):
            self.assertEqual(repr(found), repr(expected), f"step {first + step} of {CASES[name]}")

    def assert_same_end(self, checkpoint, name):
        expected = self.python[name].checkpoint()
        self.assertEqual(list(checkpoint), list(expected))
        self.assertEqual(checkpoint["epoch"], STEPS)
        self.assertEqual(checkpoint["arch"], "resnet18")
        self.assertEqual(checkpoint["best_acc1"], expected["best_acc1"])
        self.assertEqual(repr(checkpoint["scheduler"]), repr(expected["scheduler"]))
        if CASES[name]["optimizer"] == "SGD":
            for parameter, tensor in expected["state_dict"].items():
                # A rate that grows without bound leaves a NaN.
                found = checkpoint["state_dict"][parameter]
                self.assertTrue(torch.allclose(found, tensor, rtol=0, atol=0, equal_nan=True), parameter)

    def test_rates_and_state_are_equal(self):
        for name in CASES:
            with self.subTest(name):
                self.assert_same_rates(self.results[name]["rates"], name)
                self.assert_same_end(self.results[name]["checkpoint"], name)

    def test_groups_have_the_keys_of_pythons_schedulers(self):
        for name in CASES:
            with self.subTest(name):
                found = self.results[name]["checkpoint"]["optimizer"]["param_groups"]
                for found_group, group in zip(found, self.python[name].optimizer.state_dict()["param_groups"]):
                    keys = ["initial_lr", "max_lr", "min_lr", "swa_lr", "max_momentum", "base_momentum"]
                    self.assertEqual({k: found_group.get(k) for k in keys}, {k: group.get(k) for k in keys})

    def test_a_schedule_begun_in_python_goes_on_in_cpp(self):
        for name in CASES:
            for switch in SWITCHES:
                with self.subTest(name, switch=switch):
                    resumed = self.results[f"{name}, {switch} done"]
                    self.assert_same_rates(resumed["rates"], name, switch)
                    self.assert_same_end(resumed["checkpoint"], name)

    def test_a_schedule_begun_in_cpp_goes_on_in_python(self):
        for name, case in CASES.items():
            for switch in SWITCHES:
                with self.subTest(name, switch=switch):
                    begun = self.results[f"{name}, {switch} first"]["checkpoint"]
                    resumed = Training(case, begun).steps(STEPS - switch)
                    self.assert_same_rates(resumed.rates, name, switch)
                    self.assert_same_end(resumed.checkpoint(), name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
