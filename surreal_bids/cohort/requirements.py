"""Options of preprocessing, and the requirements of a trained model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.harmonization.combat import UnseenSite
from surreal_bids.harmonization.covariates import ICVHandling
from surreal_bids.names import means, sex_of
from surreal_bids.regions import FeatureList
from surreal_bids.tables import PADDED, Table, to_numbers

ONE_SITE = 'everyone'
"""Name of the site of all participants in a dataset without a site column."""

Codes = Mapping[str, Mapping[str, float]]
"""Numbers for the words, in lower case, that may stand in a numeric covariate."""


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
        both = {self.icv_column, self.site_column} & {*self.covariates}
        if both:
            raise UsageError(
                f'{both.pop()} is a covariate and the ICV or site column; remove it from the '
                'covariates'
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
    """

    features: FeatureList
    options: PreprocessingOptions
    mean_volumes: pd.Series
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    levels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    codes: Codes = field(default_factory=dict)


def read_person_columns(
    people: Table,
    options: PreprocessingOptions,
    own: Mapping[str, str],
    model: Requirements | None = None,
) -> pd.DataFrame:
    """Read the columns of `options` as numbers, or as text for categories and sites.

    Parameters
    ----------
    people
        Facts about participants.
    options
        Names of the columns.
    own
        Column of `people` for each of them; without a site, everyone is of one site.
    model
        Model that knows which covariates are categories, and which words stand for numbers; None:
        covariates without any number are categories.

    Raises
    ------
    DataError
        Numeric columns hold text; all of them are listed.
    """
    columns, problems = {}, []
    for name, column in own.items():
        is_text = name in model.levels if model else _is_category(people.text[column])
        try:
            if is_text or name == options.site_column:
                columns[name] = people.names(column)
            else:
                columns[name] = _numbers(people, column, model.codes.get(name, {}) if model else {})
        except DataError as error:
            problems.append(str(error))
        if is_text and means(name, 'sex'):
            columns[name] = _unify_sex(columns[name], model.levels[name] if model else ())
    if problems:
        raise DataError('\n'.join(problems))
    table = pd.DataFrame(columns, index=people.text.index)
    lacking = [name for name in options.columns if name not in own]
    return table.assign(**dict.fromkeys(lacking, ONE_SITE))[options.columns]


def _is_category(cells: pd.Series) -> bool:
    """Check whether a covariate is a category: without numbers, or with labels such as `001`."""
    known = cells.dropna()
    if means(cells.name, 'age', 'icv'):
        return False
    return bool(to_numbers(known).isna().all()) or any(map(PADDED.fullmatch, known))


def _numbers(people: Table, column: str, codes: Mapping[str, float]) -> pd.Series:
    """Read numbers, some of which may be words; the age `89+` of BIDS is 89."""
    cells = people.text[column]
    if means(column, 'age'):
        cells = cells.str.removesuffix('+')
    if codes:
        cells = cells.map(lambda cell: str(codes.get(cell.lower(), cell)), na_action='ignore')
    numbers = Table(people.source_of(column), cells.to_frame(column)).numbers(column)
    strange = numbers.notna() & ~numbers.isin(list(codes.values()))
    if codes and strange.any():
        meaning = ', '.join(f'{word} = {number:g}' for word, number in codes.items())
        person = str(strange.idxmax())
        raise DataError(
            f'{people.source_of(column)}: column {column}: {person} has {cells[person]}, but the '
            f'model expects {meaning}'
        )
    return numbers


def _unify_sex(column: pd.Series, levels: Sequence[str]) -> pd.Series:
    """Write the words of a model for the sexes, or F and M if a table mixes spellings."""
    meant = column.map(lambda word: sex_of(word), na_action='ignore')
    names = {str(sex_of(level)): level for level in levels} or {'F': 'F', 'M': 'M'}
    if not levels and column[meant.notna()].nunique() <= meant.nunique():
        return column
    return meant.map(names).where(meant.notna(), column).astype(column.dtype)
