"""torch.save and torch.load, as checkpoint.cc measures ours; a JSON line a measurement.

  checkpoint_python.py DIRECTORY CASES MEBIBYTES TENSORS REPEAT
"""

import json
import os
import pathlib
import re
import statistics
import sys
import time

sys.path.append(str(pathlib.Path(__file__).absolute().parents[1]))
import required_packages

required_packages.check("torch")
import torch


def peak():
    return int(re.search(r"VmHWM:\s*(\d+)", pathlib.Path("/proc/self/status").read_text()).group(1)) * 1024


def measure(work, afterwards, repeat):
    seconds, extra = [], 0
    for _ in range(repeat):
        pathlib.Path("/proc/self/clear_refs").write_text("5")
        before = peak()
        start = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start)
        extra = max(extra, peak() - before)
        del result
        afterwards()
    return statistics.median(seconds), extra


def save(state_dict, path, flush):
    with open(path, "wb") as file:
        torch.save(state_dict, file)
        if flush:
            file.flush()
            os.fsync(file.fileno())


def main():
    directory, cases, mebibytes, tensors, repeat = sys.argv[1:]
    mebibytes, tensors, repeat = int(mebibytes), int(tensors), int(repeat)
    path = os.path.join(directory, "python_benchmark.pt")
    count = (mebibytes << 20) // 4 // tensors
    state_dict = {
        f"layer{i}.weight": torch.randint(-(2**31), 2**31, (count,), dtype=torch.int32) for i in range(tensors)
    }

    def clean():
        os.unlink(path)
        os.sync()

    for case in cases.split(","):
        if case == "save":
            seconds, extra = measure(lambda: save(state_dict, path, True), clean, repeat)
        elif case == "save_unsynced":
            seconds, extra = measure(lambda: save(state_dict, path, False), clean, repeat)
        else:
            save(state_dict, path, False)
            os.sync()
            seconds, extra = measure(lambda: torch.load(path, weights_only=True), lambda: None, repeat)
            extra -= mebibytes << 20
            os.unlink(path)
        print(json.dumps({"case": case, "seconds": seconds, "extra_bytes": extra}), flush=True)


if __name__ == "__main__":
    main()
