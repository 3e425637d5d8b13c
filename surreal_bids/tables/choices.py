"""Which columns describe people: what the user said, and what is usual where nothing was said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from surreal_bids.bids.participants import Table
from surreal_bids.config import AppConfig
from surreal_bids.exceptions import UsageError
from surreal_bids.harmonization.icv import ICVHandling
from surreal_bids.tables.people import PreprocessingOptions
from surreal_bids.tables.preprocessing import Preprocessing
from surreal_bids.tables.reading import find_column, require_columns
from surreal_bids.tables.visits import ICV

NONE = 'none'
"""What a user says to leave out a column that would be used by itself."""

USUAL_COVARIATES = ('age', 'sex')
"""Covariates that are used, if there, when none are named."""

USUAL_SITES = ('site', 'scanner')
"""Columns of the site that are used, if there, when none is named: the first of them."""

MOSTLY_KNOWN = 0.9
"""A column that was not asked for is used if it is known of at least this share of people."""


ICV_WORDS = {
    'covariate': 'its effect is removed ({})',
    'proportion': 'volumes are divided by it ({})',
    'none': 'left in the volumes',
}
"""What is said of each way to handle the intracranial volume."""


@dataclass(frozen=True)
class Choice:
    """Columns to use.

    Attributes
    ----------
    options
        What is done to features; its columns are those of the model, if there is one.
    columns
        The column of the dataset for each column of `options`.
    one_site
        Whether the dataset does not tell sites apart, though the model wants a site.
    notes
        What was chosen without being asked for, in words.
    """

    options: PreprocessingOptions
    columns: Mapping[str, str]
    one_site: bool = False
    notes: tuple[str, ...] = field(default_factory=tuple)


def choose_options(config: AppConfig, people: Table, model: Preprocessing | None = None) -> Choice:
    """Find the columns of covariates, head size and site.

    Parameters
    ----------
    config
        What the user said.
    people
        What is known of people.
    model
        Preprocessing of a model to apply, which says which covariates are needed.

    Raises
    ------
    DataError
        A column that was asked for, or that the model needs, is not there.
    """
    return _for_training(config, people) if model is None else _for_model(config, people, model)


def _for_training(config: AppConfig, people: Table) -> Choice:
    covariates, said = _covariates(config, people)
    icv_column = _icv_column(config, people, covariates)
    site_column = _site_column(config, people)
    options = PreprocessingOptions(
        covariates=tuple(covariates),
        icv_column=icv_column,
        icv=_icv_handling(config, icv_column),
        site_column=site_column,
    )
    found = require_columns(people, options.columns)
    removed = ', '.join(covariates) or NONE
    notes = (
        f'Covariates: {removed}' + ('' if said else ' (since none were named)'),
        f'Head size: {ICV_WORDS[options.icv].format(icv_column)}',
        f'Site: {site_column or "not known, so that nothing is harmonized"}',
    )
    return Choice(options, found, notes=notes)


def _covariates(config: AppConfig, people: Table) -> tuple[list[str], bool]:
    """The covariates, and whether the user named them."""
    if config.covariates:
        asked = list(dict.fromkeys(config.covariates))
        return ([] if asked == [NONE] else asked), True
    usual = [find_column(people.columns, name) for name in USUAL_COVARIATES]
    return [name for name in usual if name and _is_useful(people, name)], False


def _is_useful(people: Table, column: str) -> bool:
    cells = people.categories(column)
    return bool(cells.notna().mean() >= MOSTLY_KNOWN and cells.nunique() > 1)


def _icv_column(config: AppConfig, people: Table, covariates: Sequence[str]) -> str | None:
    if config.icv_column or config.icv == NONE:
        return config.icv_column
    found = find_column(people.columns, ICV)
    usable = found is not None and found not in covariates and _is_useful(people, found)
    return found if usable else None


def _icv_handling(config: AppConfig, column: str | None) -> ICVHandling:
    if config.icv == 'proportion':
        return 'proportion'
    return 'none' if config.icv == NONE or column is None else 'covariate'


def _site_column(config: AppConfig, people: Table) -> str | None:
    if config.site_column:
        return None if config.site_column == NONE else config.site_column
    usual = [find_column(people.columns, name) for name in USUAL_SITES]
    return next((name for name in usual if name and _is_useful(people, name)), None)


def _for_model(config: AppConfig, people: Table, model: Preprocessing) -> Choice:
    """The model's columns; ICV and site may have another name here, the site none at all."""
    if config.covariates or config.icv:
        raise UsageError(
            '--model: covariates and what is done with head size are those of the model; leave '
            '--covariates and --icv out'
        )
    site = model.options.site_column or USUAL_SITES[0]
    options = replace(model.options, site_column=site)
    needed = [name for name in options.columns if name != site]
    renamed = {}
    if config.icv_column and options.icv_column in needed:
        needed.remove(options.icv_column)
        own = require_columns(people, [config.icv_column])
        renamed = {options.icv_column: own[config.icv_column]}
    found = require_columns(people, needed, ', which the model needs') | renamed
    own_site = _site_column(config, people)
    if own_site is None:
        return Choice(options, found, True, ('Site: everyone is taken for one site',))
    found |= {site: require_columns(people, [own_site])[own_site]}
    return Choice(options, found, notes=(f'Site: {own_site}',))
