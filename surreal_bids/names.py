"""Names of columns, groups, participants and visits.

A column is recognised if its letters and digits are one of the names below: those of BIDS, NiChart,
FreeSurfer and ADNI, in English. Options name all other columns.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable
from typing import Literal

PARTICIPANT = 'participant_id'
SESSION = 'session_id'

CONTROL, PATIENT = 'CN', 'PT'
"""Names of the two groups in outputs."""

SINGULAR = {CONTROL: 'control', PATIENT: 'patient'}
GROUP_NAMES = {group: f'{name}s' for group, name in SINGULAR.items()}
"""Nouns for a participant of each group, and for several."""

LABEL = re.compile(r'[0-9a-zA-Z+]+')
"""Labels of BIDS 1.10 and later; they contain no path separators."""

Visit = tuple[str, str | None]
"""Labels of a participant and a session; None without sessions."""


def is_label(value: object) -> bool:
    """Tell whether a value is a BIDS label: letters, digits and `+`, at least one."""
    return isinstance(value, str) and LABEL.fullmatch(value) is not None


def without_prefix(value: str, prefix: str) -> str:
    """Turn `sub-01` into `01` (for the prefix `sub`), and leave `01` as it is."""
    return value.removeprefix(f'{prefix}-')


def visit_name(visit: Visit, prefix: str = 'sub-') -> str:
    """Return the name of a visit: `sub-01` or `sub-01_ses-02`."""
    participant, session = visit
    return f'{prefix}{participant}' + (f'_ses-{session}' if session else '')


Role = Literal[
    'participant', 'session', 'diagnosis', 'age', 'sex', 'site', 'icv', 'date', 'birth',
    'identifier', 'index',
]  # fmt: skip
"""What a column can be recognised as. `identifier` and `birth` are never used; `index` counts
rows."""

NAMES: dict[Role, tuple[str, ...]] = {
    'participant': (
        'participantid', 'participant', 'mrid', 'subjectid', 'subject', 'subid', 'subjid', 'sub',
        'subj', 'ptid', 'rid', 'id', 'eid', 'subjectkey', 'srcsubjectid', 'patientid', 'recordid',
        'bidsid', 'subjectcode', 'pseudonym', 'guid', 'ixiid',
    ),
    'session': (
        'sessionid', 'session', 'sesid', 'visit', 'visitid', 'viscode', 'visitcode', 'timepoint',
        'wave', 'viscode2', 'eventname', 'redcapeventname', 'ses',
    ),
    'diagnosis': (
        'diagnosis', 'group', 'dx', 'dxbl', 'dxgroup', 'diagnosticgroup', 'diagnosisgroup',
        'clinicaldiagnosis', 'researchgroup', 'casecontrol',
    ),
    'age': (
        'age', 'ageatscan', 'agescan', 'ageyears', 'ageinyears', 'ageyrs', 'ageatvisit', 'ageatmri',
        'agemri', 'ageatsession', 'ageatexam', 'ptage', 'ageatentry', 'ageatbaseline', 'agebl',
        'agebaseline',
    ),
    'sex': (
        'sex', 'gender', 'ptgender', 'ptsex', 'biologicalsex', 'sexatbirth', 'mf', 'sexmf',
        'sexfm', 'gendermf',
    ),
    'site': (
        'site', 'siteid', 'scanner', 'scannerid', 'center', 'centre', 'scansite', 'studysite',
        'sitename', 'scannername', 'scannermodel', 'acquisitionsite', 'institution',
        'institutionname', 'hospital', 'deviceserialnumber', 'manufacturersmodelname',
    ),
    'icv': (
        'icv', 'tiv', 'etiv', 'dlicv', 'estimatedtotalintracranialvol', 'intracranialvolume',
        'totalintracranialvolume', 'totalintracranialvol', 'totalintracranial',
        'estimatedtotalintracranialvolume', 'intracranialvol', 'ticv', 'icvmm3', 'tivmm3',
        'headsize', '702', 'muse702', 'musevolume702', 'dlmusevolume702', 'hmusevolume702',
    ),
    'date': (
        'acqtime', 'acqdate', 'acquisitiondate', 'scandate', 'mridate', 'examdate', 'visitdate',
        'sessiondate',
    ),
    'birth': ('birthyear', 'yearofbirth', 'yob', 'birthdate', 'dateofbirth', 'dob', 'ptdob'),
    'identifier': (
        'imageuid', 'imageid', 'imagedataid', 'loniuid', 'loniid', 'scanid', 'seriesid',
        'seriesuid', 'studyuid', 'uid', 'uuid', 'colprot', 'origprot', 'filename', 'bidsname',
    ),
    'index': (
        '', 'index', 'row', 'rownames', 'rowname', 'x', 'unnamed0', 'rownumber', 'nr', 'no', 'num',
        'number', 'obs', 'lfdnr', 'rowid', 'sno', 'srno', 'serial', 'serialno',
    ),
}  # fmt: skip
"""Letters and digits of each name; where a table has several, the first takes precedence."""

NOUNS: dict[Role, str] = {
    'participant': 'id',
    'icv': 'head size',
    'birth': 'date of birth',
    'index': 'row number',
}
"""Words for roles that do not explain themselves."""

SEXES = {
    **dict.fromkeys(('f', 'female', 'females', 'woman', 'women', 'w', 'girl'), 'F'),
    **dict.fromkeys(('m', 'male', 'males', 'man', 'men', 'boy'), 'M'),
}
"""Words for each sex, in lower case."""

CONTROL_WORDS = frozenset(
    {'cn', 'cognitivelynormal', 'cognitivelyunimpaired', 'con', 'control', 'controls', 'ctl',
     'ctrl', 'cu', 'hc', 'hcs', 'healthy', 'healthycontrol', 'healthycontrols', 'healthyvolunteer',
     'healthyvolunteers', 'hv', 'nc', 'normal', 'normalcontrol', 'normalcontrols', 'nondemented',
     'td', 'typicallydeveloping'}
)  # fmt: skip
"""Values of a diagnosis that mean a control, as `letters_of` writes them."""

PATIENT_WORDS = frozenset(
    {'ad', 'adhd', 'alzheimer', 'alzheimers', 'alzheimersdisease', 'als', 'asd', 'autism',
     'bipolar', 'bvftd', 'case', 'cases', 'demented', 'dementia', 'depression', 'epilepsy', 'ftd',
     'mdd', 'ms', 'parkinson', 'parkinsons', 'patient', 'patients', 'pd', 'pt', 'schizophrenia',
     'scz', 'stroke', 'sz'}
)  # fmt: skip
"""Values of a diagnosis that cannot mean a control, as `letters_of` writes them."""

CODES = ({'0': CONTROL, '1': PATIENT}, {'-1': CONTROL, '1': PATIENT})
"""Numbers that stand for the groups; the authors' program uses the second set."""


