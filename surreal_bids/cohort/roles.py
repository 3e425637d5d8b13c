"""What each column is for: features, covariates, head size, site and groups."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple, cast

import pandas as pd

from surreal_bids.cautions import PARTICIPANTS, Caution
from surreal_bids.config import CohortOptions
from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.files import read_file
from surreal_bids.harmonization.covariates import ICVHandling
from surreal_bids.harmonization.options import PreprocessingOptions
from surreal_bids.names import (
    CODES,
    CONTROL,
    CONTROL_WORDS,
    NAMES,
    NOUNS,
    PATIENT,
    PATIENT_WORDS,
    Role,
    column_of,
    columns_of,
    letters_of,
    means,
    noun_of,
    role_of,
    sex_of,
)
from surreal_bids.regions import (
    FEATURE_SETS,
    Feature,
    FeatureList,
    build_features,
    feature_set,
    freesurfer_regions,
    is_total,
    is_ventricle,
    muse_index,
    recognise,
    side_of,
)
from surreal_bids.tables import PADDED, Table, find_column, prefix_errors, to_numbers
from surreal_bids.text import align, alternatives, list_briefly

VOLUME_UNIT, UNKNOWN_UNIT = 'mm3', 'as in the table'

NONE = 'none'
"""Option value that disables a column used by default."""

SITE = 'site'
"""Name of the site column of models that were trained without sites."""

MOST_MATCH, HALF_MATCH = 0.8, 0.5
"""Share of the columns of volumes that must be regions of an atlas; beside measures, the second."""

UNITS = frozenset(
    {'mm3', 'mm', 'cm3', 'ml', 'cc', 'vox', 'voxel', 'voxels', 'vol', 'volume', 'percent', 'pct',
     '%', 'ratio', 'norm', 'normalized', 'normalised', 'raw', 'adj', 'adjusted', 'icv', 'tiv'}
)  # fmt: skip
"""Words for units and corrections in the names of columns."""

OFTEN_EMPTY = 0.05
"""Share of participants without a region above which the region is dropped; below it, they are."""

ICV_WORDS: Mapping[ICVHandling, str] = {
    'power': 'allometric (log-log) model fitted in controls',
    'covariate': 'linear',
    'proportion': 'volumes are divided by it',
}
"""Description of each correction for head size."""

REGION, FRAME = 'region', ('table', 'column', 'taken_for')
LISTED = 4
"""Columns of one kind that are listed; the others are counted."""

COMPARED: tuple[Role, ...] = ('age', 'sex', 'site', 'icv', 'date')
"""Roles of columns that describe participants even if nothing is corrected for them."""


ONE_SITE = 'everyone'
"""Name of the site of all participants in a dataset without a site column."""

Codes = Mapping[str, Mapping[str, float]]
"""Numbers for the words, in lower case, that may stand in a numeric covariate."""


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


class Features(NamedTuple):
    """The features, and why other columns of the table of volumes are none."""

    wanted: FeatureList
    unused: Mapping[str, str] = {}
    cautions: tuple[Caution, ...] = ()


def column_features(columns: Iterable[str]) -> FeatureList:
    """Make features of columns; if all are MUSE regions, every spelling is recognised later."""
    columns = list(columns)
    regions = recognise(columns)
    if len(regions) == len(columns):
        features = tuple(Feature(column, (index,)) for column, index in regions.items())
        return FeatureList('columns', features, VOLUME_UNIT)
    return FeatureList('columns', tuple(Feature(name, ()) for name in columns), UNKNOWN_UNIT)


def named_features(name: str) -> FeatureList:
    """Look up `muse72` or `muse139`."""
    return FeatureList(name, feature_set(name), VOLUME_UNIT)


def listed_features(wanted: str) -> FeatureList:
    """Read the features of `--features`: a named set, or a text file with one name per line."""
    if wanted in FEATURE_SETS:
        return named_features(wanted)
    path = Path(wanted)
    try:
        lines = [line.strip() for line in read_file(path).decode('utf-8-sig').splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f'--features {wanted}: neither muse72 nor muse139 nor a readable text file ({error}); '
            'list one feature per line'
        ) from error
    names = pd.Index([line for line in lines if line])
    if names.empty or names.has_duplicates:
        what = 'the file is empty' if names.empty else f'{names[names.duplicated()][0]} is repeated'
        raise DataError(f'{path}: {what}; list each feature once, one per line')
    with prefix_errors(path):
        return column_features(names)


def choose_features(volumes: Table, used: Collection[str], alone: bool = False) -> Features:
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
    """
    columns = [c for c in volumes.columns if c not in used and not means(c, *NAMES)]
    numbered = _is_numbered_otherwise(columns)
    unused = _no_regions(volumes, columns, numbered)
    numeric = [c for c in columns if c not in unused and _is_numeric(volumes, c)]
    with prefix_errors(volumes.source):
        known = _atlas_regions(numeric, HALF_MATCH if alone else MOST_MATCH, numbered)
    if not known and (alone or not numeric):
        raise DataError(
            f'{volumes.source}: the columns are not regions of MUSE or FreeSurfer '
            f'({list_briefly(numeric or volumes.columns, 5)}); list the columns of regions in a '
            'file for --features, or give the facts about participants in a table of their own'
        )
    regions = known or numeric
    rest = [name for name in numeric if name not in regions]
    fluid = dict.fromkeys(filter(is_ventricle, rest), 'fluid')
    foreign = [n for n in rest if n not in fluid and (not alone or side_of(n) != NONE)]
    unusable = _unusable(pd.DataFrame({name: volumes.values(name) for name in regions}))
    lost = dict.fromkeys(foreign, 'no region of the atlas') | unusable
    unused |= fluid | lost
    kept = [name for name in regions if name not in unusable]
    return Features(column_features(kept), unused, (*_dropped(lost), *_twice(kept)))


