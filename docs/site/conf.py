"""What Sphinx asks for; `python docs/site` makes the pages that it reads."""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "docs/site")]

from docstrings import readable  # noqa: E402

project = "Tilewright"
author = "the Tilewright authors"
release = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
highlight_language = "text"
smartquotes = False  # much of it is code

default_role = "code"
toc_object_entries_show_parents = "hide"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
# Types of other packages, and those that are no part of the interface.
nitpick_ignore_regex = [("py:.*", r"(?!tilewright\.[A-Z]\w*$|tilewright\.te\.\w+$).*")]

html_theme = "furo"
html_title = f"Tilewright {release}"
html_static_path = ["static"]
html_css_files = ["style.css"]
html_copy_source = html_show_copyright = html_show_sourcelink = html_show_sphinx = False


def as_paragraphs(app, what, name, thing, options, lines: list[str]) -> None:
    lines[:] = readable(lines)


MADE_BY_CALLERS = {"ArrayType", "Dim", "Operator", "Schedule"}


def without_inner_arguments(app, what, name, thing, options, signature, returns):
    """What functions of ours give is shown without what makes it."""
    if signature and what == "class" and name.split(".")[-1] not in MADE_BY_CALLERS:
        return "", ""
    return signature, returns


def setup(app) -> None:
    app.connect("autodoc-process-docstring", as_paragraphs)
    app.connect("autodoc-process-signature", without_inner_arguments)
