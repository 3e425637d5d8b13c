"""Choice of the columns of features, covariates, head size and site."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from surreal_bids.bids.tabular import (
    Table,
    find_column,
    prefix_errors,
    require_columns,
)
from surreal_bids.cohort.requirements import PreprocessingOptions, Requirements
from surreal_bids.columns import Meaning, column_of, columns_of, describes_participants, means
from surreal_bids.config import VOLUME, ZSCORE, CohortOptions
from surreal_bids.exceptions import DataError, MissingColumnError, UsageError
from surreal_bids.files import read_file
from surreal_bids.harmonization.covariates import ICVHandling
from surreal_bids.regions import (
    DERIVED,
    FREESURFER,
    FREESURFER_OTHERS,
    FREESURFER_REGION,
    VENTRICLES,
    Z_SCORE,
    Feature,
    FeatureList,
    build_features,
    feature_set,
    muse_indices,
    muse_number,
    recognise,
    region_names,
)
from surreal_bids.text import list_briefly

NAMED_SETS = ('muse72', 'muse139')
"""Names of feature sets: that of the authors' checkpoints, and all single regions."""

VOLUME_UNIT = 'mm3'
UNKNOWN_UNIT = 'as in the table'

MOSTLY_NUMBERS = 0.5
"""Share of values that begin like a number above which a column is numeric."""

MIN_COUNTED = 5
"""Number of rows above which the values 1, 2, 3 ... count rows."""


def named_features(name: str) -> FeatureList:
    """Look up `muse72` or `muse139`."""
    if name == 'muse139':
        regions = region_names()
        features = tuple(Feature(regions[index], (index,)) for index in muse_indices())
    else:
        features = feature_set(name)
    return FeatureList(name, features, VOLUME_UNIT)


def column_features(columns: Iterable[str]) -> FeatureList:
    """Make features of columns; if all are MUSE regions, every spelling is recognised later."""
    columns = list(columns)
    regions = recognise(columns)
    if len(regions) == len(columns):
        features = tuple(Feature(column, (index,)) for column, index in regions.items())
        return FeatureList('columns', features, VOLUME_UNIT)
    return FeatureList('columns', tuple(Feature(name, ()) for name in columns), UNKNOWN_UNIT)


def of_kind(features: FeatureList, kind: str | None) -> FeatureList:
    """Mark features as z-scores, if that is their kind."""
    return replace(features, unit=Z_SCORE) if kind == ZSCORE else features


def listed_features(wanted: str) -> FeatureList:
    """Read the features of `--features`: a named set, or a text file with one name per line."""
    if wanted in NAMED_SETS:
        return named_features(wanted)
    path = Path(wanted)
    try:
        lines = [line.strip() for line in read_file(path).decode('utf-8-sig').splitlines()]
    except OSError as error:
        raise UsageError(
            f'--features {wanted}: neither {" nor ".join(NAMED_SETS)} nor a readable file '
            f'({error.strerror}); name a text file with one feature per line'
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(f'{path}: not UTF-8 text; list one feature per line') from error
    names = [line for line in lines if line]
    if not names:
        raise DataError(f'{path}: the file is empty; list one feature per line')
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f'{path}: {list_briefly(repeated)} is listed more than once; list it once')
    with prefix_errors(path):
        return column_features(names)


def choose_features(table: Table, others: Iterable[str]) -> tuple[FeatureList, list[str]]:
    """Find the regions of a table, which are its features by default.

    If most columns are regions of MUSE or FreeSurfer, these are used, except ventricles; else all
    numeric columns that neither describe participants nor sum other columns.

    Parameters
    ----------
    table
        Volumes.
    others
        Columns with another use, or that are also in the table of participants.

    Returns
    -------
    features, notes
        The features, and the columns that are not used.

    Raises
    ------
    DataError
        A column counts rows, or there is no region.
    """
    used = set(others)
    refuse_index_columns(table, used)
    columns = [name for name in table.columns if name not in used]
    numbered = _is_numbered_otherwise(columns)
    totals = [name for name in columns if is_total(name) and not (numbered and name.isdecimal())]
    columns = [name for name in columns if name not in totals]
    regions = _regions(table, columns, numbered)
    rest = sorted({*columns} - {*regions}, key=columns.index)
    if not regions:
        raise DataError(
            f'{table.source}: no column holds regional volumes; the columns are '
            f'{list_briefly(table.columns) or "ids only"}'
        )
    kinds = {
        'Sums and fluid, not used as features': totals,
        'Columns not used as features (use --features to include them)': rest,
    }
    return column_features(regions), [f'{k}: {list_briefly(n)}' for k, n in kinds.items() if n]


