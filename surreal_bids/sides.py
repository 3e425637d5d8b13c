"""Left and right regions of the same structure: how they are recognised and put together.

With both sides as features of their own, the strongest differences among patients are often those
between the hemispheres: disease is rarely equal on both sides. With sides together, patterns are
sets of structures, and one-sided disease is described for each participant.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from string import ascii_lowercase
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from surreal_bids.regions import (
    Feature,
    FeatureList,
    muse_table,
    region_mates,
    region_names,
    structure_of,
)

Sides = Literal['together', 'apart']
"""Whether a model sees the two sides of a structure as one feature or as two."""

TOGETHER: Sides = 'together'
APART: Sides = 'apart'

LEFT, RIGHT = 'L', 'R'

SIDE_WORDS = {LEFT: 'left', RIGHT: 'right'}

_SIDE_OF_WORD = {'left': LEFT, 'lh': LEFT, 'l': LEFT, 'right': RIGHT, 'rh': RIGHT, 'r': RIGHT}

_SEPARATE_WORD = re.compile(
    r'(?<![a-z0-9])(?P<side>left|right|lh|rh|l|r)(?![a-z0-9])', re.IGNORECASE
)
"""A side as a word of its own: `Left-Hippocampus`, `ctx-lh-cuneus`, `hippocampus_r`."""

_FIRST_PART = re.compile(
    r'(?<![A-Za-z0-9])(?P<side>(?:[Ll]eft|[Rr]ight|lh|rh|LH|RH|l|r)(?=[A-Z])|[LR](?=[A-Za-z]{2}))'
)
"""A side at the start of a word: `LeftHippocampus`, `lhCuneus`, `Lhippo`."""

_LAST_PART = re.compile(r'(?<=[a-z0-9])(?P<side>Left|Right|LH|RH|L|R)(?![A-Za-z0-9])')
"""A side at the end of a word: `hippocampusL`."""

_NETWORK_PARCEL = re.compile(
    r'\d+networks[\W_]+[lr]h[\W_]|'
    r'(^|[^a-z])[lr]h[\W_](vis|sommot|dorsattn|salventattn|limbic|cont|default|temppar)[a-c]?'
    r'(cent|peri)?[\W_](\w+[\W_])?\d+',
    re.IGNORECASE,
)
"""Parcels of functional networks (Schaefer et al., 2018): left and right ones with the same number
are not the same structure."""

_AVERAGED = re.compile(
    r'thick|curv|depth|mean|avg|average|intensit|densit|ratio|percent|pct|fraction|z_?score|centile|'
    r'(^|_)fa(_|$)',
    re.IGNORECASE,
)
"""Names of measures that do not add up over regions, unlike volumes and areas."""

_NO_SIDES = sorted(set(ascii_lowercase) - {'l', 'r'})
"""Letters that no side has."""

_SEPARATORS = ' _-.,;:/'
"""What may stand between the words of a name."""


class NameWithSide(NamedTuple):
    """The name of a region, taken apart.

    Attributes
    ----------
    side
        `L` or `R`.
    before, after
        The name before and after the word of the side.
    """

    side: str
    before: str
    after: str

    @property
    def key(self) -> tuple[str, str]:
        """What the two sides of a structure have in common."""
        return self.before.lower(), self.after.lower()

    @property
    def structure(self) -> str:
        """The name without the side and its separator: `ctx-cuneus` for `ctx-lh-cuneus`."""
        before, after = self.before, self.after
        if before and after and before[-1] in _SEPARATORS and after[0] in _SEPARATORS:
            after = after[1:]
        joined = f'{before}{after}'.replace('()', '').replace('[]', '')
        return joined.strip(_SEPARATORS) or f'{before}{after}'


def sides_in_name(name: str) -> Iterator[NameWithSide]:
    """Find every word in a name that may be its side, separate words first.

    Examples
    --------
    >>> [found.structure for found in sides_in_name('Left-Hippocampus')]
    ['Hippocampus']
    >>> [found.structure for found in sides_in_name('Leftover')]
    []
    """
    if _NETWORK_PARCEL.search(name):
        return
    for pattern in (_SEPARATE_WORD, _FIRST_PART, _LAST_PART):
        for match in pattern.finditer(name):
            side = _SIDE_OF_WORD[match['side'].lower()]
            yield NameWithSide(side, name[: match.start()], name[match.end() :])


def named_side(name: str) -> str | None:
    """Return `L` or `R` if a name has a side as a word of its own; else None.

    Examples
    --------
    >>> named_side('lh_cuneus_thickness'), named_side('Lingual'), named_side('Brain-Stem')
    ('L', None, None)
    """
    match = None if _NETWORK_PARCEL.search(name) else _SEPARATE_WORD.search(name)
    return None if match is None else _SIDE_OF_WORD[match['side'].lower()]


class Pair(NamedTuple):
    """The two regions of a structure, and its name."""

    structure: str
    left: str
    right: str


def find_pairs(columns: Iterable[str]) -> list[Pair]:
    """Find the columns that differ in the side only.

    Parameters
    ----------
    columns
        Names of columns in any spelling.

    Returns
    -------
    list of Pair
        In the order in which the first region of each pair stands among the columns.

    Examples
    --------
    >>> find_pairs(['lh_cuneus_thickness', 'Leftover', 'rh_cuneus_thickness'])
    [Pair(structure='cuneus_thickness', left='lh_cuneus_thickness', right='rh_cuneus_thickness')]
    """
    columns = list(columns)
    names = {column.lower() for column in columns}
    pairs: list[Pair] = []
    paired: set[str] = set()
    waiting: dict[tuple[str, str], tuple[str, NameWithSide]] = {}
    for column in columns:
        for parts in sides_in_name(column):
            partner, partner_parts = waiting.get(parts.key, (column, parts))
            if partner_parts.side == parts.side:
                waiting.setdefault(parts.key, (column, parts))
                continue
            if partner not in paired and not _is_in_alphabet(parts, names):
                both = {parts.side: column, partner_parts.side: partner}
                pairs.append(Pair(partner_parts.structure, both[LEFT], both[RIGHT]))
                paired |= {column, partner}
                break
    position = {column: number for number, column in enumerate(columns)}
    return sorted(pairs, key=lambda pair: min(position[pair.left], position[pair.right]))


def _is_in_alphabet(parts: NameWithSide, names: Container[str]) -> bool:
    """Check whether the letter of a side is one of a series, as in `region_k`, `region_l`, ...

    One more letter may stand for the mean (`M_cuneus`) or the total (`T_cuneus`) of both sides.
    """
    before, after = parts.key
    others = [letter for letter in _NO_SIDES if f'{before}{letter}{after}' in names]
    return len(others) > 1


def _find_muse_pairs(regions: FeatureList) -> list[Pair]:
    """Find the two sides of MUSE regions by their numbers, however the columns are called."""
    column_of = {
        feature.indices[0]: feature.name for feature in regions.features if feature.indices
    }
    hemisphere = dict(zip(muse_table()['index'], muse_table()['hemisphere']))
    names, mates = region_names(), region_mates()
    pairs = []
    for index, column in column_of.items():
        mate = mates.get(index)
        if hemisphere[index] == LEFT and mate in column_of:
            pairs.append(Pair(structure_of(names[index]), column, column_of[mate]))
    return pairs


def put_sides_together(regions: FeatureList) -> FeatureList:
    """List the structures of regions: each pair of sides as one feature, and all other regions.

    Parameters
    ----------
    regions
        Single regions.

    Returns
    -------
    FeatureList
        Features whose `columns` are the regions that they combine, the left one first. The order is
        that of the regions.

    Examples
    --------
    >>> regions = FeatureList('columns', (Feature('L_a', ()), Feature('R_a', ())), 'mm3')
    >>> put_sides_together(regions).features[0].columns
    ('L_a', 'R_a')
    """
    if any(len(feature.indices) > 1 for feature in regions.features):
        # They are sums already, as in published models.
        return regions
    # Regions with MUSE numbers are paired by these; other columns may stand beside them.
    named = [region.name for region in regions.features if not region.indices]
    pairs = [*_find_muse_pairs(regions), *find_pairs(named)]
    pair_of = {pair.left: pair for pair in pairs} | {pair.right: pair for pair in pairs}
    structures: dict[str, Feature] = {}
    for region in regions.features:
        pair = pair_of.get(region.name)
        if pair is None:
            structure = region._replace(columns=(region.name,))
        else:
            structure = _unite(pair, regions)
        if structure.name in structures and structures[structure.name] != structure:
            # Two pairs may be called the same without their sides.
            structure = structure._replace(
                name=f'{structure.name} ({" + ".join(structure.columns)})'
            )
        # The second region of a pair finds the structure there already.
        structures.setdefault(structure.name, structure)
    return FeatureList('structures', tuple(structures.values()), regions.unit)


def _unite(pair: Pair, regions: FeatureList) -> Feature:
    """Make the feature of a structure from the regions of its two sides."""
    indices_of = {region.name: region.indices for region in regions.features}
    name = pair.structure
    if name in indices_of:
        # A table may have the structure as a region of its own.
        name = f'{name} (both sides)'
    indices = (*indices_of[pair.left], *indices_of[pair.right])
    averaged = regions.are_z_scores or not regions.scale_with_head or not adds_up(name)
    return Feature(name, indices, (pair.left, pair.right), averaged)


def pair_sides(regions: FeatureList, sides: Sides) -> FeatureList | None:
    """Return the structures that a model sees; None if it sees the regions themselves."""
    if sides == APART:
        return None
    structures = put_sides_together(regions)
    return None if len(structures) == len(regions) else structures


def adds_up(name: str) -> bool:
    """Check whether a measure adds up over regions, by its name: volumes and areas do.

    Examples
    --------
    >>> adds_up('lh_cuneus_area'), adds_up('lh_cuneus_thickness')
    (True, False)
    """
    return _AVERAGED.search(name) is None


def combine_sides(values: pd.DataFrame, structures: FeatureList) -> pd.DataFrame:
    """Compute the values of structures from those of their regions.

    Parameters
    ----------
    values : frame of shape (n_visits, n_regions)
        Values of single regions.
    structures
        Result of :func:`put_sides_together`.

    Returns
    -------
    frame of shape (n_visits, n_structures)
        Sums, or means of measures that do not add up; missing if one side is.
    """
    combined: dict[str, np.ndarray] = {}
    for feature in structures.features:
        parts = values[list(feature.columns)].to_numpy(np.float64)
        total = parts.sum(axis=1)
        combined[feature.name] = total / parts.shape[1] if feature.averaged else total
    return pd.DataFrame(combined, values.index)


def paired_structures(structures: FeatureList) -> Mapping[str, tuple[str, str]]:
    """Return the left and the right region of each structure that combines two."""
    return {
        feature.name: (feature.columns[0], feature.columns[1])
        for feature in structures.features
        if len(feature.columns) == 2
    }


def without_partner(structures: FeatureList) -> dict[str, str]:
    """Return the side of each region that has one, but whose partner is not among the regions."""
    hemisphere = dict(zip(muse_table()['index'], muse_table()['hemisphere']))
    alone: dict[str, str] = {}
    for feature in structures.features:
        if len(feature.columns) != 1:
            continue
        side = named_side(feature.name)
        if feature.indices:
            side = hemisphere[feature.indices[0]]
        if side in (LEFT, RIGHT):
            alone[feature.name] = side
    return alone
