"""Hosts on this machine for the suites network and fsdp: network namespaces on a bridge, each behind a link of a chosen rate (tc's tbf)."""

import contextlib
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

from measuring import lines_of_hosts

SUBNET = "10.214.0"
# Bytes that tbf sends at full speed after a pause: more than the largest packet before segmentation, 64 KiB, and more
# than the kernel's timer lets pass between two ticks.
BURST = {"100Mbit": "128kb", "1Gbit": "256kb"}
# How long a packet may wait in a link's queue. A shorter queue drops packets of connections that start.
QUEUE = "50ms"


def as_root():
    """Starts this program again in a user namespace if the user may not create networks."""
    if os.geteuid() != 0:
        os.execvp("unshare", ["unshare", "--map-root-user", sys.executable, *sys.argv])


def run(*command):
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"compare: {' '.join(command)}: {(done.stdout + done.stderr).strip()}")


class _Namespace:
    """A network of its own, with a host name of its own. It disappears with this process, however it ends: `cat` ends when its input
    closes."""

    def __init__(self, name):
        # SIGINT goes to the whole group of a terminal; the namespaces must outlive the programs inside.
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--uts", "sh", "-c", f"hostname {name} && echo ready && exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        if self._holder.stdout.readline() != "ready\n":
            sys.exit(f"compare: no network namespaces here: {self._holder.stderr.read().strip()}")

    @property
    def pid(self):
        return self._holder.pid

    def command(self, *command):
        """The command line that runs `command` inside."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", f"--uts=/proc/{self.pid}/ns/uts", *map(str, command)]

    def run(self, *command):
        run(*self.command(*command))

    def close(self):
        self._holder.stdin.close()
        self._holder.wait()


class Hosts:
    """`count` hosts with links of `rate` in both directions ("100Mbit", "1Gbit" or "unlimited"). Host h has the address SUBNET.(h + 1)
    on its interface eth0."""

    def __init__(self, count, rate):
        self._stack = contextlib.ExitStack()
        self.hosts = []
        for tool in ("ip", "tc", "unshare", "nsenter"):
            if not shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"):
                sys.exit(f"compare: {tool} is missing: hosts need Debian's packages iproute2 and util-linux")
        self._bridge = self._namespace("bridge")
        self._bridge.run("ip", "link", "add", "bridge", "type", "bridge")
        self._bridge.run("ip", "link", "set", "bridge", "up")
        for h in range(count):
            self._add_host(h, rate)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stack.close()

    def _namespace(self, name):
        namespace = _Namespace(name)
        self._stack.callback(namespace.close)
        return namespace

    def _add_host(self, h, rate):
        host = self._namespace(f"host{h}")
        self.hosts.append(host)
        port = f"port{h}"
        host.run("ip", "link", "set", "lo", "up")
        host.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", str(self._bridge.pid))
        host.run("ip", "address", "add", f"{self.address(h)}/24", "dev", "eth0")
        self._bridge.run("ip", "link", "set", port, "master", "bridge", "up")
        host.run("ip", "link", "set", "eth0", "up")
        if rate == "unlimited":
            return
        for namespace, interface in ((host, "eth0"), (self._bridge, port)):
            shape = ["rate", rate.lower(), "burst", BURST[rate], "latency", QUEUE]
            namespace.run("tc", "qdisc", "add", "dev", interface, "root", "tbf", *shape)

    def address(self, h):
        return f"{SUBNET}.{h + 1}"

    def measure(self, commands):
        """Runs a program of each host. Returns the last JSON line that one prints, and the bytes that a host sends, in the mean, between
        the line before and that."""
        lines, sent = [], []

        def on_line(line):
            sent.append(statistics.mean(self.sent()))
            lines.append(line)

        inside = [host.command(*command) for host, command in zip(self.hosts, commands)]
        lines_of_hosts(inside, on_line, {"GLOO_SOCKET_IFNAME": "eth0", "TORCH_DISTRIBUTED_DEBUG": "OFF"})
        return lines[-1], sent[-1] - sent[-2]

    def sent(self):
        """The bytes that each host has sent, with all headers."""
        return [sent_bytes(pathlib.Path(f"/proc/{host.pid}/net/dev").read_text()) for host in self.hosts]


def sent_bytes(table):
    """eth0's, from /proc/net/dev."""
    for line in table.splitlines():
        name, _, fields = line.partition(":")
        if name.strip() == "eth0":
            return int(fields.split()[8])
    return 0
