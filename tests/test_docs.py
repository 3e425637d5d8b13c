"""Links between files of the repository lead somewhere, and every page is in the contents."""

import re
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SKIPPED = {'build', 'demo', 'node_modules'}
PAGES = sorted(
    path
    for path in ROOT.rglob('*.md')
    if not any(part in SKIPPED or part.startswith('.venv') for part in path.parts)
)
LINK = re.compile(r'!?\[[^\]]*\]\(([^)\s]+)\)')


def links(page: Path) -> list[str]:
    """Links of a page to other files, and to headings."""
    text = re.sub(r'```.*?```', '', page.read_text(), flags=re.DOTALL)
    return [link for link in LINK.findall(text) if not link.startswith(('http:', 'https:'))]


@cache
def anchors(page: Path) -> set[str]:
    """Headings of a page, as links name them."""
    headings = re.findall(r'^#+ (.+)$', page.read_text(), re.MULTILINE)
    words = [re.sub(r'[^\w\- ]', '', heading.lower()) for heading in headings]
    return {each.replace(' ', '-') for each in words}


@pytest.mark.parametrize('page', PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in links(page):
        name, _, anchor = link.partition('#')
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f'{page}: {link}'
        assert not anchor or anchor in anchors(target), f'{page}: {link}'


def test_every_page_of_the_site_is_in_its_contents():
    index = (ROOT / 'docs' / 'index.md').read_text()
    contents = ' '.join(re.findall(r'```{toctree}(.+?)```', index, re.DOTALL))
    patterns = re.findall(r'^[^:\n]+$', contents, re.MULTILINE)
    pages = {path.stem for path in (ROOT / 'docs').glob('*.md')} - {'index'}
    assert [page for page in pages if not any(fnmatch(page, each) for each in patterns)] == []
