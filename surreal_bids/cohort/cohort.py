"""The participants of an analysis: read, screened, and stored as files for later steps."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from surreal_bids.bids.tabular import Table, find_column
from surreal_bids.cautions import CHECK_LIST, GROUP_SECTIONS, Caution, log_cautions
from surreal_bids.cohort.consistency import contradicting_visits
from surreal_bids.cohort.exclusions import (
    Screen,
    exclude_by_hand,
    exclusion_table,
    find_features,
    outlying,
    require_known,
    require_labels,
    screen_features,
    screen_people,
    screen_sites,
    start_screen,
)
from surreal_bids.cohort.facts import disagreeing_columns, doubtful_numbers, exchanged_sexes
from surreal_bids.cohort.features import Choice, choose_options
from surreal_bids.cohort.grouping import (
    compared_groups,
    divide_people,
    exclude_other_groups,
    require_groups,
    visits_with_groups,
)
from surreal_bids.cohort.groups import (
    Grouping,
    GroupUse,
)
from surreal_bids.cohort.joined import (
    Tables,
    describe_visits,
    measured_volumes,
    read_tables,
    screen_rows,
)
from surreal_bids.cohort.plausibility import require_people
from surreal_bids.cohort.reader import (
    VISIT,
    VisitTable,
    of_sessions,
    own_id_column,
    read_exact,
    read_others,
    read_visit_table,
    rows_of,
    sessions_of,
    with_sessions,
)
from surreal_bids.cohort.requirements import (
    PreprocessingOptions,
    Requirements,
    refuse_id_columns,
    require_distinct,
)
from surreal_bids.cohort.retest import SHARED, read_retest
from surreal_bids.cohort.uses import FRAME, uses_of_columns
from surreal_bids.cohort.visits import (
    add_years,
    describe_order,
    order_visits,
    warn_of_ages,
    warn_of_order,
)
from surreal_bids.cohort.volumes import ICV
from surreal_bids.cohort.warnings import (
    compare_ages,
    not_adapted,
    not_corrected_for_age,
    outside_training_range,
    warn_of_controls,
)
from surreal_bids.columns import Meaning, column_of, describes_participants, means
from surreal_bids.config import CohortOptions, check_config
from surreal_bids.files import write_json, write_tsv
from surreal_bids.harmonization.empirical_bayes import MIN_FOR_SCALE
from surreal_bids.names import CONTROL, PARTICIPANT, PATIENT, SESSION, Visit, without_prefix
from surreal_bids.regions import FeatureList
from surreal_bids.text import list_briefly

LOGGER = logging.getLogger(__name__)


FRAMES = ('visits', 'features', 'people', 'others')
RECORD = 'cohort.json'


@dataclass(frozen=True, eq=False)
class Cohort:
    """All included participants, one row per visit; all frames have the same rows.

    Attributes
    ----------
    visits : frame
        `participant_id`, `session_id` if there are sessions, `group` (CN or PT; missing where it
        is not known and a model is applied), and `is_first`, which marks the first visit of each
        participant: models learn from first visits only. Cohorts that were read also have
        `order_by` and `years` (see :mod:`surreal_bids.cohort.visits`).
    features : frame of shape (n_visits, n_features)
        Volumes as measured.
    people : frame of shape (n_visits, n_columns)
        Covariates, ICV and site.
    others : frame of shape (n_visits, n_others)
        Other facts about participants, such as clinical measures, as text.
    wanted, options
        Names of the features, and how they are preprocessed.
    notes
        Decisions made while reading, as sentences for the report.
    exclusions : frame
        `participant_id`, `session_id` if there are sessions, and `reason` of excluded visits.
    measured : frame
        Volumes of everyone, excluded or not, after the columns that identify visits.
    warnings
        Reasons to doubt the results, such as few controls.
    n_controls
        Number of controls that were read; None: those in `visits`.
    uses : frame
        What each column of the tables was taken for: `table`, `column`, `taken_for` and `why`.
    retest : frame
        Noise of measurement from the user's repeated scans (`read_retest`); empty: there are none.
    apart
        Participants of other groups, whose labels are in `visits`. They are scored by the final
        model and have no part in anything that is learned; None: there are none.
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
    warnings: tuple[Caution, ...] = ()
    n_controls: int | None = None
    uses: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(FRAME)))
    retest: pd.DataFrame = field(default_factory=pd.DataFrame)
    apart: Cohort | None = None

    @classmethod
    def read(
        cls, volumes: Path | str, participants: Path | str | None = None, **options: Any
    ) -> Cohort:
        """Read tables of volumes and participants, join and screen them.

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
    def groups(self) -> pd.Series:
        """Group of each visit; missing where it is not known, and if groups were ignored."""
        return self.visits.get('group', pd.Series(None, self.visits.index, dtype=object))

    @property
    def is_patient(self) -> pd.Series:
        """Whether each visit is of a patient: booleans (n_visits,)."""
        return self.groups == PATIENT

    @property
    def retest_pairs(self) -> int:
        """Number of pairs of the user's repeated scans; 0: there are none."""
        return 0 if self.retest.empty else int(self.retest['df'][SHARED])

    @property
    def has_enough_controls(self) -> bool:
        """Whether the cohort was read with enough controls for a model to learn their sites."""
        n_controls = self.counts[CONTROL] if self.n_controls is None else self.n_controls
        return n_controls >= MIN_FOR_SCALE

    @property
    def has_all_controls(self) -> bool:
        """Whether the cohort holds all controls that it was read with."""
        return self.n_controls in (None, self.counts[CONTROL])

    @property
    def counts(self) -> dict[str, int]:
        """Number of participants in each group."""
        first = self.groups[self.visits['is_first']]
        return {group: int((first == group).sum()) for group in (CONTROL, PATIENT)}

    @property
    def n_without_group(self) -> int:
        """Number of participants without a known group."""
        return int(self.groups[self.visits['is_first']].isna().sum())

    def select(self, chosen: pd.Series | Sequence[bool]) -> Cohort:
        """Keep some of the visits."""
        rows = np.asarray(chosen, dtype=bool)
        frames = {name: getattr(self, name)[rows] for name in FRAMES}
        return replace(self, n_controls=None, **frames)

    def first_visits(self) -> Cohort:
        """Keep the first visit of each participant."""
        return self.select(self.visits['is_first'])

    def of_participants(self, labels: Sequence[str]) -> Cohort:
        """Keep the participants with these labels, with or without `sub-`; no label: everyone."""
        if not labels:
            return self
        wanted = {without_prefix(label, 'sub') for label in labels}
        excluded = self.exclusions[_are_labelled(self.exclusions, wanted)]
        chosen = _are_labelled(self.visits, wanted)
        require_people(self.visits.index[chosen], dict(zip(excluded.index, excluded['reason'])))
        return replace(
            self.select(chosen),
            exclusions=excluded,
            measured=self.measured[_are_labelled(self.measured, wanted)],
            n_controls=self.n_controls,
        )

    def column_of(self, meaning: Meaning) -> pd.Series | None:
        """Return the covariate with a meaning, else another column with it; None without one."""
        for table in (self.people, self.others):
            column = column_of(table, meaning)
            if column is not None:
                return table[column]
        return None

    @property
    def ages(self) -> pd.Series:
        """Age of each visit; missing where it is not known, or no number."""
        age = self.column_of('age')
        unknown = pd.Series(np.nan, self.visits.index)
        return unknown if age is None else pd.to_numeric(age, errors='coerce')

    def covariates_and_measures(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Divide the facts about visits into covariates and other measures.

        Age, sex, head size and site are covariates even if preprocessing does not use them.
        Numeric covariates have a numeric type; sites are text, even if they are called 1 and 2.
        """
        unused = self._unused_covariates()
        complete = [name for name in unused if name not in self.incomplete_covariates()]
        typed = {name: _as_covariate(self.others[name]) for name in complete}
        return self.people.assign(**typed), self.others.drop(columns=unused)

    def incomplete_covariates(self) -> list[str]:
        """Covariates that preprocessing does not use and that some participants lack."""
        return [name for name in self._unused_covariates() if self.others[name].isna().any()]

    def _unused_covariates(self) -> list[str]:
        names = map(str, self.others)
        return [name for name in names if means(name, 'age', 'sex', 'site', 'icv')]

    def fingerprint(self, *more: Any) -> str:
        """Compute a short hash of the cohort and of further values that results depend on."""
        digest = hashlib.sha256(json.dumps(more, sort_keys=True, default=str).encode())
        digest.update(json.dumps(self.record(), sort_keys=True).encode())
        for name in FRAMES:
            digest.update(getattr(self, name).to_csv(sep='\t').encode())
        return digest.hexdigest()[:12]

    def record(self) -> dict[str, Any]:
        """Return everything that is not a frame, as plain JSON values."""
        text = [n for n in self.people if not pd.api.types.is_numeric_dtype(self.people[n])]
        return {
            'wanted': self.wanted.to_json(),
            'options': self.options.to_json(),
            'notes': list(self.notes),
            'warnings': list(self.warnings),
            'text': text,
            'n_controls': self.n_controls,
        }

    def save(self, folder: Path) -> Path:
        """Write the cohort; the record is written last and marks a complete folder."""
        for name in (*FRAMES, 'exclusions', 'measured', 'uses', 'retest'):
            table = getattr(self, name).copy().rename_axis(VISIT).reset_index()
            write_tsv(folder / f'{name}.tsv', table)
        write_json(folder / RECORD, self.record())
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Cohort:
        """Read what `save` wrote, exact to the last digit."""
        folder = Path(folder)
        record = json.loads((folder / RECORD).read_text(encoding='utf-8'))
        text = dict.fromkeys(('visits', 'others', 'exclusions', 'uses'), None)
        text |= {'people': record['text'], 'measured': (PARTICIPANT, SESSION)}
        text |= {'features': (), 'retest': ()}
        frames = {name: read_exact(folder / f'{name}.tsv', each) for name, each in text.items()}
        frames |= {'visits': _typed_visits(frames['visits']), 'uses': frames['uses'].fillna('')}
        return cls.from_record(record, frames)

    @classmethod
    def from_record(cls, record: Mapping[str, Any], frames: Mapping[str, Any]) -> Cohort:
        """Make a cohort of its frames and of what `record` returned."""
        return cls(
            wanted=FeatureList.from_json(record['wanted']),
            options=PreprocessingOptions.from_json(record['options']),
            notes=tuple(record['notes']),
            warnings=tuple(Caution(*each) for each in record['warnings']),
            n_controls=record['n_controls'],
            **frames,
        )


def _are_labelled(table: pd.DataFrame, labels: Collection[str]) -> pd.Series:
    """Check whether each row belongs to one of these participants."""
    return table[PARTICIPANT].map(lambda name: without_prefix(name, 'sub')).isin(labels)


def _typed_visits(visits: pd.DataFrame) -> pd.DataFrame:
    """Restore the types of visits that were written as text."""
    years = {'years': visits['years'].astype(np.float64)} if 'years' in visits else {}
    return visits.assign(is_first=visits['is_first'] == 'True', **years)


def _as_covariate(column: pd.Series) -> pd.Series:
    """Convert a covariate to numbers if all values are numbers, unless they name sites."""
    numbers = pd.to_numeric(column, errors='coerce')
    return column if means(column.name, 'site') or numbers.isna().any() else numbers.astype(float)


DEFAULTS = CohortOptions()


def read_cohort(
    volumes: VisitTable | Path | str,
    participants: Path | str | None = None,
    options: CohortOptions = DEFAULTS,
    expected: Sequence[Visit] = (),
    model: Requirements | None = None,
    groups: GroupUse = 'known',
    adapt: bool = True,
) -> Cohort:
    """Read volumes and facts about participants, and screen them.

    Parameters
    ----------
    volumes
        A table of volumes, or the volumes of the participant level (`collect_volumes`).
    participants
        Table of facts about participants, with `sessions.tsv` files as in BIDS; None: they are in
        the table of volumes. If both tables have a column, this table takes precedence.
    options
        Columns, labels and filters.
    expected
        Visits that should have volumes, since they have an image.
    model
        Requirements of the model to apply; None: a model is trained, and `options` names the
        columns. A model learns sites from all controls, so the cohort then holds everyone;
        :meth:`Cohort.of_participants` applies `--participant-label`.
    groups
        `known`: tell controls from patients, as far as a model to apply can do without; `controls`:
        keep controls only, which a model learns from; `compared`: keep everyone, and tell controls
        from patients, where possible, for comparisons only.
    adapt
        Whether the model learns the sites of these participants first.

    Raises
    ------
    DataError
        A table cannot be read or holds impossible values; a column is missing; there are too few
        controls or patients; or everyone is excluded.
    """
    tables = read_tables(volumes, participants, options)
    screen = start_screen(tables.volumes, tables.people, expected, options)
    if model is None or groups == 'compared':
        screen.select(options.participant_label)
    described, times = _describe_in_order(tables, screen)
    refuse_id_columns(options, described, {each.id_column for each in tables if each})
    known = described if model is None else describe_visits(tables, screen.visits)
    grouping = divide_people(known, screen, options, model, groups)
    exclude_other_groups(screen, grouping, training=model is None)
    choice = _choose(options, described, model, grouping, adapt)
    require_known(screen, described, choice, grouping.groups)
    table, unified = screen_people(screen, described, choice, model)
    needed = set(choice.columns.values())
    told = compared_groups(known, needed) if groups == 'compared' else grouping
    used = {*needed, told.column}
    chosen = find_features(tables.volumes, screen, used, tables.people_columns, options, model)
    wanted = chosen.wanted
    features = screen_features(screen, tables.volumes, wanted, choice, table, described, model)
    in_rows = described.rows(tables.in_file_order(screen.remaining_visits()))
    doubts = screen_rows(screen, features, table, in_rows, choice, wanted)
    screen.exclude(outlying(features.loc[screen.remaining], grouping.learned_from, wanted))
    choice = _screen_groups(screen, table, grouping, choice, model)
    visits = add_years(visits_with_groups(screen, told, groups), times)
    ordered = describe_order(visits, learns=adapt and not grouping.lacking)
    columns = _others(described, tables, options.group_column)
    others = replace(described, text=described.text[columns])
    cohort = Cohort(
        visits,
        features.loc[screen.remaining],
        table.loc[screen.remaining, choice.options.columns],
        read_others(others, used, options.phenotype, screen.remaining_visits()),
        wanted,
        choice.options,
        (*told.notes, *choice.notes, *unified, *ordered),
        exclusion_table(screen),
        measured_volumes(tables.volumes, screen.prefix),
        (*chosen.doubts, *doubts, *warn_of_order(visits, described)),
        uses=uses_of_columns(
            [each for each in tables if each], options, described, choice, chosen, told
        ),
    )
    if options.retest is not None:
        noise = read_retest(options.retest, wanted, choice.options, options.id_column)
        cohort = replace(cohort, retest=noise)
    return _with_warnings(cohort, grouping, model)


def _describe_in_order(tables: Tables, screen: Screen) -> tuple[Table, pd.DataFrame]:
    """Return the facts about remaining visits, and their times; order the screen by time."""
    described = describe_visits(tables, screen.remaining_visits())
    folder = None if tables.people is None else tables.people.source.parent
    times = order_visits(described, screen.remaining_visits(), folder)
    screen.order(times.index)
    screen.exclude(contradicting_visits(described, screen.remaining_visits(), times))
    return described.rows(screen.remaining), times


def _choose(
    options: CohortOptions,
    known: Table,
    model: Requirements | None,
    grouping: Grouping,
    adapt: bool = True,
) -> Choice:
    """Choose columns; a model that cannot learn sites uses the sites that it was trained with."""
    trained_with = None if model is None else model.options.site_column
    column = options.site_column or trained_with
    has_sites = column is not None and find_column(known.columns, column) is not None
    choice = choose_options(options, known, model, adapt and not (grouping.lacking and has_sites))
    require_distinct(choice.options, grouping.column)
    return choice


def _screen_groups(
    screen: Screen,
    table: pd.DataFrame,
    grouping: Grouping,
    choice: Choice,
    model: Requirements | None,
) -> Choice:
    """Exclude sites without controls; require enough participants."""
    groups = grouping.learned_from
    if groups is None:
        return choice
    choice = screen_sites(screen, table, groups, choice, model)
    require_groups(groups, screen, training=model is None)
    return choice


def ignores_age(cohort: Cohort) -> bool:
    """Tell whether neither covariates nor z-scores allow for age, as in a model of ageing."""
    return not (_has_age(cohort) or cohort.wanted.are_z_scores)


def _has_age(cohort: Cohort) -> bool:
    return any(means(name, 'age') for name in cohort.options.covariates)


def _with_warnings(cohort: Cohort, grouping: Grouping, model: Requirements | None) -> Cohort:
    """Add warnings about few controls, and about ages and sexes that may be wrong."""
    few = [not_adapted(grouping.lacking)] if grouping.lacking else []
    compared = list[tuple[Caution, bool]]()
    if grouping.learned_from is not None:
        first = cohort.first_visits()
        controls = first.people[~first.is_patient]
        few += warn_of_controls(controls, cohort.options.site_column, training=model is None)
        compared += _ages_of_groups(first, model)
    if model is not None:
        who = cohort.visits[PARTICIPANT]
        compared += outside_training_range(cohort.people, who, model.ranges)
    ages = [each for each, is_serious in compared if is_serious]
    minor = [each.statement.removesuffix('.') for each, is_serious in compared if not is_serious]
    warnings = (*few, *ages, *cohort.warnings, *_doubts(cohort))
    notes = (*cohort.notes, *minor)
    return replace(cohort, notes=notes, warnings=warnings, n_controls=cohort.counts[CONTROL])


def _ages_of_groups(first: Cohort, model: Requirements | None) -> Iterator[tuple[Caution, bool]]:
    """Compare the ages of patients and controls; warn of a model that ignores those of controls."""
    age = first.column_of('age')
    if model is not None and ignores_age(first):
        yield not_corrected_for_age(None if age is None else age[~first.is_patient]), True
    if age is not None and (model is None or _has_age(first)):
        yield from compare_ages(age, first.is_patient)


def _doubts(cohort: Cohort) -> Iterator[Caution]:
    """Warn of ages and sexes that may be wrong."""
    options = cohort.options
    column = options.icv_column if options.uses_icv else None
    size = cohort.features.sum(axis=1) if column is None else cohort.people[column]
    if column is not None or not cohort.wanted.are_z_scores:
        yield from exchanged_sexes(cohort.people, size)
    yield from warn_of_ages(cohort.visits, cohort.people)
    first = cohort.first_visits()
    yield from doubtful_numbers(first.people)
    yield from disagreeing_columns(first.people, first.others)


def with_logged(cohort: Cohort) -> Cohort:
    """Add what was logged about these participants since they were read, for the report."""
    logged = [each for each in CHECK_LIST.cautions if each.about in GROUP_SECTIONS]
    return replace(cohort, warnings=tuple(dict.fromkeys((*cohort.warnings, *logged))))


USUAL_ICV = 1_400_000
"""Intracranial volume in mm3 that stands in for one that has not been measured yet."""


def check_participants(
    participants: Path | str, options: CohortOptions, model: Requirements | None = None
) -> dict[str, int]:
    """Check groups, columns and measures of a cohort before there are volumes.

    Parameters
    ----------
    participants, options, model
        As of :func:`read_cohort`.

    Returns
    -------
    dict
        Number of participants in each group; empty where groups are not known.

    Raises
    ------
    DataError
        A table cannot be read, a column is missing, or groups cannot be told apart.
    """
    people = read_visit_table(
        Path(participants), own_id_column(Path(participants), options.id_column)
    )
    visits = _expected_visits(people)
    require_labels(visits, options.participant_label)
    screen = Screen(of_sessions(visits, options.session_label), people.prefix)
    everyone = screen.visits
    by_hand = exclude_by_hand(screen, options, visits, knows_sessions=False)
    if model is None:
        screen.select(options.participant_label)
    known = _with_head_sizes(people, everyone)
    refuse_id_columns(options, known, {people.id_column})
    times = order_visits(known, screen.visits, people.source.parent)
    screen.exclude(contradicting_visits(known, screen.visits, times))
    grouping = divide_people(known, screen, options, model)
    choice = _choose(options, known, model, grouping)
    read_others(known, {grouping.column, *choice.columns.values()}, options.phenotype, everyone)
    exclude_other_groups(screen, grouping, training=model is None)
    require_known(screen, known, choice, grouping.groups)
    screen_people(screen, known, choice, model)
    if grouping.learned_from is not None:
        require_groups(grouping.learned_from, screen, training=model is None)
    screen.order(times.index)
    remaining = add_years(visits_with_groups(screen, grouping, 'known'), times)
    log_cautions(warn_of_order(remaining, known))
    _warn_of_exclusions(screen, by_hand)
    return screen.counts(grouping.groups)


def _expected_visits(people: VisitTable) -> list[Visit]:
    """List the visits of all participants, also those that only a table of sessions names."""
    return [
        (label, session)
        for label, named in people.visits
        for session in sessions_of(people, label, named)
    ]


def _with_head_sizes(people: VisitTable, visits: Mapping[str, Visit]) -> Table:
    """Describe visits, with stand-ins for the head sizes that the participant level will add."""
    text = with_sessions(people, rows_of(people, visits), visits)
    if ICV not in text:  # Head sizes differ between participants.
        text = text.assign(**{ICV: [str(USUAL_ICV + n) for n in range(len(text))]})
    return Table(people.source, text)


def _warn_of_exclusions(screen: Screen, by_hand: Collection[str]) -> None:
    """Warn of visits that will be excluded, except those that the user has listed."""
    unforeseen = [f'{name} ({why})' for name, why in screen.reasons.items() if name not in by_hand]
    if unforeseen:
        found = f'The group level will exclude {list_briefly(unforeseen)}'
        LOGGER.warning(Caution(found, 'They get no R-indices', 'Complete or correct the tables'))


def _others(described: Table, tables: Tables, group_column: str | None) -> list[str]:
    """Find the columns about participants, except dates."""
    own = set(tables.volumes.table.columns) - tables.people_columns
    has_people = tables.people is not None
    return [
        name
        for name in described.columns
        if name == group_column
        or (
            not means(name, 'date')
            and (name not in own if has_people else describes_participants(name))
        )
    ]
