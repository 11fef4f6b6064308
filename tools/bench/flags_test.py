#!/usr/bin/env python3
"""Values that the programs refuse: at once, with one line that has the flag, the value and what is expected."""

import concurrent.futures
import os
import pathlib
import subprocess
import unittest

HERE = pathlib.Path(__file__).absolute().parent

CASES = "PLACEMENT/BYTES/DTYPE with a comma between two; PLACEMENT is in_place or ordinary"

REFUSED = {
    "all_reduce": {
        "--ranks=0": "1 or more",
        "--ranks=1000": "at most 256",
        "--nnodes=0": "1 or more",
        "--batches=-1": "0 or more",
        "--cases=": CASES,
        "--cases=in_place/4096/float32,": CASES,
        "--cases=in_place/3/float32": CASES,
        "--cases=in_place/-4/float32": CASES,
        "--cases=in_place/99999999999999/float32": CASES,
    },
    "checkpoint": {
        "--mebibytes=0": "1 or more",
        "--mebibytes=-1": "1 or more",
        "--mebibytes=100000000": "at most ",
        "--tensors=0": "1 or more",
        "--tensors=-1": "1 or more",
        "--tensors=2000000000": "at most 100000",
        "--repeat=0": "1 or more",
        "--case=save,,load": "save, save_unsynced, load, async_stall or raw_o_direct, or several",
        "--case=": "save, save_unsynced, load, async_stall or raw_o_direct, or several",
    },
    "ddp": {
        "--world_size=0": "1 or more",
        "--world_size=1000": "at most 256",
        "--steps=-1": "0 or more",
        "--steps=2000000000": "at most 1000000",
        "--backend=mpi": "shm, gloo, auto or local",
        "--device=tpu": "cpu or cuda",
        "--device=cuda": "cpu, except with --overhead --world_size=1",
        "--virtual_ranks=-1": "0 or more",
        "--virtual_ranks=1": "at least --world_size=2",
        "--case=mlp_4x64/b32,": "resnet18/b8/64px, mlp_26mb/b8, mlp_784_512_512_10/b64 or mlp_4x64/b32, or several",
        "--hook=int8": "none, fp16 or power_sgd",
    },
    "dp": {
        "--replicas=0": "whole numbers from 1 to 64",
        "--replicas=-1": "whole numbers from 1 to 64",
        "--replicas=1000": "whole numbers from 1 to 64",
        "--replicas=2,,4": "whole numbers from 1 to 64",
        "--replicas=nan": "whole numbers from 1 to 64",
        "--steps=-1": "0 or more",
        "--steps=2000000000": "at most 1000000",
        "--case=": "mlp_784_512_512_10/b64 or resnet18/b8/64px, or several",
    },
    "hook_accuracy": {
        "--world_size=0": "1 or more",
        "--hook=int8": "none, fp16 or power_sgd",
        "--epochs=0": "1 or more",
        "--batch_size=1": "at least --world_size=2",
    },
    "exported": {
        "--case=vgg": "resnet50/b8, gpt_12l/512, mlp_4x64 or add_64",
        "--mode=eager": "exported or native",
        "--steps=0": "1 or more",
    },
    "fsdp": {
        "--case=gpt_7b": "mlp_784_2048_2048_10/b64, gpt_10m/512 or gpt_124m/128",
        "--mode=fsdp2": "fsdp, ddp, ddp_zero1 or ddp_no_sync",
        "--steps=0": "1 or more",
    },
    "image_loader": {
        "--workers=-1": "0 or more",
        "--workers=100000": "at most 4096",
        "--batch_size=0": "1 or more",
        "--batch_size=9000000000000000000": "at most 1000000",
        "--prefetch=0": "1 or more",
        "--epochs=0": "1 or more",
    },
    "optim": {
        "--optimizer=lion": "adam, adamw or sgd_momentum",
        "--parameters=1B": "124M, resnet50 or 160x4KiB",
        "--mode=foreach": "default, fused or libtorch",
        "--steps=0": "1 or more",
    },
    "recovery": {
        "--network=vgg": "mlp or resnet18",
        "--hidden=0": "1 or more",
        "--batch=0": "1 or more",
        "--batch=100": "a divisor of 1024 and a multiple of --virtual_ranks",
        "--batch=4": "a divisor of 1024 and a multiple of --virtual_ranks",
        "--virtual_ranks=0": "1 or more",
        "--virtual_ranks=1000": "at most 256",
    },
    "resnet": {
        "--setting=fp8": "float32, channels_last, mkldnn, bf16, channels_last_bf16 or channels_last_fp16",
        "--setting=channels_last_fp16": "--device=cuda with it",
        "--device=tpu": "cpu or cuda",
        "--ranks=0": "1 or more",
        "--batch=0": "1 or more",
        "--batch=9000000000000000000": "at most 65536",
        "--steps=0": "1 or more",
        "--threads=0": "1 or more",
        "--ranks=4": "",
    },
    "sampler": {
        "--repeat=0": "1 or more",
        "--repeat=-1": "1 or more",
        "--repeat=2000000000": "at most 10000",
        "--case=epoch,,first_index": "first_index, epoch, feistel_first_index, feistel_index or feistel_state, or several",
    },
}

# Of the errors that are about another flag than the given one.
BLAMED = {("resnet", "--ranks=4"): "--threads=2: expected one for each of --ranks=4, or more"}


def run(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)


def shown(text):
    """As a number of a range is written."""
    name, value = text.split("=")
    return f"{name}={float(value):.6g}" if len(value) > 6 and value.isdigit() else text


class Flags(unittest.TestCase):
    def check(self, program, argument, expected):
        result = run(HERE / program, argument)
        self.assertEqual((result.returncode, result.stdout), (1, ""), result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        message = BLAMED.get((program, argument), f"{shown(argument)}: expected {expected}")
        self.assertIn(f"{program}: {message}", result.stderr)

    def test_a_value_that_is_refused_is_named_with_what_is_expected(self):
        cases = [(program, *case) for program, values in REFUSED.items() for case in values.items()]
        # Programs with LibTorch take a third of a second to load.
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            checks = [(case, pool.submit(self.check, *case)) for case in cases]
        for (program, argument, _), check in checks:
            with self.subTest(program=program, argument=argument):
                check.result()


if __name__ == "__main__":
    unittest.main()
