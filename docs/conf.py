"""How `make docs` builds the site: the Markdown pages here, and an API reference from docstrings.

Nothing is fetched, neither when it is built nor when it is read.
"""

import re
import sys
from pathlib import Path
from typing import Any

from docutils.nodes import document, literal
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))

from dasp import __version__

project, author, copyright = "dasp", "the authors of dasp", "MIT licence"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "command_help"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_*"]
nitpicky = True
# Types of torch, numpy and Python have their pages elsewhere; of ours, only public names have one.
nitpick_ignore_regex = [("py:.*", r".*")]

myst_heading_anchors = 4  # headings are linked to by their words, as forges do
myst_enable_extensions = ["deflist"]
suppress_warnings = ["config.cache"]

html_theme = "furo"
html_title = f"dasp {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = html_show_copyright = False
html_copy_source = html_show_search_summary = False  # nothing is fetched: search works from a file
html_theme_options = {"top_of_page_buttons": []}
pygments_style, pygments_dark_style = "friendly", "monokai"

# Docstrings are plain text in which `names` are code.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 80
add_module_names = False
napoleon_numpy_docstring = False


LIST = re.compile(r"- |:|\.\. ")  # what follows it indented belongs to it
SIGN = re.compile(r"(\*\w+\*|\\[*|])|[*|]")  # an emphasised word or one escaped, or else a sign
ASIDE: dict[str, list[str]] = {}


def outside(_app: Sphinx, page: document) -> None:
    """Show a link to a folder outside docs/, such as one of results, as its path."""
    for link in list(page.findall(pending_xref)):
        if link.get("reftarget", "").startswith("../"):
            link.replace_self(literal("", link.astext()))


def plain(_app: Sphinx, _kind: str, name: str, _of: Any, _options: Any, lines: list[str]) -> None:
    """Keep signs of formulas (*, |) in docstrings from being read as markup, and show code as code.

    A block is code if it is indented after a blank line, as in Markdown.
    """
    lines[:] = ASIDE.pop(name, lines)
    made: list[str] = []
    code, last = False, ""
    for line in lines:
        inset = line.startswith("    ")
        if line.strip():
            if inset and not code and made and not made[-1] and not LIST.match(last):
                made += ["::", ""]
                code = True
            code = code and inset
            last = line if not inset else last
        made.append(line if code or ">>>" in line else _escaped(line))
    lines[:] = made


def _escaped(line: str) -> str:
    pieces = line.split("`")  # every other piece is code
    pieces[::2] = [SIGN.sub(lambda found: found[1] or "\\" + found[0], p) for p in pieces[::2]]
    return "`".join(pieces)


def keep(_app: Sphinx, kind: str, name: str, _of: Any, _options: Any, lines: list[str]) -> None:
    """Set a property's words aside: napoleon would take those before a colon for its type."""
    if kind in ("property", "attribute", "data"):
        ASIDE[name] = list(lines)


def setup(app: Sphinx) -> None:
    """Hook them in."""
    app.connect("doctree-read", outside)
    app.connect("autodoc-process-docstring", keep, priority=100)  # before napoleon
    app.connect("autodoc-process-docstring", plain, priority=900)  # after napoleon
