"""Checkpoints between Lockstep and Python PyTorch, both ways, to the bit."""

import collections
import math
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile

import torch

PROGRAM = os.path.abspath(sys.argv.pop(1))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5))
        self.head = torch.nn.Linear(5, 3, bias=False)

    def forward(self, x):
        return self.head(self.body(x).tanh())


def make_optimizer(net):
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3, nesterov=True)


def train(net, optimizer, inputs, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        net(inputs).square().mean().backward()
        optimizer.step()


def training_state(net, optimizer, inputs):
    return {"state_dict": net.state_dict(), "optimizer": optimizer.state_dict(), "input": inputs}


def raw(tensor):
    """The elements' bytes, in order."""
    if tensor.numel() == 0:
        return b""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous()
    # A tensor of one element is contiguous whatever its stride.
    return bytes(flat.as_strided((flat.numel(),), (1,)).view(torch.uint8).tolist())


class PeerTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        torch.manual_seed(0)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def run_program(self, *arguments):
        done = subprocess.run([PROGRAM, *arguments], stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def resave(self, value, **kwargs):
        """`value` after Python saved it, C++ loaded and saved it, and Python loaded it again."""
        torch.save(value, self.path("from.pt"), **kwargs)
        self.run_program("resave", self.path("from.pt"), self.path("to.pt"))
        return torch.load(self.path("to.pt"), weights_only=True)

    def assert_same(self, a, b, where="value"):
        self.assertIs(type(a), type(b), where)
        if isinstance(a, torch.Tensor):
            for name in ("dtype", "device", "shape", "requires_grad"):
                self.assertEqual(getattr(a, name), getattr(b, name), f"{where}: {name}")
            self.assertEqual(a.stride(), b.stride(), where)
            self.assertEqual((a.is_conj(), a.is_neg()), (b.is_conj(), b.is_neg()), where)
            self.assertEqual(raw(a), raw(b), where)
            self.assert_same(vars(a), vars(b), f"{where}.__dict__")
        elif isinstance(a, dict):
            self.assertEqual(list(map(repr, a)), list(map(repr, b)), f"{where}: keys")
            for key in a:
                self.assert_same(a[key], b[key], f"{where}[{key!r}]")
            if isinstance(a, collections.OrderedDict):
                self.assert_same(vars(a), vars(b), f"{where}.__dict__")
        elif isinstance(a, (list, tuple)):
            self.assertEqual(len(a), len(b), where)
            for i, (x, y) in enumerate(zip(a, b)):
                self.assert_same(x, y, f"{where}[{i}]")
        elif isinstance(a, float):
            self.assertEqual(a.hex(), b.hex(), where)
        else:
            self.assertEqual(a, b, where)

    def test_python_loads_a_cpp_training_state(self):
        self.run_program("write", self.path("cpp.pt"))
        for mmap in (False, True):
            state = torch.load(self.path("cpp.pt"), weights_only=True, mmap=mmap)
            net = Net()
            optimizer = make_optimizer(net)
            reference = training_state(net, optimizer, state["input"])
            self.assertEqual(list(state["state_dict"]), list(net.state_dict()), "names and their order")
            self.assert_same(vars(state["state_dict"]), vars(net.state_dict()), "metadata")
            for group, expected in zip(
                state["optimizer"]["param_groups"], reference["optimizer"]["param_groups"], strict=True
            ):
                self.assertEqual(list(group), list(expected), "keys of a group and their order")
                self.assertEqual(group, expected)
            net.load_state_dict(state["state_dict"])
            optimizer.load_state_dict(state["optimizer"])
            self.assert_same(dict(net.state_dict()), dict(state["state_dict"]))
            self.assert_same(optimizer.state_dict()["state"], state["optimizer"]["state"])

    def test_the_legacy_format_comes_back_whole(self):
        torch.manual_seed(1)
        net = Net()
        base = torch.arange(12.0)
        value = {
            "state_dict": net.state_dict(),
            "parameters": list(net.parameters()),
            "views": [base, base[4:], base.view(3, 4).t(), torch.empty(0, 3)],
            "dtypes": [
                torch.ones(3, dtype=dtype) for dtype in (torch.bfloat16, torch.complex64, torch.bool, torch.uint16)
            ],
            "plain": (1, 2.5, "text", b"bytes", None, True),
        }
        for protocol in (2, 3, 4, 5):
            self.assert_same(
                self.resave(value, _use_new_zipfile_serialization=False, pickle_protocol=protocol), value, str(protocol)
            )

    def continues(self, first, then):
        """Three steps here, three there: as six in Python."""
        inputs = torch.rand(7, 4)
        net = Net()
        optimizer = make_optimizer(net)
        start = {key: tensor.clone() for key, tensor in net.state_dict().items()}
        train(net, optimizer, inputs, 6)
        whole = training_state(net, optimizer, inputs)
        net = Net()
        net.load_state_dict(start)
        return whole, then(first(net, make_optimizer(net), inputs))

    def python_steps(self, net, optimizer, inputs):
        train(net, optimizer, inputs, 3)
        torch.save(training_state(net, optimizer, inputs), self.path("three.pt"))
        return self.path("three.pt")

    def cpp_steps(self, path):
        self.run_program("continue", path, self.path("six.pt"))
        return torch.load(self.path("six.pt"), weights_only=True)

    def test_training_begun_in_python_goes_on_in_cpp_to_the_bit(self):
        whole, continued = self.continues(self.python_steps, self.cpp_steps)
        self.assert_same(dict(whole["state_dict"]), dict(continued["state_dict"]))
        self.assert_same(whole["optimizer"]["state"], continued["optimizer"]["state"])

    def test_training_begun_in_cpp_goes_on_in_python_to_the_bit(self):
        def cpp_first(net, optimizer, inputs):
            torch.save(training_state(net, optimizer, inputs), self.path("zero.pt"))
            self.run_program("continue", self.path("zero.pt"), self.path("three.pt"))
            return self.path("three.pt")

        def python_then(path):
            state = torch.load(path, weights_only=True)
            net = Net()
            optimizer = torch.optim.SGD(net.parameters(), lr=1)
            net.load_state_dict(state["state_dict"])
            optimizer.load_state_dict(state["optimizer"])
            train(net, optimizer, state["input"], 3)
            return training_state(net, optimizer, state["input"])

        whole, continued = self.continues(cpp_first, python_then)
        self.assert_same(dict(whole["state_dict"]), dict(continued["state_dict"]))
        self.assert_same(whole["optimizer"]["state"], continued["optimizer"]["state"])

    def test_state_dicts_survive_a_round_trip(self):
        for module in (Net(), torch.nn.Transformer(8, 2, 1, 1, 8), torch.nn.LSTM(3, 4, 2), torch.nn.Conv2d(3, 4, 3)):
            value = module.state_dict()
            again = self.resave(value)
            self.assert_same(value, again)
            module.load_state_dict(again)

    def test_nested_values_survive_a_round_trip(self):
        shared = [1, 2]
        value = {
            "none": None,
            "flags": (True, False),
            "ints": [0, -1, 255, 256, 65536, -(2**31), 2**31, 2**63 - 1, -(2**63)],
            "floats": [0.1, -0.0, math.inf, -math.inf, math.nan, 5e-324],
            "text": ["", "na\u00efve", "\ud800", "x" * 1000],
            "bytes": [b"\x00\xff\x80", bytes(range(256))],
            "empty": [[], (), {}, collections.OrderedDict()],
            3: {2.5: {None: {b"k": 1}}},
            "tuples": [(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
            "long": list(range(3000)),
            "wide": {f"key{i}": i for i in range(3000)},
            "shared": [shared, shared],
            "counter": collections.Counter({30: 1, 80: 2}),
        }
        again = self.resave(value)
        self.assert_same(value, again)
        self.assertIs(again["shared"][0], again["shared"][1])
        self.assert_same(value, self.resave(value, pickle_protocol=4))

    def test_buffers_and_other_tensors_with_attributes_survive_a_round_trip(self):
        parameter = torch.nn.Parameter(torch.ones(2))
        parameter.tag = ["x", torch.ones(1)]
        tensor = torch.ones(2, dtype=torch.uint16)
        tensor.step = 3
        value = {
            "buffer": torch.nn.Buffer(torch.ones(3)),
            "not saved": torch.nn.Buffer(torch.ones(3), persistent=False),
            "parameter": parameter,
            "tensor": tensor,
            "same": tensor,
        }
        again = self.resave(value)
        self.assert_same(value, again)
        self.assertIsInstance(again["buffer"], torch.nn.Buffer)
        self.assertIs(again["tensor"], again["same"])

    def test_each_nan_stays_a_key(self):
        value = {math.nan: 1, float("nan"): 2, "a": 3}
        self.assertEqual(list(self.resave(value).values()), [1, 2, 3])

    def test_every_dtype_survives_a_round_trip(self):
        bits = torch.tensor([1, 0, 0, 1] * 8, dtype=torch.uint8)
        dtypes = set(torch.storage._dtype_to_storage_type_map()) | torch.storage._new_dtypes()
        value = {}
        for dtype in sorted(dtypes, key=str):
            if str(dtype).startswith(("torch.q", "torch.bits")):
                continue
            value[str(dtype)] = bits.clone().view(dtype)
        self.assertEqual(len(value), 22 + hasattr(torch, "bcomplex32"))
        self.assert_same(value, self.resave(value))

    def test_tensors_keep_sharing_strides_and_flags(self):
        base = torch.arange(24.0)
        z = torch.tensor([1 + 2j, 3 - 4j])
        value = {
            "base": base,
            "same": base,
            "transposed": base.view(4, 6).t(),
            "tail": base[20:],
            "step": base[::3],
            "expanded": base[:1].expand(5),
            "scalar": torch.tensor(3),
            "empty": torch.empty(0, 2),
            "empty_behind_its_storage": torch.zeros(0, 4).select(1, 3),
            "empty_slice": torch.zeros(3, 0)[1:],
            "empty_row": torch.zeros(5, 0)[4],
            "empty_parts": torch.zeros(3, 0, dtype=torch.bfloat16).unbind(),
            "conjugate": z.conj(),
            "negative": torch.tensor([1j]).conj().imag,
            "parameter": torch.nn.Parameter(torch.rand(3)),
            "frozen": torch.nn.Parameter(torch.rand(3), requires_grad=False),
            "leaf": torch.rand(2, requires_grad=True),
        }
        again = self.resave(value)
        self.assert_same(value, again)
        self.assertIs(again["base"], again["same"])
        for name in ("transposed", "tail", "step", "expanded"):
            self.assertEqual(again[name].untyped_storage().data_ptr(), again["base"].untyped_storage().data_ptr(), name)

    def test_python_loads_every_cpp_value(self):
        self.run_program("values", self.path("values.pt"))
        for mmap in (False, True):
            value = torch.load(self.path("values.pt"), weights_only=True, mmap=mmap)
            plain = {
                key: item
                for key, item in value.items()
                if key
                in ("none", "bool", "ints", "floats", "text", "bytes", "empty", 7, None, "many", "shared", "counter")
            }
            self.assert_same(
                plain,
                {
                    "none": None,
                    "bool": True,
                    "ints": [0, -1, 255, 256, 65535, 65536, -(2**31), 2**63 - 1, -(2**63)],
                    "floats": (0.1, -0.0, math.inf),
                    "text": "na\u00efve \u20ac \U0001f600",
                    "bytes": b"\x00\xff\x80a",
                    "empty": [b"", "", [], (), {}, collections.OrderedDict()],
                    7: "int key",
                    None: "None key",
                    "many": list(range(2500)),
                    "shared": [[1], [1]],
                    "counter": collections.Counter({30: 2}),
                },
            )
            self.assertIs(value["shared"][0], value["shared"][1])
            base = torch.arange(12.0)
            self.assert_same(value["base"], base)
            self.assert_same(value["transposed"], base.view(3, 4).t())
            self.assert_same(value["tail"], base[8:])
            self.assertEqual(value["tail"].untyped_storage().data_ptr(), value["base"].untyped_storage().data_ptr())
            self.assert_same(value["scalar"], torch.tensor(7))
            self.assert_same(value["no_elements"], torch.empty(0, 3))
            self.assert_same(value["five_dimensions"], torch.ones(1, 2, 1, 2, 1))
            self.assertTrue(value["conjugate"].is_conj())
            self.assert_same(value["parameter"], torch.nn.Parameter(torch.ones(2)))
            self.assert_same(value["frozen"], torch.nn.Parameter(torch.ones(2), requires_grad=False))
            self.assert_same(value["leaf"], torch.ones(2, requires_grad=True))
            dtypes = {tensor.dtype for tensor in value["dtypes"].values()}
            self.assertEqual(len(dtypes), 27 + hasattr(torch, "bcomplex32"))
            for name, tensor in value["dtypes"].items():
                self.assertEqual(bytes(tensor.untyped_storage()), bytes(i % 3 == 0 for i in range(tensor.nbytes)), name)

    def test_other_zip_readers_find_the_archive_sound(self):
        self.run_program("values", self.path("values.pt"))
        with zipfile.ZipFile(self.path("values.pt")) as archive:
            self.assertIsNone(archive.testzip())
        torch.save(torch.load(self.path("values.pt"), weights_only=True), self.path("again.pt"))
        with zipfile.ZipFile(self.path("values.pt")) as ours, zipfile.ZipFile(self.path("again.pt")) as theirs:
            self.assertEqual(
                [name.split("/", 1)[1] for name in ours.namelist()],
                [name.split("/", 1)[1] for name in theirs.namelist()],
            )


if __name__ == "__main__":
    unittest.main(verbosity=2)
