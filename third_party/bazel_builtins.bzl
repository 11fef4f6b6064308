"""Bazel's own built-in repositories, for Debian's Bazel.

Bazel 4 fetches rules_cc, rules_java and some others from the network at the first C++ target. Debian's build of Bazel (it reports no
version) is meant to take them from Debian packages; this macro points it there. Other builds of Bazel are left alone."""

_RULES_CC = """
cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
"""

_STUB_BUILD = """
package(default_visibility = ["//visibility:public"])
filegroup(name = "coverage_report_generator")
filegroup(name = "lcov_merger")
"""


def _builtin_stub_impl(ctx):
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)
    ctx.file("BUILD", _STUB_BUILD)
    if ctx.attr.cc_rules:
        ctx.file("cc/BUILD", "")
        ctx.file("cc/defs.bzl", _RULES_CC)


_builtin_stub = repository_rule(
    implementation = _builtin_stub_impl,
    attrs = {"cc_rules": attr.bool()},
)


def bazel_builtins():
    if native.bazel_version:
        return
    _builtin_stub(name = "rules_cc", cc_rules = True)
    _builtin_stub(name = "remote_coverage_tools")
    native.local_repository(name = "rules_java", path = "/usr/share/bazel/rules/java")
    native.local_repository(name = "rules_proto", path = "/usr/share/bazel/rules/proto")
    native.local_repository(name = "platforms", path = "/usr/share/bazel/tools/platforms")