def _no_regions(volumes: Table, columns: Iterable[str], numbered: bool) -> dict[str, str]:
    """Return the columns that are no regions, by their name or since they count rows."""
    found = {c: 'row number' for c in columns if _counts_rows(volumes.text[c])}
    totals = [c for c in columns if is_total(c) and not (numbered and c.isdecimal())]
    return found | dict.fromkeys(sorted(totals), 'sum of regions or fluid')


def _dropped(lost: Mapping[str, str]) -> Iterator[Caution]:
    """Warn of columns that may be regions but are not used."""
    if lost:
        listed = list_briefly((f'{name} ({why})' for name, why in lost.items()), 5)
        yield Caution(
            f'Regions that are not used: {listed}',
            'Patterns do not include them',
            'Correct or rename the columns, or list all regions in a file for --features',
            PARTICIPANTS,
        )


def _twice(names: Iterable[str]) -> Iterator[Caution]:
    """Warn of one region in two columns, such as voxels beside mm3, or raw beside normalised."""
    columns: dict[str, list[str]] = {}
    for name in names:
        words = re.findall(r'[a-z]+\d*|\d+|%', name.lower())
        columns.setdefault(' '.join(w for w in words if w not in UNITS), []).append(name)
    same = [' = '.join(each) for region, each in columns.items() if region and len(each) > 1]
    if same:
        yield Caution(
            f'The same region twice: {list_briefly(same, 5)}',
            'Each of them counts as a region of its own',
            'List one column of each region in a file for --features',
            PARTICIPANTS,
        )


def _atlas_regions(columns: list[str], needed: float, numbered: bool) -> list[str]:
    """Return the regions of FreeSurfer or MUSE if most columns are such regions."""
    solid = [name for name in columns if not is_ventricle(name)]
    muse = [] if numbered else list(recognise(solid))
    for known in (freesurfer_regions(solid), muse):
        if len(known) > needed * len(solid):
            return known
    return []


def _is_numbered_otherwise(columns: Iterable[str]) -> bool:
    """Check whether the names of columns are numbers other than those of MUSE."""
    return any(not is_total(name) and not recognise([name]) for name in columns if name.isdecimal())


def _is_numeric(table: Table, name: str) -> bool:
    """Check whether most of the known values of a column are numbers."""
    n_numbers = table.values(name).notna().sum()
    return bool(n_numbers > len(table) / 2 or n_numbers > table.text[name].notna().sum() / 2)


