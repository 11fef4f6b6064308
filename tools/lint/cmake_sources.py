"""Writes cmake/sources.cmake: the components of the CMake build, from the BUILD files.

A component is some of Bazel's targets: COMPONENTS says which. Sources, headers, options, and what a component uses all come
from the BUILD files.
"""

import ast
import collections
import re

from targets import absolute, package_of, rules_of

PAGE = "cmake/sources.cmake"

# The longest of the patterns that match a library decides. Folders in _LEFT_OUT have no CMake target.
COMPONENTS = {
    "base": ["//base/..."],
    "base_torch": ["//base:libtorch_compatibility", "//base:tensors", "//base:torch_status"],
    "base_crypto": ["//base/crypto/..."],
    "base_logging": ["//base:logging"],
    "base_jemalloc": ["//base:jemalloc"],
    "base_json": ["//base:json_fields"],
    "launch": ["//launch/...", "//tools/launch/..."],
    "launch_program": [
        "//launch:launch",
        "//launch/flags:command_line",
        "//launch/job:job_json",
        "//launch/node:agent",
        "//launch/rendezvous/...",
        "//launch/status:commands",
        "//launch/status:status_service",
        "//tools/launch:launch",
    ],
    "comm": ["//comm/..."],
    "comm_gloo": ["//comm/gloo/..."],
    "comm_shm": ["//comm/shm/..."],
    "comm_hierarchical": ["//comm/hierarchical/..."],
    "comm_cpu": ["//comm:cpu_backends"],
    "comm_nccl": ["//comm/nccl/..."],
    "checkpoint": ["//checkpoint/..."],
    "checkpoint_manager": ["//checkpoint/manager/..."],
    "checkpoint_sharded": ["//checkpoint/sharded/..."],
    "inspect_program": ["//checkpoint/inspect/...", "//base:command_line"],
    "sampler": ["//sampler/..."],
    "sampler_checkpoint": ["//sampler:sampler_state_value"],
    "ddp": ["//ddp/..."],
    "ddp_checkpoint": ["//ddp:bucket_layout_value", "//ddp/amp:grad_scaler_value", "//ddp/hooks:power_sgd_value"],
    "elastic": ["//elastic/..."],
    "fsdp": ["//fsdp/..."],
    "fsdp_checkpoint": [
        "//fsdp:flat_boxes",
        "//fsdp:full_state_dict",
        "//fsdp:memory_report",
        "//fsdp:optimizer_loader",
        "//fsdp:sharded_access",
        "//fsdp:sharded_parameters",
        "//fsdp:state_dict",
        "//fsdp:whole_optimizer",
    ],
    "dp": ["//dp/..."],
    "data": ["//data/..."],
    "data_text": [
        "//data/tokens:encode_text_files",
        "//data/tokens:file_pieces",
        "//data/tokens:load_tokenizer",
        "//data/tokens:open_texts",
        "//data/tokens:sentencepiece_tokenizer",
        "//data/tokens:token_file_writer",
    ],
    # By itself, as it is compiled without Abseil's precompiled headers.
    "data_sentencepiece": ["//data/tokens:sentencepiece_model"],
    "data_images": ["//data:image_decoder", "//data:image_dataset", "//data:libjpeg"],
    "optim": ["//optim/..."],
    "tensorboard": ["//tensorboard/..."],
    "models": ["//models/..."],
    "models_exported": ["//models/exported/..."],
    "models_scripted": ["//models/scripted/..."],
    "models_transformer": ["//models/transformer/..."],
}
_LEFT_OUT = (
    "//examples/",
    "//third_party",
    "//tools/bench",
    "//tools/code_blocks",
    "//tools/fuzz",
    "//elastic/chaos",
    "//elastic/simulator",
    "//launch/simulator",
)

# Tests that CTest runs too: a few of each part.
TESTS = [
    "//comm/environment:environment_test",
    "//launch:spawn_test",
    "//sampler:distributed_batch_sampler_test",
    "//checkpoint:checkpoint_test",
    "//comm:backend_test",
    "//comm/shm:communicator_test",
    "//ddp:distributed_data_parallel_test",
]

