"""The documentation: `make docs` builds it from these pages and the docstrings."""

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
"""Links to files of the repository that are no pages."""


def name_other_files(app, name, source):
    """Write the path of a file that is no page, where the page on its own would link to it."""
    source[0] = ELSEWHERE.sub(
        lambda link: f'`{link[2]}`' if link[1] == link[2] else f'{link[1]} (`{link[2]}`)', source[0]
    )


def setup(app):
    """Read pages as they are on their own, too: links work in the repository and here."""
    app.connect('source-read', name_other_files)
