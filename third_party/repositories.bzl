"""Everything Lockstep needs from outside, as one macro for its own WORKSPACE and for those that depend on it.

A repository that the caller has declared already is left alone, so a workspace can bring its own."""

load("//third_party:bazel_builtins.bzl", "bazel_builtins")
load("//third_party:fashion_mnist.bzl", "fashion_mnist_repository")
load("//third_party:libtorch.bzl", "libtorch_repository")
load("//third_party:peer.bzl", "peer_repository")
load("//third_party:system_library.bzl", "system_library")


def _declare(rule, name, **kwargs):
    if not native.existing_rule(name):
        rule(name = name, **kwargs)


def lockstep_repositories():
    bazel_builtins()

    _declare(libtorch_repository, "lockstep_libtorch", cuda = False)
    _declare(libtorch_repository, "lockstep_libtorch_cuda", cuda = True)
    _declare(peer_repository, "lockstep_peer")
    _declare(fashion_mnist_repository, "lockstep_fashion_mnist")

    _declare(
        system_library,
        "lockstep_abseil",
        package = "libabsl-dev",
        headers = ["absl/status/statusor.h"],
        # Debian's Abseil is static archives, whose order matters: from users to what they use.
        libraries = [
            "absl_statusor",
            "absl_status",
            "absl_cord",
            "absl_cordz_info",
            "absl_cord_internal",
            "absl_cordz_functions",
            "absl_cordz_handle",
            "absl_hash",
            "absl_city",
            "absl_low_level_hash",
            "absl_raw_hash_set",
            "absl_hashtablez_sampler",
            "absl_exponential_biased",
            "absl_bad_optional_access",
            "absl_bad_variant_access",
            "absl_str_format_internal",
            "absl_synchronization",
            "absl_graphcycles_internal",
            "absl_stacktrace",
            "absl_symbolize",
            "absl_debugging_internal",
            "absl_demangle_internal",
            "absl_malloc_internal",
            "absl_time",
            "absl_civil_time",
            "absl_time_zone",
            "absl_strings",
            "absl_strings_internal",
            "absl_throw_delegate",
            "absl_int128",
            "absl_base",
            "absl_spinlock_wait",
            "absl_raw_logging_internal",
            "absl_log_severity",
        ],
        linkopts = ["-pthread"],
    )
    _declare(
        system_library,
        "lockstep_benchmark",
        package = "libbenchmark-dev",
        headers = ["benchmark/benchmark.h"],
        libraries = ["benchmark"],
        linkopts = ["-pthread"],
    )
    _declare(
        system_library, "lockstep_gflags", package = "libgflags-dev", headers = ["gflags/gflags.h"], libraries = ["gflags"]
    )
    _declare(
        system_library, "lockstep_glog", package = "libgoogle-glog-dev", headers = ["glog/logging.h"], libraries = ["glog"]
    )

    # Headers only: the code of Gloo is inside libtorch_cpu, and a second copy must not be linked.
    _declare(
        system_library,
        "lockstep_gloo_headers",
        package = "libgloo-dev",
        headers = ["gloo/algorithm.h", "gloo/rendezvous/store.h"],
    )
    _declare(
        system_library,
        "lockstep_googletest",
        package = "libgtest-dev libgmock-dev",
        headers = ["gtest/gtest.h", "gmock/gmock.h"],
        libraries = ["gmock", "gtest"],
        linkopts = ["-pthread"],
    )
    _declare(
        system_library,
        "lockstep_googletest_main",
        package = "libgtest-dev libgmock-dev",
        headers = ["gtest/gtest.h", "gmock/gmock.h"],
        libraries = ["gmock_main", "gmock", "gtest"],
        linkopts = ["-pthread"],
    )
    _declare(
        system_library,
        "lockstep_jemalloc",
        package = "libjemalloc-dev",
        headers = ["jemalloc/jemalloc.h"],
        # A program need not name anything of it.
        linkopts = ["-Wl,--push-state,--no-as-needed", "-ljemalloc", "-Wl,--pop-state"],
    )
    _declare(
        system_library,
        "lockstep_leptonica",
        package = "libleptonica-dev",
        headers = ["leptonica/allheaders.h"],
        libraries = ["lept"],
    )
    _declare(
        system_library, "lockstep_libcrypto", package = "libssl-dev", headers = ["openssl/evp.h"], libraries = ["crypto"]
    )
    _declare(
        system_library,
        "lockstep_libjpeg",
        package = "libjpeg62-turbo-dev",
        headers = ["jpeglib.h"],
        libraries = ["jpeg"],
    )
    _declare(system_library, "lockstep_libpng", package = "libpng-dev", headers = ["png.h"], libraries = ["png"])
    _declare(system_library, "lockstep_nlohmann_json", package = "nlohmann-json3-dev", headers = ["nlohmann/json.hpp"])
    _declare(system_library, "lockstep_zlib", package = "zlib1g-dev", headers = ["zlib.h"], libraries = ["z"])
