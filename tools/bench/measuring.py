"""The parts that the suites share."""

import datetime
import json
import multiprocessing
import os
import pathlib
import platform
import queue
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

# What --tuned_allocator is for a program that has no flag for it: the same mallopt settings.
TUNED = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "THP_MEM_ALLOC_ENABLE": "1",
}


HEARTBEAT = 4.0  # seconds


class Progress:
    """Says on stderr what is being measured: a line for each program and each HEARTBEAT, on a terminal always the same one."""

    def __init__(self):
        self._suite, self._round, self._rounds, self._began, self._round_began = "", 0, 0, 0.0, 0.0

    def rounds(self, suite, count):
        """range(count), the rounds of a suite."""
        self._suite, self._rounds, self._began = suite, count, time.monotonic()
        for self._round in range(count):
            self._round_began = time.monotonic()
            yield self._round
        self._suite = ""

    def left(self):
        """How long the remaining rounds take if they are like those before."""
        if self._round == 0:
            return "time left: known after the first round"
        whole = self._rounds / self._round * (self._round_began - self._began)
        seconds = max(0, round(self._began + whole - time.monotonic()))
        return f"about {datetime.timedelta(seconds=seconds)} left"

    def say(self, command, seconds):
        place = f"{self._suite}, round {self._round + 1} of {self._rounds}: " if self._suite else ""
        left = f"; {self.left()}" if self._suite else ""
        line = f"compare: {place}{in_short(command)}, {seconds:.0f} s{left}"
        is_terminal = sys.stderr.isatty()
        print(f"\r\x1b[K{line}" if is_terminal else line, end="" if is_terminal else "\n", file=sys.stderr, flush=True)

    def end_line(self):
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


PROGRESS = Progress()


def in_short(command):
    """A program and its arguments without folders, for a line."""
    words = [str(word).split("/")[-1] if str(word).startswith("/") else str(word) for word in command]
    text = " ".join(words)
    return text if len(text) <= 80 else f"{text[:77]}..."


def output_of(command, environment):
    """The exit code, stdout and stderr of a program."""
    began = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
    ) as process:
        while True:
            PROGRESS.say(command, time.monotonic() - began)
            try:
                out, err = process.communicate(timeout=HEARTBEAT)
            except subprocess.TimeoutExpired:
                continue
            PROGRESS.end_line()
            return process.returncode, out, err


def lines_of(command, environment=None):
    """The JSON lines that a program prints; ends this one where it fails."""
    code, out, err = output_of(command, environment)
    if code:
        sys.exit(f"compare: {' '.join(map(str, command))} ended with {code}:\n{out}{err}")
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def ends_well(process):
    """Whether the process ends within a minute, with status 0."""
    try:
        return process.wait(60) == 0
    except subprocess.TimeoutExpired:
        return False


def lines_in_turn(commands, turns):
    """{name: the last JSON line that its program prints, with the median "seconds" of `turns` lines}. The programs take turns, so that what
    slows the machine down for a while slows all of them down: a program prints a line, and then another for each line of its input, and
    waits meanwhile. Its first line, while it warms up, does not count. Ends this program where one fails."""
    began = time.monotonic()
    started, lines = {}, {name: [] for name in commands}
    try:
        for name, command in commands.items():
            words = [str(word) for word in command]
            PROGRESS.say(words, time.monotonic() - began)
            error = tempfile.TemporaryFile("w+")
            pipe = subprocess.PIPE
            process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=error, text=True, start_new_session=True)
            started[name] = (words, process, error)
            line_of(*started[name])
        for turn in range(turns):
            for name, (words, process, error) in started.items():
                PROGRESS.say(words, time.monotonic() - began)
                process.stdin.write("\n")
                process.stdin.flush()
                lines[name].append(line_of(words, process, error))
        for words, process, error in started.values():
            process.stdin.close()
            if not ends_well(process):
                end_failed(words, process, error)
        PROGRESS.end_line()
    finally:
        for _, process, _ in started.values():
            end_group(process)
    return {
        name: {**of[-1], "seconds": statistics.median(line["seconds"] for line in of)} for name, of in lines.items()
    }


