"""The libraries that the operating system provides, as Debian names and links them: arguments of system_library by repository."""

SYSTEM_LIBRARIES = {
    # Static archives, whose order matters: from users to what they use.
    "lockstep_abseil": {
        "package": "libabsl-dev",
        "headers": ["absl/status/statusor.h"],
        "libraries": [
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
        "linkopts": ["-pthread"],
    },
    "lockstep_benchmark": {
        "package": "libbenchmark-dev",
        "headers": ["benchmark/benchmark.h"],
        "libraries": ["benchmark"],
        "linkopts": ["-pthread"],
    },
    "lockstep_gflags": {
        "package": "libgflags-dev",
        "headers": ["gflags/gflags.h"],
        "libraries": ["gflags"],
    },
    "lockstep_glog": {
        "package": "libgoogle-glog-dev",
        "headers": ["glog/logging.h"],
        "libraries": ["glog"],
    },
    # Headers only: the code of Gloo is inside libtorch_cpu, and a second copy must not be linked.
    "lockstep_gloo_headers": {
        "package": "libgloo-dev",
        "headers": ["gloo/algorithm.h", "gloo/rendezvous/store.h"],
    },
    "lockstep_googletest": {
        "package": "libgtest-dev libgmock-dev",
        "headers": ["gtest/gtest.h", "gmock/gmock.h"],
        "libraries": ["gmock", "gtest"],
        "linkopts": ["-pthread"],
    },
    "lockstep_googletest_main": {
        "package": "libgtest-dev libgmock-dev",
        "headers": ["gtest/gtest.h", "gmock/gmock.h"],
        "libraries": [
            "gmock_main",
            "gmock",
            "gtest",
        ],
        "linkopts": ["-pthread"],
    },
    # Linked whole: a program need not name anything of it.
    "lockstep_jemalloc": {
        "package": "libjemalloc-dev",
        "headers": ["jemalloc/jemalloc.h"],
        "linkopts": [
            "-Wl,--push-state,--no-as-needed",
            "-ljemalloc",
            "-Wl,--pop-state",
        ],
    },
    "lockstep_leptonica": {
        "package": "libleptonica-dev",
        "headers": ["leptonica/allheaders.h"],
        "libraries": ["lept|leptonica"],
    },
    "lockstep_libcrypto": {
        "package": "libssl-dev",
        "headers": ["openssl/evp.h"],
        "libraries": ["crypto"],
    },
    "lockstep_libjpeg": {
        "package": "libjpeg62-turbo-dev",
        "headers": ["jpeglib.h"],
        "libraries": ["jpeg"],
    },
    "lockstep_libpng": {
        "package": "libpng-dev",
        "headers": ["png.h"],
        "libraries": ["png"],
    },
    "lockstep_nlohmann_json": {
        "package": "nlohmann-json3-dev",
        "headers": ["nlohmann/json.hpp"],
    },
    "lockstep_zlib": {
        "package": "zlib1g-dev",
        "headers": ["zlib.h"],
        "libraries": ["z"],
    },
}
