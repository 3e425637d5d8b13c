"""The people of a group analysis, in one order, and as files for the steps that come after."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from surreal_bids.bids.layout import without_prefix
from surreal_bids.bids.people import (
    CONTROL,
    PARTICIPANT,
    PATIENT,
    SAID_NOTHING,
    SESSION,
    GroupLabels,
    Groups,
    Table,
    Visit,
    find_column,
    find_groups,
    join_participants,
    person_key,
    read_participants,
    read_people,
    read_sessions,
    read_visits,
    require_columns,
)
from surreal_bids.config import CohortOptions
from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.files import write_json, write_tsv
from surreal_bids.harmonization.covariates import ICVHandling
from surreal_bids.harmonization.empirical_bayes import FEWEST_FOR_SCALE
from surreal_bids.model.estimator import FEWEST_FEATURES, FEWEST_PEOPLE
from surreal_bids.regions import VENTRICLES, recognise
from surreal_bids.tables.features import (
    FeatureList,
    column_features,
    listed_features,
    read_features,
    remaining_features,
)
from surreal_bids.tables.preprocessing import (
    Preprocessing,
    PreprocessingOptions,
    read_person_columns,
    require_distinct,
)
from surreal_bids.tables.screening import (
    Reasons,
    empty_regions,
    implausible_values,
    missing_values,
    outlying_volumes,
    require_numbers,
    require_people,
    sites_without_controls,
    summarise_reasons,
    unusable_regions,
)
from surreal_bids.tables.volumes import (
    ICV,
    Volumes,
    in_order,
    read_others,
    read_roi_table,
    visit_columns,
    visit_name,
)
from surreal_bids.text import name_some

LOGGER = logging.getLogger(__name__)


VISIT = 'name of the visit'
"""Column of our own files that names a visit: `sub-01` or `sub-01_ses-2`."""

FRAMES = ('visits', 'features', 'people', 'others')
RECORD = 'cohort.json'


@dataclass(frozen=True, eq=False)
class Cohort:
    """Everyone who is in, a row a visit; all frames have the same rows.

    Attributes
    ----------
    visits : frame
        `participant_id`, `session_id` if there are sessions, `group` (CN or PT), and `is_first`:
        whether it is the person's first visit, which is the one that is learned from.
    features : frame of shape (n_visits, n_features)
        Volumes as measured.
    people : frame of shape (n_visits, n_columns)
        Covariates, ICV and site.
    others : frame of shape (n_visits, n_others)
        What else is known of people, as text: clinical measures.
    wanted, options
        Which features, and what is done to them.
    notes
        Decisions that were made on the way, in words, for the report.
    exclusions : frame
        `participant_id`, `session_id` if there are sessions, and `reason` of those excluded.
    measured : frame
        The volumes of everyone, excluded or not, after the columns that identify visits.
    """

    visits: pd.DataFrame
    features: pd.DataFrame
    people: pd.DataFrame
    others: pd.DataFrame
    wanted: FeatureList
    options: PreprocessingOptions
    notes: tuple[str, ...] = ()
    exclusions: pd.DataFrame = field(default_factory=pd.DataFrame)
    measured: pd.DataFrame = field(default_factory=pd.DataFrame)

    @classmethod
    def read(cls, volumes: Path | str, participants: Path | str, **options: Any) -> Cohort:
        """Read a table of volumes and `participants.tsv`, join and screen them.

        Parameters
        ----------
        volumes, participants
            Tables, as for `surreal-gan fit`.
        **options
            Fields of :class:`~surreal_bids.config.CohortOptions`, named as on the command line:
            `group_column='diagnosis'`, `covariates=('age', 'sex')`.
        """
        return read_cohort(volumes, participants, CohortOptions(**options))

    def __len__(self) -> int:
        return len(self.visits)

    @property
    def is_patient(self) -> pd.Series:
        """Who is a patient: booleans (n_visits,)."""
        return self.visits['group'] == PATIENT

    @property
    def counts(self) -> dict[str, int]:
        """How many people each group has."""
        first = self.visits.loc[self.visits['is_first'], 'group']
        return {group: int((first == group).sum()) for group in (CONTROL, PATIENT)}

    def select(self, chosen: pd.Series | Sequence[bool]) -> Cohort:
        """The same with some of the visits only."""
        rows = np.asarray(chosen, dtype=bool)
        return replace(self, **{name: getattr(self, name)[rows] for name in FRAMES})

    def first_visits(self) -> Cohort:
        """One visit a person: what is learned from, so that nobody counts twice."""
        return self.select(self.visits['is_first'])

    def fingerprint(self, *more: Any) -> str:
        """A short hash of everything that results depend on, and of whatever else is given."""
        digest = hashlib.sha256(json.dumps(more, sort_keys=True, default=str).encode())
        digest.update(json.dumps(self._record(), sort_keys=True).encode())
        for name in FRAMES:
            digest.update(getattr(self, name).to_csv(sep='\t').encode())
        return digest.hexdigest()[:12]

    def _record(self) -> dict[str, Any]:
        text = [n for n in self.people if not pd.api.types.is_numeric_dtype(self.people[n])]
        return {
            'wanted': self.wanted.to_json(),
            'options': self.options.to_json(),
            'notes': list(self.notes),
            'text': text,
        }

    def save(self, folder: Path) -> Path:
        """Write the cohort; the record comes last, so that a folder with a record is complete."""
        for name in (*FRAMES, 'exclusions', 'measured'):
            table = getattr(self, name).copy().rename_axis(VISIT).reset_index()
            write_tsv(folder / f'{name}.tsv', table)
        write_json(folder / RECORD, self._record())
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Cohort:
        """Read what `save` wrote, to the last digit."""
        folder = Path(folder)
        record = json.loads((folder / RECORD).read_text(encoding='utf-8'))
        visits = read_exact(folder / 'visits.tsv', None)
        return cls(
            visits.assign(is_first=visits['is_first'] == 'True'),
            read_exact(folder / 'features.tsv'),
            read_exact(folder / 'people.tsv', record['text']),
            read_exact(folder / 'others.tsv', None),
            FeatureList.from_json(record['wanted']),
            PreprocessingOptions.from_json(record['options']),
            tuple(record['notes']),
            read_exact(folder / 'exclusions.tsv', None),
            read_exact(folder / 'measured.tsv', (PARTICIPANT, SESSION)),
        )


def read_exact(path: str | Path, text: Sequence[str] | None = ()) -> pd.DataFrame:
    """Read a table of visits whose numbers are the same to the last digit as when written.

    Parameters
    ----------
    path
        A table with a column `visit`, which becomes the index.
    text
        Columns that are text, whatever they hold; None: all are. Others are numbers if they can be.
    """
    table = pd.read_csv(path, sep='\t', dtype=str, na_values=['n/a'], keep_default_na=False)
    table = table.set_index(VISIT).rename_axis(None)
    if text is None:
        return table
    columns = {name: table[name] if name in text else _numbers(table[name]) for name in table}
    return pd.DataFrame(columns, index=table.index)


def _numbers(cells: pd.Series) -> pd.Series:
    try:
        return cells.astype(np.float64)
    except ValueError:
        return cells


def mark_first_visits(visits: pd.DataFrame) -> pd.DataFrame:
    """Add `is_first` to visits that are in order."""
    return visits.assign(is_first=~visits[PARTICIPANT].duplicated())


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


def choose_options(
    config: CohortOptions, people: Table, model: Preprocessing | None = None
) -> Choice:
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


def _for_training(config: CohortOptions, people: Table) -> Choice:
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


def _covariates(config: CohortOptions, people: Table) -> tuple[list[str], bool]:
    """The covariates, and whether the user named them."""
    if config.covariates:
        asked = list(dict.fromkeys(config.covariates))
        return ([] if asked == [NONE] else asked), True
    usual = [find_column(people.columns, name) for name in USUAL_COVARIATES]
    return [name for name in usual if name and _is_useful(people, name)], False


def _is_useful(people: Table, column: str) -> bool:
    cells = people.categories(column)
    return bool(cells.notna().mean() >= MOSTLY_KNOWN and len(set(cells.dropna())) > 1)


def _icv_column(config: CohortOptions, people: Table, covariates: Sequence[str]) -> str | None:
    if config.icv_column or config.icv == NONE:
        return config.icv_column
    found = find_column(people.columns, ICV)
    usable = found is not None and found not in covariates and _is_useful(people, found)
    return found if usable else None


def _icv_handling(config: CohortOptions, column: str | None) -> ICVHandling:
    if config.icv == 'proportion':
        return 'proportion'
    return 'none' if config.icv == NONE or column is None else 'covariate'


def _site_column(config: CohortOptions, people: Table) -> str | None:
    if config.site_column:
        return None if config.site_column == NONE else config.site_column
    usual = [find_column(people.columns, name) for name in USUAL_SITES]
    return next((name for name in usual if name and _is_useful(people, name)), None)


def _for_model(config: CohortOptions, people: Table, model: Preprocessing) -> Choice:
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


GROUP_NAMES = {CONTROL: 'controls', PATIENT: 'patients'}

ONE_SITE = 'everyone'
"""Name of the only site of a dataset that does not tell its sites apart."""


class _Screen:
    """Visits that are still in, and why the others are not."""

    def __init__(self, visits: Sequence[Visit]) -> None:
        self.visits = {visit_name(visit): visit for visit in in_order(visits)}
        self.reasons: Reasons = {}

    def exclude(self, reasons: Reasons) -> None:
        """Leave people out; whom an earlier reason has left out already keeps that one."""
        self.reasons = {**reasons, **self.reasons}
        require_people(self.remaining, self.reasons)

    @property
    def remaining(self) -> list[str]:
        return [name for name in self.visits if name not in self.reasons]


def read_cohort(
    volumes: Volumes | Path | str,
    participants: Path | str,
    config: CohortOptions = CohortOptions(),  # noqa: B008 (frozen)
    expected: Sequence[Visit] = (),
    model: Preprocessing | None = None,
) -> Cohort:
    """Join volumes and participants, and screen them.

    Parameters
    ----------
    volumes
        A table of volumes, or what the participant level has written.
    participants
        Table of what is known of participants, such as `participants.tsv`.
    config
        Columns, labels and filters.
    expected
        Visits that should have volumes: those with an image.
    model
        Preprocessing of a model to apply, which says what is needed; None: a model is trained, and
        the configuration says so.

    Raises
    ------
    DataError
        No `participants.tsv`; no controls or no patients, or too few; no such column; nobody left.
    """
    volumes = volumes if isinstance(volumes, Volumes) else read_roi_table(Path(volumes))
    bids_dir = Path(participants).parent
    everyone = read_participants(bids_dir)
    screen = _Screen(_filter([*volumes.visits, *expected, *_listed(everyone, volumes)], config))
    screen.exclude(_without_volumes(screen, volumes))
    screen.exclude(_without_row(screen, everyone))
    described = _read_described(bids_dir, screen)
    people = _with_own_columns(described, volumes)
    groups = find_groups(people, _said(config))
    screen.exclude(_of_other_groups(groups))
    choice = choose_options(config, people, model)
    require_distinct(choice.options, groups.column)
    table = _screen_people(screen, people, choice, model)
    wanted, dropped = _find_features(volumes, screen.remaining, described, model)
    features = read_features(_rows(volumes.table, screen.remaining), wanted)
    screen.exclude(empty_regions(features.rename(columns=volumes.names)))
    features = features.loc[screen.remaining]
    screen.exclude(outlying_volumes(features, groups.is_patient[features.index]))
    choice = _screen_sites(screen, table, groups, choice, model)
    used = {groups.column, *choice.columns.values()}
    names = screen.remaining
    cohort = Cohort(
        _describe_visits(screen, groups),
        features.loc[names],
        table.loc[names, choice.options.columns],
        read_others(described, used, config.phenotype, [screen.visits[name] for name in names]),
        wanted,
        choice.options,
        (f'Groups: {groups.describe()}', *choice.notes, *_note_visits(screen), *dropped),
    )
    _require_groups(cohort, screen.reasons, training=model is None)
    exclusions = _exclusion_table(screen)
    numbers = volumes.table.typed().select_dtypes('number')
    measured = pd.concat([visit_columns(volumes.visits), numbers], axis=1)
    return replace(cohort, exclusions=exclusions, measured=measured)


def check_participants(
    participants: Path | str, config: CohortOptions, model: Preprocessing | None = None
) -> None:
    """Check what can be known of a cohort before there are volumes: groups, columns and measures.

    Parameters
    ----------
    participants, config, model
        As of :func:`read_cohort`.

    Raises
    ------
    DataError
        A table cannot be read, a column is missing, or groups cannot be told apart.
    """
    bids_dir = Path(participants).parent
    visits: list[Visit] = []
    for label in read_participants(bids_dir).categories(PARTICIPANT):
        sessions = read_sessions(bids_dir, str(label))
        labels = [None] if sessions is None else sessions.categories(SESSION)
        visits += [(str(label), session) for session in labels]
    visits = _filter(visits, config)
    people = read_visits(bids_dir, visits)
    text = people.text.set_axis([visit_name(visit) for visit in visits])
    # The participant level will add the head size, which differs from one to the other.
    sizes = {} if ICV in text else {ICV: [str(number) for number in range(len(text))]}
    known = Table(people.source, text.assign(**sizes))
    groups = find_groups(known, _said(config))
    choice = choose_options(config, known, model)
    require_distinct(choice.options, groups.column)
    read_others(known, {groups.column, *choice.columns.values()}, config.phenotype, visits)


def _filter(visits: Sequence[Visit], config: CohortOptions) -> list[Visit]:
    """Visits that `--participant-label` and `--session-label` leave, each once."""
    people = {without_prefix(label, 'sub') for label in config.participant_label}
    sessions = {without_prefix(label, 'ses') for label in config.session_label}
    return [
        (participant, session)
        for participant, session in dict.fromkeys(visits)
        if (not people or participant in people)
        and (not sessions or session is None or session in sessions)
    ]


def _listed(everyone: Table, volumes: Volumes) -> list[Visit]:
    """People of `participants.tsv` of whom there is no volume at all."""
    known = {participant for participant, _ in volumes.visits}
    return [(label, None) for label in everyone.categories(PARTICIPANT) if label not in known]


def _without_volumes(screen: _Screen, volumes: Volumes) -> Reasons:
    reason = (
        f'not in {volumes.source}'
        if volumes.source.is_file()
        else 'no regional volumes: the participant level has not run, or has failed (see logs)'
    )
    there = set(volumes.table.text.index)
    return {name: reason for name in screen.visits if name not in there}


def _without_row(screen: _Screen, everyone: Table) -> Reasons:
    known = set(everyone.categories(PARTICIPANT))
    return {
        name: 'no row in participants.tsv'
        for name, (participant, _) in screen.visits.items()
        if participant not in known
    }


def _read_described(bids_dir: Path, screen: _Screen) -> Table:
    """What `participants.tsv` and `sessions.tsv` say of everyone still in."""
    names = screen.remaining
    people = read_visits(bids_dir, [screen.visits[name] for name in names])
    return Table(people.source, people.text.set_axis(names).drop(columns=[PARTICIPANT, SESSION]))


def _with_own_columns(described: Table, volumes: Volumes) -> Table:
    """The same, and what the table of volumes has beside; ICV is often there."""
    own = volumes.table.text.loc[described.text.index]
    new = own[[name for name in own if name not in described.columns]]
    return Table(described.source, pd.concat([described.text, new], axis=1))


def _said(config: CohortOptions) -> GroupLabels:
    return GroupLabels(config.group_column, config.control_label, config.patient_label)


def _of_other_groups(groups: Groups) -> Reasons:
    return {
        name: f'{groups.column} is missing'
        if value is None
        else f'{groups.column} is {value}: neither control nor patient'
        for name, value in groups.left_out.items()
    }


def _screen_people(
    screen: _Screen, people: Table, choice: Choice, model: Preprocessing | None
) -> pd.DataFrame:
    """Covariates, ICV and site of those who have all of them."""
    names = {own: name for name, own in choice.columns.items()}
    hidden = [name for own, name in names.items() if name != own and name in people.columns]
    renamed = people.text.drop(columns=hidden).rename(columns=names)
    if choice.one_site and choice.options.site_column:
        renamed[choice.options.site_column] = ONE_SITE
    known = _rows(Table(people.source, renamed), screen.remaining)
    text, codes = (model.text_covariates, model.codes) if model else (None, None)
    table = read_person_columns(known, choice.options, text, codes)
    require_numbers(table[list(choice.options.covariates)])
    screen.exclude(missing_values(table))
    screen.exclude(implausible_values(table.loc[screen.remaining]))
    return table


def _rows(table: Table, names: Sequence[str]) -> Table:
    return Table(table.source, table.text.loc[list(names)])


def _find_features(
    volumes: Volumes, names: Sequence[str], described: Table, model: Preprocessing | None
) -> tuple[FeatureList, list[str]]:
    """The features, and what was left out in words.

    Without a model to say which: the MUSE regions but ventricles, if the table has such, or else
    every column that does not describe people.
    """
    if model is not None:
        return model.features, []
    table = _rows(volumes.table, names)
    columns = _region_columns(table, described)
    unusable = unusable_regions(pd.DataFrame({name: table.numbers(name) for name in columns}))
    kept = [name for name in columns if name not in unusable]
    if len(kept) < FEWEST_FEATURES:
        raise DataError(
            f'{volumes.source}: {len(kept)} regions can be used, {FEWEST_FEATURES} are needed; '
            f'left out: {name_some([f"{name} ({why})" for name, why in unusable.items()])}'
        )
    dropped = [f'{volumes.names.get(n, n)}: left out, {why}' for n, why in unusable.items()]
    return column_features(kept), dropped


def _region_columns(table: Table, described: Table) -> list[str]:
    regions = recognise(table.columns)
    if len(regions) >= FEWEST_FEATURES:
        return [name for name, index in regions.items() if index not in VENTRICLES]
    people = [name for name in table.columns if name in described.columns or name.lower() == ICV]
    return remaining_features(table, people).names


def _screen_sites(
    screen: _Screen,
    table: pd.DataFrame,
    groups: Groups,
    choice: Choice,
    model: Preprocessing | None,
) -> Choice:
    """Leave out sites without controls; with one site left, there is nothing to harmonize."""
    column = choice.options.site_column
    if column is None or groups.is_patient[screen.remaining].all():
        return choice
    site = table.loc[screen.remaining, column]
    person = pd.Series([screen.visits[name][0] for name in site.index], site.index)
    teaches = ~person.duplicated() & ~groups.is_patient[site.index]
    screen.exclude(sites_without_controls(site, teaches))
    if model is not None or len(set(site[screen.remaining])) > 1:
        return choice
    note = f'Harmonization: none, since column {column} has one site only'
    return replace(
        choice, options=replace(choice.options, site_column=None), notes=(*choice.notes, note)
    )


def _require_groups(cohort: Cohort, reasons: Reasons, training: bool) -> None:
    """Refuse groups that are too small, and say for which reasons people were left out."""
    needed = {CONTROL: FEWEST_PEOPLE, PATIENT: FEWEST_PEOPLE}
    if not training:
        needed = {CONTROL: FEWEST_FOR_SCALE, PATIENT: 0}
    remedy = 'add people, or correct --control-label and --patient-label'
    if reasons:
        remedy = f'{len(reasons)} are excluded: {summarise_reasons(reasons.values())}'
    for group, count in cohort.counts.items():
        if count < needed[group]:
            raise DataError(
                f'{count} {GROUP_NAMES[group]} are left, but at least {needed[group]} are needed; '
                f'{remedy}'
            )


def _describe_visits(screen: _Screen, groups: Groups) -> pd.DataFrame:
    names = screen.remaining
    visits = visit_columns([screen.visits[name] for name in names])
    return mark_first_visits(visits.assign(group=groups.labels[names]))


def _note_visits(screen: _Screen) -> list[str]:
    """Which visit is learned from, where somebody has several."""
    people = [screen.visits[name][0] for name in screen.remaining]
    if len(set(people)) == len(people):
        return []
    return ['Visits: of each person the first by the name of the session is learned from']


def _exclusion_table(screen: _Screen) -> pd.DataFrame:
    """Who is left out and why; columns as in the tables of those who are not."""
    everyone = visit_columns(screen.visits.values())
    return everyone.assign(reason=pd.Series(screen.reasons, dtype=object)).dropna(subset='reason')


@dataclass(frozen=True, eq=False)
class TrainingTable:
    """People of both groups, in one order.

    Attributes
    ----------
    groups
        Who is a control and who is a patient.
    wanted
        The features, and how to find them in the next table.
    features : frame of shape (n_people, n_features)
        Features as measured, NaN where missing.
    people : frame of shape (n_people, n_columns)
        Covariates, ICV and site.
    """

    groups: Groups
    wanted: FeatureList
    features: pd.DataFrame
    people: pd.DataFrame

    def to_cohort(self, options: PreprocessingOptions) -> Cohort:
        """The same as a cohort of one visit each."""
        visits = pd.DataFrame({'group': self.groups.labels}).assign(is_first=True)
        nothing = pd.DataFrame(index=visits.index)
        return Cohort(visits, self.features, self.people, nothing, self.wanted, options)


def read_training_table(
    table_path: Path,
    participants_path: Path | None,
    options: PreprocessingOptions,
    features: str | None = None,
    said: GroupLabels = SAID_NOTHING,
) -> TrainingTable:
    """Read and check everything that training needs, and take the people of the two groups.

    Parameters
    ----------
    table_path
        Table of the features.
    participants_path
        Table of what is known of people; None: that is in the first one too.
    options
        What preprocessing needs of people.
    features
        `muse72`, `muse139`, or a text file of column names; None: all columns not used otherwise.
    said
        What the user said of the groups; the rest is recognised.
    """
    table = read_people(table_path)
    participants = read_people(participants_path) if participants_path else None
    people = join_participants(table, participants)
    groups = find_groups(people, said)
    LOGGER.info('%s: %s', people.source, groups.describe())
    require_distinct(options, groups.column)
    if features is not None:
        wanted = listed_features(features)
    else:
        wanted = remaining_features(table, _person_columns(table, participants, groups, options))
    members = groups.is_patient.index
    _require_single_visits(table.source, members)
    described = read_person_columns(Table(people.source, people.text.loc[members]), options)
    require_numbers(described[list(options.covariates)])
    return TrainingTable(
        groups,
        wanted,
        read_features(Table(table.source, table.text.loc[members]), wanted),
        described,
    )


def _require_single_visits(source: Path, names: pd.Index) -> None:
    """Refuse several visits of one person, who would count as several people."""
    people = names.to_series().map(lambda name: person_key(str(name)).split('_ses-')[0])
    repeated = people[people.duplicated()].tolist()
    if repeated:
        raise DataError(
            f'{source}: several visits of {name_some(repeated)}; train with one visit of each '
            'person, and apply the model to all'
        )


def _person_columns(
    table: Table, participants: Table | None, groups: Groups, options: PreprocessingOptions
) -> list[str]:
    """Columns of the table that describe people: those in use, and those of the other table."""
    named = (groups.column, options.icv_column, *options.columns)
    used = [find_column(table.columns, name) for name in named if name is not None]
    return [*(name for name in used if name), *(participants.columns if participants else [])]
