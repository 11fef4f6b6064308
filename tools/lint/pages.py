"""Pages and pictures that repeat what other files say: which target has which header, the plan of the folders, and more."""

import ast
import pathlib
import re
import sys

import cmake_sources
import plan
import rooms
import terminal
from targets import rules_of

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
import figures
import plot
import scaling
import scaling_sharded
import transformer_memory

HEADERS_PAGE = "docs/headers.md"
PERFORMANCE_PAGE = "docs/performance.md"

_PUBLIC = "//visibility:public"
_DOCUMENTED = re.compile(r"\A//|^//.*\n(?!//|#|namespace|\}|\n|(?:class|struct) \w+;)", re.M)
_PAGE = """# Headers and targets

This page lists the target to depend on for each public header, in Bazel and in [CMake](cmake.md).
`tools/lint/lint --fix` writes it from the `BUILD` files. Headers without a CMake target are for
tests.

| header | target | CMake |
|---|---|---|
{headers}

Targets without a header, for a program to link or run:

{others}
"""


def _strings(value):
    return [node.value for node in ast.walk(value) if isinstance(node, ast.Constant)] if value else []


def _label(package, name):
    return f"@lockstep//{package}" if package.split("/")[-1] == name else f"@lockstep//{package}:{name}"


def _cmake_target(package, name, keywords):
    component = "testonly" not in keywords and cmake_sources.component_of(f"//{package}:{name}")
    return f"`lockstep::{component}`" if component else ""


def public_targets(build_files):
    """{label: (the headers that users may include, the CMake target)} of each public library and program; an alias counts for its
    target."""
    headers, aliases = {}, {}
    for path, text in build_files.items():
        package = str(pathlib.PurePath(path).parent)
        for kind, keywords in rules_of(text, package):
            name = (_strings(keywords.get("name")) or [""])[0]
            if _PUBLIC not in _strings(keywords.get("visibility")):
                continue
            if kind == "alias":
                actual = _strings(keywords["actual"])[0]
                if actual.startswith(":"):
                    aliases[_label(package, actual[1:])] = _label(package, name)
            elif kind in ("cc_library", "cc_binary", "link_only"):
                own = [header for header in _strings(keywords.get("hdrs")) if "internal/" not in header]
                headers[_label(package, name)] = (
                    [f"lockstep/{package}/{header}" for header in own],
                    _cmake_target(package, name, keywords),
                )
    return {aliases.get(label, label): found for label, found in headers.items()}


def public_headers(build_files):
    """The headers that users may include, other than those for tests."""
    return sorted({header for headers, cmake in public_targets(build_files).values() if cmake for header in headers})


def undocumented_headers(build_files, read):
    """A line for each header of a public target that has neither a comment at its beginning nor one above a declaration.

    `read` returns the text of a file, or None.
    """
    for headers, _ in public_targets(build_files).values():
        for name in (header.removeprefix("lockstep/") for header in headers):
            text = read(name)
            if text is not None and not _DOCUMENTED.search(text):
                yield f"{name}: does not say what it is for: begin it, or its main class, with a comment"


def headers_page(build_files):
    """The page, from {path: text} of the BUILD files."""
    targets = public_targets(build_files)
    rows = sorted((header, label, cmake) for label, (headers, cmake) in targets.items() for header in headers)
    others = [(label, cmake) for label, (headers, cmake) in sorted(targets.items()) if not headers]
    return _PAGE.format(
        headers="\n".join(
            f"| `{header}` | `{label}` | {cmake} |".replace("|  |", "| |") for header, label, cmake in rows
        ),
        others="\n".join(f"- `{label}`" + (f", {cmake}" if cmake else "") for label, cmake in others),
    )


def _build_files(root, files):
    return {
        name: (root / name).read_text()
        for name in files
        if pathlib.PurePath(name).name == "BUILD" and not name.startswith("examples/consumer/")
    }


def wanted(root, files):
    """{name: the text that it should have} of every file that repeats others."""
    build_files = _build_files(root, files)
    of_libraries = {
        name: text for name, text in build_files.items() if not name.startswith(("third_party/", "examples/"))
    }
    plots = plot.of_page((root / PERFORMANCE_PAGE).read_text()) if (root / PERFORMANCE_PAGE).is_file() else {}
    model = scaling.of_root(root) if (root / scaling.PAGE).is_file() else {}
    sharded = scaling_sharded.of_root(root) if (root / scaling_sharded.PAGE).is_file() else {}
    memory = transformer_memory.of_root(root) if (root / transformer_memory.PAGE).is_file() else {}
    runs = {
        drawn: terminal.picture((root / text).read_text())
        for drawn, text in terminal.PICTURES.items()
        if (root / text).is_file()
    }
    sources = (
        {cmake_sources.PAGE: cmake_sources.page(of_libraries, lambda name: (root / name).read_text())}
        if (root / cmake_sources.PAGE).is_file()
        else {}
    )
    return {
        **runs,
        **sources,
        **model,
        **sharded,
        **memory,
        **{f"docs/{plot.FOLDER}/{name}.svg": text for name, text in plots.items()},
        HEADERS_PAGE: headers_page(of_libraries),
        plan.PICTURE: plan.picture(build_files, (root / plan.PAGE).read_text()),
    }


def check(root, files, fix):
    """The pages and pictures that are out of date, unless `fix`, which writes them."""
    try:
        pages = wanted(root, files)
    except (cmake_sources.CannotWrite, rooms.CannotDraw, figures.Missing) as error:
        return [str(error)]
    problems = plan.missing_folders(files, (root / plan.PAGE).read_text())
    read = lambda name: (root / name).read_text() if name in files else None
    problems += undocumented_headers(_build_files(root, files), read)
    for name, text in pages.items():
        if (root / name).is_file() and (root / name).read_text() == text:
            continue
        if fix:
            (root / name).write_text(text)
            print(f"{name}: written")
        else:
            problems.append(f"{name}: differs from what it repeats: run tools/lint/lint --fix")
    return problems
