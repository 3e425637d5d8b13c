"""The vocabulary of table columns: what the name of a column says about its content.

A name is read as words: `AgeAtBaseline`, `AGE_AT_BASELINE` and `ageatbaseline` are `age`, `at` and
`baseline`. A name has a meaning if it is a known spelling, or if one of its words has this meaning
and all others go with it: `age_at_scan` is an age, `age_at_onset` is another measure, and `dosage`
is one word of its own.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Hashable, Iterable
from functools import cache
from typing import Literal, NamedTuple

Meaning = Literal[
    'participant', 'session', 'repeat', 'diagnosis', 'age', 'sex', 'site', 'icv', 'date', 'birth',
    'total', 'fluid', 'measure', 'row number',
]  # fmt: skip
"""What a column can hold. `repeat` tells visits apart where the ids alone do not; otherwise it may
be another fact (SES: socio-economic status). `birth` is a year or date of birth; `total` is the
volume of the brain or of a tissue."""

SPELLINGS: dict[Meaning, tuple[str, ...]] = {
    'participant': (
        'participantid', 'participant', 'mrid', 'subjectid', 'subject', 'subid', 'sub', 'subj',
        'ptid', 'rid', 'id', 'eid', 'subjectkey', 'srcsubjectid', 'pseudonym', 'guid',
    ),
    'session': ('sessionid', 'session', 'sesid'),
    'repeat': (
        'visit', 'viscode', 'timepoint', 'wave', 'viscode2', 'eventname', 'redcapeventname', 'ses',
    ),
    'diagnosis': (
        'diagnosis', 'group', 'dx', 'diagnose', 'diagnostic', 'diagnostico', 'gruppe',
        'casecontrol',
    ),
    'age': (
        'age', 'ageatscan', 'ageyears', 'ageatvisit', 'ageatmri', 'ageinyears', 'ageyrs', 'età',
        'eta', 'ålder', 'alder', 'wiek', 'yaş', 'ikä', 'věk',
    ),
    'sex': (
        'sex', 'gender', 'ptgender', 'mf', 'kön', 'køn', 'kjønn', 'płeć', 'cinsiyet', 'sukupuoli',
        'pohlaví',
    ),
    'site': ('site', 'scanner', 'siteid', 'center', 'centre'),
    'icv': (
        'icv', 'headsize', 'headvolume', 'tiv', 'etiv', 'dlicv', 'estimatedtotalintracranialvol',
        'intracranialvolume',
        'totalintracranialvolume', 'musevolume702', 'muse702', '702', 'dlmusevolume702',
        'hmusevolume702',
    ),
    'date': (
        'acqtime', 'acqdate', 'acquisitiondate', 'scandate', 'mridate', 'examdate', 'visitdate',
    ),
    'birth': ('birthyear', 'yearofbirth', 'yob', 'birthdate', 'dateofbirth', 'dob'),
    'total': ('totalbrainvolume', 'tbv', 'wholebrain', 'gmv', 'wmv'),
    'fluid': ('csf',),
    'measure': (
        'cdr', 'date', 'handedness', 'label', 'r1', 'r2', 'r3', 'r4', 'r5', 'r6', 'run', 'hba1c',
        'nwbv', 'mpaccdigit', 'mpacctrailsb',
    ),
    'row number': (
        '', 'index', 'row', 'rows', 'rowname', 'rownames', 'x', 'unnamed0', 'rownumber',
    ),
}  # fmt: skip
"""Normalised spellings of each meaning; where a table has several, the first takes precedence."""


def fold(name: str) -> str:
    """Write a name in lower case without accents, to look it up."""
    plain = unicodedata.normalize('NFKD', unicodedata.normalize('NFKC', name).casefold())
    return ''.join(letter for letter in plain if not unicodedata.combining(letter))


def _words(text: str) -> tuple[str, ...]:
    return tuple(fold(text).split())


class Words(NamedTuple):
    """Words that give a name its meaning.

    Attributes
    ----------
    carry
        Words with the meaning; the first takes precedence.
    beside
        Words that may stand beside it.
    against
        Words beside which the name means something else.
    needs
        Further words of which one must be there.
    """

    carry: tuple[str, ...]
    beside: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


ANYWHERE = _words(
    'at of in the for scan scanning mri mr t 1 image imaging visit baseline bl screening entry '
    'enrollment enrolment inclusion exam examination assessment acquisition acq study test session '
    'time participant subject subj sub patient pt person demographics demo value final '
    'current raw x y v tp interview bei mrt'
)
"""Words that do not change the meaning of most names."""

NUMBERING = _words('id ids no nr num number code name label key identifier nummer numero')

REGIONAL = _words(
    'left right lh rh volume vol thickness area gyrus sulcus lobe cortex cortical hippocampus '
    'hippocampal amygdala thalamus caudate putamen pallidum accumbens insula cerebellum cerebellar '
    'cingulate entorhinal fusiform temporal frontal parietal occipital anterior posterior central '
    'ventral dorsal stem chiasm callosum muse'
)
"""Words in the names of regions."""

UNITS = _words('mm cm cc ml l 3')

VOCABULARY: dict[Meaning, Words] = {
    'sex': Words(
        _words(
            'sex gender ptgender ptsex sexe sexo geschlecht sesso geslacht genero пол 性別 性别 '
            '성별 male female'
        ),
        ANYWHERE
        + NUMBERING
        + _words(
            'biological bio birth assigned self reported legal is m f w mf fm wm mw 0 2 01 binary '
            'bin'
        ),
        _words(
            'hormone hormones partner partners orientation drive ratio chromosome chromosomes '
            'function satisfaction same interaction age'
        ),
    ),
    'age': Words(
        _words('age ages ptage alter edad idade leeftijd возраст 年齢 年龄 年齡 나이 연령 ηλικία'),
        ANYWHERE
        + _words(
            'years year yr yrs decimal exact rounded int calculated calc chronological when '
            'attended centre center jahre jahren jaren anos anni ans'
        ),
        _words(
            'onset diagnosis dx group groups category cat bin bins band bands class range brain '
            'bone gestational gest mental biological epigenetic predicted pred estimated gap delta '
            'difference diff mother father maternal paternal parent partner death menopause z '
            'score squared sq log retirement education sex'
        ),
    ),
    'site': Words(
        _words(
            'site sites siteid scanner scanners scannerid center centre centro zentrum standort '
            'hospital hopital klinik klinikum krankenhaus clinic ospedale sede studienzentrum 施設 '
            'institution institute facility station device manufacturer manufacturers '
            'vendor'
        ),
        ANYWHERE + NUMBERING + _words('model serial type make l recruitment collection data info'),
        _words(
            'upgrade upgrades drift effect change software version investigator pi distance field '
            'strength years months'
        ),
    ),
    'diagnosis': Words(
        _words('diagnosis dx diagnose diagnostic group gruppe'),
        ANYWHERE + NUMBERING + _words('clinical research status consensus'),
        _words('sub time age blood ethnic since years'),
    ),
    'birth': Words(
        _words(
            'birth born yob dob ptdob ptdobyy geburtsjahr geburtsdatum geburt naissance nacimiento'
        ),
        _words('year date day month of yyyy yy de annee ano fecha'),
    ),
    'date': Words(
        _words('date datum fecha'),
        _words(
            'scan mri mr visit exam acquisition acq session image imaging test assessment of the '
            'time'
        ),
        needs=_words('scan mri mr visit exam acquisition acq session image imaging assessment'),
    ),
    'participant': Words(
        _words('participant subject patient subj record person proband volunteer'),
        (*NUMBERING, 'src', 'study'),
        needs=NUMBERING,
    ),
    'session': Words(('session',), NUMBERING),
    'repeat': Words(('visit', 'viscode', 'timepoint', 'wave', 'followup'), NUMBERING),
    'icv': Words(
        _words('icv tiv ticv etiv dlicv icvol intracranial intracranialv cranial'),
        ANYWHERE
        + UNITS
        + _words(
            'total estimated est e volume vol head size dl muse dlmuse h fs freesurfer spm cat 12 '
            'intra measure measured smri scs manual vault'
        ),
        _words(
            'to per by ratio fraction percent percentage pct norm normalized normalised adjusted'
        )
        + tuple(set(REGIONAL) - {'volume', 'vol', 'muse'}),
    ),
    'total': Words(
        _words(
            'tbv gmv wmv tgm twm wholebrain brain gm wm gray grey white parenchyma parenchymal '
            'tissue cortex total sum'
        ),
        ANYWHERE + UNITS + _words('whole all volume vol matter cerebral global'),
    ),
    'fluid': Words(
        _words('csf ventricle ventricles ventricular cerebrospinal vent'),
        ANYWHERE
        + UNITS
        + _words(
            'left right lh rh r lateral lat inf inferior third fourth 4 rd th total volume vol '
            'fluid system'
        ),
    ),
}
"""Words of the meanings, in the order in which they are tried."""

MEASURES = frozenset(
    _words(
        'education educ pteducat edu schooling mmse moca cdr cdrsb cdrsum cdrglob adas adascog '
        'ravlt faq gds npi updrs panss hamd hdrs phq bdi wais iq tmt score scores scale '
        'questionnaire apoe bmi height weight race ethnicity ptraccat ptethcat handedness '
        'handed euler cohort dataset study project protocol batch income smoking smoker alcohol '
        'diabetes hypertension systolic diastolic cholesterol glucose abeta amyloid tau ptau suvr '
        'centiloid nfl gfap fdg pib dose dosage medication duration onset months month years year '
        'days day weeks date time hour qc snr cnr efc fwhm motion quality rating tesla strength id '
        'uid uuid number code serial version status phenotype genotype allele pack blood pressure '
        'heart rate bildung email phone zip address av45 av ecog mpacc ldeltotal digitscor '
        'trabscor asf delay hand fldstreng fsversion colprot origprot wmh'
    )
)
"""Words of other facts about participants, unless a name also has a word of regions."""

VOLUMES: tuple[Meaning, ...] = ('total', 'fluid')
"""Meanings of columns that hold volumes, but of no region."""

NOUNS: dict[Meaning, str] = {
    'participant': 'id',
    'repeat': 'visit',
    'icv': 'head size',
    'birth': 'year or date of birth',
    'total': 'sum of regions',
}
"""Words for meanings that do not explain themselves."""

SEXES = {
    'F': frozenset(
        {'f', 'female', 'w', 'woman', 'women', 'females', 'weiblich', 'frau', 'femme', 'mujer',
         'femenino', 'féminin', 'feminino', 'femmina', 'donna', 'vrouw', 'kvinna', 'kvinne',
         'kvinde', 'kobieta', 'k', 'girl', 'ж', 'жен', 'женский', '여', '여성', '女', '女性'}
    ),
    'M': frozenset(
        {'m', 'male', 'man', 'men', 'males', 'männlich', 'mann', 'homme', 'hombre', 'masculino',
         'masculin', 'maschio', 'uomo', 'mand', 'mężczyzna', 'erkek', 'h', 'boy', 'м', 'муж',
         'мужской', '남', '남성', '男', '男性'}
    ),
}  # fmt: skip
"""Words for each sex, in lower case."""

UK_BIOBANK: dict[int, Meaning] = {
    31: 'sex', 34: 'birth', 53: 'date', 54: 'site', 21003: 'age', 26521: 'icv',
}  # fmt: skip
"""Fields of UK Biobank, whose columns are called `f.21003.2.0`, `21003-2.0` or `p21003_i2`."""

FIXED = (31, 34)
"""Fields that do not change between visits."""

_BIOBANK = re.compile(
    r'(?:[fnpx][._]?)?(\d+)(?:[-._](?=\d[._]\d)|_i)(\d)([._]a?\d+)?', re.IGNORECASE
)
_PARTS = re.compile(r'\d+|[^\W\d_]+')
_HUMP = re.compile(r'(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])')


def normalise_name(name: str) -> str:
    """Reduce a name to its lower-case letters and digits, of any script."""
    folded = unicodedata.normalize('NFKC', name).casefold()
    return ''.join(character for character in folded if character.isalnum())


def words_of(name: str) -> list[str]:
    """Split a name at signs, digits and capitals, and into known words."""
    parts = _PARTS.findall(unicodedata.normalize('NFKC', name))
    humps = [fold(hump) for part in parts for hump in _HUMP.split(part)]
    return [word for hump in humps for word in _known_words(hump) or (hump,)]


@cache
def _vocabulary() -> frozenset[str]:
    """Return all words of at least two letters."""
    known = {word for words in VOCABULARY.values() for group in words for word in group}
    return frozenset(word for word in {*known, *MEASURES, *REGIONAL} if len(word) > 1)


@cache
def _known_words(text: str) -> tuple[str, ...]:
    """Divide letters into known words: `ageatscan` into age, at, scan; empty if some are left."""
    if text in _vocabulary():
        return (text,)
    for end in range(len(text) - 1, 1, -1):
        rest = _known_words(text[end:]) if text[:end] in _vocabulary() else ()
        if rest:
            return (text[:end], *rest)
    return ()


@cache
def meaning_of(name: str) -> Meaning | None:
    """Return the meaning of the name of a column; None if it may be a region."""
    normalised = normalise_name(name)
    exact = (meaning for meaning, known in SPELLINGS.items() if normalised in known)
    return (
        next(exact, None)
        or _meaning_in_biobank(name)
        or _meaning_of_words(frozenset(words_of(name)))
    )


def _meaning_in_biobank(name: str) -> Meaning | None:
    """Return the meaning of a field of UK Biobank; images are of visits 2 and 3."""
    field = _BIOBANK.fullmatch(name)
    if field is None:
        return None
    number, visit = int(field[1]), int(field[2])
    return UK_BIOBANK.get(number) if number in FIXED or visit > 1 else None


def _meaning_of_words(found: frozenset[str]) -> Meaning | None:
    for meaning, words in VOCABULARY.items():
        if _fits(found, words):
            return meaning
    others = (words.carry for meaning, words in VOCABULARY.items() if meaning not in VOLUMES)
    known = MEASURES.union(*others)
    return None if not found.isdisjoint(REGIONAL) or found.isdisjoint(known) else 'measure'


def _fits(found: frozenset[str], words: Words) -> bool:
    """Check whether words have a meaning: one carries it, and all others may stand beside it."""
    if found.isdisjoint(words.carry) or not found.isdisjoint(words.against):
        return False
    if words.needs and found.isdisjoint(words.needs):
        return False
    return found <= {*words.carry, *words.beside}


@cache
def may_mean(name: str, meaning: Meaning) -> bool:
    """Check whether a name has a word of a meaning beside words that are not known."""
    found, words = frozenset(words_of(name)), VOCABULARY[meaning]
    return (
        meaning_of(name) in (None, 'measure')
        and not found.isdisjoint(words.carry)
        and found.isdisjoint(words.against)
    )


def means(name: Hashable, *meanings: Meaning) -> bool:
    """Check whether the name of a column has one of these meanings."""
    return meaning_of(str(name)) in meanings


def columns_of(columns: Iterable[Hashable], meaning: Meaning) -> list[str]:
    """Find all columns with a meaning, those with the preferred spelling first."""
    found = [str(name) for name in columns if means(name, meaning)]
    return sorted(found, key=lambda name: _precedence(name, meaning))


def _precedence(name: str, meaning: Meaning) -> tuple[int, int]:
    """Return the place of a name among the spellings of a meaning, then among its words."""
    spellings, normalised = SPELLINGS[meaning], normalise_name(name)
    if normalised in spellings:
        return spellings.index(normalised), 0
    found = words_of(name)
    carry = VOCABULARY[meaning].carry if meaning in VOCABULARY else ()
    places = [place for place, word in enumerate(carry) if word in found]
    return len(spellings), min(places, default=0)


def column_of(columns: Iterable[Hashable], meaning: Meaning) -> str | None:
    """Find the column with a meaning, by its preferred spelling; None if there is none."""
    return next(iter(columns_of(columns, meaning)), None)


def describes_participants(name: Hashable) -> bool:
    """Check whether a column is known to hold facts about participants, not volumes."""
    return meaning_of(str(name)) not in (None, 'row number', *VOLUMES)


def names_region(name: str) -> bool:
    """Check whether a name has a word of regions, such as left, gyrus or volume."""
    return not set(words_of(name)).isdisjoint(REGIONAL)


def noun(meaning: Meaning | None) -> str:
    """Say what a meaning is; empty if there is none."""
    return '' if meaning is None else NOUNS.get(meaning, meaning)


def noun_of(name: str) -> str:
    """Say what the name of a column means; empty if it is not known."""
    return noun(meaning_of(name))


def sex_of(word: str) -> str | None:
    """Return 'F' or 'M' for a word that names a sex; None for any other word."""
    return next((sex for sex, words in SEXES.items() if word.lower() in words), None)
