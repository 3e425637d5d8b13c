"""The MUSE regions: their names, and how to find them among the columns of a table.

MUSE (Doshi et al., NeuroImage 2016) parcels the brain into 145 single regions. The 139 that are
not ventricles are the features of Surreal-GAN (section 4.1 of Yang et al., ICLR 2022).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as package_files
from typing import Any, NamedTuple

import pandas as pd

from surreal_bids.exceptions import DataError
from surreal_bids.names import letters_of
from surreal_bids.text import list_briefly

VENTRICLES = (4, 11, 49, 50, 51, 52)
"""MUSE indices of the ventricles, which are not features of the model."""

MIDLINE = (35, 71, 72, 73, 95)
"""MUSE indices of midline regions, except ventricles."""

DERIVED = frozenset({1, 46, *range(301, 437), *range(501, 526), 600, 601, 604, 606, 607, 613, 614,
                    701, 702})  # fmt: skip
"""MUSE numbers of sums of regions, including the brain (701) and the head (702)."""

MUSE = 'muse'
"""Name of the MUSE numbering of labels."""

FREESURFER_KINDS = (
    'aseg', 'aparc+aseg', 'aparc.DKTatlas+aseg', 'aparc.DKTatlas+aseg.deep', 'synthseg',
)  # fmt: skip
"""Segmentations with FreeSurfer labels: three of FreeSurfer, FastSurfer's and SynthSeg's."""

FIRST_PARCEL = 1000
"""First FreeSurfer label of a cortical parcel."""

_FREESURFER_SIGN = re.compile(
    r'[lr]h.+(volume|thickness|area)|(left|right)cerebellumcortex|(ctx|wm)[lr]h.+|'
    r'ccmid(anterior|posterior)|(left|right)(vessel|choroidplexus)|(non)?wmhypointensities|'
    r'etiv|estimatedtotalintracranialvol\w*|brainsegvol\w*|supratentorialvol\w*|subcortgrayvol|maskvol\w*|[lr]hsurfaceholes|'
    r'[lr](thal|caud|put|pal|hippo|amyg|accumb)|[lr]bankssts(thick|surf)avg'
)
"""Columns that only tables of FreeSurfer, FastSurfer, SynthSeg and ENIGMA have, by their letters.
The regions of ENIGMA are those of FreeSurfer."""

_FREESURFER_SPELLING = re.compile(r'(Left|Right)-(Thalamus|Accumbens-area|VentralDC)')
"""Regions that MUSE writes in another way."""

_FREESURFER_REGION = re.compile(
    r'(ctx|wm)?[lr]h.+|(left|right).+|brainstem|opticchiasm|cc(mid)?(anterior|central|posterior)|'
    r'[lr](thal|caud|put|pal|hippo|amyg|accumb)|[lr]\w+(thick|surf)avg'
)
"""Columns of regions in these tables."""

_TOTAL = re.compile(
    r'([lr]h)?(brainsegvol|cortex|cortexvol|cerebral\w*mattervol|corticalwhitemattervol|'
    r'subcortgrayvol|totalgrayvol|supratentorialvol|maskvol|surfaceholes)(not\w+)?(toetiv)?|'
    r'[lr]h(mean\w+|\w*surfarea)\w*|(left|right)?(inflatvent|\w*ventricles?|csf|vessel|'
    r'choroidplexus|\w*hypointensities)|(total|whole)?(brain|gm|wm|csf|gr[ae]ymatter|whitematter|'
    r'parenchyma)(vol|volume|v)?|tbv|tgm|twm|tcsf|vol(ume)?|'
    r'([lrm]|[lr]h|left|right|mean|global|total|full)*(thickness|surf(ace)?area|meanthickness)|'
    r'(left|right|[lr]h?)?(inf)?latven(t|tricle)?s?|[lr]?(3rd|3th|4th|5th|third|fourth|fifth)ven(t)?s?|'
    r'(left|right|[lr]h?)?(hippocampal)?fissure(left|right|[lr]h?)?|'
    r'[lr]h(unknown|medialwall)\w*'
)
"""Columns of totals, fluid and other non-regions in tables of volumes, by their letters."""

_PARTS_OF_WHOLE = {
    r'\w*wholehippoc\w+': r'\w*(subiculum|ca1|fimbria)\w*',
    r'\w*wholeamygdala\w*': r'\w*(lateral|basal)nucleus\w*',
    r'\w*wholethalamus\w*': r'\w*(lgn|vpl|pulvinar|pui|mdm)\w*',
    r'\w*wholebrainstem\w*': r'\w*(pons|medulla|midbrain)\w*',
    r'whole(left|right)|\w*wholehypothalamus\w*': r'\w*(tubular|anteriorsuperior)\w*',
    r'(left|right)cerebralcortex': r'ctx[lr]h.+',
}
"""Columns of FreeSurfer and SynthSeg for a structure as a whole, and names of its parts, by their
letters. A whole beside its parts is a sum of regions."""

_NUMBERED = re.compile(r'(?:(?:DL_|H_)?MUSE_(?:Volume_)?)?(\d+)', re.IGNORECASE)
_SIDES = {'right': 'R', 'r': 'R', 'rh': 'R', 'left': 'L', 'l': 'L', 'lh': 'L'}
_WORDS = {
    'wm': 'whitematter',
    'inc': 'including',
    'inf': 'inferior',
    'lat': 'lateral',
    'vent': 'ventricle',
    '3rd': 'third',
    '4th': 'fourth',
}


Z_SCORE = 'z-score'
"""Unit of features that are deviations from a normative model."""

THICKNESS_UNIT = 'mm'
"""Unit of cortical thickness."""


class Feature(NamedTuple):
    """A feature of a model.

    Attributes
    ----------
    name
        Name of a column, or of the structure that several regions form.
    indices
        MUSE regions whose volumes it is, or sums; none if it is not a MUSE volume.
    columns
        Regions that it combines, the left one first (see :mod:`surreal_bids.sides`); empty: it is a
        column of the table, or a sum of MUSE regions.
    averaged
        Whether these regions are averaged, as thicknesses are, and not summed.
    """

    name: str
    indices: tuple[int, ...]
    columns: tuple[str, ...] = ()
    averaged: bool = False


def readable_name(feature: Feature) -> str:
    """Return the name of a feature, or of the region if it is a single MUSE region."""
    return region_names()[feature.indices[0]] if len(feature.indices) == 1 else feature.name


@dataclass(frozen=True)
class FeatureList:
    """The features of a model, in order.

    Attributes
    ----------
    name
        `muse72`, `muse139`, or `columns`: columns that the user chose.
    features
        Name of each feature, and the MUSE regions it sums; none if it is not a MUSE volume.
    unit
        Unit of the numbers.
    """

    name: str
    features: tuple[Feature, ...]
    unit: str

    def __len__(self) -> int:
        return len(self.features)

    @property
    def names(self) -> list[str]:
        """Names of the features, in order."""
        return [feature.name for feature in self.features]

    @property
    def are_z_scores(self) -> bool:
        """Whether the numbers are z-scores, not volumes."""
        return self.unit == Z_SCORE

    @property
    def scale_with_head(self) -> bool:
        """Whether features depend on the size of the head, unlike cortical thickness."""
        thick = ['thick' in name.lower() for name in self.names]
        are_thick = all(thick) or self.unit == THICKNESS_UNIT
        return not (thick and are_thick)

    @property
    def noun(self) -> str:
        """What the features are, in a word."""
        if self.are_z_scores:
            return 'z-scores'
        return 'volumes' if self.scale_with_head else 'thicknesses'

    @property
    def indices(self) -> set[int]:
        """MUSE regions that the features are, or sum."""
        return {index for feature in self.features for index in feature.indices}

    @property
    def atlas(self) -> str | None:
        """MUSE, if the features are its regions."""
        return 'MUSE' if all(feature.indices for feature in self.features) else None

    def to_json(self) -> dict[str, Any]:
        """Return name, unit and features as plain JSON values."""
        features: list[dict[str, Any]] = []
        for feature in self.features:
            state: dict[str, Any] = {'name': feature.name, 'muse_regions': list(feature.indices)}
            if feature.columns:
                state |= {'columns': list(feature.columns), 'averaged': feature.averaged}
            features.append(state)
        return {'name': self.name, 'unit': self.unit, 'features': features}

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> FeatureList:
        """Rebuild the list from `to_json`."""
        features = [
            Feature(
                feature['name'],
                tuple(feature['muse_regions']),
                tuple(feature.get('columns', ())),
                feature.get('averaged', False),
            )
            for feature in state['features']
        ]
        return cls(state['name'], tuple(features), state['unit'])


@cache
def _read_muse_table() -> pd.DataFrame:
    with (
        package_files('surreal_bids').joinpath('data', 'muse.tsv').open(encoding='utf-8') as stream
    ):
        table = pd.read_csv(stream, sep='\t', na_values=['n/a'], keep_default_na=False)
    return table.astype({'mate': 'Int64'})


def muse_table() -> pd.DataFrame:
    """Describe the 145 single MUSE regions, by index.

    Returns
    -------
    pandas.DataFrame
        One row per region: ``index``, ``name``, ``abbreviation`` (cortex only), ``hemisphere``
        (``L``, ``R`` or ``none``), ``tissue`` (``GM``, ``WM``, ``CSF`` or ``none``), ``lobe``,
        ``mate`` (index of the same region on the other side, or missing), and the mean
        ``volume_mm3`` and its coefficient of variation ``cv`` in healthy participants of 40 to 86
        years, averaged over sides. The table is a copy.
    """
    return _read_muse_table().copy()


def muse_indices() -> tuple[int, ...]:
    """Return the MUSE indices of the 139 regions that are not ventricles, in ascending order."""
    return tuple(index for index in _read_muse_table()['index'].tolist() if index not in VENTRICLES)


def region_names() -> dict[int, str]:
    """Return the names of the 145 regions, by MUSE index."""
    table = _read_muse_table()
    return dict(zip(table['index'].tolist(), table['name'].tolist()))


@cache
def _read_freesurfer_table() -> pd.DataFrame:
    with (
        package_files('surreal_bids')
        .joinpath('data', 'freesurfer.tsv')
        .open(encoding='utf-8') as stream
    ):
        return pd.read_csv(stream, sep='\t')


def label_table(numbering: str, labels: Collection[int] = ()) -> pd.DataFrame:
    """Return the regions of a segmentation, by the numbering of its labels.

    Numbers and names are those of FreeSurfer's colour table; `data/freesurfer.tsv` shows which
    program writes them.

    Parameters
    ----------
    numbering
        `muse`, or one of :data:`FREESURFER_KINDS`.
    labels
        Labels that were found; SynthSeg divides the cortex only with `--parc`.

    Returns
    -------
    pandas.DataFrame
        `index` and `name`.

    Raises
    ------
    DataError
        The cortex is divided where it should not be, or vice versa.
    """
    if numbering == MUSE:
        return muse_table()[['index', 'name']]
    parcelled = max(labels, default=0) >= FIRST_PARCEL
    if numbering != 'synthseg' and labels and parcelled != ('aparc' in numbering):
        raise DataError(
            f'the cortex is {"" if parcelled else "not "}divided (labels from {FIRST_PARCEL}), '
            f'which does not fit {numbering} of FreeSurfer; name the labels in a dseg.tsv'
        )
    table = _read_freesurfer_table()
    kind = f'{numbering}_parc' if parcelled and numbering == 'synthseg' else numbering
    return table.loc[table[kind] == 1, ['index', 'name']].reset_index(drop=True)


def region_mates() -> dict[int, int]:
    """Return the index of the same region on the other side, by MUSE index."""
    paired = _read_muse_table().dropna(subset='mate')
    return dict(zip(paired['index'].tolist(), paired['mate'].tolist()))


def structure_of(name: str) -> str:
    """Drop the side from the name of a region: ``'hippocampus'`` for ``'Left hippocampus'``."""
    return re.sub(r'^(Left|Right) ', '', name)


def _words(label: str) -> list[str]:
    """Split a name into lower-case words, and expand abbreviations."""
    return [_WORDS.get(word, word) for word in re.findall(r'[a-z0-9]+', label.lower())]


def _spelling_key(label: str) -> tuple[str, str]:
    """Reduce a region name to its side (``L``, ``R`` or ``none``) and bare letters."""
    words = _words(label)
    for position in (0, -1):
        if len(words) > 1 and words[position] in _SIDES:
            side = _SIDES[words.pop(position)]
            return side, ''.join(words)
    return 'none', ''.join(words)


def side_of(name: str) -> str:
    """Return the side in the name of a region: `L`, `R`, or `none`; `ctx-lh-cuneus` has one."""
    words = _words(name)
    if words and words[0] in {'ctx', 'whitematter'}:
        words = words[1:]
    return _spelling_key(' '.join(words))[0]


def tissue_of(name: str) -> str:
    """Return the tissue of a region by its name: `GM`, `WM` or `CSF` of MUSE, or `none`."""
    index = muse_index(name)
    if index is not None:
        table = _read_muse_table()
        return str(table.loc[table['index'] == index, 'tissue'].iloc[0])
    letters = ''.join(_words(name))
    if 'hypointens' in letters or 'subcort' in letters:
        return 'none'
    if 'whitematter' in letters:
        return 'WM'
    return 'GM' if re.search('cortex|^ctx|gyrus|gr[ae]ymatter', letters) else 'none'


@cache
def _index_by_spelling() -> dict[tuple[str, str], int]:
    spellings = {}
    for row in _read_muse_table().to_dict('records'):
        structure = ''.join(_words(structure_of(row['name'])))
        forms = [structure]
        if isinstance(row['abbreviation'], str):
            abbreviation = row['abbreviation'].lower()
            forms += [abbreviation, abbreviation + structure]
        spellings.update({(row['hemisphere'], form): int(row['index']) for form in forms})
    return spellings


def muse_index(column: str) -> int | None:
    """Return the index of a single MUSE region by its name in any spelling."""
    index = muse_number(column)
    if index is None:
        return _index_by_spelling().get(_spelling_key(column))
    return index if index in set(_index_by_spelling().values()) else None


def recognise(columns: Iterable[Hashable]) -> dict[str, int]:
    """Find the columns that hold single MUSE regions.

    Parameters
    ----------
    columns
        Column labels. A region is written by its index (``MUSE_47``, ``DL_MUSE_Volume_47``,
        ``H_MUSE_Volume_47``, ``47``) or by its name in any case, with spaces, underscores or
        hyphens, the side before or after (``Right Hippocampus``, ``hippocampus_r``,
        ``Right AnG   angular gyrus``, ``L-AnG``).

    Returns
    -------
    dict
        Index of each recognised column, in the order of the columns. Others (age, composite
        regions, intracranial volume) are ignored.

    Raises
    ------
    DataError
        If two columns hold the same region.
    """
    recognised: dict[str, int] = {}
    column_of: dict[int, str] = {}
    for column in map(str, columns):
        index = muse_index(column)
        if index is None:
            continue
        if index in column_of:
            raise DataError(
                f'columns {column_of[index]!r} and {column!r} both hold MUSE region {index}; '
                'keep one of them'
            )
        recognised[column] = index
        column_of[index] = column
    return recognised


def freesurfer_regions(columns: Iterable[str]) -> list[str]:
    """Find the regions of a table of FreeSurfer, in any case and punctuation; else none."""
    letters = {name: letters_of(name) for name in columns}
    has_sign = any(map(_FREESURFER_SIGN.fullmatch, letters.values()))
    if not has_sign and not any(map(_FREESURFER_SPELLING.fullmatch, letters)):
        return []
    return [
        n for n, key in letters.items() if _FREESURFER_REGION.fullmatch(key) and not is_total(n)
    ]


def is_total(column: str) -> bool:
    """Check whether a column is called like a sum of regions, fluid or the head."""
    named = _TOTAL.fullmatch(letters_of(column)) is not None
    return named or muse_number(column) in DERIVED or muse_index(column) in VENTRICLES


def atlas_columns(columns: Sequence[str]) -> set[str]:
    """Return the columns that are called like a region of an atlas, or like a sum of regions."""
    return {c for c in columns if is_total(c) or recognise([c])} | {*freesurfer_regions(columns)}


def find_totals(columns: Sequence[str]) -> list[str]:
    """Return the columns of sums of regions and fluid; numbers may be those of another atlas."""
    numbered = are_numbered_otherwise(columns)
    totals = [c for c in columns if is_total(c) and not (numbered and c.isdecimal())]
    return totals + [c for c in _whole_structures(columns) if c not in totals]


def _whole_structures(columns: Sequence[str]) -> list[str]:
    """Return the columns of whole structures whose parts are in other columns."""
    letters = {name: letters_of(name) for name in columns}
    wholes = []
    for whole, part in _PARTS_OF_WHOLE.items():
        if any(re.fullmatch(part, key) for key in letters.values()):
            wholes += [name for name, key in letters.items() if re.fullmatch(whole, key)]
    return wholes


def are_numbered_otherwise(columns: Iterable[str]) -> bool:
    """Check whether the names of columns are numbers other than those of MUSE."""
    return any(c.isdecimal() and not is_total(c) and muse_index(c) is None for c in columns)


def muse_number(column: str) -> int | None:
    """Return the MUSE number in the name of a column: 702 for `MUSE_702` or `702`."""
    numbered = _NUMBERED.fullmatch(column.strip())
    return None if numbered is None else int(numbered.group(1))


def _muse72() -> tuple[Feature, ...]:
    names, mates = region_names(), region_mates()
    midline = [Feature(names[index], (index,)) for index in MIDLINE]
    paired = [
        Feature(structure_of(names[index]), (index, mates[index]))
        for index in muse_indices()
        if index in mates and index < mates[index]
    ]
    return (*midline, *paired)


def _muse139() -> tuple[Feature, ...]:
    names = region_names()
    return tuple(Feature(names[index], (index,)) for index in muse_indices())


FEATURE_SETS = {'muse72': _muse72, 'muse139': _muse139}
"""Named feature sets; ``muse72`` has the inputs of the authors' checkpoints, in their order."""


