"""How often the checks of consistency fire on sound tables, and how often they find damage.

    python benchmarks/false_alarms.py DATA [--draws 50]

DATA holds `tables/ixi_muse145.csv`, `tables/fcon1000.csv` and `official/sample_roi.csv`. Sound
tables are simulated cohorts and random subsets of the real ones. Each is checked as it is and after
each damage (`DAMAGES`). The result is the share of tables that raise an error, exclude someone,
cause a warning, or pass; the first of these counts.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from machine import write_results

from surreal_bids.cohort.consistency import compare_rows, near_copies
from surreal_bids.cohort.features import column_features
from surreal_bids.cohort.plausibility import refuse_copies
from surreal_bids.exceptions import DataError
from surreal_bids.regions import FREESURFER_REGION, VENTRICLES, recognise
from surreal_bids.simulation.tables import TASKS, simulate_table

SIZES = (20, 40, 100, 300)

OUTCOMES = ('error', 'excluded', 'warning', 'passed')

KNOWN_COPY = 'ICBM_sub41546'
"""Participant of fcon1000 with the values of another one."""


@dataclass(frozen=True)
class Tables:
    """Volumes, age and sex, and head size, one row per participant."""

    volumes: pd.DataFrame
    people: pd.DataFrame
    icv: pd.Series | None

    def sample(self, n: int, rng: np.random.Generator) -> Tables:
        rows = np.sort(rng.choice(len(self.volumes), n, replace=False))
        icv = None if self.icv is None else self.icv.iloc[rows]
        return Tables(self.volumes.iloc[rows], self.people.iloc[rows], icv)


def outcome(tables: Tables) -> str:
    """Return what the checks do."""
    volumes = tables.volumes
    names = volumes.index.tolist()
    try:
        refuse_copies(volumes, 'volumes')
        excluded = near_copies(volumes, names)
        found, warnings = compare_rows(
            volumes, tables.people, tables.icv, names, column_features(volumes.columns)
        )
    except DataError:
        return 'error'
    if excluded or found:
        return 'excluded'
    return 'warning' if warnings else 'passed'


Damage = Callable[[Tables, np.random.Generator], Tables | None]


def permute_participants(tables: Tables, rng: np.random.Generator) -> Tables:
    """Exchange the rows of the table of participants."""
    order = rng.permutation(len(tables.people))
    people = tables.people.iloc[order].set_axis(tables.people.index)
    icv = None if tables.icv is None else _moved(tables.icv, order)
    return replace(tables, people=people, icv=icv)


def permute_head_size(tables: Tables, rng: np.random.Generator) -> Tables | None:
    """Exchange the head sizes."""
    if tables.icv is None:
        return None
    return replace(tables, icv=_moved(tables.icv, rng.permutation(len(tables.icv))))


def shift_head_size(tables: Tables, rng: np.random.Generator) -> Tables | None:
    """Move the head sizes of the second half, or of more rows, by one to three rows."""
    if tables.icv is None:
        return None
    n = len(tables.icv)
    start, lag = rng.integers(n // 2), rng.choice([-3, -2, -1, 1, 2, 3])
    order = [*range(start), *np.roll(np.arange(start, n), lag)]
    return replace(tables, icv=_moved(tables.icv, order))


def wrong_head_size(tables: Tables, rng: np.random.Generator) -> Tables | None:
    """Make one head 1.7 times larger or smaller."""
    if tables.icv is None:
        return None
    icv = tables.icv.copy()
    icv.iloc[rng.integers(len(icv))] *= 1.7 ** rng.choice([-1, 1])
    return replace(tables, icv=icv)


def _moved(column: pd.Series, order: object) -> pd.Series:
    return pd.Series(column.to_numpy()[np.asarray(order)], column.index, name=column.name)


def copy_row(change: Callable[[pd.Series, np.random.Generator], pd.Series]) -> Damage:
    """Replace the volumes of one participant by changed ones of another."""

    def damage(tables: Tables, rng: np.random.Generator) -> Tables:
        first, second = rng.choice(len(tables.volumes), 2, replace=False)
        volumes = tables.volumes.copy()
        volumes.iloc[second] = change(volumes.iloc[first], rng)
        icv = None if tables.icv is None else tables.icv.copy()
        if icv is not None:
            icv.iloc[second] = icv.iloc[first]
        return replace(tables, volumes=volumes, icv=icv)

    return damage


DAMAGES: dict[str, Damage] = {
    'none': lambda tables, rng: tables,
    'rows of participants permuted': permute_participants,
    'head size permuted': permute_head_size,
    'head size shifted': shift_head_size,
    'one head size wrong': wrong_head_size,
    'row copied, four digits': copy_row(lambda row, rng: row.map(lambda v: float(f'{v:.4g}'))),
    'row copied, scaled': copy_row(lambda row, rng: row * rng.uniform(0.9, 1.1)),
    'row copied, noise of 2 %': copy_row(lambda row, rng: row * rng.normal(1, 0.02, len(row))),
}


def _simulated(draws: int) -> Iterator[tuple[str, int, Tables]]:
    for n in SIZES:
        for seed in range(draws):
            table = simulate_table(list(TASKS)[seed % len(TASKS)], n // 2, n - n // 2, seed)
            people = table.participants.set_index('participant_id')
            volumes = table.volumes.set_index('participant_id')
            yield 'simulated', n, Tables(volumes, people[['age', 'sex']], people['icv'])


def _real(folder: Path) -> dict[str, Tables]:
    """Read the real tables, as the commands use them."""
    ixi = pd.read_csv(folder / 'tables' / 'ixi_muse145.csv', index_col='ID')
    regions = [name for name, k in recognise(ixi.columns).items() if k not in VENTRICLES]
    fcon = pd.read_csv(folder / 'tables' / 'fcon1000.csv', index_col='sub_id').drop(KNOWN_COPY)
    parcels = [
        name for name in fcon if FREESURFER_REGION.fullmatch(name) and (fcon[name] > 0).all()
    ]
    sample = pd.read_csv(folder / 'official' / 'sample_roi.csv', index_col='participant_id')
    sample.index = sample.index.astype(str)
    volumes = sample.drop(columns='diagnosis')
    head = fcon['EstimatedTotalIntraCranialVol']
    aseg = [name for name in parcels if 'thickness' not in name]
    return {
        'IXI': Tables(ixi[regions], ixi[['Age', 'Sex']], ixi['MUSE_702']),
        'IXI, 30 regions': Tables(ixi[regions[:30]], ixi[['Age', 'Sex']], ixi['MUSE_702']),
        'IXI without head size': Tables(ixi[regions], ixi[['Age', 'Sex']], None),
        'fcon1000': Tables(fcon[parcels], fcon[['age', 'sex']], head),
        'fcon1000, volumes': Tables(fcon[aseg], fcon[['age', 'sex']], head),
        'sample of the authors': Tables(volumes, volumes[[]], None),
    }


def _subsets(folder: Path, draws: int) -> Iterator[tuple[str, int, Tables]]:
    for name, tables in _real(folder).items():
        yield name, len(tables.volumes), tables
        for n in (size for size in SIZES if size < len(tables.volumes)):
            for seed in range(draws):
                yield name, n, tables.sample(n, np.random.default_rng(seed))


def measure(folder: Path, draws: int) -> pd.DataFrame:
    """Return the share of each outcome by source, number of participants and damage."""
    rows = []
    for source in (_simulated(draws), _subsets(folder, draws)):
        for number, (name, n, tables) in enumerate(source):
            for kind, damage in DAMAGES.items():
                damaged = damage(tables, np.random.default_rng(number))
                if damaged is not None:
                    rows.append((name, n, kind, outcome(damaged)))
    found = pd.DataFrame(rows, columns=['source', 'participants', 'damage', 'outcome'])
    keys = ['damage', 'source', 'participants']
    found = found.join(pd.get_dummies(found.pop('outcome'), dtype=float))
    found = found.reindex(columns=[*keys, *OUTCOMES], fill_value=0.0).assign(tables=1)
    how = {**dict.fromkeys(OUTCOMES, 'mean'), 'tables': 'sum'}
    return found.groupby(keys, sort=False).agg(how).round(3).reset_index()


def main() -> None:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('data', type=Path, help='folder of the real tables')
    parser.add_argument('--draws', type=int, default=50, help='tables per source and size')
    options = parser.parse_args()
    table = measure(options.data, options.draws).sort_values('damage', kind='stable')
    write_results('false_alarms', table)


if __name__ == '__main__':
    main()
