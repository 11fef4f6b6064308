"""Every network of //models:registry beside torchvision's: initial weights, state dicts both ways, logits."""

import os
import subprocess
import sys
import tempfile
import unittest

import torch
import torchvision

PROGRAM = os.path.abspath(sys.argv.pop(1))
REGISTERED = subprocess.run([PROGRAM, "names"], check=True, capture_output=True, text=True).stdout.split()
VARIANTS = {
    "resnet18_zero_init_residual": ("resnet18", {"zero_init_residual": True}),
    "resnet50_dilated": ("resnet50", {"replace_stride_with_dilation": [False, True, True]}),
}


def make(name):
    torch.manual_seed(11)
    arch, options = VARIANTS.get(name, (name, {}))
    return getattr(torchvision.models, arch)(**options).eval()


def disturb(net):
    """Other weights than the seed's, and statistics, so that what is not loaded shows; the logits stay about 1."""
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.dim() > 1:
                parameter.copy_(parameter.flip(0))
            else:
                parameter.uniform_(0.2, 0.5)
        for name, buffer in net.named_buffers():
            if name.endswith("running_mean"):
                buffer.uniform_(-0.1, 0.1)
            elif name.endswith("running_var"):
                buffer.uniform_(0.8, 1.2)
            else:
                buffer.fill_(7)


class ResNetPeerTest(unittest.TestCase):
    def expect_same_start(self, net, path):
        found, expected = torch.load(path, weights_only=True), net.state_dict()
        self.assertEqual(list(found), list(expected))
        for key, tensor in expected.items():
            self.assertTrue(torch.equal(found[key], tensor), key)
        net.load_state_dict(found, strict=True)

    def check(self, name):
        net = make(name)
        with tempfile.TemporaryDirectory() as folder:
            initial, to_cpp, logits = (f"{folder}/{name}.pt" for name in ("initial", "to_cpp", "logits"))
            start = {key: tensor.clone() for key, tensor in net.state_dict().items()}
            disturb(net)
            images = torch.rand(2, 3, 64, 64)
            torch.save({"state_dict": net.state_dict(), "images": images}, to_cpp)
            with torch.no_grad():
                expected = net(images)
            subprocess.run([PROGRAM, name, initial, to_cpp, logits], check=True)
            net.load_state_dict(start)
            self.expect_same_start(net, initial)
            found = torch.load(logits, weights_only=True)
        self.assertGreater(expected.std(), 1e-2)
        self.assertEqual(found.shape, expected.shape)
        difference = (found - expected).abs().max().item()
        print(f"{name}: logits up to {expected.abs().max():.2f} differ by {difference:.1e}", flush=True)
        self.assertLess(difference, 1e-5)

    def test_every_resnet_of_torchvision_is_registered(self):
        torchvisions = torchvision.models.list_models(torchvision.models, include=["resne*", "wide_resnet*"])
        self.assertEqual(sorted(REGISTERED), sorted(torchvisions))


for name in [*REGISTERED, *VARIANTS]:
    setattr(ResNetPeerTest, f"test_{name}", lambda self, name=name: self.check(name))


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
