"""A library that a Bazel module provides, as a repository with one target, `//:lib`: what system_library is to the system's."""

_BUILD = """
load("@lockstep_rules//:cc.bzl", "cc_library")

cc_library(
    name = "lib",
    visibility = ["//visibility:public"],
    deps = {deps},
)
"""


def _module_library_impl(ctx):
    ctx.file("BUILD", _BUILD.format(deps = repr(ctx.attr.targets)))


module_library = repository_rule(
    implementation = _module_library_impl,
    # Strings, not labels: the repository sees the modules that Lockstep's MODULE.bazel names.
    attrs = {"targets": attr.string_list(mandatory = True)},
)
