"""R-indices in the report of one participant: how high, how sure, what they rest on, over time.

All is read from the tables that the group level has written. The section is added to the report
of the participant level; where there is none, because only a table was given, it is the report.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup

from surreal_bids import __version__
from surreal_bids.bids.layout import without_prefix
from surreal_bids.bids.outputs import output_path
from surreal_bids.bids.tabular import PARTICIPANT, SESSION
from surreal_bids.cohort.exclusions import SINGULAR
from surreal_bids.cohort.warnings import NOT_ADAPTED
from surreal_bids.columns import sex_of
from surreal_bids.regions import region_names
from surreal_bids.reports.figures import save_figure
from surreal_bids.reports.flags import NOT_HARMONIZED, OUTSIDE, flags_of, image_flags
from surreal_bids.reports.pages import (
    Block,
    Facts,
    Figure,
    Html,
    Notice,
    Number,
    Numbers,
    Paragraph,
    Section,
    Table,
    add_section,
    added_from,
    holds_more,
    remove_section,
    write_page,
)
from surreal_bids.reports.rindices_figures import (
    RegionPainter,
    plot_contributions,
    plot_course,
    plot_standing,
)
from surreal_bids.rindices.crossfit import HELD_OUT, doubts_of_model
from surreal_bids.rindices.measurement_noise import PAIRS
from surreal_bids.text import counted

FIGURES = ('standing', 'contributions', 'map', 'course')
"""Names of the figures of a participant's R-indices."""

FAILED = 'failed'
"""In place of what a section was made from, where there is none: the next run tries again."""

FAR_SD = 3.0
"""Regions further from the mean of controls, in their standard deviations, are called unusual."""

MOST_NAMED = 6
"""Regions named in a sentence."""

MOST_CHANGES = 15
"""Regions whose change is listed."""


class Reference(NamedTuple):
    """Participants to compare with: whose they are, their `group` and R-indices, and how many.

    `rows` may be percentiles instead of participants, and may lack R-indices. Where these are of
    different numbers of participants, `counts` has the smallest.
    """

    whose: str
    rows: pd.DataFrame
    counts: Mapping[str, int] = {}


@dataclass(frozen=True, eq=False)
class GroupTables:
    """What the group level has found, as reports of participants need it.

    Attributes
    ----------
    root
        The output folder.
    results, contributions, changes : frame
        `rindices.tsv`, `contributions.tsv` and `changes.tsv`; empty where there is none.
    deviations : frame
        Of each visit `participant_id`, perhaps `session_id`, `order_by`, `years`, `age`, `sex` and
        `site`, and how far each feature is from the mean of controls, in their standard deviations.
    reference
        Whom to compare with.
    card
        Card of the model.
    model
        Name of the model that was applied; None where it was trained on this dataset.
    adapted
        Whether the model knows the scanners of this dataset.
    """

    root: Path
    results: pd.DataFrame
    deviations: pd.DataFrame
    card: Mapping[str, Any]
    contributions: pd.DataFrame = field(default_factory=pd.DataFrame)
    changes: pd.DataFrame = field(default_factory=pd.DataFrame)
    reference: Reference = field(default_factory=lambda: Reference('', pd.DataFrame()))
    model: str | None = None
    adapted: bool = True

    @classmethod
    def read(
        cls, root: Path, deviations: Path, card: Path, model: str | None, adapted: bool
    ) -> GroupTables:
        """Read what is among the outputs, and the deviations and the card beside them."""
        known = json.loads(card.read_text(encoding='utf-8'))
        results = _read_output(root, 'rindices')
        return cls(
            root,
            results,
            _read_table(deviations),
            known,
            _read_output(root, 'contributions'),
            _read_output(root, 'changes'),
            find_reference(results, known, model),
            model,
            adapted,
        )

    @property
    def names(self) -> list[str]:
        """Names of the R-indices."""
        return list(self.card['PatternNames'])

    @property
    def knows_sites(self) -> bool:
        """Whether the model has learned any site."""
        return self.card['Preprocessing']['combat'] is not None

    @cached_property
    def region_of(self) -> dict[str, str]:
        """How to call each feature."""
        names = region_names()
        return {
            each['Name']: names[each['MUSERegions'][0]]
            if len(each['MUSERegions']) == 1
            else each['Name']
            for each in self.card['FeatureDetails']
        }

    @cached_property
    def digest(self) -> str:
        """Changes whenever that does which all reports show: the model, and whom it compares with.

        Of one participant see :meth:`Individual.digest`.
        """
        shown = [__version__, self.model, self.adapted, self.card['CardSHA256']]
        text = json.dumps(shown) + self.reference.rows.to_csv()
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def _rows(self) -> list[tuple[pd.DataFrame, dict[Any, pd.DataFrame]]]:
        """Each table without rows, and its rows by participant."""
        tables = (self.results, self.deviations, self.contributions, self.changes)
        return [
            (table.iloc[:0], dict(list(table.groupby(PARTICIPANT))) if len(table) else {})
            for table in tables
        ]

    def of(self, participant: str) -> Individual:
        """What there is of one participant."""
        return Individual(
            self, participant, *(rows.get(participant, none) for none, rows in self._rows)
        )


