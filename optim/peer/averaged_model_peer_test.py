"""Averages of weights in Python, in C++, and begun in one and continued in the other: the same bits."""

import itertools
import os
import subprocess
import sys
import tempfile
import unittest

import torch
from torch.optim import swa_utils

PROGRAM = os.path.abspath(sys.argv.pop(1))
UPDATES, SWITCH = 12, 5
FUNCTIONS = {
    "default": lambda decay: {},
    "ema": lambda decay: {"avg_fn": swa_utils.get_ema_avg_fn(decay)},
    "ema multi": lambda decay: {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(decay)},
    "swa": lambda decay: {"avg_fn": swa_utils.get_swa_avg_fn()},
    "swa multi": lambda decay: {"multi_avg_fn": swa_utils.get_swa_multi_avg_fn()},
}
# Python's swa multi cannot average num_batches_tracked, an integer.
CASES = [case for case in itertools.product(FUNCTIONS, (0.9, 0.999), (False, True)) if case[::2] != ("swa multi", True)]


def new_model():
    return torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5))


def model_states():
    """A model's state at each update."""
    torch.manual_seed(1)
    for update in range(UPDATES):
        model = new_model()
        model[1].running_mean.normal_()
        model[1].num_batches_tracked.fill_(7 * update)
        yield model.state_dict()


MODELS = list(model_states())
BATCHES = [torch.randn(size, 3) for size in (4, 8, 2)]


def average(case, models, state=None):
    function, decay, use_buffers = case
    model = new_model()
    averaged = swa_utils.AveragedModel(model, use_buffers=use_buffers, **FUNCTIONS[function](decay))
    if state:
        averaged.load_state_dict(state)
    for state_dict in models:
        model.load_state_dict(state_dict)
        averaged.update_parameters(model)
    return averaged


def state_of(averaged):
    return {name: tensor.clone() for name, tensor in averaged.state_dict().items()}


class AveragedModelPeerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        source, result = os.path.join(cls.folder.name, "from.pt"), os.path.join(cls.folder.name, "to.pt")
        torch.save(list(cls.cases()), source)
        subprocess.run([PROGRAM, source, result], check=True)
        cls.results = torch.load(result, weights_only=True)

    @classmethod
    def cases(cls):
        for case in CASES:
            function, decay, use_buffers = case
            options = {"fn": function, "decay": decay, "use_buffers": use_buffers, "batches": BATCHES}
            yield {**options, "name": f"{case}", "average": None, "models": MODELS}
            yield {**options, "name": f"{case} first", "average": None, "models": MODELS[:SWITCH]}
            begun = state_of(average(case, MODELS[:SWITCH]))
            yield {**options, "name": f"{case} done", "average": begun, "models": MODELS[SWITCH:]}

    def assert_same(self, found, expected):
        self.assertEqual(list(found), list(expected))
        for name, tensor in expected.items():
            self.assertEqual(found[name].dtype, tensor.dtype)
            self.assertTrue(torch.equal(found[name], tensor), name)

    def test_averages_are_equal_and_change_language(self):
        for case in CASES:
            with self.subTest(case):
                expected = state_of(average(case, MODELS))
                self.assert_same(self.results[f"{case}"]["average"], expected)
                self.assert_same(self.results[f"{case} done"]["average"], expected)
                begun = self.results[f"{case} first"]["average"]
                self.assert_same(state_of(average(case, MODELS[SWITCH:], begun)), expected)

    def test_the_statistics_of_batch_norm_are_equal(self):
        for case in CASES:
            with self.subTest(case):
                averaged = average(case, MODELS)
                swa_utils.update_bn(BATCHES, averaged)
                self.assert_same(self.results[f"{case}"]["after"], state_of(averaged))


if __name__ == "__main__":
    unittest.main(verbosity=2)
