"""Random configurations of each optimizer, stepped by Python and by C++: parameters and states have the same bits."""

import copy
import os
import random
import subprocess
import sys
import tempfile
import unittest

import torch

PROGRAM = os.path.abspath(sys.argv.pop(1))
CONFIGURATIONS = int(os.environ.get("CONFIGURATIONS", "360"))
FIRST, STEPS = 11, 30
FLOATS = [torch.float32, torch.float64, torch.bfloat16]
COMPLEX = [torch.complex64, torch.complex128]
ALL = ("default", "foreach", "fused")
NOT_FUSED = ("default", "foreach")


def sgd(pick):
    momentum = pick(0, 0, 0.9, 0.5)
    nesterov = momentum > 0 and pick(False, True)
    return {
        "momentum": momentum,
        "dampening": 0 if nesterov else pick(0, 0.3),
        "weight_decay": pick(0, 1e-2),
        "nesterov": nesterov,
        "maximize": pick(False, True),
    }


def adam(pick):
    return {
        "betas": pick((0.9, 0.999), (0.8, 0.95), (0.3, 0.4)),
        "eps": pick(1e-8, 1e-6),
        "weight_decay": pick(0, 1e-2, 0.1),
        "amsgrad": pick(False, True),
        "maximize": pick(False, True),
    }


def adagrad(pick):
    return {
        "lr_decay": pick(0, 0.1),
        "weight_decay": pick(0, 1e-2),
        "initial_accumulator_value": pick(0, 0.1),
        "eps": pick(1e-10, 1e-6),
        "maximize": pick(False, True),
    }


def rmsprop(pick):
    return {
        "alpha": pick(0.99, 0.5),
        "eps": pick(1e-8, 1e-6),
        "weight_decay": pick(0, 1e-2),
        "momentum": pick(0, 0, 0.9),
        "centered": pick(False, True),
        "maximize": pick(False, True),
    }


def adamax(pick):
    return {key: value for key, value in adam(pick).items() if key != "amsgrad"}


def adadelta(pick):
    return {
        "rho": pick(0.9, 0.5),
        "eps": pick(1e-6, 1e-3),
        "weight_decay": pick(0, 1e-2),
        "maximize": pick(False, True),
    }


def nadam(pick):
    return {
        **adamax(pick),
        "momentum_decay": pick(4e-3, 0.1),
        "decoupled_weight_decay": pick(False, True),
    }


def radam(pick):
    return {**adamax(pick), "decoupled_weight_decay": pick(False, True)}


def asgd(pick):
    return {
        "lambd": pick(1e-4, 0.1),
        "alpha": pick(0.75, 0.5),
        "t0": pick(1e6, 3, 20),
        "weight_decay": pick(0, 1e-2),
        "maximize": pick(False, True),
    }


def rprop(pick):
    return {
        "etas": pick((0.5, 1.2), (0.3, 2)),
        "step_sizes": pick((1e-6, 50), (1e-2, 0.5)),
        "maximize": pick(False, True),
    }


def muon(pick):
    nesterov = pick(False, True)
    return {
        "weight_decay": pick(0, 0.1),
        "momentum": pick(0.95, 0.5),
        "nesterov": nesterov,
        "ns_coefficients": pick((3.4445, -4.775, 2.0315), (2, -1.5, 0.5)),
        "eps": pick(1e-7, 1e-3),
        "ns_steps": pick(5, 2),
        "adjust_lr_fn": pick(None, "original", "match_rms_adamw"),
    }


def adafactor(pick):
    return {
        "beta2_decay": pick(-0.8, -0.3),
        "eps": pick((None, 1e-3), (1e-6, 1e-2)),
        "d": pick(1, 2.5),
        "weight_decay": pick(0, 1e-2),
        "maximize": pick(False, True),
    }


def sparse_adam(pick):
    return {key: value for key, value in adamax(pick).items() if key != "weight_decay"}


def lbfgs(pick):
    max_iter = pick(2, 5)
    return {
        "max_iter": max_iter,
        "max_eval": pick(None, 3, 12) or max_iter * 5 // 4,
        "tolerance_grad": pick(1e-7, 1e-2),
        "tolerance_change": pick(1e-9, 1e-3),
        "history_size": pick(100, 3),
        "line_search_fn": pick(None, "strong_wolfe", "strong_wolfe"),
    }


class Layerwise(torch.optim.Optimizer):
    """Steps that have a length for each parameter."""

    def __init__(self, params, lr, **options):
        super().__init__(params, {"lr": lr, **{key: options[key] for key in self.keys}})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.update(p, -p.grad if group["maximize"] else p.grad, self.state[p], group)

    def norm(self, tensor):
        return torch.linalg.vector_norm(tensor, dtype=torch.float64).item()


