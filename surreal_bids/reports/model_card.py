"""What the report of the group says of the model: how it was chosen, and how far to trust it."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

import pandas as pd

from surreal_bids.analysis.engine import GroupResults
from surreal_bids.model.agreement import LOW_AGREEMENT
from surreal_bids.model.stability import Stability, any_pattern, stored_number
from surreal_bids.reports.flags import FEW_ROWS
from surreal_bids.reports.pages import Block, Notice, Number, Table
from surreal_bids.rindices.crossfit import HELD_OUT, NOT_HELD_OUT, lost_patterns
from surreal_bids.stats.concordance import chance_agreement

GOOD_AGREEMENT = 0.8
"""From here on members found the same patterns."""


def chance_of(card: Mapping[str, Any]) -> float:
    """Agreement of unrelated members, for as many patients and patterns as were trained on."""
    return chance_agreement(card['Sample']['n_pt'], card['Selected']['n_patterns'])


def against_chance(card: Mapping[str, Any]) -> list[Number]:
    """Whether there is any pattern at all, by shuffled labels."""
    number = stored_number(card.get('Stability'))
    tested = None if number is None else any_pattern(number)
    if tested is None:
        return []
    note = (
        f'stability {tested.value:.2f}; {median(tested.null):.2f} with shuffled labels '
        f'(highest of {len(tested.null)}: {max(tested.null):.2f}), for which preprocessing was '
        'learned again'
    )
    return [Number('Any pattern', f'p = {tested.p_value:.2g}', note=note)]


def _lost(found: GroupResults) -> str:
    """Patterns that a model of a fold has not found again; empty where there is none.

    Of a model that is applied, the card tells of its training.
    """
    note = found.model.notes.get('CrossFit', {}) if found.fitted is None else found.fitted.note
    return ', '.join(lost_patterns(note))


def held_out(found: GroupResults) -> list[Block]:
    """By which models R-indices are."""
    lost = _lost(found)
    if HELD_OUT not in found.results:
        text = (
            f'Not found again when a part of the training sample was left out: {lost}. Interpret '
            'these R-indices with care.'
        )
        return [Notice(text, 'warning')] if lost else []
    if found.fitted is None:
        text = (
            'R-indices are by the model that was trained on these participants (no folds: asked '
            'for, or too few participants). Those of controls are too low, those of patients too '
            'high: do not compare the groups by them.'
        )
        return [Notice(text, 'warning')]
    note = found.fitted.note
    text = (
        f'R-indices on this page are of participants held out: by models that were trained without '
        f'them, in {note["Folds"]} folds.'
    )
    blocks: list[Block] = [Notice(text, 'good')]
    if lost:
        text = (
            f'Not found again when the participants of a fold were left out: {lost}. These '
            'participants have no R-index of it; interpret those of the others with care.'
        )
        blocks.append(Notice(text, 'warning'))
    lacking = found.results[found.results['status'] == NOT_HELD_OUT]
    if len(lacking):
        table = pd.DataFrame({'who': lacking.index, 'why': lacking['reason']})
        fold = f'{len(lacking)} could not be held out' if len(lacking) > FEW_ROWS else ''
        blocks.append(Table(table, 'Who could not be held out, and why', fold=fold))
    return blocks


def members_agree(agreement: float | None, found: GroupResults) -> list[Block]:
    """Whether members of the model found the same patterns; None: not known."""
    if agreement is None:
        return []
    if agreement < LOW_AGREEMENT:
        text = (
            'The members hardly agree: the patterns were not found, and the R-indices below should '
            'not be used. Train longer (--iterations), or with more participants.'
        )
        return [Notice(text, 'warning')]
    if agreement < GOOD_AGREEMENT:
        return [Notice('Members agree fairly. Compare groups rather than individuals.')]
    if _lost(found):
        text = (
            'Members that were trained on all participants found the same patterns, but without '
            'some of the participants others are found: more participants are needed.'
        )
        return [Notice(text)]
    return [Notice('Members trained from different seeds found the same patterns.', 'good')]


NOTHING_FOUND = (
    'No pattern is supported: none is found again in other subsamples of the participants, or not '
    'better than with shuffled labels. There are no R-indices. If you expect patterns, check the '
    'labels of the groups, the covariates and the number of participants.'
)


def stability_table(card: Mapping[str, Any]) -> list[Block]:
    """How the number of patterns was chosen, beside shuffled labels."""
    if not card.get('Stability'):
        return []
    rows = [
        {
            'patterns': row['n_patterns'],
            'stability': row['value'],
            'shuffled labels, median': median(row['null']) if row['null'] else None,
            'shuffled labels, highest': max(row['null'], default=None),
            'p': Stability(row['n_patterns'], row['value'], tuple(row['null'])).p_value,
            'chosen': 'chosen' if row['n_patterns'] == card['Selected']['n_patterns'] else '',
        }
        for row in card['Stability']['stabilities']
    ]
    caption = (
        'How well patterns are found again: correlation of the least stable one between subsamples '
        'of the participants. Shuffled labels were tried where they could change the answer.'
    )
    formats = dict.fromkeys(
        ('stability', 'shuffled labels, median', 'shuffled labels, highest', 'p'), '{:.2f}'
    )
    return [Table(pd.DataFrame(rows), caption, formats | {'p': '{:.3f}'})]


def linear_table(card: Mapping[str, Any]) -> list[Block]:
    """The linear factors beside the R-indices."""
    if not card.get('Linear'):
        return []
    rows = zip(card['PatternNames'], card['Linear']['agreement'], card['Linear']['differing'])
    table = pd.DataFrame(rows, columns=['pattern', 'agreement', 'patients who differ'])
    caption = (
        'R-indices beside the linear factors of the same patients: c-index, and share of patients '
        'whose places among all are more than a quarter apart. Where they differ, so does what a '
        'linear model can and cannot express; look at these patients.'
    )
    formats = {'agreement': '{:.3f}', 'patients who differ': '{:.1%}'}
    return [Table(table, caption, formats)]


def card_facts(card: Mapping[str, Any]) -> dict[str, Any]:
    """The model in a few words."""
    chosen = card['Selected']
    facts = {
        'Patterns (M)': chosen['n_patterns'],
        'λ': 'not known' if chosen['ortho'] is None else f'{chosen["ortho"]:g}',
        'Members averaged': f'{len(chosen["members"])} of {card["Repetitions"]}',
        'Iterations': f'{card["Iterations"]:,}',
        'Settings': card['Preset'],
        'Features': card['NumberOfFeatures'],
    }
    if card.get('Spent'):
        spent = card['Spent']
        facts['Trained'] = f'{spent["members"]} members, {spent["iterations"]:,} iterations in all'
        facts['Ended because'] = spent['reason']
    imported = card.get('Imported')
    return facts | ({'Origin': imported['Title'] or imported['File']} if imported else {})
