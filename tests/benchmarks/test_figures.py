"""Figures of the documentation are those of the tables in benchmarks/results."""

import random

import pytest
from figures import FIGURE, corrected, differences, pages


@pytest.mark.parametrize('page', pages(), ids=lambda page: page.name)
def test_figures_are_those_of_the_tables(page):
    text = page.read_text('utf-8')
    assert [f'{figure[0]}: {now}' for figure, now in differences(text)] == []
    assert text.count('<!-- ') == len(FIGURE.findall(text)), 'a comment that is no figure'


def test_wrong_figures_are_found_and_corrected():
    rng = random.Random(0)  # noqa: S311
    text = next(page.read_text('utf-8') for page in pages() if page.name == 'README.md')
    figure = rng.choice(list(FIGURE.finditer(text)))
    start, end = figure.span('number')
    wrong = f'{text[:start]}{rng.randrange(1, 9)}{text[start:]}'  # 0.885 becomes 30.885.
    assert [figure['number'] for figure, _ in differences(wrong)] == [wrong[start : end + 1]]
    assert corrected(wrong) == text
