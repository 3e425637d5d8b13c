"""Controls and patients: which column and which of its values name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from surreal_bids.bids.tabular import CONTROL, PATIENT, Table, names, require_columns
from surreal_bids.columns import SPELLINGS, column_of
from surreal_bids.exceptions import DataError, MissingColumnError, UsageError
from surreal_bids.text import alternatives, list_briefly

CONTROL_WORDS = frozenset(
    {'cn', 'control', 'controls', 'con', 'ctl', 'ctrl', 'cu', 'hc', 'healthy', 'healthy control',
     'healthy_control', 'hv', 'nc', 'normal', 'td'}
)  # fmt: skip
"""Values of a diagnosis that mean a control, in any case."""

PATIENT_WORDS = frozenset({'pt', 'patient', 'patients', 'case', 'cases', 'diseased', 'affected'})
"""Values of a diagnosis that cannot mean a control, in any case."""

CODES = ({'0': CONTROL, '1': PATIENT}, {'-1': CONTROL, '1': PATIENT})
"""Numbers that stand for the groups; the second are those of the authors' program."""


@dataclass(frozen=True)
class GroupLabels:
    """What the user said of the groups.

    Attributes
    ----------
    column
        Column of the diagnosis; by default diagnosis, group or dx.
    controls, patients
        Its values for the two groups. Where only one is given, the only other value is the other
        group; where none is given, common words, 0 and 1, or -1 and 1 are recognised.
    no_guess
        Raise an error instead of recognising any of these.
    """

    column: str | None = None
    controls: Sequence[str] = ()
    patients: Sequence[str] = ()
    no_guess: bool = False

    @property
    def says_all(self) -> bool:
        """Whether nothing is left to be recognised."""
        return bool(self.column and self.controls and self.patients)


SAID_NOTHING = GroupLabels()


@dataclass(frozen=True, eq=False)
class Groups:
    """The two groups.

    Attributes
    ----------
    column
        Column of the diagnosis.
    control_labels, patient_labels
        Its values that mean a control and a patient.
    recognised
        Whether any of these was recognised rather than said by the user.
    is_patient
        One boolean for each person in either group.
    left_out
        Value of everyone else, None where it is missing.
    """

    column: str
    control_labels: tuple[str, ...]
    patient_labels: tuple[str, ...]
    recognised: bool
    is_patient: pd.Series
    left_out: dict[str, str | None]

    @property
    def labels(self) -> pd.Series:
        """CN or PT, for each person in either group."""
        return self.is_patient.map({False: CONTROL, True: PATIENT}).rename('group')

    def describe(self) -> str:
        """Say in one line who is what, and whether the user said so."""
        how = 'guessed: name them if this is wrong' if self.recognised else 'as given'
        groups = {'controls': self.control_labels, 'patients': self.patient_labels}
        who = [f'{group} are {", ".join(labels)}' for group, labels in groups.items() if labels]
        return f'column {self.column}: {", ".join(who)} ({how})'


def find_groups(people: Table, said: GroupLabels = SAID_NOTHING, both: bool = True) -> Groups:
    """Tell controls from patients.

    Parameters
    ----------
    people
        Table with a column of the diagnosis.
    said
        What the user said; the rest is recognised.
    both
        Whether there must be two groups; else there may be one of them.

    Raises
    ------
    DataError
        There is no such column or value, or groups cannot be recognised; the error says what there
        is and which option helps.
    """
    column = _group_column(people, said.column)
    values = names(people, column)
    present = sorted(set(values.dropna()))
    _require_labels(people, column, present, (*said.controls, *said.patients))
    try:
        controls, patients = _complete_labels(
            present, tuple(said.controls), tuple(said.patients), both
        )
    except DataError as error:
        raise DataError(f'{people.source}: column {column} {error}') from error
    _refuse_opposite(column, controls, patients)
    if said.no_guess and not said.says_all:
        raise UsageError(
            f'--no-guess: name --group-column, --control-label and --patient-label; the guess is '
            f'{column}, {" ".join(controls)} and {" ".join(patients)}'
        )
    in_group = values.isin((*controls, *patients))
    return Groups(
        column,
        controls,
        patients,
        not said.says_all,
        values[in_group].isin(patients),
        {str(person): value for person, value in values[~in_group].items()},
    )


