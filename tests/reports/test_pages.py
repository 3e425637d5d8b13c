"""Pages: offline, escaped, accessible, whole or not there."""

import numpy as np
import pandas as pd
import pytest
from markupsafe import Markup
from matplotlib.figure import Figure as Drawing

from surreal_bids.cautions import Caution
from surreal_bids.exceptions import DataError
from surreal_bids.reports.pages import (
    Code,
    Facts,
    Figure,
    Html,
    Number,
    Numbers,
    Paragraph,
    Section,
    Table,
    embed,
    list_checks,
    table_rows,
    write_page,
)
from tests.reports.html_page import HOSTILE, Page, check_offline, check_structure

SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="3" height="4" viewBox="0 0 3 4">{}</svg>'


def draw(path, text='x'):
    drawing = Drawing(figsize=(3, 2))
    drawing.subplots().plot([0, 1], label=text)
    drawing.axes[0].set_title(text)
    path.parent.mkdir(exist_ok=True)
    drawing.savefig(path)
    return path


def every_block(text, figure):
    frame = pd.DataFrame({text: [text, 'b'], 'value': [1.5, np.nan]})
    return (
        Paragraph(text),
        *list_checks([Caution(text, text, text, text)]),
        Numbers((Number(text, text, text, text),)),
        Facts({text: text}),
        Figure(figure, text, text),
        Table(frame, text, {'value': '{:.2f}'}, {'value': 3.0}, [True, False]),
        Table(frame, fold=text),
        Code(text, text),
    )


@pytest.fixture
def hostile_page(tmp_path):
    blocks = every_block(HOSTILE, draw(tmp_path / 'figures' / 'a b#.svg'))
    sections = [
        Section(HOSTILE, blocks, parts=(Section(HOSTILE, blocks),)),
        Section('Last', (Html(Markup('<p><em>kept</em></p>')),)),
    ]
    path = write_page(tmp_path / 'page.html', HOSTILE, sections, subtitle=HOSTILE, footer=HOSTILE)
    return Page(path)


def test_needs_no_network(hostile_page):
    check_offline(hostile_page)


def test_text_is_escaped(hostile_page):
    # Some of it is twice: the blocks are in a section and in a part of it.
    assert hostile_page.words.count(HOSTILE) >= 2 * 12
    assert not hostile_page.of('img')
    assert '49' not in hostile_page.words


def test_is_well_built(hostile_page):
    check_structure(hostile_page)
    assert ('html', {'lang': 'en'}) in hostile_page.tags
    assert len(hostile_page.of('em')) == 1


def test_figures_are_inside_and_linked(hostile_page):
    assert len(hostile_page.of('svg')) == 2
    links = [link['href'] for link in hostile_page.of('a')]
    assert links.count('figures/a%20b%23.svg') == 2


@pytest.mark.parametrize('scheme', ['prefers-color-scheme: dark', '@media print', 'max-width'])
def test_fits_light_dark_paper_and_phones(hostile_page, scheme):
    assert scheme in hostile_page.source


def test_same_input_same_page(tmp_path):
    figure = draw(tmp_path / 'f.svg')
    pages = [
        write_page(tmp_path / name, 'T', [Section('S', every_block('text', figure))]).read_bytes()
        for name in ('a.html', 'b.html')
    ]
    assert pages[0] == pages[1]


@pytest.mark.parametrize('suffix', ['.png', '.jpg'])
def test_pixels_become_data(tmp_path, suffix):
    path = draw(tmp_path / f'f{suffix}')
    markup = embed(Figure(path, 'A "title"', 'caption'), 'p-', tmp_path)
    assert markup.startswith('<img src="data:image/')
    assert 'alt="A &#34;title&#34;. caption"' in markup


