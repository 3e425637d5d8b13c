"""Reports: one HTML file each, with all figures inside, that needs no network.

A report is a list of sections, a section a list of blocks; :func:`write_page` turns them into HTML.
All text is escaped, whatever it holds. Reports forbid themselves to load anything, and any script
that is not their own (a Content-Security-Policy).
"""

from __future__ import annotations

import base64
import hashlib
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, unquote

import jinja2
import pandas as pd
from markupsafe import Markup

from surreal_bids.cautions import WHAT_TO_CHECK, Caution, unite
from surreal_bids.exceptions import DataError
from surreal_bids.files import write_text

QUOTED_NONE = "'none'"
"""How a policy says that nothing is allowed."""

NOTHING = '\N{EN DASH}'
"""How a missing value is shown."""

_BEFORE_SVG = re.compile(r'^.*?(?=<svg\b)', re.DOTALL)
_COMMENT = re.compile(r'<!--.*?-->', re.DOTALL)
_METADATA = re.compile(r'<metadata\b.*?</metadata>', re.DOTALL)
_SIZE = re.compile(r'(<svg\b[^>]*?)\s(?:width|height)="[^"]*"')
_BEFORE_IDENTIFIER = (' id="', 'url(#', 'href="#')
_LINK = re.compile(r'(<a xlink:href=")([^"#:]+)"')
_ACTIVE = re.compile(r'<(?:script\b|foreignObject\b|[^>]*\son\w+\s*=)', re.IGNORECASE)
_REMOTE = re.compile(r'(?:href|src)\s*=\s*"\s*(?:https?:|//)', re.IGNORECASE)


@dataclass(frozen=True)
class Paragraph:
    """Running text."""

    kind: ClassVar[str] = 'paragraph'
    text: str


@dataclass(frozen=True)
class Checks:
    """What to check: the only block in colour.

    Attributes
    ----------
    cautions
        Warnings, at least one.
    anchors
        Where the sections are that warnings are about; filled in by :func:`render_sections`.
    """

    kind: ClassVar[str] = 'checks'
    cautions: tuple[Caution, ...]
    anchors: Mapping[str, str] = field(default_factory=dict)
    title: ClassVar[str] = WHAT_TO_CHECK


def list_checks(cautions: Iterable[Caution]) -> list[Block]:
    """Return the list of warnings, or no block without warnings."""
    listed = tuple(unite(cautions))
    return [Checks(listed)] if listed else []


@dataclass(frozen=True)
class Number:
    """A number to see at a glance, with its unit, and what it is."""

    label: str
    value: str
    unit: str = ''
    note: str = ''


@dataclass(frozen=True)
class Numbers:
    """Numbers side by side."""

    kind: ClassVar[str] = 'numbers'
    numbers: tuple[Number, ...]


