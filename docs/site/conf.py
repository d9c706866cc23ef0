"""Configuration of Sphinx for one language, which the environment variable DOCS_LANGUAGE names."""

from __future__ import annotations

import os

from docs.site.build import ROOT
from visualprof import __version__

_language = os.environ["DOCS_LANGUAGE"]
language = {"en": "en", "zh": "zh_CN"}[_language]
project = "visualprof"
version = release = __version__
project_copyright = "visualprof contributors"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 5  # the same anchors as a repository browser
suppress_warnings = ["myst.header"]  # a page may skip a heading level
autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_numpy_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"visualprof {__version__}"
html_copy_source = False
html_show_sphinx = False
templates_path = [str(ROOT / "docs" / "site" / "templates")]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "language.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_context = {
    "other_language": {"en": "zh", "zh": "en"}[_language],
    "other_language_name": {"en": "中文", "zh": "English"}[_language],
}
