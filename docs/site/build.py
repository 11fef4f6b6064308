#!/usr/bin/env python3
"""Writes the documentation as a site, which needs no server and no network.

  docs/site/build.py FOLDER           writes it into a new folder: open FOLDER/index.html
  docs/site/build.py --serve [PORT]   writes it, and serves it at http://localhost:PORT (8000) until Ctrl-C

The pages are the Markdown files of this tree, and one page for each public target with the declarations and comments of its
headers. Doxygen reads the headers, and Sphinx writes the HTML. Debian's packages of both are installed if they are missing.
The exit code is 1, with a line for each problem, if a link leads nowhere or a page needs the network.
"""

import functools
import html
import http.server
import os
import pathlib
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools/lint"))
import api
import documents
import pages

# Each with a file that shows it is there.
PACKAGES = {
    "doxygen": "/usr/bin/doxygen",
    "furo": "/usr/lib/python3/dist-packages/furo",
    "python3-myst-parser": "/usr/lib/python3/dist-packages/myst_parser",
    "python3-sphinx": "/usr/bin/sphinx-build",
}
LANGUAGES = {".cc": "cpp", ".h": "cpp", ".py": "python", ".cmake": "cmake"}
ORPHAN = "---\norphan: true\n---\n"  # reached by links, and not listed in the side bar
_LINK_OR_CODE = re.compile(f"{documents.LINK.pattern}|`([\\w@/:.]+)`")


def page_of(label):
    """The page of a public target: targets/comm-store.md of @lockstep//comm/store, comm--backend.md of @lockstep//comm:backend."""
    return f"targets/{label.removeprefix('@lockstep//').replace('/', '-').replace(':', '--')}.md"


def toctree(names, caption=""):
    """Pages, named from the root, that stand below a page in the side bar."""
    entries = "\n".join(f"/{name.removesuffix('.md')}" for name in names)
    title = f":caption: {caption}\n" if caption else ""
    return f"\n```{{toctree}}\n:hidden:\n{title}\n{entries}\n```\n" if entries else ""