def _read_output(root: Path, name: str) -> pd.DataFrame:
    return _read_table(output_path(root, name))


def _read_table(path: Path) -> pd.DataFrame:
    """A table of ours; empty where there is none."""
    if not path.is_file():
        return pd.DataFrame()
    text = dict.fromkeys((PARTICIPANT, SESSION, 'from_session', 'to_session', 'site'), str)
    return pd.read_csv(path, sep='\t', na_values=['n/a'], keep_default_na=False, dtype=text)


def find_reference(results: pd.DataFrame, card: Mapping[str, Any], model: str | None) -> Reference:
    """Whom to compare R-indices with: the training sample, or else the dataset.

    Parameters
    ----------
    results
        R-indices of the dataset.
    card
        Card of the model, which may have percentiles of the training sample.
    model
        Name of the model that was applied; None where it was trained on this dataset.
    """
    names = list(card['PatternNames'])
    if model is not None and card.get('Reference'):
        told = card['Reference']
        parts = [
            # Not of all patterns, where folds have lost one.
            pd.DataFrame(each['Percentiles']).assign(group=group)
            for group, each in told.items()
        ]
        counts = {group: int(each['Number']) for group, each in told.items()}
        return Reference('the training sample', pd.concat(parts, ignore_index=True), counts)
    first = results.drop_duplicates(PARTICIPANT)
    if HELD_OUT in first:
        first = first[first[HELD_OUT].eq(True)]
    if 'group' not in first or (model is not None and first['group'].nunique() < 2):
        return Reference('', pd.DataFrame())
    found = first[names].dropna(axis=1, how='all')
    # Who lacks the R-index of a pattern that was lost still counts in the others.
    known = first[['group', *found]].dropna(subset=['group']).dropna(thresh=2)
    whose = 'this dataset' if model else 'the training sample, held out'
    fewest = known.groupby('group').count().min(axis=1)
    counts = {str(group): int(n) for group, n in fewest.items()}
    return Reference(whose, known, counts)


def _figure(root: Path, label: str, name: str) -> Path:
    return output_path(root, 'rindices_figure', participant=label, figure=name)


