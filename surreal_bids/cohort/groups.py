"""Controls and patients: which column and which of its values name them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from surreal_bids.bids.tabular import Table, names, require_columns
from surreal_bids.columns import SPELLINGS, column_of, normalise_name
from surreal_bids.exceptions import DataError, MissingColumnError, UsageError
from surreal_bids.names import CONTROL, GROUP_NAMES, PATIENT, SINGULAR
from surreal_bids.text import alternatives, list_briefly

CONTROL_WORDS = frozenset(
    {'cn', 'cognitivelynormal', 'cognitivelyunimpaired', 'con', 'control', 'controls', 'ctl',
     'ctrl', 'cu', 'hc', 'hcs', 'healthy', 'healthycontrol', 'healthycontrols', 'healthyvolunteer',
     'healthyvolunteers', 'hv', 'nc', 'normal', 'normalcontrol', 'td', 'typicallydeveloping'}
)  # fmt: skip
"""Values of a diagnosis that mean a control, as `normalise_name` writes them."""

PATIENT_WORDS = frozenset(
    {'ad', 'adhd', 'affected', 'alzheimer', 'alzheimers', 'alzheimersdisease', 'als', 'asd',
     'autism', 'bipolar', 'bvftd', 'case', 'cases', 'demented', 'dementia', 'depressed',
     'depression', 'diseased', 'epilepsy', 'ftd', 'mdd', 'ms', 'parkinson', 'parkinsons',
     'patient', 'patients', 'pd', 'pt', 'pts', 'schizophrenia', 'scz', 'stroke', 'sz'}
)  # fmt: skip
"""Values of a diagnosis that cannot mean a control, as `normalise_name` writes them."""

CODES = ({'0': CONTROL, '1': PATIENT}, {'-1': CONTROL, '1': PATIENT})
"""Numbers that stand for the groups; the authors' program uses the second set."""

EVERYONE = 'all'
"""Label of controls that states that a table without a diagnosis has controls only."""


GroupUse = Literal['known', 'controls', 'compared']
"""How the participants of a cohort are divided; see `read_cohort`."""