class LAMB(Layerwise):
    """Y. You et al., "Large Batch Optimization for Deep Learning", ICLR 2020, algorithm 2."""

    keys = ["betas", "eps", "weight_decay", "maximize"]

    def update(self, p, gradient, state, group):
        if not state:
            state.update(step=torch.tensor(0.0), exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
        state["step"] += 1
        step, (beta1, beta2) = state["step"].item(), group["betas"]
        m = state["exp_avg"].lerp_(gradient, 1 - beta1)
        v = state["exp_avg_sq"].lerp_(gradient * gradient, 1 - beta2)
        update = m / (1 - beta1**step) / ((v / (1 - beta2**step)).sqrt() + group["eps"])
        update = update.add(p, alpha=group["weight_decay"])
        length, update_length = self.norm(p), self.norm(update)
        ratio = length / update_length if length > 0 and update_length > 0 else 1
        p.add_(update, alpha=-float(group["lr"]) * ratio)


class LARS(Layerwise):
    """Y. You, I. Gitman, B. Ginsburg, "Large Batch Training of Convolutional Networks", 2017, algorithm 1."""

    keys = ["momentum", "weight_decay", "trust_coefficient", "maximize"]

    def update(self, p, gradient, state, group):
        if not state:
            state["momentum_buffer"] = torch.zeros_like(p)
        length, slope, decay = self.norm(p), self.norm(gradient), group["weight_decay"]
        ratio = group["trust_coefficient"] * length / (slope + decay * length) if length > 0 and slope > 0 else 1
        velocity = state["momentum_buffer"].mul_(group["momentum"])
        p.sub_(velocity.add_(gradient.add(p, alpha=decay), alpha=float(group["lr"]) * ratio))


WRITTEN_HERE = {"LAMB": LAMB, "LARS": LARS}


def lamb(pick):
    return {**adamax(pick), "eps": pick(1e-6, 1e-3)}


def lars(pick):
    return {
        "momentum": pick(0, 0.9),
        "weight_decay": pick(0, 1e-2),
        "trust_coefficient": pick(1e-3, 0.5),
        "maximize": pick(False, True),
    }


class Row:
    """What Python's optimizer takes. `tensor_rate` holds the modes in which the rate may be a tensor. With `scalars`,
    load_state_dict() gives scalars of the state the parameter's dtype, which changes the steps after it. With `only`,
    all gradients are sparse. With `closure`, the gradients are the targets of a loss."""

    def __init__(self, options, modes=("default", "foreach", "fused"), sparse=False, tensor_rate=("default",), **more):
        self.options, self.modes, self.sparse, self.tensor_rate = options, modes, sparse, tensor_rate
        self.scalars, self.matrices = more.get("scalars", False), more.get("matrices", False)
        self.only, self.closure, self.full = (
            more.get("only", False),
            more.get("closure", False),
            more.get("full", False),
        )
        self.real = self.matrices or more.get("real", False)


OPTIMIZERS = {
    "SGD": Row(sgd, sparse=True, tensor_rate=("default", "foreach", "fused")),
    "Adam": Row(adam, tensor_rate=("default", "fused")),
    "AdamW": Row(adam, tensor_rate=("default", "fused")),
    "Adagrad": Row(adagrad, sparse=True, tensor_rate=ALL),
    "RMSprop": Row(rmsprop, modes=NOT_FUSED, tensor_rate=ALL),
    "Adamax": Row(adamax, modes=NOT_FUSED, tensor_rate=ALL),
    "Adadelta": Row(adadelta, modes=NOT_FUSED, tensor_rate=ALL),
    "NAdam": Row(nadam, modes=NOT_FUSED, tensor_rate=ALL, scalars=True),
    "RAdam": Row(radam, modes=NOT_FUSED, tensor_rate=ALL),
    "ASGD": Row(asgd, modes=NOT_FUSED, tensor_rate=ALL, scalars=True),
    "Rprop": Row(rprop, modes=NOT_FUSED, tensor_rate=ALL),
    "Muon": Row(muon, modes=("default",), tensor_rate=ALL, matrices=True),
    "Adafactor": Row(adafactor, modes=NOT_FUSED, tensor_rate=ALL, real=True, full=True),
    "SparseAdam": Row(sparse_adam, modes=("default",), tensor_rate=ALL, real=True, sparse=True, only=True),
    "LBFGS": Row(lbfgs, modes=("default",), tensor_rate=(), closure=True, full=True),
    "LAMB": Row(lamb, modes=("default",), tensor_rate=ALL, real=True),
    "LARS": Row(lars, modes=("default",), tensor_rate=ALL, real=True),
}


def make_parameter(chance, dtype, fused, row):
    """Empty, without dimensions, longer than a block, transposed, or with gaps between its elements."""
    shapes = [(0,), (), (1,), (7,), (5, 9), (33, 3), (2, 3, 4), (1027,), (2, 1025), (16,)]
    shape = chance.choice(shapes[row.full :] if not row.matrices else [s for s in shapes if len(s) == 2])
    tensor = torch.randn(shape, dtype=dtype)
    kind = chance.choice(["plain", "plain", "transposed", "gaps"]) if not row.closure else "plain"
    if tensor.dim() == 2 and kind == "transposed":
        tensor = tensor.t()
    if tensor.dim() == 2 and kind == "gaps" and not fused:
        tensor = torch.randn((shape[0], 2 * shape[1]), dtype=dtype)[:, ::2]
    return tensor


def make_gradient(chance, parameter, sparse):
    if chance.random() < 0.1:
        return None
    if sparse:
        rows = chance.randint(1, 4)
        indices = torch.randint(parameter.shape[0], (1, rows))  # some twice
        values = torch.randn((rows, *parameter.shape[1:]), dtype=parameter.dtype)
        return {"indices": indices, "values": values, "size": list(parameter.shape)}
    scale = chance.choice([1, 1, 1e-3, 100])
    gradient = torch.empty_like(parameter).copy_(torch.randn_like(parameter) * scale)
    return gradient.contiguous() if chance.random() < 0.1 else gradient


def as_tensor(gradient):
    if isinstance(gradient, dict):
        return torch.sparse_coo_tensor(gradient["indices"], gradient["values"], gradient["size"])
    return None if gradient is None else gradient.clone()


def loss_of(parameters, targets):
    """The sum of d^2 + log(1 + d^2) over all distances d of parameters from their targets."""
    loss = torch.zeros(())
    for parameter, target in zip(parameters, targets):
        if target is not None:
            distance = parameter - target
            distance = torch.view_as_real(distance) if distance.is_complex() else distance
            square = distance * distance
            loss = loss + square.sum() + (square + 1).log().sum()
    return loss


class Configuration:
    def __init__(self, number):
        self.number = number
        torch.manual_seed(number)
        chance = random.Random(number)

        def pick(*values):
            return chance.choice(values)

        self.kind = list(OPTIMIZERS)[number % len(OPTIMIZERS)]
        row = self.row = OPTIMIZERS[self.kind]
        mode = chance.choice(row.modes)
        sparse = row.only or row.sparse and mode != "fused" and chance.random() < 0.15
        dtypes = FLOATS if mode == "fused" or sparse or row.real or chance.random() < 0.8 else COMPLEX
        self.options = {**row.options(pick), "lr": pick(1e-3, 0.02, 1)}
        if mode == "fused" and self.options.get("momentum"):
            dtypes = FLOATS[:2]  # with bfloat16, two runs in Python differ
        if row.closure:
            dtypes = [pick(*dtypes)]
        if sparse:
            off = {"weight_decay": 0, "momentum": 0, "nesterov": False}
            self.options.update({key: value for key, value in off.items() if key in self.options})
        if mode != "default":
            self.options[mode] = True
        elif "foreach" in row.modes and chance.random() < 0.3:
            self.options["foreach"] = False
        if mode in row.tensor_rate and chance.random() < 0.2:
            self.options["lr"] = torch.tensor(float(self.options["lr"]))
        self.parameters = [
            torch.randn(6, 3, dtype=pick(*dtypes))
            if sparse
            else make_parameter(chance, pick(*dtypes), mode == "fused", row)
            for _ in range(chance.randint(1, 6))
        ]
        numbers = list(range(len(self.parameters)))
        cut = len(numbers) if row.closure else chance.randint(1, len(numbers))
        self.groups = [part for part in (numbers[:cut], numbers[cut:]) if part]
        self.rates = [None, pick(None, 5e-3)]
        self.gradients = [[make_gradient(chance, p, sparse) for p in self.parameters] for _ in range(STEPS)]
        if row.closure:
            for targets in self.gradients:
                targets[0] = torch.ones_like(self.parameters[0])
        if mode != "default" and self.options.get("momentum"):
            # Python's fused SGD cannot step a group in which a buffer is missing, and then rounds `foreach` otherwise.
            self.gradients[0] = [torch.ones_like(p) for p in self.parameters]
        self.name = f"{number} {self.kind} {self.options} {[(p.dtype, p.shape) for p in self.parameters]}"

    def begin(self, parameters):
        groups = []
        for numbers, rate in zip(self.groups, self.rates):
            groups.append({"params": [parameters[number] for number in numbers], **({"lr": rate} if rate else {})})
        kind = WRITTEN_HERE.get(self.kind) or getattr(torch.optim, self.kind)
        return kind(groups, **copy.deepcopy(self.options))

    def step(self, optimizer, parameters, gradients):
        for of_step in gradients:
            if self.row.closure:
                optimizer.step(lambda targets=of_step: self.backward(optimizer, parameters, targets))
                continue
            for parameter, gradient in zip(parameters, of_step):
                parameter.grad = as_tensor(gradient)
            optimizer.step()

    def backward(self, optimizer, parameters, targets):
        optimizer.zero_grad()
        loss = loss_of(parameters, targets)
        loss.backward()
        return loss

    def training(self, name, parameters, optimizer, gradients):
        return {
            "name": f"{self.number} {name}",
            "kind": self.kind,
            "groups": self.groups,
            "parameters": copy.deepcopy([parameter.detach() for parameter in parameters]),
            "gradients": gradients,
            "optimizer": copy.deepcopy(optimizer.state_dict()),
        }

    def run(self):
        """Trains in Python, and yields what C++ is to do: the whole, the first steps, and the rest after Python's."""
        self.trained = [p.requires_grad_() for p in copy.deepcopy(self.parameters)]
        self.optimizer = self.begin(self.trained)
        yield self.training("whole", self.trained, self.optimizer, self.gradients)
        yield self.training("first", self.trained, self.optimizer, self.gradients[:FIRST])
        self.step(self.optimizer, self.trained, self.gradients[:FIRST])
        yield self.training("then", self.trained, self.optimizer, self.gradients[FIRST:])
        self.resumed = self.row.scalars and self.continue_in_python(copy.deepcopy(self.expected()))
        self.step(self.optimizer, self.trained, self.gradients[FIRST:])

    def continue_in_python(self, first):
        parameters = [tensor.requires_grad_() for tensor in first["parameters"]]
        optimizer = self.begin(parameters)
        optimizer.load_state_dict(first["optimizer"])
        self.step(optimizer, parameters, self.gradients[FIRST:])
        return {"parameters": [p.detach() for p in parameters], "optimizer": optimizer.state_dict()}

    def expected(self):
        return {"parameters": [p.detach() for p in self.trained], "optimizer": self.optimizer.state_dict()}


def different(found, expected):
    """The number of bytes that differ, of as many."""
    a, b = (tensor.contiguous().flatten().view(torch.uint8) for tensor in (found, expected))
    return f"{(a != b).sum().item()} of {len(a)} bytes"


class OptimPeerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.configurations = [Configuration(number) for number in range(CONFIGURATIONS)]
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        source, result = os.path.join(folder.name, "from.pt"), os.path.join(folder.name, "to.pt")
        torch.save({"trainings": [t for c in cls.configurations for t in c.run()]}, source)
        subprocess.run([PROGRAM, source, result], check=True)
        cls.results = torch.load(result, weights_only=True)

    def assert_same(self, found, expected, where=""):
        """The same keys in the same order, numbers, and tensors' dtypes, shapes and bits."""
        if where.endswith("['t']"):  # LBFGS's, which may be a tensor in Python
            found, expected = float(found), float(expected)
        if isinstance(expected, torch.Tensor):
            self.assertEqual((found.dtype, found.shape), (expected.dtype, expected.shape), where)
            self.assertTrue(different(found, expected).startswith("0 "), f"{where}: {different(found, expected)}")
        elif isinstance(expected, dict):
            # Python numbers states by the first step of their parameters. The place of LBFGS's "al" depends on that step.
            keys = sorted if where == "['optimizer']['state']" or "al" in expected else list
            self.assertEqual(keys(found), keys(expected), where)
            for key in expected:
                self.assert_same(found[key], expected[key], f"{where}[{key!r}]")
        elif isinstance(expected, (list, tuple)):
            self.assertEqual(len(found), len(expected), where)
            for i, (a, b) in enumerate(zip(found, expected)):
                self.assert_same(a, b, f"{where}[{i}]")
        else:
            self.assertEqual(found, expected, where)

    def check(self, found_of, resumed=True):
        for configuration in self.configurations:
            with self.subTest(configuration.name):
                expected = (resumed and configuration.resumed) or configuration.expected()
                self.assert_same(found_of(configuration), expected)

    def test_the_whole_training_has_pythons_bits(self):
        self.check(lambda configuration: self.results[f"{configuration.number} whole"], resumed=False)

    def test_training_begun_in_python_goes_on_in_cpp(self):
        self.check(lambda configuration: self.results[f"{configuration.number} then"])

    def test_training_begun_in_cpp_goes_on_in_python(self):
        self.check(
            lambda configuration: configuration.continue_in_python(self.results[f"{configuration.number} first"])
        )


if __name__ == "__main__":
    unittest.main(verbosity=2)
