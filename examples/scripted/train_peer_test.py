"""What Python makes of the example's files: train_peer_test.py TRAIN EXPORT_MODEL NET DATA_FOLDER.

NET, which is checked in, is what EXPORT_MODEL writes. Python loads the files that TRAIN saves, and finds the accuracy that TRAIN printed.
"""

import gzip
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import unittest
import warnings

import numpy
import torch

TRAIN, EXPORT_MODEL, NET, DATA = sys.argv[1:5]


def export_model():
    spec = importlib.util.spec_from_file_location("export_model", EXPORT_MODEL)
    module = importlib.util.module_from_spec(spec)
    sys.modules["export_model"] = module  # where torch.jit.script looks up its names
    spec.loader.exec_module(module)
    return module


def read_idx(path, header):
    with gzip.open(path) as file:
        return torch.from_numpy(numpy.frombuffer(file.read(), numpy.uint8)[header:].copy())


def test_data():
    images = read_idx(f"{DATA}/t10k-images-idx3-ubyte.gz", 16).view(-1, 1, 28, 28)
    return images.float().div(255), read_idx(f"{DATA}/t10k-labels-idx1-ubyte.gz", 8).long()


class Scripted(unittest.TestCase):
    def expect_same_tensors(self, found, expected):
        self.assertEqual(list(found), list(expected))
        for name, value in expected.items():
            self.assertTrue(torch.equal(found[name], value), name)

    def test_the_file_is_what_the_script_writes(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, EXPORT_MODEL, f"{folder}/net.ts"], check=True, stderr=subprocess.DEVNULL)
            written, kept = torch.jit.load(f"{folder}/net.ts"), torch.jit.load(NET)
            self.expect_same_tensors(kept.state_dict(), written.state_dict())
            self.assertEqual(kept.code, written.code)
            self.assertEqual(kept.classify.code, written.classify.code)
            self.assertEqual(kept.training, written.training)

    def test_python_loads_what_was_trained(self):
        with tempfile.TemporaryDirectory() as folder:
            files = [f"--output={folder}/trained.ts", f"--state_dict={folder}/trained.pt"]
            command = [TRAIN, f"--module={NET}", f"--data_dir={DATA}", "--epochs=1"] + files
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            stated = float(re.search(r"test accuracy ([0-9.]+)", output)[1])
            images, labels = test_data()
            scripted = torch.jit.load(f"{folder}/trained.ts")
            eager = export_model().Net()
            eager.load_state_dict(torch.load(f"{folder}/trained.pt", weights_only=True))
            self.expect_same_tensors(scripted.state_dict(), eager.state_dict())
            for net in (scripted, eager.eval()):
                with torch.no_grad():
                    accuracy = net.classify(images)[0].eq(labels).double().mean().item()
                self.assertAlmostEqual(accuracy, stated, delta=2e-4)  # another batch size may round otherwise
            self.assertGreater(stated, 0.7, output)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit
    unittest.main(argv=sys.argv[:1], verbosity=2, warnings="ignore")
