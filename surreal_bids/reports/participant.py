"""The anatomical part of a participant's report: figures, volumes, and unusual volumes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from surreal_bids.cautions import FIGURES, VOLUMES, Caution
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
from surreal_bids.names import without_prefix
from surreal_bids.reports.assembly import report_path, write_anatomy
from surreal_bids.reports.methods import MethodsOptions, methods_html
from surreal_bids.reports.pages import (
    Block,
    Code,
    Facts,
    Figure,
    Fragment,
    Html,
    Number,
    Numbers,
    Paragraph,
    Rating,
    Section,
    Table,
    list_checks,
    render_sections,
)

MM3_PER_ML = 1000.0

MASK_ORIGINS = {
    'deepbet': 'found by deepbet',
    'stripped': 'the image was already skull-stripped',
    'given': 'taken from existing derivatives',
}
"""Origin of the brain mask, in words."""

SEXES = {'F': 'female', 'M': 'male'}

FORMATS = {
    'Volume (mm³)': '{:,.0f}',
    'Deviation (SD)': '{:+.1f}',
    'Asymmetry (%)': '{:+.0f}',
    'Confidence (%)': '{:.0f}',
    'Lesion (%)': '{:.0f}',
}

MARKED_BY_CHANCE = (
    'One in five healthy people has at least one volume this far from the mean; marks are more '
    'frequent on other scanners. '
)
"""How often healthy people are marked; see `benchmarks/norms.py`."""

QUALITY = {
    'snr_gm': 'SNR of grey matter',
    'snr_wm': 'of white matter',
    'cnr': 'CNR',
    'cjv': 'CJV',
    'efc': 'EFC',
}
"""Metrics that are shown, and what they are called; the file of the metrics has more."""

MOST_AFFECTED = 5
"""Number of regions that are listed with a lesion."""

GAUGE_SD = 5.0
"""Deviations are drawn between minus and plus this."""


@dataclass(frozen=True)
class SessionReport:
    """Results of one scan of a participant.

    Attributes
    ----------
    source
        The T1w image, relative to the dataset.
    mask_origin
        Origin of the brain mask: `deepbet`, `stripped`, `given`, or other words.
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
        Overlap (Dice) of large regions with those of the template in T1w space.
    quality
        Metrics of :mod:`surreal_bids.imaging.quality`.
    warnings
        Warnings about the results.
    reused
        Results of other programs that were used, and their files.
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
    quality: Mapping[str, float | None] = field(default_factory=dict)
    warnings: tuple[Caution, ...] = ()
    reused: Mapping[str, str] = field(default_factory=dict)
    voxels_mm: tuple[float, ...] = ()


