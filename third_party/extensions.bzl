"""Lockstep's repositories for MODULE.bazel. A library that is a Bazel module is taken from there, so that a program has one Abseil
and one glog: its own. The others are the operating system's.
LibTorch comes from the module libtorch, in the folder of this name.
"""

load("//third_party:fashion_mnist.bzl", "fashion_mnist_repository")
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


def _lockstep_impl(module_ctx):
    rules_repository(name = "lockstep_rules", built_in = False)
    peer_repository(name = "lockstep_peer")
    fashion_mnist_repository(name = "lockstep_fashion_mnist")
    for name, targets in _MODULES.items():
        module_library(name = name, targets = targets)
    for name, arguments in SYSTEM_LIBRARIES.items():
        if name not in _MODULES:
            system_library(name = name, **arguments)


lockstep = module_extension(implementation = _lockstep_impl)
