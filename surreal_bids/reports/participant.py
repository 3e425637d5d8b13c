"""The report of a participant: images and volumes, and R-indices.

Each level writes its part. The report marks both with what they were made from; a level that runs
again replaces its own part.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup

from surreal_bids.analysis.asymmetry import BOTH, DIFFERENCE, SIDE, USUAL
from surreal_bids.analysis.engine import read_flags
from surreal_bids.analysis.image_quality import OUTLIERS
from surreal_bids.analysis.limits import FALSE_ALARMS, describe_source
from surreal_bids.analysis.outputs import Individual
from surreal_bids.bids.outputs import output_path
from surreal_bids.cautions import FIGURES, R_INDICES, VOLUMES, Caution, unite
from surreal_bids.cohort.cohort import not_adapted
from surreal_bids.exceptions import DataError
from surreal_bids.files import sole_use, write_text
from surreal_bids.harmonization.combat import UNHARMONIZED
from surreal_bids.imaging.quality import (
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
from surreal_bids.names import SESSION, SINGULAR, sex_of, without_prefix
from surreal_bids.reports.figures import draw_standing, pattern_colour, plot_course, save_figure
from surreal_bids.reports.flags import (
    NOT_HARMONIZED,
    OUTLIER,
    image_warnings,
    warning_of,
)
from surreal_bids.reports.mosaics import CONTRIBUTION, RegionPainter, Scale
from surreal_bids.reports.pages import RATINGS, is_own_page, link_to, render, write_page
from surreal_bids.rindices.crossfit import HELD_OUT, doubts_of_model
from surreal_bids.rindices.limits import in_sample
from surreal_bids.rindices.model import INTERVALS
from surreal_bids.rindices.uncertainty import MIN_FOR_CENTILES, MIN_FOR_INTERVALS
from surreal_bids.text import counted

RINDICES, ERRORS, ANATOMY = 'rindices', 'errors', 'anatomy'
"""Parts of a report, in order: R-indices, failed steps, and images."""

FAILED = 'failed'
"""Digest of a part that could not be written: the next run tries again."""

PAGE_SECONDS = 60.0
"""How long to wait while another run writes the report, which takes milliseconds."""

MASK_ORIGINS = {
    'deepbet': 'found by deepbet',
    'stripped': 'the image was already skull-stripped',
    'given': 'taken from existing derivatives',
}
SEXES = {'F': 'female', 'M': 'male'}

VOLUME_FORMATS = {
    'Volume (mm³)': '{:,.0f}',
    'Deviation (SD)': '{:+.1f}',
    'Asymmetry (%)': '{:+.0f}',
    'Confidence (%)': '{:.0f}',
    'Lesion (%)': '{:.0f}',
}
QUALITY = {
    'snr_gm': 'SNR of grey matter',
    'snr_wm': 'of white matter',
    'cnr': 'CNR',
    'cjv': 'CJV',
    'efc': 'EFC',
}
"""Metrics of an image that are shown; the file of the metrics has more."""

TISSUES = {'GM': 'Grey matter', 'WM': 'White matter', 'CSF': 'Fluid (CSF)'}

GAUGE_SD = 5.0
"""Deviations are drawn between minus and plus this."""

SHOWN_REGIONS, FAINT = 10, 0.05
"""Regions listed per R-index; share of the largest contribution below which none is drawn."""


class ShownFigure(NamedTuple):
    """A figure of an image: file, title, caption, and a second image that flickers over it."""

    path: Path
    title: str
    caption: str
    over: Path | None = None


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
    figures: tuple[ShownFigure, ...] = ()
    overlaps: Mapping[str, float] = field(default_factory=dict)
    quality: Mapping[str, float | None] = field(default_factory=dict)
    warnings: tuple[Caution, ...] = ()
    reused: Mapping[str, str] = field(default_factory=dict)
    voxels_mm: tuple[float, ...] = ()

    @property
    def prefix(self) -> str:
        """What identifiers of its sections begin with."""
        return f'ses-{self.session}-' if self.session else ''


def report_path(root: Path, label: str) -> Path:
    """Return the path of the report of a participant."""
    return output_path(root, 'report', participant=label)


_PART = re.compile(r'<!--part (\w+) (\S*)-->\n(.*?)<!--/part-->\n', re.DOTALL)


def read_parts(root: Path, label: str) -> dict[str, tuple[str, str]]:
    """Read the parts of a report: digest and content by name; empty without a report of ours."""
    path = report_path(root, label)
    if not path.is_file() or not is_own_page(path):
        return {}
    text = path.read_text(encoding='utf-8')
    return {name: (digest, content) for name, digest, content in _PART.findall(text)}


def write_parts(root: Path, label: str, parts: Mapping[str, tuple[str, str]]) -> Path:
    """Write a report from its parts, the R-indices first; without parts it is deleted."""
    path = report_path(root, label)
    if not parts:
        path.unlink(missing_ok=True)
        return path
    content = ''.join(
        f'<!--part {name} {parts[name][0]}-->\n{parts[name][1]}<!--/part-->\n'
        for name in (RINDICES, ERRORS, ANATOMY)
        if name in parts
    )
    scripts = [RATINGS] if ANATOMY in parts else []
    # Each part was rendered by a template, which has escaped its text.
    return write_page(path, f'sub-{label}', Markup(content), scripts=scripts)  # noqa: S704


@contextmanager
def changing_parts(root: Path, label: str) -> Iterator[dict[str, tuple[str, str]]]:
    """Yield the parts of a report to change them, and write the report.

    Both levels may run at once, with locks of their own. Without this common one, the level that
    writes last would bring back a part that the other has replaced.
    """
    with sole_use(f'sub-{label}.html', root, wait=PAGE_SECONDS):
        parts = read_parts(root, label)
        yield parts
        write_parts(root, label, parts)


def remove_report(root: Path, label: str) -> None:
    """Delete a report, whose images are processed again."""
    with sole_use(f'sub-{label}.html', root, wait=PAGE_SECONDS):
        report_path(root, label).unlink(missing_ok=True)


def require_own_report(root: Path, label: str) -> None:
    """Refuse to replace a report of another program, such as one of fMRIPrep."""
    path = report_path(root, label)
    if path.is_file() and not is_own_page(path):
        raise DataError(
            f'{path}: not a report of this version of surreal_bids; move it, and run the '
            'participant level with --reports-only'
        )


def write_participant_report(
    root: Path,
    label: str,
    sessions: Sequence[SessionReport],
    *,
    configuration: str = '',
    following: str | None = None,
    made_from: str = '',
) -> Path:
    """Write the part of the participant level.

    R-indices stay in the report if the images are those that they were computed from.

    Parameters
    ----------
    root
        The output folder.
    label
        The participant, without `sub-`.
    sessions
        At least one scan.
    configuration
        The options as run, as text.
    following
        Label of the next participant.
    made_from
        Digest of the records of the images.
    """
    require_own_report(root, label)
    content = render(
        'anatomy.html',
        report_path(root, label).parent,
        name=f'sub-{label}',
        sessions=[_scan(each) for each in sessions],
        configuration=configuration,
        following=None if following is None else f'sub-{following}',
    )
    with changing_parts(root, label) as parts:
        if parts.get(ANATOMY, ('',))[0] != made_from:
            parts.pop(RINDICES, None)
        parts[ANATOMY] = made_from, content
    return report_path(root, label)


def write_failed_steps(root: Path, label: str, errors: Mapping[str, str], log: str) -> Path:
    """Report steps that failed and their errors, with the log that has more."""
    require_own_report(root, label)
    folder = report_path(root, label).parent
    content = render('failed.html', folder, name=ERRORS, errors=errors, log=log)
    with changing_parts(root, label) as parts:
        parts[ERRORS] = FAILED, content
    return report_path(root, label)


def _scan(session: SessionReport) -> dict[str, Any]:
    """Return what the template shows of a scan."""
    volumes = assess_volumes(session.volumes, session.subject)
    marked = volumes['reason'] != ''
    shown = _readable(volumes, session.volumes.get('lesion_share'))
    unknown = why_no_norms(session.volumes, session.subject)
    cautions = [*session.warnings, *_disagreement(session.overlaps), *_marked(marked, session)]
    return {
        'title': f'ses-{session.session}' if session.session else session.source,
        'session': f'ses-{session.session}' if session.session else '',
        'prefix': session.prefix,
        'cautions': list(unite(cautions)),
        'anchors': {
            FIGURES: f'{session.prefix}figures',
            VOLUMES: f'{session.prefix}volumes',
        },
        'numbers': _millilitres(session),
        'facts': _facts(session),
        'figures': session.figures,
        'shown': shown,
        'marked': marked.tolist(),
        'unusual': shown[marked],
        'unknown': unknown,
        'rules': _rules(session, volumes, unknown),
        'formats': VOLUME_FORMATS,
        'gauges': {'Deviation (SD)': GAUGE_SD},
    }


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


def _marked(marked: pd.Series, session: SessionReport) -> list[Caution]:
    """Return a warning if volumes are marked."""
    n_marked = int(marked.sum())
    if not n_marked:
        return []
    what = 'the figure of regions' if session.figures else 'the segmentation'
    return [
        Caution(
            f'{n_marked} of {len(marked)} regions {"is" if n_marked == 1 else "are"} unusual',
            'The segmentation may have failed there',
            f'Check {what}, and exclude the scan if it failed',
            FIGURES if session.figures else VOLUMES,
        )
    ]


def _millilitres(session: SessionReport) -> dict[str, str]:
    """Return total volumes by tissue."""
    tissue = {TISSUES.get(name, name): mm3 for name, mm3 in session.tissue_mm3.items()}
    if {'GM', 'WM'} <= set(session.tissue_mm3):
        brain = session.tissue_mm3['GM'] + session.tissue_mm3['WM']
        tissue = {'Brain (grey and white matter)': brain, **tissue}
    return {name: f'{mm3 / 1000:,.0f}' for name, mm3 in tissue.items()}


def _facts(session: SessionReport) -> dict[str, str]:
    subject, metrics = session.subject, session.quality
    age = 'age not known' if subject.age is None else f'{subject.age:.1f} years'
    quality = [
        f'{words} {metrics[name]:.2f}'
        for name, words in QUALITY.items()
        if metrics.get(name) is not None
    ]
    dice = list(session.overlaps.values())
    facts = {
        'Image': session.source,
        'Voxels': session.voxels_mm and ' x '.join(f'{mm:.3g}' for mm in session.voxels_mm) + ' mm',
        'Participant': f'{age}, {SEXES.get(subject.sex or "", "sex not known")}',
        'Brain mask': MASK_ORIGINS.get(session.mask_origin, session.mask_origin),
        'Intracranial volume (proxy)': subject.icv_mm3
        and f'{subject.icv_mm3 / 1000:,.0f} ml (brain mask)',
        'Regions': session.atlas,
        'Template': session.template,
        'Lesion': _lesion(session),
        'Image quality': ', '.join(quality),
        'Overlap with the regions of the template': dice
        and f'Dice {min(dice):.2f} to {max(dice):.2f} in {len(dice)} large regions',
    }
    known = {name: str(words) for name, words in facts.items() if words}
    return known | {f'{what} taken from': whence for what, whence in session.reused.items()}


def _lesion(session: SessionReport) -> str:
    """Return the volume of the lesion and the regions it affects most; empty without one."""
    volume = session.quality.get('lesion_ml')
    if volume is None:
        return ''
    most = session.volumes.nlargest(5, 'lesion_share')
    listed = [f'{s:.0%} of {name}' for name, s in zip(most['name'], most['lesion_share']) if s]
    return f'{volume:.1f} ml: {", ".join(listed) or "no region"}'


def _rules(session: SessionReport, volumes: pd.DataFrame, unknown: str) -> list[str]:
    """Return the rules by which volumes are marked."""
    rules = ['it is zero']
    if not unknown:
        sex = ', sex' if session.subject.sex else ''
        rules.append(
            f'its logarithm is more than {RANGE_SD:g} SD from the value expected for this age{sex} '
            f'and head size in {NORM_PEOPLE}'
        )
    if volumes['asymmetry'].notna().any():
        rules.append(
            f'the asymmetry, (left - right) / mean of both, exceeds {ASYMMETRY:.0%} (except in '
            'ventricles and very small regions)'
        )
    if volumes['confidence'].notna().any():
        rules.append(f'the mean probability of its voxels in the network is below {UNCERTAIN:.0%}')
    return rules


def _readable(volumes: pd.DataFrame, lesion_share: pd.Series | None) -> pd.DataFrame:
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


def write_individual(
    one: Individual,
    painter: RegionPainter | None = None,
    meanings: Mapping[str, str] | None = None,
    following: str | None = None,
    *,
    again: bool = False,
) -> Path:
    """Write the part of the group level: the R-indices of a participant.

    Parameters
    ----------
    one
        The participant.
    painter
        Draws maps of regions; None where features are not MUSE regions.
    meanings
        What each pattern is, in words.
    following
        Name of the next participant.
    again
        Also write R-indices that the report already shows.
    """
    root = one.tables.root
    require_own_report(root, one.label)
    parts, made_from = read_parts(root, one.label), one.digest()
    if parts.get(RINDICES, ('',))[0] == made_from and not again:
        return report_path(root, one.label)
    folder = report_path(root, one.label).parent
    neighbours = {'All participants: group report': output_path(root, 'group_report')}
    if following is not None:
        label = without_prefix(following, 'sub')
        neighbours[f'Next participant: {following}'] = report_path(root, label)
    content = render(
        'rindices.html',
        folder,
        title=R_INDICES,
        who=_who(one),
        links={words: link_to(path, folder) for words, path in neighbours.items()},
        reason=_why_none(one),
        cautions=list(unite(_doubts(one))),
        anchors=_anchors(one, parts),
        computed=_by_which_model(one),
        indices=[_index(one, name, meanings or {}) for name in one.names],
        standing=_standing(one),
        far=_z_scores(one),
        contributions=_contributions(one),
        map=_draw_map(one, painter),
        course=_course(one),
        share=_share(one),
        changes=_changes(one),
        limits='' if one.changes.empty else describe_source(one.changes),
        false_alarms=FALSE_ALARMS,
    )
    with changing_parts(root, one.label) as current_parts:
        current_parts[RINDICES] = made_from, content
    return report_path(root, one.label)


def write_failure(one: Individual, reason: str) -> None:
    """Report why there are no R-indices, unless the report is a file of another program."""
    path = report_path(one.tables.root, one.label)
    if path.is_file() and not is_own_page(path):
        return
    log = output_path('', 'rindices').as_posix()
    errors = {R_INDICES: reason}
    content = render('failed.html', path.parent, name='r-indices', errors=errors, log=log)
    with changing_parts(one.tables.root, one.label) as parts:
        parts[RINDICES] = FAILED, content


def remove_others(root: Path, kept: Collection[str]) -> None:
    """Remove R-indices of an earlier run from the reports of all but these participants."""
    for path in sorted(root.glob(report_path(Path(), 'X').name.replace('X', '*'))):
        label = without_prefix(path.stem, 'sub')
        if label in kept or RINDICES not in read_parts(root, label):
            continue
        with changing_parts(root, label) as parts:
            parts.pop(RINDICES, None)


def _anchors(one: Individual, parts: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Return where the report shows the figures of the last visit, if it does."""
    content = parts.get(ANATOMY, ('', ''))[1]
    for name in (f'{one.last.get(SESSION)}-figures', 'figures'):
        if f'id="{name}"' in content:
            return {FIGURES: name}
    return {}


