"""C++ rules with Lockstep's warnings and include prefix; precompiled_header; and link_only.

  cc_library  `units = ["a"]` stands for a.cc and a.h. Without units, srcs and hdrs, its unit is <name>.
  cc_binary   Without srcs, its source is <name>.cc.
  cc_program  A cc_binary with flags. It has gflags, Abseil, and base's command_line, flag_error and status.
  cc_test     Without srcs, its source is <name>.cc. It has GoogleTest, Abseil, and base's status. It is small by default.
  cc_tests    A cc_test for each of `names`, with everything else the same.
  absl_...    A library or a binary that includes Abseil. It has Abseil, and base's status.
  torch_...   The same rules for targets that include LibTorch. They have it, Abseil, and base's status and torch_status.
"""

load("//third_party:cc_rules.bzl", "cc", _cc_binary = "cc_binary", _cc_library = "cc_library", _cc_test = "cc_test")
load("//tools:precompiled_header.bzl", _precompiled_header = "precompiled_header")

# No -std: libraries and the program that links them are compiled for one standard, and the user names it. C++17 is the least.
_COPTS = ["-Wall", "-Wextra", "-Wno-sign-compare", "-Wno-unused-parameter"]

# For tests and what only they use: most of the time of a cold `test //...` is spent on their compilation.
_TEST_COPTS = _COPTS + ["-O0", "-U_FORTIFY_SOURCE"]

# Folders of what only tests use: a target is test-only by default if it, or each of its sources, is in one of them.
_TEST_FOLDERS = ["failures", "fuzz", "peer", "testing"]

_ABSL = "//third_party:absl"
_GTEST = "//third_party:gtest"
_TORCH = "//third_party:torch"
_STATUS = "//base:status"
_WITH_ABSL = [_STATUS, _ABSL]
_WITH_FLAGS = _WITH_ABSL + ["//base:command_line", "//base:flag_error", "//third_party:gflags"]
_WITH_TORCH = _WITH_ABSL + ["//base:torch_status", _TORCH]

# What targets name among their deps -> the headers in //tools that they are compiled with: the first that fits.
_HEADERS = [
    (Label(_TORCH), "libtorch"),
    (Label(_ABSL), "abseil"),
]


# With --//tools/flags:precompiled_headers, targets that name //third_party:torch are compiled with LibTorch's headers precompiled:
# //tools:libtorch_headers, and //tools:libtorch_test_headers if they are test-only. Others that name //third_party:absl are
# compiled with //tools:abseil_headers and //tools:abseil_test_headers.
def cc_library(name, units = None, srcs = [], hdrs = [], copts = [], deps = [], testonly = None, **kwargs):
    # Headers are included as "lockstep/<folder>/<file>.h".
    package = native.package_name()
    if units == None:
        units = [] if srcs or hdrs else [name]
    testonly = _is_testonly(testonly, units + srcs + hdrs)
    copts, deps = _copts_and_deps(copts, deps, testonly)
    _cc_library(
        name = name,
        srcs = [unit + ".cc" for unit in units] + srcs,
        hdrs = [unit + ".h" for unit in units] + hdrs,
        copts = copts,
        deps = deps,
        testonly = testonly,
        strip_include_prefix = "/" + package,
        include_prefix = "lockstep/" + package,
        **kwargs
    )


def cc_binary(name, srcs = None, copts = [], deps = [], testonly = None, **kwargs):
    srcs = [name + ".cc"] if srcs == None else srcs
    testonly = _is_testonly(testonly, srcs)
    copts, deps = _copts_and_deps(copts, deps, testonly)
    _cc_binary(name = name, srcs = srcs, copts = copts, deps = deps, testonly = testonly, **kwargs)


def _test(name, srcs = None, size = "small", copts = [], data = [], env = {}, programs = {}, deps = [], **kwargs):
    # `programs` maps an environment variable to the program whose path it has.
    copts, deps = _copts_and_deps(copts, deps, testonly = True)
    paths = {variable: "$(rootpath %s)" % program for variable, program in programs.items()}
    _cc_test(
        name = name,
        size = size,
        srcs = [name + ".cc"] if srcs == None else srcs,
        copts = copts,
        data = data + [program for program in programs.values() if program not in data],
        env = dict(paths, **env),
        deps = deps + [str(Label("//third_party:gtest_main"))],
        **kwargs
    )


def cc_test(deps = [], **kwargs):
    _test(deps = _with(deps, _WITH_ABSL + [_GTEST]), **kwargs)


def cc_tests(names, **kwargs):
    [cc_test(name = name, **kwargs) for name in names]


def cc_program(deps = [], **kwargs):
    cc_binary(deps = _with(deps, _WITH_FLAGS), **kwargs)


def absl_library(deps = [], **kwargs):
    cc_library(deps = _with(deps, _WITH_ABSL), **kwargs)


def absl_binary(deps = [], **kwargs):
    cc_binary(deps = _with(deps, _WITH_ABSL), **kwargs)


def torch_library(deps = [], **kwargs):
    cc_library(deps = _with(deps, _WITH_TORCH), **kwargs)


def torch_binary(deps = [], **kwargs):
    cc_binary(deps = _with(deps, _WITH_TORCH), **kwargs)


def torch_program(deps = [], **kwargs):
    torch_binary(deps = _with(deps, _WITH_FLAGS), **kwargs)


def torch_test(deps = [], **kwargs):
    _test(deps = _with(deps, _WITH_TORCH + [_GTEST]), **kwargs)


def torch_tests(names, **kwargs):
    [torch_test(name = name, **kwargs) for name in names]


def _is_testonly(testonly, sources):
    # Sources with a select in them cannot be looked into.
    names = sources if sources and type(sources) == "list" else [""]
    paths = [native.package_name() + "/" + name for name in names]
    default = all([any([part in _TEST_FOLDERS for part in path.split("/")[:-1]]) for path in paths])
    return default if testonly == None else testonly


def _with(labels, others):
    """`labels`, and those of `others` that they lack."""
    named = [Label(label) for label in labels if "//" in label] if type(labels) == "list" else []
    return labels + [str(Label(other)) for other in others if Label(other) not in named]


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
