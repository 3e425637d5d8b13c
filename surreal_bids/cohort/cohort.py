"""The participants of an analysis: read, checked, and stored as files for later steps."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from surreal_bids.cautions import (
    CHECK_LIST,
    GROUP_SECTIONS,
    HARMONIZATION,
    PARTICIPANTS,
    Caution,
    log_cautions,
)
from surreal_bids.cohort.checks import (
    Reasons,
    Study,
    missing_codes,
    require_groups,
    run_checks,
    summarise_reasons,
)
from surreal_bids.cohort.requirements import (
    PreprocessingOptions,
    Requirements,
    read_person_columns,
)
from surreal_bids.cohort.roles import (
    FRAME,
    Columns,
    Features,
    Groups,
    GroupUse,
    choose_columns,
    choose_features,
    describe_corrections,
    find_groups,
    lacks_controls,
    listed_features,
    read_features,
    uses_of_columns,
)
from surreal_bids.cohort.visits import (
    add_years,
    describe_order,
    in_order,
    of_sessions,
    order_visits,
    visit_columns,
    warn_of_visits,
)
from surreal_bids.config import CohortOptions, check_config
from surreal_bids.exceptions import DataError, NothingMatchedError
from surreal_bids.files import write_json, write_tsv
from surreal_bids.harmonization.empirical_bayes import MIN_FOR_SCALE
from surreal_bids.model.networks import MIN_FEATURES
from surreal_bids.names import (
    CONTROL,
    GROUP_NAMES,
    PARTICIPANT,
    PATIENT,
    SESSION,
    Role,
    Visit,
    column_of,
    means,
    role_of,
    sex_of,
    visit_name,
    without_prefix,
)
from surreal_bids.regions import Z_SCORE, FeatureList, muse_index
from surreal_bids.tables import (
    Table,
    VisitTable,
    find_column,
    read_exclusions,
    read_sessions,
    read_visit_table,
    to_numbers,
    with_sessions,
)
from surreal_bids.text import alternatives, counted, list_briefly

ONE_SITE = 'everyone'
"""Name of the site of all participants in a dataset without a site column."""

FRAMES = ('visits', 'features', 'people', 'others')
RECORD, APART = 'cohort.json', 'other_groups'

VISIT = 'name of the visit'
"""Column of our own files that names a visit: `sub-01` or `sub-01_ses-2`."""


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
    def has_enough_controls(self) -> bool:
        """Whether the cohort was read with enough controls for a model to learn their sites."""
        n_controls = self.counts[CONTROL] if self.n_controls is None else self.n_controls
        return n_controls >= MIN_FOR_SCALE

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
        if not chosen.any():
            raise _all_excluded(dict(zip(excluded.index, excluded['reason'])))
        apart = self.apart
        if apart is not None:
            apart = apart.select(_are_labelled(apart.visits, wanted))
        return replace(
            self.select(chosen),
            apart=apart if apart is not None and len(apart) else None,
            exclusions=excluded,
            measured=self.measured[_are_labelled(self.measured, wanted)],
            n_controls=self.n_controls,
        )

    def column_of(self, role: Role) -> pd.Series | None:
        """Return the covariate with a role, else another column with it; None without one."""
        for table in (self.people, self.others):
            column = column_of(table, role)
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
            'apart': None if self.apart is None else self.apart.fingerprint(),
        }

    def save(self, folder: Path) -> Path:
        """Write the cohort; the record is written last and marks a complete folder."""
        if self.apart is not None:
            self.apart.save(folder / APART)
        for name in (*FRAMES, 'exclusions', 'measured', 'uses'):
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
        text |= {'features': ()}
        frames = {name: _read_exact(folder / f'{name}.tsv', each) for name, each in text.items()}
        frames |= {'visits': _typed_visits(frames['visits']), 'uses': frames['uses'].fillna('')}
        apart = cls.load(folder / APART) if record['apart'] else None
        return replace(cls.from_record(record, frames), apart=apart)

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


def _read_exact(path: Path, text: Sequence[str] | None = ()) -> pd.DataFrame:
    """Read a table that :meth:`Cohort.save` wrote, exact to the last digit.

    The names of visits become the index. Columns in `text` stay text (None: all); others are
    numbers if all their values are.
    """
    table = pd.read_csv(path, sep='\t', dtype=str, na_values=['n/a'], keep_default_na=False)
    table = table.set_index(VISIT).rename_axis(None)
    columns = {name: table[name] for name in table}
    for name in [] if text is None else [name for name in table if name not in text]:
        numbers = to_numbers(table[name])
        columns[name] = numbers if numbers.count() == table[name].count() else table[name]
    return pd.DataFrame(columns, index=table.index)


DEFAULTS = CohortOptions()


def read_cohort(
    volumes: VisitTable | Path | str | None,
    participants: Path | str | None = None,
    options: CohortOptions = DEFAULTS,
    expected: Sequence[Visit] = (),
    model: Requirements | None = None,
    groups: GroupUse = 'known',
    adapt: bool = True,
) -> Cohort:
    """Read volumes and facts about participants, and check them.

    Parameters
    ----------
    volumes
        A table of volumes, or the volumes of the participant level (`collect_volumes`); None: they
        are not measured yet, and all else is checked.
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
        controls or patients; or everyone is excluded. All that stops is listed, one per line.
    """
    tables = _read_tables(volumes, participants, options)
    if volumes is None:
        options, model = _before_volumes(tables.people, options, model)
    visits, reasons = _list_visits(tables, expected, options)
    known = _describe(tables, visits)
    times = order_visits(
        known.text.drop(index=list(reasons)), _without(visits, reasons), tables.folder
    )
    problems: list[str] = []
    with _collected(problems):
        divided = _divide(known if model else known.rows(list(times.index)), options, groups, model)
    if problems:
        divided = Groups(pd.Series(None, times.index, dtype=object), lacking=problems[0])
    if model is None or groups == 'compared':
        visits, reasons = _of_labels(visits, reasons, options.participant_label)
    learned = groups != 'compared' and not divided.lacking
    reasons = {**_without_group(divided, visits, groups, learned), **reasons}
    _require_people(visits, reasons)
    described = known.rows([n for n in times.index if n in visits and n not in reasons])
    reading = _Reading(tables, described, visits, options, model, divided)
    table = reading.volumes()
    features = Features(FeatureList('columns', (), ''))
    values = pd.DataFrame(index=described.text.index)
    with _collected(problems):
        features = reading.find_features(table)
        if volumes is not None:
            values = read_features(table, features.wanted)
    with _collected(problems):
        columns = reading.choose_columns(adapt, features.wanted)
        people = reading.read_people(columns)
    if problems:
        raise DataError('\n'.join(dict.fromkeys(problems)))
    wanted = _as_given(features.wanted, values, columns.options, model)
    who = pd.Series({name: visits[name][0] for name in described.text.index}, dtype=object)
    study = Study(
        values,
        people,
        who,
        divided.labels.reindex(who.index) if learned else pd.Series(None, who.index, dtype=object),
        wanted,
        columns.options,
        model,
        None if tables.measured is None else tables.measured.names,
    )
    left, excluded, cautions = run_checks(study, tables.sources)
    reasons |= excluded
    if learned:
        _require_both(study.group, options, model is None and groups == 'known')
        require_groups(study.group, who, excluded, reasons, model is None, groups == 'known')
    _require_people(visits, reasons)
    return _assemble(reading, left, columns, features, reasons, times, groups, adapt, cautions)


class _Tables(NamedTuple):
    """The table of volumes, if they are measured, and that of participants, or the same."""

    measured: VisitTable | None
    people: VisitTable

    @property
    def alone(self) -> bool:
        return self.measured is self.people

    @property
    def folder(self) -> Path | None:
        return None if self.alone else self.people.source.parent

    @property
    def sources(self) -> str:
        named = [each.source for each in (self.measured, self.people) if each is not None]
        return ', '.join(dict.fromkeys(map(str, named)))


def _read_tables(
    volumes: VisitTable | Path | str | None, participants: Path | str | None, options: CohortOptions
) -> _Tables:
    measured = volumes if isinstance(volumes, VisitTable) else None
    if isinstance(volumes, (str, Path)):
        measured = read_visit_table(Path(volumes), options.id_column)
    if participants is None:
        if measured is None:
            raise TypeError('a table of volumes or of participants is needed')
        return _Tables(measured, measured)
    people = read_visit_table(Path(participants), options.id_column, named=measured is None)
    return _Tables(measured, people)


def _before_volumes(
    people: VisitTable, options: CohortOptions, model: Requirements | None
) -> tuple[CohortOptions, Requirements | None]:
    """Do without the head size, which the participant level will measure."""
    if column_of(people.table.columns, 'icv') is not None:
        return options, model
    if model is None:
        return replace(options, icv='none', icv_column=None), None
    return options, replace(model, options=replace(model.options, icv='none', icv_column=None))


@contextmanager
def _collected(problems: list[str]) -> Iterator[None]:
    """Collect what stops, to report it together."""
    try:
        yield
    except DataError as error:
        problems.append(str(error))


def _list_visits(
    tables: _Tables, expected: Sequence[Visit], options: CohortOptions
) -> tuple[dict[str, Visit], Reasons]:
    """List all visits of the wanted sessions in order, and why some cannot be used."""
    measured, people = tables
    prefix = max(people.prefix, measured.prefix if measured else '')
    if measured is None:
        own = read_sessions(people.source.parent, (who for who, _ in people.visits))
        with_sessions = {who for who, _ in own}
        listed = [*(v for v in people.visits if v[0] not in with_sessions), *own]
    else:
        there = {who for who, _ in measured.visits}
        absent = [visit for visit in people.visits if visit[0] not in there]
        listed = [*measured.visits, *expected, *absent]
        _require_same_ids(measured, people)
    require_labels(listed, options.participant_label, options.session_label)
    chosen = in_order(of_sessions(listed, options.session_label))
    require_labels(chosen, options.participant_label, within=' in these sessions')
    visits = {visit_name(visit, prefix): visit for visit in chosen}
    reasons = _without_rows(visits, tables)
    if options.exclude is not None:
        by_hand = read_exclusions(
            options.exclude,
            visits,
            [*listed, *people.visits],
            options.id_column,
            knows_sessions=measured is not None,
        )
        reasons = {**by_hand, **reasons}
    _require_people(visits, reasons)
    return visits, reasons


def _without_rows(visits: Mapping[str, Visit], tables: _Tables) -> Reasons:
    """Return who has no volumes, and who has no row in the table of participants."""
    measured, people = tables
    reasons: Reasons = {}
    if measured is not None:
        there = set(measured.visits)
        why = f'not in {measured.source}'
        if measured.names is not None:
            why = 'no regional volumes: the participant level has not run or has failed (see logs)'
        reasons |= {name: why for name, visit in visits.items() if visit not in there}
    if tables.alone:
        return reasons
    known = set(people.visits)
    sessions_of: dict[str, list[str]] = {}
    for who, session in people.visits:
        sessions_of.setdefault(who, []).append(f'ses-{session}')
    for name, (who, session) in visits.items():
        if who not in sessions_of:
            reasons.setdefault(name, f'no row in {people.source.name}')
        elif (who, session) not in known and (who, None) not in known:
            has = list_briefly(sessions_of[who], 3)
            reasons.setdefault(
                name, f'no row of this session in {people.source.name} (there: {has})'
            )
    return reasons


def _require_same_ids(volumes: VisitTable, people: VisitTable) -> None:
    """Refuse two tables with different spellings of the same ids."""
    known, measured = (dict.fromkeys(p for p, _ in each.visits) for each in (people, volumes))
    absent = [name for name in measured if name not in known]
    alike = {*map(_key, absent)} & {_key(name) for name in known if name not in measured}
    if not alike and len(absent) < len(measured):
        return
    listed = list_briefly((f'{volumes.prefix}{name}' for name in absent), 5)
    there = list_briefly((f'{people.prefix}{name}' for name in sorted(known)), 3)
    hint = 'ids differ in case, zeros or punctuation only: ' if alike else ''
    raise DataError(
        f'{listed}: in {volumes.source} but not in {people.source} (ids there: {there}); '
        f'{hint}write them alike in both tables'
    )


def _key(participant: str) -> tuple[str, ...]:
    """Reduce an id to its letters and numbers; `A-01` is like `a_1`, but `A-1-1` not like `A11`."""
    parts = re.findall(r'\d+|[^\W\d_]+', participant.lower().removeprefix('sub-'))
    return tuple(part.lstrip('0') or '0' for part in parts)


def require_labels(
    visits: Sequence[Visit],
    participant_label: Sequence[str],
    session_label: Sequence[str] = (),
    within: str = '',
) -> None:
    """Refuse labels of participants and sessions that no visit has."""
    participants, sessions = zip(*visits)
    labels = {
        '--participant-label': (participant_label, 'sub', participants),
        '--session-label': (session_label, 'ses', sessions),
    }
    for option, (wanted, entity, known) in labels.items():
        absent = [label for label in wanted if without_prefix(label, entity) not in known]
        if absent:
            raise NothingMatchedError(
                f'{option} {" ".join(absent)}: no such label{within}; '
                f'{alternatives(absent, sorted({*filter(None, known)}))}'
            )


def _describe(tables: _Tables, visits: Mapping[str, Visit]) -> Table:
    """Join the facts about visits: columns about participants, then those of volumes."""
    measured, people = tables
    if tables.alone:
        return people.of(visits)
    known = with_sessions(people, visits)
    if measured is None:
        return Table(people.source, known)
    own = measured.rows_of(visits)
    new = own[[name for name in own if name not in known]]
    return Table(
        people.source,
        pd.concat([known, new], axis=1),
        dict.fromkeys(map(str, new), measured.source),
    )


def _without(visits: Mapping[str, Visit], reasons: Reasons) -> dict[str, Visit]:
    return {name: visit for name, visit in visits.items() if name not in reasons}


def _of_labels(
    visits: Mapping[str, Visit], reasons: Reasons, labels: Sequence[str]
) -> tuple[dict[str, Visit], Reasons]:
    """Keep the participants with these labels; no label: everyone."""
    wanted = {without_prefix(label, 'sub') for label in labels}
    chosen = {name: visit for name, visit in visits.items() if not wanted or visit[0] in wanted}
    return chosen, {name: why for name, why in reasons.items() if name in chosen}


def _require_people(visits: Mapping[str, Visit], reasons: Reasons) -> None:
    """Raise an error if everyone is excluded."""
    if len(reasons) >= len(visits):
        raise _all_excluded(reasons)


def _all_excluded(reasons: Reasons) -> DataError:
    n = len({name.partition('_ses-')[0] for name in reasons})
    who = 'the only participant was' if n == 1 else f'all {n} participants were'
    return DataError(
        f'{who} excluded: {summarise_reasons(reasons.values())}; correct the tables or the options'
    )


def _divide(
    known: Table, options: CohortOptions, groups: GroupUse, model: Requirements | None
) -> Groups:
    """Divide participants into groups; say why a model cannot learn sites from the controls."""
    needed = model.options.columns if model else ()
    divided = find_groups(known, options, groups, model is None, needed)
    if model is None or groups != 'known':
        return divided
    names = divided.labels.index[divided.labels == CONTROL]
    n_controls = len({name.partition('_ses-')[0] for name in names})
    return replace(divided, lacking=lacks_controls(divided, n_controls))


def _require_both(group: pd.Series, options: CohortOptions, training: bool) -> None:
    """Refuse to train on a selection of participants without controls or patients."""
    lacking = [GROUP_NAMES[name] for name in GROUP_NAMES if not (group == name).any()]
    if training and lacking and options.participant_label:
        raise DataError(
            f'--participant-label selects no {lacking[0]}, but a model is trained on controls and '
            'patients; select both, or remove --participant-label'
        )


def _without_group(
    divided: Groups, visits: Mapping[str, Visit], groups: GroupUse, learned: bool
) -> Reasons:
    """Return the visits of unknown groups, or of other groups than controls if only these count."""
    if not learned or not divided.column:
        return {}
    labels = divided.labels.reindex(list(visits))
    reasons = {str(n): f'{divided.column} is missing' for n in labels.index[labels.isna()]}
    if groups == 'controls':
        others = labels[labels.notna() & (labels != CONTROL)]
        reasons |= {str(n): f'{divided.column} is {v}, no control' for n, v in others.items()}
    return reasons


class _Reading(NamedTuple):
    """What columns are chosen from: the tables, and the facts about visits that can be used."""

    tables: _Tables
    described: Table
    visits: Mapping[str, Visit]
    options: CohortOptions
    model: Requirements | None
    groups: Groups

    def volumes(self) -> Table:
        """Return the rows of the table of volumes; without columns before it exists."""
        measured = self.tables.measured
        if measured is None:
            return Table(self.tables.people.source, self.described.text[[]])
        rows = {name: self.visits[name] for name in self.described.text.index}
        return measured.of(rows)

    def find_features(self, volumes: Table) -> Features:
        """Find the features: those of the model, those that are listed, or all regions."""
        if self.model is not None:
            return Features(self.model.features)
        if self.tables.measured is None:
            return Features(FeatureList('columns', (), ''))
        if self.options.features is not None:
            return Features(listed_features(self.options.features))
        people = () if self.tables.alone else self.tables.people.table.columns
        named = (*self.options.covariates, self.options.icv_column, self.options.site_column)
        used = {*people, *filter(None, named), self.groups.column}
        chosen = choose_features(volumes, used, self.tables.alone)
        if len(chosen.wanted) < MIN_FEATURES:
            raise DataError(
                f'{volumes.source}: only {counted(len(chosen.wanted), "usable region")}, at least '
                f'{MIN_FEATURES} are needed'
                + ''.join(f'; {n}: {why}' for n, why in list(chosen.unused.items())[:3])
            )
        return chosen

    def choose_columns(self, adapt: bool, wanted: FeatureList) -> Columns:
        """Choose columns; a model that cannot learn sites uses those that it was trained with."""
        options, model, known = self.options, self.model, self.described
        trained_with = None if model is None else model.options.site_column
        site = options.site_column or trained_with
        has_sites = site is not None and find_column(known.columns, site) is not None
        adapt = adapt and not (self.groups.lacking and has_sites)
        columns = choose_columns(options, known, model, adapt, wanted.scale_with_head)
        if self.groups.column in columns.own.values():
            raise DataError(
                f'{self.groups.column} is the diagnosis column; it cannot also be a covariate, '
                'head size or site'
            )
        return columns

    def read_people(self, columns: Columns) -> pd.DataFrame:
        """Read covariates, head size and site, under the names of the model if there is one."""
        names = {own: name for name, own in columns.own.items()}
        hidden = [n for own, n in names.items() if n != own and n in self.described.columns]
        text = self.described.text.drop(columns=hidden).rename(columns=names).copy()
        if columns.one_site and columns.options.site_column:
            text = text.assign(**{columns.options.site_column: ONE_SITE})
        joined = {names.get(own, own): source for own, source in self.described.joined.items()}
        known = Table(self.described.source, text, joined)
        levels, codes = (self.model.levels, self.model.codes) if self.model else (None, None)
        table = read_person_columns(
            known, columns.options, None if levels is None else list(levels), codes
        )
        for name in columns.options.covariates:
            if means(name, 'sex') and not pd.api.types.is_numeric_dtype(table[name]):
                table[name] = _unify_sex(table[name], (levels or {}).get(name, ()))
        return table


def _unify_sex(column: pd.Series, levels: Sequence[str]) -> pd.Series:
    """Write the words of a model for the sexes, or F and M if a table mixes spellings."""
    meant = column.map(lambda word: sex_of(word), na_action='ignore')
    names = {str(sex_of(level)): level for level in levels} or {'F': 'F', 'M': 'M'}
    if not levels and column[meant.notna()].nunique() <= meant.nunique():
        return column
    return meant.map(names).where(meant.notna(), column).astype(column.dtype)


def _as_given(
    wanted: FeatureList,
    values: pd.DataFrame,
    options: PreprocessingOptions,
    model: Requirements | None,
) -> FeatureList:
    """Accept numbers of both signs, such as z-scores, if nothing is to be corrected."""
    free = model is None and not options.covariates and not options.uses_icv
    return replace(wanted, unit=Z_SCORE) if free and (values < 0).any(axis=None) else wanted


def _assemble(
    reading: _Reading,
    study: Study,
    columns: Columns,
    features: Features,
    reasons: Reasons,
    times: pd.DataFrame,
    groups: GroupUse,
    adapt: bool,
    cautions: Sequence[Caution],
) -> Cohort:
    """Make the cohort of who remains, and of other groups."""
    tables, divided, model = reading.tables, reading.groups, reading.model
    names = list(study.features.index)
    known = reading.described.rows(names)
    options, column = columns.options, columns.options.site_column
    prefix = max(tables.people.prefix, tables.measured.prefix if tables.measured else '')
    one_site = column is not None and study.people.loc[study.main, column].nunique() < 2
    if model is None and one_site:
        options = replace(options, site_column=None)
    visits = add_years(visit_columns((reading.visits[name] for name in names), prefix), times)
    if groups != 'compared' or divided.column:
        own = divided.labels if study.group.notna().any() else divided.of_two
        visits.insert(list(visits).index('is_first'), 'group', own.reindex(names))
    measures = [] if model is None and tables.measured is None else list(_phenotype(reading))
    regions = _region_columns(tables.measured, features.wanted)
    used = {*columns.own.values(), divided.column, *regions}
    others, codes = _others(reading, known, used, features.unused, measures)
    corrected, missed = (
        describe_corrections(reading.options, options, known, study.wanted.scale_with_head)
        if model is None
        else ([], [])
    )
    adapts = model is None or (adapt and not divided.lacking)
    everyone = Cohort(
        visits=visits,
        features=study.features,
        people=study.people[options.columns],
        others=others,
        wanted=study.wanted,
        options=options,
        notes=(
            *divided.notes(groups == 'compared'),
            *(corrected or columns.notes),
            *describe_order(visits, adapts),
        ),
        exclusions=_exclusion_table(reading.visits, reasons, prefix),
        measured=_measured(tables.measured, prefix),
        uses=uses_of_columns(
            [each for each in dict.fromkeys((*tables, *measures)) if each is not None],
            regions,
            features.unused,
            columns,
            divided,
            reading.described,
        ),
    )
    cohort = everyone.select(study.main)
    apart = everyone.select(~study.main) if not study.main.all() else None
    few = (
        [not_adapted(divided.lacking)]
        if model is not None and groups == 'known' and divided.lacking
        else []
    )
    warnings = (
        *few,
        *cautions,
        *missed,
        *features.cautions,
        *_ignored_age(cohort, model, groups),
        *warn_of_visits(cohort.visits, known.text, cohort.people),
        *_contradictions(tables, names, reading.visits),
        *codes,
    )
    return replace(cohort, warnings=warnings, n_controls=cohort.counts[CONTROL], apart=apart)


def _region_columns(measured: VisitTable | None, wanted: FeatureList) -> list[str]:
    """Return the columns of volumes that are features, or parts of them."""
    columns = [] if measured is None else measured.table.columns
    folded = {name.lower() for name in wanted.names}
    needed = {index for feature in wanted.features for index in feature.indices}
    parts = {name for name in columns if muse_index(name) in needed} if needed else set()
    return [name for name in columns if name in parts or name.lower() in folded]


def _phenotype(reading: _Reading) -> Iterator[VisitTable]:
    """Read the tables of further measures."""
    visits = {name: reading.visits[name] for name in reading.described.text.index}
    for path in dict.fromkeys(reading.options.phenotype):
        table = read_visit_table(path, reading.options.id_column, named=False)
        if not {v[0] for v in table.visits} & {v[0] for v in visits.values()}:
            raise DataError(
                f'{path}: has none of the {len(visits)} visits of the analysis; write ids as in '
                'participants.tsv'
            )
        yield table


def _others(
    reading: _Reading,
    known: Table,
    used: Collection[str],
    unused: Mapping[str, str],
    measures: Sequence[VisitTable],
) -> tuple[pd.DataFrame, list[Caution]]:
    """Return the other facts about visits as text; codes for missing values are missing."""
    own = set() if reading.tables.alone else {str(name) for name in known.joined}
    facts = known.text[[n for n in known.columns if n not in {*used, *unused, *own}]]
    visits = {name: reading.visits[name] for name in known.text.index}
    for table in measures:
        rows = table.rows_of(visits)
        facts = pd.concat([facts, rows[[n for n in rows if n not in facts]]], axis=1)
    facts = facts[[n for n in facts if role_of(n) not in NO_MEASURE]]
    coded = {str(name): missing_codes(to_numbers(facts[name])) for name in facts}
    found = {name: is_code for name, is_code in coded.items() if is_code.any()}
    if not found:
        return facts, []
    listed = [f'{facts[n][c].iloc[0]} in {n} ({c.sum()})' for n, c in found.items()]
    text = f'Codes read as missing values: {list_briefly(listed, 5)}'
    caution = Caution(
        text, 'These participants have no value there', 'Write n/a for unknown values', PARTICIPANTS
    )
    return facts.assign(**{n: facts[n].mask(c, None) for n, c in found.items()}), [caution]


NO_MEASURE: tuple[Role, ...] = ('participant', 'session', 'date', 'birth', 'identifier', 'index')
"""Roles of columns that are no measure of participants."""


def _exclusion_table(visits: Mapping[str, Visit], reasons: Reasons, prefix: str) -> pd.DataFrame:
    """Return the excluded visits with the reason for each."""
    everyone = visit_columns(visits.values(), prefix)
    return everyone.assign(reason=pd.Series(reasons, dtype=object)).dropna(subset='reason')


def _measured(measured: VisitTable | None, prefix: str) -> pd.DataFrame:
    """Return the volumes of everyone, excluded or not, with the columns that name visits."""
    if measured is None:
        return pd.DataFrame()
    visits = visit_columns(measured.visits, prefix)
    numbers = measured.table.typed().select_dtypes('number').set_axis(visits.index)
    return pd.concat([visits, numbers], axis=1)


def ignores_age(cohort: Cohort) -> bool:
    """Tell whether neither covariates nor z-scores allow for age, as in a model of ageing."""
    has_age = any(means(name, 'age') for name in cohort.options.covariates)
    return not (has_age or cohort.wanted.are_z_scores)


def _ignored_age(cohort: Cohort, model: Requirements | None, groups: GroupUse) -> Iterator[Caution]:
    """Warn of a model that learns sites from controls without regard to their age."""
    if (
        model is not None
        and groups != 'compared'
        and cohort.has_enough_controls
        and ignores_age(cohort)
    ):
        first = cohort.first_visits()
        yield not_corrected_for_age(first.ages[first.groups == CONTROL])


def not_adapted(reason: str = '') -> Caution:
    """Warn of a model that was applied without controls."""
    why = f' ({reason})' if reason else ''
    return Caution(
        f'Too few controls: the model was not adapted to the scanners of this dataset{why}',
        'Unless the model includes the site, R-indices contain scanner effects',
        'Compare them within a scanner, not with the training sample, or add controls',
        HARMONIZATION,
    )


def not_corrected_for_age(ages: pd.Series | None) -> Caution:
    """Warn of a model that learns sites from controls (of these ages) without regard to age."""
    known = pd.Series(dtype=float) if ages is None else ages
    whose = f' (here {known.min():.3g} to {known.max():.3g} years)' if known.notna().any() else ''
    return Caution(
        f'The model does not correct for age, and the ageing of the controls{whose} is taken for '
        'an effect of the scanner',
        'R-indices of the site are too low if these controls are older than those that the model '
        'was trained with, and too high if they are younger',
        'Use controls of the ages of the training sample, or compare participants within the site '
        'only',
        HARMONIZATION,
    )


OFTEN_OTHER, YEARS_APART = 0.1, 1.0
"""Share of participants with different values in two tables, and years between two ages, that cause
a warning."""


def _contradictions(
    tables: _Tables, names: Sequence[str], visits: Mapping[str, Visit]
) -> Iterator[Caution]:
    """Warn of ages, sexes and diagnoses that differ between the two tables."""
    if tables.alone or tables.measured is None:
        return
    chosen = {name: visits[name] for name in names}
    roles: tuple[Role, ...] = ('age', 'sex', 'diagnosis')
    for role in roles:
        sides = [each for each in tables if each and column_of(each.table.columns, role)]
        if len(sides) < 2:
            continue
        one, two = (each.rows_of(chosen)[column_of(each.table.columns, role)] for each in sides)
        both = one.notna() & two.notna()
        differ = (one != two)[both]
        if role == 'age':
            differ = (to_numbers(one) - to_numbers(two)).abs()[both] > YEARS_APART
        if len(differ) and differ.mean() > OFTEN_OTHER:
            yield Caution(
                f'{two.name}: {tables.people.source.name} and {tables.measured.source.name} '
                f'disagree for {int(differ.sum())} of {len(differ)} visits, such as '
                f'{differ.idxmax()}',
                f'{tables.people.source.name} is used',
                'Correct or remove the wrong column',
                PARTICIPANTS,
            )


def with_logged(cohort: Cohort) -> Cohort:
    """Add what was logged about these participants since they were read, for the report."""
    logged = [each for each in CHECK_LIST.cautions if each.about in GROUP_SECTIONS]
    return replace(cohort, warnings=tuple(dict.fromkeys((*cohort.warnings, *logged))))


def check_participants(
    participants: Path | str, options: CohortOptions, model: Requirements | None = None
) -> dict[str, int]:
    """Check groups, columns and measures of a cohort before there are volumes.

    Parameters
    ----------
    participants, options, model
        As of :func:`read_cohort`, which raises the same errors.

    Returns
    -------
    dict
        Number of participants in each group.
    """
    cohort = read_cohort(None, participants, options, model=model)
    log_cautions(cohort.warnings)
    foreseen = cohort.exclusions['reason'].str.startswith('listed in')
    others = cohort.exclusions.loc[~foreseen.astype(bool), 'reason']
    if len(others):
        listed = list_briefly(f'{name} ({why})' for name, why in others.items())
        found = f'The group level will exclude {listed}'
        log_cautions([Caution(found, 'They get no R-indices', 'Complete or correct the tables')])
    return cohort.counts