def _who(one: Individual) -> str:
    """Return a line about the participant."""
    known = one.last.reindex(['age', 'sex', 'site']).dropna()
    group = str(one.last.get('group'))
    words = [SINGULAR.get(group, '' if group in ('nan', 'None') else group)]
    if 'age' in known:
        words.append(f'{known["age"]:.1f} years')
    if 'sex' in known:
        # Codes are shown as they are: their meaning is not known.
        sex = str(known['sex']).removesuffix('.0')
        words.append(SEXES.get(sex_of(sex) or '', f'sex {sex}'))
    if 'site' in known:
        site = str(known['site'])
        words.append(site if site.lower().startswith('site') else f'site {site}')
    if len(one.results) > 1:
        words.append(f'{one.last.get(SESSION)}, the last of {len(one.results)} visits')
    line = ' · '.join(filter(None, words)) or one.name
    return f'{line[0].upper()}{line[1:]}'


def _why_none(one: Individual) -> str:
    """Return why there are no R-indices; empty where there are."""
    if not one.tables.names:
        return 'There are no R-indices: no pattern is supported by the training sample.'
    reason = one.last.get('reason')
    if one.names:
        return ''
    return f'There are no R-indices{f": {reason}" if isinstance(reason, str) else ""}.'


def _by_which_model(one: Individual) -> str:
    if one.tables.model is not None:
        return f'with the model {one.tables.model}'
    if one.last.get(HELD_OUT) in (True,):
        return 'out of fold: with a model trained on this dataset without the participant'
    return 'with a model trained on this dataset'