@dataclass(frozen=True, eq=False)
class Individual:
    """What the group level has found of one participant; frames have one row per visit or more."""

    tables: GroupTables
    name: str
    results: pd.DataFrame
    deviations: pd.DataFrame
    contributions: pd.DataFrame
    changes: pd.DataFrame

    @property
    def label(self) -> str:
        """The participant without `sub-`."""
        return without_prefix(self.name, 'sub')

    @cached_property
    def last(self) -> pd.Series:
        """R-indices of the last visit that has any, or of the last."""
        known = self.results.dropna(subset=self.tables.names, how='all')
        return (known if len(known) else self.results).iloc[-1]

    @property
    def names(self) -> list[str]:
        """Names of the R-indices that are known; one that a fold has lost is not."""
        return [name for name in self.tables.names if pd.notna(self.last[name])]

    @property
    def is_known(self) -> bool:
        """Whether there are R-indices of any visit."""
        return bool(self.names)

    def at_last(self, table: pd.DataFrame) -> pd.DataFrame:
        """Rows of the last visit."""
        if SESSION not in table or pd.isna(self.last.get(SESSION)):
            return table
        return table[table[SESSION] == self.last[SESSION]]

    def figure(self, name: str) -> Path:
        """Where a figure is."""
        return _figure(self.tables.root, self.label, name)

    def digest(self) -> str:
        """Changes whenever the section would."""
        parts = [self.results, self.deviations, self.contributions, self.changes]
        text = self.tables.digest + ''.join(part.to_csv() for part in parts)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_individual(
    one: Individual, painter: RegionPainter | None = None, *, again: bool = False
) -> Path:
    """Write the R-indices of a participant into the report, or a report of them.

    Parameters
    ----------
    one
        The participant.
    painter
        Draws maps of regions; None where features are no regions of the built-in atlas.
    again
        Also where the report has them already, from the same tables.
    """
    path = output_path(one.tables.root, 'report', participant=one.label)
    digest = one.digest()
    if added_from(path) == digest and not again:
        return path
    if not path.is_file():
        footer = f'Made by surreal_bids {__version__}. Not for diagnosis.'
        write_page(path, f'{one.name}: R-indices', [], subtitle=_by_which_model(one), footer=footer)
    _add(path, _section(one, painter), digest)
    return path


def write_excuse(one: Individual, reason: str) -> None:
    """Say why there are no R-indices, in a new report or in place of those of an earlier run."""
    path = output_path(one.tables.root, 'report', participant=one.label)
    text = f'This report could not be written: {reason}'
    section = Section('R-indices', (Notice(text, 'warning'),))
    if not path.is_file():
        write_page(path, one.name, [section])
    elif added_from(path):
        _add(path, section, FAILED)


def _add(path: Path, section: Section, made_from: str) -> None:
    """Add to a report, which stays as old as it is: by this, the participant level tells if due."""
    written = path.stat()
    add_section(path, section, made_from)
    os.utime(path, ns=(written.st_atime_ns, written.st_mtime_ns))


def remove_others(root: Path, kept: Collection[str]) -> None:
    """Take R-indices of an earlier run out of the reports of all but these participants.

    Parameters
    ----------
    root
        The output folder.
    kept
        Labels of participants.
    """
    for path in root.glob(output_path('', 'report', participant='X').name.replace('X', '*')):
        label = without_prefix(path.stem, 'sub')
        if label in kept or not added_from(path):
            continue
        for name in FIGURES:
            _figure(root, label, name).unlink(missing_ok=True)
        if holds_more(path):
            remove_section(path)
        else:
            path.unlink()


def _by_which_model(one: Individual) -> str:
    if one.tables.model is not None:
        return f'by the model {one.tables.model}'
    if one.last.get(HELD_OUT) in (True,):
        return 'by a model that was trained on this dataset without the participant'
    return 'by a model that was trained on this dataset'


