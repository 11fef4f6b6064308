"""Suite network: all_reduce and DDP steps between hosts on slow links, beside Python's Gloo and Open MPI over TCP.

The hosts are network namespaces on this machine, and its links are made by tc's tbf. It needs root, or a system that lets a user create
a user namespace, and Debian's package iproute2.
"""

import itertools
import os
import pathlib
import statistics
import subprocess

import network_links
from measuring import PROGRESS, in_words, lines_of, lines_of_hosts, machine
from suite_all_reduce import install_open_mpi

SIZES = {"4KiB": 4 << 10, "1MiB": 1 << 20, "25MiB": 25 << 20, "100MiB": 100 << 20}
RATES = {"100Mbit": 100e6 / 8, "1Gbit": 1e9 / 8, "unlimited": None}
SHAPES = ("2x2", "2x4", "4x2", "4x4")
PEERS = ("python_gloo", "openmpi")
PROGRAMS = ("ours", *PEERS)
KINDS = ("all_reduce", "ddp", "accuracy")
# Training steps: the case of ddp.cc and of ddp_python.py.
MODELS = {"resnet18": "resnet18/b8/64px", "mlp_26mb": "mlp_26mb/b8"}
# {program of a training step: our hook, or the variant of ddp_python.py}
OUR_STEPS = {"ours": "none", "ours_fp16": "fp16", "ours_power_sgd": "power_sgd"}
PYTHON_STEPS = {"python_gloo": "ddp", "python_gloo_fp16": "ddp_fp16"}
STEP_PAIRS = (("ours", "python_gloo"), ("ours_fp16", "python_gloo_fp16"), ("ours_power_sgd", "python_gloo"))
STEPS = 10
MARKS = ("<!-- measured network: begin -->", "<!-- measured network: end -->")
# A full frame of Ethernet and the bytes of a TCP connection in it: the rest are headers.
FRAME, PAYLOAD = 1514, 1448
# How long the timed calls of a case take, about, and bytes a second of a link without a limit, for that.
CASE_SECONDS, UNLIMITED = 2.0, 300e6


def add_arguments(parser):
    parser.add_argument("--cases", default=",".join(KINDS))
    parser.add_argument("--models", default=",".join(MODELS), help="whose training steps are measured")
    parser.add_argument("--ddp_hosts", default="2x2", help="as --hosts, for training steps")
    parser.add_argument("--hosts", default=",".join(SHAPES), help="HOSTSxRANKS of each host")
    parser.add_argument("--links", default=",".join(RATES))
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="ours, and some of the peers")


def check_arguments(arguments, parser):
    for flag, known in (
        ("cases", KINDS),
        ("models", MODELS),
        ("ddp_hosts", SHAPES),
        ("hosts", SHAPES),
        ("links", RATES),
        ("sizes", SIZES),
        ("programs", PROGRAMS),
    ):
        values = getattr(arguments, flag).split(",")
        for value in values:
            if value not in known:
                parser.error(f"--{flag}: {value}: expected some of {','.join(known)}")
        setattr(arguments, flag, values)


def must_cross(size, hosts):
    """The bytes that each host must send at least for an all_reduce of `size` bytes: 2 (H - 1) / H of them."""
    return 2 * (hosts - 1) * size / hosts


def link_seconds(size, hosts, link):
    """The time that a link needs for them, with their headers; None without a limit."""
    rate = RATES[link]
    return must_cross(size, hosts) / rate * FRAME / PAYLOAD if rate else None


