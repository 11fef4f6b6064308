"""Lockstep's repositories for MODULE.bazel. A library that is a Bazel module is taken from there, so that a program has one Abseil
and one glog: its own. The others are the operating system's.

  lockstep = use_extension("@lockstep//third_party:extensions.bzl", "lockstep")
  lockstep.wheel(version = "2.15.0")   # LibTorch: pinned wheels through pip; 2.11.0 without any tag
  lockstep.path(path = "/opt/libtorch")   # or: an unpacked LibTorch
  lockstep.python(interpreter = "/usr/bin/python3.12")   # or: what this Python has

Only the root module's tag counts, and only one.
"""

load("//third_party:fashion_mnist.bzl", "fashion_mnist_repository")
load("//third_party:libtorch.bzl", "libtorch_repository")
load("//third_party:module_library.bzl", "module_library")
load("//third_party:peer.bzl", "peer_repository")
load("//third_party:rules.bzl", "rules_repository")
load("//third_party:system_libraries.bzl", "SYSTEM_LIBRARIES")
load("//third_party:system_library.bzl", "system_library")

_MODULES = {
    "lockstep_abseil": [
        "@abseil-cpp//absl/base:core_headers",
        "@abseil-cpp//absl/cleanup",
        "@abseil-cpp//absl/container:btree",
        "@abseil-cpp//absl/container:flat_hash_map",
        "@abseil-cpp//absl/container:flat_hash_set",
        "@abseil-cpp//absl/container:inlined_vector",
        "@abseil-cpp//absl/functional:function_ref",
        "@abseil-cpp//absl/memory",
        "@abseil-cpp//absl/status",
        "@abseil-cpp//absl/status:statusor",
        "@abseil-cpp//absl/strings",
        "@abseil-cpp//absl/strings:cord",
        "@abseil-cpp//absl/strings:str_format",
        "@abseil-cpp//absl/synchronization",
        "@abseil-cpp//absl/time",
        "@abseil-cpp//absl/types:span",
    ],
    "lockstep_benchmark": ["@google_benchmark//:benchmark"],
    "lockstep_gflags": ["@gflags//:gflags"],
    "lockstep_glog": ["@glog//:glog"],
    "lockstep_googletest": ["@googletest//:gtest"],
    "lockstep_googletest_main": ["@googletest//:gtest_main"],
    "lockstep_libjpeg": ["@libjpeg_turbo//:jpeg"],
    "lockstep_libpng": ["@libpng//:png"],
    "lockstep_nlohmann_json": ["@nlohmann_json//:json"],
    "lockstep_zlib": ["@zlib//:zlib"],
}


def _libtorch(module_ctx):
    for module in module_ctx.modules:
        if not module.is_root:
            continue
        tags = [{"version": tag.version} for tag in module.tags.wheel]
        tags += [{"path": tag.path} for tag in module.tags.path]
        tags += [{"python": tag.interpreter, "version": "installed"} for tag in module.tags.python]
        if len(tags) > 1:
            fail(
                "module %s: %d tags say which LibTorch; expected one of wheel, path and python"
                % (module.name, len(tags))
            )
        if tags:
            return tags[0]
    return {}


def _lockstep_impl(module_ctx):
    libtorch = _libtorch(module_ctx)
    rules_repository(name = "lockstep_rules", built_in = False)
    libtorch_repository(name = "lockstep_libtorch", cuda = False, **libtorch)
    libtorch_repository(name = "lockstep_libtorch_cuda", cuda = True, **libtorch)
    peer_repository(name = "lockstep_peer", **libtorch)
    fashion_mnist_repository(name = "lockstep_fashion_mnist")
    for name, targets in _MODULES.items():
        module_library(name = name, targets = targets)
    for name, arguments in SYSTEM_LIBRARIES.items():
        if name not in _MODULES:
            system_library(name = name, **arguments)


lockstep = module_extension(
    implementation = _lockstep_impl,
    tag_classes = {
        "path": tag_class(attrs = {"path": attr.string(mandatory = True)}),
        "python": tag_class(attrs = {"interpreter": attr.string(default = "python3")}),
        "wheel": tag_class(attrs = {"version": attr.string(mandatory = True)}),
    },
)
