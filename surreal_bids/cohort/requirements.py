"""Options of preprocessing, and the requirements of a trained model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from surreal_bids.bids.tabular import Table, find_column, names, require_columns
from surreal_bids.columns import means
from surreal_bids.config import CohortOptions, flag_of
from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.harmonization.combat import UnseenSite
from surreal_bids.harmonization.covariates import ICVHandling
from surreal_bids.regions import FeatureList, muse_table

Codes = Mapping[str, Mapping[str, float]]
"""Numbers for the words, in lower case, that may stand in a numeric covariate."""

OTHER_TABLE = '; if another table has it, add that table with --participants'
"""Remedy for a missing column about participants."""


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
    """

    covariates: tuple[str, ...] = ()
    icv_column: str | None = None
    icv: ICVHandling = 'none'
    site_column: str | None = None
    unseen_site: UnseenSite = 'error'
    impute: bool = False

    def __post_init__(self) -> None:
        if self.icv != 'none' and self.icv_column is None:
            raise UsageError(f'--icv {self.icv} needs an ICV column; name it with --icv-column')
        if self.icv_column in self.covariates:
            raise UsageError(
                f'{self.icv_column} is both the ICV column and a covariate; use it once'
            )
        if self.site_column in self.covariates:
            raise UsageError(
                f'{self.site_column} is both the site column and a covariate; remove it from the '
                'covariates, since ComBat removes the effects of sites'
            )

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
        return asdict(self) | {'covariates': list(self.covariates)}

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> PreprocessingOptions:
        """Rebuild the options from `to_json`."""
        return cls(**{**state, 'covariates': tuple(state['covariates'])})


@dataclass(frozen=True, eq=False)
class Requirements:
    """Requirements of a trained model, and properties of its training sample.

    Attributes
    ----------
    features, options
        Its features, and how they are preprocessed.
    mean_volumes : Series of shape (n_features,)
        Mean of each feature in the controls of the training sample, after preprocessing.
    ranges
        Range of each numeric covariate and of the ICV in the training controls.
    levels
        Levels of each categorical covariate.
    codes
        Words that may stand in numeric covariates.
    effects
        Mean relative change of the features per unit of each numeric covariate.
    """

    features: FeatureList
    options: PreprocessingOptions
    mean_volumes: pd.Series
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    levels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    codes: Codes = field(default_factory=dict)
    effects: Mapping[str, float] = field(default_factory=dict)


def read_person_columns(
    people: Table,
    options: PreprocessingOptions,
    text: Sequence[str] | None = None,
    codes: Codes | None = None,
) -> pd.DataFrame:
    """Read the columns of `options` as numbers, or as text for categories and sites.

    Parameters
    ----------
    people
        Facts about participants.
    options
        Names of the columns.
    text
        Covariates that are categories; None: those with any value that is not a number.
    codes
        Words that may stand in numeric covariates.

    Raises
    ------
    DataError
        A column is missing, or a numeric column holds text.
    """
    found = require_columns(people, options.columns, OTHER_TABLE)
    typed = replace(people, text=people.text[list(dict.fromkeys(found.values()))]).typed()
    if text is None:
        text = [
            name
            for name in options.covariates
            if not is_numeric_dtype(typed[found[name]]) and not means(name, 'age')
        ]
    columns = {}
    for name, column in found.items():
        if name in text or name == options.site_column:
            columns[name] = names(people, column)
        else:
            columns[name] = _numbers(people, column, (codes or {}).get(name, {}))
    return pd.DataFrame(columns, index=people.text.index)


def _numbers(people: Table, column: str, codes: Mapping[str, float]) -> pd.Series:
    """Read a column of numbers, some of which may be written as words."""
    cells = people.categories(column)
    coded = cells.map(lambda cell: codes.get(cell.lower()), na_action='ignore')
    spelled = cells.where(coded.isna(), coded.astype(object).map(str, na_action='ignore'))
    numbers = replace(people, text=people.text.assign(**{column: spelled})).numbers(column)
    strange = numbers.notna() & ~numbers.isin(list(codes.values()))
    if codes and strange.any():
        meaning = ', '.join(f'{word} = {number:g}' for word, number in codes.items())
        person = str(strange.idxmax())
        raise DataError(
            f'{people.source_of(column)}: column {column}: {person} has {cells[person]}, but the '
            f'model expects {meaning}'
        )
    return numbers


def require_distinct(options: PreprocessingOptions, group_column: str) -> None:
    """Refuse the diagnosis as a covariate, which would remove the effects of disease."""
    if group_column in options.columns:
        raise DataError(
            f'{group_column} is the diagnosis column; it cannot also be a covariate, ICV or site'
        )


def refuse_id_columns(options: CohortOptions, people: Table, ids: Collection[str]) -> None:
    """Refuse a column of ids as diagnosis, covariate, ICV or site."""
    for use in ('group_column', 'covariates', 'icv_column', 'site_column'):
        value = getattr(options, use)
        for name in value if isinstance(value, tuple) else filter(None, [value]):
            if find_column(ids, name) and not find_column(people.columns, name):
                what = 'a covariate' if use == 'covariates' else f'the {use.replace("_", " ")}'
                raise DataError(
                    f'{flag_of(use)} {name}: the id column cannot be {what}; choose another column'
                )


USUAL_ICV_MM3 = (3e5, 5e6)
"""Range of intracranial volumes in mm3, including those of children."""


def is_in_mm3(icv: float) -> bool:
    """Check whether an intracranial volume can only be in mm3."""
    return USUAL_ICV_MM3[0] < icv < USUAL_ICV_MM3[1]


OTHER_HEAD = 2.5
"""Largest plausible ratio between a head size and the median."""


def expected_volumes(wanted: FeatureList, model: Requirements | None) -> pd.Series:
    """Return the usual values of features: those of a model, or of MUSE regions."""
    if model is not None:
        return model.mean_volumes
    usual = muse_table().set_index('index')['volume_mm3']
    known = {f.name: usual[list(f.indices)].sum() for f in wanted.features if f.indices}
    return pd.Series(known, dtype=np.float64)


def usual_head_size(
    column: str, wanted: FeatureList, model: Requirements | None
) -> tuple[float, float]:
    """Return the range of plausible median head sizes, for a model or for MUSE volumes."""
    if model is not None:
        seen = model.ranges.get(column)
        return (seen[0] / OTHER_HEAD, seen[1] * OTHER_HEAD) if seen else (0.0, np.inf)
    return USUAL_ICV_MM3 if wanted.atlas else (0.0, np.inf)