def letters_of(name: object) -> str:
    """Reduce a name to its letters and digits, in lower case."""
    return ''.join(filter(str.isalnum, str(name).casefold()))


_ROLES: dict[str, Role] = {name: role for role, names in NAMES.items() for name in names}


def role_of(name: Hashable) -> Role | None:
    """Return what a column is called after; None if its name is not known."""
    return _ROLES.get(letters_of(name))


def means(name: Hashable, *roles: Role) -> bool:
    """Check whether a column is called after one of these roles."""
    return role_of(name) in roles


def columns_of(columns: Iterable[Hashable], role: Role) -> list[str]:
    """Find all columns with a role, those with the preferred name first."""
    found = [str(name) for name in columns if role_of(name) == role]
    return sorted(found, key=lambda name: NAMES[role].index(letters_of(name)))


def column_of(columns: Iterable[Hashable], role: Role) -> str | None:
    """Find the column with a role, by its preferred name; None if there is none."""
    return next(iter(columns_of(columns, role)), None)


def noun_of(name: Hashable) -> str:
    """Say what a column is called after; empty if its name is not known."""
    role = role_of(name)
    return '' if role is None else NOUNS.get(role, role)


def meanings_of(values: Collection[str]) -> dict[str, str | None]:
    """Return CN, PT or None for each value of a diagnosis, by its name or a code of all values."""
    codes = next((codes for codes in CODES if {*codes} == {*values}), {})
    words = dict.fromkeys(CONTROL_WORDS, CONTROL) | dict.fromkeys(PATIENT_WORDS, PATIENT)
    return {value: codes.get(value, words.get(letters_of(value))) for value in sorted(values)}


def sex_of(word: str) -> str | None:
    """Return 'F' or 'M' for a word that names a sex; None for any other word."""
    return SEXES.get(word.lower())
