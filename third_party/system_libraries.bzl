"""The libraries that the operating system provides, as Debian names and links them: arguments of system_library by repository."""

SYSTEM_LIBRARIES = {
    # Its archives differ from release to release. The modules are those that have the headers that Lockstep includes.
    "lockstep_abseil": {
        "package": "libabsl-dev",
        "headers": ["absl/status/statusor.h"],
        "modules": [
            "absl_btree",
            "absl_cleanup",
            "absl_cord",
            "absl_core_headers",
            "absl_flat_hash_map",
            "absl_flat_hash_set",
            "absl_function_ref",
            "absl_inlined_vector",
            "absl_memory",
            "absl_span",
            "absl_status",
            "absl_statusor",
            "absl_str_format",
            "absl_strings",
            "absl_synchronization",
            "absl_time",
        ],
        "linkopts": ["-pthread"],
    },
    "lockstep_benchmark": {
        "package": "libbenchmark-dev",
        "headers": ["benchmark/benchmark.h"],
        "libraries": ["benchmark"],
        "linkopts": ["-pthread"],
    },
    # Headers only: the launcher loads the library when a user asks for etcd.
    "lockstep_curl_headers": {
        "package": "libcurl4-openssl-dev",
        "headers": ["curl/curl.h"],
        "linkopts": ["-ldl"],
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
        # From 0.7 on, without which its headers do not compile.
        "defines": {"GLOG_USE_GLOG_EXPORT": "glog/types.h"},
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
    "lockstep_sentencepiece": {
        "package": "libsentencepiece-dev",
        "headers": ["sentencepiece_trainer.h"],
        "libraries": [
            "sentencepiece_train",
            "sentencepiece",
        ],
    },
    "lockstep_zlib": {
        "package": "zlib1g-dev",
        "headers": ["zlib.h"],
        "libraries": ["z"],
    },
}
