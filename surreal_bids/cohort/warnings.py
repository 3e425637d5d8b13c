"""Warnings about few controls, and about ages that differ between groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from surreal_bids.columns import means
from surreal_bids.text import counted, list_briefly

FEW_CONTROLS, FEW_FOR_A_MODEL, FEW_AT_SITE = 30, 20, 10
"""Number of controls below which a warning is given: in a training sample, in a sample that a model
is applied to, and at a site. The mean R-index of a cohort has an sd of about 0.02 over sets of 20
controls, and of 0.05 over sets of 3 (benchmarks/nulls.py); 20 controls remove 68 % of the effect of
a new site, 10 remove 59 % (benchmarks/add_site.py)."""

MANY_OUTSIDE = 0.2
"""Share of patients outside the age range of the controls that causes a warning. Of normally
distributed ages, 2 in n + 1 are outside the range of n controls."""

NOT_ADAPTED = (
    'Too few controls: the model was not adapted to the scanners of this dataset. Unless the model '
    'includes the site, R-indices contain scanner effects; compare them within a scanner, not with '
    'the training sample'
)
"""Warning about a model that was applied without controls."""


def warn_of_controls(
    controls: pd.DataFrame, site_column: str | None, training: bool
) -> Iterator[str]:
    """Warn if the sample or a site has few controls.

    Parameters
    ----------
    controls
        Covariates and site of the first visit of each control.
    site_column
        Name of the site column, if there is one.
    training
        Whether a model is trained; else it learns only the sites from these controls.
    """
    n, advised = len(controls), FEW_CONTROLS if training else FEW_FOR_A_MODEL
    if n < advised:
        yield (
            f'Few controls: {n}, at least {advised} are recommended. Reference values have '
            f'{_error(n)}, which shifts the R-indices of all patients alike'
        )
    if site_column is None or site_column not in controls:
        return
    sizes = controls[site_column].value_counts()
    small = sizes[sizes < FEW_AT_SITE].sort_index()
    if len(small) and len(sizes) > 1:
        listed = list_briefly(f'{site} ({count})' for site, count in small.items())
        yield (
            f'Few controls at sites: {listed}; at least {FEW_AT_SITE} are recommended. Estimates '
            f'of scanner effects have {_error(int(small.min()))}; do not interpret differences '
            'between these sites'
        )


def outside_training_ages(
    people: pd.DataFrame, ranges: Mapping[str, tuple[float, float]]
) -> Iterator[str]:
    """Warn if many participants are younger or older than all training controls of a model."""
    for column, (low, high) in ranges.items():
        if not means(column, 'age') or column not in people:
            continue
        ages = people[column].dropna()
        outside = int((~ages.between(low, high)).sum())
        if outside > MANY_OUTSIDE * len(people):
            yield (
                f'Training ages: {outside} of {counted(len(people), "participant")} '
                f'{"is" if outside == 1 else "are"} outside {low:g}-{high:g}, the age range of the '
                'training controls. Their R-indices are extrapolated'
            )


def _error(n: int) -> str:
    return f'a standard error of {1 / np.sqrt(n):.2f} SD'


def compare_ages(ages: pd.Series, is_patient: pd.Series) -> Iterator[tuple[str, bool]]:
    """Compare the ages of patients with those of controls.

    Yields
    ------
    text, is_serious
        The patients outside the age range of controls, if there are any; and whether they are
        many.
    """
    age = pd.to_numeric(ages, errors='coerce').dropna()
    patients, controls = age[is_patient[age.index]], age[~is_patient[age.index]]
    if patients.empty or controls.empty:
        return
    young, old = controls.min(), controls.max()
    outside = patients.index[~patients.between(young, old)]
    if not len(outside):
        return
    share = len(outside) / len(patients)
    text = (
        f'Ages: {len(outside)} of {counted(len(patients), "patient")} ({list_briefly(outside, 5)}) '
        f'{"is" if len(outside) == 1 else "are"} outside the age range of controls '
        f'({young:g}-{old:g}); the age correction is extrapolated'
    )
    yield text, share > MANY_OUTSIDE
