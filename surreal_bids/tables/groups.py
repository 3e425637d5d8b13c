"""Who is a control and who is a patient: said by the user, or recognised and reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from surreal_bids.bids.labels import alternatives
from surreal_bids.bids.participants import GROUP_COLUMNS, Table, find_group_column
from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.tables import name_some
from surreal_bids.tables.reading import names, require_columns

CONTROL, PATIENT = 'CN', 'PT'
"""What the two groups are called in outputs."""

CONTROL_WORDS = frozenset(
    {'cn', 'control', 'controls', 'con', 'ctl', 'ctrl', 'cu', 'hc', 'healthy', 'healthy control',
     'healthy_control', 'hv', 'nc', 'normal', 'td'}
)  # fmt: skip
"""Values of a diagnosis that mean a control, in any case."""

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
    """

    column: str | None = None
    controls: Sequence[str] = ()
    patients: Sequence[str] = ()

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
        how = 'recognised' if self.recognised else 'as given'
        return (
            f'column {self.column}: controls are {", ".join(self.control_labels)}, '
            f'patients are {", ".join(self.patient_labels)} ({how})'
        )


def find_groups(people: Table, said: GroupLabels = SAID_NOTHING) -> Groups:
    """Tell controls from patients.

    Parameters
    ----------
    people
        Table with a column of the diagnosis.
    said
        What the user said; the rest is recognised.

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
        controls, patients = _complete_labels(present, tuple(said.controls), tuple(said.patients))
    except DataError as error:
        raise DataError(f'{people.source}: column {column} {error}') from error
    in_group = values.isin((*controls, *patients))
    return Groups(
        column,
        controls,
        patients,
        not said.says_all,
        values[in_group].isin(patients),
        {str(person): value for person, value in values[~in_group].items()},
    )


def _group_column(people: Table, column: str | None) -> str:
    if column is not None:
        return require_columns(people, [column])[column]
    found = find_group_column(people)
    if found is None:
        raise DataError(
            f'{people.source}: no column {" or ".join(GROUP_COLUMNS)}; name that of the diagnosis '
            f'with --group-column ({alternatives(GROUP_COLUMNS, people.columns)})'
        )
    return found


def _require_labels(people: Table, column: str, present: list[str], labels: Sequence[str]) -> None:
    absent = [label for label in labels if label not in present]
    if absent:
        raise DataError(
            f'{people.source}: nobody has {name_some(absent)} in column {column}; '
            f'{alternatives(absent, present)}; correct --control-label or --patient-label'
        )


def _complete_labels(
    present: list[str], controls: tuple[str, ...], patients: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Labels of the two groups, the missing ones recognised."""
    both = set(controls) & set(patients)
    if both:
        raise DataError(f'cannot mean controls and patients at once by {name_some(sorted(both))}')
    if controls and patients:
        return controls, patients
    if patients:
        return _only_other(present, patients, '--control-label'), patients
    controls = controls or _recognised_controls(present)
    return controls, _only_other(present, controls, '--patient-label')


def _recognised_controls(present: list[str]) -> tuple[str, ...]:
    for codes in CODES:
        if set(present) == set(codes):
            return tuple(code for code, group in codes.items() if group == CONTROL)
    controls = tuple(value for value in present if value.lower() in CONTROL_WORDS)
    if len(controls) != 1:
        count = 'more than one' if controls else 'none'
        raise DataError(
            f'holds {name_some(present) or "nothing"}: {count} of these is known to mean '
            'controls; name it with --control-label'
        )
    return controls


def _only_other(present: list[str], known: tuple[str, ...], option: str) -> tuple[str, ...]:
    others = tuple(value for value in present if value not in known)
    if len(others) != 1:
        raise DataError(
            f'holds {name_some(others) or "nothing"} beside {name_some(known)}; name the other '
            f'group with {option}'
        )
    return others
