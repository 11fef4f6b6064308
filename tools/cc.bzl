"""cc_library, cc_binary and cc_test with Lockstep's language standard, warnings and include prefix; precompiled_header; and link_only."""

load("//tools:precompiled_header.bzl", _precompiled_header = "precompiled_header")

_COPTS = ["-std=c++17", "-Wall", "-Wextra", "-Wno-sign-compare", "-Wno-unused-parameter"]

# For tests and what only they use: a quarter less compile time than -O2. Code that is not optimised at all stays so.
_TEST_COPTS = _COPTS + select({str(Label("//tools:optimized")): ["-O1"], "//conditions:default": []})


def cc_library(copts = [], deps = [], testonly = False, **kwargs):
    # Headers are included as "lockstep/<folder>/<file>.h".
    package = native.package_name()
    copts, deps = _copts_and_deps(copts, deps, testonly)
    native.cc_library(
        copts = copts,
        deps = deps,
        testonly = testonly,
        strip_include_prefix = "/" + package,
        include_prefix = "lockstep/" + package,
        **kwargs
    )


def cc_binary(copts = [], deps = [], testonly = False, **kwargs):
    copts, deps = _copts_and_deps(copts, deps, testonly)
    native.cc_binary(copts = copts, deps = deps, testonly = testonly, **kwargs)


def cc_test(copts = [], deps = [], **kwargs):
    copts, deps = _copts_and_deps(copts, deps, testonly = True)
    native.cc_test(copts = copts, deps = deps + [str(Label("//third_party:gtest_main"))], **kwargs)


def _copts_and_deps(copts, deps, testonly):
    if not testonly:
        return _COPTS + copts, deps

    # Deps with a select in them cannot be looked into.
    if type(deps) == "list" and "//third_party:torch" in deps:
        # -include, as g++ takes a precompiled header before all else only, and a test begins with the header that it tests.
        copts = ["-include", "libtorch_headers.h"] + copts
        deps = deps + [str(Label("//tools:libtorch_headers"))]
    return _TEST_COPTS + copts, deps


def precompiled_header(**kwargs):
    _precompiled_header(copts = _TEST_COPTS, **kwargs)


def _link_only(ctx):
    return [CcInfo(linking_context = ctx.attr.library[CcInfo].linking_context)]


# `library` for the linker alone: no include path of it reaches the compile command of what depends on this. So what an
# optional part is made of does not compile its users anew.
link_only = rule(
    implementation = _link_only,
    attrs = {"library": attr.label(providers = [CcInfo], mandatory = True)},
)
