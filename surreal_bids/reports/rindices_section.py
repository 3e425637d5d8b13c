"""The R-indices of one participant in the report: values, intervals, contributions and change.

Everything is read from the tables of the group level. Participants without images, whose volumes
come from a table, have a report of this section only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from markupsafe import Markup

from surreal_bids import __version__
from surreal_bids.analysis.individuals import Individual
from surreal_bids.bids.outputs import output_path
from surreal_bids.cautions import FIGURES, PATTERNS, R_INDICES, Caution
from surreal_bids.cohort.warnings import not_adapted
from surreal_bids.columns import sex_of
from surreal_bids.files import write_text
from surreal_bids.harmonization.combat import UNHARMONIZED
from surreal_bids.names import SESSION, SINGULAR
from surreal_bids.reports.assembly import (
    ANATOMY,
    RINDICES,
    assemble_report,
    read_fragment,
    report_path,
    require_own_report,
    rindices_figure,
)
from surreal_bids.reports.figures import save_figure
from surreal_bids.reports.flags import (
    CONTRIBUTIONS,
    HOW_TO_READ,
    NOT_HARMONIZED,
    OUTSIDE,
    flags_of,
    image_flags,
)
from surreal_bids.reports.model_card import published_meanings
from surreal_bids.reports.mosaics import CONTRIBUTION, RegionPainter, Scale
from surreal_bids.reports.pages import (
    Block,
    Facts,
    Figure,
    Fragment,
    Html,
    Number,
    Numbers,
    Paragraph,
    Section,
    Table,
    is_own_page,
    list_checks,
    render_sections,
)
from surreal_bids.reports.rindices_figures import (
    plot_contributions,
    plot_course,
    plot_standing,
)
from surreal_bids.rindices.crossfit import HELD_OUT, doubts_of_model, in_sample
from surreal_bids.rindices.intervals import INCLUDED, INTERVALS
from surreal_bids.rindices.measurement_noise import describe_noise
from surreal_bids.rindices.uncertainty import MIN_FOR_CENTILES, MIN_FOR_INTERVALS
from surreal_bids.text import counted

FAILED = 'failed'
"""Digest of a section that could not be written: the next run tries again."""

FAINT = 0.05
"""Contributions below this share of the largest are not drawn."""

FAR_SD = 3.0
"""Regions further from the mean of controls, in their standard deviations, are called unusual."""

MOST_NAMED = 6
"""Regions named in a sentence."""

MOST_CHANGES = 15
"""Regions whose change is listed."""


def write_individual(
    one: Individual, painter: RegionPainter | None = None, *, again: bool = False
) -> Path:
    """Add the R-indices of a participant to the report, or write a report of them only.

    Parameters
    ----------
    one
        The participant.
    painter
        Draws maps of regions; None where features are not regions of the built-in atlas.
    again
        Also write R-indices that the report already shows.
    """
    root, path = one.tables.root, report_path(one.tables.root, one.label)
    require_own_report(root, one.label)
    made_from = one.digest()
    stored = read_fragment(root, one.label, RINDICES)
    if path.is_file() and stored is not None and stored.made_from == made_from and not again:
        return path
    return _write(one, _section(one, painter), made_from)


def write_failure(one: Individual, reason: str) -> None:
    """Report why there are no R-indices, unless the report is a file of another program."""
    path = report_path(one.tables.root, one.label)
    if not path.is_file() or is_own_page(path):
        caution = Caution(
            f'The section of R-indices could not be written ({reason})',
            'They are only in phenotype/rindices.tsv',
            'Run the group level again with --reports-only',
        )
        _write(one, Section(R_INDICES, (*list_checks([caution]),)), FAILED)


def _write(one: Individual, section: Section, made_from: str) -> Path:
    """Write the fragment of R-indices, and the report around it."""
    root = one.tables.root
    folder = report_path(root, one.label).parent
    fragment = Fragment(
        f'{one.name}: R-indices',
        *render_sections([section], folder, name=RINDICES, letter='R', anchors=_images(one)),
        subtitle=_by_which_model(one),
        footer=f'surreal_bids {__version__}. Not for diagnosis.',
        made_from=made_from,
    )
    return assemble_report(root, one.label, {RINDICES: fragment})


def _images(one: Individual) -> dict[str, str]:
    """Where the report shows the images, if it does."""
    return {FIGURES: 'section-1'} if read_fragment(one.tables.root, one.label, ANATOMY) else {}


def _by_which_model(one: Individual) -> str:
    if one.tables.model is not None:
        return f'with the model {one.tables.model}'
    if one.last.get(HELD_OUT) in (True,):
        return 'out of fold: with a model trained on this dataset without the participant'
    return 'with a model trained on this dataset'


def _section(one: Individual, painter: RegionPainter | None) -> Section:
    """Return the section of a participant's R-indices."""
    who = _who(one)
    if not one.tables.names:
        text = 'There are no R-indices: no pattern is supported by the training sample.'
        return Section(R_INDICES, (who, Paragraph(text)))
    blocks = list_checks(_doubts(one))
    if not one.is_known:
        reason = one.last.get('reason')
        text = f'There are no R-indices{f": {reason}" if isinstance(reason, str) else ""}.'
        return Section(R_INDICES, (who, Paragraph(text), *blocks))
    blocks = blocks or [Paragraph('No quality flags.')]
    blocks.append(Numbers(tuple(_number(one, name) for name in one.tables.names)))
    blocks.append(Facts(_facts(one)))
    parts = [
        Section('Comparison with controls', tuple(_standing(one))),
        Section(CONTRIBUTIONS, tuple(_contributions(one, painter))),
        Section('Change over time', tuple(_course(one))),
    ]
    return Section(R_INDICES, (who, *blocks), tuple(part for part in parts if part.blocks))


