"""The report of one participant: what was done, how it looks, and which volumes deserve a look."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from surreal_bids.regions import VENTRICLES, muse_indices, muse_table, region_names
from surreal_bids.reports.methods import MethodsOptions, methods_html
from surreal_bids.reports.pages import (
    Block,
    Code,
    Facts,
    Figure,
    Html,
    Notice,
    Number,
    Numbers,
    Paragraph,
    Section,
    Table,
    write_page,
)

RANGE_SD = 3.5
"""Standard deviations beyond which a share is marked."""

ASYMMETRY = 0.6
"""Difference of left and right, as a part of their mean, beyond which a pair is marked."""

UNCERTAIN = 0.65
"""Confidence of the network below which a region is marked: on the heads of `benchmarks/network.py`
its overlap with the truth was then below 0.45, and 0.8 above."""

SMALLEST_PAIR_MM3 = 100.0
"""Pairs with a smaller mean volume are not compared: a few voxels decide."""

MUSE_SHARE = 0.9
"""A table is of MUSE regions if at least this part of its rows has MUSE's index and name."""

_SIDE = re.compile(r'(?<![a-z])(left|right|lh|rh|l|r)(?![a-z])', re.IGNORECASE)
_FLUID = re.compile(r'vent|csf|choroid', re.IGNORECASE)


def assess_volumes(volumes: pd.DataFrame) -> pd.DataFrame:
    """Say how usual each volume is, and which deserve a look.

    Parameters
    ----------
    volumes
        One row a region: index, name, volume_mm3, and perhaps confidence.

    Returns
    -------
    pandas.DataFrame
        The same rows and columns, and: ``deviation``, standard deviations from what is usual, of
        log shares (missing where the atlas is not MUSE); ``asymmetry``, (left - right) / mean, the
        same for both of a pair (missing where there is no pair); ``confidence``, missing where it
        was; ``reason``, why a region is marked, empty where it is not.
    """
    table = volumes[['index', 'name', 'volume_mm3']].reset_index(drop=True)
    table['deviation'] = _deviations(table)
    table['asymmetry'] = _asymmetries(table)
    table['confidence'] = volumes.get('confidence', pd.Series(np.nan, volumes.index)).to_numpy()
    table['reason'] = [_reason(row) for row in table.to_dict('records')]
    return table


def is_muse(volumes: pd.DataFrame) -> bool:
    """Whether index and name of a table are those of MUSE."""
    names = region_names()
    same = [
        _letters(names.get(index, '')) == _letters(name)
        for index, name in zip(volumes['index'], volumes['name'])
    ]
    return len(same) > 0 and float(np.mean(same)) >= MUSE_SHARE


def split_side(name: str) -> tuple[str | None, str]:
    """Separate the side of a region, 'L', 'R' or None, from the rest of its name."""
    found = _SIDE.search(name)
    if found is None:
        return None, _letters(name)
    return found.group(1)[0].upper(), _letters(_SIDE.sub(' ', name, count=1))


def _letters(name: str) -> str:
    return ' '.join(re.findall(r'[a-z0-9]+', str(name).lower()))


def _reason(row: dict) -> str:
    """Why a region is marked, or nothing."""
    if not row['volume_mm3'] > 0:
        return 'no volume'
    reasons = []
    if abs(row['deviation']) > RANGE_SD:
        reasons.append('unusually large' if row['deviation'] > 0 else 'unusually small')
    if abs(row['asymmetry']) > ASYMMETRY:
        reasons.append('left much larger' if row['asymmetry'] > 0 else 'right much larger')
    if row['confidence'] < UNCERTAIN:
        reasons.append('uncertain')
    return ', '.join(reasons)


def _asymmetries(table: pd.DataFrame) -> NDArray[np.float64]:
    """(left - right) / mean of each region's pair; missing for fluid, small or single regions."""
    sides = [split_side(name) for name in table['name']]
    volume_of = dict(zip(sides, table['volume_mm3']))
    return np.array([_asymmetry(volume_of, structure) for _, structure in sides], dtype=float)


def _asymmetry(volume_of: dict[tuple[str | None, str], float], structure: str) -> float:
    left, right = (volume_of.get((side, structure), np.nan) for side in 'LR')
    mean = (left + right) / 2
    if _FLUID.search(structure) or not mean >= SMALLEST_PAIR_MM3:
        return np.nan
    return (left - right) / mean


def _deviations(table: pd.DataFrame) -> NDArray[np.float64]:
    """Standard deviations of each log share from the usual one."""
    deviations = np.full(len(table), np.nan)
    if not is_muse(table):
        return deviations
    volumes = table['volume_mm3'].where(table['volume_mm3'] > 0).to_numpy(dtype=float)
    tissue = table['index'].isin(muse_indices()).to_numpy() & np.isfinite(volumes)
    fluid = table['index'].isin(VENTRICLES).to_numpy()
    usual = norms().loc[table.loc[tissue, 'index']]
    # Relative to what the regions that are there usually measure together.
    scale = volumes[tissue].sum() / usual['volume_mm3'].sum()
    log_shares = np.log(volumes[tissue] / (scale * norms()['volume_mm3'].sum()))
    deviations[tissue] = (log_shares - usual['log_share_mean']) / usual['log_share_sd']
    deviations[fluid] = _fluid_deviations(table.loc[fluid, 'index'], volumes[fluid] / scale)
    return deviations