class Site:
    """The sources of the site in `pages`: {name: text}. `read_headers` makes the Api of the headers that it gets."""

    def __init__(self, root, files, read_headers):
        self._root, self._files = root, set(files)
        self._targets = pages.public_targets(
            {name: self._read(name) for name in files if re.fullmatch(r"(?!third_party|examples).*/BUILD", name)}
        )
        self._label_of = {header: label for label, (headers, _) in self._targets.items() for header in headers}
        self._api = read_headers([header.removeprefix("lockstep/") for header in sorted(self._label_of)])
        self.pages = {}
        markdown = [name for name in files if name.endswith(".md") and not name.startswith(".")]
        for name in markdown:
            self.pages[self._place(name)] = self._linked(name, self._read(name))
        purposes = self._purposes()
        for label in self._targets:
            self.pages[page_of(label)] = self._target_page(label, purposes.get(label, ""))
        self._add_toctrees(markdown)

    def _read(self, name):
        return (self._root / name).read_text()

    def _place(self, name):
        """The page or picture of a file or folder. A file that is neither a page nor a public header gets a page of its own."""
        names = (name, f"{name}/README.md", f"{name}/BUILD")
        name = next((file for file in names if file in self._files), None)
        if name is None:
            return names[0]  # a dead link, which Sphinx reports
        if f"lockstep/{name}" in self._label_of:
            return page_of(self._label_of[f"lockstep/{name}"])
        if name.endswith((".md", ".svg")):
            return "index.md" if name == "README.md" else name
        language = LANGUAGES.get(posixpath.splitext(name)[1], "text")
        self.pages[f"source/{name}.md"] = f"{ORPHAN}\n# {name}\n\n`````{language}\n{self._read(name)}`````\n"
        return f"source/{name}.md"

    def _linked(self, path, text, to=None):
        """The text of a page, with links to pages of the site, and with links from labels and headers in spans of code.

        `to` is the folder of the new page, unless it is the same.
        """
        folder, package = posixpath.dirname(path) or ".", ""

        def follow(match):
            nonlocal package
            if match[3]:
                label = self._label_of.get(match[3]) or package * match[3].startswith(":") + match[3]
                label = "@lockstep" + label if label.startswith("//") else label
                if label.startswith("@lockstep//"):
                    package = label.partition(":")[0]
                if label not in self._targets:
                    return match[0]
                return f"[{match[0]}]({posixpath.relpath(page_of(label), to or folder)})"
            name, _, anchor = (match[1] or match[2]).partition("#")
            if re.match(r"[a-z]+:", name):
                return match[0]
            name = name or posixpath.basename(path)
            place = self._place(posixpath.normpath(posixpath.join(folder, name)))
            place = posixpath.relpath(place, to or folder) + (f"#{anchor}" if anchor else "")
            begin, end = match.span(1 if match[1] else 2)
            return match.string[match.start() : begin] + place + match.string[end : match.end()]

        parts = re.split(r"(^ *```.*?^ *```$)", text, flags=re.M | re.S)
        return "".join(part if i % 2 else _LINK_OR_CODE.sub(follow, part) for i, part in enumerate(parts))

    def _purposes(self):
        """{label: purpose} of the tables in docs/targets.md."""
        purposes = {}
        for labels, purpose in re.findall(r"^\| (`@lockstep.*?) \| (.*) \|$", self._read("docs/targets.md"), re.M):
            package = ""
            for label in re.findall(r"`(.*?)`", labels):
                label = package * label.startswith(":") + label
                package = label.partition(":")[0]
                purposes[label] = self._linked("docs/targets.md", purpose, to="targets")
        return purposes

    def _target_page(self, label, purpose):
        headers, cmake = self._targets[label]
        readme = label.removeprefix("@lockstep//").partition(":")[0] + "/README.md"
        lines = [ORPHAN, f"# `{label}`", purpose, f"- CMake: {cmake}" * bool(cmake)]
        if readme in self._files:
            lines.append(f"- Guide: [{posixpath.dirname(readme)}](../{readme})")
        for header in headers:
            declarations = self._api.page(header.removeprefix("lockstep/"))
            lines += [f"## `{header}`", f"````````{{eval-rst}}\n{declarations}````````"]
        return "\n\n".join(filter(None, lines)) + "\n"

    def _add_toctrees(self, markdown):
        """docs/README.md orders the guides. Another page is below the README of its folder."""
        listed, trees = {"README.md"}, ""
        for caption, group in re.findall(r"^(\w+):\n(.*?)(?=^\w|\Z)", self._read("docs/README.md"), re.M | re.S):
            names = [f"docs/{name}" for name in re.findall(r"\]\((\w[\w-]*\.md)\)", group)]
            names = [name for name in dict.fromkeys(names) if name not in listed]
            listed.update(names)
            trees += toctree(names, caption)
        below = {}
        for name in markdown:
            folders = [str(folder) for folder in pathlib.PurePath(name).parents][:-1]
            parent = next(
                (f"{folder}/README.md" for folder in folders if f"{folder}/README.md" in self._files - {name}), ""
            )
            if name not in listed:
                below.setdefault(parent, []).append(name)
        for parent, names in below.items():
            if parent:
                self.pages[parent] += toctree(names)
        of_root = [name for name in below[""] if "/" not in name]
        self.pages["index.md"] += (
            trees + toctree(sorted(set(below[""]) - set(of_root)), "Folders") + toctree(of_root, "Project")
        )


def _tags(text):
    """(tag, attribute, value) of each id and each link of a page of HTML."""
    for tag, attributes in re.findall(r"<(\w+)\s([^>]*)>", text):
        for name, value in re.findall(r'\b(id|href|src)="([^"]*)"', attributes):
            yield tag, name, html.unescape(value)