def calls_in_batch(size):
    """As in all_reduce.cc."""
    return min(64, max(1, (4 << 20) // size))


def batches(size, hosts, link):
    """How many batches of calls take about CASE_SECONDS."""
    seconds = must_cross(size, hosts) / (RATES[link] or UNLIMITED) * calls_in_batch(size)
    return min(30, max(3, round(CASE_SECONDS / seconds)))


class Programs:
    """Each measures all-reduce for some sizes on hosts that share a link: {size: (seconds of a call, bytes sent by a host for a call,
    processor seconds of a rank for a call)}."""

    def __init__(self, programs, folder):
        self._programs, self._folder = programs, folder
        self._ports = itertools.count(29500)
        self._runs = itertools.count()
        self._mpi = None

    def measure(self, name, hosts, shape, sizes, link):
        hosts_count = len(hosts.hosts)
        result = {}
        # Sizes that have as many batches share a run.
        wanted = {}
        for size in sizes:
            wanted.setdefault(batches(SIZES[size], hosts_count, link), []).append(size)
        for count, of_run in wanted.items():
            result.update(self._run(getattr(self, name), hosts, shape, of_run, count))
        return result

    def _run(self, program, hosts, ranks, sizes, count):
        cases = ",".join(f"ordinary/{SIZES[size]}/float32" for size in sizes)
        lines, sent = [], []

        def on_line(line):
            sent.append(statistics.mean(hosts.sent()))
            if line["case"].startswith("ordinary"):
                lines.append(line)

        program(hosts, ranks, cases, count, on_line)
        sent = sent[-len(sizes) - 1 :]
        result = {}
        all_ranks = ranks * len(hosts.hosts)
        for size, line, before, after in zip(sizes, lines, sent, sent[1:]):
            calls = calls_in_batch(SIZES[size]) * (count + (count + 2) // 3)
            processor = line["cpu_ns_per_byte"] * 1e-9 * SIZES[size] / all_ranks
            result[size] = (line["seconds"], (after - before) / calls, processor)
        return result

    def ours(self, hosts, ranks, cases, count, on_line):
        common = [self._programs["all_reduce"], f"--ranks={ranks}", f"--cases={cases}", f"--batches={count}"]
        common += ["--backend=auto", f"--nnodes={len(hosts.hosts)}", f"--master_addr={hosts.address(0)}"]
        common.append(f"--master_port={next(self._ports)}")
        lines_of_hosts(
            [host.command(*common, f"--node_rank={h}") for h, host in enumerate(hosts.hosts)],
            on_line,
            {"TORCH_DISTRIBUTED_DEBUG": "OFF"},
        )

    def python_gloo(self, hosts, ranks, cases, count, on_line):
        store = os.path.join(self._folder, f"store{next(self._runs)}")
        common = [self._programs["python"], self._programs["all_reduce_gloo"], ranks, cases, count, store]
        lines_of_hosts(
            [host.command(*common, h, len(hosts.hosts)) for h, host in enumerate(hosts.hosts)],
            on_line,
            {"GLOO_SOCKET_IFNAME": "eth0"},
        )

    def steps(self, name, hosts, ranks, model):
        """(seconds of a training step, bytes sent by a host for it) of the DDP program `name`."""
        case, count = MODELS[model], len(hosts.hosts)
        if name in OUR_STEPS:
            common = [self._programs["ddp"], f"--world_size={ranks}", f"--case={case}", f"--steps={STEPS}"]
            common += ["--backend=auto", f"--hook={OUR_STEPS[name]}", f"--nnodes={count}"]
            common += [
                f"--master_addr={hosts.address(0)}",
                f"--master_port={next(self._ports)}",
                "--gradient_allocator",
            ]
            each = [[*common, f"--node_rank={h}"] for h in range(count)]
        else:
            store = os.path.join(self._folder, f"store{next(self._runs)}")
            common = [self._programs["python"], self._programs["ddp_python"], PYTHON_STEPS[name], case, STEPS, store]
            each = [[*common, h, count, ranks] for h in range(count)]
        line, sent = hosts.measure(each)
        return line["seconds"], sent / STEPS

    def openmpi(self, hosts, ranks, cases, count, on_line):
        """mpirun starts the daemons of the other hosts by this script, in place of ssh."""
        if not self._mpi:
            install_open_mpi()
            self._mpi = os.path.join(self._folder, "network_mpi")
            subprocess.run(
                ["mpicc", "-O3", "-march=native", self._programs["all_reduce_mpi"], "-o", self._mpi], check=True
            )
        agent = os.path.join(self._folder, "agent")
        with open(agent, "w") as script:
            script.write("#!/bin/sh\ncase $1 in\n")
            for h, host in enumerate(hosts.hosts):
                script.write(f'{hosts.address(h)}) shift; exec {" ".join(host.command("sh", "-c"))} "$*" ;;\n')
            script.write("esac\nexit 1\n")
        os.chmod(agent, 0o755)
        settings = {
            "plm_rsh_agent": agent,
            "btl": "self,vader,tcp",
            "btl_tcp_if_include": "eth0",
            "oob_tcp_if_include": "eth0",
            "btl_vader_single_copy_mechanism": "none",
            # The ranks of all hosts share this machine's processors.
            "mpi_yield_when_idle": "1",
        }
        everywhere = ",".join(f"{hosts.address(h)}:{ranks}" for h in range(len(hosts.hosts)))
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--host", everywhere]
        command += ["-n", str(ranks * len(hosts.hosts))]
        for key, value in settings.items():
            command += ["--mca", key, value]
        command += [self._mpi, cases, str(count)]
        lines_of_hosts([hosts.hosts[0].command(*command)], on_line)


def measure(arguments, programs):
    """{(program, size or model, link, shape): (seconds, bytes, and for all_reduce processor seconds)}: medians over the rounds."""
    figures = {}
    reduced = arguments.hosts if "all_reduce" in arguments.cases else []
    trained = arguments.ddp_hosts if "ddp" in arguments.cases else []
    for _ in PROGRESS.rounds("network", arguments.rounds):
        for shape, link in itertools.product(trained, arguments.links):
            count, ranks = map(int, shape.split("x"))
            with network_links.Hosts(count, link) as hosts:
                for model, name in itertools.product(arguments.models, (*OUR_STEPS, *PYTHON_STEPS)):
                    if name.startswith(tuple(arguments.programs)):
                        figure = programs.steps(name, hosts, ranks, model)
                        figures.setdefault((name, model, link, shape), []).append(figure)
        for shape, link in itertools.product(reduced, arguments.links):
            count, ranks = map(int, shape.split("x"))
            with network_links.Hosts(count, link) as hosts:
                for name in arguments.programs:
                    for size, figure in programs.measure(name, hosts, ranks, arguments.sizes, link).items():
                        figures.setdefault((name, size, link, shape), []).append(figure)
    return {key: tuple(statistics.median(column) for column in zip(*values)) for key, values in figures.items()}


def cases_of(figures):
    """The (size, link, shape) of the figures, in order."""
    return list(dict.fromkeys(key[1:] for key in figures))


def name_of(case):
    what, link, shape = case
    return f"{'all_reduce' if what in SIZES else 'ddp'}/{what}/{link}/{shape}ranks"


def pairs(case):
    """Our programs and their peers."""
    if case[0] in SIZES:
        return [("ours", peer) for peer in PEERS]
    return list(STEP_PAIRS)


def comparisons(figures):
    for case in cases_of(figures):
        for name, peer in pairs(case):
            ours, theirs = figures.get((name, *case)), figures.get((peer, *case))
            if not (ours and theirs):
                continue
            for suite, column, unit in (
                ("network", 0, "s"),
                ("network_bytes", 1, "bytes"),
                ("network_processor", 2, "s"),
            ):
                if column == len(ours):
                    continue  # training steps have no processor time
                yield {
                    "suite": suite,
                    "case": name_of(case) + name[len("ours") :].replace("_", "/", 1),
                    "ours": ours[column],
                    "peer_name": peer,
                    "peer": theirs[column],
                    "unit": unit,
                    "ratio": theirs[column] / ours[column],
                }


def mebibytes(count):
    return f"{count / (1 << 20):.2f}" if count >= 1 << 18 else f"{count / (1 << 20):.4f}"


def markdown(figures, rounds):
    """The tables of the figures."""
    control = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    out = [
        f"{machine()}; TCP's congestion control {control}; PyTorch 2.11.0.\nMedians of {rounds} round{'s' if rounds > 1 else ''}."
    ]
    reduced = [case for case in cases_of(figures) if case[0] in SIZES]
    if reduced:
        out += ["", *reduce_table(figures, reduced)]
    trained = [case for case in cases_of(figures) if case[0] in MODELS]
    if trained:
        out += ["", *step_table(figures, trained)]
    return "\n".join(out)


def ratio(theirs, ours):
    return f"{theirs[0] / ours[0]:.2f}" if theirs and ours else ""


def reduce_table(figures, cases):
    yield (
        "| case | ours | Python's Gloo | Open MPI | times Gloo | times Open MPI | of the link"
        " | MiB sent: ours | Gloo | Open MPI | processor time of a rank: ours | Gloo |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for case in cases:
        size, link, shape = case
        ours, *peers = by_program = [figures.get((name, *case)) for name in PROGRAMS]
        least = link_seconds(SIZES[size], int(shape.split("x")[0]), link)
        cells = [in_words(figure[0]) if figure else "" for figure in by_program]
        cells += [ratio(figure, ours) for figure in peers]
        cells.append(f"{least / ours[0]:.0%}" if least and ours else "")
        cells += [mebibytes(figure[1]) if figure else "" for figure in by_program]
        cells += [in_words(figure[2]) if figure else "" for figure in by_program[:2]]
        yield f"| {name_of(case)} | {' | '.join(cells)} |"


def step_table(figures, cases):
    yield "| step | our hook | ours | Python's DDP over Gloo | times Python | MiB sent: ours | Python |"
    yield "|---|---|---|---|---|---|---|"
    for case in cases:
        for name, peer in pairs(case):
            both = [figures.get((program, *case)) for program in (name, peer)]
            cells = [in_words(figure[0]) if figure else "" for figure in both]
            cells.append(ratio(both[1], both[0]))
            cells += [mebibytes(figure[1]) if figure else "" for figure in both]
            yield f"| {name_of(case)} | {OUR_STEPS[name]} | {' | '.join(cells)} |"


def accuracy_table(program):
    """What compression costs. Training does not depend on links, so it runs without them, once."""
    yield "| our hook | test accuracy on Fashion-MNIST after one epoch |"
    yield "|---|---|"
    for hook in OUR_STEPS.values():
        (line,) = lines_of([program, f"--hook={hook}"])
        yield f"| {hook} | {line['accuracy']:.2%} |"


def run(arguments, programs, folder):
    """The comparisons, and the table of them."""
    network_links.as_root()
    figures = measure(arguments, Programs(programs, folder))
    text = [markdown(figures, arguments.rounds)]
    if "accuracy" in arguments.cases:
        text += ["", *accuracy_table(programs["hook_accuracy"])]
    return list(comparisons(figures)), "\n".join(text)