def _fluid_deviations(indices: pd.Series, volumes: NDArray) -> NDArray[np.float64]:
    """Standard deviations of log volumes (mm3) of ventricles from the usual ones."""
    usual = muse_table().set_index('index').loc[indices]
    spread = np.sqrt(np.log1p(usual['cv'].to_numpy() ** 2))
    middle = np.log(usual['volume_mm3'].to_numpy()) - spread**2 / 2
    return (np.log(volumes) - middle) / spread


@cache
def norms() -> pd.DataFrame:
    """Usual volumes of MUSE regions and their shares, by index; see `benchmarks/norms.py`."""
    path = package_files('surreal_bids') / 'data' / 'norms.tsv'
    return pd.read_csv(io.StringIO(path.read_text(encoding='utf-8')), sep='\t', index_col='index')


MM3_PER_ML = 1000.0

MASK_ORIGINS = {
    'deepbet': 'found by deepbet',
    'stripped': 'the image came without the skull',
    'given': 'taken from existing derivatives',
}
"""How the brain mask came about, in words."""

FORMATS = {
    'Volume (mm³)': '{:,.0f}',
    'Deviation (SD)': '{:+.1f}',
    'Left - right (%)': '{:+.0f}',
    'Confidence (%)': '{:.0f}',
}

GAUGE_SD = 5.0
"""Deviations are drawn between minus and plus this."""


@dataclass(frozen=True)
class SessionReport:
    """What is known of one scan of a participant.

    Attributes
    ----------
    source
        The T1w image, relative to the dataset.
    mask_origin
        How the brain mask came about: `deepbet`, `stripped`, `given`, or other words.
    atlas, template
        Their names.
    volumes
        One row a region: index, name, volume_mm3.
    session
        Label without `ses-`; None in datasets without sessions.
    tissue_mm3
        Volumes of GM, WM and CSF, as far as known.
    mask_mm3
        Volume of the brain mask, the proxy of the intracranial volume.
    figures
        What to show, in order.
    warnings
        What to know before the results are used.
    reused
        What was taken from other programs, and from which.
    """

    source: str
    mask_origin: str
    atlas: str
    template: str
    volumes: pd.DataFrame
    session: str | None = None
    tissue_mm3: Mapping[str, float] = field(default_factory=dict)
    mask_mm3: float | None = None
    figures: tuple[Figure, ...] = ()
    warnings: tuple[str, ...] = ()
    reused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ParticipantReport:
    """All that the report of a participant shows.

    Attributes
    ----------
    name
        The participant, with `sub-`.
    sessions
        At least one.
    methods
        What was done, for the methods text.
    version
        Of this package.
    configuration
        The options as run, as text.
    """

    name: str
    sessions: tuple[SessionReport, ...]
    methods: MethodsOptions
    version: str
    configuration: str = ''


def write_participant_report(path: str | Path, data: ParticipantReport) -> Path:
    """Write the report of a participant.

    Parameters
    ----------
    path
        The HTML file, e.g. `OUT/sub-01.html`; figures are linked relative to it.
    data
        What to show.
    """
    return write_page(
        path,
        title=f'{data.name}: brain regions from T1-weighted MRI',
        subtitle=_subtitle(data),
        sections=[*_results(data), _methods(data)],
        footer=f'Made by surreal_bids {data.version}. Not for diagnosis.',
    )


def _subtitle(data: ParticipantReport) -> str:
    count = len(data.sessions)
    scans = '1 scan' if count == 1 else f'{count} scans'
    return f'{scans} · atlas {data.sessions[0].atlas} · template {data.sessions[0].template}'


def _results(data: ParticipantReport) -> list[Section]:
    """Sections of the only scan, or one section a scan."""
    if len(data.sessions) == 1:
        return _scan(data.sessions[0])
    return [
        Section(f'ses-{each.session}' if each.session else each.source, parts=tuple(_scan(each)))
        for each in data.sessions
    ]


def _scan(session: SessionReport) -> list[Section]:
    volumes = assess_volumes(session.volumes)
    sections = [Section('Summary', (*_summary(session, volumes),))]
    if session.figures:
        convention = Paragraph(
            'The left of each picture is the left of the head (axial and coronal slices), or its '
            'back (sagittal slices). Positions are in mm.'
        )
        sections.append(Section('Pictures', (convention, *session.figures)))
    return [*sections, Section('Volumes', tuple(_volumes(volumes)))]


def _summary(session: SessionReport, volumes: pd.DataFrame) -> list[Block]:
    blocks: list[Block] = [Notice(warning, 'warning') for warning in session.warnings]
    n_marked = int((volumes['reason'] != '').sum())
    blocks.append(_marked_notice(n_marked, len(volumes)))
    blocks.append(Numbers(tuple(_numbers(session))))
    blocks.append(Facts(_facts(session)))
    return blocks


