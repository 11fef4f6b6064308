"""A library that the operating system provides, as a repository with one target, `//:lib`."""

_PREFIXES = [
    "/usr/include",
    "/usr/local/include",
    "/usr/include/x86_64-linux-gnu",
    "/usr/include/aarch64-linux-gnu",
]
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
    defines = {defines},
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


def _pkg_config_file(ctx, module):
    for folder in _LIBRARY_FOLDERS + ["/usr/share"]:
        path = ctx.path("%s/pkgconfig/%s.pc" % (folder, module))
        if path.exists:
            return ctx.read(path)
    fail(
        "%s: %s.pc is in the folder pkgconfig of none of %s. Install it (Debian: apt-get install %s; ./bazelw does so), or declare a repository of your own named %s with a target //:lib before calling lockstep_repositories()."
        % (ctx.name, module, ", ".join(_LIBRARY_FOLDERS), ctx.attr.package, ctx.name)
    )


# The words of a field such as "Requires: absl_base = 20220623, absl_strings = 20220623".
def _words(text, field):
    for line in text.splitlines():
        if line.startswith(field + ":"):
            return line[len(field) + 1 :].replace(",", " ").split(" ")
    return []


# {module: (the libraries that it is, the modules that it uses)} of the named ones and all that they use.
def _modules(ctx, named):
    found, names = {}, list(named)

    # Starlark has no `while`: the list grows while it is read, up to any number that a library could have.
    for i in range(10000):
        if i == len(names):
            break
        module = names[i]
        if module in found:
            continue
        text = _pkg_config_file(ctx, module)
        prefix = module.split("_")[0] + "_"

        # Of its own archives: Debian adds -lrt and -latomic, which x86-64 does not need.
        libraries = [word[2:] for word in _words(text, "Libs") if word.startswith("-l" + prefix)]
        words = _words(text, "Requires") + _words(text, "Requires.private")
        uses = [word for word in words if word.startswith(prefix) and word != module]
        found[module] = (libraries, uses)
        names += uses
    return found


# The libraries of the modules and of all that they use: static archives, so users come before what they use.
def _libraries_of_modules(ctx, named):
    modules = _modules(ctx, named)
    users = {module: 0 for module in modules}
    for _, uses in modules.values():
        for used in uses:
            users[used] += 1
    ready = [module for module in modules if users[module] == 0]
    libraries = []
    for i in range(len(modules)):
        if i == len(ready):
            waiting = [module for module in modules if module not in ready]
            fail("%s: these modules of %s require each other: %s" % (ctx.name, ctx.attr.package, ", ".join(waiting)))
        own, uses = modules[ready[i]]
        libraries += [library for library in own if library not in libraries]
        for used in uses:
            users[used] -= 1
            if users[used] == 0:
                ready.append(used)
    return libraries


def _is_here(ctx, header):
    return bool([p for p in _PREFIXES if ctx.path(p + "/" + header).exists])


def _system_library_impl(ctx):
    for header in ctx.attr.headers:
        if not _is_here(ctx, header):
            fail(
                "%s: %s is in none of %s. Install it (Debian: apt-get install %s; ./bazelw does so), or declare a repository of your own named %s with a target //:lib before calling lockstep_repositories()."
                % (ctx.name, header, ", ".join(_PREFIXES), ctx.attr.package, ctx.name)
            )
    libraries = [_name_here(ctx, library.split("|")) for library in ctx.attr.libraries]
    libraries += _libraries_of_modules(ctx, ctx.attr.modules)
    linkopts = ["-l" + library for library in libraries] + ctx.attr.linkopts
    defines = [macro for macro, header in ctx.attr.defines.items() if _is_here(ctx, header)]
    ctx.file("BUILD", _BUILD.format(defines = repr(defines), linkopts = repr(linkopts)))


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
        "defines": attr.string_dict(
            doc = "Macros for what includes its headers, each with a header of the releases that want it."
        ),
        "modules": attr.string_list(
            doc = "Names of pkg-config files: their libraries are linked, and those of all that they require."
        ),
    },
)
