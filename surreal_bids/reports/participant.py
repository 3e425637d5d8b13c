"""The report of one participant: what was done, how it looks, and which volumes deserve a look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from surreal_bids.bids.layout import without_prefix
from surreal_bids.imaging.norms import (
    ASYMMETRY,
    LEAST_OVERLAP,
    NORM_PEOPLE,
    RANGE_SD,
    UNCERTAIN,
    Subject,
    assess_volumes,
    disagreements,
    why_no_norms,
)
from surreal_bids.reports.assembly import report_path, write_anatomy
from surreal_bids.reports.methods import MethodsOptions, methods_html
from surreal_bids.reports.pages import (
    Block,
    Code,
    Facts,
    Figure,
    Fragment,
    Html,
    Notice,
    Number,
    Numbers,
    Paragraph,
    Section,
    Table,
    render_sections,
)

MM3_PER_ML = 1000.0

MASK_ORIGINS = {
    'deepbet': 'found by deepbet',
    'stripped': 'the image came without the skull',
    'given': 'taken from existing derivatives',
}
"""How the brain mask came about, in words."""

SEXES = {'F': 'female', 'M': 'male'}

FORMATS = {
    'Volume (mm³)': '{:,.0f}',
    'Deviation (SD)': '{:+.1f}',
    'Left - right (%)': '{:+.0f}',
    'Confidence (%)': '{:.0f}',
}

MARKED_BY_CHANCE = (
    'One in five of these people has a volume so far from the others; on scanners unlike theirs, '
    'marks are more frequent. '
)
"""How often healthy people are marked; see `benchmarks/norms.py`."""

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
        One row a region: index, name, volume_mm3, and the network's confidence.
    subject
        Age, sex and head size, as far as known.
    session
        Label without `ses-`; None in datasets without sessions.
    tissue_mm3
        Volumes of GM, WM and CSF, as far as known.
    figures
        What to show, in order.
    overlaps
        Overlap (Dice) of large regions with those of the template, brought onto the head.
    warnings
        What to know before the results are used.
    reused
        What was taken from other programs, and from which.
    voxels_mm
        Edges of a voxel; empty where they are not known.
    """

    source: str
    mask_origin: str
    atlas: str
    template: str
    volumes: pd.DataFrame
    subject: Subject = field(default_factory=Subject)
    session: str | None = None
    tissue_mm3: Mapping[str, float] = field(default_factory=dict)
    figures: tuple[Figure, ...] = ()
    overlaps: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    reused: Mapping[str, str] = field(default_factory=dict)
    voxels_mm: tuple[float, ...] = ()


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


def write_participant_report(
    output_dir: str | Path, data: ParticipantReport, made_from: str = ''
) -> Path:
    """Write the report of a participant.

    Parameters
    ----------
    output_dir
        The output folder.
    data
        What to show.
    made_from
        Digest of the records of the images; see :mod:`surreal_bids.reports.assembly`.
    """
    root, label = Path(output_dir), without_prefix(data.name, 'sub')
    sections = [*_results(data), _methods(data)]
    fragment = Fragment(
        f'{data.name}: brain regions from T1-weighted MRI',
        *render_sections(sections, report_path(root, label).parent),
        subtitle=_subtitle(data),
        footer=f'surreal_bids {data.version}. Not for diagnosis.',
        made_from=made_from,
    )
    return write_anatomy(root, label, fragment)


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
    volumes = assess_volumes(session.volumes, session.subject)
    sections = [Section('Summary', (*_summary(session, volumes),))]
    if session.figures:
        convention = Paragraph(
            'The left of each picture is the left of the head (axial and coronal slices), or its '
            'back (sagittal slices). Positions are in mm.'
        )
        sections.append(Section('Pictures', (convention, *session.figures)))
    return [*sections, Section('Volumes', tuple(_volumes(session, volumes)))]


def _summary(session: SessionReport, volumes: pd.DataFrame) -> list[Block]:
    warnings = [*session.warnings, *_disagreement(session.overlaps)]
    blocks: list[Block] = [Notice(warning, 'warning') for warning in warnings]
    n_marked = int((volumes['reason'] != '').sum())
    blocks.append(_marked_notice(n_marked, len(volumes)))
    blocks.append(Numbers(tuple(_numbers(session))))
    blocks.append(Facts(_facts(session)))
    return blocks