def test_names_inside_of_svg_get_a_prefix(tmp_path):
    path = tmp_path / 'f.svg'
    body = '<defs><g id="m"/></defs><use href="#m"/><g clip-path="url(#m)">id m, one = 1</g>'
    path.write_text('<?xml version="1.0"?>\n<!DOCTYPE svg>\n' + SVG.format(body))
    markup = embed(Figure(path, 'F'), 'p-', tmp_path)
    assert markup.startswith('<svg role="img"')
    assert '<g id="p-m"/></defs><use href="#p-m"/><g clip-path="url(#p-m)">id m' in markup
    assert 'width="3"' not in markup
    assert 'viewBox="0 0 3 4"' in markup


@pytest.mark.parametrize(
    'content',
    [
        SVG.format('<script>alert(1)</script>'),
        SVG.format('<g onload="alert(1)"/>'),
        SVG.format('<image href="https://example.org/x.png"/>'),
        SVG.format('<image xlink:href="//example.org/x.png"/>'),
        SVG.format('<foreignObject/>'),
        'not a picture',
    ],
)
def test_refuses_active_and_remote_figures(tmp_path, content):
    path = tmp_path / 'f.svg'
    path.write_text(content)
    with pytest.raises(DataError, match=r'f\.svg: not an SVG picture'):
        embed(Figure(path, 'F'), 'p-', tmp_path)


@pytest.mark.parametrize(('name', 'said'), [('no.svg', 'missing'), ('f.tiff', 'convert it')])
def test_refuses_missing_and_unknown_files(tmp_path, name, said):
    (tmp_path / 'f.tiff').write_bytes(b'II')
    with pytest.raises(DataError, match=said):
        embed(Figure(tmp_path / name, 'F'), 'p-', tmp_path)


def test_a_page_that_fails_leaves_the_old_one(tmp_path):
    path = tmp_path / 'page.html'
    path.write_text('old')
    with pytest.raises(DataError):
        write_page(path, 'T', [Section('S', (Figure(tmp_path / 'no.svg', 'F'),))])
    assert path.read_text() == 'old'
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ('value', 'place'), [(0.0, 50.0), (5.0, 100.0), (-2.5, 25.0), (99.0, 100.0), (-99.0, 0.0)]
)
def test_gauges(value, place):
    table = Table(pd.DataFrame({'z': [value]}), gauges={'z': 5.0}, formats={'z': '{:+.1f}'})
    [(marked, [cell])] = table_rows(table)
    assert (marked, cell.text, cell.place) == (False, f'{value:+.1f}', place)


@pytest.mark.parametrize(
    ('values', 'is_number'), [([1.0, np.nan], True), (['a', None], False), ([3, 4], True)]
)
def test_cells(values, is_number):
    cells = [row[0] for _, row in table_rows(Table(pd.DataFrame({'c': values})))]
    assert [cell.is_number for cell in cells] == [is_number] * 2
    assert cells[1].text == (str(values[1]) if values[1] == 4 else '\N{EN DASH}')


def test_warnings_link_to_their_sections(tmp_path):
    """Parts of the own section come first; without the section there is no link."""
    checks = list_checks(
        Caution(f'found {about}', 'so', 'do', about) for about in ('Figures', 'Model', 'Nowhere')
    )
    sections = [
        Section(title, parts=(Section('Summary', tuple(checks)), Section('Figures')))
        for title in ('ses-1', 'ses-2')
    ]
    page = Page(write_page(tmp_path / 'page.html', 'x', [*sections, Section('Model')]))
    links = [each.get('href') for each in page.of('a') if each.get('href', '').startswith('#sec')]
    in_lists = [link for link in links if link in ('#section-1-2', '#section-2-2', '#section-3')]
    assert {'#section-1-2', '#section-2-2', '#section-3'} <= set(in_lists)
    assert 'found Nowhere' in page.words


def test_only_warnings_are_in_colour(tmp_path):
    path = write_page(tmp_path / 'page.html', 'x', [Section('A', (Paragraph('fine'),))])
    assert 'class="checks"' not in path.read_text()
    assert list_checks([]) == []
