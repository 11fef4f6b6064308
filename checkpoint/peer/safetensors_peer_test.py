"""safetensors files between Lockstep and Python's safetensors, both ways, to the byte."""

import os
import subprocess
import sys
import tempfile
import unittest

import safetensors
import safetensors.torch
import torch
import torchvision

INSPECT = os.path.abspath(sys.argv.pop(1))

DTYPES = """float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 uint16 uint32 uint64
float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz float8_e8m0fnu""".split()


def raw(tensor):
    return bytes(tensor.contiguous().flatten().view(torch.uint8).tolist()) if tensor.numel() else b""


class SafetensorsPeerTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        torch.manual_seed(0)

    def path(self, name):
        return os.path.join(self.folder, name)

    def contents(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def convert(self, source, target):
        done = subprocess.run(
            [INSPECT, "convert", self.path(source), self.path(target)], stderr=subprocess.PIPE, text=True
        )
        self.assertEqual(done.returncode, 0, done.stderr)

    def assert_same(self, a, b):
        self.assertEqual(set(a), set(b))
        for name, tensor in a.items():
            self.assertEqual((tensor.dtype, tensor.shape), (b[name].dtype, b[name].shape), name)
            self.assertEqual(raw(tensor), raw(b[name]), name)

    def check_to_and_fro(self, tensors, metadata=None):
        """Lockstep writes what Python wrote, from Python's safetensors file and from its .pt file."""
        safetensors.torch.save_file(tensors, self.path("python.safetensors"), metadata)
        self.convert("python.safetensors", "same.safetensors")
        self.assertEqual(self.contents("same.safetensors"), self.contents("python.safetensors"))
        self.convert("same.safetensors", "cpp.pt")
        self.assert_same(torch.load(self.path("cpp.pt"), weights_only=True), tensors)

        torch.save(tensors, self.path("python.pt"))
        safetensors.torch.save_file(tensors, self.path("python.safetensors"), {"format": "pt"})
        self.convert("python.pt", "cpp.safetensors")
        self.assertEqual(self.contents("cpp.safetensors"), self.contents("python.safetensors"))
        self.assert_same(safetensors.torch.load_file(self.path("cpp.safetensors")), tensors)

    def test_every_dtype_and_shape(self):
        bits = torch.tensor([1, 0, 0, 1] * 8, dtype=torch.uint8)
        tensors = {name: bits.clone().view(getattr(torch, name)) for name in DTYPES}
        tensors.update({f"{name} scalar": bits.view(getattr(torch, name))[0].clone() for name in DTYPES})
        tensors.update({"empty": torch.empty(0, 3), "empty bool": torch.empty(2, 0, dtype=torch.bool)})
        tensors["five dimensions"] = torch.rand(1, 2, 3, 4, 5)
        self.check_to_and_fro(tensors)

    def test_names_and_metadata_of_any_text(self):
        text = "".join(map(chr, range(1, 0x180))) + "\u2028\uffff\U0001f600\U0010ffff"
        self.check_to_and_fro({text: torch.rand(2), "": torch.rand(1), "\0": torch.rand(1)}, {text: text})

    def test_metadata_of_many_entries_arrive(self):
        metadata = {f"key {i}": "x" * i for i in range(100)}
        safetensors.torch.save_file({"w": torch.rand(3)}, self.path("python.safetensors"), metadata)
        self.convert("python.safetensors", "cpp.safetensors")
        with safetensors.safe_open(self.path("cpp.safetensors"), "pt") as file:
            self.assertEqual(file.metadata(), metadata)

    def test_names_sort_as_python_sorts_them(self):
        names = ["b", "a", "B", "a.b", "a-b", "a10", "a9", "\u00e9", "\uffff", "\U00010000", ""]
        self.check_to_and_fro({name: torch.rand(i) for i, name in enumerate(names)})

    def test_a_file_without_tensors(self):
        self.check_to_and_fro({})

    def test_many_tensors(self):
        self.check_to_and_fro({f"layers.{i}.weight": torch.rand(i % 7) for i in range(3000)})

    def test_torchvision_models(self):
        for name in ("resnet18", "mobilenet_v3_large"):
            model = getattr(torchvision.models, name)()
            self.check_to_and_fro(dict(model.state_dict()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