SEX_NAMES = {'F': 'female', 'M': 'male'}


def _who(one: Individual) -> Html:
    """Return a line about the participant, with a link to the group report."""
    row = one.at_last(one.deviations)
    known = row.iloc[-1] if len(row) else pd.Series(dtype=object)
    known = known.reindex(['age', 'sex', 'site']).dropna()
    words = [SINGULAR.get(str(one.last.get('group')), '')]
    if 'age' in known:
        when = ' at the last visit' if len(one.results) > 1 else ''
        words.append(f'{known["age"]:.1f} years old{when}'.replace('.0 ', ' '))
    if 'sex' in known:
        # Codes are shown as they are: their meaning is not known.
        sex = str(known['sex']).removesuffix('.0')
        words.append(SEX_NAMES.get(sex_of(sex) or '', f'sex {sex}'))
    if 'site' in known:
        site = str(known['site'])
        words.append(site if site.lower().startswith('site') else f'site {site}')
    words.append(counted(len(one.results), 'visit'))
    line = ' · '.join(filter(None, words))
    folder = report_path(one.tables.root, one.label).parent
    back = os.path.relpath(output_path(one.tables.root, 'group_report'), folder)
    return Html(
        Markup('<p>{}. <a href="{}">All participants: group report</a></p>').format(
            f'{line[0].upper()}{line[1:]}', back
        )
    )


def _doubts(one: Individual) -> list[Caution]:
    """Return warnings about the R-indices."""
    flags = flags_of(one.last.to_dict())
    doubts = []
    if _is_of_unknown_scanner(one):
        doubts = [not_adapted()]
        flags = [flag for flag in flags if flag is not NOT_HARMONIZED]
    for flag in flags:
        unusual = _unusual(one) if flag is OUTSIDE else ''
        doubts.append(flag.caution._replace(found=f'{flag.caution.found}{unusual}'))
    images = image_flags(one.tables.root, one.name, one.last.get(SESSION))
    if images:
        # The section of the image lists them in full.
        doubts.append(
            Caution(
                f'The image has {counted(len(images), "warning")}',
                'Volumes and R-indices may be wrong',
                'See the list at the image',
                FIGURES,
            )
        )
    if one.outliers:
        doubts.append(
            Caution(
                f'The quality of the image is an outlier among those of its scanner '
                f'({one.outliers})',
                'Volumes and R-indices may be wrong',
                'Look at the figures of the image' if _images(one) else 'Look at the image',
                FIGURES,
            )
        )
    if one.last.get(HELD_OUT) in (False,) and one.is_known:
        doubts.append(
            in_sample('The model was trained on this participant', 'Do not use these R-indices')
        )
    # In the training sample, flags show whose fold has not reproduced a pattern.
    card = dict(one.tables.card)
    if one.tables.model is None:
        card.pop('CrossFit', None)
    return [*doubts, *doubts_of_model(card)]


def _is_of_unknown_scanner(one: Individual) -> bool:
    """Whether R-indices include effects of a scanner that the model has not learned."""
    harmonized = one.tables.knows_sites and NOT_HARMONIZED not in flags_of(one.last.to_dict())
    return not one.tables.adapted and not harmonized