@dataclass(frozen=True)
class GroupLabels:
    """Column and labels of the groups, as far as the user named them.

    Attributes
    ----------
    column
        Column of the diagnosis; by default diagnosis, group or dx.
    controls, patients
        Its values for the two groups. If one is given, the only other value is the other group; if
        none is given, common words, 0 and 1, or -1 and 1 are recognised.
    no_guess
        Raise an error instead of recognising labels.
    """

    column: str | None = None
    controls: Sequence[str] = ()
    patients: Sequence[str] = ()
    no_guess: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether the user named the column and both groups."""
        return bool(self.column and self.controls and self.patients)


NO_LABELS = GroupLabels()


@dataclass(frozen=True, eq=False)
class Groups:
    """Controls and patients.

    Attributes
    ----------
    column
        Column of the diagnosis; empty where all participants are controls without one.
    control_labels, patient_labels
        Its values that mean a control and a patient.
    recognised
        Whether any of these was recognised rather than named by the user.
    is_patient
        One boolean per visit in either group.
    left_out
        Value of all other visits; None where it is missing.
    """

    column: str
    control_labels: tuple[str, ...]
    patient_labels: tuple[str, ...]
    recognised: bool
    is_patient: pd.Series
    left_out: dict[str, str | None]

    @property
    def labels(self) -> pd.Series:
        """CN or PT, for each visit in either group."""
        return self.is_patient.map({False: CONTROL, True: PATIENT}).rename('group')

    def describe(self, only_compared: bool = False) -> str:
        """Describe the groups in one line."""
        how = 'as given'
        if only_compared:
            how = 'detected automatically, for comparisons only: R-indices do not depend on them'
        elif self.recognised:
            how = 'detected automatically; override with --control-label and --patient-label'
        if not self.column:
            return 'all participants are controls (as given)'
        groups = {'controls': self.control_labels, 'patients': self.patient_labels}
        who = [f'{group}: {", ".join(labels)}' for group, labels in groups.items() if labels]
        return f'column {self.column}, {", ".join(who)} ({how})'


def find_groups(people: Table, group_labels: GroupLabels = NO_LABELS, both: bool = True) -> Groups:
    """Divide participants into controls and patients.

    Parameters
    ----------
    people
        Table with a column of the diagnosis.
    group_labels
        Labels that the user named; the others are recognised.
    both
        Whether both groups must be present.

    Raises
    ------
    DataError
        There is no such column or value, or groups cannot be recognised; the error lists the
        values and names the option to use.
    """
    if not both and _states_everyone(people, group_labels):
        return _everyone(people)
    column, values, present = _diagnoses(people, group_labels)
    with _naming_column(people, column):
        controls, patients = _complete_labels(
            column, present, tuple(group_labels.controls), tuple(group_labels.patients), both
        )
        _refuse_opposite(column, controls, patients)
    if group_labels.no_guess and not group_labels.is_complete:
        raise UsageError(
            '--no-guess: set --group-column, --control-label and --patient-label; recognised: '
            f'{column}, {" ".join(controls)} and {" ".join(patients)}'
        )
    return _divide(column, values, controls, patients, not group_labels.is_complete)


def find_controls(people: Table, group_labels: GroupLabels = NO_LABELS) -> Groups:
    """Find the controls of a table; all other participants are left out.

    Raises
    ------
    DataError
        There is no such column or value, controls cannot be recognised, or the label of controls
        means patients.
    """
    if _states_everyone(people, group_labels):
        return _everyone(people)
    remedy = f', or state that everyone is a control with --control-label {EVERYONE}'
    column, values, present = _diagnoses(people, group_labels, remedy)
    with _naming_column(people, column):
        controls = tuple(group_labels.controls) or _recognised_controls(column, present)
        known = {value for value in present if normalise_name(value) in CONTROL_WORDS}
        spare = known if known & set(controls) else set()
        _refuse_opposite(column, controls, [v for v in present if v not in {*controls, *spare}])
    return _divide(column, values, controls, (), not group_labels.controls)


def _states_everyone(people: Table, group_labels: GroupLabels) -> bool:
    """Whether the user stated that a table without a diagnosis has controls only."""
    return (
        tuple(group_labels.controls) == (EVERYONE,)
        and group_labels.column is None
        and column_of(people.columns, 'diagnosis') is None
    )


def _everyone(people: Table) -> Groups:
    return Groups('', (EVERYONE,), (), False, pd.Series(False, people.text.index), {})


def _diagnoses(
    people: Table, group_labels: GroupLabels, remedy: str = ''
) -> tuple[str, pd.Series, list[str]]:
    """Return the column of the diagnosis, its values, and each value once; check the labels."""
    column = _group_column(people, group_labels.column, remedy)
    values = names(people, column)
    present = sorted(set(values.dropna()))
    _require_labels(people, column, present, (*group_labels.controls, *group_labels.patients))
    return column, values, present


@contextmanager
def _naming_column(people: Table, column: str) -> Iterator[None]:
    """Prefix errors with the file and the column of the diagnosis."""
    try:
        yield
    except DataError as error:
        raise DataError(f'{people.source_of(column)}: column {column} {error}') from error


def _divide(
    column: str,
    values: pd.Series,
    controls: tuple[str, ...],
    patients: tuple[str, ...],
    recognised: bool,
) -> Groups:
    in_group = values.isin((*controls, *patients))
    return Groups(
        column,
        controls,
        patients,
        recognised,
        values[in_group].isin(patients),
        {str(person): value for person, value in values[~in_group].items()},
    )


def names_no_controls(people: Table, group_labels: GroupLabels = NO_LABELS) -> bool:
    """Check whether a table has no values that are named or known to mean controls."""
    column = group_labels.column or column_of(people.columns, 'diagnosis')
    if column is None or group_labels.controls or group_labels.patients:
        return column is None and not (group_labels.controls or group_labels.patients)
    present = set(names(people, require_columns(people, [column])[column]).dropna())
    is_code = any(present == set(codes) for codes in CODES)
    return not is_code and not any(normalise_name(value) in CONTROL_WORDS for value in present)


def _group_column(people: Table, column: str | None, remedy: str) -> str:
    if column is not None:
        return require_columns(people, [column])[column]
    found = column_of(people.columns, 'diagnosis')
    if found is None:
        usual = SPELLINGS['diagnosis']
        raise MissingColumnError(
            f'{people.source}: no column {" or ".join(usual)}{people.also_lacking}; choose the '
            f'diagnosis column with --group-column{remedy} '
            f'({alternatives(usual, people.own_columns)})'
        )
    return found


def _require_labels(people: Table, column: str, present: list[str], labels: Sequence[str]) -> None:
    absent = [label for label in labels if label not in present]
    if absent:
        raise DataError(
            f'{people.source_of(column)}: no participant has the value '
            f'{list_briefly(absent)} in column {column}; '
            f'{alternatives(absent, present)}; correct --control-label or --patient-label'
        )


def _complete_labels(
    column: str,
    present: list[str],
    controls: tuple[str, ...],
    patients: tuple[str, ...],
    both: bool,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Complete the labels of the two groups; one group is enough unless both are needed."""
    same = set(controls) & set(patients)
    if same:
        raise DataError(
            f'has {list_briefly(sorted(same))} as label of both controls and patients; use it once'
        )
    if controls and patients:
        return controls, patients
    if patients:
        return _only_other(present, patients, CONTROL, both), patients
    controls = controls or _recognised_controls(column, present)
    return controls, _only_other(present, controls, PATIENT, both)


