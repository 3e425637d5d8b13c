"""The participants of an analysis: read, checked, and stored as files for later steps."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

from surreal_bids.cautions import CHECK_LIST, GROUP_SECTIONS, HARMONIZATION, PARTICIPANTS, Caution
from surreal_bids.cohort.checks import (
    MAX_LEVELS,
    Reasons,
    Study,
    are_in_other_unit,
    missing_codes,
    require_groups,
    run_checks,
    summarise_reasons,
)
from surreal_bids.cohort.roles import (
    FACTS,
    FRAME,
    UNKNOWN_UNIT,
    Features,
    Groups,
    GroupUse,
    Requirements,
    choose_columns,
    choose_features,
    column_features,
    describe_corrections,
    describe_sides,
    find_groups,
    known_head_size,
    listed_features,
    read_features,
    read_person_columns,
    usable_sides,
    uses_of_columns,
    with_unit,
)
from surreal_bids.cohort.visits import (
    add_years,
    describe_order,
    in_order,
    order_visits,
    visit_columns,
    warn_of_changed_groups,
    warn_of_visits,
)
from surreal_bids.config import CohortOptions, change_options, set_by_model
from surreal_bids.exceptions import DataError, NothingMatchedError, UsageError
from surreal_bids.files import write_json, write_tsv
from surreal_bids.harmonization.empirical_bayes import MIN_FOR_SCALE
from surreal_bids.harmonization.options import PreprocessingOptions
from surreal_bids.model.networks import MIN_FEATURES
from surreal_bids.names import (
    CONTROL,
    PARTICIPANT,
    PATIENT,
    SINGULAR,
    Role,
    Visit,
    column_of,
    letters_of,
    means,
    noun_of,
    role_of,
    sex_of,
    visit_name,
    without_prefix,
)
from surreal_bids.regions import Z_SCORE, FeatureList
from surreal_bids.tables import (
    Table,
    find_column,
    read_exclusions,
    read_sessions,
    read_visit_table,
    to_numbers,
    with_aliases,
    with_sessions,
)
from surreal_bids.text import alternatives, counted, list_briefly

FRAMES = ('visits', 'features', 'people', 'others')
RECORD, APART = 'cohort.json', 'other_groups'

COVARIATES: tuple[Role, ...] = ('age', 'sex', 'site', 'icv')

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
        Number of controls that were read; those in `visits` may be fewer.
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
    n_controls: int = 0
    uses: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(FRAME)))
    apart: Cohort | None = None

    @classmethod
    def read(
        cls,
        volumes: Path | str,
        participants: Path | str | None = None,
        *,
        model: AppliedModel | None = None,
        **options: Any,
    ) -> Cohort:
        """Read tables of volumes and participants, join and check them.

        Parameters
        ----------
        volumes, participants
            Paths of tables, as for `surreal-gan fit`.
        model
            Model to apply to these participants, a
            :class:`~surreal_bids.rindices.model.TableModel`. The columns that it needs are found
            and checked as by `surreal-gan apply`, and a diagnosis is not needed. None: a model is
            trained with them.
        **options
            Fields of :class:`~surreal_bids.config.CohortOptions`, named as on the command line:
            `group_column='diagnosis'`, `covariates=('age', 'sex')`.

        Raises
        ------
        DataError
            The tables cannot be used; see :func:`read_cohort`.
        UsageError
            An option has a value of the wrong type, or is set by the model.
        """
        tables = [volumes] if participants is None else [volumes, participants]
        for table in tables:
            if not isinstance(table, (str, PathLike)):
                raise DataError(
                    f'expected the path of a table, not {type(table).__name__}; write it to a '
                    'file first'
                )
        chosen = change_options(DEFAULTS, options)
        if model is None:
            return read_cohort(volumes, participants, chosen)
        return read_to_apply(volumes, participants, chosen, model)

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
        return self.n_controls >= MIN_FOR_SCALE

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
        return replace(self, **{name: getattr(self, name)[rows] for name in FRAMES})

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
        apart = self.apart and self.apart.select(_are_labelled(self.apart.visits, wanted))
        if not chosen.any() and not apart:
            raise _all_excluded(dict(zip(excluded.index, excluded['reason'])))
        return replace(
            self.select(chosen),
            apart=apart or None,
            exclusions=excluded,
            measured=self.measured[_are_labelled(self.measured, wanted)],
        )

    def column_of(self, role: Role) -> pd.Series | None:
        """Return the covariate with a role, else another column with it; None without one."""
        found = ((table, column_of(table, role)) for table in (self.people, self.others))
        return next((table[column] for table, column in found if column is not None), None)

    @property
    def ages(self) -> pd.Series:
        """Age of each visit; missing where it is not known, or no number."""
        age = self.column_of('age')
        age = pd.Series(np.nan, self.visits.index) if age is None else age
        return pd.to_numeric(age, errors='coerce')

    def covariates_and_measures(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Divide the facts about visits into covariates and other measures.

        Age, sex, head size and site are covariates even if preprocessing does not use them.
        Numeric covariates have a numeric type; sites are text, even if they are called 1 and 2.
        """
        unused = self.others[self.unused_covariates()]
        typed = {str(name): _as_covariate(unused[name]) for name in unused.dropna(axis=1)}
        measures = [name for name in self.others if role_of(str(name)) not in COVARIATES]
        return self.people.assign(**typed), self.others[measures]

    def unused_covariates(self) -> list[str]:
        """Return the columns for roles that no covariate of preprocessing has."""
        lacking = [role for role in COVARIATES if column_of(self.people, role) is None]
        return [str(name) for name in self.others if role_of(str(name)) in lacking]

    def fingerprint(self, *more: Any) -> str:
        """Compute a short hash of the cohort and of further values that results depend on.

        Excluded participants count too: tables of results list them with their volumes. The order
        of rows does not count.
        """
        digest = hashlib.sha256(json.dumps(more, sort_keys=True, default=str).encode())
        digest.update(json.dumps(self.record(), sort_keys=True).encode())
        for name in (*FRAMES, 'exclusions', 'measured'):
            digest.update(getattr(self, name).sort_index().to_csv(sep='\t').encode())
        return digest.hexdigest()[:12]

    def record(self) -> dict[str, Any]:
        """Return everything that is not a frame, as plain JSON values."""
        return {
            'wanted': self.wanted.to_json(),
            'options': self.options.to_json(),
            'notes': list(self.notes),
            'warnings': list(self.warnings),
            'n_controls': self.n_controls,
            'apart': None if self.apart is None else self.apart.fingerprint(),
        }

    def save(self, folder: Path) -> Path:
        """Write the cohort; the record is written last and marks a complete folder."""
        if self.apart is not None:
            self.apart.save(folder / APART)
        kinds: dict[str, dict[str, str]] = {}
        for name in (*FRAMES, 'exclusions', 'measured', 'uses'):
            table = getattr(self, name)
            kinds[name] = {column: table[column].dtype.kind for column in table}
            write_tsv(folder / f'{name}.tsv', table.rename_axis(VISIT).reset_index())
        write_json(folder / RECORD, self.record() | {'kinds': kinds})
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Cohort:
        """Read what `save` wrote, exact to the last digit."""
        folder = Path(folder)
        record = json.loads((folder / RECORD).read_text(encoding='utf-8'))
        tables = record['kinds'].items()
        return cls(
            **{name: _read_exact(folder / f'{name}.tsv', kinds) for name, kinds in tables},
            wanted=FeatureList.from_json(record['wanted']),
            options=PreprocessingOptions.from_json(record['options']),
            notes=tuple(record['notes']),
            warnings=tuple(Caution(*each) for each in record['warnings']),
            n_controls=record['n_controls'],
            apart=cls.load(folder / APART) if record['apart'] else None,
        )


