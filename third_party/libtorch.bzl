"""LibTorch as a repository: `//:torch` for CPU programs, `//:torch_cuda` where cuda = True.

It is LOCKSTEP_LIBTORCH if that is set, else the active Python's torch if that is the pinned version, else the pinned wheel through pip."""

_BUILD = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "{name}",
    srcs = glob(["lib/*.so", "lib/*.so.*"]),
    hdrs = glob(["include/**"], exclude = ["include/**/*.cuh"]) + glob(["cuda_include/**", "nccl_include/**"]),
    includes = {includes},
    defines = ["USE_DISTRIBUTED", "USE_C10D_GLOO"{defines}],
    linkopts = ["-pthread", "-Wl,--no-as-needed"],
)
"""

ENVIRONMENT = ["LOCKSTEP_LIBTORCH", "LOCKSTEP_PYTHON", "XDG_CACHE_HOME"]


def run_fetch_torch(ctx, kind):
    python = ctx.os.environ.get("LOCKSTEP_PYTHON") or ctx.which("python3")
    if not python:
        fail("LibTorch: there is no python3 to fetch it with: install python3, or set LOCKSTEP_PYTHON")
    ctx.report_progress("looking for LibTorch; fetching it by pip if need be")
    result = ctx.execute([python, ctx.path(Label("//third_party:fetch_torch.py")), kind], timeout = 3600)
    if result.return_code:
        fail(result.stderr.strip() or "fetch_torch.py ended with code %d" % result.return_code)
    return python


def _libtorch_impl(ctx):
    run_fetch_torch(ctx, "cuda" if ctx.attr.cuda else "cpu")
    includes = ["include", "include/torch/csrc/api/include"]
    if ctx.attr.cuda:
        includes += [d for d in ["cuda_include", "nccl_include"] if ctx.path(d).exists]
    ctx.file(
        "BUILD",
        _BUILD.format(
            name = "torch_cuda" if ctx.attr.cuda else "torch",
            includes = repr(includes),
            defines = ', "USE_C10D_NCCL", "LOCKSTEP_CUDA"' if ctx.attr.cuda else "",
        ),
    )


libtorch_repository = repository_rule(
    implementation = _libtorch_impl,
    environ = ENVIRONMENT,
    attrs = {"cuda": attr.bool(mandatory = True)},
)