def _section(one: Individual, painter: RegionPainter | None) -> Section:
    """All that is shown of a participant's R-indices."""
    who = _who(one)
    if not one.tables.names:
        text = 'There are no R-indices: no pattern is supported by the training sample.'
        return Section('R-indices', (who, Notice(text, 'warning')))
    blocks: list[Block] = [Notice(text, 'warning') for text in _doubts(one)]
    if not one.is_known:
        reason = one.last.get('reason')
        text = f'There are no R-indices{f": {reason}" if isinstance(reason, str) else ""}.'
        return Section('R-indices', (who, Notice(text, 'warning'), *blocks))
    if not blocks:
        blocks = [Notice('nothing speaks against these R-indices.', 'good')]
    blocks.append(Numbers(tuple(_number(one, name) for name in one.names)))
    blocks.append(Facts(_facts(one)))
    parts = [
        Section('Where they stand', tuple(_standing(one))),
        Section('What they rest on', tuple(_contributions(one, painter))),
        Section('Over time', tuple(_course(one))),
    ]
    return Section('R-indices', (who, *blocks), tuple(part for part in parts if part.blocks))


SEX_NAMES = {'F': 'female', 'M': 'male'}


def _who(one: Individual) -> Html:
    """What is known of the participant, in a line, and the way back to the report of the group."""
    row = one.at_last(one.deviations)
    known = row.iloc[-1] if len(row) else pd.Series(dtype=object)
    known = known.reindex(['age', 'sex', 'site']).dropna()
    words = [SINGULAR.get(str(one.last.get('group')), '')]
    if 'age' in known:
        when = ' at the last visit' if len(one.results) > 1 else ''
        words.append(f'{known["age"]:.1f} years old{when}'.replace('.0 ', ' '))
    if 'sex' in known:
        # Sexes that are coded stay codes: which is which, nobody says.
        sex = str(known['sex']).removesuffix('.0')
        words.append(SEX_NAMES.get(sex_of(sex) or '', f'sex {sex}'))
    if 'site' in known:
        site = str(known['site'])
        words.append(site if site.lower().startswith('site') else f'site {site}')
    words.append(counted(len(one.results), 'visit'))
    line = ' · '.join(filter(None, words))
    path = output_path(one.tables.root, 'report', participant=one.label)
    back = os.path.relpath(output_path(one.tables.root, 'group_report'), path.parent)
    return Html(
        Markup('<p>{}. <a href="{}">All participants: the group report</a></p>').format(
            f'{line[0].upper()}{line[1:]}', back
        )
    )


def _doubts(one: Individual) -> list[str]:
    """What to know before the R-indices are used, in sentences."""
    flags = flags_of(one.last.to_dict())
    doubts = []
    if _is_of_unknown_scanner(one):
        doubts = [f'{NOT_ADAPTED}.']
        flags = [flag for flag in flags if flag is not NOT_HARMONIZED]
    for flag in flags:
        unusual = _unusual(one) if flag is OUTSIDE else ''
        doubts.append(f'{flag.long[0].upper()}{flag.long[1:]}{unusual}')
    images = image_flags(one.tables.root, one.name, one.last.get(SESSION))
    doubts += [flag.long for flag in images]
    if one.last.get(HELD_OUT) in (False,):
        doubts.append(
            'The model was trained on this participant: R-indices of controls are too low, those '
            'of patients too high.'
        )
    # Where the model was trained here, flags tell whom a pattern that was lost concerns.
    doubts_of_all = doubts_of_model(one.tables.card, lost=one.tables.model is not None)
    return [*doubts, *doubts_of_all]


def _is_of_unknown_scanner(one: Individual) -> bool:
    """Whether R-indices hold what the scanner does: it was not learned, and the model lacks it."""
    harmonized = one.tables.knows_sites and NOT_HARMONIZED not in flags_of(one.last.to_dict())
    return not one.tables.adapted and not harmonized


def _unusual(one: Individual) -> str:
    """The regions that are furthest from controls, in words."""
    row = one.at_last(one.deviations)
    features = [name for name in one.tables.region_of if name in row]
    if row.empty or not features:
        return ''
    values = row.iloc[-1][features].astype(float).dropna()
    far = values[values.abs() > FAR_SD].sort_values(key=abs, ascending=False)
    if far.empty:
        return ' No region by itself is unusual; their combination is.'
    listed = [f'{one.tables.region_of[str(name)]} ({z:+.1f} SD)' for name, z in far.items()]
    more = f' and {len(listed) - MOST_NAMED} more' if len(listed) > MOST_NAMED else ''
    return f' Furthest from controls: {", ".join(listed[:MOST_NAMED])}{more}.'


