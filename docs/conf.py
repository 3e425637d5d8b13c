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
    'sphinx_gallery.gen_gallery',
    'sphinxcontrib.mermaid',
]
exclude_patterns = ['joss', 'tutorials']
sphinx_gallery_conf = {
    'examples_dirs': 'tutorials',
    'gallery_dirs': 'gallery',
    'within_subsection_order': 'FileNameSortKey',
    'abort_on_example_error': True,
    'download_all_examples': False,
    'remove_config_comments': True,
    'show_memory': False,
    'matplotlib_animations': False,
}
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

TUTORIALS = re.compile(r'\]\(tutorials/(\w+)\.py\)')
"""Links to the scripts of the gallery."""


def name_other_files(app, name, source):
    """Link scripts to their pages, and replace links to files outside docs/ by their paths."""
    source[0] = TUTORIALS.sub(r'](gallery/\1.rst)', source[0])
    source[0] = ELSEWHERE.sub(
        lambda link: f'`{link[2]}`' if link[1] == link[2] else f'{link[1]} (`{link[2]}`)', source[0]
    )


def setup(app):
    """Convert links that only work in the repository."""
    app.connect('source-read', name_other_files)