def _counts_rows(cells: pd.Series) -> bool:
    """Check whether a column holds 0, 1, 2 ... or 1, 2, 3 ..."""
    first, n = cells.iloc[0] if len(cells) > 1 else None, len(cells)
    if first not in ('0', '1'):
        return False
    return cells.tolist() == [str(int(first) + k) for k in range(n)]


def _unusable(values: pd.DataFrame) -> dict[str, str]:
    """Return the reasons for dropping regions that are often empty or do not vary."""
    empty = (values.isna() | (values == 0)).mean()
    often = empty[empty > OFTEN_EMPTY]
    same = values.columns[values.max() <= values.min()]
    return {str(n): 'the same in all participants' for n in same} | {
        str(n): f'0 or missing in {share:.0%} of participants' for n, share in often.items()
    }


def read_features(table: Table, wanted: FeatureList) -> pd.DataFrame:
    """Read features of shape (n_visits, n_features), NaN where missing.

    Columns are found by name, in any order. MUSE regions may have any recognised spelling, and
    sums of regions are computed if the table has the single ones.

    Raises
    ------
    DataError
        A column is missing or holds text.
    """
    here = {name.lower(): name for name in table.columns}
    missing = [name for name in wanted.names if name.lower() not in here]
    if not missing or wanted.atlas is None:
        if missing:
            raise DataError(
                f'{table.source}: no column {list_briefly(missing)}; '
                f'{alternatives(missing, table.columns)}'
            )
        return pd.DataFrame({name: table.numbers(name) for name in wanted.names})
    needed = {index for feature in wanted.features for index in feature.indices}
    with prefix_errors(table.source):
        regions = recognise(table.columns)
        others = freesurfer_regions(table.columns)
        if others and needed - {*regions.values()}:
            raise DataError(
                f'the model needs MUSE regions, but the table has FreeSurfer regions '
                f'({list_briefly(others, 3)}). Measure MUSE regions with surreal-bids or DLMUSE, '
                'or train a model on FreeSurfer regions'
            )
        volumes = {name: table.numbers(name) for name, index in regions.items() if index in needed}
        return build_features(pd.DataFrame(volumes, table.text.index), wanted.features)


def choose_columns(
    config: CohortOptions,
    people: Table,
    model: Requirements | None = None,
    adapt: bool = True,
    corrects_size: bool = True,
) -> tuple[PreprocessingOptions, dict[str, str]]:
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
    corrects_size
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
    if model is not None:
        return _for_model(config, people, model, adapt)
    usual = {role: _default(people, role, config.covariates) for role in ('age', 'sex')}
    covariates = tuple(dict.fromkeys(config.covariates)) or tuple(filter(None, usual.values()))
    covariates = () if covariates == (NONE,) else covariates
    icv_column = config.icv_column
    if icv_column is None and config.icv != NONE and (corrects_size or config.icv):
        icv_column = _default(people, 'icv', covariates)
    icv = config.icv or 'power'
    if icv_column is None and icv != 'proportion':
        icv = NONE
    site = config.site_column or _default(people, 'site')
    options = PreprocessingOptions(
        covariates=covariates,
        icv_column=icv_column,
        icv=cast(ICVHandling, icv),
        site_column=None if site == NONE else site,
        impute=config.impute,
    )
    return options, _require(people, options.columns)


def _require(people: Table, names: Iterable[str], why: str = '') -> dict[str, str]:
    """Find the column of each name, or list those that are missing."""
    found = {name: find_column(people.columns, name) for name in names}
    missing = [name for name, column in found.items() if column is None]
    if missing:
        raise DataError(
            f'{_files(people)}: no column {list_briefly(missing)}; '
            f'{alternatives(missing, people.columns)}'
            f'{why}; if another table has it, add that table with --participants'
        )
    return {name: column for name, column in found.items() if column is not None}


def _files(people: Table) -> str:
    return ', '.join(dict.fromkeys(map(str, (people.source, *people.joined.values()))))


