"""Reports: Jinja templates hold prose and order, pandas makes tables, figures are images.

A report is one HTML file that loads nothing and runs only its own scripts. All text is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import starmap
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
import numpy as np
import pandas as pd
from markupsafe import Markup, escape

from surreal_bids import __version__
from surreal_bids.files import write_text
from surreal_bids.text import beside_limit

TEMPLATES = Path(__file__).parent / 'templates'
KINDS = {'.svg': 'svg+xml', '.jpg': 'jpeg'}
GENERATOR = 'surreal_bids'
"""Stands in the head of each report and tells it from those of other programs."""

FIGURE_BYTES = 1_400_000
"""Maximum size of all figures of a report; further ones are linked."""

LOWERS, RAISES = '#8073ac80', '#e0821480'
"""Colours of bars below and above zero, those of the maps of contributions."""

TABLES, RATINGS = 'tables.js', 'ratings.js'
"""Scripts: tables that can be sorted, and the form to rate images."""


def table(
    frame: pd.DataFrame,
    caption: str = '',
    formats: Mapping[str, str] = {},
    links: Mapping[str, Sequence[str | None]] = {},
    bars: Sequence[str] = (),
    gauges: Mapping[str, float] = {},
    marked: Sequence[bool] = (),
    classes: str = '',
    identity: str = '',
) -> Markup:
    """Return a frame as HTML.

    Parameters
    ----------
    frame
        The table.
    caption
        What it shows.
    formats
        Format of the numbers of a column.
    links
        Columns whose cells are links: an address per row, or None.
    bars
        Columns of numbers with bars, each on its own scale.
    gauges
        Columns of numbers with a dot between minus and plus this.
    marked
        For each row, whether it stands out.
    classes
        `interactive` tables can be sorted, filtered and copied.
    identity
        What identifiers of styled cells begin with.
    """
    shown = frame.reset_index(drop=True)
    is_number = [pd.api.types.is_numeric_dtype(kind) for kind in shown.dtypes]
    for column, addresses in links.items():
        texts = zip(addresses, shown[column], strict=True)
        shown[column] = pd.Series(starmap(_linked, texts), dtype=object)
    how: dict[Any, Any] = {name: each.format for name, each in formats.items()}
    how |= {name: _gauge(limit, how.get(name, str)) for name, limit in gauges.items()}
    known = {name: each for name, each in how.items() if name in shown}
    cells = pd.DataFrame('', shown.index, shown.columns)
    cells.loc[:, is_number] = 'number'
    cells.iloc[np.flatnonzero(marked)] += ' marked'
    styler = shown.style.hide(axis='index').set_uuid(identity).set_td_classes(cells)
    styler = styler.format(known, na_rep='\N{EN DASH}', escape='html')
    styler = styler.format_index(escape='html', axis=1)
    sides = np.where(is_number, 'text-align:right', '')
    styler = styler.apply_index(lambda heads: sides, axis=1)
    for name in bars:
        limit = float(shown[name].abs().max()) or 1.0
        styler = styler.bar([name], align=0, vmin=-limit, vmax=limit, color=[LOWERS, RAISES])
    styler.cell_ids = False  # type: ignore[attr-defined]
    html = styler.to_html(table_attributes=f'class="{classes}"', caption=escape(caption))
    around = Markup('<div class="scroll{}" tabindex="0" role="group" aria-label="{}">{}</div>')
    tall = ' tall' if 'interactive' in classes else ''
    return around.format(tall, caption or 'Table', Markup(html))  # noqa: S704 (pandas escapes)


@jinja2.pass_context
def _table_of_page(
    context: jinja2.runtime.Context, frame: pd.DataFrame, caption: str = '', *args: Any, **how: Any
) -> Markup:
    """Return a table whose identifiers are its own in the page."""
    context['drawn'].append(frame)
    identity = f'{slug(str(context.name))}-{len(context["drawn"])}'
    return table(frame, caption, *args, **{**how, 'identity': identity})


def _linked(address: str | None, text: object) -> object:
    return Markup('<a href="{}">{}</a>').format(address, text) if address else text


def _gauge(limit: float, write: Any) -> Any:
    """Return a format that also draws the value as a dot between minus and plus a limit."""

    def draw(value: float) -> str:
        place = 50 + 50 * min(max(value / limit, -1.0), 1.0)
        dot = f'<span class="gauge" aria-hidden="true"><i style="left:{place:.1f}%"></i></span>'
        return f'{write(value)}{dot}'

    return draw


@jinja2.pass_context
def figure(
    context: jinja2.runtime.Context,
    path: Path,
    title: str,
    caption: str = '',
    viewer: Path | None = None,
    over: Path | None = None,
    classes: str = '',
) -> Markup:
    """Return a picture inside the report, or its file where the report would be too large.

    `viewer` is a page to move through it; `over` a second picture that flickers over it.
    """
    folder, room = context['folder'], context['room']
    paths = [each for each in (path, over) if each is not None]
    links = [('Open the file', path), ('Move through the map', viewer), ('The other image', over)]
    shown = Markup(' · ').join(
        Markup('<a href="{}">{}</a>').format(link_to(to, folder), text) for text, to in links if to
    )
    size = sum(each.stat().st_size for each in paths) * 4 // 3
    if size > room[0]:
        return Markup(
            '<figure><figcaption><b>{}.</b> {} {}</figcaption>'
            '<p>{} is not shown here, because the report would be too large; see {}.</p></figure>'
        ).format(title, caption, shown, title, listing(link_to(each, folder) for each in paths))
    room[0] -= size
    images = Markup('').join(_embedded(each, f'{title}. {caption}') for each in paths)
    kind = f'picture {classes}' + ' flicker' * (over is not None)
    return Markup(
        '<figure><figcaption><b>{}.</b> {} {}</figcaption>'
        '<div class="{}" tabindex="0" role="group" aria-label="{}">{}</div></figure>'
    ).format(title, caption, shown, kind, title, images)


def _embedded(path: Path, alternative: str) -> Markup:
    data = base64.b64encode(path.read_bytes()).decode()
    source = f'data:image/{KINDS[path.suffix]};base64,{data}'
    return Markup('<img alt="{}" src="{}">').format(alternative, source)


def link_to(path: Path, folder: Path) -> str:
    """Return a link to a file from a page in a folder."""
    return quote(os.path.relpath(path, folder))


@cache
def environment() -> jinja2.Environment:
    """Return the environment of all templates: text is escaped, missing values are errors."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=jinja2.select_autoescape(['html'], default_for_string=False),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {'table': _table_of_page, 'figure': figure, 'listing': listing, 'slug': slug}
    made.filters['beside_limit'] = beside_limit
    return made


