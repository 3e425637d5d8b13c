"""What each column is for: features, covariates, head size, site and groups."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import wrap
from typing import Any, Literal, NamedTuple

import pandas as pd

from surreal_bids.cautions import PARTICIPANTS, Caution
from surreal_bids.cohort.families import (
    Doubts,
    are_called_thickness,
    are_thicknesses,
    doubtful_columns,
    measures_by_name,
)
from surreal_bids.config import CohortOptions
from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.files import read_file
from surreal_bids.harmonization.options import PreprocessingOptions
from surreal_bids.names import (
    CONTROL,
    GROUP_NAMES,
    NAMES,
    PATIENT,
    SINGULAR,
    Role,
    column_of,
    columns_of,
    meanings_of,
    means,
    noun_of,
    role_of,
    sex_of,
)
from surreal_bids.regions import (
    FEATURE_SETS,
    THICKNESS_UNIT,
    Feature,
    FeatureList,
    are_numbered_otherwise,
    atlas_columns,
    build_features,
    feature_set,
    find_totals,
    freesurfer_regions,
    muse_index,
    recognise,
    side_of,
)
from surreal_bids.sides import (
    APART,
    SIDE_WORDS,
    Sides,
    pair_sides,
    paired_structures,
    put_sides_together,
    without_partner,
)
from surreal_bids.tables import PADDED, Table, find_column, prefix_errors, to_numbers
from surreal_bids.text import align, alternatives, counted, list_briefly

VOLUME_UNIT, UNKNOWN_UNIT = 'mm3', 'as in the table'

NONE = 'none'
"""Option value that disables a column used by default."""

SITE = 'site'
"""Name of the site column of models that were trained without sites."""

MOST_MATCH, HALF_MATCH = 0.8, 0.5
"""Share of the columns of volumes that must be regions of an atlas; beside measures, the second."""

UNIT = re.compile(
    r'(?<![a-z])(mm3?|cm3|ml|cc|vox(els?)?|vol(ume)?|percent|pct|ratio|norm(ali[sz]ed)?|raw|'
    r'adj(usted)?|icv|tiv)(?![a-z\d])|[\W_]+'
)
"""Words for units and corrections in the names of columns, and what separates words."""

OFTEN_EMPTY, MOSTLY_NUMBERS = 0.05, 0.5
"""Share of participants without a region above which the region is dropped; below it, they are.
Share of numbers among known values above which a column may hold volumes."""

MOST_ABSENT, ABSENT_SHARE = 2, 0.02
"""Number and share of regions, whichever is larger, that participants may lack: the regions are
then dropped, and the participants remain."""

SULCUS = re.compile(r'sulc|jensen|(^|[^a-z])s[_. -]')
"""Names of sulci, in lower case; those of the Destrieux atlas have the word `S`."""

LIKE_NUMBER = re.compile(r"[-+]?\d[\d\s.,']*\s*(mm3?|mm\^3|cm3|ml|cc|%)?", re.IGNORECASE)
"""Cells that are numbers for a reader, but not for a program."""

REGION, FRAME = 'region', ('table', 'column', 'taken_for')
LISTED, LINE_WIDTH = 4, 80
"""Columns of one kind that are not used and are listed; the others are counted. Letters in a line
of columns."""

FACTS = ('measure', 'diagnosis', 'age', 'sex', 'site', 'head size')
"""Uses of columns that describe participants, if these have no part in preprocessing."""

ONE_SITE = 'everyone'
"""Name of the site of all participants in a dataset without a site column."""


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
    codes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


class Features(NamedTuple):
    """The features, and why other columns of the table of volumes are none."""

    wanted: FeatureList
    unused: Mapping[str, str] = {}
    cautions: tuple[Caution, ...] = ()


def column_features(columns: Iterable[str]) -> FeatureList:
    """Make features of columns; if all are MUSE regions, every spelling is recognised later."""
    columns = list(columns)
    regions = recognise(columns)
    are_muse = len(regions) == len(columns)
    features = tuple(Feature(name, (regions[name],) if are_muse else ()) for name in columns)
    return FeatureList('columns', features, VOLUME_UNIT if are_muse else UNKNOWN_UNIT)


def listed_features(wanted: str) -> FeatureList:
    """Read the features of `--features`: a named set, or a text file with one name per line."""
    if wanted in FEATURE_SETS:
        return FeatureList(wanted, feature_set(wanted), VOLUME_UNIT)
    try:
        lines = map(str.strip, read_file(Path(wanted)).decode('utf-8-sig').splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f'--features {wanted}: not muse72, muse139 or a text file, one name per line ({error})'
        ) from error
    names = [name for name in dict.fromkeys(lines) if name]
    if not names:
        raise DataError(f'{wanted}: the file is empty; list one feature per line')
    with prefix_errors(wanted):
        return column_features(names)


def choose_features(
    volumes: Table, used: Collection[str], alone: bool = False, impute: bool = False
) -> Features:
    """Find the features: regions of MUSE or FreeSurfer, else all numbers of a table of volumes.

    Parameters
    ----------
    volumes
        Table of volumes.
    used
        Columns with another use, or that are also in the table of participants.
    alone
        Whether the table also holds the facts about participants. Numbers may then be anything,
        and regions of other atlases have to be listed (`--features`).
    impute
        Whether missing volumes are estimated.
    """
    columns = [c for c in volumes.columns if c not in used and not means(c, *NAMES)]
    totals = find_totals(columns)
    named = [c for c in columns if c not in totals and volumes.text[c].any()]
    numeric = [c for c in named if volumes.share_of_numbers(c) > MOSTLY_NUMBERS]
    of_muse, of_freesurfer = _atlas_regions(volumes, named, totals, numeric)
    is_muse = len(of_muse) > len(of_freesurfer)
    of_atlas = of_muse if is_muse else of_freesurfer
    if len(of_atlas) <= (HALF_MATCH if alone else MOST_MATCH) * len(numeric):
        # Too few of the columns are called so: the table is of another atlas.
        of_atlas, is_muse = [], False
    regions = of_atlas
    if not of_atlas and not alone:
        regions = numeric
    if not regions:
        raise DataError(
            f'{volumes.source}: the columns are not regions of MUSE or FreeSurfer '
            f'({list_briefly(columns, 5)}); list the columns of regions in a file for --features, '
            'or give the facts about participants in a table of their own'
        )
    measures = {} if is_muse else measures_by_name(regions)
    likely = _without(regions, measures)
    # Reasons are looked for in this order; a column that has one is not examined any further.
    dropped = _lost(volumes, _without(numeric, measures), likely, alone)
    if not of_atlas:
        dropped |= _unreadable(volumes, _without(named, numeric))
    dropped |= _absent(volumes, _without(likely, dropped), impute)
    likely = _without(likely, dropped)
    doubts = Doubts(measures, {}, {})
    if not is_muse:
        doubts = _doubts_about(volumes, likely, measures)
    kept = _without(likely, {**doubts.strangers, **doubts.sums})
    unused = dict.fromkeys(totals, 'sum of regions or fluid')
    unused |= dropped | doubts.strangers | doubts.sums
    cautions = (*_warn_of_regions(dropped | doubts.sums, kept), *_warn_of_doubts(doubts))
    return Features(column_features(kept), unused, cautions)


def _atlas_regions(
    volumes: Table, named: list[str], totals: list[str], numeric: list[str]
) -> tuple[list[str], list[str]]:
    """Find the columns that are called like regions of MUSE, and those like regions of FreeSurfer.

    Sums and head sizes of FreeSurfer show that a table is of this program.
    """
    with prefix_errors(volumes.source):
        of_muse = [] if are_numbered_otherwise(numeric) else list(recognise(named))
        head_sizes = columns_of(volumes.columns, 'icv')
        of_freesurfer = freesurfer_regions([*named, *totals, *head_sizes])
    return of_muse, [column for column in of_freesurfer if column in named]


def _without(columns: Iterable[str], others: Collection[str]) -> list[str]:
    """Return the columns that are not among others, in their order."""
    return [column for column in columns if column not in others]


def _doubts_about(volumes: Table, likely: list[str], measures: dict[str, str]) -> Doubts:
    """Examine the names and values of columns that may be regions."""
    doubts = doubtful_columns(pd.DataFrame({name: volumes.values(name) for name in likely}))
    return doubts._replace(strangers=measures | doubts.strangers)


def with_unit(features: Features, volumes: Table, head_size: pd.Series | None) -> Features:
    """Recognise cortical thickness, which does not depend on head size, by its values.

    Parameters
    ----------
    features
        What was chosen.
    volumes
        Table of volumes.
    head_size
        As of :func:`are_thicknesses`.
    """
    wanted = features.wanted
    if wanted.atlas is not None or not set(wanted.names) <= set(volumes.columns):
        return features
    values = pd.DataFrame({name: volumes.values(name) for name in wanted.names})
    if not are_thicknesses(values, head_size):
        return features
    cautions = features.cautions
    if not are_called_thickness(wanted.names):
        medians = values.median()
        cautions += (
            Caution(
                'The regions are taken for cortical thickness in mm, by their values alone '
                f'(medians from {medians.min():.1f} to {medians.max():.1f})',
                'Unless asked for, they are not corrected for head size; sides are averaged',
                'Add "volume" to the names of the columns if they are volumes, or "thickness" if '
                'they are thickness',
                PARTICIPANTS,
            ),
        )
    return features._replace(wanted=replace(wanted, unit=THICKNESS_UNIT), cautions=cautions)


def known_head_size(people: Table, named: str | None) -> pd.Series | None:
    """Read the head size, whether it is used or not; None if there is none.

    Parameters
    ----------
    people
        Facts about participants.
    named
        Column that the user named, or `none`.
    """
    if named is None or named == NONE:
        column = _default(people, 'icv')
    else:
        column = find_column(people.columns, named)
    return None if column is None else people.values(column)


def _unreadable(volumes: Table, text_columns: Iterable[str]) -> dict[str, str]:
    """Return columns of numbers that cannot be read, such as `1 234` or `12 mm3`."""
    unreadable = {}
    for name in text_columns:
        cells = volumes.text[name].dropna()
        like_numbers = cells[cells.str.fullmatch(LIKE_NUMBER)]
        if len(like_numbers) > MOSTLY_NUMBERS * len(cells):
            unreadable[name] = f'no numbers, such as "{like_numbers.iloc[0]}"'
    return unreadable


def _warn_of_doubts(doubts: Doubts) -> Iterator[Caution]:
    """Warn of columns that may be no regions."""
    reasons = {
        'They are not used': doubts.strangers,
        'They are used, and patterns may show them': doubts.guesses,
    }
    for consequence, columns in reasons.items():
        if columns:
            listed = list_briefly(f'{name} ({why})' for name, why in columns.items())
            yield Caution(
                f'These columns may not be regions: {listed}',
                consequence,
                'List the columns of regions in a file for --features',
                PARTICIPANTS,
            )


def _lost(volumes: Table, numeric: list[str], regions: list[str], alone: bool) -> dict[str, str]:
    """Return why columns are dropped: foreign to the atlas, often empty, or constant."""
    foreign = [c for c in numeric if c not in regions and not (alone and side_of(c) == NONE)]
    values = pd.DataFrame({name: volumes.values(name) for name in regions})
    empty = (values.isna() | (values == 0)).mean()
    often = empty[empty > OFTEN_EMPTY].map('0 or no number in {:.0%} of participants'.format)
    lost = dict.fromkeys(foreign, 'no region of the atlas')
    lost |= dict.fromkeys(values.columns[values.max() <= values.min()], 'the same in everyone')
    return lost | dict(zip(often.index, often))


def _absent(volumes: Table, regions: Sequence[str], impute: bool) -> dict[str, str]:
    """Return the regions that some participants do not have, such as tertiary sulci.

    A region that a single participant lacks is a failed segmentation, unless it is a sulcus, and
    someone who lacks many regions has no sound segmentation at all.
    """
    values = pd.DataFrame({name: volumes.values(name) for name in regions})
    is_absent = values == 0
    if not impute:
        is_absent |= values.isna()
    most = max(MOST_ABSENT, ABSENT_SHARE * len(regions))
    counts = is_absent[is_absent.sum(axis=1) <= most].sum()
    counts = counts[counts > 0]
    if len(counts) > most:
        return {}
    absent = {}
    for name, count in counts.items():
        if count > 1 or SULCUS.search(str(name).lower()):
            absent[str(name)] = f'0 or no number in {counted(int(count), "participant")}'
    return absent


def _warn_of_regions(lost: Mapping[str, str], kept: Iterable[str]) -> Iterator[Caution]:
    """Warn of columns that may be regions but are not used, and of one region in two columns.

    Such are voxels beside mm3, and raw volumes beside normalised ones.
    """
    if lost:
        listed = list_briefly((f'{name} ({why})' for name, why in lost.items()), 5)
        yield Caution(
            f'Regions that are not used: {listed}',
            'Patterns do not include them',
            'Correct or rename the columns, or list all regions in a file for --features',
            PARTICIPANTS,
        )
    columns: dict[str, list[str]] = {}
    for name in kept:
        columns.setdefault(' '.join(UNIT.sub(' ', name.lower()).split()), []).append(name)
    same = [' = '.join(each) for region, each in columns.items() if region and len(each) > 1]
    if same:
        yield Caution(
            f'The same region twice: {list_briefly(same, 5)}',
            'Each of them counts as a region of its own',
            'List one column of each region in a file for --features',
            PARTICIPANTS,
        )


def read_features(table: Table, wanted: FeatureList) -> pd.DataFrame:
    """Read features of shape (n_visits, n_features), NaN where missing.

    Columns are found by name, in any order. MUSE regions may have any recognised spelling, and
    sums of regions are computed if the table has the single ones.

    Raises
    ------
    DataError
        A column is missing or holds text.
    """
    here = {name.lower() for name in table.columns}
    missing = [name for name in wanted.names if name.lower() not in here]
    if not missing:
        return pd.DataFrame({name: table.numbers(name) for name in wanted.names})
    if wanted.atlas is None:
        raise DataError(
            f'{table.source}: no column {list_briefly(missing)}; '
            f'{alternatives(missing, table.columns)}'
        )
    with prefix_errors(table.source):
        regions = recognise(table.columns)
        others = freesurfer_regions(table.columns)
        if others and wanted.indices - {*regions.values()}:
            raise DataError(
                f'the model needs MUSE regions, not those of FreeSurfer ({list_briefly(others, 3)})'
                '; measure them with surreal-bids or DLMUSE, or train a model on these'
            )
        volumes = {n: table.numbers(n) for n, index in regions.items() if index in wanted.indices}
        return build_features(pd.DataFrame(volumes, table.text.index), wanted.features)


def choose_columns(
    config: CohortOptions, people: Table, model: Requirements | None, adapt: bool, sized: bool
) -> tuple[PreprocessingOptions, dict[str, str]]:
    """Find the columns of covariates, head size and site.

    Parameters
    ----------
    config
        Options of the user. Those of preprocessing have no effect on a model to apply.
    people
        Facts about participants.
    model
        Requirements of the model to apply; None: a model is trained.
    adapt
        Whether the model learns the sites of these participants first.
    sized
        Whether features depend on head size, unlike cortical thickness.

    Returns
    -------
    options
        Options of preprocessing; the columns are those of the model, if there is one.
    own
        Column of the tables for each column of `options`; the site may be missing.

    Raises
    ------
    DataError
        A column of the user or of the model is missing.
    """
    if model is None:
        options = _usual_options(config, people, sized)
        wanted = {name: name for name in options.columns}
    else:
        options, wanted = _for_model(config, people, model, adapt)
    found = {name: find_column(people.columns, column) for name, column in wanted.items()}
    own = {name: column for name, column in found.items() if column is not None}
    missing = [column for name, column in wanted.items() if name not in own]
    if missing:
        raise DataError(
            f'{_files(people)}: no column {list_briefly(missing)}; '
            f'{alternatives(missing, people.columns)}; or add the table with it (--participants)'
        )
    return options, own


def _usual_options(config: CohortOptions, people: Table, sized: bool) -> PreprocessingOptions:
    """Return the options of a model to train: those of the user, else the defaults."""
    usual = filter(None, (_default(people, 'age'), _default(people, 'sex')))
    covariates = tuple(dict.fromkeys(config.covariates or usual))
    covariates = () if covariates == (NONE,) else covariates
    icv: Any = config.icv or ('power' if sized or config.icv_column else NONE)
    icv_column = config.icv_column
    if icv != NONE and column_of(covariates, 'icv') is None:
        icv_column = _default(people, 'icv', icv_column)
    if icv_column is None and icv != 'proportion':
        icv = NONE
    site = _default(people, 'site', config.site_column)
    return PreprocessingOptions.of(
        config, covariates=covariates, icv_column=icv_column, icv=icv, site_column=site
    )


def _for_model(
    config: CohortOptions, people: Table, model: Requirements, adapt: bool
) -> tuple[PreprocessingOptions, dict[str, str]]:
    """Return the options of a model, and the name here of each column; the site may be missing."""
    site = model.options.site_column or (SITE if adapt else None)
    options = replace(model.options, site_column=site)
    wanted = {name: _column_for(name, model, config, people) for name in options.columns}
    if site is not None:
        wanted[site] = _default(people, 'site', config.site_column or site * (not adapt)) or NONE
    return options, {name: own for name, own in wanted.items() if (name, own) != (site, NONE)}


def _column_for(name: str, model: Requirements, config: CohortOptions, people: Table) -> str:
    """Return the column for one of a model: as named, with the same name, or by its role."""
    role: Role | None = 'icv' if name == model.options.icv_column else role_of(name)
    by_role = column_of(people.columns, role) if role in ('icv', 'age', 'sex') else None
    named = config.icv_column if role == 'icv' else None
    return named or find_column(people.columns, name) or by_role or name


def _files(people: Table) -> str:
    return ', '.join(dict.fromkeys(map(str, (people.source, *people.joined.values()))))


def _default(people: Table, role: Role, named: str | None = None) -> str | None:
    """Return the column that is named, else one that varies: by visit if an age, and complete."""
    if named:
        return None if named == NONE else named
    varying = [c for c in columns_of(people.columns, role) if len(set(people.text[c].dropna())) > 1]
    if len(varying) < 2:
        return (*varying, None)[0]
    known = people.text[varying]
    who = known.index.str.partition('_ses-').get_level_values(0)
    at_baseline = (known.groupby(who).nunique().max() < 2) & (role == 'age')
    return str((known.isna().sum() + len(known) * at_baseline).idxmin())


def describe_corrections(
    config: CohortOptions, options: PreprocessingOptions, people: Table, sized: bool
) -> tuple[list[str], list[Caution]]:
    """Say what is corrected for and what is not; warn of the latter, unless it was chosen.

    Parameters
    ----------
    config, options
        Options of the user, and what follows from them.
    people
        Facts about those who remain.
    sized
        As of :func:`choose_columns`.
    """
    done = {c: noun_of(c) for c in options.covariates if len({*people.categories(c)} - {None}) > 1}
    if options.uses_icv:
        done[f'head size ({options.icv_column}; --icv {options.icv})'] = 'head size'
    if options.site_column:
        done[f'site ({options.site_column}; ComBat)'] = 'site'
    chosen = {
        'age': '--covariates' * bool(config.covariates),
        'sex': '--covariates' * bool(config.covariates),
        'head size': '--icv none' * (config.icv == NONE)
        or 'features are thicknesses' * (not sized),
        'site': '--site-column none' * (config.site_column == NONE),
    }
    alike = {noun_of(name): _why_unused(people.text[name]) for name in people.columns}
    lacking = {
        noun: f'{noun} ({why or alike.get(noun, f"no column is called like {noun}")})'
        for noun, why in chosen.items()
        if noun not in done.values()
    }
    notes = [f'Corrected for: {", ".join(done) or "nothing"}']
    notes += [f'Not corrected for: {", ".join(lacking.values())}'] * bool(lacking)
    sexes = people.text[columns_of(people.columns, 'sex')].nunique()
    sound = ('site', 'sex' * bool(sexes.eq(1).any()), *filter(chosen.get, chosen))
    doubts = [told for noun, told in lacking.items() if noun not in sound]
    caution = Caution(
        f'Not corrected for {"; ".join(doubts)}',
        'Patterns may show differences in these instead of disease',
        'Name the columns with --covariates and --icv-column, or add them',
        PARTICIPANTS,
    )
    return notes, [caution] * bool(doubts)


def _why_unused(cells: pd.Series) -> str:
    """Say why a column about participants cannot be corrected for."""
    return f'{cells.name} has {"at most one value" if cells.notna().any() else "no value"}'


MIN_STRUCTURES = 8
"""Structures that a model needs: the preset sparse takes eight features per pattern."""


def usable_sides(regions: FeatureList, options: PreprocessingOptions) -> PreprocessingOptions:
    """Keep sides apart where they would form too few structures for a model."""
    paired = pair_sides(regions, options.sides)
    if paired is None or len(paired) >= MIN_STRUCTURES:
        return options
    return replace(options, sides=APART)


def describe_sides(
    regions: FeatureList, sides: Sides, chosen: str
) -> tuple[list[str], list[Caution]]:
    """Say how left and right regions are used, and warn of those without a partner.

    Parameters
    ----------
    regions
        Single regions.
    sides
        How sides are used; see :func:`usable_sides`.
    chosen
        The choice of the user, or the default.
    """
    structures = put_sides_together(regions)
    if any(len(region.indices) > 1 for region in regions.features):
        return ['Sides: together, since the list of regions sums them'], []
    if chosen == APART:
        return ['Sides: apart, as given (--sides apart); patterns are sets of single regions'], []
    if sides == APART:
        few = f'{counted(len(structures), "structure")}, at least {MIN_STRUCTURES} needed'
        return [f'Sides: apart, since together they would be {few}'], []
    n_pairs = len(paired_structures(structures))
    side_of_region = without_partner(structures)
    if n_pairs == 0:
        what = 'no region has a left and a right part by its name'
        sides_there = set(side_of_region.values())
        if len(sides_there) != 1:
            return [f'Sides: {what}; single regions are used'], []
        word = SIDE_WORDS[sides_there.pop()]
        what = f'all regions that have a side are {word} ones'
        caution = Caution(
            f'All regions that have a side are {word} ones',
            'Patterns show this side only',
            'Add the table of the other side, unless only one was measured',
            PARTICIPANTS,
        )
        return [f'Sides: {what}; single regions are used'], [caution]
    n_other = len(structures) - n_pairs
    note = (
        f'Sides: together, {counted(n_pairs, "structure")} with both sides and '
        f'{counted(n_other, "other region")} (with --sides apart, patterns are described by side)'
    )
    if not side_of_region:
        return [note], []
    listed = list_briefly(
        (f'{name} ({SIDE_WORDS[side]} only)' for name, side in side_of_region.items()), 5
    )
    caution = Caution(
        f'Regions without a partner on the other side: {listed}',
        'They are used as they are, so that patterns show one side of these structures',
        'Add or correct the columns of the other side, or list the regions in a file for '
        '--features',
        PARTICIPANTS,
    )
    return [note], [caution]


def read_person_columns(
    people: Table, options: PreprocessingOptions, own: Mapping[str, str], model: Requirements | None
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
    columns: dict[str, Any] = dict.fromkeys(options.columns, ONE_SITE)
    levels, codes = (model.levels, model.codes) if model else ({}, {})
    problems = []
    for name, column in own.items():
        is_text = name in levels if model else _is_category(people.text[column])
        if name == options.site_column or (is_text and name != options.icv_column):
            columns[name] = people.names(column)
            if means(name, 'sex'):
                columns[name] = _unify_sex(columns[name], levels.get(name, ()))
            continue
        try:
            columns[name] = _numbers(people, column, codes.get(name, {}))
        except DataError as error:
            problems.append(str(error))
    if problems:
        raise DataError('\n'.join(problems))
    return pd.DataFrame(columns, people.text.index)


def _is_category(cells: pd.Series) -> bool:
    """Check whether a covariate is a category: no numbers, words of sexes, or labels as `001`."""
    known = cells.dropna()
    is_word = sex_of if means(cells.name, 'sex') else PADDED.fullmatch
    is_text = to_numbers(known).isna().all() or any(map(is_word, known))
    return bool(is_text) and not means(cells.name, 'age', 'icv')


def _numbers(people: Table, column: str, codes: Mapping[str, float]) -> pd.Series:
    """Read numbers; the age `89+` of BIDS is 89, and a model may have numbers for the sexes."""
    cells = people.text[column].str.removesuffix('+' * means(column, 'age'))
    cells = cells.map(lambda c: str(codes.get((sex_of(c) or c).lower(), c)), na_action='ignore')
    return Table(people.source_of(column), cells.to_frame(column)).numbers(column)


def _unify_sex(column: pd.Series, levels: Sequence[str]) -> pd.Series:
    """Write the words of a model for the sexes, or F and M if a table mixes spellings."""
    meant = column.map(sex_of, na_action='ignore')
    names = {str(sex_of(level)): level for level in levels} or {'F': 'F', 'M': 'M'}
    if not levels and column[meant.notna()].nunique() <= meant.nunique():
        return column
    return meant.map(names).where(meant.notna(), column).astype(column.dtype)


GroupUse = Literal['known', 'controls', 'compared']
"""How the participants of a cohort are divided; see `read_cohort`."""


@dataclass(frozen=True, eq=False)
class Groups:
    """Controls, patients and other groups.

    Attributes
    ----------
    labels
        CN, PT or the label of another group, for each visit; missing where it is not known.
    column
        Column of the diagnosis; empty where groups are not known.
    notes
        Who is a control, a patient or another, in a line; none where groups are not known.
    lacking
        Why groups are not known, or a model cannot learn sites from the controls; else empty.
    """

    labels: pd.Series
    column: str = ''
    notes: tuple[str, ...] = ()
    lacking: str = ''


def find_groups(
    people: Table, config: CohortOptions, use: GroupUse, model: Requirements | None
) -> Groups:
    """Divide participants into controls, patients and other groups.

    Parameters
    ----------
    people
        Table with a column of the diagnosis.
    config
        Labels that the user named; the others are recognised by common words and codes.
    use
        As of `read_cohort`.
    model
        The model to apply, if there is one: then groups are needed only if the user named them.

    Raises
    ------
    DataError
        There is no such column or value, or groups cannot be recognised; the error lists the
        values and names the option to use.
    """
    named = any((config.group_column, config.control_label, config.patient_label))
    needed = {CONTROL, PATIENT} if model is None and use == 'known' else {CONTROL}
    column = ''
    try:
        column = _diagnosis(people, config, model)
        if not column:
            everyone = pd.Series(CONTROL, people.text.index)
            return Groups(everyone, notes=('Groups: everyone is a control, as given',))
        values = people.names(column)
        with prefix_errors(f'{people.source_of(column)}: column {column}'):
            groups = _groups_of(set(values.dropna()), config, needed)
    except DataError:
        if model is None or use == 'controls' or named:
            raise
        lacking = 'no diagnosis is known to mean controls; set --control-label'
        return _only_patients(people, column, lacking)
    listed = (f'{value} = {SINGULAR.get(group, "other group")}' for value, group in groups.items())
    how = 'for comparisons only' if use == 'compared' else 'see --control-label, --patient-label'
    note = f'Groups: column {column}, {list_briefly(listed)} ({how})'
    return Groups(values.map(groups).rename('group'), column, (note,))


def _only_patients(people: Table, column: str, lacking: str) -> Groups:
    """Return the patients of a table without controls, for display, if a word means patients."""
    values = people.names(column) if column else pd.Series(None, people.text.index, dtype=object)
    meant = meanings_of(set(values.dropna()))
    patients = [value for value, group in meant.items() if group == PATIENT]
    if not patients:
        return Groups(values.mask(values.notna(), None), lacking=lacking)
    listed = (
        f'{value} = {SINGULAR.get(group or "", "other group")}' for value, group in meant.items()
    )
    note = f'Groups: column {column}, {list_briefly(listed)} (no controls)'
    groups = {value: group or value for value, group in meant.items()}
    return Groups(values.map(groups).rename('group'), column, (note,), lacking)


def _diagnosis(people: Table, config: CohortOptions, model: Requirements | None) -> str:
    """Find the column of the diagnosis; empty if the user states that everyone is a control."""
    named = config.group_column and people.find(config.group_column)
    column = named or column_of(people.columns, 'diagnosis')
    if column and (model is None or column not in model.options.columns):
        return column
    if config.control_label == ('all',):
        return ''
    near = alternatives(['diagnosis'], people.columns)
    everyone = ', or state that everyone is a control with --control-label all'
    raise DataError(
        f'{_files(people)}: no column diagnosis, group or dx; {near}; name it with --group-column'
        f'{everyone * (model is not None)}, or add the table that has it with --participants'
    )


def _groups_of(values: set[str], config: CohortOptions, needed: set[str]) -> dict[str, str]:
    """Return CN, PT or itself for each value: as given, else recognised."""
    meant = meanings_of(values)
    known = _only_other(meant, [value for value in meant if meant[value] != CONTROL])
    unnamed = config.patient_label and _only_other(meant, config.patient_label)
    controls = config.control_label or known or unnamed
    patients = config.patient_label or _only_other(meant, controls)
    named = [(value, CONTROL) for value in controls] + [(value, PATIENT) for value in patients]
    if problem := _doubt_about(named, meant, needed):
        raise DataError(
            f'{problem}; there are: {list_briefly(meant)}; name groups with --control-label and '
            '--patient-label (others are scored, not trained on), or another column with '
            '--group-column'
        )
    return dict(zip(meant, meant)) | dict(named)


def _doubt_about(
    named: Sequence[tuple[str, str]], meant: Mapping[str, str | None], needed: Iterable[str]
) -> str:
    """Say which label is wrong, or which group was not recognised; else return nothing."""
    groups = dict(named)
    absent = [value for value in groups if value not in meant]
    if absent:
        return f'no row has {list_briefly(absent)}'
    wrong = {v for v, group in named if groups[v] != group or (meant[v] or group) != group}
    if wrong:
        return f'{list_briefly(sorted(wrong))} means the opposite of what the options say'
    unclear = [GROUP_NAMES[group] for group in sorted(needed) if group not in groups.values()]
    return f'not clear which value means {" and which ".join(unclear)}' if unclear else ''


def _only_other(values: Iterable[str], named: Collection[str]) -> list[str]:
    """Return the value beside those that are named, if it is the only one."""
    others = [value for value in values if value not in named]
    return others if len(others) == 1 else []


def uses_of_columns(
    tables: Sequence[Table], features: Features, roles: Mapping[str, str], people: Table
) -> pd.DataFrame:
    """List what every column of the tables was taken for.

    Parameters
    ----------
    tables
        Volumes, participants if they have a table, and further measures.
    features
        The features, and why other columns of volumes are none.
    roles
        Columns about participants that are used, and for what.
    people
        Facts about visits, joined from the tables.
    """
    rows, source = [], {name: people.source_of(name) for name in people.columns}
    no_facts = {*people.joined, *atlas_columns(tables[0].columns)}
    for table in tables:
        own = people.text[[name for name in people.columns if source[name] == table.source]]
        uses = {table.id_column: 'id', table.session_column or '': 'session'}
        for name, cells in (*table.text.items(), *own.items()):
            first = source.setdefault(str(name), table.source)
            elsewhere = f'not used: in {first.name}' * (first != table.source)
            uses[str(name)] = elsewhere or _use_of(cells, roles, no_facts)
        if table.source == tables[0].source:
            uses |= _uses_as_features(table, features)
        rows += [(table.source.name, name, use) for name, use in uses.items() if name]
    return pd.DataFrame(rows, columns=list(FRAME), dtype=object)


def _uses_as_features(volumes: Table, features: Features) -> dict[str, str]:
    """Return the columns that are features, or parts of them, and why others are none."""
    names, indices = {n.lower() for n in features.wanted.names}, features.wanted.indices
    regions = [n for n in volumes.columns if n.lower() in names or muse_index(n) in indices]
    uses = {name: f'not used: {why}' for name, why in features.unused.items()}
    return uses | dict.fromkeys(regions, REGION)


def _use_of(cells: pd.Series, roles: Mapping[str, str], no_facts: Collection[str]) -> str:
    """Return the use of a column: its role, else measures are compared with R-indices."""
    role, noun = role_of(cells.name), noun_of(cells.name)
    if cells.name in roles:
        return roles[str(cells.name)]
    if not any(cells):
        return 'not used: no values'
    if role is None:
        return 'not used: no feature' if cells.name in no_facts else 'measure'
    is_free = column_of(roles, role) is None and noun in (*FACTS, 'date')
    if noun == 'head size' and noun in roles.values():
        is_free = False  # --icv-column may name a column that is not called like a head size.
    return noun if is_free else f'not used: {noun}'


def group_uses(uses: pd.DataFrame) -> pd.DataFrame:
    """List the columns of each table with the same use in one row; all that are used."""
    rows = []
    for (table, use), part in uses.groupby(['table', 'taken_for'], sort=False):
        most = LISTED if str(use).startswith('not used') else len(part)
        rows.append((table, use, list_briefly(part['column'], most)))
    return pd.DataFrame(rows, columns=['Table', 'Taken for', 'Columns'])


def describe_uses(uses: pd.DataFrame) -> Iterator[str]:
    """Write what columns were taken for, as lines of text."""
    for table, part in group_uses(uses).groupby('Table', sort=False):
        yield f'Columns of {table}, as they were read:'
        rows: list[tuple[str, str]] = []
        for use, columns in zip(part['Taken for'], part['Columns']):
            lines = wrap(columns, LINE_WIDTH, break_on_hyphens=False)
            rows += zip([use, *[''] * len(lines)], lines)
        yield from (f'  {line}' for line in align(rows).splitlines())
