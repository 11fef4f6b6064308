#!/usr/bin/env python3
"""Runs launch, and a program with Lockstep's process groups, under a real Slurm on this machine, and checks what they do.

  ./bazelw build //launch //examples/fashion_mnist:train
  launch/testing/slurm.py bazel-bin/launch/launch bazel-bin/examples/fashion_mnist/train --epochs=1

The Slurm is the script's own: two nodes on ports of the loopback interface, with all files in a temporary folder. It ends with the
script. The script needs root and Debian's packages slurmctld, slurmd, slurm-client and munge. It is not a part of CI.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PACKAGES = {"slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client", "munged": "munge"}
PATIENCE = 60.0  # seconds for each thing that is waited for
RANKS = 2
NODES = "node1", "node2"

CONFIGURATION = """
ClusterName=one
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
ReturnToService=2
MpiDefault=none
SlurmdParameters=config_overrides
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={daemon1} CPUs={ranks} State=UNKNOWN
NodeName=node2 NodeHostname={host} NodeAddr=127.0.0.1 Port={daemon2} CPUs={ranks} State=UNKNOWN
PartitionName=all Nodes=node[1-2] Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
"""


def free_ports(count):
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def await_that(what, condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not so after {PATIENCE:.0f} s")
        time.sleep(0.1)


class Slurm:
    """The daemons of a cluster of this machine."""

    def __init__(self, folder):
        self._folder, self._daemons = pathlib.Path(folder), []
        os.chmod(folder, 0o755)
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (self._folder / name).mkdir()
        controller, daemon1, daemon2 = free_ports(3)
        configuration = self._folder / "slurm.conf"
        configuration.write_text(
            CONFIGURATION.format(
                folder=folder,
                controller=controller,
                daemon1=daemon1,
                daemon2=daemon2,
                ranks=RANKS,
                host=socket.gethostname(),
            )
        )
        self._environment = {**os.environ, "SLURM_CONF": str(configuration)}
        self._environment["PATH"] += ":/usr/sbin:/sbin"

    def __enter__(self):
        self._start_munge()
        self._start("slurmctld", "-D")
        for node in NODES:
            self._start("slurmd", "-D", "-N", node)
        await_that(
            "the nodes are idle",
            lambda: self.run("sinfo", "--noheader", "-N", "--format=%T").stdout.split() == ["idle"] * 2,
        )
        return self

    def __exit__(self, kind, *_):
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in reversed(self._daemons):
            try:
                daemon.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        if kind:
            for log in sorted(self._folder.glob("*.log")):
                print(f"---- the end of {log.name}\n{log.read_text()[-2000:]}", file=sys.stderr)

    def _start_munge(self):
        key, at = self._folder / "munge.key", self._folder
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        files = [f"--key-file={key}", f"--seed-file={at}/munge.seed", f"--pid-file={at}/munge.pid"]
        self._start("munged", "--foreground", "--force", f"--socket={at}/munge.socket", *files)
        await_that("munged serves", (self._folder / "munge.socket").exists)

    def _start(self, *command):
        with open(self._folder / f"{command[0]}.{len(self._daemons)}.out.log", "w") as log:
            self._daemons.append(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment)
            )

    def start(self, *command):
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
        )

    def run(self, *command):
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=self._environment,
            timeout=5 * PATIENCE,
        )


def expect(what, done, code, *texts):
    """Says that `done` ended with this code and wrote the texts, or ends the script."""
    missing = [text for text in texts if text not in done.stdout + done.stderr]
    if done.returncode != code or missing:
        raise AssertionError(
            f"{what}: expected exit code {code} and {texts}, found {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    print(f"ok: {what}", flush=True)


def check_launch(slurm, launch):
    launched = [launch, f"--nproc_per_node={RANKS}"]
    said = [f"rank {rank} of {RANKS} in job" for rank in range(RANKS)]
    done = slurm.run("srun", *launched, "sh", "-c", "echo rank $RANK of $WORLD_SIZE in job $SLURM_JOB_ID")
    expect("srun starts the launcher, and the launcher its ranks", done, 0, *said)
    done = slurm.run("srun", *launched, "sh", "-c", "test $RANK = 0 && sleep 100; exit 3")
    expect(
        "srun ends with the code of the rank that failed", done, 3, "rank 1 (local rank 1, pid ", "exited with code 3"
    )


def check_nodes(slurm, launch):
    """One launcher on each of two nodes."""
    script = "echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR on node $GROUP_RANK, $SLURMD_NODENAME"
    done = slurm.run(
        "srun", "--nodes=2", "--ntasks-per-node=1", launch, f"--nproc_per_node={RANKS}", "sh", "-c", script
    )
    said = [f"rank {rank} of 4 at node1 on node {rank // 2}, {NODES[rank // 2]}" for rank in range(4)]
    expect("srun starts a launcher on each node, and they agree on their ranks", done, 0, *said)


def check_cancel(slurm, launch, folder):
    """A job that is cancelled leaves no rank behind."""
    script = 'echo $$ > "$0.new.$RANK"; mv "$0.new.$RANK" "$0.$RANK"; trap "" TERM; while :; do sleep 1; done'
    step = slurm.start(
        "srun", "--job-name=cancelled", launch, f"--nproc_per_node={RANKS}", "sh", "-c", script, f"{folder}/pid"
    )
    files = [pathlib.Path(f"{folder}/pid.{rank}") for rank in range(RANKS)]
    await_that("the ranks run", lambda: all(file.exists() for file in files))
    pids = [int(file.read_text()) for file in files]
    slurm.run("scancel", "--name=cancelled")
    step.communicate(timeout=PATIENCE)
    await_that("the cancelled ranks are gone", lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
    print("ok: scancel ends all ranks, although they ignore SIGTERM", flush=True)


def check_program(slurm, launch, program):
    # Nobody knows node1 by its name.
    srun = ["srun", "--kill-on-bad-exit", "--export=ALL,MASTER_ADDR=127.0.0.1"]
    ways = {
        "srun starts the ranks of the program": [f"--ntasks={RANKS}"],
        "srun starts the launcher, and the launcher the program": [launch, f"--nproc_per_node={RANKS}"],
        "srun starts a launcher on each node, and they start the program": [
            *("--nodes=2", "--ntasks-per-node=1"),
            *(launch, "--nproc_per_node=1"),
        ],
    }
    lines = set()
    for what, words in ways.items():
        done = slurm.run(*srun, *words, *program)
        expect(what, done, 0)
        print(done.stdout, end="")
        lines.add(done.stdout.count("\n"))
    # Otherwise each task of srun is a separate job.
    if len(lines) > 1:
        raise AssertionError("the program does not write as many lines in each of these ways")


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    missing = {
        package for name, package in PACKAGES.items() if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    }
    if missing:
        sys.exit(f"slurm.py: missing here: apt-get install {' '.join(sorted(missing))}")
    launch, *program = [os.path.abspath(word) if os.path.exists(word) else word for word in sys.argv[1:]]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the daemons end with the script
    with tempfile.TemporaryDirectory(prefix="slurm.") as folder, Slurm(folder) as slurm:
        check_launch(slurm, launch)
        check_nodes(slurm, launch)
        check_cancel(slurm, launch, folder)
        if program:
            check_program(slurm, launch, program)


if __name__ == "__main__":
    main()