@dataclass(frozen=True)
class Facts:
    """Names and values, one below the other."""

    kind: ClassVar[str] = 'facts'
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """A figure file: SVG is put into the report as it is, PNG and JPEG as data.

    Attributes
    ----------
    path
        The file, which the report also links to.
    title
        What it shows, in a few words; read aloud to those who cannot see it, with the caption.
    caption
        How to read it.
    viewer
        An HTML file in which one can move through it, which the report links to.
    is_narrow
        Whether it shrinks to fit a narrow screen; others scroll there.
    """

    kind: ClassVar[str] = 'figure'
    path: Path
    title: str
    caption: str = ''
    viewer: Path | None = None
    is_narrow: bool = False


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes
    ----------
    frame
        Its content; numbers are aligned to the right.
    caption
        What it holds.
    formats
        How to write the values of a column, e.g. ``{'volume': '{:,.0f}'}``.
    gauges
        Columns whose values are also drawn as a dot between minus and plus this.
    marked
        For each row, whether it stands out.
    fold
        If given, the table opens when this line is clicked.
    links
        Columns whose cells lead somewhere: an address for each row, or None.
    interactive
        Whether it can be sorted, filtered and copied.
    """

    kind: ClassVar[str] = 'table'
    frame: pd.DataFrame
    caption: str = ''
    formats: Mapping[str, str] | None = None
    gauges: Mapping[str, float] | None = None
    marked: Sequence[bool] = ()
    fold: str = ''
    links: Mapping[str, Sequence[str | None]] | None = None
    interactive: bool = False


@dataclass(frozen=True)
class Code:
    """Text in a fixed-width font, folded under a line that opens it."""

    kind: ClassVar[str] = 'code'
    text: str
    fold: str


@dataclass(frozen=True)
class Html:
    """HTML that is known to be safe: its text was escaped by whoever made it."""

    kind: ClassVar[str] = 'html'
    markup: Markup


@dataclass(frozen=True)
class Rating:
    """A place where a reviewer can rate an image; `rating_script` puts a form there.

    Attributes
    ----------
    participant, session
        As in tables, with `sub-` and `ses-`; the session is empty without sessions.
    """

    kind: ClassVar[str] = 'rating'
    participant: str
    session: str = ''


Block = Paragraph | Checks | Numbers | Facts | Figure | Table | Code | Html | Rating


@dataclass(frozen=True)
class Section:
    """A part of a report with its heading, blocks, and smaller parts (one level)."""

    title: str
    blocks: tuple[Block, ...] = ()
    parts: tuple[Section, ...] = ()


@dataclass(frozen=True)
class Cell:
    """A cell of a table as the template draws it: `place` is a percentage along its gauge."""

    text: str
    is_number: bool
    place: float | None = None
    link: str | None = None


GENERATOR = 'surreal_bids'
"""Stands in the head of each report, which tells it from files of other programs."""


@dataclass(frozen=True)
class Fragment:
    """Sections that are rendered already, and what the report around them needs.

    Attributes
    ----------
    title, subtitle, footer
        Those of the report.
    links, content
        HTML of the navigation, and of the sections.
    made_from
        Digest of what the sections were made from.
    """

    title: str
    links: str
    content: str
    subtitle: str = ''
    footer: str = ''
    made_from: str = ''


def render_sections(
    sections: Sequence[Section],
    folder: Path,
    *,
    name: str = 'section',
    letter: str = '',
    figure_bytes: float = math.inf,
    anchors: Mapping[str, str] | None = None,
) -> tuple[str, str]:
    """Render sections as HTML; returns the links of the navigation, and the content.

    Parameters
    ----------
    sections
        What to render.
    folder
        Where the report will be; figures are linked relative to it.
    name, letter
        What identifiers of sections, and numbers of figures, begin with.
    figure_bytes
        Maximum size of all figures; those that no longer fit are linked instead.
    anchors
        Identifiers of sections elsewhere in the report, by title.

    Raises
    ------
    DataError
        A figure is missing or is no picture that can be shown offline.
    """
    known = {'draw_figure': _Figures(folder, letter, figure_bytes), 'rows': table_rows}
    macros: Any = _environment().get_template('sections.html').make_module(known)
    named = _with_anchors(sections, name, anchors or {})
    links = ''.join(macros.section_link(*each) for each in named)
    return links, ''.join(macros.section_content(*each) for each in named)


def _with_anchors(
    sections: Sequence[Section], name: str, anchors: Mapping[str, str]
) -> list[tuple[Section, str]]:
    """Name the sections, and tell warnings where they are; parts of their own section first."""
    names = [f'{name}-{number}' for number in range(1, len(sections) + 1)]
    everywhere = {**anchors, **dict(zip((section.title for section in sections), names))}
    named = []
    for section, own in zip(sections, names):
        parts = {part.title: f'{own}-{k}' for k, part in enumerate(section.parts, start=1)}
        named.append((_linked(section, everywhere | parts), own))
    return named


def _linked(section: Section, anchors: Mapping[str, str]) -> Section:
    blocks = [
        replace(block, anchors=anchors) if isinstance(block, Checks) else block
        for block in section.blocks
    ]
    parts = [_linked(part, anchors) for part in section.parts]
    return replace(section, blocks=tuple(blocks), parts=tuple(parts))


def write_fragments(path: Path, fragments: Sequence[Fragment], script: str = '') -> Path:
    """Write a report, whole or not at all.

    Parameters
    ----------
    path
        The HTML file.
    fragments
        Its content in order; the last one gives the title, subtitle and footer.
    script
        What the report may run.
    """
    last = fragments[-1]
    html = (
        _environment()
        .get_template('page.html')
        .render(
            title=last.title,
            subtitle=last.subtitle,
            footer=last.footer,
            generator=GENERATOR,
            # Rendered by `render_sections`, which has escaped all text.
            links=Markup(''.join(each.links for each in fragments)),  # noqa: S704
            content=Markup(''.join(each.content for each in fragments)),  # noqa: S704
            policy=content_policy([script] if script else []),
            # Written by us: it holds nothing of the data.
            script=Markup(script),  # noqa: S704
        )
    )
    return write_text(path, html)


def write_page(
    path: str | Path,
    title: str,
    sections: Sequence[Section],
    *,
    subtitle: str = '',
    footer: str = '',
    figure_bytes: float = math.inf,
) -> Path:
    """Write a report from its sections; see :func:`render_sections` for the parameters."""
    path = Path(path)
    rendered = render_sections(sections, path.parent, figure_bytes=figure_bytes)
    is_interactive = any(isinstance(it, Table) and it.interactive for it in _blocks(sections))
    fragment = Fragment(title, *rendered, subtitle, footer)
    return write_fragments(path, [fragment], table_script() if is_interactive else '')


def is_own_page(path: Path) -> bool:
    """Whether a file is a report that was assembled from fragments."""
    with path.open(encoding='utf-8', errors='replace') as stream:
        return f'content="{GENERATOR}"' in stream.read(1000)


def _blocks(sections: Iterable[Section]) -> Iterator[Block]:
    """All blocks of sections and their parts."""
    for section in sections:
        yield from section.blocks
        yield from _blocks(section.parts)


@cache
def table_script() -> str:
    """What makes tables interactive."""
    return _script('tables.js')


@cache
def rating_script() -> str:
    """What lets a reviewer rate images, and save the ratings."""
    return _script('ratings.js')


def _script(name: str) -> str:
    return (package_files(__package__) / 'templates' / name).read_text(encoding='utf-8')


def content_policy(scripts: Iterable[str]) -> str:
    """A Content-Security-Policy: load nothing, run only these scripts."""
    digests = [hashlib.sha256(script.encode()).digest() for script in dict.fromkeys(scripts)]
    allowed = [f"'sha256-{base64.b64encode(digest).decode('ascii')}'" for digest in digests]
    return '; '.join(
        [
            "default-src 'none'",
            "style-src 'unsafe-inline'",
            'img-src data:',
            f'script-src {" ".join(allowed) or QUOTED_NONE}',
            f'base-uri {QUOTED_NONE}',
            f'form-action {QUOTED_NONE}',
        ]
    )


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader('surreal_bids.reports'),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


class _Figures:
    """Puts the figures of a report into it, each with names of its own, and numbers them.

    Once there is no `room` (in bytes) for one, it is left out, to be linked only.
    """

    def __init__(self, folder: Path, letter: str = '', room: float = math.inf) -> None:
        self.folder, self.letter, self.room = folder, letter, room
        self.count = 0

    def __call__(self, figure: Figure) -> dict[str, Any]:
        self.count += 1
        number = f'{self.letter}{self.count}'
        content = embed(figure, f'figure{number}-', self.folder)
        fits = len(content) <= self.room
        self.room -= len(content) if fits else 0
        return {
            'number': number,
            'link': self._link(figure.path),
            'viewer': self._link(figure.viewer) if figure.viewer else None,
            'content': content if fits else None,
        }

    def _link(self, path: Path) -> str:
        return quote(os.path.relpath(path, self.folder))


def embed(figure: Figure, prefix: str, folder: Path) -> Markup:
    """Content of a figure file as HTML in a page in `folder`; identifiers start with `prefix`."""
    if not figure.path.is_file():
        raise DataError(
            f'{figure.path}: this figure is missing, so the report cannot show it; '
            'run again to draw it'
        )
    if figure.path.suffix == '.svg':
        return _embed_svg(figure, prefix, folder)
    return _embed_pixels(figure)


def _embed_svg(figure: Figure, prefix: str, folder: Path) -> Markup:
    text = figure.path.read_text(encoding='utf-8')
    if '<svg' not in text or _ACTIVE.search(text) or _REMOTE.search(_METADATA.sub('', text)):
        raise DataError(
            f'{figure.path}: not an SVG picture without scripts and remote parts; '
            'delete it and run again'
        )
    text = _COMMENT.sub('', _METADATA.sub('', _BEFORE_SVG.sub('', text, count=1), count=1))
    text = _SIZE.sub(r'\1', _SIZE.sub(r'\1', text, count=1), count=1)
    for mark in _BEFORE_IDENTIFIER:
        text = text.replace(mark, f'{mark}{prefix}')
    text = _LINK.sub(lambda found: _moved(found, figure.path.parent, folder), text)
    kind = Markup(' class="narrow"') if figure.is_narrow else ''
    label = Markup('<svg{} role="img" aria-label="{}"').format(kind, _spoken(figure))
    # The file was checked above: it holds no script and nothing remote.
    return Markup(text.replace('<svg', label, 1))  # noqa: S704


def _moved(link: re.Match[str], source: Path, target: Path) -> str:
    """A link from a file in one folder as it is from a file in another."""
    there = os.path.relpath(source / unquote(link[2]), target)
    return f'{link[1]}{quote(there)}"'


def _embed_pixels(figure: Figure) -> Markup:
    kinds = {'.png': 'png', '.jpg': 'jpeg', '.jpeg': 'jpeg'}
    if figure.path.suffix not in kinds:
        raise DataError(f'{figure.path}: a report shows SVG, PNG and JPEG files; convert it')
    data = base64.b64encode(figure.path.read_bytes()).decode('ascii')
    source = f'data:image/{kinds[figure.path.suffix]};base64,{data}'
    return Markup('<img src="{}" alt="{}">').format(source, _spoken(figure))


def _spoken(figure: Figure) -> str:
    return f'{figure.title}. {figure.caption}'.strip()


def table_rows(table: Table) -> list[tuple[bool, list[Cell]]]:
    """Rows of a table: whether each stands out, and its cells."""
    marked = list(table.marked) or [False] * len(table.frame)
    columns = [_cells(table, str(name)) for name in table.frame.columns]
    return [(bool(mark), list(cells)) for mark, *cells in zip(marked, *columns)]


def _cells(table: Table, column: str) -> list[Cell]:
    values = table.frame[column]
    is_number = pd.api.types.is_numeric_dtype(values)
    style = (table.formats or {}).get(column, '{}')
    limit = (table.gauges or {}).get(column)
    links = (table.links or {}).get(column) or [None] * len(values)
    return [
        Cell(NOTHING, is_number)
        if pd.isna(value)
        else Cell(style.format(value), is_number, _place(value, limit), link)
        for value, link in zip(values, links)
    ]


def _place(value: float, limit: float | None) -> float | None:
    """Where a value lies between minus and plus the limit, in per cent."""
    if limit is None:
        return None
    return round(50 + 50 * min(max(float(value) / limit, -1.0), 1.0), 1)


def text_lines(blocks: Sequence[Block]) -> list[str]:
    """Return blocks as lines of text."""
    lines: list[str] = []
    for block in blocks:
        if isinstance(block, Paragraph):
            lines.append(block.text)
        elif isinstance(block, Facts):
            lines += [f'{name}: {value}' for name, value in block.facts.items()]
        elif isinstance(block, Table):
            lines += [block.caption, *(f'  {line}' for line in _table_lines(block))]
    return lines


def _table_lines(table: Table) -> list[str]:
    """Return a table as lines with columns of equal width."""
    rows = [list(map(str, table.frame.columns))]
    rows += [[cell.text.replace(NOTHING, '-') for cell in cells] for _, cells in table_rows(table)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ['  '.join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows]