def names_no_controls(people: Table, said: GroupLabels = SAID_NOTHING) -> bool:
    """Whether nothing in a table is said or known to mean controls."""
    column = said.column or column_of(people.columns, 'diagnosis')
    if column is None or said.controls or said.patients:
        return column is None and not (said.controls or said.patients)
    present = set(names(people, require_columns(people, [column])[column]).dropna())
    is_code = any(present == set(codes) for codes in CODES)
    return not is_code and not any(value.lower() in CONTROL_WORDS for value in present)


def find_controls(people: Table, said: GroupLabels = SAID_NOTHING) -> pd.Series:
    """Who is a control, where patients may be absent: booleans (n_people,).

    Without a column of the diagnosis, everyone is.

    Raises
    ------
    DataError
        There is no such column or value, or its value for controls cannot be recognised.
    """
    if said.column is None and not said.controls and column_of(people.columns, 'diagnosis') is None:
        return pd.Series(True, people.text.index)
    column = _group_column(people, said.column)
    values = names(people, column)
    present = sorted(set(values.dropna()))
    _require_labels(people, column, present, said.controls)
    try:
        controls = tuple(said.controls) or _recognised_controls(present)
    except DataError as error:
        raise DataError(f'{people.source}: column {column} {error}') from error
    return values.isin(controls)


def _group_column(people: Table, column: str | None) -> str:
    if column is not None:
        return require_columns(people, [column])[column]
    found = column_of(people.columns, 'diagnosis')
    if found is None:
        usual = SPELLINGS['diagnosis']
        raise MissingColumnError(
            f'{people.source}: no column {" or ".join(usual)}; name the diagnosis column with '
            f'--group-column ({alternatives(usual, people.columns)})'
        )
    return found


def _require_labels(people: Table, column: str, present: list[str], labels: Sequence[str]) -> None:
    absent = [label for label in labels if label not in present]
    if absent:
        raise DataError(
            f'{people.source}: nobody has {list_briefly(absent)} in column {column}; '
            f'{alternatives(absent, present)}; correct --control-label or --patient-label'
        )


def _complete_labels(
    present: list[str], controls: tuple[str, ...], patients: tuple[str, ...], both: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Labels of the two groups, the missing ones recognised; of one, where that is enough."""
    same = set(controls) & set(patients)
    if same:
        raise DataError(
            f'cannot mean controls and patients at once by {list_briefly(sorted(same))}'
        )
    if controls and patients:
        return controls, patients
    if patients:
        return _only_other(present, patients, '--control-label', both), patients
    controls = controls or _recognised_controls(present)
    return controls, _only_other(present, controls, '--patient-label', both)


def _refuse_opposite(column: str, controls: Sequence[str], patients: Sequence[str]) -> None:
    """Refuse groups whose names mean the opposite."""
    wrong = [label for label in patients if label.lower() in CONTROL_WORDS]
    wrong += [label for label in controls if label.lower() in PATIENT_WORDS]
    if wrong:
        raise DataError(
            f'column {column}: controls would be {list_briefly(controls)} and patients '
            f'{list_briefly(patients)}, but {list_briefly(wrong)} means the opposite; correct '
            '--control-label and --patient-label, or rename the values'
        )


def _recognised_controls(present: list[str]) -> tuple[str, ...]:
    for codes in CODES:
        if set(present) == set(codes):
            return tuple(code for code, group in codes.items() if group == CONTROL)
    controls = tuple(value for value in present if value.lower() in CONTROL_WORDS)
    if len(controls) != 1:
        count = 'more than one' if controls else 'none'
        raise DataError(
            f'holds {list_briefly(present) or "nothing"}: {count} of these is known to mean '
            'controls; name it with --control-label'
        )
    return controls


def _only_other(
    present: list[str], known: tuple[str, ...], option: str, needed: bool
) -> tuple[str, ...]:
    others = tuple(value for value in present if value not in known)
    if len(others) > 1 or (needed and not others):
        raise DataError(
            f'holds {list_briefly(others) or "nothing"} beside {list_briefly(known)}; name the '
            'other '
            f'group with {option}'
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
