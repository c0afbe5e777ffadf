"""The documentation as a site: `make site` builds it into docs/_build/html, and a warning is an error.

Guides are written by hand; pages of operators come from the catalogue (`make docs` writes their text, and the
extension `operator_pictures` draws their pictures while the site is built); the pages in api/ read docstrings.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "torch")  # Keras chooses when it is loaded, which must be before mocks

import rowgrad
import rowgrad.keras

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))

project = "rowgrad"
author = "rowgrad developers"
project_copyright = "rowgrad developers"
release = version = rowgrad.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "operator_pictures",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build", "_generated"]
templates_path: list[str] = []

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
# Snippets that show errors and output of commands have no lexer of their own.
suppress_warnings = ["misc.highlighting_failure"]

autodoc_mock_imports = ["tensorflow"]  # its look-ups are documented without it
autodoc_typehints = "none"  # numpydoc's sections state types in words
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# Names that the pages link to, without a look at the network: `docs/inventories.py` writes these files.
intersphinx_mapping = {
    name: (address, str(HERE / "_inventories" / f"{name}.inv"))
    for name, address in {
        "python": "https://docs.python.org/3/",
        "numpy": "https://numpy.org/doc/stable/",
        "torch": "https://docs.pytorch.org/docs/stable/",
        "jax": "https://docs.jax.dev/en/latest/",
    }.items()
}

html_theme = "pydata_sphinx_theme"
html_title = "rowgrad"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
    "logo": {"text": "rowgrad"},
}
html_sidebars = {"index": [], "start": []}  # they have no pages below them

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
