"""State dicts of torchvision's models through Lockstep and back, to the bit."""

import os
import subprocess
import sys
import tempfile
import unittest

import torch
import torchvision

PROGRAM = os.path.abspath(sys.argv.pop(1))


class TorchvisionPeerTest(unittest.TestCase):
    def check(self, name):
        torch.manual_seed(0)
        model = getattr(torchvision.models, name)().eval()
        before = model.state_dict()
        with tempfile.TemporaryDirectory() as folder:
            from_python, from_cpp = os.path.join(folder, "python.pt"), os.path.join(folder, "cpp.pt")
            torch.save(before, from_python)
            subprocess.run([PROGRAM, "resave", from_python, from_cpp], check=True)
            self.assertGreater(os.path.getsize(from_cpp), sum(t.nbytes for t in before.values()))
            for mmap in (False, True):
                after = torch.load(from_cpp, weights_only=True, mmap=mmap)
                self.assertEqual(list(after), list(before))
                self.assertEqual(after._metadata, before._metadata)
                for key, tensor in before.items():
                    self.assertEqual((after[key].dtype, after[key].stride()), (tensor.dtype, tensor.stride()), key)
                    self.assertTrue(torch.equal(after[key], tensor), key)
                other = getattr(torchvision.models, name)().eval()
                other.load_state_dict(after, strict=True)
            image = torch.rand(1, 3, 224, 224)
            with torch.no_grad():
                self.assertTrue(torch.equal(other(image), model(image)))

    def test_resnet18(self):
        self.check("resnet18")

    def test_resnet50(self):
        self.check("resnet50")

    def test_mobilenet_v3(self):
        self.check("mobilenet_v3_large")

    def test_vit_b_16(self):
        self.check("vit_b_16")


if __name__ == "__main__":
    unittest.main()
