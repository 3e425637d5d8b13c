"""Configuration of Sphinx: `make docs` builds these pages and the docstrings."""

import re

from surreal_bids import __version__

project = 'surreal_bids'
author = 'The surreal_bids developers'
version = release = __version__
extensions = [
    'myst_parser',
    'sphinx.ext.autodoc',
    'sphinx.ext.napoleon',
    'sphinxcontrib.mermaid',
]
html_theme = 'furo'
html_title = f'surreal_bids {release}'
html_copy_source = False
myst_fence_as_directive = ['mermaid']
myst_heading_anchors = 3
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
autodoc_member_order = 'bysource'
autodoc_typehints = 'none'
nitpicky = False

ELSEWHERE = re.compile(r'\[([^\]]+)\]\(\.\./([^)]+)\)')
"""Links to files of the repository outside docs/."""


def name_other_files(app, name, source):
    """Replace links to files outside docs/ by their paths."""
    source[0] = ELSEWHERE.sub(
        lambda link: f'`{link[2]}`' if link[1] == link[2] else f'{link[1]} (`{link[2]}`)', source[0]
    )


def setup(app):
    """Convert links that only work in the repository."""
    app.connect('source-read', name_other_files)
