"""A library that the operating system provides, as a repository with one target, `//:lib`."""

_PREFIXES = ["/usr/include", "/usr/local/include"]
_LIBRARY_FOLDERS = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
]

_BUILD = """
load("@lockstep_rules//:cc.bzl", "cc_library")

cc_library(
    name = "lib",
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
"""


# Of the names that a library has in one release of the system or another, the one that is here; else the first.
def _name_here(ctx, names):
    for name in names:
        if [f for f in _LIBRARY_FOLDERS if ctx.path("%s/lib%s.so" % (f, name)).exists]:
            return name
    return names[0]


def _system_library_impl(ctx):
    for header in ctx.attr.headers:
        if not [p for p in _PREFIXES if ctx.path(p + "/" + header).exists]:
            fail(
                "%s: %s is in none of %s. Install it (Debian: apt-get install %s; ./bazelw does so), or declare a repository of your own named %s with a target //:lib before calling lockstep_repositories()."
                % (ctx.name, header, ", ".join(_PREFIXES), ctx.attr.package, ctx.name)
            )
    linkopts = ["-l" + _name_here(ctx, library.split("|")) for library in ctx.attr.libraries] + ctx.attr.linkopts
    ctx.file("BUILD", _BUILD.format(linkopts = repr(linkopts)))


system_library = repository_rule(
    implementation = _system_library_impl,
    doc = "Headers are found on the compiler's own path; the rule checks that they are there and says what to install.",
    local = True,
    attrs = {
        "package": attr.string(mandatory = True, doc = "Debian's package, named in the error."),
        "headers": attr.string_list(mandatory = True),
        "libraries": attr.string_list(
            doc = "Names as the linker's -l takes them, users before what they use. `lept|leptonica`: either."
        ),
        "linkopts": attr.string_list(),
    },
)
