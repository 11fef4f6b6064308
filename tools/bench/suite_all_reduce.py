"""Suite all_reduce: ours in place and in ordinary tensors, beside Gloo through Python and Open MPI."""

import os
import pathlib
import shutil
import statistics
import subprocess

from measuring import PROGRESS, in_words, install, lines_of, machine

SIZES = {"4KiB": 4 << 10, "64KiB": 64 << 10, "1MiB": 1 << 20, "25MiB": 25 << 20, "256MiB": 256 << 20}
DTYPES = ("float32", "bfloat16")
PLACEMENTS = ("in_place", "ordinary")
MARKS = ("<!-- measured: begin -->", "<!-- measured: end -->")


def add_arguments(parser):
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--ranks", default="2,4")


def check_arguments(arguments, parser):
    arguments.sizes = arguments.sizes.split(",")
    arguments.ranks = [int(ranks) for ranks in arguments.ranks.split(",")]
    for size in arguments.sizes:
        if size not in SIZES:
            parser.error(f"--sizes: {size}: expected some of {','.join(SIZES)}")


def run(arguments, programs, folder):
    """The comparisons, and the table of them."""
    programs = Programs(
        programs["all_reduce"], programs["python"], programs["all_reduce_gloo"], programs["all_reduce_mpi"], folder
    )
    seconds, cpu, memcpy = measure(programs, arguments.rounds, arguments.sizes, arguments.ranks)
    rows = list(comparisons(seconds, cpu, arguments.sizes, arguments.ranks))
    return rows, markdown(rows, memcpy, arguments.rounds)


def install_open_mpi():
    # Debian's openmpi-bin has mpicc without the headers.
    compiles = ["mpicc", "-E", "-x", "c", "-include", "mpi.h", "-"]
    has_headers = shutil.which("mpicc") and subprocess.run(compiles, input=b"", capture_output=True).returncode == 0
    if not (has_headers and shutil.which("mpirun")):
        install("openmpi-bin", "libopenmpi-dev")


class Programs:
    """Our benchmark and the peers', each taking a number of ranks and a list of cases."""

    def __init__(self, ours, python, gloo, mpi_source, folder):
        self._ours, self._python, self._gloo = ours, python, gloo
        install_open_mpi()
        self._mpi = os.path.join(folder, "all_reduce_mpi")
        # -O3 vectorises the sum of bfloat16s.
        subprocess.run(["mpicc", "-O3", "-march=native", mpi_source, "-o", self._mpi], check=True)

    def lockstep(self, ranks, cases):
        return lines_of([self._ours, f"--ranks={ranks}", f"--cases={','.join(cases)}"])

    def gloo(self, ranks, cases):
        return lines_of([self._python, self._gloo, str(ranks), ",".join(cases)])

    def openmpi(self, ranks, cases):
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), self._mpi, ",".join(cases)]
        return lines_of(command, {"OMPI_MCA_btl_vader_single_copy_mechanism": "none"} if not can_read_peers() else None)


def can_read_peers():
    """Returns whether Open MPI may copy straight from another process; where not it says so on every message."""
    try:
        return int(pathlib.Path("/proc/sys/kernel/yama/ptrace_scope").read_text()) == 0
    except OSError:
        return True


def measure(programs, rounds, sizes, rank_counts):
    """{(program, ranks, case): [figure of each round]} of seconds and of CPU time, and the rates of memcpy by ranks."""
    seconds, cpu, memcpy = {}, {}, {}
    for _ in PROGRESS.rounds("all_reduce", rounds):
        for ranks in rank_counts:
            for name, run in (("lockstep", programs.lockstep), ("gloo", programs.gloo), ("openmpi", programs.openmpi)):
                placements = PLACEMENTS if name == "lockstep" else ("ordinary",)
                cases = [
                    f"{placement}/{SIZES[size]}/{dtype}"
                    for size in sizes
                    for dtype in DTYPES
                    for placement in placements
                ]
                for line in run(ranks, cases):
                    if line["case"] == "memcpy":
                        memcpy.setdefault(ranks, []).append(line["bytes"] / line["seconds"])
                        continue
                    key = (name, ranks, line["case"])
                    seconds.setdefault(key, []).append(line["seconds"])
                    cpu.setdefault(key, []).append(line["cpu_ns_per_byte"])
    median = lambda figures: {key: statistics.median(values) for key, values in figures.items()}
    return median(seconds), median(cpu), median(memcpy)


def comparisons(seconds, cpu, sizes, rank_counts):
    for ranks in rank_counts:
        for size in sizes:
            for dtype in DTYPES:
                for placement in PLACEMENTS:
                    ours = ("lockstep", ranks, f"{placement}/{SIZES[size]}/{dtype}")
                    for peer in ("gloo", "openmpi"):
                        theirs = (peer, ranks, f"ordinary/{SIZES[size]}/{dtype}")
                        case = f"{placement}/{size}/{dtype}/{ranks}ranks"
                        for suite, figures, unit in (("all_reduce", seconds, "s"), ("all_reduce_cpu", cpu, "ns/byte")):
                            a, b = figures[ours], figures[theirs]
                            yield {
                                "suite": suite,
                                "case": case,
                                "ours": a,
                                "peer_name": peer,
                                "peer": b,
                                "unit": unit,
                                "ratio": b / a,
                            }


def software():
    mpi = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout.splitlines()[0]
    return f"{machine()}; {mpi}; PyTorch 2.11.0"


def markdown(rows, memcpy, rounds):
    """The table of the figures, and of CPU time."""
    by_case = {}
    for row in rows:
        by_case.setdefault((row["suite"], row["case"]), {})[row["peer_name"]] = row
    out = [f"{software()}. Medians of {rounds} rounds.", ""]
    for ranks, rate in sorted(memcpy.items()):
        line = f"- {ranks} ranks that each copy 25 MiB at a time with memcpy: {rate / 1e9:.1f} GB/s a rank."
        # In place each rank reads and writes as many bytes as a memcpy of the tensor does, whatever the number of ranks.
        in_place = by_case.get(("all_reduce", f"in_place/25MiB/float32/{ranks}ranks"))
        if in_place:
            share = SIZES["25MiB"] / rate / in_place["gloo"]["ours"]
            line += f" `in_place/25MiB/float32` moves as many bytes a rank, at {share:.0%} of that rate."
        out.append(line)
    out += [
        "",
        "| case | ours | Gloo | Open MPI | times Gloo | times Open MPI | CPU, of Gloo's | CPU, of Open MPI's |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (suite, case), peers in by_case.items():
        if suite != "all_reduce":
            continue
        cpu = by_case["all_reduce_cpu", case]
        out.append(
            f"| {case} | {in_words(peers['gloo']['ours'])} | {in_words(peers['gloo']['peer'])} | {in_words(peers['openmpi']['peer'])}"
            f" | {peers['gloo']['ratio']:.1f} | {peers['openmpi']['ratio']:.2f}"
            f" | {1 / cpu['gloo']['ratio']:.2f} | {1 / cpu['openmpi']['ratio']:.2f} |"
        )
    return "\n".join(out)
