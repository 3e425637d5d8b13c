"""Whether a sample has enough controls, and of the age of its patients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from surreal_bids.columns import column_of, means
from surreal_bids.text import counted, list_briefly

FEW_CONTROLS, FEW_FOR_A_MODEL, FEW_AT_SITE = 30, 20, 10
"""Controls of a sample to train on, of one that a model is applied to, and of a site, below which a
warning says what it costs: the mean R-index of a cohort has an sd of about 0.02 over sets of 20
controls, and of 0.05 over sets of 3 (benchmarks/nulls.py); 20 take away 68 % of the difference of a
new site, 10 of them 59 % (benchmarks/add_site.py)."""

MANY_OUTSIDE = 0.2
"""Share of patients outside the ages of the controls from which it is a warning: of normal ages,
2 in n + 1 are outside those of n controls."""

NOT_ADAPTED = (
    'Too few controls to learn the scanners of this dataset from, so that the model was not '
    'adapted to them. Unless it knows the site by its name, R-indices hold whatever the scanner '
    'does to volumes: compare them with those of the same scanner, not with the training sample'
)
"""What it means that a model was applied without controls."""


def warn_of_controls(
    controls: pd.DataFrame, site_column: str | None, training: bool
) -> Iterator[str]:
    """Say whether controls, or those of a site, are so few that results depend on who they are.

    Parameters
    ----------
    controls
        Covariates and site of the first visit of each control.
    site_column
        Its column of the site, if there is one.
    training
        Whether a model is trained; else one is applied, and its sites are learned from controls.
    """
    n, advised = len(controls), FEW_CONTROLS if training else FEW_FOR_A_MODEL
    if n < advised:
        yield (
            f'Few controls: {n}, at least {advised} are advised. They say what is usual in each '
            f'region to {_error(n)}, an error that all patients share: their R-indices may all be '
            'too high or too low'
        )
    if site_column is None or site_column not in controls:
        return
    sizes = controls[site_column].value_counts()
    small = sizes[sizes < FEW_AT_SITE].sort_index()
    if len(small) and len(sizes) > 1:
        listed = list_briefly(f'{site} ({count})' for site, count in small.items())
        yield (
            f'Few controls at sites: {listed}; at least {FEW_AT_SITE} are advised. What a scanner '
            f'adds to a region is known to {_error(int(small.min()))} there, and differences '
            'between such sites mean little'
        )


def outside_training_ages(
    people: pd.DataFrame, ranges: Mapping[str, tuple[float, float]]
) -> Iterator[str]:
    """Say whether many participants are younger or older than all controls of a model."""
    for column, (low, high) in ranges.items():
        if not means(column, 'age') or column not in people:
            continue
        ages = people[column].dropna()
        outside = int((~ages.between(low, high)).sum())
        if outside > MANY_OUTSIDE * len(people):
            yield (
                f'Training ages: {outside} of {counted(len(people), "participant")} '
                f'{"is" if outside == 1 else "are"} outside '
                f'{low:g}-{high:g}, the ages of the controls that the model was trained on; their '
                'R-indices are extrapolated'
            )


def _error(n: int) -> str:
    return f'about {1 / np.sqrt(n):.2f} of the standard deviation of controls'


def compare_ages(covariates: pd.DataFrame, is_patient: pd.Series) -> Iterator[tuple[str, bool]]:
    """Compare the ages of patients with those of controls.

    Yields
    ------
    text, is_serious
        Which ages the groups have and which patients are outside those of controls, if some are;
        and whether they are many.
    """
    column = column_of(covariates, 'age')
    if column is None or is_patient.all() or not is_patient.any():
        return
    age = pd.to_numeric(covariates[column], errors='coerce')
    young, old = age[~is_patient].min(), age[~is_patient].max()
    patients = age[is_patient]
    outside = patients.index[~patients.between(young, old)]
    if not len(outside):
        return
    share = len(outside) / len(patients)
    text = (
        f'Ages: controls {young:g}-{old:g}, patients {patients.min():g}-{patients.max():g}. '
        f'{len(outside)} of {len(patients)} patients ({list_briefly(outside, 5)}) are younger or '
        'older than all controls, so that what is usual at their age is extrapolated'
    )
    yield text, share > MANY_OUTSIDE
