"""What peer tests share: waiting for ranks, and comparing tensors by their bits."""

import subprocess

import torch


def expect_success(test, processes, patience):
    """Waits for ranks of C++ (Popen) and of Python (multiprocessing), up to `patience` seconds for each. Names each that failed."""
    failures = []
    for process in processes:
        if isinstance(process, subprocess.Popen):
            try:
                _, error = process.communicate(timeout=patience)
            except subprocess.TimeoutExpired:
                process.kill()
                _, error = process.communicate()
            if process.returncode:
                failures.append(f"a C++ rank ended with {process.returncode}: {error}")
        else:
            process.join(patience)
            if process.exitcode is None:
                process.kill()
                process.join()
            if process.exitcode:
                failures.append(f"a Python rank ended with {process.exitcode}")
    test.assertEqual(failures, [])


def bits(tensor):
    return tensor.contiguous().flatten().view(torch.uint8)


def expect_same_bits(test, expected, found, where=""):
    """Compares two dicts of tensors: names in their order, dtypes, shapes and bits."""
    test.assertEqual(list(found), list(expected), where)
    for name, value in expected.items():
        test.assertEqual(found[name].dtype, value.dtype, f"{where}: {name}")
        test.assertEqual(found[name].shape, value.shape, f"{where}: {name}")
        test.assertTrue(torch.equal(bits(found[name]), bits(value)), f"{where}: {name}")