def _default(people: Table, role: Role, others: Collection[str] = ()) -> str | None:
    """Find the column with a role that varies; the most complete one if there are several."""
    known = [name for name in columns_of(people.columns, role) if name not in others]
    varying = [name for name in known if len(set(people.text[name].dropna())) > 1]
    return min(varying, key=lambda name: _flaws(people.text[str(name)], role), default=None)


def _flaws(cells: pd.Series, role: Role) -> tuple[bool, int]:
    """Return whether an age is that of baseline for later visits too, and what is missing."""
    who = cells.index.str.partition('_ses-').get_level_values(0)
    repeats = role == 'age' and who.has_duplicates
    at_baseline = repeats and bool(cells.groupby(who).nunique().max() < 2)
    return at_baseline, int(cells.isna().sum())


def describe_corrections(
    config: CohortOptions, options: PreprocessingOptions, people: Table, corrects_size: bool
) -> tuple[list[str], list[Caution]]:
    """Say what is corrected for and what is not; warn of the latter, unless it was chosen.

    Parameters
    ----------
    config, options
        Options of the user, and what follows from them.
    people
        Facts about those who remain.
    corrects_size
        As of :func:`choose_columns`.
    """
    named = '--covariates' if config.covariates else ''
    size = '' if corrects_size else 'the features are no volumes'
    chosen: dict[Role, str] = {
        'age': named,
        'sex': named,
        'icv': '--icv none' if config.icv == NONE else size,
        'site': '--site-column none' if config.site_column == NONE else '',
    }
    used = {role: column_of(options.covariates, role) for role in chosen}
    if options.uses_icv:
        used['icv'] = f'{options.icv_column}; {ICV_WORDS[options.icv]}'
    if options.site_column:
        used['site'] = f'{options.site_column}; ComBat'
    done = [f'{NOUNS.get(role, role)} ({column})' for role, column in used.items() if column]
    done += [name for name in options.covariates if role_of(name) not in used]
    lacking = {
        role: f'{NOUNS.get(role, role)} ({chosen[role] or _why_unknown(people, role)})'
        for role, column in used.items()
        if not column
    }
    notes = [f'Corrected for: {", ".join(done) or "nothing"}']
    notes += [f'Not corrected for: {", ".join(lacking.values())}'] * bool(lacking)
    sex = column_of(people.columns, 'sex')
    sound = ('site', 'sex') if sex and len(set(people.text[sex].dropna())) == 1 else ('site',)
    missed = [why for role, why in lacking.items() if not chosen[role] and role not in sound]
    caution = Caution(
        f'Not corrected for {"; ".join(missed)}',
        'Patterns may show differences in these instead of disease',
        'Name the columns with --covariates and --icv-column, or add them',
        PARTICIPANTS,
    )
    return notes, [caution] * bool(missed)


def _why_unknown(people: Table, role: Role) -> str:
    """Say why no column has a role."""
    found = column_of(people.columns, role)
    if found is None:
        return f'no column is called like {NOUNS.get(role, role)}'
    values = people.text[found].dropna()
    return f'{found} has no values' if values.empty else f'{found} is {values.iloc[0]} in everyone'


def _for_model(
    config: CohortOptions, people: Table, model: Requirements, adapt: bool
) -> tuple[PreprocessingOptions, dict[str, str]]:
    """Find the columns of a model by name, else by role; the site may be missing."""
    if config.covariates or config.icv:
        raise UsageError(
            '--model: the model defines the covariates and the correction for head size; remove '
            '--covariates and --icv'
        )
    site = model.options.site_column or (SITE if adapt else None)
    options = replace(model.options, site_column=site)
    wanted = {name: _column_for(name, config, options, people) for name in options.columns}
    if site is not None:
        wanted[site] = config.site_column or (_default(people, 'site') if adapt else site) or NONE
    wanted = {name: own for name, own in wanted.items() if name != site or own != NONE}
    columns = _require(people, wanted.values(), '; the model needs it (see surreal-gan card)')
    return options, {name: columns[own] for name, own in wanted.items()}


def _column_for(
    name: str, config: CohortOptions, options: PreprocessingOptions, people: Table
) -> str:
    """Return the column for one of a model: as named, with the same name, or by its role."""
    role: Role | None = 'icv' if name == options.icv_column else role_of(name)
    by_role = column_of(people.columns, role) if role in ('icv', 'age', 'sex') else None
    named = config.icv_column if role == 'icv' else None
    return named or find_column(people.columns, name) or by_role or name


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


