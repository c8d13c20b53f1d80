"""Sphinx builds the site from here: `make docs`. Warnings are errors, and nothing is fetched from the network."""

import os
import sys
import warnings
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # predictable on busy machines, where threads wait for each other
sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import firm

project = "FIRM"
author = "FIRM developers"
copyright = "2026, the FIRM developers"
version = release = firm.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "mathml",  # docs/_ext
    "docstrings",
    "pages",
]
exclude_patterns = ["_build", "**/*.ipynb"]
default_role = "py:obj"  # single backticks link where the name is known, and are code elsewhere
highlight_language = "none"

html_theme = "furo"
html_title = f"FIRM {release}"
html_static_path = ["_static"]
html_css_files = ["firm.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
html_math_renderer = "mathml"
templates_path = ["_templates"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_typehints_format = "short"
autosummary_generate = True
autosummary_ignore_module_all = True
napoleon_google_docstring = False
napoleon_use_ivar = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "write_computation_times": False,  # that page fetches scripts from outside
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
    "show_memory": False,
    "capture_repr": (),
    "abort_on_example_error": True,
    "thumbnail_size": (400, 260),
    "matplotlib_animations": False,
}
warnings.filterwarnings("ignore", category=UserWarning, message=".*non-interactive.*")
