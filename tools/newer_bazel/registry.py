#!/usr/bin/env python3
"""Writes a Bazel registry of the modules in tools/registry/modules.json, from Debian's source packages: no network, no other registry.

  registry.py SOURCES OUTPUT

SOURCES has the upstream archives as `apt-get source --download-only` leaves them. Abseil, gflags, glog, GoogleTest, benchmark and
nlohmann-json are built from them with their own BUILD files. The codecs and zlib are the system's -dev packages behind a module's
name. Names, versions and compatibility levels are those of the Bazel Central Registry. The source of a version is the archive of this
version if there is one, and else the newest archive.
"""

import functools
import json
import pathlib
import shutil
import sys
import tarfile

_TABLE = pathlib.Path(__file__).resolve().parents[2] / "tools/registry/modules.json"

# Module: Debian's source package, and its own dependencies with the names under which its BUILD files know them.
_FROM_SOURCE = {
    "abseil-cpp": ("abseil", {"bazel_skylib": "", "googletest": "", "platforms": "", "rules_cc": ""}),
    "gflags": ("gflags", {"rules_cc": ""}),
    "glog": ("google-glog", {"gflags": "com_github_gflags_gflags", "rules_cc": ""}),
    "google_benchmark": ("benchmark", {"bazel_skylib": "", "libpfm": "", "platforms": "", "rules_cc": ""}),
    "googletest": ("googletest", {"abseil-cpp": "", "platforms": "", "re2": "", "rules_cc": ""}),
    "nlohmann_json": ("nlohmann-json3", {"rules_cc": ""}),
}

# Module: its target, and what the linker gets for it.
_OF_THE_SYSTEM = {
    "libjpeg_turbo": ("jpeg", "-ljpeg"),
    "libpng": ("png", "-lpng"),
    "zlib": ("zlib", "-lz"),
}

_SYSTEM_BUILD = """load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "{target}",
    linkopts = ["{link}"],
    visibility = ["//visibility:public"],
)
"""

# Debian has no package of rules_shell, whose rules Bazel 7 has built in. The others are named by Bazel's own modules or by tests of
# the above, and used by nothing that is built here.
_STUBS = ["apple_support", "buildozer", "libpfm", "protobuf", "re2", "rules_shell"]
_STUB_FILES = {
    "buildozer": {"buildozer_binary.bzl": "buildozer_binary = module_extension(implementation = lambda _ctx: None)\n"},
    "rules_shell": {
        "shell/BUILD": "",
        "shell/sh_binary.bzl": "sh_binary = native.sh_binary\n",
        "shell/sh_test.bzl": "sh_test = native.sh_test\n",
    },
}

_DEBIANS_RULES_CC = pathlib.Path("/usr/share/bazel/rules/cc")
_EMSCRIPTEN = """
config_setting(
    name = "emscripten",
    flag_values = {"@rules_cc//cc/private/toolchain:compiler": "emscripten"},
)
"""


def _unpack(sources, package, version, folder):
    archives = sorted(sources.glob(package + "_*.orig.tar.*"))
    if not archives:
        raise SystemExit(
            f"registry.py: no archive matches {sources}/{package}_*.orig.tar.*; expected one: "
            f"run `apt-get source --download-only {package}` there"
        )
    of_version = [archive for archive in archives if archive.name.startswith(f"{package}_{version}.")]
    archive = (of_version or archives)[-1]
    folder = folder / archive.name
    if not folder.exists():
        with tarfile.open(archive) as members:
            members.extractall(folder, filter="data")
    (inner,) = folder.iterdir()
    return inner


class _Registry:
    def __init__(self, folder):
        self._folder = folder
        self._modules = json.loads(_TABLE.read_text())["modules"]
        folder.mkdir(parents=True)
        (folder / "bazel_registry.json").write_text("{}")

    def add(self, name, source_of, dependencies=()):
        """`source_of`: the folder with the source of a version."""
        for version in self._modules[name]:
            entry = self._folder / "modules" / name / version
            entry.mkdir(parents=True)
            (entry / "MODULE.bazel").write_text(self._module(name, version, dict(dependencies)))
            (entry / "source.json").write_text(json.dumps({"type": "local_path", "path": str(source_of(version))}))
        (self._folder / "modules" / name / "metadata.json").write_text(
            json.dumps({"versions": list(self._modules[name]), "yanked_versions": {}})
        )

    def _module(self, name, version, dependencies):
        level = self._modules[name][version]
        lines = [f'module(name = "{name}", version = "{version}", compatibility_level = {level})\n']
        for dependency, known_as in dependencies.items():
            alias = f', repo_name = "{known_as}"' if known_as else ""
            lowest = next(iter(self._modules[dependency]))
            lines.append(f'bazel_dep(name = "{dependency}", version = "{lowest}"{alias})\n')
        return "".join(lines)


def _write_folder(folder, name, files):
    folder.mkdir(parents=True)
    for path, text in {"BUILD": "", "MODULE.bazel": f'module(name = "{name}")\n', **files}.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    return folder


# Debian's Abseil names a compiler that Debian's older rules_cc does not know. For --override_module=rules_cc=OUTPUT/rules_cc.
def _write_rules_cc(folder):
    shutil.copytree(_DEBIANS_RULES_CC, folder)
    with open(folder / "cc/compiler/BUILD", "a") as build:
        build.write(_EMSCRIPTEN)


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    sources, output = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    registry = _Registry(output / "registry")
    for name, (package, dependencies) in _FROM_SOURCE.items():
        registry.add(name, functools.partial(_unpack, sources, package, folder=output / name), dependencies)
    for name, (target, link) in _OF_THE_SYSTEM.items():
        build = _SYSTEM_BUILD.format(target=target, link=link)
        folder = _write_folder(output / name, name, {"BUILD": build})
        registry.add(name, lambda _, folder=folder: folder, {"rules_cc": ""})
    for name in _STUBS:
        folder = _write_folder(output / name, name, _STUB_FILES.get(name, {}))
        registry.add(name, lambda _, folder=folder: folder)
    _write_rules_cc(output / "rules_cc")


if __name__ == "__main__":
    main()
