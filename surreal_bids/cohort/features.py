"""Choice of the columns of features, covariates, head size and site."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

import pandas as pd

from surreal_bids.bids.tabular import (
    Table,
    find_column,
    prefix_errors,
    require_columns,
)
from surreal_bids.cautions import PARTICIPANTS, Caution
from surreal_bids.cohort.content import (
    is_doubtful,
    may_hold,
    refuse_repeated,
    sums_of_others,
    unlike_others,
    what_it_holds,
)
from surreal_bids.cohort.requirements import PreprocessingOptions, Requirements
from surreal_bids.columns import (
    VOLUMES,
    Meaning,
    column_of,
    columns_of,
    means,
    names_region,
    noun,
    noun_of,
)
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

LIKENESS = 0.75
"""Least similarity of the name of a column to that of a region that it may be."""

UNITS = {'vol', 'volume', 'mm', 'ml', '3'}
"""Words of names that tell nothing about the region."""

MIN_COUNTED = 5
"""Number of rows above which the values 1, 2, 3 ... count rows."""


NO_FEATURE: tuple[Meaning, ...] = (
    'participant', 'session', 'repeat', 'diagnosis', 'age', 'sex', 'site', 'date', 'birth',
    'row number',
)  # fmt: skip
"""Meanings of columns that cannot be features, even if the user lists them."""

IDS = 'ids'
IMPOSSIBLE = ('text', 'dates', 'years', IDS)
"""Contents of such columns."""


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


def choose_features(
    table: Table, others: Iterable[str], kind: str | None = None
) -> tuple[FeatureList, dict[str, str]]:
    """Find the regions of a table, which are its features by default.

    If most columns are regions of MUSE or FreeSurfer, these are used, except ventricles; else all
    columns that behave like regional volumes and are not called otherwise.

    Parameters
    ----------
    table
        Volumes.
    others
        Columns with another use, or that are also in the table of participants.
    kind
        What the features are: volumes or z-scores.

    Returns
    -------
    features, judged
        The features, and what the columns hold that are not used.

    Raises
    ------
    DataError
        A column counts rows or does not behave like a region, or there is no region.
    """
    used = set(others)
    refuse_index_columns(table, used)
    columns = [name for name in table.columns if name not in used]
    numbered = _is_numbered_otherwise(columns)
    judged = {
        name: noun_of(name) or 'sum of regions or fluid'
        for name in columns
        if is_total(name) and not (numbered and name.isdecimal())
    }
    columns = [name for name in columns if name not in judged]
    regions, rest = _atlas_regions(table, columns, numbered)
    if not regions:
        regions, rest = _regions_by_content(table, columns, kind)
    if not regions:
        raise DataError(
            f'{table.source}: no column holds regional volumes; the columns are '
            f'{list_briefly(table.columns) or "ids only"}. List regions in a file and name it with '
            '--features'
        )
    return column_features(regions), judged | rest


def _atlas_regions(
    table: Table, columns: list[str], numbered: bool
) -> tuple[list[str], dict[str, str]]:
    """Return the columns of an atlas if these are the majority, and what the others hold."""
    known, fluid = _known_regions(table, columns, numbered)
    if len(known) <= (len(columns) - len(fluid)) / 2:
        return [], {}
    rest = [name for name in columns if name not in {*known, *fluid}]
    held = {name: _not_in_atlas(name, known) for name in rest} | _held(table, rest)
    return known, dict.fromkeys(fluid, 'fluid') | held


def _not_in_atlas(name: str, known: list[str]) -> str:
    """Say that a column is no region, and which region without a column it resembles."""
    found = set(recognise(known).values())
    lacking = {_words(each): each for index, each in region_names().items() if index not in found}
    nearest = get_close_matches(_words(name), lacking, 1, LIKENESS)
    resembles = f'; rename it if it is {lacking[nearest[0]]}' if nearest else ''
    return f'no region of the atlas{resembles}'


def _words(name: str) -> str:
    """The words of a name, in an order in which the side does not matter."""
    sides = {'l': 'left', 'lh': 'left', 'r': 'right', 'rh': 'right'}
    words = re.findall(r'[a-z]+|[0-9]+', re.sub(r'([a-z])([A-Z])', r'\1 \2', name).lower())
    return ' '.join(sorted(sides.get(word, word) for word in words if word not in UNITS))


def _known_regions(table: Table, columns: list[str], numbered: bool) -> tuple[list[str], list[str]]:
    """Return the regions of FreeSurfer, else those of MUSE and its ventricles."""
    if any(FREESURFER.fullmatch(name) for name in columns):
        return [name for name in columns if FREESURFER_REGION.fullmatch(name)], []
    with prefix_errors(table.source):
        muse = {} if numbered else recognise(columns)
    fluid = [name for name, index in muse.items() if index in VENTRICLES]
    return [name for name in muse if name not in fluid], fluid


def _held(table: Table, columns: Iterable[str]) -> dict[str, str]:
    """Return what columns hold that cannot be volumes, by their names or content."""
    held = {name: noun_of(name) or what_it_holds(table.text[name]) for name in columns}
    # Rows may be sorted by the volume of a region, which then grows like ids.
    return {n: what for n, what in held.items() if what and not (what == IDS and names_region(n))}


def _regions_by_content(
    table: Table, columns: list[str], kind: str | None
) -> tuple[list[str], dict[str, str]]:
    """Return the columns that behave like regional volumes, and what the others hold."""
    judged = _held(table, columns)
    numbers = pd.DataFrame({name: table.numbers(name) for name in columns if name not in judged})
    judged |= sums_of_others(numbers)
    numbers = numbers.drop(columns=[name for name in numbers if name in judged])
    with prefix_errors(table.source):
        refuse_repeated([str(name) for name in numbers])
    unlike = {} if kind == ZSCORE else unlike_others(numbers)
    strange = [f'{name} ({why})' for name, why in unlike.items() if not names_region(name)]
    if strange:
        raise DataError(
            f'{table.source}: {list_briefly(strange, 5)} does not behave like the other regional '
            'volumes; list the regions to use in a file for --features, or move other measures to '
            'a table given with --participants'
        )
    return [name for name in columns if name in numbers], judged


def judge_listed(table: Table, wanted: FeatureList, used: Collection[str]) -> list[Caution]:
    """Refuse listed features that cannot be regions; warn of those that may not be.

    Parameters
    ----------
    table
        Volumes.
    wanted
        The features that the user listed.
    used
        Columns with another use.
    """
    names = [feature.name for feature in wanted.features if not feature.indices]
    columns = [column for name in names if (column := find_column(table.columns, name))]
    held = dict.fromkeys((name for name in columns if name in used), 'it is used otherwise')
    held |= _held(table, columns)
    for name, what in held.items():
        if name in used or means(name, *NO_FEATURE) or what in IMPOSSIBLE:
            raise DataError(
                f'--features: column {name} of {table.source} is no regional volume ({what}); '
                'remove it from the list'
            )
    doubts = list_briefly(f'{name} ({what})' for name, what in held.items())
    if not doubts:
        return []
    return [
        Caution(
            f'Features: {doubts} may not be a regional volume',
            'Patterns would include what is no brain region',
            'Check the list of --features',
            PARTICIPANTS,
        )
    ]


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
    if means(column, 'icv', *VOLUMES) or muse_number(column) in DERIVED:
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


def region_columns(table: Table, wanted: FeatureList) -> list[str]:
    """Return the columns of a table that are features, or parts of them."""
    folded = {name.lower() for name in wanted.names}
    needed = {index for feature in wanted.features for index in feature.indices}
    parts = {name for name, index in recognise(table.columns).items() if index in needed}
    return [name for name in table.columns if name in parts or name.lower() in folded]


SITE = 'site'
"""Name of the site column of models that were trained without sites."""

NONE = 'none'
"""Option value that disables a column used by default."""


WITHOUT: dict[Meaning, str] = {
    'age': '--covariates',
    'sex': '--covariates',
    'site': '--site-column',
    'icv': '--icv-column',
}
"""Option that names the column of each meaning that is used by default."""

GO_WITHOUT: dict[Meaning, str] = {
    'age': '--covariates none, or a list without it',
    'sex': '--covariates none, or a list without it',
    'site': '--site-column none',
    'icv': '--icv none',
}
"""Options to do without a column that is used by default."""

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
    defaults
        Meaning of each column that is used by default.
    notes
        Choices, as sentences for the report.
    """

    options: PreprocessingOptions
    columns: Mapping[str, str]
    one_site: bool = False
    defaults: Mapping[str, Meaning] = field(default_factory=dict)
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


