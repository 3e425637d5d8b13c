"""Warnings about the R-indices of participants whom a model is applied to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import pandas as pd

from surreal_bids.cautions import HARMONIZATION, INVALID, R_INDICES, Caution
from surreal_bids.cohort.checks import warn_of_sites
from surreal_bids.cohort.cohort import AGE_IGNORED, Cohort, ignores_age
from surreal_bids.names import PARTICIPANT
from surreal_bids.rindices.preprocessing import Preprocessing
from surreal_bids.text import counted, list_briefly

ADULT = 18
"""Age in years from which published models may apply."""

NO_SITES = Caution(
    'The published model includes no sites',
    'Volumes are not harmonized, and R-indices include effects of the scanner',
    'Compare within one scanner only, or add your scanners from controls (surreal-gan add-site)',
    HARMONIZATION,
)

IN_SAMPLE = (
    'R-indices of the training sample come from the model that was trained on it, and are biased: '
    'usually too low in controls and too high in patients'
)
"""Consequence where R-indices are not computed out of fold."""


class Described(Protocol):
    """A model, as far as these warnings need it."""

    @property
    def preprocessing(self) -> Preprocessing:
        """The fitted steps."""

    @property
    def notes(self) -> Mapping[str, Any]:
        """Provenance, as the card has it."""


def warn_of_applied(
    model: Described, cohort: Cohort, added: Mapping[str, Any], n_seen: int
) -> list[Caution]:
    """Warn of what limits the R-indices of a cohort that a model is applied to as it is.

    Parameters
    ----------
    model, cohort
        The model, and the participants it is applied to.
    added
        Sites that were added to the model, as its card has them.
    n_seen
        Number of visits that the model was trained on.
    """
    column = cohort.options.site_column
    sites = set() if column is None else set(cohort.people[column])
    cautions = [*without_sites(model), *children(model, cohort), *few_at_added(added, sites)]
    if sites & added.keys() and ignores_age(cohort):
        cautions.append(AGE_IGNORED)
    if n_seen:
        cautions.append(trained_on_visits(n_seen, cohort))
    return cautions


def without_sites(model: Described) -> list[Caution]:
    """Warn of a published model that includes no sites."""
    published = 'Imported' in model.notes
    return [NO_SITES] if published and model.preprocessing.combat is None else []


def are_children(model: Described, cohort: Cohort) -> pd.Series:
    """Mark visits of children, where a published model of adults does not correct for age."""
    concerns = 'Imported' in model.notes and 'age' not in cohort.options.covariates
    return cohort.ages.lt(ADULT) & concerns


def children(model: Described, cohort: Cohort) -> list[Caution]:
    """Warn of children, whose R-indices by a published model mean nothing."""
    is_child = are_children(model, cohort)
    n_children = cohort.visits[PARTICIPANT][is_child].nunique()
    if not n_children:
        return []
    return [
        Caution(
            f'{n_children} of {counted(cohort.visits[PARTICIPANT].nunique(), "participant")} are '
            f'younger than {ADULT} years ({list_briefly(is_child.index[is_child], 5)}), but the '
            'model was trained on adults',
            'Their R-indices are extrapolated',
            'Do not interpret them',
            R_INDICES,
        )
    ]


def few_at_added(notes: Mapping[str, Any], sites: Iterable[str]) -> Iterator[Caution]:
    """Warn of those of the sites that were added to a model from few controls."""
    sizes = {site: notes[site]['Controls'] for site in sites if site in notes}
    yield from warn_of_sites(pd.Series(sizes, dtype=int))


def in_sample(reason: str, remedy: str) -> Caution:
    """Warn of R-indices that are not computed out of fold."""
    return Caution(reason, IN_SAMPLE, remedy, R_INDICES, severity=INVALID)


def trained_on_visits(n_seen: int, cohort: Cohort) -> Caution:
    """Warn of visits that an applied model was trained on."""
    reason = f'The model was trained on {n_seen} of {counted(len(cohort), "visit")}'
    return in_sample(reason, 'Use the R-indices that "surreal-gan fit" wrote')
