"""A public target that has gone or moved is named in CHANGELOG.md."""

import ast

import targets

_PUBLIC = "//visibility:public"


def public(build_files):
    """The public labels of {path: text}. A name that a BUILD file computes is left out."""
    found = set()
    for path, text in build_files.items():
        package = targets.package_of(path)
        for _, keywords in targets.rules_of(text, package):
            visibility, name = keywords.get("visibility"), keywords.get("name")
            if visibility is not None and isinstance(name, ast.Constant) and _PUBLIC in ast.unparse(visibility):
                found.add(f"//{package}:{name.value}")
    return found


def gone(before, after, changes):
    """`before` and `after`: {path: text} of BUILD files; `changes`: the text of CHANGELOG.md."""
    for label in sorted(public(before) - public(after)):
        package, _, name = label[2:].partition(":")
        short = f"//{package}" if package.rpartition("/")[2] == name else label
        if f"`{label}`" not in changes and f"`{short}`" not in changes:
            yield f"{package}/BUILD: the public target {short} has gone: say in CHANGELOG.md what its users write"