def _doubts(one: Individual) -> list[Caution]:
    """Return warnings about the R-indices."""
    flags = read_flags(one.last.get('flags'))
    doubts = []
    worse = 'R-indices may be wrong'
    if not one.tables.names:
        # There are no R-indices to doubt, but the image may be.
        flags = [flag for flag in flags if flag.kind == OUTLIER]
        worse = 'Volumes may be wrong'
    elif _is_of_unknown_scanner(one):
        doubts.append(not_adapted())
        flags = [flag for flag in flags if flag.kind != NOT_HARMONIZED]
    for flag in flags:
        warning = warning_of(flag)
        if warning is not None:
            more = f' ({one.last[OUTLIERS]})' if flag.kind == OUTLIER else ''
            doubts.append(warning._replace(found=f'{warning.found}{more}'))
    images = image_warnings(one.tables.root, one.name, one.last.get(SESSION))
    count = sum(map(len, images.values()))
    if count:
        # The section of the image lists them in full.
        found = f'The image has {counted(count, "warning")}'
        doubts.append(Caution(found, worse, 'See the list at the image', FIGURES))
    if one.last.get(HELD_OUT) in (False,) and one.names:
        doubts.append(
            in_sample('The model was trained on this participant', 'Do not use these R-indices')
        )
    # In the training sample, flags show whose fold has not reproduced a pattern.
    card = dict(one.tables.card)
    if one.tables.model is None:
        card.pop('CrossFit', None)
    return [*doubts, *doubts_of_model(card)]


