#!/usr/bin/env python3
"""Writes modules.json: the Bazel modules that Lockstep names, as the Bazel Central Registry has them.

  look_up.py CLONE [COMMIT]   CLONE: a clone of bazelbuild/bazel-central-registry; COMMIT: HEAD by default

It looks up each module that a MODULE.bazel of this tree or modules.json names, in each version named there. To add one, write it into
modules.json with any level. Each gets the compatibility level of the registry's own MODULE.bazel, and is an error if the registry lacks
it. Modules of this tree are left out.
"""

import ast
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "tools/registry/modules.json"


def calls(text):
    """(function, {argument: value}, line) of each call in a MODULE.bazel whose arguments are constants."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            constants = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
            yield node.func.id, constants, node.lineno


def own(texts):
    """{module: {version: level}} of the modules that {path: text} of MODULE.bazel files are."""
    found = [call for text in texts.values() for function, call, _ in calls(text) if function == "module"]
    return {
        call["name"]: {call.get("version", ""): call.get("compatibility_level", 0)} for call in found if "name" in call
    }


def asked_for(texts):
    """(path, line, module, version, highest level or None) of each module that {path: text} of MODULE.bazel files name."""
    for path, text in texts.items():
        for function, call, line in calls(text):
            if function in ("bazel_dep", "single_version_override"):
                name = call.get("name") or call.get("module_name")
                yield path, line, name, call.get("version", ""), call.get("max_compatibility_level")


def git(clone, *arguments):
    run = subprocess.run(["git", "-C", clone, *arguments], capture_output=True, text=True)
    return run.stdout.strip() if run.returncode == 0 else None


def level(clone, commit, name, version):
    """The compatibility level, or None if the registry has no such module."""
    text = git(clone, "show", f"{commit}:modules/{name}/{version}/MODULE.bazel")
    if text is None:
        return None
    return next((call.get("compatibility_level", 0) for function, call, _ in calls(text) if function == "module"), 0)


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    clone = sys.argv[1]
    commit = git(clone, "rev-parse", "--verify", "--quiet", (*sys.argv[2:], "HEAD")[0] + "^{commit}")
    if not commit:
        sys.exit(f"look_up.py: {clone} is no clone that has the commit {(*sys.argv[2:], 'HEAD')[0]}")
    wanted = {name: list(versions) for name, versions in json.loads(TABLE.read_text())["modules"].items()}
    texts = {path: path.read_text() for path in ROOT.rglob("MODULE.bazel")}
    for _, _, name, version, _ in asked_for(texts):
        if name not in own(texts) and version not in wanted.setdefault(name, []):
            wanted[name].append(version)
    levels = {
        name: {version: level(clone, commit, name, version) for version in wanted[name]} for name in sorted(wanted)
    }
    missing = [f"{name} {v}" for name, versions in levels.items() for v, found in versions.items() if found is None]
    if missing:
        sys.exit(f"look_up.py: commit {commit} of the registry lacks {', '.join(missing)}: nothing was written")
    date = git(clone, "show", "--no-patch", "--format=%cs", commit)
    TABLE.write_text(json.dumps({"commit": commit, "date": date, "modules": levels}, indent=1) + "\n")


if __name__ == "__main__":
    main()