def feature_set(name: str) -> tuple[Feature, ...]:
    """Look up a named feature set.

    Parameters
    ----------
    name
        ``'muse72'``: the five midline regions 35, 71, 72, 73 and 95, then the 67 sums of a left and
        a right region, ordered by the smaller of their MUSE indices. ``'muse139'``: all single
        regions but ventricles, by their indices.
    """
    return FEATURE_SETS[name]()


def build_features(table: pd.DataFrame, features: Sequence[Feature]) -> pd.DataFrame:
    """Sum single regions to features.

    Parameters
    ----------
    table
        Volumes of single MUSE regions, one row per participant, with columns that
        :func:`recognise` finds. Other columns are ignored.
    features
        Features to compute, e.g. ``feature_set('muse72')``.

    Returns
    -------
    pandas.DataFrame
        One column per feature, in the given order and unit, with the rows of `table`. A sum is
        missing if any of its regions is.
    """
    table = table.rename(columns=str)
    column_of = {index: column for column, index in recognise(table.columns).items()}
    _require_regions(column_of, features)
    sums = {}
    for feature in features:
        columns = [column_of[index] for index in feature.indices]
        sums[feature.name] = table[columns].sum(axis=1, skipna=False)
    return pd.DataFrame(sums, index=table.index)


def _require_regions(column_of: dict[int, str], features: Sequence[Feature]) -> None:
    wanted = {index for feature in features for index in feature.indices}
    missing = sorted(wanted - set(column_of))
    if missing:
        names = region_names()
        listed = list_briefly([f'{index} ({names[index]})' for index in missing], 5)
        raise DataError(
            f'the table has no column for MUSE region {listed}; add it, named like '
            f'MUSE_{missing[0]} or by its name'
        )
