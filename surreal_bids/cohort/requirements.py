"""What preprocessing does to features, and what a trained model requires of a cohort."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype

from surreal_bids.bids.tabular import Table, names, require_columns
from surreal_bids.columns import means
from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.harmonization.combat import FitOn, UnseenSite
from surreal_bids.harmonization.covariates import ICVHandling
from surreal_bids.regions import FeatureList

Codes = Mapping[str, Mapping[str, float]]
"""Numbers of the words that a numeric covariate may also be written in, lower case."""

OTHER_TABLE = '; if another table has it, give that as --participants'
"""What to do about a missing column that describes people."""


@dataclass(frozen=True)
class PreprocessingOptions:
    """What is done to features before a model sees them.

    Attributes
    ----------
    covariates
        Columns whose effect among controls is removed, and which ComBat keeps.
    icv_column, icv
        Column of the intracranial volume, and what to do with it: `power`, `covariate`,
        `proportion` or `none` (see `surreal_bids.harmonization.covariates`).
    site_column
        Column of the site; None: features are not harmonized.
    combat_fit_on
        Whom ComBat learns from: `controls` or `all`.
    unseen_site
        What happens to people of sites that ComBat has not learned: `error`, or `skip`, which
        leaves them unharmonized and marks them.
    impute
        Fill missing features by CN regression.
    """

    covariates: tuple[str, ...] = ()
    icv_column: str | None = None
    icv: ICVHandling = 'none'
    site_column: str | None = None
    combat_fit_on: FitOn = 'controls'
    unseen_site: UnseenSite = 'error'
    impute: bool = False

    def __post_init__(self) -> None:
        if self.icv != 'none' and self.icv_column is None:
            raise UsageError(f'ICV as a {self.icv} needs the column of the ICV; name it')
        if self.icv_column in self.covariates:
            raise UsageError(f'{self.icv_column} is given as ICV and as a covariate; give it once')
        if self.site_column in self.covariates:
            raise UsageError(
                f'{self.site_column} is given as site and as a covariate; as a site, its effect is '
                'removed by ComBat'
            )

    @property
    def uses_icv(self) -> bool:
        """Whether the intracranial volume is needed at all."""
        return self.icv != 'none'

    @property
    def columns(self) -> list[str]:
        """All columns about people that are needed."""
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
    """What a trained model requires of a cohort, and what it has seen.

    Attributes
    ----------
    features, options
        Its features, and what is done to them.
    mean_volumes : Series of shape (n_features,)
        Mean of each feature in the controls of the training sample, after preprocessing.
    ranges
        Range of each numeric covariate and of the ICV in these controls.
    levels
        Levels of each categorical covariate.
    codes
        Words that numeric covariates may be written in.
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
    """Columns that `options` name, typed: numbers, or text for categories and sites.

    Parameters
    ----------
    people
        Who they are; columns are found by name.
    options
        Which columns are needed.
    text
        The covariates that are categories; None: those that hold anything but numbers.
    codes
        Words that numeric covariates may be written in.

    Raises
    ------
    DataError
        A column is missing, or text stands where a number should.
    """
    found = require_columns(people, options.columns, OTHER_TABLE)
    typed = people.typed()
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
    """A column of numbers, of which some may be written as words."""
    cells = people.categories(column)
    coded = cells.map(lambda cell: codes.get(cell.lower()), na_action='ignore')
    spelled = cells.where(coded.isna(), coded.astype(object).map(str, na_action='ignore'))
    numbers = Table(people.source, people.text.assign(**{column: spelled})).numbers(column)
    strange = numbers.notna() & ~numbers.isin(list(codes.values()))
    if codes and strange.any():
        meaning = ', '.join(f'{word} = {number:g}' for word, number in codes.items())
        person = str(strange.idxmax())
        raise DataError(
            f'{people.source}: column {column}: {person} has {cells[person]}, '
            f'but the model knows {meaning}'
        )
    return numbers


def require_distinct(options: PreprocessingOptions, group_column: str) -> None:
    """Refuse the diagnosis as a covariate: it would remove what the model is to find."""
    if group_column in options.columns:
        raise DataError(
            f'{group_column} is the diagnosis and cannot be a covariate, ICV or site as well'
        )
