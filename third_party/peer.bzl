"""The Python PyTorch that the peer tests compare with, as a repository: `//:python` runs an interpreter that can import it, torchvision,
safetensors and sentencepiece."""

load("//third_party/libtorch:libtorch.bzl", "ATTRIBUTES", "ENVIRONMENT", "run_fetch_torch")


def _peer_impl(ctx):
    python = run_fetch_torch(ctx, "peer")
    paths = ":".join([str(ctx.path(folder).realpath) for folder in ["site-packages", "peers"]])
    ctx.file("python.sh", "#!/bin/sh\nPYTHONPATH='%s'${PYTHONPATH:+:$PYTHONPATH} exec '%s' \"$@\"\n" % (paths, python))
    ctx.file(
        "BUILD",
        'load("@lockstep_rules//:sh.bzl", "sh_binary")\n\nsh_binary(\n    name = "python",\n    srcs = ["python.sh"],\n    visibility = ["//visibility:public"],\n)\n',
    )


peer_repository = repository_rule(
    implementation = _peer_impl,
    environ = ENVIRONMENT,
    attrs = ATTRIBUTES,
)
