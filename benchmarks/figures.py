"""Keeps figures of the documentation equal to the tables in `results/`.

    python benchmarks/figures.py            # list figures that differ from the tables
    python benchmarks/figures.py --update   # correct them

A figure is a number with a comment behind it, which Markdown does not show:

    0.908<!-- default_fit*: mean c_index if what == "tasks" and case == "basic" -->

The newest table `results/DATE_default_fit*.tsv` that has such rows is used. `mean` may be any
statistic of pandas, such as `min`, `max`, `median` or `count`. The column may be an expression:
`100 * share`. The figure keeps its number of decimals.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / 'benchmarks' / 'results'
FIGURE = re.compile(
    r'(?P<number>-?\d+(?:\.\d+)?)<!-- (?P<table>[\w*]+): (?P<statistic>\w+) (?P<column>.+?)'
    r'(?: if (?P<rows>.+?))? -->'
)


def pages() -> list[Path]:
    """Pages whose figures are compared."""
    return [ROOT / 'README.md', *sorted((ROOT / 'docs').glob('*.md'))]


def find_values(table: str, column: str, rows: str | None) -> pd.Series:
    """Return a column of the newest table that has such rows.

    Raises
    ------
    LookupError
        No table has such rows.
    """
    for path in sorted(RESULTS.glob(f'????-??-??_{table}.tsv'), reverse=True):
        content = read(path)
        try:
            found = (content.query(rows) if rows else content).eval(column)
        except pd.errors.UndefinedVariableError:
            continue
        if len(found):
            return found
    raise LookupError(f'no table {table} in {RESULTS} has {column} if {rows}')


@cache
def read(path: Path) -> pd.DataFrame:
    """Read a table of results."""
    return pd.read_csv(path, sep='\t', keep_default_na=False, na_values=['n/a', ''])


def compute(figure: re.Match[str]) -> str:
    """Compute a figure, with the decimals that it has in the text."""
    values = find_values(figure['table'], figure['column'], figure['rows'])
    value = values.agg(figure['statistic'])
    decimals = len(figure['number'].partition('.')[2])
    return f'{round(float(value), decimals) + 0.0:.{decimals}f}'  # 0.00, not -0.00


def differences(page: str) -> Iterator[tuple[re.Match[str], str]]:
    """Yield figures of a page that differ from the tables, with the right numbers."""
    for figure in FIGURE.finditer(page):
        now = compute(figure)
        if now != figure['number']:
            yield figure, now


def corrected(page: str) -> str:
    """Return a page with the numbers of the tables."""
    return FIGURE.sub(
        lambda figure: compute(figure) + figure[0].removeprefix(figure['number']), page
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--update', action='store_true', help='write the right numbers')
    update = parser.parse_args().update
    found = False
    for path in pages():
        text = path.read_text('utf-8')
        for figure, now in differences(text):
            found = True
            line = text.count('\n', 0, figure.start()) + 1
            print(f'{path.relative_to(ROOT)}:{line}: {figure["number"]} is {now} now')
        if update:
            path.write_text(corrected(text), 'utf-8')
    sys.exit(found and not update)


if __name__ == '__main__':
    main()