def dead_links(folder):
    """A line for each link of the HTML below `folder` that leads nowhere, and for each file that is loaded from elsewhere."""
    found = {page: list(_tags(page.read_text())) for page in sorted(folder.rglob("*.html"))}
    ids = {page: {value for _, name, value in tags if name == "id"} for page, tags in found.items()}
    for page, tags in found.items():
        place = page.relative_to(folder)
        for tag, link in dict.fromkeys((tag, value) for tag, name, value in tags if name != "id"):
            url = urllib.parse.urlsplit(link)
            if url.scheme == "data":
                continue
            if url.scheme or url.netloc:
                if tag != "a":
                    yield f"{place}: loads {link} from the network"
                continue
            target = pathlib.Path(os.path.normpath(page.parent / urllib.parse.unquote(url.path))) if url.path else page
            if not target.is_file():
                yield f"{place}: links to {link}: there is no such file"
            elif target in ids and url.fragment and urllib.parse.unquote(url.fragment) not in ids[target]:
                yield f"{place}: links to {link}: that page has no such anchor"


def install_missing():
    missing = [package for package, file in PACKAGES.items() if not pathlib.Path(file).exists()]
    if not missing:
        return
    as_root = [] if os.geteuid() == 0 else ["sudo"]
    print(f"docs/site/build.py: installing {' '.join(missing)} (apt-get)", file=sys.stderr)
    for command in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
        command = [*as_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", *command]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def build(files, out):
    """Writes the site into the new folder `out`. Returns the problems."""
    with tempfile.TemporaryDirectory() as work:

        def read_headers(headers):
            settings = (
                ROOT / "docs/site/Doxyfile"
            ).read_text() + f"INPUT = {' '.join(headers)}\nOUTPUT_DIRECTORY = {work}\n"
            subprocess.run(["doxygen", "-"], cwd=ROOT, input=settings, text=True, check=True)
            return api.Api(f"{work}/xml", ROOT)

        stage = pathlib.Path(work, "stage")
        texts = Site(ROOT, files, read_headers).pages
        for name in [*texts, *(name for name in files if name.endswith(".svg"))]:
            (stage / name).parent.mkdir(parents=True, exist_ok=True)
            if name in texts:
                (stage / name).write_text(texts[name])
            else:
                shutil.copy(ROOT / name, stage / name)
        command = [
            "/usr/bin/sphinx-build",
            "-q",
            "-W",
            "--keep-going",
            "-c",
            str(ROOT / "docs/site"),
            "-d",
            f"{work}/read",
        ]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}  # the index of the search has sets
        run = subprocess.run(
            [*command, str(stage), str(out)], cwd=work, env=environment, stderr=subprocess.PIPE, text=True
        )
        problems = run.stderr.replace(f"{stage}/", "").splitlines()
    (out / ".buildinfo").unlink(missing_ok=True)
    return problems + list(dead_links(out))


def serve(port):
    with tempfile.TemporaryDirectory() as folder:
        handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
        try:
            server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
        except (OSError, OverflowError) as error:
            sys.exit(f"docs/site/build.py: cannot serve at port {port}: {error}")
        try:
            for problem in build(documents.files_of(ROOT), pathlib.Path(folder)):
                print(problem)
            print(f"http://localhost:{server.server_port}", flush=True)
            server.serve_forever()
        except KeyboardInterrupt:
            return 0


def main():
    arguments = " ".join(sys.argv[1:])
    if serving := re.fullmatch(r"--serve(?: (\d{1,5}))?", arguments):
        install_missing()
        return serve(int(serving[1] or 8000))
    if len(sys.argv) != 2 or arguments.startswith("-"):
        sys.exit(__doc__)
    out = pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), arguments).resolve()
    if out.exists() and any(out.iterdir()):
        sys.exit(f"docs/site/build.py: {out} is not empty")
    install_missing()
    problems = build(documents.files_of(ROOT), out)
    print("\n".join([*problems, f"{out}/index.html: {len(list(out.rglob('*.html')))} pages, {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