GroupUse = Literal['known', 'controls', 'compared']
"""How the participants of a cohort are divided; see `read_cohort`."""

EVERYONE = 'all'
"""Label of controls that states that a table without a diagnosis has controls only."""


@dataclass(frozen=True, eq=False)
class Groups:
    """Controls, patients and other groups.

    Attributes
    ----------
    labels
        CN, PT or the label of another group, for each visit; missing where it is not known.
    column
        Column of the diagnosis; empty where groups are not known.
    controls, patients
        Its values that mean a control and a patient.
    recognised
        Whether any of these was recognised rather than named by the user.
    lacking
        Why groups are not known, or a model cannot learn sites from the controls; else empty.
    """

    labels: pd.Series
    column: str = ''
    controls: tuple[str, ...] = ()
    patients: tuple[str, ...] = ()
    recognised: bool = False
    lacking: str = ''

    @property
    def of_two(self) -> pd.Series:
        """CN or PT for each visit; missing for others."""
        return self.labels.where(self.labels.isin((CONTROL, PATIENT)), None)

    def notes(self, only_compared: bool) -> list[str]:
        """Describe the groups in one line; none if they are not known."""
        others = sorted(set(self.labels.dropna()) - {CONTROL, PATIENT})
        groups = {'controls': self.controls, 'patients': self.patients, 'other groups': others}
        who = [f'{group}: {", ".join(labels)}' for group, labels in groups.items() if labels]
        how = 'detected automatically; override with --control-label and --patient-label'
        how = how if self.recognised else 'as given'
        how += '; for comparisons only: R-indices do not depend on them' * only_compared
        column = f'column {self.column}, ' if self.column else ''
        return [f'Groups: {column}{", ".join(who)} ({how})'] if self.controls else []


