"""Suite launch: our launcher beside torchrun. How long each takes to start ranks, to end them when one has failed and to start them again,
and what it needs meanwhile."""

import os
import pathlib
import random
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from measuring import PROGRESS, in_words, machine

MARKS = ("<!-- measured launch: begin -->", "<!-- measured launch: end -->")
# The peers, and their columns.
PEERS = {"torchrun": "torchrun", "torchrun_standalone": "torchrun --standalone"}
# In one round. The launchers take turns.
REPEAT = 3
PATIENCE = 60.0  # seconds, after which a launcher hangs
# A rank fails between 0.5 and 0.6 s after the last one has started, so at any point of torchrun's interval of 0.1 s.
SETTLED, SPREAD = 0.5, 0.1
WATCHED = 5.0  # seconds of the processor's time

UNITS = {"start": "s", "teardown": "s", "restart": "s", "memory": "bytes", "cpu": "% of a processor"}


def add_arguments(parser):
    parser.add_argument("--watched_ranks", type=int, default=64, help="ranks of the case cpu (default 64)")


def check_arguments(arguments, parser):
    if arguments.watched_ranks < 1:
        parser.error(f"--watched_ranks={arguments.watched_ranks}: expected 1 or more")


class Job:
    """A launcher with `ranks` ranks, which are the program launch_rank."""

    def __init__(self, launcher, rank, ranks, *flags):
        command, self._environment = launcher
        self._rank, self._ranks = rank, ranks
        self._command = [*command, f"--nproc_per_node={ranks}", *flags, self._rank]

    def __enter__(self):
        PROGRESS.say(self._command, 0)
        self._folder, self._errors = tempfile.TemporaryDirectory(), tempfile.TemporaryFile("w+")
        fifo = os.path.join(self._folder.name, "fifo")
        os.mkfifo(fifo)
        self._fifo = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
        self._unread, self._lines, self._pids = "", [], {}  # pids: {(restart count, rank): (pid, its descriptor)}
        self._began = time.monotonic_ns()
        self._launcher = subprocess.Popen(
            [*self._command, fifo],
            stdin=subprocess.DEVNULL,
            stdout=self._errors,
            stderr=self._errors,
            env={**os.environ, **self._environment},
            start_new_session=True,
        )
        self._launcher_ended = os.pidfd_open(self._launcher.pid)
        return self

    def __exit__(self, *_):
        """Ends what still runs."""
        self._launcher.send_signal(signal.SIGTERM)
        try:
            self._launcher.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._launcher.kill()
            self._launcher.wait()
        for _, descriptor in self._pids.values():
            if not select.select([descriptor], [], [], 0)[0]:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            os.close(descriptor)
        os.close(self._launcher_ended)
        os.close(self._fifo)
        self._errors.close()
        self._folder.cleanup()
        PROGRESS.end_line()

    def processes(self):
        """The folders in /proc of the launcher's processes: the one that was started, and its descendants without the ranks."""
        ranks = {pid for pid, _ in self._pids.values()}
        found, unseen = [], [self._launcher.pid]
        while unseen:
            process = pathlib.Path(f"/proc/{unseen.pop()}")
            found.append(process)
            for children in process.glob("task/*/children"):
                unseen += [pid for pid in map(int, children.read_text().split()) if pid not in ranks]
        return found

    def fail(self, what):
        self._errors.seek(0)
        sys.exit(f"compare: {' '.join(self._command)}: {what}:\n{self._errors.read()}")

    def seconds_to_start(self):
        """From the start of the launcher until the last rank is in main."""
        return (self._all_in_main(0) - self._began) / 1e9

    def seconds_to_end(self, number):
        """From a signal to rank 1 until all ranks and the launcher have ended."""
        began = self._fail_rank_1(number)
        for descriptor in (*(descriptor for _, descriptor in self._pids.values()), self._launcher_ended):
            if not select.select([descriptor], [], [], PATIENCE)[0]:
                self.fail(f"some process has not ended {PATIENCE:.0f} s after the failure of rank 1")
        ended = time.monotonic_ns()
        if self._launcher.wait() == 0:
            self.fail("the launcher exited with 0, though rank 1 had failed")
        return (ended - began) / 1e9

    def seconds_to_restart(self):
        """From the death of rank 1 until the last rank is in main again."""
        began = self._fail_rank_1(signal.SIGKILL)
        return (self._all_in_main(1) - began) / 1e9

    def peak_bytes(self):
        """The most memory that each of the launcher's processes has had, in all. A page that two of them share counts twice."""
        lines = (line for process in self.processes() for line in (process / "status").read_text().splitlines())
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))

    def processor_percent(self):
        """The launcher's share of a processor while its ranks run."""
        time.sleep(SETTLED)
        began, before = time.monotonic_ns(), self._processor_nanoseconds()
        time.sleep(WATCHED)
        return 100 * (self._processor_nanoseconds() - before) / (time.monotonic_ns() - began)

    def _processor_nanoseconds(self):
        paths = (path for process in self.processes() for path in process.glob("task/*/schedstat"))
        return sum(int(path.read_text().split()[0]) for path in paths)

    def _fail_rank_1(self, number):
        time.sleep(SETTLED + random.uniform(0, SPREAD))
        began = time.monotonic_ns()
        signal.pidfd_send_signal(self._pids[0, 1][1], number)
        return began

    def _all_in_main(self, restarts):
        """When the last rank of this start was in main, in ns."""
        deadline = time.monotonic() + PATIENCE
        while len(times := [at for restart, at in self._lines if restart == restarts]) < self._ranks:
            left = max(0, deadline - time.monotonic())
            ready = select.select([self._fifo, self._launcher_ended], [], [], left)[0]
            if self._fifo not in ready:
                why = "the launcher ended early" if ready else f"nothing more for {PATIENCE:.0f} s"
                self.fail(f"{len(times)} of {self._ranks} ranks are in main after {restarts} restarts; {why}")
            self._read()
        return max(times)

    def _read(self):
        """The lines of ranks that have come in."""
        *lines, self._unread = (self._unread + os.read(self._fifo, 1 << 16).decode()).split("\n")
        for rank, restart, pid, nanoseconds in map(str.split, lines):
            self._lines.append((int(restart), int(nanoseconds)))
            self._pids[int(restart), int(rank)] = (int(pid), os.pidfd_open(int(pid)))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def interpreter_of(programs):
    """The peer's interpreter itself, without the scripts that lead to it, and its PYTHONPATH."""
    what = "import os, sys; print(sys.executable); print(os.environ['PYTHONPATH'])"
    python = subprocess.run([programs["python"], "-c", what], check=True, capture_output=True, text=True)
    return python.stdout.splitlines()


