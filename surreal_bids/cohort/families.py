"""Which columns of a table of volumes belong together, and which may be no regions.

A table of an unknown atlas has no list of regions to compare with. Its regions resemble each other:
they have a left and a right column, words of anatomy, or a beginning or end in common, and their
values are of one kind. Measures such as MMSE, BMI or the quality of an image do not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from surreal_bids.names import letters_of
from surreal_bids.text import list_briefly

MIN_FAMILY = 8
"""Number of columns with a column for the other side that shows what regions are called."""

MIN_SHARED = 2
"""Number of regions with the same beginning or end that a column of this family shares."""

FEW_VALUES, FEW_IN_A_REGION = 1 / 3, 3
"""Share of the different values of a usual region below which a column has few: scores have 20
levels where volumes differ in everyone. Number of values that no region has."""

MANY_VALUES = 20
"""Number of different values of a usual region from which the second limit applies."""

OTHER_SCALE = 10.0
"""Factor beyond the smallest and largest region that shows another quantity."""

HARDLY_ANY, SIGNIFICANT = 0.05, 1.96
"""Share of regions that may be less related to the size of the brain than a column, and correlation
beyond chance, in standard errors of zero: below both, it is no region."""

NORMAL_SD_PER_MAD = 1.4826
"""Standard deviation of a normal distribution whose median absolute deviation is 1."""

SUM_TOLERANCE = 2e-3
"""Largest relative deviation of a sum of rounded volumes; two regions differ by far more."""

MIN_FOR_SUMS = 10
"""Minimum number of participants to call a column the sum of others."""

MOST_UNEXPLAINED = 1e-4
"""Share of variance that the other columns do not explain, below which a column may be a sum."""

WORDS_OF_MEASURES = frozenset(
    {'mmse', 'moca', 'cdr', 'adas', 'faq', 'gds', 'npi', 'ravlt', 'avlt', 'cvlt', 'tmt', 'iq',
     'fsiq', 'wais', 'wisc', 'wasi', 'nart', 'stroop', 'fluency', 'digitspan', 'span', 'panss',
     'sans', 'saps', 'bprs', 'hamd', 'hdrs', 'hama', 'madrs', 'bdi', 'bai', 'phq', 'gad', 'ymrs',
     'updrs', 'edss', 'sdmt', 'pasat', 'nihss', 'gaf', 'cgi', 'score', 'scores', 'subscore',
     'severity', 'duration', 'onset', 'relapses', 'episodes', 'dose', 'cpz', 'medication',
     'treatment', 'age', 'edu', 'educ', 'education', 'schooling', 'year', 'years', 'yrs', 'month',
     'months', 'birth', 'handedness', 'handed', 'bmi', 'weight', 'height', 'waist', 'race',
     'ethnicity', 'income', 'smoking', 'smoker', 'alcohol', 'apoe', 'apoe4', 'abeta', 'amyloid',
     'ptau', 'tau', 'nfl', 'gfap', 'suvr', 'centiloid', 'centiloids', 'hba', 'glucose',
     'cholesterol', 'systolic', 'diastolic', 'sbp', 'dbp', 'hypertension', 'diabetes', 'qc', 'qa',
     'iqr', 'euler', 'snr', 'cnr', 'cjv', 'efc', 'fber', 'qi', 'fwhm', 'fd', 'motion', 'rating',
     'ratings', 'quality', 'holes', 'defects', 'scanner', 'serial', 'tesla', 'coil',
     'manufacturer', 'brainage', 'brainpad', 'gap', 'id', 'rid', 'subject', 'session', 'visit',
     'date', 'death', 'dead', 'survival', 'followup', 'converter', 'mass'}
)  # fmt: skip
"""Words in names of measures and of facts about participants or images, in lower case."""

START_OF_MEASURE = re.compile(
    'mmse|moca|bmi|educ|euler|brainage|scanner|panss|updrs|adas|hamd|madrs|apoe|ptau|handed|'
    'ageat|yearsof|cognit|depress|anxiety|smok|hba1c|nfl'
)
"""How words of measures start that are written together, such as `mmsetotal`."""

SHORT = 3
"""Number of letters of short words, which can also be abbreviations of regions."""

WORDS_OF_ANATOMY = frozenset(
    {'acc', 'pcc', 'ofc', 'sma', 'pfc', 'dlpfc', 'mpfc', 'vmpfc', 'fef', 'ifg', 'mfg', 'sfg',
     'stg', 'mtg', 'itg', 'spl', 'ipl', 'scp', 'bst', 'oc', 'cc', 'vermis', 'ver', 'vdc', 'gp',
     'gpe', 'gpi', 'stn', 'sn', 'snc', 'rn', 'lgn', 'mgn', 'nac', 'amy', 'tha', 'put', 'cau', 'pal',
     'acb', 'vta', 'ins', 'aaa', 'hata', 'ca', 'dg', 'pons', 'pole', 'uncus', 'rectus', 'vent',
     'fissure', 'hyp', 'cblm', 'stem', 'genu', 'raphe', 'limbic', 'smg', 'tpj', 'ips', 'vpl', 'pag',
     'drn', 'pcun', 'olive'}
)  # fmt: skip
"""Short words in names of regions, in lower case."""

PART_OF_ANATOMY = re.compile(
    'amygd|hipp|thal|caudat|putam|pallid|accumb|striat|gangli|cerebel|cerebr|vermis|lobul|lobe|'
    'gyr|sulc|corte|cortic|frontal|pariet|occipit|temporal|insul|cingul|cune|calcarin|lingual|'
    'fusiform|rolandic|opercul|orbit|heschl|planum|bankssts|entorhin|perirhin|rhinal|subicul|'
    'fimbria|fornix|molecularlayer|gcmldg|dentate|callos|capsul|brainstem|medulla|midbrain|'
    'cephal|diencephalon|ventraldc|nucle|nigra|septum|septal|mammill|habenul|genicul|pulvinar|'
    'claustr|cbe|cbr|fobbr|forebrain|splenium|pontin|chiasm|peduncle|fascic|radiata|whitematter|gr[ae]ymatter|precentral|'
    'postcentral|paracentral|triangularis|supramarg|angular|olfact|hypothal|tract|'
    'intermedia|coerul|c[ae]?eruleus|tegment|collicul|periaqu|peduncul|olivar|reticular|parabrach|'
    'trigemin|hypogloss|solitari|incerta|innominat|lenticul|meynert|reuniens|preoptic|supraoptic|'
    'paraventric|arcuat|infundib|tuberal|fornic|pituitar|hypophys|pineal|retrosplen|operc|fusg|'
    'precg|postcg'
)
"""Parts of names of regions, as `letters_of` writes them."""

THICKNESS, THICKNESS_CV = (1.0, 6.0), 0.11
"""Range of the median cortical thickness of a region in mm, and the variation between participants
below which regions are thick, not large: 5 to 8 % for thickness and 12 to 20 % for volumes."""

MOST_RELATED_THICKNESS, BEYOND_CHANCE = 0.25, 1.645
"""Rank correlation with head size that cortical thickness may have, and standard errors beyond it:
in two real samples (1243 participants), mean thickness had 0.13 and 0.20, 0.24 among controls, and
volumes of cortex had 0.6 to 0.9 at all sites with more than 50 participants."""

MIN_TO_RELATE = 10
"""Minimum number of participants to relate thickness and head size."""

NO_THICKNESS = re.compile(
    'vol|surf|mm3|cm3|amygd|(?<!para)hipp|thal|caudat|putam|pallid|accumb|brainstem|subicul|nucle|cerebel'
)
"""Parts of names that cortical thickness does not have, as `letters_of` writes them."""

ALSO_NO_ANATOMY = frozenset({'ver', 'sn', 'cc', 'ca', 'put'})
"""Short words of anatomy that also have another meaning, such as version or serial number: they do
not make a region of `IQ_ver`."""

_MASS_INTERMEDIA = re.compile(r'mass[\W_]*(?=intermedia)', re.IGNORECASE)
"""The only region with a word of measures that is longer than `SHORT`."""

_PRIMARY_AREA = re.compile(r'[vmsa]\d')
"""Cortical areas such as V1 and M1."""

_WORD = re.compile(r'[A-Z]+(?![a-z])|[A-Z]?[a-z]+')
"""Words in a name; a capital letter within it starts another."""

_OTHER_SIDE = {'left': 'right', 'right': 'left', 'lh': 'rh', 'rh': 'lh', 'l': 'r', 'r': 'l'}
_SIDE = re.compile(
    '(?<![a-z])(left|right|lh|rh|l|r)(?![a-z])|^(?:left|right|lh|rh|l|r)|(?:left|right|lh|rh|l|r)$'
)
"""Sides in names in lower case: words, or what a name starts or ends with (`Lhippo`)."""


class Doubts(NamedTuple):
    """Columns that may be no regions, each with the reason.

    Attributes
    ----------
    strangers
        Columns that are clearly of another kind; they are better not used.
    sums
        Columns that are sums of others.
    guesses
        Columns that are used, although they may be no regions.
    """

    strangers: dict[str, str]
    sums: dict[str, str]
    guesses: dict[str, str]


def doubtful_columns(values: pd.DataFrame) -> Doubts:
    """Find columns that may be no regions, by what they have in common with the others.

    Parameters
    ----------
    values : frame of shape (n_visits, n_columns)
        Numbers of the columns that may be regions, NaN where missing.
    """
    names = values.columns.tolist()
    relatives, are_known = find_family(names)
    unusual = [name for name in names if name not in relatives]
    usual = values.drop(columns=unusual) if are_known else values
    strangers = values_unlike(values[unusual], usual) | few_values(values)

    regions = values.drop(columns=list(strangers))
    sums = sums_of_others(regions)
    singles = regions.drop(columns=list(sums))
    guesses = far_above_all(singles)
    for name in unusual if are_known else ():
        if name in singles:
            guesses.setdefault(name, 'its name has nothing in common with the others')
    return Doubts(strangers, sums, guesses)


def are_thicknesses(values: pd.DataFrame, head_size: pd.Series | None = None) -> bool:
    """Check whether columns are cortical thickness in mm, by their names and values.

    Parameters
    ----------
    values : frame of shape (n_visits, n_columns)
        Numbers of the columns, NaN where missing.
    head_size : Series, or None
        Head size of one visit of each participant; None: it is not known. Volumes in cm3 may have
        the values of thickness, but follow head size.
    """
    if values.empty or any(NO_THICKNESS.search(letters_of(name)) for name in values):
        return False
    medians = values.median()
    spread = NORMAL_SD_PER_MAD * (values - medians).abs().median() / medians
    if not medians.between(*THICKNESS).all() or not spread.median() < THICKNESS_CV:
        return False
    return are_called_thickness(map(str, values)) or not _follow_head_size(values, head_size)


def are_called_thickness(names: Iterable[str]) -> bool:
    """Check whether all names say that columns are thickness."""
    return all('thick' in name.lower() for name in names)


def _follow_head_size(values: pd.DataFrame, head_size: pd.Series | None) -> bool:
    """Check whether the mean of positive columns is larger in larger heads, unlike thickness."""
    if head_size is None:
        return False
    # Relative to the median, a missing value of a large region does not lower the mean.
    mean = (values / values.median()).mean(axis=1)
    pairs = pd.DataFrame({'mean': mean, 'head size': head_size}).dropna()
    if len(pairs) < MIN_TO_RELATE:
        return False
    correlation = pairs['mean'].rank().corr(pairs['head size'].rank())
    chance = BEYOND_CHANCE / np.sqrt(len(pairs) - 3)
    return bool(correlation > np.tanh(np.arctanh(MOST_RELATED_THICKNESS) + chance))


def measures_by_name(names: Sequence[str]) -> dict[str, str]:
    """Find columns that are named like measures.

    Words that most columns share do not count, nor do short ones if the other side has a column,
    too, or the name has a word of anatomy: SNR is a measure of images, and a part of the substantia
    nigra; `Area Id1 (Insula)` is no identifier.
    """
    words = {name: set(words_of(_MASS_INTERMEDIA.sub('', name))) for name in names}
    counts = Counter(word for words_of_one in words.values() for word in words_of_one)
    common = {word for word, count in counts.items() if count > len(names) / 2}
    paired = with_other_side(names)
    measures = {}
    for name in names:
        of_measures = (words[name] & WORDS_OF_MEASURES) - common
        if name in paired or is_clearly_anatomical(name):
            of_measures = {word for word in of_measures if len(word) > SHORT}
        if of_measures or START_OF_MEASURE.match(letters_of(name)):
            measures[name] = 'named like a measure'
    return measures


def words_of(name: str) -> list[str]:
    """Split a name into its words in lower case: `Left-Thalamus_2` into `left` and `thalamus`."""
    return [word.lower() for word in _WORD.findall(name)]


def is_anatomical(name: str, words_of_anatomy: Set[str] = WORDS_OF_ANATOMY) -> bool:
    """Check whether a name has a word of anatomy."""
    letters = letters_of(name)
    words = {*words_of(name), letters}
    has_word = not words_of_anatomy.isdisjoint(words) or _PRIMARY_AREA.fullmatch(letters)
    return bool(has_word) or PART_OF_ANATOMY.search(letters) is not None


def is_clearly_anatomical(name: str) -> bool:
    """Check whether a name has a word of anatomy that has no other meaning."""
    return is_anatomical(name, WORDS_OF_ANATOMY - ALSO_NO_ANATOMY)


def names_of_other_side(name: str) -> Iterator[str]:
    """Yield what the same region on the other side may be called, in lower case."""
    lower = name.lower()
    for match in _SIDE.finditer(lower):
        yield lower[: match.start()] + _OTHER_SIDE[match.group()] + lower[match.end() :]


def with_other_side(names: Collection[str]) -> set[str]:
    """Return the columns of which the other side is in the table, too."""
    lower = {name.lower() for name in names}
    return {name for name in names if not lower.isdisjoint(names_of_other_side(name))}


def find_family(names: Sequence[str]) -> tuple[set[str], bool]:
    """Find the columns whose names show that they are regions.

    Returns
    -------
    relatives
        Columns with another side, a word of anatomy, or a beginning or end in common.
    are_known
        Whether they are so many that other names are unusual.
    """
    paired = with_other_side(names)
    core = paired | {name for name in names if is_anatomical(name)}
    if len(core) < len(names) / 2 and len(paired) < MIN_FAMILY:
        core |= max(_groups_with_affix(names), key=len, default=set())
    are_known = len(core) >= len(names) / 2 or len(paired) >= MIN_FAMILY
    affixes = {name: affixes_of(name, sides=not paired) for name in names}
    counts = Counter(affix for name in core for affix in affixes[name])
    shared = {affix for affix, count in counts.items() if count >= MIN_SHARED}
    return core | {name for name in names if not shared.isdisjoint(affixes[name])}, are_known


def affixes_of(name: str, sides: bool) -> set[tuple[str, str]]:
    """Return the first and the last word of a name, and its sides if they matter.

    They matter in tables of one side. A number is like another.
    """
    if name.strip().isdecimal():
        return {('number', '')}
    words = [word for word in words_of(name) if word not in _OTHER_SIDE]
    affixes = {('start', words[0]), ('end', words[-1])} if words else set()
    if sides:
        affixes |= {('side', word) for word in words_of(name) if word in _OTHER_SIDE}
    return affixes


def _groups_with_affix(names: Sequence[str]) -> list[set[str]]:
    """Group columns by their beginning, end or side."""
    groups: dict[tuple[str, str], set[str]] = {}
    for name in names:
        for affix in affixes_of(name, sides=True):
            groups.setdefault(affix, set()).add(name)
    return list(groups.values())


def values_unlike(unusual: pd.DataFrame, usual: pd.DataFrame) -> dict[str, str]:
    """Find columns with few values, other signs, gaps, or another scale than usual ones."""
    medians = usual.median()
    n_usual = usual.nunique().median()
    is_complete = bool((usual > 0).all(axis=None))
    unlike = {}
    for name, column in unusual.items():
        others = medians.drop(str(name), errors='ignore')
        low, high = others.min() / OTHER_SCALE, others.max() * OTHER_SCALE
        if column.nunique() < FEW_VALUES * n_usual:
            unlike[str(name)] = f'{column.nunique()} different values'
        elif is_complete and not (column > 0).all():
            unlike[str(name)] = 'missing, 0 or negative, unlike the others'
        elif not low <= column.median() <= high and len(others) > 0:
            unlike[str(name)] = f'a median of {column.median():.3g}, unlike the others'
    return unrelated(unusual, usual) | unlike


def unrelated(unusual: pd.DataFrame, usual: pd.DataFrame) -> dict[str, str]:
    """Find columns that are related to the size of the brain less than nearly all usual ones."""
    if usual.empty or unusual.empty:
        return {}
    ranks = usual.rank()
    size = ranks.mean(axis=1)
    limit = min(ranks.corrwith(size).quantile(HARDLY_ANY), SIGNIFICANT / np.sqrt(len(usual)))
    of_unusual = unusual.rank().corrwith(size)
    below = of_unusual.index[of_unusual < limit]
    return {str(name): 'hardly related to the others' for name in below if name not in usual}


def few_values(values: pd.DataFrame) -> dict[str, str]:
    """Find columns with a handful of values where others differ in everyone."""
    counts = values.nunique()
    if counts.empty or counts.median() < MANY_VALUES:
        return {}
    few = counts[(counts <= FEW_IN_A_REGION) & (counts > 1)]
    return {str(name): f'{count} different values' for name, count in few.items()}


def far_above_all(values: pd.DataFrame) -> dict[str, str]:
    """Find the column that is ten times larger than all others, like a total."""
    medians = values.median().sort_values()
    if len(medians) < MIN_SHARED or not medians.iloc[-1] > OTHER_SCALE * medians.iloc[-2] > 0:
        return {}
    return {str(medians.index[-1]): f'more than {OTHER_SCALE:g} times all others, like a total'}


def sums_of_others(values: pd.DataFrame) -> dict[str, str]:
    """Find columns that equal the sum of other columns, or the mean of both sides.

    All columns, those of one side, those with a word in common, and both sides of one region are
    tried; in large samples a regression finds any other sum. Sums of sums are found because small
    columns come first.
    """
    complete = values.dropna()
    complete = complete.loc[:, (complete > 0).all() & (complete.max() > complete.min())]
    if len(complete) < MIN_FOR_SUMS or complete.shape[1] <= MIN_SHARED:
        return {}
    names = [str(name) for name in complete]
    numbers = complete.to_numpy(np.float64)
    groups = _likely_parts(names)
    candidates, is_large = _explained_by_others(numbers)
    sums: dict[str, str] = {}
    for total in sorted(candidates, key=lambda column: float(np.median(numbers[:, column]))):
        usable = [k for k, name in enumerate(names) if k != total and name not in sums]
        parts = _equal_group(numbers, total, groups, set(usable))
        if not parts and is_large:
            parts = _fitted_parts(numbers, total, usable)
        if parts:
            listed = list_briefly((names[part] for part in parts), MIN_SHARED)
            sums[names[total]] = f'the sum or mean of {listed}'
    return sums


def _explained_by_others(numbers: np.ndarray) -> tuple[list[int], bool]:
    """Return the columns that the others explain, by regression, and whether it could be used."""
    n_rows, n_columns = numbers.shape
    if n_rows < n_columns + MIN_FOR_SUMS:
        return list(range(n_columns)), False
    correlation = np.corrcoef(numbers, rowvar=False) + 1e-9 * np.eye(n_columns)
    unexplained = 1 / np.diag(np.linalg.inv(correlation))
    return np.flatnonzero(unexplained < MOST_UNEXPLAINED).tolist(), True


def _likely_parts(names: Sequence[str]) -> list[list[int]]:
    """Return groups of columns that a total may be the sum of."""
    groups: dict[tuple[str, str], list[int]] = {('all', ''): list(range(len(names)))}
    position = {name.lower(): k for k, name in enumerate(names)}
    for k, name in enumerate(names):
        for word in set(words_of(name)):
            groups.setdefault(('word', word), []).append(k)
        for other in names_of_other_side(name):
            if position.get(other, -1) > k:
                groups['sides', name] = [k, position[other]]
    return list(groups.values())


def _equal_group(
    numbers: np.ndarray, total: int, groups: Sequence[Sequence[int]], usable: Collection[int]
) -> list[int]:
    """Return the group whose sum, or mean if it has two columns, equals a column; else none."""
    column = numbers[:, total]
    for group in groups:
        parts = [part for part in group if part in usable]
        if len(parts) < MIN_SHARED:
            continue
        added = numbers[:, parts].sum(axis=1)
        is_mean = len(parts) == MIN_SHARED and _are_equal(added / MIN_SHARED, column)
        if is_mean or _are_equal(added, column):
            return parts
    return []


def _fitted_parts(numbers: np.ndarray, total: int, usable: Sequence[int]) -> list[int]:
    """Return the columns whose sum equals a column, by regression; else none."""
    column = numbers[:, total]
    smaller = [part for part in usable if np.median(numbers[:, part]) < np.median(column)]
    if len(smaller) < MIN_SHARED:
        return []
    weights, _ = nnls(numbers[:, smaller], column)
    parts = [part for part, weight in zip(smaller, weights) if weight > 1 / 2]
    return parts if _are_equal(numbers[:, parts].sum(axis=1), column) else []


def _are_equal(one: np.ndarray, other: np.ndarray) -> bool:
    """Check whether two columns are equal but for rounding."""
    return bool((np.abs(one - other) <= SUM_TOLERANCE * np.abs(other)).all())