def _is_of_unknown_scanner(one: Individual) -> bool:
    """Tell whether R-indices include effects of a scanner that the model has not learned."""
    knows_sites = one.tables.card['Preprocessing']['combat'] is not None
    harmonized = knows_sites and one.last.get('status') != UNHARMONIZED
    return not one.tables.adapted and not harmonized


def _z_scores(one: Individual) -> pd.DataFrame:
    """Return the z-scores of the last visit by region, the most unusual first."""
    regions = [name for name in one.tables.region_names if name in one.last]
    values = one.last[regions].astype(float).dropna().rename(index=one.tables.region_names)
    values = values.sort_values(key=abs, ascending=False, kind='stable')
    return pd.DataFrame({'Region': values.index, 'z-score (SD of controls)': values.to_numpy()})


def _index(one: Individual, name: str, meanings: Mapping[str, str]) -> dict[str, str]:
    """Return an R-index with its meaning, interval and centile, or why there is none."""
    row = one.last
    interval, centile = _why_no_interval(one, name), f'no centile: {_why_no_centile(one)}'
    low, high = row.get(f'{name}_low'), row.get(f'{name}_high')
    if pd.notna(low) and pd.notna(high):
        interval = f'{_share(one)} interval of the severity {low:.2f} to {high:.2f}'
    if pd.notna(row.get(f'{name}_centile')):
        centile = describe_centile(row.to_dict(), name)
    return {
        'name': name,
        'colour': pattern_colour(one.tables.names, name),
        'meaning': meanings.get(name, ''),
        'value': f'{row[name]:.2f}',
        'interval': interval,
        'centile': centile,
        'sides': _describe_sides(row, name),
    }