def launchers_of(programs):
    """{name: (its command line without its flags, variables)}."""
    # The scripts that lead to the interpreter do not belong to a start.
    executable, path = interpreter_of(programs)
    torchrun, variables = [executable, "-m", "torch.distributed.run", "--no_python"], {"PYTHONPATH": path}
    return {
        "ours": ([programs["launch"]], {}),
        # A port, so that another torchrun on this machine does not disturb it.
        "torchrun": ([*torchrun, f"--master_port={free_port()}"], variables),
        "torchrun_standalone": ([*torchrun, "--standalone"], variables),
    }


def failing(launcher, rank, name, number):
    with Job(launcher, rank, 2) as job:
        return {"start/2ranks": job.seconds_to_start(), f"teardown/{name}": job.seconds_to_end(number)}


def restarting(launcher, rank):
    with Job(launcher, rank, 2, "--max_restarts=1") as job:
        return {"start/2ranks": job.seconds_to_start(), "restart/2ranks": job.seconds_to_restart()}


def many(launcher, rank):
    with Job(launcher, rank, 16) as job:
        return {"start/16ranks": job.seconds_to_start(), "memory/16ranks": job.peak_bytes()}


def watched(launcher, rank, ranks):
    with Job(launcher, rank, ranks) as job:
        job.seconds_to_start()
        return {f"cpu/{ranks}ranks": job.processor_percent()}


def measure(arguments, programs):
    """{(case, launcher): the median over all rounds}."""
    launchers, rank = launchers_of(programs), programs["launch_rank"]
    measurements = (
        lambda launcher: failing(launcher, rank, "exit", signal.SIGUSR1),
        lambda launcher: failing(launcher, rank, "sigkill", signal.SIGKILL),
        lambda launcher: restarting(launcher, rank),
        lambda launcher: many(launcher, rank),
        lambda launcher: watched(launcher, rank, arguments.watched_ranks),
    )
    for launcher in launchers.values():
        many(launcher, rank)  # so that all files are in the page cache, and Python has compiled its own
    values = {}
    for _ in PROGRESS.rounds("launch", arguments.rounds):
        for _ in range(REPEAT):
            for of in measurements:
                for name, launcher in launchers.items():
                    for case, value in of(launcher).items():
                        values.setdefault((case, name), []).append(value)
    return {key: statistics.median(of) for key, of in values.items()}


def comparisons(measured):
    cases = dict.fromkeys(case for case, _ in measured)
    for case in sorted(cases, key=lambda case: list(UNITS).index(case.split("/")[0])):
        for peer_name in PEERS:
            ours, peer = measured[case, "ours"], measured[case, peer_name]
            yield {
                "suite": "launch",
                "case": case,
                "ours": ours,
                "peer_name": peer_name,
                "peer": peer,
                "unit": UNITS[case.split("/")[0]],
                "ratio": peer / ours if ours else None,
            }


def shown(value, unit):
    if unit == "bytes":
        return f"{value / (1 << 20):.1f} MiB"
    return in_words(value) if unit == "s" else f"{value:.3f} %"


def markdown(rows, rounds):
    out = [f"{machine()}; PyTorch 2.11.0. Medians of {rounds} round{'s' if rounds > 1 else ''} of {REPEAT}.", ""]
    out.append(
        f"| case | ours | {' | '.join(PEERS.values())} | {' | '.join(f'times {peer}' for peer in PEERS.values())} |"
    )
    out.append(f"|{'---|' * (2 + 2 * len(PEERS))}")
    for first in range(0, len(rows), len(PEERS)):
        of = rows[first : first + len(PEERS)]
        cells = [shown(value, of[0]["unit"]) for value in (of[0]["ours"], *(row["peer"] for row in of))]
        cells += [f"{row['ratio']:.1f}" if row["ratio"] else "" for row in of]
        out.append(f"| {of[0]['case']} | {' | '.join(cells)} |")
    return "\n".join(out)


def run(arguments, programs, _):
    """The comparisons, and the table of them."""
    rows = list(comparisons(measure(arguments, programs)))
    return rows, markdown(rows, arguments.rounds)
