"""The people of a group analysis, in one order, and as files for the steps that come after."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from surreal_bids.bids.layout import Visit
from surreal_bids.bids.tabular import (
    CONTROL,
    PARTICIPANT,
    PATIENT,
    SESSION,
    Table,
    find_column,
)
from surreal_bids.bids.tabular import names as values_of
from surreal_bids.cohort.exclusions import (
    Screen,
    exclusion_table,
    find_features,
    of_other_groups,
    outlying,
    require_groups,
    screen_features,
    screen_people,
    screen_sites,
    start_screen,
)
from surreal_bids.cohort.features import (
    choose_options,
)
from surreal_bids.cohort.groups import GroupLabels, Groups, find_groups, names_no_controls
from surreal_bids.cohort.plausibility import (
    exchanged_sexes,
)
from surreal_bids.cohort.requirements import (
    PreprocessingOptions,
    Requirements,
    require_distinct,
)
from surreal_bids.cohort.visits import (
    add_years,
    describe_order,
    order_visits,
    warn_of_ages,
)
from surreal_bids.cohort.volumes import (
    ICV,
    Volumes,
    filter_visits,
    own_id_column,
    read_others,
    read_rows,
    rows_of,
    sessions_of,
    visit_columns,
    with_sessions,
)
from surreal_bids.cohort.warnings import (
    NOT_ADAPTED,
    compare_ages,
    outside_training_ages,
    warn_of_controls,
)
from surreal_bids.columns import column_of, describes_participants, means
from surreal_bids.config import CohortOptions, check_config
from surreal_bids.exceptions import NothingMatchedError
from surreal_bids.files import write_json, write_tsv
from surreal_bids.harmonization.empirical_bayes import MIN_FOR_SCALE
from surreal_bids.regions import FeatureList
from surreal_bids.text import counted, list_briefly

LOGGER = logging.getLogger(__name__)


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
        cohorts that were read, `order_by` and `years` (see :mod:`surreal_bids.cohort.visits`).
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
    def has_enough_controls(self) -> bool:
        """Whether there are enough controls for a model to learn their scanners."""
        return self.counts[CONTROL] >= MIN_FOR_SCALE

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
        return [name for name in names if means(name, 'age', 'sex', 'site', 'icv')]

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
    is_place = means(column.name, 'site')
    return column if is_place or numbers.isna().any() else numbers.astype(float)


DEFAULTS = CohortOptions()


def read_cohort(
    volumes: Volumes | Path | str,
    participants: Path | str | None = None,
    options: CohortOptions = DEFAULTS,
    expected: Sequence[Visit] = (),
    model: Requirements | None = None,
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
        What the model to apply requires; None: a model is trained, and the options say what is
        needed.
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
    screen = start_screen(volumes, people, expected, options)
    described = _describe(volumes, people, screen)
    folder = None if people is None else people.source.parent
    times = order_visits(described, screen.remaining_visits(), folder)
    screen.order(times.index)
    described = described.rows(screen.remaining)
    groups, lacking = _find_groups(described, options, model) if with_groups else (None, '')
    if groups is not None:
        screen.exclude(of_other_groups(groups))
    teachers = None if lacking else groups
    if teachers is not None:
        require_groups(teachers, screen, training=model is None)
    by_name = bool(lacking) and _has_sites(described, options, model)
    choice = choose_options(options, described, model, adapt and not by_name)
    require_distinct(choice.options, groups.column if groups else '')
    table, unified = screen_people(screen, described, choice, model)
    used = {*choice.columns.values()} | ({groups.column} if groups else set())
    own = used | set(people.table.columns if people else ())
    wanted, dropped = find_features(volumes, screen, own, options, model)
    features = screen_features(screen, volumes, wanted, choice, table, model)
    if teachers is not None:
        screen.exclude(outlying(features.loc[screen.remaining], teachers))
    choice = screen_sites(screen, table, teachers, choice, model)
    names = screen.remaining
    others = Table(described.source, described.text[_others(described, volumes, people)])
    visits = add_years(_describe_visits(screen, groups, with_groups), times)
    notes = [f'Groups: {groups.describe()}'] if groups else []
    if teachers is not None:
        require_groups(teachers, screen, training=model is None)
    ordered = describe_order(visits, described, learns=adapt and not lacking)
    cohort = Cohort(
        visits,
        features.loc[names],
        table.loc[names, choice.options.columns],
        read_others(others, used, options.phenotype, screen.remaining_visits()),
        wanted,
        choice.options,
        (*notes, *choice.notes, *unified, *ordered, *dropped),
        exclusion_table(screen),
        _measured(volumes, screen.prefix),
    )
    doubts = _doubts(cohort, model)
    if lacking:
        doubts = (f'{NOT_ADAPTED} ({lacking})', *doubts)
    cohort = replace(cohort, warnings=doubts)
    return cohort if teachers is None else _with_warnings(cohort, training=model is None)


def _doubts(cohort: Cohort, model: Requirements | None) -> tuple[str, ...]:
    """What about sexes and ages may be wrong, or is beyond what a model knows."""
    options = cohort.options
    column = options.icv_column if options.uses_icv else None
    size = cohort.features.sum(axis=1) if column is None else cohort.people[column]
    first = cohort.first_visits()
    outside = () if model is None else outside_training_ages(first.people, model.ranges)
    return (
        *exchanged_sexes(cohort.people, size),
        *warn_of_ages(cohort.visits, cohort.people),
        *outside,
    )


def _find_groups(
    described: Table, options: CohortOptions, model: Requirements | None
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
    lacking = f'{counted(len(people), "control")}, at least {MIN_FOR_SCALE} are needed'
    return groups, lacking if len(people) < MIN_FOR_SCALE else ''


def _of_selected(said: GroupLabels, described: Table, options: CohortOptions) -> GroupLabels:
    """What was said of groups; of a selection of participants, what is there of it."""
    column = said.column or column_of(described.columns, 'diagnosis')
    if not options.participant_label or column is None or column not in described.columns:
        return said
    present = set(values_of(described, column))
    return replace(
        said,
        controls=tuple(label for label in said.controls if label in present),
        patients=tuple(label for label in said.patients if label in present),
        no_guess=said.no_guess and not said.says_all,
    )


def _has_sites(described: Table, options: CohortOptions, model: Requirements | None) -> bool:
    """Whether the dataset has the column of sites that a model was trained with."""
    trained_with = None if model is None else model.options.site_column
    column = options.site_column or trained_with
    return column is not None and find_column(described.columns, column) is not None


def _with_warnings(cohort: Cohort, training: bool) -> Cohort:
    """Say where controls are few, or of other ages than patients."""
    first = cohort.first_visits()
    covariates, _ = first.covariates_and_measures()
    ages = list(compare_ages(covariates, first.is_patient))
    serious = [text for text, is_serious in ages if is_serious]
    notes = (*cohort.notes, *(text for text, is_serious in ages if not is_serious))
    serious += cohort.warnings
    controls = first.people[~first.is_patient]
    few = warn_of_controls(controls, cohort.options.site_column, training)
    return replace(cohort, notes=notes, warnings=(*few, *serious))


USUAL_ICV = 1_400_000
"""Intracranial volume in mm3 of nobody in particular, where it is not measured yet."""


def check_participants(
    participants: Path | str, options: CohortOptions, model: Requirements | None = None
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
    screen = Screen(filter_visits(visits, options), people.prefix)
    names = screen.visits
    if not names:
        labels = list_briefly((*options.participant_label, *options.session_label))
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
        screen.exclude(of_other_groups(groups))
    screen_people(screen, known, choice, model)
    if groups is not None and not lacking:
        require_groups(groups, screen, training=model is None)
    if screen.reasons:
        excluded = [f'{name} ({reason})' for name, reason in screen.reasons.items()]
        LOGGER.warning('The group level will exclude %s', list_briefly(excluded))


def _describe(volumes: Volumes, people: Volumes | None, screen: Screen) -> Table:
    """What is known of every visit still in: columns about participants, then those of volumes."""
    remaining_visits = screen.remaining_visits()
    own = rows_of(volumes, remaining_visits)
    if people is None:
        return Table(volumes.source, own)
    known = with_sessions(people, rows_of(people, remaining_visits), remaining_visits)
    new = own[[name for name in own if name not in known]]
    return Table(people.source, pd.concat([known, new], axis=1))


def _others(described: Table, volumes: Volumes, people: Volumes | None) -> list[str]:
    """Find the columns about participants, dates excluded; by their names if need be."""
    of_volumes = set(volumes.table.columns) - set(people.table.columns if people else ())
    return [
        name
        for name in described.columns
        if not means(name, 'date')
        and (name not in of_volumes or (people is None and describes_participants(name)))
    ]


def _said(options: CohortOptions) -> GroupLabels:
    return GroupLabels(
        options.group_column, options.control_label, options.patient_label, options.no_guess
    )


def _describe_visits(screen: Screen, groups: Groups | None, with_groups: bool) -> pd.DataFrame:
    """Visits with their group, which is missing where it is not known."""
    visits = visit_columns(screen.remaining_visits().values(), screen.prefix)
    if not with_groups:
        return visits
    labels = pd.Series(dtype=object) if groups is None else groups.labels
    return visits.assign(group=labels.reindex(visits.index))


def _measured(volumes: Volumes, prefix: str) -> pd.DataFrame:
    """Volumes of everyone, excluded or not, with the columns that name visits."""
    visits = visit_columns(volumes.visits, prefix)
    numbers = volumes.table.typed().select_dtypes('number').set_axis(visits.index)
    return pd.concat([visits, numbers], axis=1)