def _unusual(one: Individual) -> str:
    """Return the regions that differ most from controls, as a sentence."""
    row = one.at_last(one.deviations)
    features = [name for name in one.tables.region_of if name in row]
    if row.empty or not features:
        return ''
    values = row.iloc[-1][features].astype(float).dropna()
    far = values[values.abs() > FAR_SD].sort_values(key=abs, ascending=False)
    if far.empty:
        return '; no single region is unusual, but their combination is'
    listed = [f'{one.tables.region_of[str(name)]} ({z:+.1f} SD)' for name, z in far.items()]
    more = f' and {len(listed) - MOST_NAMED} more' if len(listed) > MOST_NAMED else ''
    return f'; regions that differ most from controls: {", ".join(listed[:MOST_NAMED])}{more}'


def _number(one: Individual, name: str) -> Number:
    """Return an R-index with its interval and its centile in controls, or why there is none."""
    row = one.last
    interval, centile = _why_no_interval(one, name), f'no centile: {_why_no_centile(one)}'
    if pd.notna(row.get(f'{name}_low')) and pd.notna(row.get(f'{name}_high')):
        interval = f'68% interval {row[f"{name}_low"]:.2f} to {row[f"{name}_high"]:.2f}'
    if pd.notna(row.get(f'{name}_centile')):
        centile = f'centile {row[f"{name}_centile"]:.0f} of {_centile_of(row)}'
    return Number(name, f'{row[name]:.2f}', note=f'{interval}; {centile}')


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


def _centile_of(row: pd.Series) -> str:
    """Return which controls a centile refers to."""
    words = {'like_age': ' of similar age', 'training': ' in the training sample'}
    count = row.get('centile_controls')
    number = '' if pd.isna(count) else f'{count:.0f} '
    return f'{number}controls{words.get(str(row.get("centile_of")), "")}'


def _facts(one: Individual) -> dict[str, str]:
    """Return the model used, and how to read R-indices and intervals."""
    session = one.last.get(SESSION)
    meanings = published_meanings(one.tables.card)
    facts = {'Computed': _by_which_model(one), **meanings}
    if not meanings:
        facts['Meaning'] = f'"{PATTERNS}" in the group report shows the regions of each pattern'
    if not one.tables.adapted:
        facts['Scanner'] = 'not learned: too few controls'
        if not _is_of_unknown_scanner(one):
            facts['Scanner'] += '; treated as the site of the same name in the training sample'
    if isinstance(session, str) and len(one.results) > 1:
        facts['Visit'] = f'{session}, the last of {len(one.results)}; the others are below'
    if any(pd.notna(one.last.get(f'{name}_low')) for name in one.names):
        facts['Interval'] = (
            '68% interval (about \N{PLUS-MINUS SIGN}1 standard error, not a 95% confidence '
            f'interval). {INCLUDED}'
        )
        if _is_of_unknown_scanner(one):
            facts['Interval'] += '; it does not include effects of the scanner'
    facts['How to read'] = f'{HOW_TO_READ} An R-index is not a probability and not a diagnosis'
    return facts


def _figure(one: Individual, name: str) -> Path:
    return rindices_figure(one.tables.root, one.label, name)


def _standing(one: Individual) -> list[Block]:
    """Return the figure of R-indices among those of controls and patients, where known."""
    names = one.names
    whose, rows, counts = one.tables.reference
    if rows.empty:
        return []
    ends = {
        end: [one.last.get(f'{name}_{end}', np.nan) for name in names] for end in ('low', 'high')
    }
    own = pd.DataFrame({'value': one.last[names], **ends}, index=names).astype(float)
    drawn = plot_standing(own, rows, counts)
    caption = (
        'The diamond is the R-index; the bar is its interval (68%), where known. Controls (above '
        f'the line) and patients (below) are from {whose}; each group is drawn to its own scale.'
    )
    path = write_text(_figure(one, 'standing'), drawn)
    return [Figure(path, 'R-indices compared with controls and patients', caption, is_narrow=True)]