SHARED: tuple[Meaning, ...] = ('age', 'sex')
"""Meanings of covariates that are used by default, and that may have another name in a dataset than
in a model."""


def _for_training(config: CohortOptions, people: Table) -> Choice:
    defaults = _defaults(people, _not_named(config), config.covariates)
    usual = {meaning: name for name, meaning in defaults.items()}
    covariates = list(dict.fromkeys(config.covariates)) or [
        name for name, meaning in defaults.items() if meaning in SHARED
    ]
    covariates = [] if covariates == [NONE] else covariates
    icv_column = config.icv_column or usual.get('icv')
    options = PreprocessingOptions(
        covariates=tuple(covariates),
        icv_column=icv_column,
        icv=_icv_handling(config, icv_column),
        site_column=_named_site(config) or usual.get('site'),
        impute=config.impute,
    )
    found = require_columns(people, options.columns)
    regions = [name for name in covariates if recognise([name])]
    if regions:
        raise DataError(f'{list_briefly(regions)} is a region and cannot also be a covariate')
    return Choice(options, found, defaults=defaults, notes=tuple(_describe_options(options)))


def _not_named(config: CohortOptions) -> Iterator[Meaning]:
    """Return the meanings of the columns to find, because the user named none."""
    are_volumes = config.features_kind != ZSCORE
    if not config.covariates and are_volumes:
        yield from ('age', 'sex')
    is_asked_for = are_volumes or config.icv is not None
    if not config.icv_column and config.icv != NONE and is_asked_for:
        yield 'icv'
    if not config.site_column:
        yield 'site'


