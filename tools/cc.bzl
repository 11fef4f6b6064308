"""cc_library, cc_binary and cc_test with Lockstep's language standard, warnings and include prefix, and nothing else; and link_only."""

_COPTS = ["-std=c++17", "-Wall", "-Wextra", "-Wno-sign-compare", "-Wno-unused-parameter"]


def cc_library(copts = [], **kwargs):
    # Headers are included as "lockstep/<folder>/<file>.h".
    package = native.package_name()
    native.cc_library(
        copts = _COPTS + copts, strip_include_prefix = "/" + package, include_prefix = "lockstep/" + package, **kwargs
    )


def cc_binary(copts = [], **kwargs):
    native.cc_binary(copts = _COPTS + copts, **kwargs)


def cc_test(copts = [], deps = [], **kwargs):
    native.cc_test(copts = _COPTS + copts, deps = deps + [str(Label("//third_party:gtest_main"))], **kwargs)


def _link_only(ctx):
    return [CcInfo(linking_context = ctx.attr.library[CcInfo].linking_context)]


# `library` for the linker alone: no include path of it reaches the compile command of what depends on this. So what an
# optional part is made of does not compile its users anew.
link_only = rule(
    implementation = _link_only,
    attrs = {"library": attr.label(providers = [CcInfo], mandatory = True)},
)
