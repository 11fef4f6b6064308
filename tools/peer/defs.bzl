"""Tests against Python PyTorch of the pinned version."""

load("//third_party:sh_rules.bzl", "sh_test")


def peer_test(name, script = None, inputs = [], data = [], args = [], tags = [], **kwargs):
    """Runs `script` with the Python of //third_party:peer_python; it passes if that exits with 0.

    Run by `./bazelw test --config=peer //...`, not by `./bazelw test //...`. Where PyTorch cannot be had the test fails.

    Args:
      name: the test's name, by custom *_peer_test.
      script: a Python file, usually with `unittest.main()` at its end; <name>.py by default. It may import processes.py.
      inputs: what the script runs or reads and gets as arguments, such as C++ binaries.
      data: what else it runs or reads.
      args: further arguments.
      tags: further tags.
      **kwargs: as for sh_test.
    """
    script = script or name + ".py"
    python = str(Label("//third_party:peer_python"))
    sh_test(
        name = name,
        srcs = [str(Label("//tools/peer:run_peer.sh"))],
        args = ["$(location %s)" % label for label in [python, script] + inputs] + args,
        data = [python, script, str(Label("//tools/peer:processes.py"))] + inputs + data,
        tags = tags + ["peer"],
        **kwargs
    )