def _are_labelled(table: pd.DataFrame, labels: Collection[str]) -> pd.Series:
    """Check whether each row belongs to one of these participants."""
    return table[PARTICIPANT].map(lambda name: without_prefix(name, 'sub')).isin(labels)


def _as_covariate(column: pd.Series) -> pd.Series:
    """Convert a covariate to numbers if all are (the age `89+` is 89), unless they name sites."""
    ages = column.str.removesuffix('+') if means(column.name, 'age') else column
    numbers = pd.to_numeric(ages, errors='coerce')
    return column if means(column.name, 'site') or numbers.isna().any() else numbers.astype(float)


def _read_exact(path: Path, kinds: Mapping[str, str]) -> pd.DataFrame:
    """Read a table that :meth:`Cohort.save` wrote; `kinds` are those of the types of columns."""
    table = pd.read_csv(path, sep='\t', dtype=str, na_values=['n/a'], keep_default_na=False)
    table = table.set_index(VISIT).rename_axis(None)
    for name, kind in kinds.items():
        if kind != 'O':
            table[name] = table[name] == 'True' if kind == 'b' else to_numbers(table[name])
    return table


DEFAULTS = CohortOptions()


def read_cohort(
    volumes: Table | Path | str | None,
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
    measured = volumes if isinstance(volumes, Table) else None
    if isinstance(volumes, (str, Path)):
        # With two tables, --id-column may be of one of them: `lh.aparc.thickness` of FreeSurfer.
        measured = read_visit_table(Path(volumes), options.id_column, named=participants is None)
    people = measured
    if participants is not None:
        people = read_visit_table(Path(participants), options.id_column, named=measured is None)
    if isinstance(volumes, (str, Path)) and people is not None:
        _require_id_column(options.id_column, measured or people, people)
    if people is None:
        raise TypeError('a table of volumes or of participants is needed')
    if measured is not None and people is not measured:
        people = with_aliases(people, measured.aliases)
        measured = with_aliases(measured, people.aliases)
    if measured is None:
        options, model = _before_volumes(people, options, model)
    reader = _Reader(
        measured or _no_volumes(people), people, measured is not None, options, model, groups, adapt
    )
    return reader.read(expected)


@runtime_checkable
class AppliedModel(Protocol):
    """A model to apply, as far as reading needs it."""

    @property
    def requirements(self) -> Requirements:
        """What participants must have."""

    def warn_of(self, cohort: Cohort) -> Sequence[Caution]:
        """Reasons to doubt the R-indices of these participants."""


def read_to_apply(
    volumes: Path | str,
    participants: Path | str | None,
    options: CohortOptions,
    model: AppliedModel,
) -> Cohort:
    """Read participants whom a model is applied to without learning their sites.

    Parameters
    ----------
    volumes, participants, options
        As of :func:`read_cohort`.
    model
        The model.

    Raises
    ------
    DataError
        As of :func:`read_cohort`.
    UsageError
        An option of preprocessing was given, which the model sets.
    """
    if not isinstance(model, AppliedModel):
        raise UsageError(
            f'model={model!r}: expected a model; load it with TableModel.load(FOLDER), or '
            "TableModel.load('ad')"
        )
    if fixed := set_by_model(options):
        raise UsageError(
            f'{", ".join(fixed)}: the model defines its preprocessing; remove '
            f'{"this option" if len(fixed) == 1 else "these options"}'
        )
    cohort = read_cohort(
        volumes,
        participants,
        options,
        model=model.requirements,
        groups='compared',
        adapt=False,
    )
    # The table of participants may have others, too.
    with_volumes = cohort.exclusions.index.isin(cohort.measured.index)
    return replace(
        cohort,
        warnings=(*cohort.warnings, *model.warn_of(cohort)),
        exclusions=cohort.exclusions[with_volumes],
    )


def _before_volumes(
    people: Table, options: CohortOptions, model: Requirements | None
) -> tuple[CohortOptions, Requirements | None]:
    """Do without the head size, which the participant level will measure."""
    if column_of(people.columns, 'icv') is not None:
        return options, model
    if model is None:
        return replace(options, icv='none', icv_column=None), None
    return options, replace(model, options=replace(model.options, icv='none', icv_column=None))


def _no_volumes(people: Table) -> Table:
    """Return a table of all sessions without any volume."""
    sessions = read_sessions(people.source.parent, (who for who, _ in people.visits))
    several = {who for who, _ in sessions}
    visits = [*(visit for visit in people.visits if visit[0] not in several), *sessions]
    rows = pd.DataFrame(index=[visit_name(visit, people.prefix) for visit in visits])
    return Table(people.source, rows, visits, people.prefix)


@dataclass(eq=False)
class _Reader:
    """Reads a cohort step by step; see `read_cohort`.

    Attributes
    ----------
    measured, people
        The tables of volumes and of participants, or one for both.
    is_measured
        Whether there are volumes yet.
    options, model, use, adapt
        As of `read_cohort`; `use` is its `groups`.
    visits
        Visits of the wanted sessions in order, by name.
    reasons
        Why some of them are excluded.
    problems
        What stops, to be reported together.
    groups, features, own
        What was found: groups, features, and the column of the tables for each covariate.
    """

    measured: Table
    people: Table
    is_measured: bool
    options: CohortOptions
    model: Requirements | None
    use: GroupUse
    adapt: bool
    visits: dict[str, Visit] = field(default_factory=dict)
    reasons: Reasons = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    groups: Groups = field(init=False)
    features: Features = field(default_factory=lambda: Features(column_features([])))
    own: dict[str, str] = field(default_factory=dict)

    def read(self, expected: Sequence[Visit]) -> Cohort:
        """Read the cohort."""
        self.list_visits(expected)
        everyone = self.describe()
        times = order_visits(
            everyone.text,
            {name: visit for name, visit in self.visits.items() if name not in self.reasons},
            None if self.alone else self.people.source.parent,
        )
        self.groups = self.divide(everyone if self.model else everyone.rows(list(times.index)))
        self.select()
        left = self.visits.keys() - self.reasons.keys()
        known = everyone.rows([name for name in times.index if name in left])
        if self.problems:
            # Groups may be missing because their participants were not matched.
            self.problems[:0] = [caution.statement for caution in self.unmatched()]
        study = self.read_study(known)
        sources = dict.fromkeys(map(str, (self.measured.source, self.people.source)))
        usable, excluded, cautions = run_checks(study, ', '.join(sources))
        self.reasons |= excluded
        if are_in_other_unit(usable):
            usable = replace(usable, wanted=replace(usable.wanted, unit=UNKNOWN_UNIT))
        if self.learns:
            require_groups(study, self.reasons, self.use == 'known')
        self.require_people()
        return self.assemble(usable, known.rows(list(usable.features.index)), times, cautions)

    @property
    def alone(self) -> bool:
        """Whether one table holds everything."""
        return self.measured is self.people

    @property
    def aliases(self) -> dict[str, Visit]:
        """Other names of visits of a longitudinal stream."""
        return {**self.people.aliases, **self.measured.aliases}

    @property
    def prefix(self) -> str:
        """Prefix of the ids."""
        return max(self.people.prefix, self.measured.prefix)

    @property
    def learns(self) -> bool:
        """Whether a model learns from the controls."""
        return self.use != 'compared' and not self.groups.lacking

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Collect what stops."""
        try:
            yield
        except DataError as error:
            self.problems.append(str(error))

    def require_people(self) -> None:
        """Raise an error if everyone is excluded."""
        if len(self.reasons) >= len(self.visits):
            raise _all_excluded(self.reasons)

    def list_visits(self, expected: Sequence[Visit]) -> None:
        """List all visits of the wanted sessions in order, and why some cannot be used."""
        _require_same_ids(self.measured, self.people)
        there = {who for who, _ in self.measured.visits}
        absent = [visit for visit in self.people.visits if visit[0] not in there]
        listed = [*self.measured.visits, *expected, *absent]
        labels, sessions = self.options.participant_label, self.options.session_label
        _require_labels('--session-label', sessions, {label for _, label in listed})
        wanted = {None, *(without_prefix(label, 'ses') for label in sessions)}
        chosen = in_order(v for v in dict.fromkeys(listed) if not sessions or v[1] in wanted)
        _require_labels('--participant-label', labels, {who for who, _ in chosen})
        self.visits = {visit_name(visit, self.prefix): visit for visit in chosen}
        self.reasons = self.without_rows()
        if self.options.exclude is not None:
            everyone = {*listed, *self.people.visits}
            path, ids = self.options.exclude, self.options.id_column
            by_hand = read_exclusions(
                path, self.visits, everyone, ids, self.is_measured, self.aliases
            )
            self.reasons = by_hand | self.reasons

    def without_rows(self) -> Reasons:
        """Return who has no volumes, and who has no row in the table of participants."""
        measured, known = set(self.measured.visits), set(self.people.visits)
        listed = {who for who, _ in known}
        absent = f'not in {self.measured.source}; correct the id, or add the volumes'
        if self.measured.source.is_dir():
            absent = 'no volumes: the participant level has not run or has failed (see logs)'
        reasons = {}
        for name, visit in self.visits.items():
            if visit not in measured:
                reasons[name] = absent
            elif visit not in known and (visit[0], None) not in known:
                this = f' for session {visit[1] or "n/a"}' * (visit[0] in listed)
                reasons[name] = f'no row in {self.people.source.name}{this}; add it'
        return reasons

    def describe(self) -> Table:
        """Join the facts about visits: columns about participants, then those of volumes."""
        if self.alone:
            return self.people.of(self.visits)
        known = with_sessions(self.people, self.visits)
        own = self.measured.of(self.visits).text
        new = own[[name for name in own if name not in known]]
        joined = dict.fromkeys(map(str, new), self.measured.source)
        return Table(self.people.source, pd.concat([known, new], axis=1), joined=joined)

    def divide(self, known: Table) -> Groups:
        """Divide participants into groups; say why a model cannot learn sites from the controls."""
        groups = Groups(pd.Series(None, known.text.index, dtype=object))
        with self.collecting():
            groups = find_groups(known, self.options, self.use, self.model)
        lacking = groups.lacking or ''.join(self.problems)
        if self.model is not None and self.use == 'known' and not lacking:
            n = len({self.visits[n][0] for n in groups.labels.index[groups.labels == CONTROL]})
            few = f'{counted(n, SINGULAR[CONTROL])}, at least {MIN_FOR_SCALE} needed'
            lacking = few if n < MIN_FOR_SCALE else ''
        return replace(groups, lacking=lacking)

    def select(self) -> None:
        """Keep the chosen participants, and exclude those whose group cannot be used."""
        wanted = {without_prefix(label, 'sub') for label in self.options.participant_label}
        if wanted and (self.model is None or self.use == 'compared'):
            self.visits = {n: v for n, v in self.visits.items() if v[0] in wanted}
            self.reasons = {n: why for n, why in self.reasons.items() if n in self.visits}
        if self.learns and self.groups.column:
            self.reasons = self.without_group() | self.reasons
        self.require_people()

    def without_group(self) -> Reasons:
        """Return who has no group, and who is no control where only these are used."""
        column, labels = self.groups.column, self.groups.labels.reindex(list(self.visits))
        found = dict.fromkeys(labels.index[labels.isna()], f'{column} is missing; add it')
        if self.use == 'controls':
            others = labels[labels.notna() & (labels != CONTROL)]
            found |= {name: f'{column} is {label}, no control' for name, label in others.items()}
        return found

    def read_study(self, known: Table) -> Study:
        """Choose and read features, covariates, head size and site."""
        rows = list(known.text.index)
        table = self.measured.of({name: self.visits[name] for name in rows})
        values = pd.DataFrame(index=rows)
        with self.collecting():
            self.features = self.find_features(table)
            if self.model is None and self.is_measured:
                self.features = with_unit(self.features, table, self.head_size(known))
            if self.is_measured:
                values = read_features(table, self.features.wanted)
        wanted = self.features.wanted
        with self.collecting():
            options, self.own = self.choose_columns(known)
            if self.model is None:
                options = usable_sides(wanted, options)
            people = read_person_columns(known, options, self.own, self.model)
        if self.problems:
            raise DataError('\n'.join(dict.fromkeys(self.problems)))
        as_given = self.model is None and not options.covariates and not options.uses_icv
        if as_given and (values < 0).any(axis=None):
            wanted = replace(wanted, unit=Z_SCORE)
        return Study(
            values,
            people,
            pd.Series([self.visits[name][0] for name in rows], rows, dtype=object),
            self.groups.labels.reindex(rows) if self.learns else pd.Series(None, rows, object),
            wanted,
            options,
            self.model,
            in_mm3=self.measured.source.is_dir(),
        )

    def find_features(self, table: Table) -> Features:
        """Find the features: those of a model, those that are listed, or all regions."""
        if self.model is not None:
            return Features(self.model.features)
        if not self.is_measured:
            return self.features
        options = self.options
        if options.features is not None:
            return Features(listed_features(options.features))
        people = () if self.alone else self.people.columns
        named = (*options.covariates, options.icv_column, options.site_column)
        used = {*people, *filter(None, named), self.groups.column}
        try:
            chosen = choose_features(table, used, self.alone, options.impute)
        except DataError as error:
            raise self.exchanged() or error from error
        if len(chosen.wanted) < MIN_FEATURES and (exchanged := self.exchanged()):
            raise exchanged
        if len(chosen.wanted) < MIN_FEATURES:
            unused = list_briefly((f'{n} ({why})' for n, why in chosen.unused.items()), 3)
            raise DataError(
                f'{table.source}: only {counted(len(chosen.wanted), "usable region")}, at least '
                f'{MIN_FEATURES} are needed; not used: {unused or "none"}'
            )
        return chosen

    def head_size(self, known: Table) -> pd.Series | None:
        """Return the head size at the first visit of each participant; None if it is not known."""
        size = known_head_size(known, self.options.icv_column)
        if size is None:
            return None
        participants = pd.Series([self.visits[name][0] for name in size.index], size.index)
        return size[~participants.duplicated()]

    def exchanged(self) -> DataError | None:
        """Say that the tables seem to be exchanged, if only that of participants has volumes."""
        if self.alone:
            return None
        n_measured, n_described = (
            sum(role_of(name) is None for name in table.columns if table.share_of_numbers(name) > 0)
            for table in (self.measured, self.people)
        )
        if n_described < max(MIN_FEATURES, OFTEN_MORE * n_measured):
            return None
        return DataError(
            f'{self.measured.source}: the table of volumes has '
            f'{counted(n_measured, "column")} that may be regions, but {self.people.source} has '
            f'{n_described}; the tables seem to be exchanged: give that of volumes as TABLE or '
            '--roi-table, and that of participants with --participants or as participants.tsv'
        )

    def choose_columns(self, known: Table) -> tuple[PreprocessingOptions, dict[str, str]]:
        """Choose columns; a model that cannot learn sites uses those that it was trained with."""
        trained_with = None if self.model is None else self.model.options.site_column
        site = self.options.site_column or trained_with
        has_sites = site is not None and find_column(known.columns, site) is not None
        adapt = self.adapt and not (self.groups.lacking and has_sites)
        size = self.features.wanted.scale_with_head
        options, own = choose_columns(self.options, known, self.model, adapt, size)
        if self.groups.column in own.values():
            raise DataError(
                f'{self.groups.column} is the diagnosis column; it cannot also be a covariate, '
                'head size or site'
            )
        if self.model is None:
            self.require_no_feature((*own.values(), self.groups.column))
        return options, own

    def require_no_feature(self, columns: Sequence[str]) -> None:
        """Refuse a list of features with a column that has another use."""
        names = {name.lower() for name in self.features.wanted.names}
        twice = [name for name in columns if name.lower() in names]
        if twice:
            raise DataError(
                f'--features {self.options.features}: {list_briefly(twice)} is also a covariate, '
                'head size, site or the diagnosis; remove it from the list of features, or choose '
                'other columns (--covariates, --icv-column, --site-column, --group-column)'
            )

    def read_measures(self, known: Table) -> Iterator[Table]:
        """Read the tables of further measures."""
        participants = {self.visits[name][0] for name in known.text.index}
        for path in dict.fromkeys(self.options.phenotype):
            table = read_visit_table(path, self.options.id_column, named=False)
            table = with_aliases(table, self.aliases)
            if participants.isdisjoint(who for who, _ in table.visits):
                raise DataError(
                    f'{path}: has none of the visits of the analysis; write ids as in '
                    'participants.tsv'
                )
            yield table

    def assemble(
        self, study: Study, known: Table, times: pd.DataFrame, cautions: Sequence[Caution]
    ) -> Cohort:
        """Make the cohort of who remains, and of other groups."""
        names, options, groups = list(study.features.index), study.options, self.groups
        site = options.site_column
        notes = ['Site: all participants are treated as one site'] * (site not in {None, *self.own})
        missed: list[Caution] = []
        if self.model is None:
            if site and study.people.loc[study.main, site].nunique() < 2:
                options = replace(options, site_column=None)
            notes, missed = describe_corrections(
                self.options, options, known, study.wanted.scale_with_head
            )
            of_sides, one_sided = describe_sides(study.wanted, options.sides, self.options.sides)
            notes += of_sides
            missed += one_sided
        visits = add_years(visit_columns((self.visits[n] for n in names), self.prefix), times)
        if self.use != 'compared' or groups.column:
            group = groups.labels.reindex(names)
            if study.group.isna().all():
                group = group.where(group.isin((CONTROL, PATIENT)), None)
            visits.insert(list(visits).index('is_first'), 'group', group)
        measures = list(self.read_measures(known))
        tables = list(dict.fromkeys((self.measured, self.people, *measures)))
        roles = self.roles(study.options)
        uses = uses_of_columns(tables, self.features, roles, known)
        others, codes = self.others(known, measures, uses)
        excluded = visit_columns(self.visits.values(), self.prefix)
        excluded = excluded.assign(reason=pd.Series(self.reasons, dtype=object))
        everyone = Cohort(
            visits=visits,
            features=study.features,
            people=study.people[options.columns],
            others=others,
            wanted=study.wanted,
            options=options,
            notes=(*groups.notes, *notes, *describe_order(visits)),
            exclusions=excluded.dropna(subset='reason'),
            measured=self.volumes_of_everyone(),
            uses=uses,
        )
        cohort = everyone.select(study.main)
        warnings = (
            *self.unmatched(),
            *self.unadapted(cohort),
            *cautions,
            *missed,
            *self.features.cautions,
            *warn_of_visits(cohort.visits, known.text, cohort.people),
            *warn_of_changed_groups(everyone.visits),
            *self.contradictions(names),
            *codes,
        )
        apart = None if study.main.all() else everyone.select(~study.main)
        return replace(cohort, warnings=warnings, n_controls=cohort.counts[CONTROL], apart=apart)

    def roles(self, options: PreprocessingOptions) -> dict[str, str]:
        """Return what the columns about participants that are used are for."""
        extra = {options.icv_column: 'head size', options.site_column: 'site'}
        return {self.groups.column: 'diagnosis'} | {
            own: extra.get(name) or f'covariate {noun_of(own)}'.rstrip()
            for name, own in self.own.items()
        }

    def others(
        self, known: Table, measures: Sequence[Table], uses: pd.DataFrame
    ) -> tuple[pd.DataFrame, list[Caution]]:
        """Return the other facts about visits as text; codes for missing values are missing."""
        chosen = {*uses.loc[uses['taken_for'].isin(FACTS), 'column']}
        chosen -= {*self.own.values(), self.groups.column}
        facts = known.text[[name for name in known.columns if name in chosen]]
        visits = {name: self.visits[name] for name in known.text.index}
        for table in measures:
            rows = table.of(visits).text
            facts = pd.concat([facts, rows[[n for n in rows if n in chosen - {*facts}]]], axis=1)
        coded = {str(name): missing_codes(to_numbers(facts[name])) for name in facts}
        coded = {name: is_code for name, is_code in coded.items() if is_code.any()}
        listed = [f'{facts[n][c].iloc[0]} in {n} ({c.sum()})' for n, c in coded.items()]
        caution = Caution(
            f'Codes read as missing values: {list_briefly(listed, 5)}',
            'These participants have no value there',
            'Write n/a for unknown values',
            PARTICIPANTS,
        )
        facts = facts.assign(**{n: facts[n].mask(c, None) for n, c in coded.items()})
        return facts, [caution] * bool(coded)

    def volumes_of_everyone(self) -> pd.DataFrame:
        """Return the volumes of everyone, excluded or not, with the columns that name visits."""
        table = self.measured
        visits = visit_columns(table.visits, self.prefix)
        columns = [name for name in table.columns if table.share_of_numbers(name) == 1]
        numbers = {name: table.values(name).to_numpy() for name in columns if name not in visits}
        return visits.join(pd.DataFrame(numbers, visits.index))

    def unmatched(self) -> Iterator[Caution]:
        """Warn of ids that each table has alone: the same participants may be spelt in two ways."""
        if self.alone or self.measured.source.is_dir():
            return
        tables = {self.measured: self.people, self.people: self.measured}
        found = []
        for table, other in tables.items():
            others = {who for who, _ in other.visits}
            ids = dict.fromkeys(who for who, _ in table.visits)
            absent = [f'{table.prefix}{who}' for who in ids if who not in others]
            # Few of them are usual: a scan that failed, or a participant without a scan.
            if len(absent) <= OFTEN_UNMATCHED * len(ids):
                return
            listed = list_briefly(absent, 3)
            found.append(f'{len(absent)} of {len(ids)} ids only in {table.source.name} ({listed})')
        yield Caution(
            ' and '.join(found),
            'They are excluded, and counted as different participants',
            'If they are the same participants, write their ids alike in both tables',
            PARTICIPANTS,
        )

    def unadapted(self, cohort: Cohort) -> Iterator[Caution]:
        """Warn of a model that cannot learn sites from the controls, or ignores their age."""
        if self.use == 'known' and self.groups.lacking:
            yield not_adapted(self.groups.lacking)
        ageing = self.model is not None and self.use != 'compared' and ignores_age(cohort)
        if ageing and cohort.counts[CONTROL] >= MIN_FOR_SCALE:
            yield AGE_IGNORED

    def contradictions(self, names: Sequence[str]) -> Iterator[Caution]:
        """Warn of ages, sexes and diagnoses that differ between the two tables."""
        visits = {name: self.visits[name] for name in names}
        first, second = (table.of(visits) for table in (self.people, self.measured))
        roles: tuple[Role, ...] = () if self.alone else ('age', 'sex', 'diagnosis')
        for role in roles:
            name, other = column_of(first.columns, role), column_of(second.columns, role)
            if name is None or other is None:
                continue
            pair = pd.DataFrame({'one': first.names(name), 'two': second.names(other)}).dropna()
            differ = _disagree(pair['one'].map(_meaning), pair['two'].map(_meaning))
            if role == 'age':
                differ = pair.apply(to_numbers).diff(axis=1)['two'].abs() > YEARS_APART
            if differ.mean() > OFTEN_OTHER:
                yield Caution(
                    f'{name}: {self.people.source.name} and {self.measured.source.name} '
                    f'disagree for {int(differ.sum())} of {len(differ)} visits, such as '
                    f'{differ.idxmax()}',
                    f'{self.people.source.name} is used',
                    'Correct or remove the wrong column',
                    PARTICIPANTS,
                )


OFTEN_MORE = 3
"""How many times more columns of numbers make a table of participants look like one of volumes."""

OFTEN_UNMATCHED = 0.05
"""Share of the ids of each of two tables that the other lacks, above which a warning is given."""

OFTEN_OTHER, YEARS_APART = 0.1, 1.0
"""Share of participants with different values in two tables, and years between two ages, that cause
a warning."""


def _meaning(word: str) -> str:
    """Reduce a word for a sex or a diagnosis to what it means; numbers stay as they are."""
    is_word = any(map(str.isalpha, word))
    return sex_of(word) or (letters_of(word) if is_word else word)


def _disagree(one: pd.Series, two: pd.Series) -> pd.Series:
    """Mark rows of two columns that disagree, if both code the same fact.

    Codes may differ, as F and M beside 0 and 1, and one column may divide a group of the other.
    """
    differ = one != _translated(two, one)
    differ_reversed = two != _translated(one, two)
    return differ if differ.mean() <= differ_reversed.mean() else differ_reversed


def _translated(words: pd.Series, target: pd.Series) -> pd.Series:
    """Replace words that `target` lacks by those of its other words that go with them most often.

    Each of these stands for at least one word, if there are enough.
    """
    own = ~words.isin(target.unique())
    counts = pd.crosstab(words[own], target[own & ~target.isin(words.unique())])
    if counts.empty or max(counts.shape) > MAX_LEVELS:
        return words
    sources, meanings = list(counts.index), list(counts.columns)
    meaning: dict[str, str] = {}
    if len(sources) >= len(meanings):
        meaning.update(zip(sources, map(str, counts.idxmax(axis=1))))
    for row, column in zip(*linear_sum_assignment(counts.to_numpy(), maximize=True)):
        meaning[sources[row]] = meanings[column]
    return words.map(lambda word: meaning.get(word, word))


def _require_id_column(name: str | None, volumes: Table, people: Table) -> None:
    """Refuse a column of ids that neither table has."""
    found = {volumes.id_column.lower(), people.id_column.lower()}
    if name is None or name.lower() in found:
        return
    columns = dict.fromkeys((*volumes.columns, *people.columns))
    raise DataError(
        f'{volumes.source}, {people.source}: neither has the column {name} of --id-column; '
        f'{alternatives([name], columns)}; ids were found in {volumes.id_column} and '
        f'{people.id_column}, which need no option'
    )


def _require_same_ids(volumes: Table, people: Table) -> None:
    """Refuse two tables with different spellings of the same ids."""
    known, measured = (dict.fromkeys(p for p, _ in each.visits) for each in (people, volumes))
    absent = [name for name in measured if name not in known]
    alike = {*map(_key, absent)} & {_key(name) for name in known if name not in measured}
    if not alike and len(absent) < len(measured):
        return
    listed = list_briefly((f'{volumes.prefix}{name}' for name in absent), 5)
    there = list_briefly((f'{people.prefix}{name}' for name in sorted(known)), 3)
    raise DataError(
        f'{listed}: in {volumes.source} but not in {people.source} (ids there: {there}); write ids '
        'alike in both tables, with the same case, zeros and punctuation'
    )


def _key(participant: str) -> tuple[str, ...]:
    """Reduce an id to its letters and numbers; `A-01` is like `a_1`, but `A-1-1` not like `A11`."""
    parts = re.findall(r'\d+|[^\W\d_]+', participant.lower().removeprefix('sub-'))
    return tuple(part.lstrip('0') or '0' for part in parts)


def _require_labels(option: str, labels: Sequence[str], known: Collection[str | None]) -> None:
    """Refuse labels of participants or sessions that no visit has."""
    entity = 'ses' if 'session' in option else 'sub'
    absent = [label for label in labels if without_prefix(label, entity) not in known]
    if absent:
        raise NothingMatchedError(
            f'{option} {" ".join(absent)}: no such label; '
            f'{alternatives(absent, sorted(filter(None, known)))}'
        )


def _all_excluded(reasons: Reasons) -> DataError:
    why = summarise_reasons(reasons.values())
    return DataError(f'everyone is excluded: {why}; correct the tables or the options')


def ignores_age(cohort: Cohort) -> bool:
    """Tell whether neither covariates nor z-scores allow for age, as in a model of ageing."""
    has_age = any(means(name, 'age') for name in cohort.options.covariates)
    return not (has_age or cohort.wanted.are_z_scores)


def not_adapted(reason: str = '') -> Caution:
    """Warn of a model that was applied without controls."""
    why = f' ({reason})' if reason else ''
    return Caution(
        f'Too few controls: the model was not adapted to the scanners of this dataset{why}',
        'Unless the model includes the site, R-indices contain scanner effects',
        'Compare them within a scanner, not with the training sample, or add controls',
        HARMONIZATION,
    )


AGE_IGNORED = Caution(
    'The model does not correct for age, and the ageing of controls is taken for an effect of the '
    'scanner',
    'R-indices of the site are too low if its controls are older than those that the model was '
    'trained with, and too high if they are younger',
    'Use controls of the ages of the training sample, or compare participants within the site only',
    HARMONIZATION,
)
"""Warning of a model that learns sites from controls without regard to age."""


def with_logged(cohort: Cohort) -> Cohort:
    """Add what was logged about these participants since they were read, for the report."""
    logged = [each for each in CHECK_LIST.cautions if each.about in GROUP_SECTIONS]
    return replace(cohort, warnings=tuple(dict.fromkeys((*cohort.warnings, *logged))))