def listing(items: Iterable[object]) -> str:
    """Return items in a row, the last one after `and`."""
    *others, last = map(str, items)
    return f'{", ".join(others)} and {last}' if others else last


def slug(title: str) -> str:
    """Return the identifier of the section with a title."""
    return re.sub(r'\W+', '-', title.lower())


def render(template: str, folder: Path, **context: Any) -> Markup:
    """Render a template of a report in a folder."""
    known = {'folder': folder, 'room': [FIGURE_BYTES], 'drawn': [], **context}
    text = environment().get_template(template).render(known)
    return Markup(text)  # noqa: S704 (templates escape)


_SECTION = re.compile(r'<section id="([^"]+)">\s*(?:<details><summary>)?<h2>(.*?)</h2>')


def write_page(
    path: Path, title: str, content: Markup, subtitle: str = '', scripts: Sequence[str] = ()
) -> Path:
    """Write a report around its content, whole or not at all; sections make the navigation."""
    code = [(TEMPLATES / name).read_text(encoding='utf-8') for name in scripts]
    digests = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in code]
    allowed = ' '.join(f"'sha256-{each}'" for each in digests) or "'none'"
    html = (
        environment()
        .get_template('base.html')
        .render(
            title=title,
            subtitle=subtitle,
            content=content,
            links=[(name, Markup(text)) for name, text in _SECTION.findall(content)],  # noqa: S704
            generator=GENERATOR,
            version=__version__,
            allowed=allowed,
            scripts=[Markup(each) for each in code],  # noqa: S704
        )
    )
    return write_text(path, html)


def is_own_page(path: Path) -> bool:
    """Tell whether a file is a report of this package."""
    with path.open(encoding='utf-8', errors='replace') as stream:
        return f'content="{GENERATOR}"' in stream.read(1000)
