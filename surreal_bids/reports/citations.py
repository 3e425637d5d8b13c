"""Text with citations: references in the order in which they are first cited, and their numbers.

A text cites with ``[@key]`` or ``[@key, @other]``, keys of `references.json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as package_files

from markupsafe import Markup, escape


@dataclass(frozen=True)
class Reference:
    """A publication, with its number in the text."""

    number: int
    authors: str
    title: str
    source: str
    link: str


def cited_markdown(paragraphs: Sequence[str]) -> tuple[str, str]:
    """Paragraphs with numbers for citations, and the list of references, as Markdown."""
    numbers = _numbers(paragraphs)
    text = [
        _citation().sub(lambda found: f'[{_joined(found, numbers)}]', paragraph)
        for paragraph in paragraphs
    ]
    listed = [
        f'{each.number}. {each.authors}. {each.title}. *{each.source}*. <{each.link}>'
        for each in cited_references(paragraphs)
    ]
    return '\n\n'.join(text), '\n'.join(listed)


def cited_html(paragraphs: Sequence[str]) -> tuple[Markup, Markup]:
    """Paragraphs and references as HTML; numbers in the text lead to the references."""
    numbers = _numbers(paragraphs)
    text = Markup('\n').join(
        Markup('<p>{}</p>').format(_linked(paragraph, numbers)) for paragraph in paragraphs
    )
    listed = Markup('\n').join(
        Markup('<li id="reference-{}">{}. {}. <i>{}</i>. <a href="{}">{}</a></li>').format(
            each.number, each.authors, each.title, each.source, each.link, each.link
        )
        for each in cited_references(paragraphs)
    )
    return text, Markup('<ol class="references">\n{}\n</ol>').format(listed)


def cited_references(paragraphs: Sequence[str]) -> tuple[Reference, ...]:
    """The references of a text, in the order of their numbers."""
    known = _references()
    return tuple(
        Reference(
            number=number,
            authors=known[key]['authors'].removesuffix('.'),
            title=known[key]['title'],
            source=known[key]['source'],
            link=known[key].get('url') or f'https://doi.org/{known[key]["doi"]}',
        )
        for key, number in _numbers(paragraphs).items()
    )


@cache
def _references() -> dict[str, dict[str, str]]:
    path = package_files('surreal_bids.reports').joinpath('references.json')
    return dict(json.loads(path.read_text(encoding='utf-8')))


@cache
def _citation() -> re.Pattern[str]:
    """Pattern of a citation; names of a dataset that merely look like one stay what they are."""
    key = f'@(?:{"|".join(map(re.escape, _references()))})'
    return re.compile(rf'\[({key}(?:, {key})*)\]')


def _keys(found: re.Match[str]) -> list[str]:
    return [key.strip(' @') for key in found.group(1).split(',')]


def _numbers(paragraphs: Sequence[str]) -> dict[str, int]:
    """Number of each key that is cited, in the order of first citation."""
    cited = [
        key for text in paragraphs for found in _citation().finditer(text) for key in _keys(found)
    ]
    return {key: number for number, key in enumerate(dict.fromkeys(cited), start=1)}


def _joined(found: re.Match[str], numbers: dict[str, int]) -> str:
    return ', '.join(str(numbers[key]) for key in _keys(found))


def _linked(paragraph: str, numbers: dict[str, int]) -> Markup:
    """A paragraph with its text escaped and its citations as links."""

    def link(found: re.Match[str]) -> str:
        links = (f'<a href="#reference-{numbers[key]}">{numbers[key]}</a>' for key in _keys(found))
        return f'[{", ".join(links)}]'

    # The text is escaped before links are put into it; escaping leaves citations alone.
    return Markup(_citation().sub(link, str(escape(paragraph))))  # noqa: S704
