"""Bazel's rules for C++, from wherever this Bazel has them."""

load("@lockstep_rules//:cc.bzl", _cc_binary = "cc_binary", _cc_library = "cc_library", _cc_test = "cc_test")
load("@lockstep_rules//:cc_common.bzl", _cc = "cc")

# Info: the provider CcInfo. common: the module cc_common. find_toolchain(ctx): the C++ toolchain of a rule.
cc = _cc
cc_binary = _cc_binary
cc_library = _cc_library
cc_test = _cc_test
