"""What a browser would find in a page."""

import re
from html.parser import HTMLParser
from itertools import pairwise

HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(2)>{{ 7 * 7 }}\'&'
"""A name that must come out as it is, as text."""


class Page(HTMLParser):
    """Collects tags with attributes, and the text, of a page."""

    def __init__(self, path, source=None):
        super().__init__(convert_charrefs=True)
        self.tags, self.text = [], []
        self.source = path.read_text(encoding='utf-8') if source is None else source
        self.feed(self.source)

    @classmethod
    def of_text(cls, source):
        return cls(None, source)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)

    @property
    def words(self):
        return ''.join(self.text)

    def of(self, *names):
        return [attributes for tag, attributes in self.tags if tag in names]

    @property
    def identifiers(self):
        return [attributes['id'] for _, attributes in self.tags if 'id' in attributes]


def check_offline(page):
    """Nothing is fetched: only links that people click may lead elsewhere."""
    assert not page.of('link', 'iframe', 'object', 'embed', 'base')
    assert not any(page.of('script'))
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith('on'), (tag, name)
            if tag == 'a' or name.startswith('xmlns'):
                continue
            assert not re.match(r'\s*(https?:|//)', value or ''), (tag, name, value)
    style = ''.join(re.findall(r'<style.*?>(.*?)</style>', page.source, re.DOTALL))
    assert '@import' not in style
    policies = [m['content'] for m in page.of('meta') if 'http-equiv' in m]
    assert len(policies) == 1
    assert "default-src 'none'" in policies[0]
    assert policies[0].count('sha256-') == len(page.of('script'))
    assert not re.search(r'url\((?!#)', page.source)


def check_structure(page):
    """Names are unique, inner links lead somewhere, pictures and headings can be read aloud."""
    assert len(page.identifiers) == len(set(page.identifiers))
    targets = {f'#{name}' for name in page.identifiers}
    for attributes in page.of('a', 'use'):
        link = attributes.get('href') or attributes.get('xlink:href')
        assert link in targets or not link.startswith('#')
    for attributes in page.of('img'):
        assert attributes['alt']
    for attributes in page.of('svg'):
        assert attributes['role'] == 'img'
        assert attributes['aria-label']
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r'h[1-6]', tag)]
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