def _number(one: Individual, name: str) -> Number:
    """An R-index with its interval and its place among controls."""
    row, notes = one.last, []
    if pd.notna(row.get(f'{name}_low')) and pd.notna(row.get(f'{name}_high')):
        notes.append(f'68 %: {row[f"{name}_low"]:.2f} to {row[f"{name}_high"]:.2f}')
    if pd.notna(row.get(f'{name}_centile')):
        notes.append(f'centile {row[f"{name}_centile"]:.0f} among {_centile_of(row)}')
    return Number(name, f'{row[name]:.2f}', note='; '.join(notes))


def _centile_of(row: pd.Series) -> str:
    """Which controls a centile is of, in words."""
    words = {'like_age': ' of like age', 'training': ' of the training sample'}
    count = row.get('centile_controls')
    number = '' if pd.isna(count) else f'{count:.0f} '
    return f'{number}controls{words.get(str(row.get("centile_of")), "")}'


def _facts(one: Individual) -> dict[str, str]:
    """By which model, and what interval and centile mean."""
    session = one.last.get(SESSION)
    facts = {'Computed': _by_which_model(one)}
    if not one.tables.adapted:
        facts['Scanner'] = 'not learned, since there are too few controls'
        if not _is_of_unknown_scanner(one):
            facts['Scanner'] += '; taken for the site of this name in the training sample'
    if isinstance(session, str) and len(one.results) > 1:
        facts['Visit'] = f'{session}, the last of {len(one.results)}; the others are below'
    if any(pd.notna(one.last.get(f'{name}_low')) for name in one.names):
        facts['Interval'] = (
            'meant to hold 68 % of true severities: what anatomy, the noise of the segmentation, '
            'other patterns, the members and the sample of participants leave open'
        )
        if _is_of_unknown_scanner(one):
            facts['Interval'] += '; what the scanner adds is not in it'
    facts['How to read'] = (
        'about 1: as strong as in the most affected patients of the training sample. Healthy '
        'participants are not at 0, but where controls are. Not a probability, not a diagnosis'
    )
    return facts


def _standing(one: Individual) -> list[Block]:
    """R-indices among those of others."""
    names = one.names
    ends = {
        end: [one.last.get(f'{name}_{end}', np.nan) for name in names] for end in ('low', 'high')
    }
    own = pd.DataFrame({'value': one.last[names], **ends}, index=names).astype(float)
    whose, rows, counts = one.tables.reference
    drawn = plot_standing(own, rows, counts)
    caption = 'The diamond is the R-index, the bar its 68 % interval (where it is known).'
    if len(rows):
        caption += f' Above the line controls, below it patients of {whose}.'
    path = save_figure(one.figure('standing'), drawn)
    return [Figure(path, 'R-indices among those of others', caption, is_narrow=True)]


def _contributions(one: Individual, painter: RegionPainter | None) -> list[Block]:
    """What each R-index rests on: bars, and a map."""
    rows = one.at_last(one.contributions)
    if rows.empty:
        return []
    features = [name for name in one.tables.region_of if name in rows]
    by_index = rows.set_index('r_index')[['baseline', *features]].astype(float).T
    parts = {name: by_index[name] for name in one.names if name in by_index}
    words = Paragraph(
        'Each R-index is what the model gives the mean control, plus what every region adds '
        '(integrated gradients from the mean control); the parts add up to the R-index. They tell '
        'what the model looks at, not what caused the disease.'
    )
    drawn = plot_contributions(parts, one.tables.region_of)
    path = save_figure(one.figure('contributions'), drawn)
    caption = 'The strongest regions; red raises the R-index, blue lowers it.'
    blocks: list[Block] = [words, Figure(path, 'What each R-index rests on', caption)]
    if painter is not None:
        values = {name: _by_label(one, mine) for name, mine in parts.items()}
        drawn_map = painter.draw(one.figure('map'), values, 'part of the R-index')
        caption = (
            'The same on the template: red raises the R-index, blue lowers it; regions that add '
            'less than a twentieth of the strongest are not coloured. The left of the picture is '
            'the left of the head.'
        )
        blocks.append(Figure(drawn_map, 'Where in the brain', caption))
    return blocks