def _regions(table: Table, columns: list[str], numbered: bool) -> list[str]:
    """Return the columns of an atlas if these are the majority, else all possible regions."""
    if any(FREESURFER.fullmatch(name) for name in columns):
        known = [name for name in columns if FREESURFER_REGION.fullmatch(name)]
    else:
        with prefix_errors(table.source):
            muse = {} if numbered else recognise(columns)
        known = [name for name, index in muse.items() if index not in VENTRICLES]
        columns = [name for name in columns if muse.get(name) not in VENTRICLES]
    if len(known) > len(columns) / 2:
        return known
    numbers = [name for name in columns if _some_numbers(table, name)]
    return [name for name in numbers if not describes_participants(name)]


def refuse_index_columns(table: Table, used: Collection[str] = ()) -> None:
    """Refuse columns without a name and columns that count rows."""
    for name in table.columns:
        if name in used:
            continue
        if means(name, 'row number') or name.startswith('Unnamed:') or _counts(table, name):
            shown = f'column {name}' if name else 'a column without a name'
            raise DataError(f'{table.source}: {shown} seems to count rows; remove it')


def is_total(column: str) -> bool:
    """Check whether a column is called like a sum of regions or fluid in MUSE or FreeSurfer."""
    if means(column, 'icv') or muse_number(column) in DERIVED:
        return True
    return FREESURFER_OTHERS.fullmatch(column) is not None


def _counts(table: Table, name: str) -> bool:
    """Check whether a column holds 0, 1, 2 ... or 1, 2, 3 ..."""
    cells = table.text[name].tolist()
    steps = [str(k) for k in range(len(cells) + 1)]
    return len(cells) > MIN_COUNTED and cells in (steps[:-1], steps[1:])


def _is_numbered_otherwise(columns: Iterable[str]) -> bool:
    """Check whether the names of columns are numbers other than those of MUSE."""
    known = {*region_names(), *DERIVED}
    return any(int(name) not in known for name in columns if name.isdecimal())


def _some_numbers(table: Table, name: str) -> bool:
    """Check whether most values of a column begin like a number."""
    cells = table.text[name].dropna()
    return not len(cells) or bool(cells.str.match(r'[+-]?[.,]?\d').mean() > MOSTLY_NUMBERS)


def read_features(table: Table, wanted: FeatureList) -> pd.DataFrame:
    """Read features of shape (n_visits, n_features), NaN where missing.

    Columns are found by name, in any order. MUSE regions may have any recognised spelling, and
    sums of regions are computed if the table has the single ones.

    Raises
    ------
    DataError
        A column is missing or holds text.
    """
    columns = {name: find_column(table.columns, name) for name in wanted.names}
    if None not in columns.values() or not wanted.features[0].indices:
        try:
            found = require_columns(table, wanted.names)
        except MissingColumnError as error:
            # Another table, as a MissingColumnError suggests, does not hold regions.
            raise DataError(str(error)) from error
        return pd.DataFrame({name: table.numbers(column) for name, column in found.items()})
    needed = {index for feature in wanted.features for index in feature.indices}
    with prefix_errors(table.source):
        _refuse_sums_of_scores(wanted)
        regions = recognise(table.columns)
        _refuse_freesurfer(table.columns, needed - {*regions.values()})
        volumes = {name: table.numbers(name) for name, index in regions.items() if index in needed}
        return build_features(pd.DataFrame(volumes, table.text.index), wanted.features)


