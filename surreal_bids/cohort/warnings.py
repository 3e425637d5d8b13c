"""Warnings about few controls, and about ages that differ between groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from surreal_bids.cautions import HARMONIZATION, PARTICIPANTS, R_INDICES, Caution
from surreal_bids.columns import means
from surreal_bids.harmonization.encoding import TOLERATED, is_clearly_outside
from surreal_bids.text import counted, list_briefly, plain_number

FEW_CONTROLS, FEW_FOR_A_MODEL, FEW_AT_SITE = 30, 20, 10
"""Number of controls below which a warning is given: in a training sample, in a sample or at a site
that a model is adapted to, and at a site of a training sample. The mean R-index of a cohort has an
sd of about 0.02 over sets of 20 controls, and of 0.05 over sets of 3 (benchmarks/nulls.py); 20
controls remove 68 % of the effect of a new site, 10 remove 59 % (benchmarks/README.md)."""

MANY_OUTSIDE = 0.2
"""Share of patients outside the age range of the controls that causes a warning. Of normally
distributed ages, 2 in n + 1 are outside the range of n controls."""


def not_adapted(reason: str = '') -> Caution:
    """Warn of a model that was applied without controls."""
    why = f' ({reason})' if reason else ''
    return Caution(
        f'Too few controls: the model was not adapted to the scanners of this dataset{why}',
        'Unless the model includes the site, R-indices contain scanner effects',
        'Compare them within a scanner, not with the training sample, or add controls',
        HARMONIZATION,
    )


def warn_of_controls(
    controls: pd.DataFrame, site_column: str | None, training: bool
) -> Iterator[Caution]:
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
    has_sites = site_column is not None and site_column in controls
    sizes = controls[site_column].value_counts() if has_sites else pd.Series(dtype=int)
    n, advised = len(controls), FEW_CONTROLS if training else FEW_FOR_A_MODEL
    if n < advised and (training or len(sizes) < 2):
        yield Caution(
            f'Few controls: {n}, at least {advised} are recommended',
            f'Reference values {_precision(n, training)}, which shifts the R-indices of all '
            'patients alike',
            'Add controls, or compare patients with each other only',
            PARTICIPANTS,
        )
    if len(sizes) > 1:
        yield from few_at_sites(sizes, training)


def few_at_sites(sizes: pd.Series, training: bool = False) -> Iterator[Caution]:
    """Warn of sites with few controls, of a training sample or of those that a model learns."""
    advised = FEW_AT_SITE if training else FEW_FOR_A_MODEL
    small = sizes[sizes < advised].sort_index()
    if len(small):
        listed = list_briefly(f'{site} ({count})' for site, count in small.items())
        yield Caution(
            f'Few controls at sites: {listed}; at least {advised} are recommended',
            f'Estimates of scanner effects {_precision(int(small.min()), training)}, which shifts '
            'the R-indices of all participants of a site alike',
            'Add controls, or do not interpret differences between these sites',
            HARMONIZATION,
        )


def not_corrected_for_age(ages: pd.Series | None) -> Caution:
    """Warn of a model that learns sites from controls (of these ages) without regard to age."""
    known = pd.Series(dtype=float) if ages is None else pd.to_numeric(ages, errors='coerce')
    whose = f' (here {known.min():.3g} to {known.max():.3g} years)' if known.notna().any() else ''
    return Caution(
        f'The model does not correct for age, and the ageing of the controls{whose} is taken for '
        'an effect of the scanner',
        'R-indices of the site are too low if these controls are older than those that the model '
        'was trained with, and too high if they are younger',
        'Use controls of the ages of the training sample, or compare participants within the site '
        'only',
        HARMONIZATION,
    )


def outside_training_range(
    people: pd.DataFrame, participants: pd.Series, ranges: Mapping[str, tuple[float, float]]
) -> Iterator[tuple[Caution, bool]]:
    """Find visits with a covariate clearly outside its range in the training controls of a model.

    Yields
    ------
    caution, is_serious
        Who is outside the range of a covariate; and whether it is the age of many.
    """
    for column, (low, high) in ranges.items():
        outside = is_clearly_outside(people[column], low, high)
        n_outside, n_all = participants[outside].nunique(), participants.nunique()
        if n_outside:
            names = list_briefly(people.index[outside], 5)
            caution = Caution(
                f'{column} is more than {TOLERATED:.0%} beyond the training range '
                f'{plain_number(low)} to {plain_number(high)}: '
                f'{n_outside} of {counted(n_all, "participant")} ({names})',
                'Their R-indices are extrapolated',
                'Do not interpret them, or use a model that was trained on these ages',
                R_INDICES,
            )
            yield caution, means(column, 'age') and n_outside > MANY_OUTSIDE * n_all


def _precision(n: int, training: bool) -> str:
    """Say how precise a mean of n controls is; what a model learns has an error of its own."""
    return f'have a standard error of {1 / np.sqrt(n):.2f} SD' if training else 'are imprecise'


def compare_ages(ages: pd.Series, is_patient: pd.Series) -> Iterator[tuple[Caution, bool]]:
    """Compare the ages of patients with those of controls.

    Yields
    ------
    caution, is_serious
        The patients outside the age range of controls, if there are any; and whether they are
        many.
    """
    age = pd.to_numeric(ages, errors='coerce').dropna()
    patients, controls = age[is_patient[age.index]], age[~is_patient[age.index]]
    if patients.empty or controls.empty:
        return
    young, old = controls.min(), controls.max()
    outside = patients.index[is_clearly_outside(patients, young, old)]
    if not len(outside):
        return
    share = len(outside) / len(patients)
    found = (
        f'Ages: {len(outside)} of {counted(len(patients), "patient")} ({list_briefly(outside, 5)}) '
        f'{"is" if len(outside) == 1 else "are"} more than {TOLERATED:.0%} beyond the age range of '
        f'controls ({young:g} to {old:g})'
    )
    remedy = 'Add controls of their ages, or exclude them'
    caution = Caution(found, 'The age correction is extrapolated', remedy, PARTICIPANTS)
    yield caution, share > MANY_OUTSIDE