def _describe_sides(row: pd.Series, name: str) -> str:
    """Say on which side the pattern is expressed more; empty where it is not known."""
    difference, side = row.get(f'{name}{DIFFERENCE}'), row.get(f'{name}{SIDE}')
    if pd.isna(difference):
        return ''
    if side == BOTH:
        return f'Both sides: they differ by no more than in {USUAL:.0%} of controls'
    return (
        f'Stronger on the {side} ({abs(difference):.1f} SD of the left-right difference of '
        f'controls, beyond that of {USUAL:.0%} of them)'
    )


def _share(one: Individual) -> str:
    """Return the share of repetitions that intervals hold, in per cent."""
    return f'{one.tables.card.get(INTERVALS, {}).get("Share", 0.95):.0%}'


def describe_centile(row: Mapping[Any, Any], name: str) -> str:
    """Return a centile in words: above how many controls."""
    is_training = row.get('centile_of') == 'training'
    whose = 'controls in the training sample' if is_training else 'controls'
    value, count = float(row[f'{name}_centile']), row.get('centile_controls')
    if count is None or pd.isna(count):
        return f'above {min(value, 99.0):.0f}% of {whose}'
    share = 100 / (count + 1) + 0.06
    if value >= 100 - share:
        return f'above all {count:.0f} {whose}'
    if value <= share:
        return f'below all {count:.0f} {whose}'
    return f'above {value:.0f}% of {count:.0f} {whose}'