def _describe_options(options: PreprocessingOptions) -> Iterator[str]:
    """Describe the correction for head size, and what is not corrected for."""
    yield f'Head size: {ICV_WORDS[options.icv].format(options.icv_column)}'
    if not options.covariates:
        yield 'Covariates: none'
    if options.site_column is None:
        yield 'Site: not known; volumes are not harmonized'


def _defaults(
    people: Table, meanings: Iterable[Meaning], covariates: Collection[str] = ()
) -> dict[str, Meaning]:
    """Find the column with each meaning that varies; the most complete one if there are several.

    Head size is not corrected for twice if it is among the covariates that the user named.

    Raises
    ------
    DataError
        There is none, but a column that may have this meaning.
    """
    chosen: dict[str, Meaning] = {}
    for meaning in meanings:
        others = covariates if meaning == 'icv' else ()
        known = [name for name in columns_of(people.columns, meaning) if name not in others]
        varying = [name for name in known if len(set(people.categories(name).dropna())) > 1]
        if varying:
            best = min(varying, key=lambda name: _flaws(people.categories(name), meaning))
            chosen[best] = meaning
        elif not known:
            _refuse_doubtful(people, meaning, others)
    return chosen


def _flaws(cells: pd.Series, meaning: Meaning) -> tuple[bool, bool, int]:
    """Return whether a column does not hold what its name says, and how many values are missing.

    If a participant has several visits, the age at baseline is worse than the age at each visit.
    """
    values_of_each = cells.groupby(cells.index.str.partition('_ses-').get_level_values(0)).nunique()
    is_of_baseline = meaning == 'age' and bool(values_of_each.max() < 2)
    return not may_hold(cells, meaning), is_of_baseline, int(cells.isna().sum())


def _refuse_doubtful(people: Table, meaning: Meaning, others: Collection[str]) -> None:
    """Refuse columns that may have a meaning, if no column is known to have it."""
    doubtful = [
        name
        for name in people.columns
        if name not in others and is_doubtful(people.categories(name), meaning)
    ]
    if doubtful:
        raise DataError(
            f'{people.source_of(doubtful[0])}: column {list_briefly(doubtful)} may hold the '
            f'{noun(meaning)}; choose the column with {WITHOUT[meaning]}, or go without '
            f'({GO_WITHOUT[meaning]})'
        )


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


def _named_site(config: CohortOptions) -> str | None:
    return None if config.site_column == NONE else config.site_column


def _site_column(config: CohortOptions, people: Table) -> str | None:
    if config.site_column:
        return _named_site(config)
    return next(iter(_defaults(people, ['site'])), None)


def _for_model(config: CohortOptions, people: Table, model: Requirements, adapt: bool) -> Choice:
    """Choose the columns of a model; ICV and site may have another name, the site may lack."""
    _refuse_options(config, model)
    site = model.options.site_column or (SITE if adapt else None)
    options = replace(model.options, site_column=site)
    found = _model_columns(config, people, options)
    if site is None:
        return Choice(options, found)
    own_site = _site_column(config, people) if adapt else config.site_column or site
    if own_site is None:
        note = 'Site: all participants are treated as one site'
        return Choice(options, found, one_site=True, notes=(note,))
    remedy = '; the model needs the site of each participant, spelled as in "surreal-gan card"'
    found |= {site: require_columns(people, [own_site], remedy)[own_site]}
    return Choice(options, found)


def _refuse_options(config: CohortOptions, model: Requirements) -> None:
    """Refuse options that a model defines."""
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