_THIRD_PARTY = "//third_party:"
_PUBLIC = "//visibility:public"
_INCLUDE = re.compile(r'^#include "lockstep/([^"]+)"', re.M)
_HEADER = """# Written by `tools/lint/lint --fix` from the BUILD files: which sources a component has, and what it uses.
# tools/lint/cmake_sources.py says which Bazel targets a component is made of. A component stands after the components
# that it uses.
"""


class CannotWrite(Exception):
    """Says in one line why the page cannot be written."""


Library = collections.namedtuple("Library", "kind package srcs hdrs cpu cuda copts testonly public alwayslink")


def _strings(value, cuda=False):
    """The strings of an expression; of a select, the strings of one build."""
    if value is None:
        return []
    if isinstance(value, ast.Dict):
        chosen = [v for k, v in zip(value.keys, value.values) if ("cuda_enabled" in ast.unparse(k)) == cuda]
        return [text for v in chosen for text in _strings(v, cuda)]
    if isinstance(value, ast.Constant):
        return [value.value] if isinstance(value.value, str) else []
    return [text for child in ast.iter_child_nodes(value) for text in _strings(child, cuda)]


def _library(kind, package, keywords):
    def labels(cuda):
        names = ("actual",) if kind == "alias" else ("library",) if kind == "link_only" else ("deps",)
        return [absolute(text, package) for name in names for text in _strings(keywords.get(name), cuda)]

    def files(name, suffix):
        return [f"{package}/{file}" for file in _strings(keywords.get(name)) if file.endswith(suffix)]

    true = {name for name, value in keywords.items() if isinstance(value, ast.Constant) and value.value is True}
    return Library(
        kind,
        package,
        files("srcs", ".cc"),
        files("hdrs", ".h"),
        labels(False),
        labels(True),
        _strings(keywords.get("copts")) + [f"-D{define}" for define in _strings(keywords.get("local_defines"))],
        "testonly" in true or kind == "cc_test",
        _PUBLIC in _strings(keywords.get("visibility")),
        "alwayslink" in true,
    )


def _libraries(build_files):
    found = {}
    for path, text in build_files.items():
        package = package_of(path)
        for kind, keywords in rules_of(text, package):
            names = _strings(keywords.get("name"))
            if kind in ("cc_library", "cc_binary", "cc_test", "alias", "link_only") and len(names) == 1:
                found[f"//{package}:{names[0]}"] = _library(kind, package, keywords)
    return found


def component_of(label):
    """The component that a library belongs to, or None."""
    best, longest = None, -1
    for component, patterns in COMPONENTS.items():
        for pattern in patterns:
            folder = pattern[: -len("...")]
            matches = label.replace(":", "/").startswith(folder) if pattern.endswith("/...") else label == pattern
            if matches and len(pattern) > longest:
                best, longest = component, len(pattern)
    return best


class _Build:
    def __init__(self, build_files, read):
        self.read = read
        self.libraries = _libraries(build_files)
        # Parts of one build only, without CUDA or with it.
        self.only = {}
        for library in self.libraries.values():
            for label in set(library.cpu) ^ set(library.cuda):
                self.only[label] = "cpu" if label in library.cpu else "cuda"
        self.members = {component: [] for component in COMPONENTS}
        for label, library in sorted(self.libraries.items()):
            if library.testonly or label.startswith(_LEFT_OUT):
                continue
            component = component_of(label)
            if component:
                self.members[component].append(label)
            elif library.kind != "alias":
                raise CannotWrite(
                    f"{library.package}/BUILD: {label} is in no component: name it in tools/lint/cmake_sources.py"
                )
        self.installed = self._installed()

    def _installed(self):
        """The headers that users may include, and the headers that these include."""
        aliased = {label for l in self.libraries.values() if l.kind == "alias" and l.public for label in l.cpu}
        waiting = [
            header
            for labels in self.members.values()
            for label in labels
            if self.libraries[label].public or label in aliased
            for header in self.libraries[label].hdrs
            if "/internal/" not in header
        ]
        seen = set()
        while waiting:
            header = waiting.pop()
            if header not in seen:
                seen.add(header)
                waiting.extend(_INCLUDE.findall(self.read(header)))
        return seen

    def uses(self, labels):
        """The components and the libraries of third_party that these targets depend on, in one or the other build."""
        components, third_party = set(), set()
        for label in labels:
            library = self.libraries[label]
            for used in library.cuda if self.only.get(label) == "cuda" else library.cpu:
                if used.startswith(_THIRD_PARTY):
                    third_party.add(used[len(_THIRD_PARTY) :])
                elif used in self.libraries and not self.libraries[used].testonly:
                    components.add(component_of(used))
        return components, third_party

    def order(self):
        """The components, each after the components that it uses."""
        done, waiting = [], dict.fromkeys(COMPONENTS)
        while waiting:
            ready = [c for c in waiting if not self.uses(self.members[c])[0] & set(waiting) - {c}]
            if not ready:
                raise CannotWrite(
                    f"tools/lint/cmake_sources.py: components use each other in a circle: {', '.join(waiting)}"
                )
            done.append(ready[0])
            del waiting[ready[0]]
        return done


