"""Everything Lockstep needs from outside, as one macro for its own WORKSPACE and for those that depend on it. MODULE.bazel has
extensions.bzl instead.

A repository that the caller has declared already is left alone, so a workspace can bring its own."""

load("//third_party:bazel_builtins.bzl", "bazel_builtins")
load("//third_party:fashion_mnist.bzl", "fashion_mnist_repository")
load("//third_party:peer.bzl", "peer_repository")
load("//third_party:rules.bzl", "rules_repository")
load("//third_party:system_libraries.bzl", "SYSTEM_LIBRARIES")
load("//third_party:system_library.bzl", "system_library")
load("//third_party/libtorch:libtorch.bzl", "libtorch_repository")


def _declare(rule, name, **kwargs):
    if not native.existing_rule(name):
        rule(name = name, **kwargs)


def lockstep_repositories(libtorch_version = ""):
    """Declares the repositories.

    Args:
      libtorch_version: such as "2.11.0", the default. LOCKSTEP_LIBTORCH_VERSION overrides it.
    """
    bazel_builtins()

    # From Bazel 8 on, scripts' rules are those of @rules_shell. Debian's Bazel 4 says no version.
    major = int((native.bazel_version or "4").split(".")[0])
    _declare(rules_repository, "lockstep_rules", built_in = major < 8)
    libtorch = {"rules": "@lockstep_rules//:cc.bzl", "version": libtorch_version}
    _declare(libtorch_repository, "lockstep_libtorch", cuda = False, **libtorch)
    _declare(libtorch_repository, "lockstep_libtorch_cuda", cuda = True, **libtorch)
    _declare(peer_repository, "lockstep_peer", version = libtorch_version)
    _declare(fashion_mnist_repository, "lockstep_fashion_mnist")
    for name, arguments in SYSTEM_LIBRARIES.items():
        _declare(system_library, name, **arguments)
