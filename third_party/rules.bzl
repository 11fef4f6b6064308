"""The rules and providers that newer Bazels no longer have built in, as a repository of one file for each language."""

_CC_NATIVE = """
cc_binary = native.cc_binary
cc_library = native.cc_library
cc_test = native.cc_test
"""

# A file cannot export a built-in under its own name.
_CC_COMMON_NATIVE = """
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

cc = struct(Info = CcInfo, common = cc_common, find_toolchain = find_cpp_toolchain)
"""

_SH_NATIVE = """
sh_binary = native.sh_binary
sh_test = native.sh_test
"""

_CC_MODULE = """
load("@rules_cc//cc:defs.bzl", _cc_binary = "cc_binary", _cc_library = "cc_library", _cc_test = "cc_test")

cc_binary = _cc_binary
cc_library = _cc_library
cc_test = _cc_test
"""

_CC_COMMON_MODULE = """
load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cpp_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

cc = struct(Info = CcInfo, common = cc_common, find_toolchain = find_cpp_toolchain)
"""

_SH_MODULE = """
load("@rules_shell//shell:sh_binary.bzl", _sh_binary = "sh_binary")
load("@rules_shell//shell:sh_test.bzl", _sh_test = "sh_test")

sh_binary = _sh_binary
sh_test = _sh_test
"""


def _rules_impl(ctx):
    ctx.file("BUILD", 'exports_files(["cc.bzl", "cc_common.bzl", "sh.bzl"])\n')
    ctx.file("cc.bzl", _CC_NATIVE if ctx.attr.built_in else _CC_MODULE)
    ctx.file("cc_common.bzl", _CC_COMMON_NATIVE if ctx.attr.built_in else _CC_COMMON_MODULE)
    ctx.file("sh.bzl", _SH_NATIVE if ctx.attr.built_in else _SH_MODULE)


rules_repository = repository_rule(
    implementation = _rules_impl,
    attrs = {"built_in": attr.bool(mandatory = True, doc = "Bazel's own rules; else those of @rules_cc and @rules_shell.")},
)
