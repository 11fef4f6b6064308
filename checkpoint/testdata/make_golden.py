"""Writes the golden files of this folder with Python PyTorch 2.11 and safetensors 0.8.0; golden_test.cc and safetensors_test.cc say what they hold.

  ./bazelw run //third_party:peer_python -- $PWD/checkpoint/testdata/make_golden.py $PWD/checkpoint/testdata
"""

import collections
import os
import sys

import safetensors.torch
import torch


def state_dict():
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    with torch.no_grad():
        for i, tensor in enumerate(model.state_dict().values()):
            tensor.copy_(torch.arange(tensor.numel()).reshape(tensor.shape) + 10 * i)
    return model.state_dict()


def nested():
    shared = [1, 2]
    return {
        "none": None,
        "flags": (True, False),
        "ints": [0, -1, 255, 256, 65535, 65536, -(2**31), 2**31, 2**63 - 1, -(2**63)],
        "floats": [0.1, -0.0, float("inf"), float("nan")],
        "text": "na\u00efve \u20ac \U0001f600",
        "bytes": b"\x00\xff\x80a",
        "empty": [b"", "", [], (), {}, collections.OrderedDict()],
        3: "int key",
        2.5: "float key",
        True: "bool key",
        None: "None key",
        b"k": "bytes key",
        "shared": [shared, shared],
        "milestones": collections.Counter([30, 80, 30]),
        "size": torch.Size([2, 3]),
        "device": torch.device("cuda", 1),
        "dtype": torch.bfloat16,
        "parameter": torch.nn.Parameter(torch.tensor([1.0, 2.0])),
        "frozen": torch.nn.Parameter(torch.tensor([3.0]), requires_grad=False),
        "leaf": torch.tensor([4.0], requires_grad=True),
    }


DTYPES = """float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex128 complex64 complex32 uint16 uint32 uint64
float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz float8_e8m0fnu float4_e2m1fn_x2""".split()


def dtypes():
    # The same bytes in every dtype; 0 and 1 only, which bool can hold.
    raw = torch.tensor([1, 0, 0, 1] * 8, dtype=torch.uint8)
    return {name: raw.clone().view(getattr(torch, name)) for name in DTYPES}


def safetensors_files():
    """Each file's tensors and metadata."""
    tensors = {name: tensor for name, tensor in dtypes().items() if name not in ("complex128", "complex32", DTYPES[-1])}
    odd_names = {
        "": torch.tensor(7),
        'quote" back\\slash/ tab\t \x01\x7f na\u00efve \u20ac \U0001f600': torch.empty(0, 3),
    }
    return {
        "state_dict": (state_dict(), {"format": "pt"}),
        "dtypes": (tensors, None),
        "names": (odd_names, {"na\u00efve\n": "\U0001f600"}),
        "f4": ({DTYPES[-1]: dtypes()[DTYPES[-1]]}, None),
        "none": ({}, None),
        "empty_metadata": ({"a": torch.ones(1)}, {}),
    }


def tied():
    """Two layers with one weight."""
    model = torch.nn.ModuleDict({"encoder": torch.nn.Linear(2, 3), "decoder": torch.nn.Linear(2, 3)})
    model["decoder"].weight = model["encoder"].weight
    with torch.no_grad():
        model["encoder"].weight.copy_(torch.arange(6.0).reshape(3, 2))
        model["encoder"].bias.fill_(1)
        model["decoder"].bias.fill_(2)
    return model


def views():
    base = torch.arange(12.0)
    z = torch.tensor([1 + 2j, 3 - 4j])
    return {
        "base": base,
        "tail": base[4:],
        "matrix": base.view(3, 4),
        "transposed": base.view(3, 4).t(),
        "every_other": base[::2],
        "expanded": base[:1].expand(5),
        "same": base,
        "scalar": torch.tensor(7),
        "empty": torch.empty(0, 3),
        "conjugate": z.conj(),
        "negative": torch.tensor([5 + 6j]).conj().imag,
    }


def main(folder):
    def save(value, name, **kwargs):
        torch.save(value, os.path.join(folder, name), **kwargs)

    save(state_dict(), "state_dict.pt")
    save(nested(), "nested.pt")
    save(dtypes(), "dtypes.pt")
    save(views(), "views.pt")
    save({"a": [1, 2.5, b"\x01", "x"], "t": torch.arange(3)}, "protocol4.pt", pickle_protocol=4)
    save(torch.arange(3), "legacy.pt", _use_new_zipfile_serialization=False)
    save({"q": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)}, "quantized.pt")
    save({"s": torch.eye(2).to_sparse()}, "sparse.pt")
    linear = torch.nn.Linear(1, 1)
    torch.jit.save(torch.jit.script(linear), os.path.join(folder, "torchscript.pt"))
    torch.export.save(torch.export.export(linear, (torch.ones(1, 1),)), os.path.join(folder, "exported.pt2"))
    torch.serialization.set_crc32_options(False)
    save({"w": torch.arange(3)}, "no_crc.pt")
    torch.serialization.set_crc32_options(True)
    for name, (tensors, metadata) in safetensors_files().items():
        safetensors.torch.save_file(tensors, os.path.join(folder, f"{name}.safetensors"), metadata)
    safetensors.torch.save_model(tied(), os.path.join(folder, "tied.safetensors"))
    # No GPU is needed to write what a GPU's tensors are marked with.
    torch.serialization.location_tag = lambda storage: "cuda:0"
    save({"model": {"weight": torch.arange(3.0)}}, "cuda.pt")


if __name__ == "__main__":
    main(sys.argv[1])