def find_groups(
    people: Table,
    config: CohortOptions,
    use: GroupUse = 'known',
    model: Requirements | None = None,
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
    try:
        return _divide(people, config, use, model)
    except DataError:
        named = config.group_column or config.control_label or config.patient_label
        if model is None or use == 'controls' or named:
            raise
        return Groups(pd.Series(None, people.text.index, dtype=object), lacking=NO_CONTROLS)


NO_CONTROLS = 'no diagnosis is known to mean controls; set --control-label'


def _divide(
    people: Table, config: CohortOptions, use: GroupUse, model: Requirements | None
) -> Groups:
    named = config.group_column and people.find(config.group_column)
    column = named or column_of(people.columns, 'diagnosis')
    if column is None or (model is not None and column in model.options.columns):
        if config.control_label == (EVERYONE,):
            return Groups(pd.Series(CONTROL, people.text.index), controls=(EVERYONE,))
        everyone = f', or state that everyone is a control with --control-label {EVERYONE}'
        raise DataError(
            f'{_files(people)}: no column {" or ".join(NAMES["diagnosis"][:3])}; name the column '
            f'of the diagnosis with --group-column{everyone * (use == "controls")}; if another '
            'table has it, add that table with --participants'
        )
    values = people.names(column)
    with prefix_errors(f'{people.source_of(column)}: column {column}'):
        controls, patients = _labels(values, config, model is None and use == 'known')
    roles = dict.fromkeys(controls, CONTROL) | dict.fromkeys(patients, PATIENT)
    recognised = not (config.control_label and config.patient_label)
    labels = values.map(lambda value: roles.get(value, value), na_action='ignore')
    return Groups(labels.rename('group'), column, controls, patients, recognised)


def _labels(
    values: pd.Series, config: CohortOptions, both: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the labels of controls and patients: as given, else recognised."""
    present = sorted(set(values.dropna()))
    there = f'the values are {list_briefly(present) or "all missing"}'
    controls, patients = config.control_label, config.patient_label
    absent = [label for label in (*controls, *patients) if label not in present]
    if absent:
        raise DataError(
            f'no row with the value {list_briefly(absent)}, {there}; correct --control-label or '
            '--patient-label'
        )
    codes = next((codes for codes in CODES if set(codes) == set(present)), {})
    controls = controls or _recognised_controls(present, patients, codes)
    if not controls:
        raise DataError(
            f'{there}, and not exactly one of these means controls by its name; choose the '
            'controls with --control-label, or another column with --group-column'
        )
    others = tuple(value for value in present if value not in controls)
    patients = patients or (others if len(others) == 1 else ())
    if both and not patients:
        raise DataError(
            f'{there}, of which {list_briefly(controls)} means controls; choose the patients with '
            '--patient-label (other groups are scored, not trained on), or another column with '
            '--group-column'
        )
    wrong = [v for v in patients if letters_of(v) in CONTROL_WORDS or v in controls]
    wrong += [v for v in controls if letters_of(v) in PATIENT_WORDS or codes.get(v) == PATIENT]
    if wrong:
        raise DataError(
            f'{list_briefly(wrong)} means the opposite of what --control-label and --patient-label '
            'say; correct them, or rename the values'
        )
    return controls, patients


def _recognised_controls(
    present: Sequence[str], patients: Collection[str], codes: Mapping[str, str]
) -> tuple[str, ...]:
    """Find the only label of controls: by its name or code, or besides those of patients."""
    rest = tuple(value for value in present if value not in patients)
    known = tuple(v for v in rest if codes.get(v) == CONTROL or letters_of(v) in CONTROL_WORDS)
    known = known or (rest if patients else ())
    return known if len(known) == 1 else ()


def uses_of_columns(
    tables: Sequence[Table],
    wanted: FeatureList,
    unused: Mapping[str, str],
    roles: Mapping[str, str],
    people: Table,
) -> pd.DataFrame:
    """List what every column of the tables was taken for.

    Parameters
    ----------
    tables
        Volumes, participants if they have a table, and further measures.
    wanted, unused
        The features, and why other columns of volumes are none.
    roles
        Columns about participants that are used, and for what.
    people
        Facts about visits, joined from the tables.
    """
    rows = []
    for table in tables:
        uses = {name: _use_of(table.text[name], roles) for name in table.columns}
        if table is tables[0]:
            uses |= {name: f'not used: {why}' for name, why in unused.items()}
            uses |= dict.fromkeys(_region_columns(table, wanted), REGION)
        uses |= {
            name: role
            for name, role in roles.items()
            if name in uses and people.source_of(name) == table.source
        }
        ids = {table.id_column: 'id', table.session_column: 'session'}
        rows += [(table.source.name, name, use) for name, use in (ids | uses).items() if name]
    return pd.DataFrame(rows, columns=list(FRAME), dtype=object)


def _region_columns(measured: Table, wanted: FeatureList) -> list[str]:
    """Return the columns of volumes that are features, or parts of them."""
    folded = {name.lower() for name in wanted.names}
    needed = {index for feature in wanted.features for index in feature.indices}
    return [n for n in measured.columns if n.lower() in folded or muse_index(n) in needed]


def _use_of(cells: pd.Series, roles: Iterable[str]) -> str:
    """Return the use of a column without a role: measures are compared with R-indices."""
    role, noun = role_of(cells.name), noun_of(cells.name)
    if cells.isna().all():
        return 'not used: no values'
    if role and role in COMPARED and column_of(roles, role) is None:
        return noun
    return f'not used: {noun}' if noun else 'measure'


def group_uses(uses: pd.DataFrame) -> pd.DataFrame:
    """List the columns of each table with the same use in one row."""
    rows = [
        (table, use, list_briefly(part['column'], LISTED))
        for (table, use), part in uses.groupby(['table', 'taken_for'], sort=False)
    ]
    return pd.DataFrame(rows, columns=['Table', 'Taken for', 'Columns'])


def describe_uses(uses: pd.DataFrame) -> Iterator[str]:
    """Write what columns were taken for, as lines of text."""
    for table, part in group_uses(uses).groupby('Table', sort=False):
        yield f'Columns of {table}, as they were read:'
        lines = align(list(zip(part['Taken for'], part['Columns']))).splitlines()
        yield from (f'  {line}' for line in lines)
