"""How features are preprocessed, and whether ComBat can learn from later visits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import pandas as pd

from surreal_bids.config import CohortOptions
from surreal_bids.exceptions import UsageError
from surreal_bids.harmonization.combat import ComBat, UnseenSite
from surreal_bids.harmonization.covariates import ICVHandling
from surreal_bids.names import column_of
from surreal_bids.sides import APART, Sides


@dataclass(frozen=True)
class PreprocessingOptions:
    """How features are preprocessed before a model uses them.

    Attributes
    ----------
    covariates
        Columns whose effect in controls is removed, and which ComBat preserves.
    icv_column, icv
        Column of the intracranial volume, and how to correct for it: `power`, `covariate`,
        `proportion` or `none` (see `surreal_bids.harmonization.covariates`).
    site_column
        Column of the site; None: features are not harmonized.
    unseen_site
        How to handle participants of sites that ComBat was not fitted on: `error`, or `skip`,
        which does not harmonize them and marks them.
    impute
        Impute missing features by regression in controls.
    sides
        `together`: a model sees the left and the right region of a structure as one feature;
        `apart`: as two, like all models of 0.1.0.
    """

    covariates: tuple[str, ...] = ()
    icv_column: str | None = None
    icv: ICVHandling = 'none'
    site_column: str | None = None
    unseen_site: UnseenSite = 'error'
    impute: bool = False
    sides: Sides = APART

    def __post_init__(self) -> None:
        if self.icv != 'none' and self.icv_column is None:
            raise UsageError(f'--icv {self.icv} needs an ICV column; name it with --icv-column')
        both = {self.icv_column, self.site_column} & {*self.covariates}
        if both:
            raise UsageError(
                f'{both.pop()} is a covariate and the ICV or site column; remove it from the '
                'covariates'
            )

    @classmethod
    def of(cls, config: CohortOptions, **resolved: Any) -> PreprocessingOptions:
        """Take the options of the user that have the same names; `resolved` replaces some."""
        names = {each.name for each in fields(cls)} & {each.name for each in fields(config)}
        return cls(**{name: getattr(config, name) for name in names} | resolved)

    def make_combat(self) -> ComBat:
        """Make a ComBat that is not fitted yet.

        Everything that fits, assesses or extends a harmonization makes it here: each parameter of
        ComBat is a field of these options.
        """
        return ComBat(**{name: getattr(self, name) for name in ComBat.setting_names()})

    @property
    def uses_icv(self) -> bool:
        """Whether the intracranial volume is needed."""
        return self.icv != 'none'

    @property
    def columns(self) -> list[str]:
        """All columns about participants that are needed."""
        extra = (self.icv_column if self.uses_icv else None, self.site_column)
        return [*self.covariates, *(name for name in extra if name is not None)]

    def to_json(self) -> dict[str, Any]:
        """Return the options as plain JSON values."""
        state = asdict(self) | {'covariates': list(self.covariates)}
        if self.sides == APART:
            # As in the cards of 0.1.0, and of the published models.
            del state['sides']
        return state

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> PreprocessingOptions:
        """Rebuild the options from `to_json`; one that only 0.1.0 had is ignored."""
        known = {name: state[name] for name in state if name != 'combat_fit_on'}
        return cls(**{**known, 'covariates': tuple(state['covariates'])})


MIN_ACROSS_SITES = 5
"""Participants seen at several sites that a comparison of sites within participants needs."""


def learns_from_visits(
    participant: pd.Series, people: pd.DataFrame, options: PreprocessingOptions
) -> bool:
    """Check whether enough participants came to several sites to compare sites within participants.

    Participants count if age is a covariate and differs between their visits: what changes with age
    would otherwise be taken for a difference between sites. Imputation knows the sites of first
    visits only.

    Parameters
    ----------
    participant : Series of shape (n_visits,)
        Who, of those that ComBat is fitted on.
    people : frame of shape (n_visits, n_columns)
        Their covariates and sites.
    options
        Columns, and how ComBat is fitted.
    """
    age = column_of(options.covariates, 'age')
    if age is None or options.site_column is None or options.impute:
        return False
    different = people.groupby(participant)[[age, options.site_column]].nunique().gt(1)
    return int(different.all(axis=1).sum()) >= MIN_ACROSS_SITES
