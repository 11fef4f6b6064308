#!/usr/bin/env python3
"""Writes a Bazel registry of the modules that MODULE.bazel names, from Debian's source packages: no network, no other registry.

  registry.py SOURCES OUTPUT

SOURCES has the upstream archives as `apt-get source --download-only` leaves them. Abseil, gflags, glog, GoogleTest, benchmark and
nlohmann-json are built from them with their own BUILD files. The codecs and zlib are the system's -dev packages behind a module's
name. Each module has the version that Lockstep's MODULE.bazel asks for, whatever the version of its source. Abseil has a second
version too, the first one of another compatibility level.
"""

import json
import pathlib
import re
import shutil
import sys
import tarfile

_ROOT = pathlib.Path(__file__).resolve().parents[2]

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
_STUBS = {
    "apple_support": ["1.23.1"],
    "buildozer": ["7.1.2"],
    "libpfm": ["4.11.0"],
    "protobuf": ["3.19.6", "21.7"],
    "re2": ["2025-11-05.bcr.1"],
    "rules_shell": ["0.3.0"],
}
_STUB_FILES = {
    "buildozer": {"buildozer_binary.bzl": "buildozer_binary = module_extension(implementation = lambda _ctx: None)\n"},
    "rules_shell": {
        "shell/BUILD": "",
        "shell/sh_binary.bzl": "sh_binary = native.sh_binary\n",
        "shell/sh_test.bzl": "sh_test = native.sh_test\n",
    },
}

_NEW_ABSEIL = "20260526.0"


def _compatibility_level(name, version):
    """As in the registry of Bazel's users. Abseil's level was 1 until 20260526.0, whose MODULE.bazel names none."""
    return int(name == "googletest" or name == "abseil-cpp" and version < _NEW_ABSEIL)


_DEBIANS_RULES_CC = pathlib.Path("/usr/share/bazel/rules/cc")
_EMSCRIPTEN = """
config_setting(
    name = "emscripten",
    flag_values = {"@rules_cc//cc/private/toolchain:compiler": "emscripten"},
)
"""


def _asked_for():
    text = (_ROOT / "MODULE.bazel").read_text()
    return dict(re.findall(r'bazel_dep\(name = "([^"]+)", version = "([^"]+)"', text))


def _unpack(sources, package, folder):
    archives = sorted(sources.glob(package + "_*.orig.tar.*"))
    if len(archives) != 1:
        raise SystemExit(
            f"registry.py: {len(archives)} archives match {sources}/{package}_*.orig.tar.*; expected one: "
            f"run `apt-get source --download-only {package}` there"
        )
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder, filter="data")
    (inner,) = folder.iterdir()
    return inner


class _Registry:
    def __init__(self, folder, asked_for):
        self._folder = folder
        self._versions = {
            "bazel_skylib": "1.7.1",
            **{name: versions[-1] for name, versions in _STUBS.items()},
            **asked_for,
        }
        folder.mkdir(parents=True)
        (folder / "bazel_registry.json").write_text("{}")

    def add(self, name, source, dependencies=None, versions=None):
        for version in versions or [self._versions[name]]:
            entry = self._folder / "modules" / name / version
            entry.mkdir(parents=True)
            (entry / "MODULE.bazel").write_text(self._module(name, version, dependencies or {}))
            (entry / "source.json").write_text(json.dumps({"type": "local_path", "path": str(source)}))
        names = sorted(path.name for path in (self._folder / "modules" / name).iterdir())
        (self._folder / "modules" / name / "metadata.json").write_text(
            json.dumps({"versions": names, "yanked_versions": {}})
        )

    def _module(self, name, version, dependencies):
        lines = [
            f'module(name = "{name}", version = "{version}", compatibility_level = {_compatibility_level(name, version)})\n'
        ]
        for dependency, known_as in dependencies.items():
            alias = f', repo_name = "{known_as}"' if known_as else ""
            lines.append(f'bazel_dep(name = "{dependency}", version = "{self._versions[dependency]}"{alias})\n')
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
    asked_for = _asked_for()
    registry = _Registry(output / "registry", asked_for)
    for name, (package, dependencies) in _FROM_SOURCE.items():
        versions = [asked_for[name], _NEW_ABSEIL] if name == "abseil-cpp" else None
        registry.add(name, _unpack(sources, package, output / name), dependencies, versions)
    for name, (target, link) in _OF_THE_SYSTEM.items():
        build = _SYSTEM_BUILD.format(target=target, link=link)
        registry.add(name, _write_folder(output / name, name, {"BUILD": build}), {"rules_cc": ""})
    for name, versions in _STUBS.items():
        registry.add(name, _write_folder(output / name, name, _STUB_FILES.get(name, {})), versions=versions)
    _write_rules_cc(output / "rules_cc")


if __name__ == "__main__":
    main()
