"""cc_library, cc_binary and cc_test with Lockstep's warnings and include prefix; precompiled_header; and link_only."""

load("//third_party:cc_rules.bzl", "cc", _cc_binary = "cc_binary", _cc_library = "cc_library", _cc_test = "cc_test")
load("//tools:precompiled_header.bzl", _precompiled_header = "precompiled_header")

# No -std: libraries and the program that links them are compiled for one standard, and the user names it. C++17 is the least.
_COPTS = ["-Wall", "-Wextra", "-Wno-sign-compare", "-Wno-unused-parameter"]

# For tests and what only they use: most of the time of a cold `test //...` is spent on their compilation.
_TEST_COPTS = _COPTS + ["-O0", "-U_FORTIFY_SOURCE"]


# What targets name among their deps -> the headers in //tools that they are compiled with: the first that fits.
_HEADERS = [
    (Label("//third_party:torch"), "libtorch"),
    (Label("//third_party:absl"), "abseil"),
]


# With --//tools/flags:precompiled_headers, targets that name //third_party:torch are compiled with LibTorch's headers precompiled:
# //tools:libtorch_headers, and //tools:libtorch_test_headers if they are test-only. Others that name //third_party:absl are
# compiled with //tools:abseil_headers and //tools:abseil_test_headers.
def cc_library(copts = [], deps = [], testonly = False, **kwargs):
    # Headers are included as "lockstep/<folder>/<file>.h".
    package = native.package_name()
    copts, deps = _copts_and_deps(copts, deps, testonly)
    _cc_library(
        copts = copts,
        deps = deps,
        testonly = testonly,
        strip_include_prefix = "/" + package,
        include_prefix = "lockstep/" + package,
        **kwargs
    )


def cc_binary(copts = [], deps = [], testonly = False, **kwargs):
    copts, deps = _copts_and_deps(copts, deps, testonly)
    _cc_binary(copts = copts, deps = deps, testonly = testonly, **kwargs)


def cc_test(copts = [], deps = [], **kwargs):
    copts, deps = _copts_and_deps(copts, deps, testonly = True)
    _cc_test(copts = copts, deps = deps + [str(Label("//third_party:gtest_main"))], **kwargs)


def _copts_and_deps(copts, deps, testonly):
    flags = _TEST_COPTS if testonly else _COPTS

    # Deps with a select in them cannot be looked into.
    labels = [Label(dep) for dep in deps if "//" in dep] if type(deps) == "list" else []
    headers = [name + ("_test_headers" if testonly else "_headers") for library, name in _HEADERS if library in labels]
    if headers:
        label = Label("//tools:" + headers[0])
        root = label.workspace_root + "/" if label.workspace_root else ""

        # -include, as a precompiled header is taken before all else only, and a source begins with its own header.
        path = "$(BINDIR)/%s%s/%s" % (root, label.package, label.name)
        include = ["-include", path + ".h", "-include", path + ".stamp.h"]
        copts = _if_precompiled_headers(include) + copts
        deps = deps + _if_precompiled_headers([str(label)])
    return flags + copts, deps


def _if_precompiled_headers(values):
    return select({
        str(Label("//tools/flags:precompiled_headers_enabled")): values,
        "//conditions:default": [],
    })


def precompiled_header(testonly = False, **kwargs):
    _precompiled_header(copts = _TEST_COPTS if testonly else _COPTS, testonly = testonly, **kwargs)


def _link_only(ctx):
    return [cc.Info(linking_context = ctx.attr.library[cc.Info].linking_context)]


# `library` for the linker alone: no include path of it reaches the compile command of what depends on this. So what an
# optional part is made of does not compile its users anew.
link_only = rule(
    implementation = _link_only,
    attrs = {"library": attr.label(providers = [cc.Info], mandatory = True)},
)