def _by_label(one: Individual, parts: pd.Series) -> dict[int, float]:
    """Contributions by MUSE index; regions of a sum all get what the sum has."""
    return {
        index: float(parts[each['Name']])
        for each in one.tables.card['FeatureDetails']
        for index in each['MUSERegions']
        if each['Name'] in parts
    }


def _course(one: Individual) -> list[Block]:
    """R-indices over visits, and which changes are larger than the noise of measurement."""
    names = one.names
    known = one.results.dropna(subset=names)
    if len(known) < 2:
        return []
    course, label, order = _times(one, known)
    path = save_figure(one.figure('course'), plot_course(course, names, label))
    blocks: list[Block] = [Figure(path, 'R-indices over visits', order)]
    return [*blocks, *_changes(one)]


def _times(one: Individual, known: pd.DataFrame) -> tuple[pd.DataFrame, str, str]:
    """R-indices with the time of each visit; what the time is; and how visits were put in order."""
    visits = one.deviations
    years = visits.set_index(SESSION)['years'] if 'years' in visits else pd.Series(dtype=float)
    time = known[SESSION].map(years)
    order = str(visits['order_by'].iloc[0]) if 'order_by' in visits and len(visits) else 'name'
    if time.notna().all():
        words = f'Visits are in the order of their {order}s; bars are 68 % intervals where known.'
        return known.assign(time=time, session=None), 'years since the first visit', words
    numbers = np.arange(len(known), dtype=float)
    words = 'There are no dates of visits: these are in the order of the names of the sessions.'
    return known.assign(time=numbers, session=known[SESSION]), 'session', words


def _changes(one: Individual) -> list[Block]:
    """Tables of changes: of R-indices, and of regions that changed reliably."""
    if one.changes.empty:
        return []
    table, names = one.changes, one.tables.names
    is_index = table['measure'].isin(names)
    tables = [
        _change_table(one, table[is_index], 'Changes of R-indices'),
        _change_table(one, _reliable(table[~is_index]), 'Regions that changed reliably (per cent)'),
    ]
    text = (
        'A change is called reliable where it is beyond a limit that follows from how two scans of '
        'the same brain differ (noise: standard deviation of such a difference). It is not known '
        'where the site has changed. Volumes also change by normal ageing. The noise was learned '
        f'from {PAIRS} people only, which limits allow for: where it is learned anew from as many '
        'simulated people, 6 % of people in whom nothing changed are beyond the limit of some '
        'R-index (5 % were meant); with the errors of the few people themselves, 15 % were. Take a '
        'change near its limit with care.'
    )
    return [Paragraph(text), *(each for each in tables if len(each.frame))]


def _reliable(changes: pd.DataFrame) -> pd.DataFrame:
    """Changes larger than noise, the clearest first."""
    clear = changes[changes['reliable'].eq(True)]
    order = (clear['change'] / clear['noise']).abs().sort_values(ascending=False).index
    return clear.loc[order[:MOST_CHANGES]]


def _change_table(one: Individual, changes: pd.DataFrame, caption: str) -> Table:
    words = {True: 'yes', False: 'no'}
    table = pd.DataFrame(
        {
            'from': changes['from_session'],
            'to': changes['to_session'],
            'years': changes['years'],
            'of': [one.tables.region_of.get(name, name) for name in changes['measure']],
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
