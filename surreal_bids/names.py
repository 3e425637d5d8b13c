"""Names of columns, groups, participants and visits.

A column is recognised if its letters and digits are one of the names below: those of BIDS, NiChart,
FreeSurfer and ADNI, in English. Options name all other columns.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable
from typing import Literal, NamedTuple

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


_NAMED_VISIT = re.compile(r'(.+)_ses-([A-Za-z0-9+]+)')
_LONGITUDINAL = re.compile(r'(.+?)\.long\.(.+)')
_BASE_WORD = re.compile(
    r'(base|template|tmpl|tpl)[_.-](?P<after>.+)|'
    r'(?P<before>.+)[_.-](base|template|tmpl|tpl|long)(\d|-[a-z0-9]+)?',
    re.IGNORECASE,
)
"""Ids of bases that name the participant and say that they are a base."""


class LongitudinalScan(NamedTuple):
    """A scan of FreeSurfer's longitudinal stream, whose id is `SCAN.long.BASE`."""

    scan: str
    base: str
    visit: Visit


def read_visit_name(name: str) -> Visit | None:
    """Read participant and session of `sub-01_ses-02`; None for any other name."""
    named = _NAMED_VISIT.fullmatch(name)
    return None if named is None else (without_prefix(named[1], 'sub'), named[2])


def longitudinal_scan(name: str) -> LongitudinalScan | None:
    """Read the id of a scan of FreeSurfer's longitudinal stream; None for any other id.

    All scans of a base are of one participant. The base is usually called after the participant:
    `T1_0005.long.0005` is of `0005`, session `T1`. Otherwise, the base is the participant and the
    scan is the session.

    Examples
    --------
    >>> longitudinal_scan('002_S_0295_2011-06-02.long.002_S_0295_base3').visit
    ('002_S_0295', '2011-06-02')
    """
    parts = _LONGITUDINAL.fullmatch(name)
    if parts is None:
        return None
    scan, base = without_prefix(parts[1], 'sub'), without_prefix(parts[2], 'sub')
    visit = read_visit_name(parts[1])
    for participant in (base, _participant_of_base(base)):
        session = rest_of_scan(scan, participant)
        if visit is None and session:
            visit = participant, without_prefix(session, 'ses')
    return LongitudinalScan(parts[1], parts[2], visit or (base, scan))


def _participant_of_base(base: str) -> str:
    """Return the id in the name of a base: `0005` for `0005_base`; empty if there is none."""
    named = _BASE_WORD.fullmatch(base)
    participant = '' if named is None else named['before'] or named['after']
    # A name without a number, as in study_base1, may be that of a study.
    return without_prefix(participant, 'sub') if re.search(r'\d', participant) else ''


def rest_of_scan(scan: str, participant: str) -> str:
    """Return `T1` for the scan `T1_0005` of `0005`; empty if the scan is not called after it."""
    if not participant:
        return ''
    after = re.fullmatch(rf'{re.escape(participant)}[_.-](.+)', scan)
    before = re.fullmatch(rf'(.+)[_.-]{re.escape(participant)}', scan)
    found = after or before
    return found[1] if found else ''


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
        'agebaseline', 'ageatmr', 'agemr', 'mrage', 'mriage', 'scanage', 'ageatmriscan', 'ageyr',
        'ageatimaging', 'ageatassessment', 'ageattest', 'ageattesting', 'ageatacquisition',
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
