"""cc_library, cc_binary and cc_test with Lockstep's language standard, warnings and include prefix; precompiled_header; and link_only."""

load("//tools:precompiled_header.bzl", _precompiled_header = "precompiled_header")

_COPTS = ["-std=c++17", "-Wall", "-Wextra", "-Wno-sign-compare", "-Wno-unused-parameter"]

# For tests and what only they use: a quarter less compile time than -O2. Code that is not optimised at all stays so.
_TEST_COPTS = _COPTS + select({str(Label("//tools:optimized")): ["-O1"], "//conditions:default": []})


# `precompiled`: g++ reads //tools:libtorch_headers first. Set it if the sources include torch/nn, torch/optim, torch/data
# or ATen/ATen.h; other sources compile faster without it. Test-only targets have it if they depend on LibTorch.
def cc_library(copts = [], deps = [], testonly = False, precompiled = False, **kwargs):
    # Headers are included as "lockstep/<folder>/<file>.h".
    package = native.package_name()
    copts, deps = _copts_and_deps(copts, deps, testonly, precompiled)
    native.cc_library(
        copts = copts,
        deps = deps,
        testonly = testonly,
        strip_include_prefix = "/" + package,
        include_prefix = "lockstep/" + package,
        **kwargs
    )


def cc_binary(copts = [], deps = [], testonly = False, precompiled = False, **kwargs):
    copts, deps = _copts_and_deps(copts, deps, testonly, precompiled)
    native.cc_binary(copts = copts, deps = deps, testonly = testonly, **kwargs)


def cc_test(copts = [], deps = [], **kwargs):
    copts, deps = _copts_and_deps(copts, deps, testonly = True, precompiled = False)
    native.cc_test(copts = copts, deps = deps + [str(Label("//third_party:gtest_main"))], **kwargs)


def _copts_and_deps(copts, deps, testonly, precompiled):
    flags, headers = (_TEST_COPTS, "libtorch_test_headers") if testonly else (_COPTS, "libtorch_headers")

    # Deps with a select in them cannot be looked into.
    if precompiled or (testonly and type(deps) == "list" and "//third_party:torch" in deps):
        # -include, as g++ takes a precompiled header before all else only, and a source begins with its own header.
        copts = ["-include", headers + ".h"] + copts
        deps = deps + [str(Label("//tools:" + headers))]
    return flags + copts, deps


def precompiled_header(testonly = False, **kwargs):
    _precompiled_header(copts = _TEST_COPTS if testonly else _COPTS, testonly = testonly, **kwargs)


def _link_only(ctx):
    return [CcInfo(linking_context = ctx.attr.library[CcInfo].linking_context)]


# `library` for the linker alone: no include path of it reaches the compile command of what depends on this. So what an
# optional part is made of does not compile its users anew.
link_only = rule(
    implementation = _link_only,
    attrs = {"library": attr.label(providers = [CcInfo], mandatory = True)},
)
