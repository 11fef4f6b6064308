"""Which LibTorch @libtorch is, for MODULE.bazel.

  libtorch = use_extension("@libtorch//:extensions.bzl", "libtorch")
  libtorch.wheel(version = "2.15.0")   # pinned wheels through pip; 2.11.0 without any tag. cuda = True links the CUDA part too
  libtorch.path(path = "/opt/libtorch")   # or: an unpacked LibTorch
  libtorch.python(interpreter = "/usr/bin/python3.12")   # or: what this Python has

Only the root module's tag counts, and only one.
"""

load(":libtorch.bzl", "libtorch_repository")


def _chosen(module_ctx):
    for module in module_ctx.modules:
        if not module.is_root:
            continue
        tags = [({"version": tag.version}, tag.cuda) for tag in module.tags.wheel]
        tags += [({"path": tag.path}, tag.cuda) for tag in module.tags.path]
        tags += [({"python": tag.interpreter, "version": "installed"}, tag.cuda) for tag in module.tags.python]
        if len(tags) > 1:
            fail(
                "module %s: %d tags say which LibTorch; expected one of wheel, path and python"
                % (module.name, len(tags))
            )
        if tags:
            return tags[0]
    return {}, False


def _libtorch_impl(module_ctx):
    which, cuda = _chosen(module_ctx)
    chosen = "@lockstep_libtorch_cuda//:torch" if cuda else ":torch"
    libtorch_repository(name = "lockstep_libtorch", chosen = chosen, cuda = False, **which)
    libtorch_repository(name = "lockstep_libtorch_cuda", cuda = True, **which)


_CUDA = {"cuda": attr.bool(doc = "Programs that depend on @libtorch link its CUDA part too.")}

libtorch = module_extension(
    implementation = _libtorch_impl,
    tag_classes = {
        "path": tag_class(attrs = dict(_CUDA, path = attr.string(mandatory = True))),
        "python": tag_class(attrs = dict(_CUDA, interpreter = attr.string(default = "python3"))),
        "wheel": tag_class(attrs = dict(_CUDA, version = attr.string(mandatory = True))),
    },
)