def _refuse_opposite(column: str, controls: Sequence[str], patients: Sequence[str]) -> None:
    """Refuse labels that mean the opposite group."""
    wrong = [label for label in patients if normalise_name(label) in CONTROL_WORDS]
    wrong += [label for label in controls if normalise_name(label) in PATIENT_WORDS]
    codes = _codes_of(column, [*controls, *patients])
    wrong += [label for label in controls if codes.get(label) == PATIENT]
    if wrong:
        raise DataError(
            f'has labels that look swapped: controls are set to {list_briefly(controls)}'
            f'{f", patients to {list_briefly(patients)}" if patients else ""}, but '
            f'{list_briefly(wrong)} means the opposite. Correct --control-label and '
            '--patient-label, or rename the values'
        )


def _codes_of(column: str, present: Sequence[str]) -> dict[str, str]:
    """Return the groups of 0 and 1, or -1 and 1; in a column called `healthy`, 1 is a control."""
    codes = next((codes for codes in CODES if set(present) == set(codes)), {})
    if normalise_name(column).removeprefix('is') not in CONTROL_WORDS:
        return codes
    return {code: PATIENT if group == CONTROL else CONTROL for code, group in codes.items()}


def _recognised_controls(column: str, present: list[str]) -> tuple[str, ...]:
    if not present:
        raise DataError('is empty; fill it in, or choose another column with --group-column')
    if codes := _codes_of(column, present):
        return tuple(code for code, group in codes.items() if group == CONTROL)
    controls = tuple(value for value in present if normalise_name(value) in CONTROL_WORDS)
    if len(controls) != 1:
        count = 'more than one' if controls else 'none'
        raise DataError(
            f'holds {list_briefly(present)} in the participants that can be used, and {count} of '
            'these is known to mean controls; choose the controls with --control-label, or check '
            'why controls are missing'
        )
    return controls


def _only_other(
    present: list[str], known: tuple[str, ...], group: str, needed: bool
) -> tuple[str, ...]:
    """Return the only other value as the label of a group."""
    others = tuple(value for value in present if value not in known)
    if len(others) > 1:
        raise DataError(
            f'has several values besides {list_briefly(known)} ({list_briefly(others)}); choose '
            f'the {GROUP_NAMES[group]} with --{SINGULAR[group]}-label'
        )
    if needed and not others:
        raise DataError(
            f'has no values besides {list_briefly(known)}; no {GROUP_NAMES[group]} were found. '
            f'Training needs both groups: add {GROUP_NAMES[group]}, or correct --group-column'
        )
    return others


@dataclass(frozen=True, eq=False)
class Grouping:
    """Controls and patients.

    Attributes
    ----------
    groups
        The two groups; None where they are not known.
    lacking
        Why groups are not known, or a model cannot learn sites from the controls; else empty.
    only_compared
        Whether groups matter for comparisons only.
    """

    groups: Groups | None = None
    lacking: str = ''
    only_compared: bool = False

    @property
    def column(self) -> str:
        """Column of the diagnosis; empty where groups are not known."""
        return '' if self.groups is None else self.groups.column

    @property
    def learned_from(self) -> Groups | None:
        """The groups, if there are enough controls to learn from."""
        return None if self.lacking else self.groups

    @property
    def notes(self) -> list[str]:
        """How the groups were found."""
        if self.groups is None:
            return []
        return [f'Groups: {self.groups.describe(self.only_compared)}']


UNDIVIDED = Grouping()