def _list(name, values):
    """One line, or one value a line."""
    if not values:
        return []
    line = f"set({name} {' '.join(values)})"
    return [line] if len(line) <= 120 else [f"set({name}", *(f"  {value}" for value in values), ")"]


def _options(libraries):
    lines = []
    for library in libraries:
        if library.copts and library.srcs:
            lines += [
                f"lockstep_source_options(\"{';'.join(library.copts)}\"",
                *(f"  {file}" for file in library.srcs),
                ")",
            ]
    return lines


def _component(build, component):
    members = build.members[component]
    of = {kind: [l for l in members if build.only.get(l) == kind] for kind in (None, "cpu", "cuda")}

    def gathered(labels, field):
        return sorted(file for label in labels for file in getattr(build.libraries[label], field))

    components, third_party = build.uses(of[None] + of["cpu"])
    prefix = f"lockstep_{component}"
    lines = ["", f"# lockstep::{component}"]
    binary = [l for l in members if build.libraries[l].kind == "cc_binary"]
    lines += _list(f"{prefix}_program", [l.rpartition(":")[2] for l in binary])
    lines += _list(f"{prefix}_sources", gathered(of[None], "srcs"))
    lines += _list(f"{prefix}_cpu_sources", gathered(of["cpu"], "srcs"))
    lines += _list(f"{prefix}_cuda_sources", gathered(of["cuda"], "srcs"))
    lines += _list(f"{prefix}_headers", sorted(build.installed & set(gathered(members, "hdrs"))))
    order = list(COMPONENTS)
    lines += _list(f"{prefix}_components", sorted(components - {component}, key=order.index))
    lines += _list(f"{prefix}_third_party", sorted(third_party))
    lines += _list(f"{prefix}_cuda_third_party", sorted(build.uses(of["cuda"])[1] - third_party))
    if any(build.libraries[l].alwayslink for l in members):
        lines += _list(f"{prefix}_whole_archive", ["TRUE"])
    return lines + _options(build.libraries[label] for label in members)


def _test(build, label):
    """A test with the sources of the test-only libraries that it depends on."""
    if label not in build.libraries:
        raise CannotWrite(f"tools/lint/cmake_sources.py: there is no test {label}")
    waiting, seen = [label], []
    while waiting:
        label = waiting.pop()
        if label not in seen:
            seen.append(label)
            waiting += [l for l in build.libraries[label].cpu if l in build.libraries and build.libraries[l].testonly]
    components, third_party = build.uses(seen)
    name = f"lockstep_test_{seen[0][2:].replace('/', '_').replace(':', '_')}"
    lines = ["", f"# {seen[0]}"]
    lines += _list(f"{name}_program", [seen[0].rpartition(":")[2]])
    lines += _list(f"{name}_sources", sorted(file for label in seen for file in build.libraries[label].srcs))
    lines += _list(f"{name}_components", sorted(components, key=list(COMPONENTS).index))
    return lines + _list(f"{name}_third_party", sorted(third_party - {"gtest"}))


def page(build_files, read, tests=TESTS):
    """The text of cmake/sources.cmake, from {path: text} of the BUILD files; read(path) is the text of any file."""
    build = _Build(build_files, read)
    order = build.order()
    lines = _list("lockstep_all_components", order)
    for component in order:
        lines += _component(build, component)
    names = [label[2:].replace("/", "_").replace(":", "_") for label in tests]
    lines += ["", *_list("lockstep_all_tests", names)]
    for label in tests:
        lines += _test(build, label)
    return _HEADER + "\n" + "\n".join(lines) + "\n"
