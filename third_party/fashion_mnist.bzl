"""The four Fashion-MNIST files (IDX in gzip), from Debian's dataset-fashion-mnist or from LOCKSTEP_FASHION_MNIST."""

_FILES = [
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
]


def _fashion_mnist_impl(ctx):
    directory = ctx.os.environ.get("LOCKSTEP_FASHION_MNIST") or "/usr/share/datasets/fashion-mnist"
    for name in _FILES:
        source = ctx.path(directory + "/" + name)
        if not source.exists:
            fail(
                "Fashion-MNIST: there is no %s. Install Debian's dataset-fashion-mnist (./bazelw does so), or set LOCKSTEP_FASHION_MNIST to a folder that has %s."
                % (source, ", ".join(_FILES))
            )
        ctx.symlink(source, name)
    ctx.file(
        "BUILD",
        'filegroup(\n    name = "data",\n    srcs = %r,\n    visibility = ["//visibility:public"],\n)\n' % _FILES,
    )


fashion_mnist_repository = repository_rule(
    implementation = _fashion_mnist_impl,
    environ = ["LOCKSTEP_FASHION_MNIST"],
)
