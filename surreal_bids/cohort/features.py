"""Which columns of a table are features, covariates, head size and site; how to find them again."""

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
from surreal_bids.columns import column_of, columns_of, describes_participants, means
from surreal_bids.config import CohortOptions
from surreal_bids.exceptions import DataError, MissingColumnError, UsageError
from surreal_bids.harmonization.covariates import ICVHandling
from surreal_bids.regions import (
    DERIVED,
    FREESURFER,
    FREESURFER_OTHERS,
    FREESURFER_REGION,
    VENTRICLES,
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
"""Feature sets known by name: what the authors' checkpoints take, and all single regions."""

VOLUME_UNIT = 'mm3'
UNKNOWN_UNIT = 'as in the table'

MOSTLY_NUMBERS = 0.5
"""A column of which a larger share begins like a number is meant to hold numbers."""

MIN_COUNTED = 5
"""Rows from which a column 1, 2, 3 ... is no coincidence."""


def named_features(name: str) -> FeatureList:
    """Look up `muse72` or `muse139`."""
    if name == 'muse139':
        regions = region_names()
        features = tuple(Feature(regions[index], (index,)) for index in muse_indices())
    else:
        features = feature_set(name)
    return FeatureList(name, features, VOLUME_UNIT)


def column_features(columns: Iterable[str]) -> FeatureList:
    """Features that are columns of a table; if all are MUSE regions, any spelling finds them."""
    columns = list(columns)
    regions = recognise(columns)
    if len(regions) == len(columns):
        features = tuple(Feature(column, (index,)) for column, index in regions.items())
        return FeatureList('columns', features, VOLUME_UNIT)
    return FeatureList('columns', tuple(Feature(name, ()) for name in columns), UNKNOWN_UNIT)


def listed_features(wanted: str) -> FeatureList:
    """Features that the user asked for: a named set, or a text file with one name a line."""
    if wanted in NAMED_SETS:
        return named_features(wanted)
    path = Path(wanted)
    try:
        lines = [line.strip() for line in path.read_text(encoding='utf-8-sig').splitlines()]
    except OSError as error:
        raise UsageError(
            f'--features {wanted}: neither {" nor ".join(NAMED_SETS)} nor a readable file '
            f'({error.strerror}); give a text file with one feature a line'
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(f'{path}: not UTF-8 text; list one feature a line') from error
    names = [line for line in lines if line]
    if not names:
        raise DataError(f'{path}: the file is empty; list one feature a line')
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f'{path}: listed more than once: {list_briefly(repeated)}; list it once')
    with prefix_errors(path):
        return column_features(names)


def choose_features(table: Table, others: Iterable[str]) -> tuple[FeatureList, list[str]]:
    """Find the regions of a table: its features where none are named.

    Where most columns are regions of MUSE or FreeSurfer, these are, ventricles apart; else all
    columns of numbers that neither describe participants nor sum other columns.

    Parameters
    ----------
    table
        Volumes.
    others
        Columns that are used otherwise, or that the table of participants has too.

    Returns
    -------
    features, notes
        The features, and which columns are not among them.

    Raises
    ------
    DataError
        A column counts rows, or no region is left.
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
            f'{table.source}: no column holds regional volumes; there are '
            f'{list_briefly(table.columns) or "no others"}'
        )
    kinds = {
        'Sums or fluid, not used as features': totals,
        'Columns not used as features (--features names them)': rest,
    }
    return column_features(regions), [f'{k}: {list_briefly(n)}' for k, n in kinds.items() if n]


def _regions(table: Table, columns: list[str], numbered: bool) -> list[str]:
    """Columns of an atlas, where most are such; else all that may be meant as regions."""
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
    """Refuse columns without a name, and columns that count rows."""
    for name in table.columns:
        if name in used:
            continue
        if means(name, 'row number') or name.startswith('Unnamed:') or _counts(table, name):
            shown = f'column {name}' if name else 'a column without a name'
            raise DataError(f'{table.source}: {shown} seems to count rows, not a region; drop it')


def is_total(column: str) -> bool:
    """Tell whether a column holds a sum of regions, or fluid, by the names of MUSE or FreeSurfer.

    Such numbers are no features beside the regions that they sum.
    """
    if means(column, 'icv') or muse_number(column) in DERIVED:
        return True
    return FREESURFER_OTHERS.fullmatch(column) is not None


def _counts(table: Table, name: str) -> bool:
    """Tell whether a column holds 0, 1, 2 ... or 1, 2, 3 ..."""
    cells = table.text[name].tolist()
    steps = [str(k) for k in range(len(cells) + 1)]
    return len(cells) > MIN_COUNTED and cells in (steps[:-1], steps[1:])


def _is_numbered_otherwise(columns: Iterable[str]) -> bool:
    """Tell whether the names of columns are numbers that are not those of MUSE."""
    known = {*region_names(), *DERIVED}
    return any(int(name) not in known for name in columns if name.isdecimal())


def _some_numbers(table: Table, name: str) -> bool:
    """Tell whether a column is meant to hold numbers: half of what is in it are some, or nearly."""
    cells = table.text[name].dropna()
    return not len(cells) or bool(cells.str.match(r'[+-]?[.,]?\d').mean() > MOSTLY_NUMBERS)


def read_features(table: Table, wanted: FeatureList) -> pd.DataFrame:
    """Numbers of the wanted features, (people, features), NaN where missing.

    Columns are found by name, in any order; MUSE regions in any usual spelling, and sums of
    regions are built where the table has the single ones.

    Raises
    ------
    DataError
        A column is missing (the nearest are named) or holds text (the person is named).
    """
    columns = {name: find_column(table.columns, name) for name in wanted.names}
    if None not in columns.values() or not wanted.features[0].indices:
        try:
            found = require_columns(table, wanted.names)
        except MissingColumnError as error:
            # Regions are of this table or of none: no other kind of table is to be asked for.
            raise DataError(str(error)) from error
        return pd.DataFrame({name: table.numbers(column) for name, column in found.items()})
    needed = {index for feature in wanted.features for index in feature.indices}
    with prefix_errors(table.source):
        regions = recognise(table.columns)
        _refuse_freesurfer(table.columns, needed - {*regions.values()})
        volumes = {name: table.numbers(name) for name, index in regions.items() if index in needed}
        return build_features(pd.DataFrame(volumes, table.text.index), wanted.features)


def _refuse_freesurfer(columns: Iterable[str], missing: Collection[int]) -> None:
    """Say of what atlas the regions are, where those of MUSE are missing."""
    others = [name for name in columns if FREESURFER_REGION.fullmatch(name)]
    if missing and any(FREESURFER.fullmatch(name) for name in others):
        raise DataError(
            f'the model needs the regions of MUSE, of which {len(missing)} are missing; these are '
            f'regions of FreeSurfer ({list_briefly(others, 3)}). Measure those of MUSE with '
            'surreal-bids, without -d freesurfer, fastsurfer or synthseg, or with DLMUSE; or train '
            'a model on these'
        )


def unused_columns(table: Table, wanted: FeatureList, used: Iterable[str]) -> list[str]:
    """Columns of a table that are neither features nor used otherwise."""
    known = {*wanted.names, *used}
    needed = {index for feature in wanted.features for index in feature.indices}
    known |= {name for name, index in recognise(table.columns).items() if index in needed}
    folded = {name.lower() for name in known}
    return [name for name in table.columns if name.lower() not in folded]


SITE = 'site'
"""Name of the site column of models that were trained without sites."""

NONE = 'none'
"""What a user says to leave out a column that would be used by itself."""


MOSTLY_KNOWN = 0.9
"""A column that was not asked for is used if it is known of at least this share of people."""


ICV_WORDS = {
    'power': 'removed by ratio, as a power of it that controls show ({})',
    'covariate': 'its linear effect is removed ({})',
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


def choose_options(
    config: CohortOptions, people: Table, model: Requirements | None = None, adapt: bool = True
) -> Choice:
    """Find the columns of covariates, head size and site.

    Parameters
    ----------
    config
        What the user said.
    people
        What is known of participants.
    model
        What the model to apply requires; None: a model is trained.
    adapt
        Whether the model learns the sites of these participants first.

    Raises
    ------
    DataError
        A column that was asked for, or that the model needs, is not there.
    """
    if model is None:
        return _for_training(config, people)
    return _for_model(config, people, model, adapt)


def _for_training(config: CohortOptions, people: Table) -> Choice:
    covariates, said = _covariates(config, people)
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
        raise DataError(f'{list_briefly(regions)} is a region, and cannot be a covariate as well')
    removed = ', '.join(covariates) or NONE
    notes = (
        f'Covariates: {removed}' + ('' if said else ' (since none were named)'),
        f'Head size: {ICV_WORDS[options.icv].format(icv_column)}',
        f'Site: {site_column or "not known, so that nothing is harmonized"}',
    )
    return Choice(options, found, notes=notes)


def _covariates(config: CohortOptions, people: Table) -> tuple[list[str], bool]:
    """The covariates, and whether the user named them."""
    if config.covariates:
        asked = list(dict.fromkeys(config.covariates))
        return ([] if asked == [NONE] else asked), True
    usual = [column_of(people.columns, 'age'), column_of(people.columns, 'sex')]
    return [name for name in usual if name and _is_useful(people, name)], False


def _is_useful(people: Table, column: str) -> bool:
    cells = people.categories(column)
    return bool(cells.notna().mean() >= MOSTLY_KNOWN and len(set(cells.dropna())) > 1)


def _icv_column(config: CohortOptions, people: Table, covariates: Sequence[str]) -> str | None:
    if config.icv_column or config.icv == NONE:
        return config.icv_column
    usual = [name for name in columns_of(people.columns, 'icv') if name not in covariates]
    return next((name for name in usual if _is_useful(people, name)), None)


def _icv_handling(config: CohortOptions, column: str | None) -> ICVHandling:
    if config.icv == 'proportion':
        return 'proportion'
    if config.icv == NONE or column is None:
        return 'none'
    return 'covariate' if config.icv == 'covariate' else 'power'


def _site_column(config: CohortOptions, people: Table) -> str | None:
    if config.site_column:
        return None if config.site_column == NONE else config.site_column
    usual = columns_of(people.columns, 'site')
    return next((name for name in usual if _is_useful(people, name)), None)


def _for_model(config: CohortOptions, people: Table, model: Requirements, adapt: bool) -> Choice:
    """The model's columns; ICV and site may have another name here, the site none at all."""
    if config.covariates or config.icv:
        raise UsageError(
            '--model: covariates and what is done with head size are those of the model; remove '
            '--covariates and --icv'
        )
    site = model.options.site_column or (SITE if adapt else None)
    options = replace(model.options, site_column=site)
    needed = [name for name in options.columns if name != site]
    renamed = _other_icv(config, people, options.icv_column) if options.uses_icv else {}
    needed = [name for name in needed if name not in renamed]
    found = require_columns(people, needed, '; the model needs what is missing') | renamed
    if site is None:
        return Choice(options, found)
    own_site = _site_column(config, people) if adapt else config.site_column or site
    if own_site is None:
        return Choice(options, found, True, ('Site: everyone is taken for one site',))
    found |= {site: require_columns(people, [own_site], '; the model needs it')[own_site]}
    return Choice(options, found, notes=(f'Site: {own_site}',))


def _other_icv(config: CohortOptions, people: Table, column: str | None) -> dict[str, str]:
    """The column of head size, where it is named otherwise than the model knows it."""
    own = config.icv_column
    if column is None or (own is None and find_column(people.columns, column)):
        return {}
    own = own or column_of(people.columns, 'icv')
    return {} if own is None else {column: require_columns(people, [own])[own]}