def line_of(command, process, error):
    """The next JSON line of a program."""
    for line in process.stdout:
        if line.startswith("{"):
            return json.loads(line)
    process.wait()
    end_failed(command, process, error)


def end_failed(command, process, error):
    """Ends this program, since that one has failed."""
    error.seek(0)
    how = "does not end" if process.returncode is None else f"ended with {process.returncode}"
    sys.exit(f"compare: {' '.join(map(str, command))} {how}:\n{error.read()}")


def end_group(process):
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def lines_of_hosts(commands, on_line, environment=None):
    """Runs the programs of several hosts at a time and calls on_line with each JSON line that one prints, as it comes. Ends this
    program where one fails, and the others with it."""
    began = time.monotonic()
    arrived, errors = queue.Queue(), []
    processes = []

    def read(process):
        for line in process.stdout:
            arrived.put(line)
        arrived.put(None)

    try:
        for command in commands:
            # Each in its own process group, so that all of its ranks can be ended.
            process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=(error := tempfile.TemporaryFile("w+")),
                text=True,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
            processes.append(process)
            errors.append(error)
            threading.Thread(target=read, args=(process,), daemon=True).start()
        open_pipes = len(processes)
        while open_pipes:
            PROGRESS.say(commands[0], time.monotonic() - began)
            try:
                line = arrived.get(timeout=HEARTBEAT)
            except queue.Empty:
                continue
            if line is None:
                open_pipes -= 1
            elif line.startswith("{"):
                on_line(json.loads(line))
        PROGRESS.end_line()
        for command, process, error in zip(commands, processes, errors):
            if not ends_well(process):
                end_failed(command, process, error)
    finally:
        for process in processes:
            end_group(process)


def add_cases(parser, cases):
    """The flag --cases of a suite."""
    parser.add_argument("--cases", default=",".join(cases), help="which cases, separated by commas")


def check_cases(arguments, parser, cases):
    """Splits --cases, and ends this program if one is unknown."""
    arguments.cases = arguments.cases.split(",")
    for case in arguments.cases:
        if case not in cases:
            parser.error(f"--cases: {case}: expected some of {','.join(cases)}")


def compared(suite, case, seconds, ours="ours"):
    """A line for each peer, from {program: [seconds in each round]}. A ratio above 1 says that ours is faster."""
    mine = statistics.median(seconds[ours])
    for peer, theirs in seconds.items():
        if peer == ours:
            continue
        ratios = [other / own for own, other in zip(seconds[ours], theirs)]
        yield {
            "suite": suite,
            "case": case,
            "ours": mine,
            "peer_name": peer,
            "peer": statistics.median(theirs),
            "unit": "s",
            "ratio": statistics.median(theirs) / mine,
            "least_ratio": min(ratios),
            "most_ratio": max(ratios),
        }


def run_ranks(function, ranks, *arguments, first_rank=0, world_size=None, store=None):
    """function(rank, world size, store, *arguments) in a process for each rank; `store` is a file where they can meet. Ends this one if
    one fails. One host of several has `ranks` ranks from `first_rank` on, and needs a store that all of them see."""
    # Forked, so that torch is imported once.
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        if not store:
            os.environ["GLOO_SOCKET_IFNAME"] = "lo"
            store = os.path.join(folder, "store")
        processes = [
            fork.Process(target=function, args=(first_rank + rank, world_size or ranks, store, *arguments))
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    if any(process.exitcode for process in processes):
        sys.exit(1)


def install(*packages):
    """Debian's packages, with apt-get; ends this program where that fails."""
    as_root = [] if os.geteuid() == 0 else ["sudo"]
    print(f"compare: installing {' '.join(packages)} (apt-get)", file=sys.stderr)
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        run = subprocess.run(
            [*as_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", *arguments], capture_output=True, text=True
        )
        if run.returncode:
            sys.exit(f"compare: apt-get {' '.join(arguments)} failed:\n{run.stdout}{run.stderr}")


def in_words(seconds):
    return f"{seconds * 1e6:.2f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def machine():
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    name = model.group(1) if model else platform.machine()
    return f"{name}, {os.cpu_count()} processors; Linux {platform.release().split('-')[0]}"
