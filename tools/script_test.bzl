"""Tests that are Python programs."""

load("//third_party:sh_rules.bzl", "sh_test")


def script_test(name, size = "small", **kwargs):
    """A test that runs <name>.py, by its first line: Debian's Bazel 4 runs py_test with a `python` that Debian 12 lacks."""
    sh_test(name = name, size = size, srcs = [name + ".py"], **kwargs)
