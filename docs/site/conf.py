"""Sphinx's settings for the pages that build.py puts together."""

import gc
import pathlib
import re
import sys

gc.set_threshold(200_000, 20, 20)  # looking for cycles among the nodes takes most of the time otherwise

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools/lint"))
import documents
import pygments.lexers
import sphinx.highlighting
from sphinx.domains.cpp import CPPDomain

sphinx.highlighting.lexers["bazelrc"] = pygments.lexers.BashLexer()

# The search finds functions, and not each of their parameters too.
_all_objects = CPPDomain.get_objects
CPPDomain.get_objects = lambda self: (each for each in _all_objects(self) if not each[2].endswith("Param"))

project = "Lockstep"
release = re.search(r'LOCKSTEP_VERSION "(.*)"', (ROOT / "base/version.h").read_text())[1]
copyright = "the authors of Lockstep, BSD-3-Clause"
extensions = ["myst_parser"]
root_doc = "index"
html_theme = "furo"
html_title = f"Lockstep {release}"
html_static_path = ["style.css"]
html_css_files = ["style.css"]
html_copy_source = html_show_sphinx = False
html_domain_indices = False
highlight_language = "text"
primary_domain = "cpp"
myst_heading_anchors = 6
myst_heading_slug_func = documents.slug
suppress_warnings = ["myst.header"]
