"""Writes the golden files of objects that are more than plain data, and of torch.save's legacy format.

  PYTHONPATH=~/.cache/lockstep/python-torch-2.11.0-cp311 python3 make_objects_golden.py FOLDER

objects.pt        what weights_only=True loads, numpy's objects once they are safe globals
objects_p5.pt     the same, in protocol 5
refused.pt        a state dict beside objects that weights_only=True refuses
legacy_*.pt       torch.save's legacy format; legacy_old.pt spells tensors as PyTorch before 0.4 did
"""

import argparse
import os
import pickle
import random
import sys
import warnings
from types import SimpleNamespace

import numpy
import torch

warnings.filterwarnings("ignore")


def objects():
    coo = torch.sparse_coo_tensor([[0, 1, 2], [2, 0, 1]], [3.0, 4.0, 5.0], (3, 4)).coalesce()
    dense = torch.tensor([[0.0, 1.0, 0.0, 2.0], [3.0, 0.0, 0.0, 0.0]])
    return {
        "complex": 1.5 - 2j,
        "bytearray": bytearray(b"\x00\xffab"),
        "empty_bytearray": bytearray(),
        "set": {7},
        "frozenset": frozenset(["a"]),
        "empty_set": set(),
        "big": 2**64,
        "bigger": -(10**30) - 7,
        "huge": 10**400,
        "layout": torch.sparse_csr,
        "qscheme": torch.per_channel_affine,
        "coo": coo,
        "uncoalesced": torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (2,)),
        "csr": dense.to_sparse_csr(),
        "csc": dense.to_sparse_csc(),
        "bsr": dense.to_sparse_bsr((2, 2)),
        "per_tensor": torch.quantize_per_tensor(torch.tensor([[0.0, 1.0], [2.0, -3.0]]), 0.5, 3, torch.quint8),
        "per_channel": torch.quantize_per_channel(
            torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([0.5, 0.25]), torch.tensor([0, 1]), 0, torch.qint8
        ),
        "scalars": [
            numpy.float64(0.1),
            numpy.float32(0.5),
            numpy.float16(-2),
            numpy.int64(-5),
            numpy.uint8(200),
            numpy.uint64(2**63),
            numpy.bool_(True),
            numpy.complex64(1 + 2j),
        ],
        "arrays": [
            numpy.arange(6, dtype=numpy.float32).reshape(2, 3),
            numpy.asfortranarray(numpy.arange(6, dtype=numpy.int16).reshape(2, 3)),
            numpy.zeros((0, 2)),
            numpy.array(7),
            numpy.array([True, False]),
        ],
        "dtype": numpy.dtype("float32"),
        "numpy_rng": numpy.random.RandomState(0).get_state(),
        "python_rng": random.Random(0).getstate(),
        "keys": {numpy.int64(3): "three"},
    }


class Custom:
    def __init__(self):
        self.x = torch.ones(2)


def refused():
    return {
        "state_dict": {"w": torch.arange(3.0)},
        "args": argparse.Namespace(lr=0.1, layers=[1, 2]),
        "namespace": SimpleNamespace(a=1),
        "custom": Custom(),
        "words": numpy.array(["a", "bc"]),
        "objects": numpy.array([None, {}], dtype=object),
        (1, 2): "tuple",
        "function": os.path.join,
        "module": torch.nn.Linear(1, 1),
        "optimizer": {"lr": 0.1, "best": numpy.float64(0.5)},
    }


class Old:
    """Pickled as `callable(*arguments)`, or as an object of it with a state."""

    def __init__(self, *reduced):
        self.reduced = reduced

    def __reduce__(self):
        return self.reduced


def storage_of(tensor):
    return tensor.storage()


class NewObject:
    """Written as NEWOBJ and BUILD, as protocol 2 writes an object of a class."""

    def __init__(self, cls, arguments, state):
        self.value = (cls, arguments, state)


class OldPickler(pickle._Pickler):
    def save(self, obj, *arguments, **keywords):
        if not isinstance(obj, NewObject):
            return super().save(obj, *arguments, **keywords)
        module, name, given, state = *obj.value[0].rsplit(".", 1), obj.value[1], obj.value[2]
        self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())
        super().save(given)
        self.write(pickle.NEWOBJ)
        super().save(state)
        self.write(pickle.BUILD)


class OldPickle:
    """For torch.save's pickle_module."""

    Pickler = OldPickler
    dump = staticmethod(pickle.dump)


def old():
    """A state dict as PyTorch 0.1 to 0.3 wrote it."""
    weight, bias, mean = torch.arange(6.0).reshape(2, 3), torch.tensor([7.0, 8.0]), torch.tensor([0.5, 0.25])
    view = (storage_of(weight), 0, (2, 3), (3, 1))
    return {
        "rebuilt": Old(torch._utils._rebuild_tensor, view),
        "tensor": NewObject("torch.FloatTensor", (), (storage_of(mean), 0, (2,), (1,))),
        "parameter": NewObject(
            "torch.nn.parameter.Parameter",
            (),
            (Old(torch._utils._rebuild_tensor, (storage_of(bias), 0, (2,), (1,))), None, None, True, False),
        ),
        "frozen": NewObject(
            "torch.nn.parameter.Parameter",
            (Old(torch._utils._rebuild_tensor, (storage_of(bias), 1, (1,), (1,))), True),
            (False, False, None),
        ),
    }


def main(folder):
    def save(value, name, **kwargs):
        torch.save(value, os.path.join(folder, name), **kwargs)

    save(objects(), "objects.pt")
    save(objects(), "objects_p5.pt", pickle_protocol=5)
    save(refused(), "refused.pt")
    legacy = {"_use_new_zipfile_serialization": False}
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    base = torch.arange(12.0)
    state = {
        "state_dict": net.state_dict(),
        "parameters": list(net.parameters()),
        "views": [base, base[4:], base.view(3, 4).t()],
        "bfloat16": torch.ones(3, dtype=torch.bfloat16),
        "empty": torch.empty(0, 3),
        "epoch": 3,
        "args": argparse.Namespace(lr=0.1),
    }
    save(state, "legacy_state.pt", **legacy)
    save(objects(), "legacy_objects.pt", **legacy)
    save({"x": torch.arange(4)}, "legacy_p4.pt", pickle_protocol=4, **legacy)
    save(old(), "legacy_old.pt", pickle_module=OldPickle, **legacy)


if __name__ == "__main__":
    main(sys.argv[1])