def _contributions(one: Individual, painter: RegionPainter | None) -> list[Block]:
    """Return the contributions of regions to each R-index, as bars and as a map."""
    rows = one.at_last(one.contributions)
    if rows.empty:
        return []
    features = [name for name in one.tables.region_of if name in rows]
    by_index = rows.set_index('r_index')[['baseline', *features]].astype(float).T
    parts = {name: by_index[name] for name in one.names if name in by_index}
    words = Paragraph(
        'R-index = value of the average control (same covariates) + contributions of all regions '
        '(integrated gradients). A positive contribution raises the R-index. Contributions show '
        'what the model uses, not what caused the disease.'
    )
    drawn = plot_contributions(parts, one.tables.region_of)
    path = write_text(_figure(one, 'contributions'), drawn)
    caption = 'The strongest contributions; red raises the R-index, blue lowers it.'
    blocks: list[Block] = [words, Figure(path, 'Regional contributions', caption, is_narrow=True)]
    if painter is not None:
        scale = Scale(CONTRIBUTION, -1.0, 1.0, 'contribution, relative to the largest')
        values = {name: _by_label(one, mine) for name, mine in parts.items()}
        drawn_map = painter.draw(_figure(one, 'map'), values, scale)
        caption = (
            'Contributions on the template: orange raises the R-index, purple lowers it. Regions '
            'below 5% of the strongest contribution are not coloured. Left in the figure is left '
            'in the head.'
        )
        blocks.append(Figure(drawn_map, 'Map of contributions', caption))
    return blocks


def _by_label(one: Individual, parts: pd.Series) -> dict[int, float]:
    """Return contributions by MUSE index, relative to the largest one; faint ones are omitted.

    All regions of a sum have the value of the sum.
    """
    relative = parts.drop('baseline') / (parts.drop('baseline').abs().max() or 1.0)
    return {
        index: float(relative[each['Name']])
        for each in one.tables.card['FeatureDetails']
        for index in each['MUSERegions']
        if abs(relative.get(each['Name'], 0.0)) > FAINT
    }


def _course(one: Individual) -> list[Block]:
    """Return R-indices over visits, and changes compared with measurement noise."""
    names = one.names
    known = one.results.dropna(subset=names)
    if len(known) < 2:
        return []
    course, label, order = _times(one, known)
    path = save_figure(_figure(one, 'course'), plot_course(course, names, label))
    blocks: list[Block] = [Figure(path, 'R-indices over visits', order)]
    return [*blocks, *_changes(one)]


def _times(one: Individual, known: pd.DataFrame) -> tuple[pd.DataFrame, str, str]:
    """Return R-indices with the time of each visit, the label of the time axis, and a caption."""
    visits = one.deviations
    years = visits.set_index(SESSION)['years'] if 'years' in visits else pd.Series(dtype=float)
    time = known[SESSION].map(years)
    order = str(visits['order_by'].iloc[0]) if 'order_by' in visits and len(visits) else 'name'
    if time.notna().all():
        words = f'Visits are ordered by {order}; bars are 68% intervals, where known.'
        return known.assign(time=time, session=None), 'years since the first visit', words
    numbers = np.arange(len(known), dtype=float)
    words = 'Dates of visits are not known; visits are ordered by session label.'
    return known.assign(time=numbers, session=known[SESSION]), 'session', words


def _changes(one: Individual) -> list[Block]:
    """Return changes of R-indices."""
    if one.changes.empty:
        return []
    table = _change_table(one.changes, 'Changes of R-indices')
    text = (
        'A change is reliable if it exceeds a limit derived from repeated scans of the same brains '
        '(noise: standard deviation of the difference of two such scans). Changes between sites '
        'are rated only if the sites were compared within participants. '
        f'{describe_noise(one.tables.retest_pairs)} Limits account for the number of these scans. '
        'Interpret changes near the limit with care.'
    )
    return [Paragraph(text), table]


def _change_table(changes: pd.DataFrame, caption: str) -> Table:
    words = {True: 'yes', False: 'no'}
    table = pd.DataFrame(
        {
            'from': changes['from_session'],
            'to': changes['to_session'],
            'years': changes['years'],
            'measure': changes['measure'],
            'change': changes['change'],
            'per year': changes['per_year'],
            'noise': changes['noise'],
            'limit': changes['limit'],
            'reliable': [words.get(value) for value in changes['reliable']],
            'site changed': [words.get(value) for value in changes['site_changed']],
        }
    )
    formats = dict.fromkeys(('change', 'per year', 'noise', 'limit'), '{:.2f}') | {
        'years': '{:.1f}'
    }
    marked: Sequence[bool] = changes['reliable'].eq(True).tolist()
    return Table(table.reset_index(drop=True), caption, formats, marked=marked)