def _disagreement(overlaps: Mapping[str, float]) -> list[str]:
    """Say where network and registration put regions at different places."""
    found = disagreements(overlaps)
    if not found:
        return []
    listed = ', '.join(
        f'{name} ({value:.2f}, usually {LEAST_OVERLAP[name]:.2f} or more)'
        for name, value in found.items()
    )
    return [
        'the regions of the network and those of the template, registered to this head, overlap '
        f'less than in healthy heads: {listed}. One of the two is wrong, or the anatomy is '
        'unusual: see the pictures of regions and registration.'
    ]


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
        _number(words.get(name, name), volume, _part(volume, session.subject.icv_mm3))
        for name, volume in tissue.items()
    ]
    if session.subject.icv_mm3 is not None:
        numbers.append(_number('ICV (proxy)', session.subject.icv_mm3, 'volume of the brain mask'))
    total = float(session.volumes['volume_mm3'].sum())
    return [*numbers, _number('All regions', total, f'{len(session.volumes)} of {session.atlas}')]


def _number(label: str, volume_mm3: float, note: str) -> Number:
    return Number(label, f'{volume_mm3 / MM3_PER_ML:,.0f}', 'ml', note)


def _part(volume: float, whole: float | None) -> str:
    return f'{volume / whole:.0%} of the brain mask' if whole else ''


def _facts(session: SessionReport) -> dict[str, Any]:
    return {
        'Image': session.source,
        **_voxels(session.voxels_mm),
        'Participant': _person(session.subject),
        'Brain mask': MASK_ORIGINS.get(session.mask_origin, session.mask_origin),
        'Atlas': session.atlas,
        'Template': session.template,
        **_agreement(session.overlaps),
        **{f'{what} taken from': whence for what, whence in session.reused.items()},
    }


def _voxels(sizes: tuple[float, ...]) -> dict[str, str]:
    """Edges of a voxel, if they are known."""
    return {'Voxels': f'{" x ".join(f"{size:.3g}" for size in sizes)} mm'} if sizes else {}


def _person(subject: Subject) -> str:
    """Age and sex, as the dataset has them."""
    age = 'age not known' if subject.age is None else f'{subject.age:.0f} years'
    return f'{age}, {SEXES.get(subject.sex or "", "sex not known")}'


def _agreement(overlaps: Mapping[str, float]) -> dict[str, str]:
    """The range of the overlaps, if there are any."""
    if not overlaps:
        return {}
    least, most = min(overlaps.values()), max(overlaps.values())
    words = f'overlap (Dice) of {len(overlaps)} large regions {least:.2f} to {most:.2f}'
    return {'Regions beside those of the template': words}


def _volumes(session: SessionReport, volumes: pd.DataFrame) -> list[Block]:
    """The rules, the regions that they mark, and all regions."""
    shown = _shown(volumes)
    marked = volumes['reason'] != ''
    blocks: list[Block] = [Paragraph(_rules(session, volumes))]
    if marked.any():
        unusual = shown[marked].reset_index(drop=True)
        caption = 'Volumes that deserve a look'
        blocks.append(_table(unusual, [True] * len(unusual), caption=caption))
    blocks.append(_table(shown, marked.tolist(), fold=f'All {len(shown)} volumes'))
    return blocks


def _rules(session: SessionReport, volumes: pd.DataFrame) -> str:
    """The rules that apply to this table, in words."""
    rules, unknown = ['there is none'], why_no_norms(session.volumes, session.subject)
    if not unknown:
        rules.append(
            f'it is, on the log scale, more than {RANGE_SD:g} standard deviations from what is '
            f'usual at this {_compared(session.subject)} in {NORM_PEOPLE}'
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
    marked = f'A volume is marked if {"; or if ".join(rules)}. '
    if unknown:
        marked += f'Volumes are not compared with those of healthy people: {unknown}. '
    else:
        marked += MARKED_BY_CHANCE
    return marked + 'A mark shows where to look, not that something is wrong.'


def _compared(subject: Subject) -> str:
    """What people are compared at, in words."""
    if subject.sex is None:
        return 'age and head size (the sex is not known)'
    return 'age, sex and head size'


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
