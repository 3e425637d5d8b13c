"""Controls and patients: which column and which of its values name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from surreal_bids.bids.tabular import CONTROL, PATIENT, Table, names, require_columns
from surreal_bids.columns import SPELLINGS, column_of
from surreal_bids.exceptions import DataError, MissingColumnError, UsageError
from surreal_bids.text import alternatives, list_briefly

SINGULAR = {CONTROL: 'control', PATIENT: 'patient'}
GROUP_NAMES = {group: f'{name}s' for group, name in SINGULAR.items()}
"""Nouns for a participant of each group, and for several."""

CONTROL_WORDS = frozenset(
    {'cn', 'control', 'controls', 'con', 'ctl', 'ctrl', 'cu', 'hc', 'healthy', 'healthy control',
     'healthy_control', 'hv', 'nc', 'normal', 'td'}
)  # fmt: skip
"""Values of a diagnosis that mean a control, in lower case."""

PATIENT_WORDS = frozenset({'pt', 'patient', 'patients', 'case', 'cases', 'diseased', 'affected'})
"""Values of a diagnosis that cannot mean a control, in lower case."""

CODES = ({'0': CONTROL, '1': PATIENT}, {'-1': CONTROL, '1': PATIENT})
"""Numbers that stand for the groups; the authors' program uses the second set."""


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
        Column of the diagnosis.
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

    def describe(self) -> str:
        """Describe the groups in one line."""
        how = 'as given'
        if self.recognised:
            how = 'detected automatically; override with --control-label and --patient-label'
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
    column = _group_column(people, group_labels.column)
    values = names(people, column)
    present = sorted(set(values.dropna()))
    _require_labels(people, column, present, (*group_labels.controls, *group_labels.patients))
    try:
        controls, patients = _complete_labels(
            present, tuple(group_labels.controls), tuple(group_labels.patients), both
        )
    except DataError as error:
        raise DataError(f'{people.source_of(column)}: column {column} {error}') from error
    _refuse_opposite(column, controls, patients)
    if group_labels.no_guess and not group_labels.is_complete:
        raise UsageError(
            '--no-guess: set --group-column, --control-label and --patient-label; recognised: '
            f'{column}, {" ".join(controls)} and {" ".join(patients)}'
        )
    in_group = values.isin((*controls, *patients))
    return Groups(
        column,
        controls,
        patients,
        not group_labels.is_complete,
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
    return not is_code and not any(value.lower() in CONTROL_WORDS for value in present)


def find_controls(people: Table, group_labels: GroupLabels = NO_LABELS) -> pd.Series:
    """Find controls in a table that may have no patients: booleans (n_participants,).

    Without a column of the diagnosis, everyone is a control.

    Raises
    ------
    DataError
        There is no such column or value, or controls cannot be recognised.
    """
    if (
        group_labels.column is None
        and not group_labels.controls
        and column_of(people.columns, 'diagnosis') is None
    ):
        return pd.Series(True, people.text.index)
    column = _group_column(people, group_labels.column)
    values = names(people, column)
    present = sorted(set(values.dropna()))
    _require_labels(people, column, present, group_labels.controls)
    try:
        controls = tuple(group_labels.controls) or _recognised_controls(present)
    except DataError as error:
        raise DataError(f'{people.source_of(column)}: column {column} {error}') from error
    return values.isin(controls)


def _group_column(people: Table, column: str | None) -> str:
    if column is not None:
        return require_columns(people, [column])[column]
    found = column_of(people.columns, 'diagnosis')
    if found is None:
        usual = SPELLINGS['diagnosis']
        raise MissingColumnError(
            f'{people.source}: no column {" or ".join(usual)}{people.also_lacking}; choose the '
            f'diagnosis column with --group-column ({alternatives(usual, people.own_columns)})'
        )
    return found


def _require_labels(people: Table, column: str, present: list[str], labels: Sequence[str]) -> None:
    absent = [label for label in labels if label not in present]
    if absent:
        raise DataError(
            f'{people.source_of(column)}: nobody has {list_briefly(absent)} in column {column}; '
            f'{alternatives(absent, present)}; correct --control-label or --patient-label'
        )


def _complete_labels(
    present: list[str], controls: tuple[str, ...], patients: tuple[str, ...], both: bool
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
    controls = controls or _recognised_controls(present)
    return controls, _only_other(present, controls, PATIENT, both)


def _refuse_opposite(column: str, controls: Sequence[str], patients: Sequence[str]) -> None:
    """Refuse labels that mean the opposite group."""
    wrong = [label for label in patients if label.lower() in CONTROL_WORDS]
    wrong += [label for label in controls if label.lower() in PATIENT_WORDS]
    if wrong:
        raise DataError(
            f'column {column}: the labels look swapped: controls are set to '
            f'{list_briefly(controls)} and patients to {list_briefly(patients)}. Swap '
            '--control-label and --patient-label, or rename the values'
        )


def _recognised_controls(present: list[str]) -> tuple[str, ...]:
    if not present:
        raise DataError('is empty; fill it in, or choose another column with --group-column')
    for codes in CODES:
        if set(present) == set(codes):
            return tuple(code for code, group in codes.items() if group == CONTROL)
    controls = tuple(value for value in present if value.lower() in CONTROL_WORDS)
    if len(controls) != 1:
        count = 'more than one' if controls else 'none'
        raise DataError(
            f'holds {list_briefly(present)}, and {count} of these is known to mean controls; '
            'choose the controls with --control-label'
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
        Why a model cannot learn sites from the controls; empty if it can.
    """

    groups: Groups | None = None
    lacking: str = ''

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
        return [] if self.groups is None else [f'Groups: {self.groups.describe()}']


UNDIVIDED = Grouping()