@dataclass(frozen=True)
class ParticipantReport:
    """Content of the report of a participant.

    Attributes
    ----------
    name
        The participant, with `sub-`.
    sessions
        At least one.
    methods
        Settings for the methods text.
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
        return _scan(data.name, data.sessions[0])
    return [
        Section(
            f'ses-{each.session}' if each.session else each.source,
            parts=tuple(_scan(data.name, each)),
        )
        for each in data.sessions
    ]


def _scan(name: str, session: SessionReport) -> list[Section]:
    volumes = assess_volumes(session.volumes, session.subject)
    rating = Rating(name, f'ses-{session.session}' if session.session else '')
    sections = [Section('Summary', (*_summary(session, volumes), rating))]
    if session.figures:
        convention = Paragraph(
            'Left in the figure is left in the head (axial and coronal slices) or posterior '
            '(sagittal slices). Positions are in mm.'
        )
        sections.append(Section(FIGURES, (convention, *session.figures)))
    return [*sections, Section(VOLUMES, tuple(_volumes(session, volumes)))]


def _summary(session: SessionReport, volumes: pd.DataFrame) -> list[Block]:
    n_marked = int((volumes['reason'] != '').sum())
    blocks = list_checks(
        [
            *session.warnings,
            *_disagreement(session.overlaps),
            *_marked(n_marked, len(volumes), bool(session.figures)),
        ]
    )
    unknown = why_no_norms(session.volumes, session.subject)
    if unknown:
        blocks.append(Paragraph(f'Volumes were not compared with healthy people: {unknown}.'))
    elif not n_marked:
        blocks.append(Paragraph(f'None of the {len(volumes)} regions is unusual.'))
    blocks.append(Numbers(tuple(_numbers(session))))
    blocks.append(Facts(_facts(session)))
    return blocks


def _disagreement(overlaps: Mapping[str, float]) -> list[Caution]:
    """Return a warning if the network and the registration disagree about regions."""
    found = disagreements(overlaps)
    if not found:
        return []
    listed = ', '.join(
        f'{name} ({value:.2f}, usually at least {LEAST_OVERLAP[name]:.2f})'
        for name, value in found.items()
    )
    return [
        Caution(
            'Regions of the network overlap less with the regions of the template, transformed to '
            f'this image, than in healthy heads: {listed}',
            'The segmentation or the registration failed, or the anatomy is unusual',
            'Check the figures of regions and registration',
            FIGURES,
        )
    ]


def _marked(n_marked: int, n_regions: int, has_figures: bool) -> list[Caution]:
    """Return a warning if volumes are marked."""
    if not n_marked:
        return []
    return [
        Caution(
            f'{n_marked} of {n_regions} regions {"is" if n_marked == 1 else "are"} unusual',
            'The segmentation may have failed there',
            f'Check {"the figure of regions" if has_figures else "the segmentation"}, and exclude '
            'the scan if it failed',
            FIGURES if has_figures else VOLUMES,
        )
    ]


def _numbers(session: SessionReport) -> list[Number]:
    """Return total volumes in millilitres, each with the method that measured it."""
    tissue = session.tissue_mm3
    reused = any(f'{name} map' in session.reused for name in tissue)
    source = 'tissue maps of another program' if reused else 'tissue classification'
    numbers = []
    if {'GM', 'WM'} <= set(tissue):
        note = f'grey and white matter; {source}'
        numbers.append(_number('Brain', tissue['GM'] + tissue['WM'], note))
    words = {'GM': 'Grey matter', 'WM': 'White matter', 'CSF': 'Fluid (CSF)'}
    numbers += [
        _number(words.get(name, name), volume, _part(volume, session.subject.icv_mm3) + source)
        for name, volume in tissue.items()
    ]
    if session.subject.icv_mm3 is not None:
        numbers.append(_number('ICV (proxy)', session.subject.icv_mm3, 'volume of the brain mask'))
    total = float(session.volumes['volume_mm3'].sum())
    note = f'{len(session.volumes)} regions; segmentation: {session.atlas}'
    return [*numbers, _number('All regions', total, note)]


def _number(label: str, volume_mm3: float, note: str) -> Number:
    return Number(label, f'{volume_mm3 / MM3_PER_ML:,.0f}', 'ml', note)


def _part(volume: float, whole: float | None) -> str:
    return f'{volume / whole:.0%} of the brain mask; ' if whole else ''


def _facts(session: SessionReport) -> dict[str, Any]:
    return {
        'Image': session.source,
        **_voxels(session.voxels_mm),
        'Participant': _person(session.subject),
        'Brain mask': MASK_ORIGINS.get(session.mask_origin, session.mask_origin),
        'Atlas': session.atlas,
        'Template': session.template,
        **_lesion(session),
        **_quality(session.quality),
        **_agreement(session.overlaps),
        **{f'{what} taken from': whence for what, whence in session.reused.items()},
    }


def _voxels(sizes: tuple[float, ...]) -> dict[str, str]:
    """Return the voxel size, if it is known."""
    return {'Voxels': f'{" x ".join(f"{size:.3g}" for size in sizes)} mm'} if sizes else {}


def _person(subject: Subject) -> str:
    """Return age and sex as given in the dataset."""
    age = 'age not known' if subject.age is None else f'{subject.age:.0f} years'
    return f'{age}, {SEXES.get(subject.sex or "", "sex not known")}'


def _lesion(session: SessionReport) -> dict[str, str]:
    """Return the volume of the lesion and the regions it affects most, if there is a lesion."""
    volume = session.quality.get('lesion_ml')
    if volume is None:
        return {}
    most = session.volumes.nlargest(MOST_AFFECTED, 'lesion_share')
    listed = ', '.join(
        f'{share:.0%} of {name}' for name, share in zip(most['name'], most['lesion_share']) if share
    )
    return {'Lesion': f'{volume:.1f} ml: {listed or "no region"}'}


def _quality(metrics: Mapping[str, float | None]) -> dict[str, str]:
    """Return the metrics of the image that are known."""
    known = {words: metrics.get(name) for name, words in QUALITY.items()}
    shown = ', '.join(f'{words} {value:.2f}' for words, value in known.items() if value is not None)
    return {'Image quality': shown} if shown else {}


def _agreement(overlaps: Mapping[str, float]) -> dict[str, str]:
    """Return the range of overlaps, if there are any."""
    if not overlaps:
        return {}
    least, most = min(overlaps.values()), max(overlaps.values())
    words = f'Dice {least:.2f} to {most:.2f} in {len(overlaps)} large regions'
    return {'Overlap with the regions of the template': words}


def _volumes(session: SessionReport, volumes: pd.DataFrame) -> list[Block]:
    """Return the rules, the marked regions, and all regions."""
    shown = _shown(volumes, session.volumes.get('lesion_share'))
    marked = volumes['reason'] != ''
    blocks: list[Block] = [Paragraph(_rules(session, volumes))]
    if marked.any():
        unusual = shown[marked].reset_index(drop=True)
        caption = 'Unusual volumes'
        blocks.append(_table(unusual, [True] * len(unusual), caption=caption))
    blocks.append(_table(shown, marked.tolist(), fold=f'All {len(shown)} volumes'))
    return blocks


def _rules(session: SessionReport, volumes: pd.DataFrame) -> str:
    """Return the rules by which volumes are marked, in words."""
    rules, unknown = ['it is zero'], why_no_norms(session.volumes, session.subject)
    if not unknown:
        rules.append(
            f'its logarithm is more than {RANGE_SD:g} standard deviations from the value expected '
            f'for this {_compared(session.subject)} in {NORM_PEOPLE}'
        )
    if volumes['asymmetry'].notna().any():
        rules.append(
            f'the asymmetry, (left - right) / mean of both, exceeds {ASYMMETRY:.0%} (except in '
            'ventricles and very small regions)'
        )
    if volumes['confidence'].notna().any():
        rules.append(
            f'its mean probability in the voxels that the network labelled is below {UNCERTAIN:.0%}'
        )
    marked = f'A volume is marked if {"; or if ".join(rules)}. '
    if unknown:
        marked += f'Volumes were not compared with healthy people: {unknown}. '
    else:
        marked += MARKED_BY_CHANCE
    return marked + 'A mark shows what to check; it does not mean that something is wrong.'


def _compared(subject: Subject) -> str:
    """Return which characteristics the comparison accounts for."""
    if subject.sex is None:
        return 'age and head size (the sex is not known)'
    return 'age, sex and head size'


def _shown(volumes: pd.DataFrame, lesion_share: pd.Series | None) -> pd.DataFrame:
    """Return columns with readable names; empty columns are omitted."""
    table = pd.DataFrame(
        {
            'Index': volumes['index'].astype(str),
            'Region': volumes['name'],
            'Volume (mm³)': volumes['volume_mm3'].astype(float),
            'Deviation (SD)': volumes['deviation'].round(1) + 0.0,
            'Asymmetry (%)': (100 * volumes['asymmetry']).round() + 0.0,
            'Confidence (%)': (100 * volumes['confidence']).round(),
            'Lesion (%)': None if lesion_share is None else (100 * lesion_share).to_numpy().round(),
            'Remark': volumes['reason'],
        }
    )
    return table.dropna(axis=1, how='all')


def _table(shown: pd.DataFrame, marked: list[bool], *, caption: str = '', fold: str = '') -> Table:
    gauges = {name: GAUGE_SD for name in shown.columns if name == 'Deviation (SD)'}
    return Table(shown, caption, FORMATS, gauges, marked, fold)


def _methods(data: ParticipantReport) -> Section:
    blocks: list[Block] = [
        Paragraph('This text may be copied into a manuscript.'),
        Html(methods_html(data.methods)),
    ]
    if data.configuration:
        blocks.append(Code(data.configuration, 'Configuration'))
    return Section('Methods', tuple(blocks))
