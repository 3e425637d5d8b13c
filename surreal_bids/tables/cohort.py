"""The people of a group analysis, in one order, and as files for the steps that come after."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from surreal_bids.bids.layout import visit_name
from surreal_bids.bids.people import (
    CONTROL,
    PARTICIPANT,
    PATIENT,
    SESSION,
    GroupLabels,
    Groups,
    Table,
    Visit,
    about,
    find_column,
    find_group_column,
    find_groups,
    letters,
    names_no_controls,
)
from surreal_bids.bids.people import names as values_of
from surreal_bids.config import CohortOptions, check_config
from surreal_bids.exceptions import DataError, NothingMatchedError
from surreal_bids.files import write_json, write_tsv
from surreal_bids.harmonization.empirical_bayes import FEWEST_FOR_SCALE
from surreal_bids.model.checks import FEWEST_FEATURES, FEWEST_PEOPLE
from surreal_bids.regions import FeatureList, is_icv
from surreal_bids.tables.controls import (
    NOT_ADAPTED,
    compare_ages,
    outside_training_ages,
    warn_of_controls,
)
from surreal_bids.tables.features import (
    PERSON_COLUMNS,
    VOLUME_UNIT,
    Choice,
    choose_features,
    choose_options,
    column_features,
    listed_features,
    read_features,
    unused_columns,
)
from surreal_bids.tables.preprocessing import (
    Preprocessing,
    PreprocessingOptions,
    read_person_columns,
    require_distinct,
)
from surreal_bids.tables.screening import (
    Reasons,
    check_head_size,
    check_volumes,
    empty_regions,
    exchanged_sexes,
    expected_volumes,
    far_volumes,
    implausible_values,
    missing_values,
    outlying_volumes,
    refuse_negative,
    refuse_other_codes,
    refuse_separators,
    require_levels,
    require_numbers,
    require_people,
    require_years,
    sites_without_controls,
    summarise_reasons,
    unify_sex,
    unusable_regions,
    usual_head_size,
)
from surreal_bids.tables.visits import (
    DATE_COLUMNS,
    add_years,
    describe_order,
    order_visits,
    warn_of_ages,
)
from surreal_bids.tables.volumes import (
    ICV,
    Volumes,
    filter_visits,
    in_order,
    own_id_column,
    read_others,
    read_rows,
    require_ids,
    rows_of,
    sessions_of,
    visit_columns,
    with_sessions,
    without_rows,
)
from surreal_bids.text import counted, name_some

LOGGER = logging.getLogger(__name__)


USUAL_PLACES = frozenset({'site', 'scanner'})
USUAL_COVARIATES = USUAL_PLACES | {'age', 'ageatscan', 'ageyears', 'sex', 'gender', 'ptgender'}
"""Letters and digits of columns that are covariates rather than clinical measures."""

VISIT = 'name of the visit'
"""Column of our own files that names a visit: `sub-01` or `sub-01_ses-2`."""

FRAMES = ('visits', 'features', 'people', 'others')
RECORD = 'cohort.json'


@dataclass(frozen=True, eq=False)
class Cohort:
    """Everyone who is included, one row per visit; all frames have the same rows.

    Attributes
    ----------
    visits : frame
        `participant_id`, `session_id` if there are sessions, `group` (CN or PT; missing where a
        model is applied and nothing tells), `is_first`:
        whether it is the person's first visit, which is the one that is learned from; and, of
        cohorts that were read, `order_by` and `years` (see :mod:`surreal_bids.tables.visits`).
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
    warnings
        What makes results doubtful, in words: few controls, or of another age.
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
    warnings: tuple[str, ...] = ()

    @classmethod
    def read(
        cls, volumes: Path | str, participants: Path | str | None = None, **options: Any
    ) -> Cohort:
        """Read a table of volumes and one of participants, join and screen them.

        Parameters
        ----------
        volumes, participants
            Tables, as for `surreal-gan fit`.
        **options
            Fields of :class:`~surreal_bids.config.CohortOptions`, named as on the command line:
            `group_column='diagnosis'`, `covariates=('age', 'sex')`.
        """
        return read_cohort(volumes, participants, check_config(CohortOptions(**options)))

    def __len__(self) -> int:
        return len(self.visits)

    @property
    def is_patient(self) -> pd.Series:
        """Who is a patient: booleans (n_visits,)."""
        return self.visits['group'] == PATIENT

    @property
    def can_teach(self) -> bool:
        """Whether there are enough controls for a model to learn their scanners."""
        return self.counts[CONTROL] >= FEWEST_FOR_SCALE

    @property
    def counts(self) -> dict[str, int]:
        """How many people each group has."""
        first = self.visits.loc[self.visits['is_first'], 'group']
        return {group: int((first == group).sum()) for group in (CONTROL, PATIENT)}

    @property
    def n_without_group(self) -> int:
        """How many people have no known group."""
        return int(self.visits.loc[self.visits['is_first'], 'group'].isna().sum())

    def select(self, chosen: pd.Series | Sequence[bool]) -> Cohort:
        """The same with some of the visits only."""
        rows = np.asarray(chosen, dtype=bool)
        return replace(self, **{name: getattr(self, name)[rows] for name in FRAMES})

    def first_visits(self) -> Cohort:
        """One visit a person: what is learned from, so that nobody counts twice."""
        return self.select(self.visits['is_first'])

    def covariates_and_measures(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Divide what is known of visits into covariates and other measures.

        Age, sex, head size and site are covariates even where nothing was done about them. Of
        covariates, numbers have a type of numbers; sites are text, even if they are called 1 and 2.
        """
        unused = self._unused_covariates()
        complete = [name for name in unused if name not in self.incomplete_covariates()]
        typed = {name: _as_covariate(self.others[name]) for name in complete}
        return self.people.assign(**typed), self.others.drop(columns=unused)

    def incomplete_covariates(self) -> list[str]:
        """Covariates about which nothing was done, and which some participants lack."""
        return [name for name in self._unused_covariates() if self.others[name].isna().any()]

    def _unused_covariates(self) -> list[str]:
        names = map(str, self.others)
        return [name for name in names if letters(name) in USUAL_COVARIATES or is_icv(name)]

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
            'warnings': list(self.warnings),
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
            _typed_visits(visits),
            read_exact(folder / 'features.tsv'),
            read_exact(folder / 'people.tsv', record['text']),
            read_exact(folder / 'others.tsv', None),
            FeatureList.from_json(record['wanted']),
            PreprocessingOptions.from_json(record['options']),
            tuple(record['notes']),
            read_exact(folder / 'exclusions.tsv', None),
            read_exact(folder / 'measured.tsv', (PARTICIPANT, SESSION)),
            tuple(record['warnings']),
        )


def _typed_visits(visits: pd.DataFrame) -> pd.DataFrame:
    """Visits as they were before they were written as text."""
    years = {'years': visits['years'].astype(np.float64)} if 'years' in visits else {}
    return visits.assign(is_first=visits['is_first'] == 'True', **years)


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


def _as_covariate(column: pd.Series) -> pd.Series:
    """Numbers, if all are and they do not call places; else as it is."""
    numbers = pd.to_numeric(column, errors='coerce')
    is_place = letters(str(column.name)) in USUAL_PLACES
    return column if is_place or numbers.isna().any() else numbers.astype(float)


SINGULAR = {CONTROL: 'control', PATIENT: 'patient'}
GROUP_NAMES = {group: f'{name}s' for group, name in SINGULAR.items()}

ONE_SITE = 'everyone'
"""Name of the only site of a dataset that does not tell its sites apart."""


class _Screen:
    """Visits that are still in, and why the others are not."""

    def __init__(self, visits: Sequence[Visit], prefix: str) -> None:
        self.prefix = prefix
        self.visits = {visit_name(visit, prefix): visit for visit in in_order(visits)}
        self.reasons: Reasons = {}

    def exclude(self, reasons: Reasons) -> None:
        """Exclude visits; an earlier reason stays."""
        self.reasons = {**reasons, **self.reasons}
        require_people(self.remaining, self.reasons)

    def order(self, names: Iterable[str]) -> None:
        """Put these visits first, in this order; the others stay behind them as they are."""
        self.visits = {name: self.visits[name] for name in (*names, *self.visits)}

    @property
    def remaining(self) -> list[str]:
        return [name for name in self.visits if name not in self.reasons]

    def still(self) -> dict[str, Visit]:
        """Visits that are in, by name."""
        return {name: self.visits[name] for name in self.remaining}


DEFAULTS = CohortOptions()


def read_cohort(
    volumes: Volumes | Path | str,
    participants: Path | str | None = None,
    options: CohortOptions = DEFAULTS,
    expected: Sequence[Visit] = (),
    model: Preprocessing | None = None,
    with_groups: bool = True,
    adapt: bool = True,
) -> Cohort:
    """Read volumes and what is known of participants, and screen them.

    Parameters
    ----------
    volumes
        A table of volumes, or what the participant level has written (`collect_volumes`).
    participants
        Table of what is known of participants, with `sessions.tsv` files as in BIDS; None: the
        table of volumes has it all. Where both have a column, this one counts.
    options
        Columns, labels and filters.
    expected
        Visits that should have volumes: those with an image.
    model
        Preprocessing of a model to apply, which says what is needed; None: a model is trained, and
        the options say so.
    with_groups
        Whether controls and patients are needed; a model can do without.
    adapt
        Whether the model is to learn the sites of these participants first.

    Raises
    ------
    DataError
        A table cannot be read or cannot be true; no controls or no patients, or too few; no such
        column; nobody left.
    """
    if not isinstance(volumes, Volumes):
        volumes = read_rows(Path(volumes), options.id_column)
    people = None
    if participants is not None:
        people = read_rows(Path(participants), own_id_column(participants, options))
    screen = _start(volumes, people, expected, options)
    described = _describe(volumes, people, screen)
    folder = None if people is None else people.source.parent
    times = order_visits(described, screen.still(), folder)
    screen.order(times.index)
    described = described.rows(screen.remaining)
    groups, lacking = _find_groups(described, options, model) if with_groups else (None, '')
    if groups is not None:
        screen.exclude(_of_other_groups(groups))
    teachers = None if lacking else groups
    if teachers is not None:
        _require_groups(teachers, screen, training=model is None)
    by_name = bool(lacking) and _has_sites(described, options, model)
    choice = choose_options(options, described, model, adapt and not by_name)
    require_distinct(choice.options, groups.column if groups else '')
    table, unified = _screen_people(screen, described, choice, model)
    used = {*choice.columns.values()} | ({groups.column} if groups else set())
    own = used | set(people.table.columns if people else ())
    wanted, dropped = _find_features(volumes, screen, own, options, model)
    features = _screen_features(screen, volumes, wanted, choice, table, model)
    if teachers is not None:
        screen.exclude(_outlying(features.loc[screen.remaining], teachers))
    choice = _screen_sites(screen, table, teachers, choice, model)
    names = screen.remaining
    others = Table(described.source, described.text[_others(described, volumes, people)])
    visits = add_years(_describe_visits(screen, groups, with_groups), times)
    notes = [f'Groups: {groups.describe()}'] if groups else []
    if teachers is not None:
        _require_groups(teachers, screen, training=model is None)
    ordered = describe_order(visits, described, learns=adapt and not lacking)
    cohort = Cohort(
        visits,
        features.loc[names],
        table.loc[names, choice.options.columns],
        read_others(others, used, options.phenotype, screen.still()),
        wanted,
        choice.options,
        (*notes, *choice.notes, *unified, *ordered, *dropped),
        _exclusion_table(screen),
        _measured(volumes, screen.prefix),
    )
    column = choice.options.icv_column if choice.options.uses_icv else None
    size = cohort.features.sum(axis=1) if column is None else cohort.people[column]
    doubts = (*exchanged_sexes(cohort.people, size), *warn_of_ages(cohort.visits, cohort.people))
    cohort = replace(
        cohort, warnings=(*([f'{NOT_ADAPTED} ({lacking})'] if lacking else []), *doubts)
    )
    if model is not None:
        outside = outside_training_ages(cohort, model)
        cohort = replace(cohort, warnings=(*cohort.warnings, *outside))
    return cohort if teachers is None else _with_warnings(cohort, training=model is None)


def _find_groups(
    described: Table, options: CohortOptions, model: Preprocessing | None
) -> tuple[Groups | None, str]:
    """Controls and patients; and, where a model is applied, why it cannot learn from controls.

    A model may be applied where there are no controls: to one new participant, say.
    """
    said = _said(options)
    if model is None:
        return find_groups(described, said), ''
    said = _of_selected(said, described, options)
    if names_no_controls(described, said):
        return None, 'no diagnosis is known to mean controls; --control-label names it'
    groups = find_groups(described, said, both=False)
    people = {name.partition('_ses-')[0] for name in groups.labels.index[~groups.is_patient]}
    lacking = f'{counted(len(people), "control")}, at least {FEWEST_FOR_SCALE} are needed'
    return groups, lacking if len(people) < FEWEST_FOR_SCALE else ''


def _of_selected(said: GroupLabels, described: Table, options: CohortOptions) -> GroupLabels:
    """What was said of groups; of a selection of participants, what is there of it."""
    column = said.column or find_group_column(described)
    if not options.participant_label or column is None or column not in described.columns:
        return said
    present = set(values_of(described, column))
    return replace(
        said,
        controls=tuple(label for label in said.controls if label in present),
        patients=tuple(label for label in said.patients if label in present),
        no_guess=said.no_guess and not said.says_all,
    )


def _has_sites(described: Table, options: CohortOptions, model: Preprocessing | None) -> bool:
    """Whether the dataset has the column of sites that a model was trained with."""
    trained_with = None if model is None else model.options.site_column
    column = options.site_column or trained_with
    return column is not None and find_column(described.columns, column) is not None


def _with_warnings(cohort: Cohort, training: bool) -> Cohort:
    """Say where controls are few, or of other ages than patients."""
    ages = list(compare_ages(cohort))
    serious = [text for text, is_serious in ages if is_serious]
    notes = (*cohort.notes, *(text for text, is_serious in ages if not is_serious))
    serious += cohort.warnings
    return replace(cohort, notes=notes, warnings=(*warn_of_controls(cohort, training), *serious))


USUAL_ICV = 1_400_000
"""Intracranial volume in mm3 of nobody in particular, where it is not measured yet."""


def check_participants(
    participants: Path | str, options: CohortOptions, model: Preprocessing | None = None
) -> None:
    """Check what can be known of a cohort before there are volumes: groups, columns and measures.

    Parameters
    ----------
    participants, options, model
        As of :func:`read_cohort`.

    Raises
    ------
    DataError
        A table cannot be read, a column is missing, or groups cannot be told apart.
    """
    people = read_rows(Path(participants), own_id_column(participants, options))
    visits = [
        (label, session)
        for label, named in people.visits
        for session in sessions_of(people, label, named)
    ]
    screen = _Screen(filter_visits(visits, options), people.prefix)
    names = screen.visits
    if not names:
        labels = name_some((*options.participant_label, *options.session_label))
        raise NothingMatchedError(
            f'{people.source}: no row for {labels}; correct --participant-label or --session-label'
        )
    text = with_sessions(people, rows_of(people, names), names)
    # The participant level will add the head size, which differs from one to the other.
    sizes = {} if ICV in text else {ICV: [str(USUAL_ICV + n) for n in range(len(text))]}
    known = Table(people.source, text.assign(**sizes))
    groups, lacking = _find_groups(known, options, model)
    column = '' if groups is None else groups.column
    by_name = bool(lacking) and _has_sites(known, options, model)
    choice = choose_options(options, known, model, not by_name)
    require_distinct(choice.options, column)
    read_others(known, {column, *choice.columns.values()}, options.phenotype, names)
    if groups is not None:
        screen.exclude(_of_other_groups(groups))
    _screen_people(screen, known, choice, model)
    if groups is not None and not lacking:
        _require_groups(groups, screen, training=model is None)
    if screen.reasons:
        excluded = [f'{name} ({reason})' for name, reason in screen.reasons.items()]
        LOGGER.warning('The group level will exclude %s', name_some(excluded))


def _start(
    volumes: Volumes, people: Volumes | None, expected: Sequence[Visit], options: CohortOptions
) -> _Screen:
    """Everyone there is anything of; those without volumes or without a row are excluded."""
    listed = [] if people is None else without_rows(people, volumes)
    prefix = max(volumes.prefix, people.prefix if people else '')
    screen = _Screen(filter_visits([*volumes.visits, *expected, *listed], options), prefix)
    screen.exclude(_without_volumes(screen, volumes))
    if people is not None:
        require_ids(volumes, people)
        known = {participant for participant, _ in people.visits}
        screen.exclude(
            {
                name: f'no row in {people.source.name}'
                for name, (participant, _) in screen.visits.items()
                if participant not in known
            }
        )
    return screen


def _without_volumes(screen: _Screen, volumes: Volumes) -> Reasons:
    reason = (
        f'not in {volumes.source}'
        if volumes.source.is_file()
        else 'no regional volumes: the participant level has not run, or has failed (see logs)'
    )
    there = set(volumes.visits)
    return {name: reason for name, visit in screen.visits.items() if visit not in there}


def _describe(volumes: Volumes, people: Volumes | None, screen: _Screen) -> Table:
    """What is known of every visit still in: columns about participants, then those of volumes."""
    still = screen.still()
    own = rows_of(volumes, still)
    if people is None:
        return Table(volumes.source, own)
    known = with_sessions(people, rows_of(people, still), still)
    new = own[[name for name in own if name not in known]]
    return Table(people.source, pd.concat([known, new], axis=1))


def _others(described: Table, volumes: Volumes, people: Volumes | None) -> list[str]:
    """Columns about participants; without a table of them, those of the usual names."""
    if people is None:
        return [name for name in described.columns if letters(name) in PERSON_COLUMNS]
    own = set(volumes.table.columns) - set(people.table.columns)
    columns = [name for name in described.columns if name not in own]
    return [name for name in columns if letters(name) not in DATE_COLUMNS]


def _said(options: CohortOptions) -> GroupLabels:
    return GroupLabels(
        options.group_column, options.control_label, options.patient_label, options.no_guess
    )


def _of_other_groups(groups: Groups) -> Reasons:
    return {
        name: f'{groups.column} is missing'
        if value is None
        else f'{groups.column} is {value}: neither control nor patient'
        for name, value in groups.left_out.items()
    }


def _screen_people(
    screen: _Screen, people: Table, choice: Choice, model: Preprocessing | None
) -> tuple[pd.DataFrame, list[str]]:
    """Covariates, ICV and site of those who have all of them, and what was unified."""
    names = {own: name for name, own in choice.columns.items()}
    hidden = [name for own, name in names.items() if name != own and name in people.columns]
    renamed = people.text.drop(columns=hidden).rename(columns=names)
    if choice.one_site and choice.options.site_column:
        renamed = renamed.assign(**{choice.options.site_column: ONE_SITE})
    known = Table(people.source, renamed).rows(screen.remaining)
    with about(people.source):
        table, notes = _type_people(known, choice.options, model)
    screen.exclude(missing_values(table))
    notes += [] if model is None else _note_ranges(table, model)
    rest = table.loc[screen.remaining]
    screen.exclude(implausible_values(rest, choice.options.icv_column))
    return table, notes


def _type_people(
    known: Table, options: PreprocessingOptions, model: Preprocessing | None
) -> tuple[pd.DataFrame, list[str]]:
    """Columns as numbers and categories; refuse what cannot be meant."""
    text, codes = (model.text_covariates, model.codes) if model else (None, None)
    table = read_person_columns(known, options, text, codes)
    require_numbers(table[list(options.covariates)])
    notes = []
    for name in options.covariates:
        levels = model.levels.get(name, ()) if model else ()
        table[name], note = unify_sex(table[name], levels)
        notes += [note] if note else []
        if name.lower() == 'age':
            require_years(table[name])
    if model is None:
        require_levels(table)
    return table, notes


def _note_ranges(table: pd.DataFrame, model: Preprocessing) -> list[str]:
    """Who lies outside the range of a covariate that a model was trained on."""
    notes = []
    for column, (low, high) in model.ranges.items():
        outside = table.index[~table[column].between(low, high) & table[column].notna()]
        if len(outside):
            listed = name_some(outside, 5)
            notes.append(f'{column} outside the training range {low:.4g}-{high:.4g}: {listed}')
    return notes


def _find_features(
    volumes: Volumes,
    screen: _Screen,
    others: Collection[str],
    options: CohortOptions,
    model: Preprocessing | None,
) -> tuple[FeatureList, list[str]]:
    """The features, and what is not among them in words."""
    if model is not None:
        unused = unused_columns(volumes.table, model.features, others)
        return model.features, [f'Columns not used: {name_some(unused)}'] if unused else []
    if options.features is not None:
        return listed_features(options.features), []
    table = Table(volumes.source, rows_of(volumes, screen.still()))
    wanted, notes = choose_features(table, others)
    features = pd.DataFrame({name: table.numbers(name) for name in wanted.names})
    refuse_negative(features, str(volumes.source))
    unusable = unusable_regions(features)
    kept = [name for name in wanted.names if name not in unusable]
    if len(kept) < FEWEST_FEATURES:
        raise DataError(
            f'{volumes.source}: {len(kept)} regions can be used, {FEWEST_FEATURES} are needed'
            + ''.join(f'; {name}: {why}' for name, why in list(unusable.items())[:3])
        )
    notes += [f'{volumes.names.get(n, n)}: not used, {why}' for n, why in unusable.items()]
    return column_features(kept), notes


def _screen_features(
    screen: _Screen,
    volumes: Volumes,
    wanted: FeatureList,
    choice: Choice,
    people: pd.DataFrame,
    model: Preprocessing | None,
) -> pd.DataFrame:
    """Volumes that may be true; who lacks one is excluded, unless they are to be imputed."""
    table = Table(volumes.source, rows_of(volumes, screen.still()))
    refuse_separators(table, [name for name in table.columns if name not in people])
    features = read_features(table, wanted)
    proportion = model is not None and choice.options.icv == 'proportion'
    expected = expected_volumes(wanted, model)
    if not volumes.source.is_file():
        # Nobody can correct what the participant level has measured, in mm3.
        screen.exclude(far_volumes(features.rename(columns=volumes.names)))
        expected = expected[[]] if model is None else expected
    if not proportion:
        unit = 'the unit of the table that the model was trained on'
        if (model.features if model else wanted).unit == VOLUME_UNIT:
            unit = VOLUME_UNIT
        check_volumes(features.loc[screen.remaining], expected, str(volumes.source), unit)
    if model is not None:
        with about(volumes.source):
            still = screen.remaining
            refuse_other_codes(people.loc[still], model, features.loc[still])
    if choice.options.icv_column and choice.options.uses_icv:
        usual = usual_head_size(choice.options.icv_column, wanted, model)
        with about(volumes.source):
            check_head_size(people.loc[screen.remaining, choice.options.icv_column], usual)
    empty = features.where(features.notna(), 1.0) if choice.options.impute else features
    screen.exclude(empty_regions(empty.rename(columns=volumes.names)))
    return features


def _outlying(features: pd.DataFrame, groups: Groups) -> Reasons:
    complete = features.dropna()
    return outlying_volumes(complete, groups.is_patient[complete.index])


def _screen_sites(
    screen: _Screen,
    table: pd.DataFrame,
    groups: Groups | None,
    choice: Choice,
    model: Preprocessing | None,
) -> Choice:
    """Exclude sites without controls; with one site left, there is nothing to harmonize."""
    column = choice.options.site_column
    if column is None or groups is None or groups.is_patient[screen.remaining].all():
        return choice
    site = table.loc[screen.remaining, column]
    person = pd.Series([screen.visits[name][0] for name in site.index], site.index)
    teaches = ~person.duplicated() & ~groups.is_patient[site.index]
    if choice.options.combat_fit_on == 'controls':
        screen.exclude(sites_without_controls(site, teaches))
    if model is not None or len(set(site[screen.remaining])) > 1:
        return choice
    note = f'Harmonization: none, since column {column} has one site only'
    return replace(
        choice, options=replace(choice.options, site_column=None), notes=(*choice.notes, note)
    )


def _require_groups(groups: Groups, screen: _Screen, training: bool) -> None:
    """Refuse groups that are too small, and say for which reasons participants are excluded."""
    needed = {CONTROL: FEWEST_PEOPLE, PATIENT: FEWEST_PEOPLE}
    if not training:
        needed = {CONTROL: FEWEST_FOR_SCALE, PATIENT: 0}
    remedy = 'add participants, or correct --control-label and --patient-label'
    if screen.reasons:
        reasons = summarise_reasons(screen.reasons.values())
        remedy = f'{len(screen.reasons)} are excluded: {reasons}'
    labels = groups.labels[screen.remaining]
    for group, least in needed.items():
        people = {screen.visits[name][0] for name in labels.index[labels == group]}
        if len(people) < least:
            raise DataError(
                f'{counted(len(people), SINGULAR[group])} left, but at least {least} are needed; '
                f'{remedy}'
            )


def _describe_visits(screen: _Screen, groups: Groups | None, with_groups: bool) -> pd.DataFrame:
    """Visits with their group, which is missing where it is not known."""
    visits = visit_columns(screen.still().values(), screen.prefix)
    if not with_groups:
        return visits
    labels = pd.Series(dtype=object) if groups is None else groups.labels
    return visits.assign(group=labels.reindex(visits.index))


def _exclusion_table(screen: _Screen) -> pd.DataFrame:
    """Who is excluded and why; columns as in the tables of those who are not."""
    everyone = visit_columns(screen.visits.values(), screen.prefix)
    return everyone.assign(reason=pd.Series(screen.reasons, dtype=object)).dropna(subset='reason')


def _measured(volumes: Volumes, prefix: str) -> pd.DataFrame:
    """Volumes of everyone, excluded or not, with the columns that name visits."""
    visits = visit_columns(volumes.visits, prefix)
    numbers = volumes.table.typed().select_dtypes('number').set_axis(visits.index)
    return pd.concat([visits, numbers], axis=1)
