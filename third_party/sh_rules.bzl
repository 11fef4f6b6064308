"""Bazel's rules for scripts, from wherever this Bazel has them."""

load("@lockstep_rules//:sh.bzl", _sh_binary = "sh_binary", _sh_test = "sh_test")

sh_binary = _sh_binary
sh_test = _sh_test
