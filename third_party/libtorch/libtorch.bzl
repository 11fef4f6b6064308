"""LibTorch as two repositories: @lockstep_libtorch, what CPU programs need, and @lockstep_libtorch_cuda (cuda = True), only what CUDA adds to it:
libraries to link, and the headers of CUDA and NCCL. So a source that includes neither compiles alike with and without --config=cuda.
Both have these names in a WORKSPACE of Lockstep and for extensions.bzl.

It is LOCKSTEP_LIBTORCH if that is set, else the active Python's torch if that is the pinned version, else the pinned wheel through pip."""

_CPU_BUILD = """
load("{rules}", "cc_library")

package(default_visibility = ["//visibility:public"])

cc_library(
    name = "torch",
    srcs = glob(["lib/*.so", "lib/*.so.*"], allow_empty = True),
    hdrs = glob(["include/**"], exclude = ["include/**/*.cuh"]),
    includes = ["include", "include/torch/csrc/api/include"],
    defines = ["USE_DISTRIBUTED", "USE_C10D_GLOO"],
    linkopts = ["-pthread", "-Wl,--no-as-needed"],
)

# What a program links that depends on @libtorch.
alias(
    name = "chosen",
    actual = "{chosen}",
)
"""

_CUDA_BUILD = """
load("{rules}", "cc_library")

package(default_visibility = ["//visibility:public"])

filegroup(
    name = "libraries",
    srcs = glob(["lib/*.so", "lib/*.so.*"], allow_empty = True),
)

# What LibTorch loads when it needs it, by its name. The old kind of run path is searched then, too.
cc_library(
    name = "loaded_later",
    linkopts = ["-Wl,--disable-new-dtags", "-Wl,-rpath,{folder}"],
)

cc_library(
    name = "headers",
    hdrs = glob(["cuda_include/**", "nccl_include/**"], allow_empty = True),
    includes = {includes},
)

cc_library(
    name = "torch",
    srcs = [":libraries"],
    deps = [
        ":headers",
        ":loaded_later",
        "@lockstep_libtorch//:torch",
    ],
)
"""

ENVIRONMENT = ["LOCKSTEP_LIBTORCH", "LOCKSTEP_LIBTORCH_VERSION", "LOCKSTEP_PYTHON", "XDG_CACHE_HOME"]

# Which LibTorch. Of each, the variable of the environment wins.
ATTRIBUTES = {
    "path": attr.string(doc = "LOCKSTEP_LIBTORCH: an unpacked LibTorch or a `torch` folder."),
    "python": attr.string(doc = "LOCKSTEP_PYTHON: the interpreter that finds or fetches it."),
    "version": attr.string(
        doc = "LOCKSTEP_LIBTORCH_VERSION: such as 2.11.0, the default, or `installed` for whatever the interpreter has.",
    ),
    "_files": attr.label_list(default = [":fetch_torch.py", ":wheels.json"]),
}


def run_fetch_torch(ctx, kind):
    """Lays out LibTorch of ctx.attr.version, or of the environment's, in the repository. Returns the Python that did."""
    environment = ctx.os.environ
    python = environment.get("LOCKSTEP_PYTHON") or ctx.attr.python or ctx.which("python3")
    if not python:
        fail("LibTorch: there is no python3 to fetch it with: install python3, or set LOCKSTEP_PYTHON")
    named = {} if environment.get("LOCKSTEP_LIBTORCH") or not ctx.attr.path else {"LOCKSTEP_LIBTORCH": ctx.attr.path}
    script, _ = [ctx.path(label) for label in ctx.attr._files]
    ctx.report_progress("looking for LibTorch; fetching it by pip if need be")
    result = ctx.execute(
        [python, script, kind, ctx.attr.version],
        timeout = 3600,
        environment = named,
    )
    if result.return_code:
        fail(result.stderr.strip() or "fetch_torch.py ended with code %d" % result.return_code)
    return python


def _libtorch_impl(ctx):
    run_fetch_torch(ctx, "cuda" if ctx.attr.cuda else "cpu")
    if ctx.attr.cuda:
        includes = [d for d in ["cuda_include", "nccl_include"] if ctx.path(d).exists]
        folder = str(ctx.path("lib/libtorch_cuda.so").realpath.dirname)
        ctx.file("BUILD", _CUDA_BUILD.format(folder = folder, includes = repr(includes), rules = ctx.attr.rules))
    else:
        ctx.file("BUILD", _CPU_BUILD.format(chosen = ctx.attr.chosen, rules = ctx.attr.rules))


libtorch_repository = repository_rule(
    implementation = _libtorch_impl,
    environ = ENVIRONMENT,
    attrs = dict(
        ATTRIBUTES,
        chosen = attr.string(default = ":torch", doc = "The target behind @libtorch, of the repository without CUDA."),
        cuda = attr.bool(mandatory = True),
        rules = attr.string(default = "@rules_cc//cc:defs.bzl", doc = "The file with the rules for C++."),
    ),
)
