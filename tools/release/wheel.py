"""The wheel lockstep-launch: the static program `launch` for pip. Run by tools/release/run: wheel.py FOLDER VERSION LAUNCH."""

import base64
import hashlib
import os
import pathlib
import struct
import sys
import time
import zipfile

# A static program needs no glibc. This is the oldest tag that pip of the supported systems knows.
TAG = "py3-none-manylinux_2_17_x86_64"
METADATA = """Metadata-Version: 2.1
Name: lockstep-launch
Version: {version}
Summary: Starts the ranks of a distributed training, with torchrun's flags and without PyTorch
License: BSD-3-Clause
License-File: LICENSE
License-File: lockstep-launch.copyright
Requires-Python: >=3.7
Classifier: Operating System :: POSIX :: Linux
Description-Content-Type: text/markdown

`launch --nproc-per-node=2 train.py` starts two ranks of a program in any language, and sets torchrun's variables.
`launch --help` lists the flags. This `launch` is a static program for x86-64 and Linux 5.10 or newer: etcd as the
rendezvous needs one that was compiled with shared libraries.
"""
WHEEL = f"Wheel-Version: 1.0\nGenerator: lockstep\nRoot-Is-Purelib: false\nTag: {TAG}\n"


def is_static(program):
    """Whether the x86-64 ELF file names neither a loader (PT_INTERP) nor shared libraries (PT_DYNAMIC)."""
    (offset,) = struct.unpack_from("<Q", program, 32)
    size, count = struct.unpack_from("<HH", program, 54)
    kinds = [struct.unpack_from("<I", program, offset + i * size)[0] for i in range(count)]
    return program[:4] == b"\x7fELF" and count > 0 and not {2, 3} & set(kinds)


def main(folder, version, launch):
    root = pathlib.Path(__file__).resolve().parents[2]
    program = pathlib.Path(launch).read_bytes()
    if not is_static(program):
        sys.exit(f"wheel.py: {launch} is no static program, so the tag {TAG} would be wrong")
    info = f"lockstep_launch-{version}.dist-info"
    files = {
        f"lockstep_launch-{version}.data/scripts/launch": program,
        f"{info}/licenses/LICENSE": (root / "LICENSE").read_bytes(),
        f"{info}/licenses/lockstep-launch.copyright": (
            root / "tools/release/debian/lockstep-launch.copyright"
        ).read_bytes(),
        f"{info}/METADATA": METADATA.format(version=version).encode(),
        f"{info}/WHEEL": WHEEL.encode(),
    }
    record = f"{info}/RECORD"
    lines = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}\n")
    files[record] = "".join([*lines, f"{record},,\n"]).encode()
    date = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
    with zipfile.ZipFile(pathlib.Path(folder, f"lockstep_launch-{version}-{TAG}.whl"), "w") as wheel:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, date)
            entry.external_attr = (0o100755 if name.endswith("/launch") else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)


if __name__ == "__main__":
    main(*sys.argv[1:])