def _refuse_sums_of_scores(wanted: FeatureList) -> None:
    if wanted.are_z_scores and any(len(feature.indices) > 1 for feature in wanted.features):
        raise DataError(
            f'{wanted.name} sums regions of both sides, but a sum of z-scores is no z-score; use '
            '--features muse139, or a file with the names of columns'
        )


def _refuse_freesurfer(columns: Iterable[str], missing: Collection[int]) -> None:
    """Explain that a model needs MUSE regions if a table has those of FreeSurfer."""
    others = [name for name in columns if FREESURFER_REGION.fullmatch(name)]
    if missing and any(FREESURFER.fullmatch(name) for name in others):
        raise DataError(
            f'the model needs MUSE regions, and {len(missing)} of them are missing; the table has '
            f'FreeSurfer regions ({list_briefly(others, 3)}). Measure MUSE regions with '
            'surreal-bids, without -d freesurfer, fastsurfer or synthseg, or with DLMUSE; or train '
            'a model on FreeSurfer regions'
        )


def unused_columns(table: Table, wanted: FeatureList, used: Iterable[str]) -> list[str]:
    """Return the columns of a table that are not used."""
    known = {*wanted.names, *used}
    needed = {index for feature in wanted.features for index in feature.indices}
    known |= {name for name, index in recognise(table.columns).items() if index in needed}
    folded = {name.lower() for name in known}
    return [name for name in table.columns if name.lower() not in folded]


SITE = 'site'
"""Name of the site column of models that were trained without sites."""

NONE = 'none'
"""Option value that disables a column used by default."""


MOSTLY_KNOWN = 0.9
"""Share of participants with a known value from which a column is used by default."""


ICV_WORDS = {
    'power': 'corrected with an allometric (log-log) model fitted in controls ({})',
    'covariate': 'corrected linearly ({})',
    'proportion': 'volumes are divided by it ({})',
    'none': 'not corrected',
}
"""Description of each correction for head size."""


@dataclass(frozen=True)
class Choice:
    """Columns to use.

    Attributes
    ----------
    options
        Options of preprocessing; the columns are those of the model, if there is one.
    columns
        Column of the dataset for each column of `options`.
    one_site
        Whether the dataset lacks a site column that the model needs.
    notes
        Choices, as sentences for the report.
    """

    options: PreprocessingOptions
    columns: Mapping[str, str]
    one_site: bool = False
    notes: tuple[str, ...] = field(default_factory=tuple)


def choose_options(
    config: CohortOptions, people: Table, model: Requirements | None = None, adapt: bool = True
) -> Choice:
    """Find the columns of covariates, head size and site.

    Parameters
    ----------
    config
        Options of the user.
    people
        Facts about participants.
    model
        Requirements of the model to apply; None: a model is trained.
    adapt
        Whether the model learns the sites of these participants first.

    Raises
    ------
    DataError
        A column of the user or of the model is missing.
    """
    if model is None:
        return _for_training(config, people)
    return _for_model(config, people, model, adapt)


def _for_training(config: CohortOptions, people: Table) -> Choice:
    covariates, are_named = _covariates(config, people)
    icv_column = _icv_column(config, people, covariates)
    site_column = _site_column(config, people)
    options = PreprocessingOptions(
        covariates=tuple(covariates),
        icv_column=icv_column,
        icv=_icv_handling(config, icv_column),
        site_column=site_column,
        combat_fit_on='all' if config.combat_fit_on == 'all' else 'controls',
        impute=config.impute,
    )
    found = require_columns(people, options.columns)
    regions = [name for name in covariates if recognise([name])]
    if regions:
        raise DataError(f'{list_briefly(regions)} is a region and cannot also be a covariate')
    removed = ', '.join(covariates) or NONE
    notes = (
        f'Covariates: {removed}' + ('' if are_named else ' (default)'),
        f'Head size: {ICV_WORDS[options.icv].format(icv_column)}',
        f'Site: {site_column or "not known; volumes are not harmonized"}',
    )
    return Choice(options, found, notes=notes)