def _why_no_interval(one: Individual, name: str) -> str:
    """Return why the interval of an R-index is not known."""
    if 'Imported' in one.tables.card:
        return 'no interval: the imported model has none'
    if 'CrossFit' not in one.tables.card:
        return 'no interval: the model was not cross-fitted'
    if one.last.get('status') == UNHARMONIZED:
        return 'no interval: the model does not include this site'
    if name in one.tables.card.get(INTERVALS, {}).get('Patterns', {}):
        return 'no interval: the standard error of the added site is not known'
    return f'no interval: needs {MIN_FOR_INTERVALS} controls, and patients above them, out of fold'


def _why_no_centile(one: Individual) -> str:
    """Return why R-indices are not compared with those of controls."""
    if one.tables.model is None and 'CrossFit' not in one.tables.card:
        return 'no folds were made, and the model was trained on the controls'
    return f'needs {MIN_FOR_CENTILES} controls'


def _figure(one: Individual, name: str, extension: str = 'svg') -> Path:
    return output_path(
        one.tables.root, 'rindices_figure', participant=one.label, figure=name, extension=extension
    )


def _standing(one: Individual) -> tuple[Path, str] | None:
    """Draw R-indices among those of controls and patients; return the file and whose they are."""
    whose, rows, counts = one.tables.reference
    if rows.empty or not one.names:
        return None
    ends = {end: [one.last.get(f'{name}_{end}') for name in one.names] for end in ('low', 'high')}
    own = pd.DataFrame({'value': one.last[one.names], **ends}, index=one.names).astype(float)
    return write_text(_figure(one, 'standing'), draw_standing(own, rows, counts)), whose


