#!/usr/bin/env python3
"""Writes the entries of the modules libtorch and lockstep for the Bazel Central Registry, or for another registry, from a source archive.

  entries.py --url=URL --homepage=URL --repository=github:OWNER/NAME ARCHIVE REGISTRY

ARCHIVE is the file behind --url, a .tar.gz of this tree in one folder. REGISTRY is a clone of the registry, or a new folder. The same
arguments give the same files. The entries say what the archive says: its MODULE.bazel files name the versions. Submit libtorch first,
as the registry takes a module only if it has those that it depends on.
"""

import argparse
import base64
import hashlib
import json
import pathlib
import sys
import tarfile

import look_up

# {module: its folder in the archive, a target, and the project in that folder that tests it}
MODULES = {
    "libtorch": ("third_party/libtorch", "@libtorch//:libtorch", "consumer"),
    "lockstep": ("", "@lockstep//base:status", "examples/consumer/sampler_demo"),
}
MAINTAINERS = [{"name": "The Lockstep authors"}]
PRESUBMIT = """matrix: &matrix
  bazel: [7.x, 8.x, 9.x]
  platform: [debian11, ubuntu2204]
tasks:
  build:
    name: Build a target
    bazel: ${{{{ bazel }}}}
    platform: ${{{{ platform }}}}
    build_targets:
      - "{target}"
bcr_test_module:
  module_path: {project}
  matrix: *matrix
  tasks:
    test:
      name: Build and test a project
      bazel: ${{{{ bazel }}}}
      platform: ${{{{ platform }}}}
      build_targets:
        - "//..."
"""


def as_json(value):
    return json.dumps(value, indent=4) + "\n"


def read(archive, path):
    try:
        return archive.extractfile(path).read().decode()
    except KeyError:
        sys.exit(f"entries.py: {archive.name} has no {path}: name an archive of Lockstep's tree")


def write_entry(registry, module, archive, arguments):
    folder, target, project = MODULES[module]
    (top, *others) = sorted({name.partition("/")[0] for name in archive.getnames()})
    if others:
        sys.exit(f"entries.py: {archive.name} has {len(others) + 1} folders at its top; expected one")
    prefix = "/".join(filter(None, [top, folder]))
    text = read(archive, f"{prefix}/MODULE.bazel")
    version = next(call["version"] for function, call, _ in look_up.calls(text) if function == "module")
    integrity = base64.b64encode(hashlib.sha256(pathlib.Path(arguments.archive).read_bytes()).digest()).decode()
    source = {"integrity": f"sha256-{integrity}", "strip_prefix": prefix, "url": arguments.url}
    of_module = registry / "modules" / module
    metadata = of_module / "metadata.json"
    before = json.loads(metadata.read_text()) if metadata.exists() else {}
    entry = of_module / version
    entry.mkdir(parents=True, exist_ok=True)
    (entry / "MODULE.bazel").write_text(text)
    (entry / "source.json").write_text(as_json(source))
    (entry / "presubmit.yml").write_text(PRESUBMIT.format(target=target, project=project))
    fields = {
        "homepage": arguments.homepage,
        "maintainers": MAINTAINERS,
        "repository": [arguments.repository],
        "versions": [*(known for known in before.get("versions", []) if known != version), version],
        "yanked_versions": {},
    }
    metadata.write_text(as_json({**fields, **{key: before[key] for key in before if key != "versions"}}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="where users get the archive")
    parser.add_argument("--homepage", required=True)
    parser.add_argument("--repository", required=True, help="as the registry writes it: github:OWNER/NAME")
    parser.add_argument("archive", metavar="ARCHIVE")
    parser.add_argument("registry", metavar="REGISTRY", type=pathlib.Path)
    arguments = parser.parse_args()
    try:
        archive = tarfile.open(arguments.archive, "r:gz")
    except (OSError, tarfile.ReadError) as error:
        sys.exit(f"entries.py: {arguments.archive}: {error}: expected a .tar.gz")
    with archive:
        for module in MODULES:
            write_entry(arguments.registry, module, archive, arguments)


if __name__ == "__main__":
    main()