def _covariates(config: CohortOptions, people: Table) -> tuple[list[str], bool]:
    """Return the covariates, and whether the user named them."""
    if config.covariates:
        asked = list(dict.fromkeys(config.covariates))
        return ([] if asked == [NONE] else asked), True
    if config.features_kind == ZSCORE:
        return [], False
    usual = [_first_useful(people, columns_of(people.columns, 'age'))]
    usual.append(_first_useful(people, columns_of(people.columns, 'sex')))
    return [name for name in usual if name is not None], False


def _first_useful(people: Table, columns: Iterable[str]) -> str | None:
    return next((name for name in columns if _is_useful(people, name)), None)


def _is_useful(people: Table, column: str) -> bool:
    cells = people.categories(column)
    return bool(cells.notna().mean() >= MOSTLY_KNOWN and len(set(cells.dropna())) > 1)


def _icv_column(config: CohortOptions, people: Table, covariates: Sequence[str]) -> str | None:
    is_asked_for = config.features_kind != ZSCORE or config.icv is not None
    if config.icv_column or config.icv == NONE or not is_asked_for:
        return config.icv_column
    usual = [name for name in columns_of(people.columns, 'icv') if name not in covariates]
    return next((name for name in usual if _is_useful(people, name)), None)


def _icv_handling(config: CohortOptions, column: str | None) -> ICVHandling:
    are_z_scores = config.features_kind == ZSCORE
    if are_z_scores and config.icv in ('power', 'proportion'):
        raise UsageError(
            f'--icv {config.icv} needs volumes; use --icv covariate or none with --features-kind '
            f'{ZSCORE}'
        )
    if config.icv == 'proportion':
        return 'proportion'
    if config.icv == NONE or column is None:
        return 'none'
    return 'covariate' if are_z_scores or config.icv == 'covariate' else 'power'


def _site_column(config: CohortOptions, people: Table) -> str | None:
    if config.site_column:
        return None if config.site_column == NONE else config.site_column
    usual = columns_of(people.columns, 'site')
    return next((name for name in usual if _is_useful(people, name)), None)


def _for_model(config: CohortOptions, people: Table, model: Requirements, adapt: bool) -> Choice:
    """Choose the columns of a model; ICV and site may have another name, the site may lack."""
    if config.covariates or config.icv:
        raise UsageError(
            '--model: the model defines the covariates and the correction for head size; remove '
            '--covariates and --icv'
        )
    kind = ZSCORE if model.features.are_z_scores else VOLUME
    if config.features_kind not in (None, kind):
        raise UsageError(
            f'--features-kind {config.features_kind}: the model was trained on features of the '
            f'kind {kind}; use such a table, or another model'
        )
    site = model.options.site_column or (SITE if adapt else None)
    options = replace(model.options, site_column=site)
    found = _model_columns(config, people, options)
    if site is None:
        return Choice(options, found)
    own_site = _site_column(config, people) if adapt else config.site_column or site
    if own_site is None:
        return Choice(options, found, True, ('Site: all participants are treated as one site',))
    found |= {site: require_columns(people, [own_site], '; the model needs it')[own_site]}
    return Choice(options, found, notes=(f'Site: {own_site}',))


SHARED: tuple[Meaning, ...] = ('age', 'sex')
"""Meanings of covariates that may have another name in a dataset than in a model."""


def _model_columns(
    config: CohortOptions, people: Table, options: PreprocessingOptions
) -> dict[str, str]:
    """Find the columns of a model, except the site."""
    needed = [name for name in options.columns if name != options.site_column]
    own = {name: _own_column(config, people, name, options.icv_column) for name in needed}
    found = {name: column for name, column in own.items() if column is not None}
    return found | require_columns(
        people, [name for name in needed if name not in found], '; the model needs it'
    )


def _own_column(
    config: CohortOptions, people: Table, name: str, icv_column: str | None
) -> str | None:
    """Find the column of the dataset for a column of the model, by its name or else its meaning."""
    is_icv = name == icv_column or means(name, 'icv')
    if is_icv and config.icv_column:
        return require_columns(people, [config.icv_column])[config.icv_column]
    if same := find_column(people.columns, name):
        return same
    if is_icv:
        return column_of(people.columns, 'icv')
    meaning: Meaning | None = next((each for each in SHARED if means(name, each)), None)
    return None if meaning is None else column_of(people.columns, meaning)