def _parts(one: Individual) -> dict[str, pd.Series]:
    """Return the baseline and the contribution of every feature, by R-index."""
    rows = one.at_last(one.contributions)
    if rows.empty:
        return {}
    features = [name for name in one.tables.feature_names if name in rows]
    by_index = rows.set_index('r_index')[['baseline', *features]].astype(float).T
    return {name: by_index[name] for name in one.names if name in by_index}


def _contributions(one: Individual) -> dict[str, pd.DataFrame]:
    """Return the largest contributions to each R-index; rows add up to it."""
    tables = {}
    for name, parts in _parts(one).items():
        regions = parts.drop('baseline').rename(index=one.tables.feature_names)
        regions = regions.sort_values(key=abs, ascending=False, kind='stable')
        shown = {'mean control': parts['baseline'], **regions[:SHOWN_REGIONS]}
        if len(regions) > SHOWN_REGIONS:
            shown['all other regions'] = regions[SHOWN_REGIONS:].sum()
        column = f'contribution to {name} = {parts.sum():.2f}'
        tables[name] = pd.DataFrame({'Region': list(shown), column: list(shown.values())})
    return tables


def _draw_map(one: Individual, painter: RegionPainter | None) -> Path | None:
    """Draw contributions on the template, each R-index on its own scale."""
    values = {}
    for name, parts in _parts(one).items():
        relative = parts.drop('baseline') / (parts.drop('baseline').abs().max() or 1.0)
        values[name] = {
            index: float(relative[each['Name']])
            for each in one.tables.card['FeatureDetails']
            for index in each['MUSERegions']
            if abs(relative.get(each['Name'], 0.0)) > FAINT
        }
    if painter is None or not values:
        return None
    scale = Scale(CONTRIBUTION, -1.0, 1.0, 'contribution, relative to the largest')
    return painter.draw(_figure(one, 'map', 'jpg'), values, scale)


def _course(one: Individual) -> tuple[Path, str] | None:
    """Draw R-indices over visits; return the file and how visits are ordered."""
    known = one.results.dropna(subset=one.names) if one.names else one.results.iloc[:0]
    if len(known) < 2:
        return None
    if 'years' in known and known['years'].notna().all():
        course, label = known.assign(time=known['years']), 'years since the first visit'
        words = f'Visits are ordered by {known["order_by"].iloc[0]}.'
    else:
        numbers = np.arange(len(known), dtype=float)
        course, label = known.assign(time=numbers, session=known[SESSION]), 'session'
        words = 'Dates of visits are not known; visits are ordered by session label.'
    return save_figure(_figure(one, 'course'), plot_course(course, one.names, label)), words


def _changes(one: Individual) -> pd.DataFrame:
    """Return the changes of R-indices between visits."""
    if one.changes.empty:
        return one.changes
    words = {True: 'yes', False: 'no'}
    changes = one.changes[one.changes['measure'].isin(one.tables.names)]
    columns = {
        'from_session': 'from',
        'to_session': 'to',
        'years': 'years',
        'measure': 'R-index',
        'change': 'change',
        'per_year': 'per year',
        'expected': 'expected',
        'noise': 'noise',
        'limit': 'limit',
        'reliable': 'exceeds the limit',
        'site_changed': 'site changed',
    }
    table = changes[list(columns)].rename(columns=columns)
    flags = ('exceeds the limit', 'site changed')
    return table.assign(**{name: table[name].map(words) for name in flags})
