"""The figures of compare, from its JSON lines or from the tables that it wrote into a page: {suite: {case: {program: value}}}.

Values are seconds, images a second, bytes, or percents of a processor. Programs have the names of the JSON lines, and "ours". The value of ("times", program)
is how many times as fast ours is, where the source says it.
"""

import json
import re

_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "MiB": 1 << 20, "%": 1.0}
_MARKED = re.compile(r"<!-- measured ?(\w*): begin -->\n(.*?)\n<!-- measured ?\w*: end -->", re.S)

_ALL_REDUCE = {"ours": "ours", "Gloo": "gloo", "Open MPI": "openmpi"}
# A suite, and the programs of its columns, in the table of suite network.
_NETWORK = {
    "network": {"ours": "ours", "Python's Gloo": "python_gloo", "Open MPI": "openmpi"},
    "network_processor": {"processor time of a rank: ours": "ours", "processor time of a rank: Gloo": "python_gloo"},
}
_LAUNCH = {"ours": "ours", "torchrun": "torchrun", "torchrun --standalone": "torchrun_standalone"}
_DDP = {
    "ours": "ours",
    "without its gradient allocator": "ours_without_gradient_allocator",
    "C++ local": "cpp_local",
    "Python DDP": "python_ddp",
    "its bucket views": "python_ddp_bucket_view",
    "its no-op hook": "python_ddp_noop_hook",
    "Python local": "python_local",
}


class Missing(ValueError):
    """A page lacks measurements, or a place for them."""


def value_of(text):
    """521.01 us in seconds, 1.0 MiB in bytes; a number without a unit as it is."""
    number, _, unit = text.partition(" ")
    return float(number) * _UNITS[unit] if unit else float(number)


def tables(text):
    """Each table as a list of {column: cell}."""
    for block in re.findall(r"(?:^\|.*\n?)+", text, re.M):
        lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.splitlines()]
        columns = _distinct(lines[0])
        yield [dict(zip(columns, cells)) for cells in lines[2:]]


def _distinct(columns):
    """The second "Gloo" of | Gloo | MiB sent: ours | Gloo | is "MiB sent: Gloo"."""
    group, names = "", []
    for column in columns:
        group = column.partition(":")[0] if ": " in column else group
        names.append(f"{group}: {column}" if group and column in names else column)
    return names


def _of_columns(row, names, times):
    values = {program: value_of(row[column]) for column, program in names.items()}
    return {**values, **{("times", names[column]): float(row[f"times {column}"]) for column in times}}


def _with_peer(row):
    values, peer = {"ours": value_of(row["ours"])}, row["peer"]
    if peer:
        values.update({peer: value_of(row["its time"]), ("times", peer): float(row["times the peer"])})
    return values


def _of_network(row):
    """An all_reduce and its processor time, or a training step, whose case ends with our hook if it has one."""
    case, suites = row.get("case"), _NETWORK
    if "step" in row:
        hook = row["our hook"].replace("none", "")
        case = "/".join(filter(None, (row["step"], hook)))
        peer = "python_gloo_fp16" if hook == "fp16" else "python_gloo"
        suites = {"network": {"ours": "ours", "Python's DDP over Gloo": peer}}
    for suite, programs in suites.items() if case else ():
        if values := {name: value_of(row[column]) for column, name in programs.items() if row.get(column)}:
            yield suite, case, values


def _read_suite(suite, text):
    """(suite, case, {program: value}) of the tables of one suite."""
    for table in tables(text):
        for row in table:
            if suite == "all_reduce":
                yield suite, row["case"], _of_columns(row, _ALL_REDUCE, ("Gloo", "Open MPI"))
            elif suite == "launch":
                peers = [column for column in _LAUNCH if row.get(f"times {column}")]
                yield suite, row["case"], _of_columns(row, _LAUNCH, peers)
            elif suite == "network":
                yield from _of_network(row)
            elif suite == "ddp" and "allocator" in row:
                name = "ddp_tuned" if row["allocator"] == "tuned" else "ddp"
                yield name, row["step"], _of_columns(row, _DDP, ("Python DDP",))
            elif suite in ("checkpoint", "sampler"):
                yield suite, row["case"], _with_peer(row)
            elif suite == "dp":
                values = {"ours": value_of(row["ours over one device"]), "peer": value_of(row["peer over it"])}
                times = row["times the peer"]
                yield suite, row["case"], {
                    **values,
                    **({("times", "peer"): float(times)} if times[0].isdigit() else {}),
                }
            elif suite == "image_loader":
                times = {("times", row["program"]): float(row["times it"])} if row["times it"] else {}
                yield suite, "images", {row["program"]: float(row["images/s"]), **times}
            elif suite == "resnet":
                yield suite, row["setting"], {name: float(row[name]) for name in ("ours", "python", "python_jemalloc")}


def _collect(triples):
    figures = {}
    for suite, case, values in triples:
        figures.setdefault(suite, {}).setdefault(case, {}).update(values)
    return figures


def of_page(text):
    """The figures, and {suite: the line about the machine}, of docs/performance.md."""
    triples, machines = [], {}
    for name, body in _MARKED.findall(text):
        suite = name or "all_reduce"
        machines[suite] = " ".join(body.split("\n\n")[0].split())
        triples += _read_suite(suite, body)
    return _collect(triples), machines


def of_json(lines):
    """The figures of compare's JSON lines."""
    return _collect(map(_of_line, filter(None, map(str.strip, lines))))


def _of_line(line):
    row = json.loads(line)
    case, values = row["case"], {"ours": row["ours"]}
    if row["suite"] == "dp":
        values.update({"peer": row["peer"], **({("times", "peer"): row["ratio"]} if row["ratio"] else {})})
    elif row["suite"] == "image_loader":
        case, values = "images", {**values, row["peer_name"]: row["peer"]}
    elif row["suite"] == "resnet":
        # Our best is beside every setting of the peers; only the same setting is a pair here.
        case = case.split("/", 2)[2]
        peer, _, setting = row["peer_name"].partition(", ")
        values.update({peer: row["peer"]} if setting == case else {})
    elif row["peer_name"]:
        values[row["peer_name"]] = row["peer"]
    if row["ratio"] and row["peer_name"] in values:
        values["times", row["peer_name"]] = row["ratio"]
    return row["suite"], case, values
