"""Reproducibility: models of two halves of a cohort, compared in other patients (section B.7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from surreal_bids.analysis.patterns import describe_patterns
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.rindices.crossfit import NEITHER
from surreal_bids.rindices.model import TableModel
from surreal_bids.stats.concordance import pattern_reproducibility

HALVES_COLUMNS = [
    *('comparison', 'participants', 'outcome'),
    *('pattern', 'counterpart', 'c_index', 'pearson', 'regions_pearson'),
]
"""Columns of the table of split halves."""


class _Described(NamedTuple):
    """What a model says of some patients: R-indices (N, M), and mean changes (S, M)."""

    title: str
    indices: pd.DataFrame
    changes: pd.DataFrame


COMPARED = 'compared'
"""Outcome of a comparison of halves that have the same number of patterns."""


def compare_halves(
    cohort: Cohort,
    everyone: tuple[TableModel, pd.DataFrame],
    of_half: Mapping[int, TableModel],
    half_of: pd.Series,
) -> pd.DataFrame:
    """How alike patients are described by models that were trained on different participants.

    Parameters
    ----------
    cohort
        All participants.
    everyone
        The model that was trained on all, and R-indices of all, if possible held out.
    of_half
        Models of halves 1 and 2, each with its own M and lambda.
    half_of : Series of shape (n_visits,)
        Half of each visit, 0 for neither. Patients of neither are compared, if there are any; else
        all patients are.

    Returns
    -------
    DataFrame
        `comparison`; `participants` (how many patients) and `trained_on` (whether the models of
        the halves were trained on them); `outcome`; the columns of
        :func:`~surreal_bids.stats.concordance.pattern_reproducibility`, and `regions_pearson`, the
        correlation over regions of what the two patterns change in these patients. Where models
        have different numbers of patterns, as many are compared as the smaller has.
    """
    neither = bool((half_of == NEITHER).any())
    first = cohort.first_visits()
    chosen = first.is_patient & ((half_of[first.visits.index] == NEITHER) | (not neither))
    patients = first.select(chosen)
    final, indices = everyone
    whole = _describe_by(final, patients, 'all')
    whole = whole._replace(indices=indices.loc[patients.visits.index])
    halves = [_describe_by(each, patients, f'half {half}') for half, each in of_half.items()]
    pairs = [(halves[0], halves[1]), *((half, whole) for half in halves)]
    table = pd.concat([_compare(*pair) for pair in pairs], ignore_index=True)
    table.insert(2, 'trained_on', 'no' if neither else 'yes')
    return table


def _describe_by(model: TableModel, patients: Cohort, title: str) -> _Described:
    lenient = model.with_unseen_site('skip')
    names = list(model.pattern_names)
    prepared = lenient.preprocessing.transform(patients.features, patients.people)
    changes = describe_patterns(lenient, prepared.normalised)
    wide = {name: rows['change_sd'].to_numpy() for name, rows in changes.groupby('pattern')}
    return _Described(title, lenient.apply(patients)[names], pd.DataFrame(wide))


MIN_FOR_C_INDEX = 2
"""Patients that a c-index needs."""


def _compare(first: _Described, second: _Described) -> pd.DataFrame:
    """Compare as many patterns as the model with fewer of them has."""
    title = f'{first.title} and {second.title}'
    fewer, more = sorted((first, second), key=lambda each: each.indices.shape[1])
    n_fewer, n_more = fewer.indices.shape[1], more.indices.shape[1]
    there = fewer.indices.notna().all(axis=1) & more.indices.notna().all(axis=1)
    row: dict[str, Any] = {'comparison': title, 'participants': int(there.sum())}
    if n_fewer == 0:
        without = ' and '.join(each.title for each in (first, second) if each.indices.empty)
        outcome = f'no pattern is supported in {without}'
        return pd.DataFrame([row | {'outcome': outcome}], columns=HALVES_COLUMNS)
    if there.sum() < MIN_FOR_C_INDEX:
        outcome = 'too few patients of neither half have R-indices'
        return pd.DataFrame([row | {'outcome': outcome}], columns=HALVES_COLUMNS)
    outcome = COMPARED
    if n_fewer < n_more:
        outcome = f'M = {n_fewer} in {fewer.title}, {n_more} in {more.title}'
    table = pattern_reproducibility(fewer.indices[there], more.indices[there])
    pairs = zip(table['pattern'], table['counterpart'])
    alike = [np.corrcoef(fewer.changes[a], more.changes[b])[0, 1] for a, b in pairs]
    own = {name: [value] * len(table) for name, value in (row | {'outcome': outcome}).items()}
    return table.assign(regions_pearson=alike).join(pd.DataFrame(own))[HALVES_COLUMNS]