def _marked_notice(n_marked: int, n_regions: int) -> Notice:
    if n_marked == 0:
        return Notice(f'none of the {n_regions} volumes is unusual by the rules below.', 'good')
    are = 'volume is' if n_marked == 1 else 'volumes are'
    return Notice(
        f'{n_marked} of {n_regions} {are} unusual by the rules below; the '
        'pictures show whether this is the segmentation or the anatomy.',
        'warning',
    )


def _numbers(session: SessionReport) -> list[Number]:
    """Total volumes in millilitres, as far as known."""
    tissue = session.tissue_mm3
    numbers = []
    if {'GM', 'WM'} <= set(tissue):
        numbers.append(_number('Brain', tissue['GM'] + tissue['WM'], 'grey and white matter'))
    words = {'GM': 'Grey matter', 'WM': 'White matter', 'CSF': 'Fluid (CSF)'}
    numbers += [
        _number(words.get(name, name), volume, _part(volume, session.mask_mm3))
        for name, volume in tissue.items()
    ]
    if session.mask_mm3 is not None:
        numbers.append(_number('ICV (proxy)', session.mask_mm3, 'volume of the brain mask'))
    total = float(session.volumes['volume_mm3'].sum())
    return [*numbers, _number('All regions', total, f'{len(session.volumes)} of {session.atlas}')]


def _number(label: str, volume_mm3: float, note: str) -> Number:
    return Number(label, f'{volume_mm3 / MM3_PER_ML:,.0f}', 'ml', note)


def _part(volume: float, whole: float | None) -> str:
    return f'{volume / whole:.0%} of the brain mask' if whole else ''


def _facts(session: SessionReport) -> dict[str, Any]:
    return {
        'Image': session.source,
        'Brain mask': MASK_ORIGINS.get(session.mask_origin, session.mask_origin),
        'Atlas': session.atlas,
        'Template': session.template,
        **{f'{what} taken from': whence for what, whence in session.reused.items()},
    }


def _volumes(volumes: pd.DataFrame) -> list[Block]:
    """The rules, the regions that they mark, and all regions."""
    shown = _shown(volumes)
    marked = volumes['reason'] != ''
    blocks: list[Block] = [Paragraph(_rules(volumes))]
    if marked.any():
        unusual = shown[marked].reset_index(drop=True)
        caption = 'Volumes that deserve a look'
        blocks.append(_table(unusual, [True] * len(unusual), caption=caption))
    blocks.append(_table(shown, marked.tolist(), fold=f'All {len(shown)} volumes'))
    return blocks


def _rules(volumes: pd.DataFrame) -> str:
    """The rules that apply to this table, in words."""
    rules = ['there is none']
    if volumes['deviation'].notna().any():
        rules.append(
            'its share in the tissue of all regions (for ventricles, their volume relative to that '
            f'tissue), on the log scale, is more than {RANGE_SD:g} standard deviations from the '
            'average of 2,000 simulated healthy adults aged 40-86'
        )
    if volumes['asymmetry'].notna().any():
        rules.append(
            f'left and right differ by more than {ASYMMETRY:.0%} of their mean (ventricles and '
            'very small regions left aside)'
        )
    if volumes['confidence'].notna().any():
        rules.append(
            f'its mean probability, where the network labelled it, is below {UNCERTAIN:.0%}'
        )
    return (
        f'A volume is marked if {"; or if ".join(rules)}. About two in five of these adults have '
        'such a mark; in ages, scanners or atlases far from the reference, marks are more '
        'frequent. A mark shows where to look, not that something is wrong.'
    )


def _shown(volumes: pd.DataFrame) -> pd.DataFrame:
    """Columns under readable names, without minus zero; empty ones are omitted."""
    table = pd.DataFrame(
        {
            'Index': volumes['index'].astype(str),
            'Region': volumes['name'],
            'Volume (mm³)': volumes['volume_mm3'].astype(float),
            'Deviation (SD)': volumes['deviation'].round(1) + 0.0,
            'Left - right (%)': (100 * volumes['asymmetry']).round() + 0.0,
            'Confidence (%)': (100 * volumes['confidence']).round(),
            'Remark': volumes['reason'],
        }
    )
    return table.dropna(axis=1, how='all')


def _table(shown: pd.DataFrame, marked: list[bool], *, caption: str = '', fold: str = '') -> Table:
    gauges = {name: GAUGE_SD for name in shown.columns if name == 'Deviation (SD)'}
    return Table(shown, caption, FORMATS, gauges, marked, fold)


def _methods(data: ParticipantReport) -> Section:
    blocks: list[Block] = [
        Paragraph('This text may be copied into a manuscript as it is.'),
        Html(methods_html(data.methods)),
    ]
    if data.configuration:
        blocks.append(Code(data.configuration, 'Configuration as run'))
    return Section('Methods', tuple(blocks))
