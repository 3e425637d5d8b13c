"""The card of a model: one list of sections, shown as text by the command line and in reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from surreal_bids.analysis.statistics import describe_column, range_of
from surreal_bids.cautions import Caution
from surreal_bids.columns import column_of
from surreal_bids.harmonization.covariates import ICV, LOG_ICV
from surreal_bids.model.agreement import NO_PATTERN, warn_of_agreement
from surreal_bids.model.number import (
    REPRODUCTIONS,
    Explanation,
    Stability,
    explain_choice,
    stored_number,
)
from surreal_bids.model.number import (
    SHARE as SUBSAMPLE_SHARE,
)
from surreal_bids.names import CONTROL, PATIENT
from surreal_bids.reports.pages import (
    Block,
    Facts,
    Number,
    Paragraph,
    Section,
    Table,
    text_lines,
)
from surreal_bids.rindices.crossfit import (
    MIN_REPRODUCED,
    doubts_of_model,
    in_sample,
    not_reproduced,
)
from surreal_bids.rindices.intervals import INTERVALS
from surreal_bids.rindices.model import ADDED_SITES, REPRODUCIBILITY
from surreal_bids.rindices.new_sites import describe_added, few_at_added
from surreal_bids.text import counted, list_briefly

Card = Mapping[str, Any]

GOOD_AGREEMENT = 0.8
"""Agreement from which members are taken to have found the same patterns."""

UNKNOWN = 'not known'

EXCLUDED_MEMBERS = ('disagrees', 'diverged', 'collapsed')
"""Status of members that were trained but are not part of the average."""

MEMBERS = 'members, that is training runs with their own random seeds,'
"""What a member is, where the word is first used."""

HEAD_SIZE = {
    'none': 'not corrected',
    'power': 'corrected with an allometric (log-log) model fitted in controls; ICV is column {}',
    'covariate': 'ICV (column {}) is a covariate',
    'proportion': 'features are divided by ICV (column {})',
}


SHORTEST, BESIDE_CAUTIONS = ('Model', 'To watch'), ('Model', 'Trained on', 'Patterns', 'Applies to')
"""Lines of a verdict that a quiet command shows, and one that lists warnings itself."""


def verdict_text(card: Card, lines: Sequence[str] | None = None) -> str:
    """Return the verdict on a model: what it is and what to know before using it, in lines."""
    facts = verdict(card)
    return '\n'.join(text_lines([Facts({name: facts[name] for name in lines or facts})]))


def card_text(card: Card, details: bool = True) -> str:
    """Return the whole card of a model as text.

    Parameters
    ----------
    card
        Content of `model.json`.
    details
        Also show the hyper-parameters and the table of features.
    """
    sections = card_sections(card, details)
    return '\n\n'.join(
        '\n'.join([section.title, *(f'  {line}' for line in text_lines(section.blocks))])
        for section in sections
    )


def card_sections(card: Card, details: bool) -> list[Section]:
    """Return the sections of a card, the verdict first; see :func:`card_text`."""
    added = describe_added(card.get(ADDED_SITES, {}))
    sections = [
        Section('Verdict', (Facts(verdict(card)),)),
        Section('Origin', _paragraphs(_origin(card))),
        Section('Training sample', _paragraphs(_sample(card))),
        Section('Features', _paragraphs(_features(card))),
        Section('Preprocessing', (Facts(_preprocessing(card['Preprocessing'])),)),
        Section('Sites added after training', _paragraphs(added)),
        Section('Model', (model_facts(card),)),
        Section('R-indices of the training sample', _paragraphs(_cross_fit(card))),
        Section('Number of patterns', stability_table(card)),
        Section('Agreement of members', agreement_table(card)),
        Section('Members excluded from the average', _paragraphs(_excluded_members(card))),
    ]  # fmt: skip
    if details:
        given = {name: value for name, value in card['HyperParameters'].items() if value}
        sections.append(Section('Hyper-parameters', (Facts(given),)))
        sections.append(Section('Feature details', (_feature_table(card),)))
    return [section for section in sections if section.blocks]


def verdict(card: Card) -> dict[str, str]:
    """Return what a model is, and what to know before using it."""
    watch = cautions_of(card)
    facts = {
        'Model': _contents(card),
        'Trained on': '; '.join(_sample(card)),
        'Patterns': ' '.join(assurances(card)) or ', '.join(card['PatternNames']) or 'none',
        **_number_of_patterns(card),
        'To watch': ' '.join(map(str, watch)) or 'no warnings about the model',
        'Applies to': _applies_to(card),
    }
    if 'Imported' in card:
        meanings = [f'{name} {meaning}' for name, meaning in published_meanings(card).items()]
        facts['Trained on'] = f'not described in the file{_read_in(card["Imported"])}'
        facts['Patterns'] = '; '.join([*meanings, NOT_ASSESSED])
        facts['To watch'] = ' '.join(map(str, watch)) or NOTHING_TO_ASSESS
    return facts


def _number_of_patterns(card: Card) -> dict[str, str]:
    explained = explain_number(card)
    return {} if explained is None else {'Number of patterns': ' '.join(explained.sentences)}


NOT_ASSESSED = (
    'not assessed here, without intervals and centiles, which need R-indices of the training sample'
)
NOTHING_TO_ASSESS = 'cannot be assessed: the file does not describe the training sample'
"""What is not known of an imported model."""


def cautions_of(card: Card) -> list[Caution]:
    """Return what to check before R-indices of a model are used."""
    if card['Selected']['n_patterns'] == 0:
        return [NO_PATTERN]
    without_folds = 'Imported' not in card and 'CrossFit' not in card
    remedy = 'Do not compare the groups of the training sample; train with --folds 5 to do so'
    folds = [in_sample('No cross-fitting', remedy)] if without_folds else []
    added = card.get(ADDED_SITES, {})
    return [*doubts_of_model(card), *folds, *few_at_added(added, added)]


def assurances(card: Card, applied: bool = False) -> list[str]:
    """Return how well patterns were reproduced, as sentences.

    Parameters
    ----------
    card
        Content of `model.json`.
    applied
        Whether the R-indices are those of new participants, not of the training sample.
    """
    found = [*how_scored(card, applied), *_how_reproducible(card)]
    tested = _tested(card)
    return (
        [*found, f'Permutation test of any pattern: {", ".join(_p_value(tested))}.']
        if tested
        else found
    )


def how_scored(card: Card, applied: bool) -> list[str]:
    """Return whether participants were scored out of fold, as a sentence."""
    fitted = card.get('CrossFit')
    if fitted is None or applied:
        return []
    return [
        'Each participant was scored by a model trained without them '
        f'({fitted["Folds"]}-fold cross-fitting).'
    ]


def _how_reproducible(card: Card) -> list[str]:
    """Return the reproducibility of patterns, or the agreement of folds and members if unknown.

    A warning tells of members that hardly agree.
    """
    if card.get(REPRODUCIBILITY):
        told = describe_reproducibility(card[REPRODUCIBILITY])
        return [f'Reproducibility: {told}.']
    fitted, agreement = card.get('CrossFit') or {}, card['Selected']['agreement']
    found = []
    if fitted.get('LeastCorrelation'):
        least = fitted['LeastCorrelation'].items()
        listed = ', '.join(f'{name} {value:.2f}' for name, value in least)
        found.append(
            f'Lowest correlation of a pattern between a fold and the final model: {listed} '
            f'({MIN_REPRODUCED:g} is enough).'
        )
    if agreement is not None and not warn_of_agreement(agreement):
        how = _how_well(agreement, is_stable=not not_reproduced(fitted))
        found.append(f'Its {MEMBERS} agree {how} ({agreement:.2f}; {GOOD_AGREEMENT:g} is good).')
    return found


def describe_reproducibility(reproduced: Mapping[str, Mapping[str, float]]) -> str:
    """Return the reproducibility of each pattern as a sentence."""
    listed = ', '.join(
        f'{name} {each["Median"]:.2f} ({each["Low"]:.2f} to {each["High"]:.2f})'
        for name, each in reproduced.items()
    )
    return (
        f'{listed}, the correlation with the R-indices in {REPRODUCTIONS} random subsamples of '
        f'{SUBSAMPLE_SHARE:.0%} (median; 90% of subsamples)'
    )


def _how_well(agreement: float, is_stable: bool) -> str:
    """Return how well members agree, in words."""
    if agreement < GOOD_AGREEMENT:
        return 'fairly; compare groups, not individuals'
    return 'well' if is_stable else 'well, but patterns change when some participants are excluded'


def _applies_to(card: Card) -> str:
    """Return which participants a model can be applied to."""
    steps = card['Preprocessing']
    facts = _preprocessing(steps)
    ranges = [f'{name} {value}' for name, value in facts.items() if name.startswith('range of')]
    known = (steps['combat'] or {}).get('sites', [])
    sites = f'sites {list_briefly(known)}, others after surreal-gan add-site' if known else ''
    features = f'the same {len(card["FeatureDetails"])} features'
    return '; '.join(filter(None, [features, *ranges, sites]))


def _contents(card: Card) -> str:
    names = card['PatternNames']
    listed = f' ({", ".join(names)})' if names else ''
    made = card['GeneratedBy']
    imported = card.get('Imported', {})
    whence = imported.get('Title') or f'{made["Name"]} {made["Version"]}, preset {card["Preset"]}'
    features = f'{len(card["FeatureDetails"])} features'
    return f'{counted(len(names), "pattern")}{listed}, {features}; {whence}'


def _paragraphs(lines: Sequence[str]) -> tuple[Paragraph, ...]:
    return tuple(map(Paragraph, lines))


def _origin(card: Card) -> list[str]:
    made = card['GeneratedBy']
    lines = [f'{made["Name"]} {made["Version"]} (torch {made["Torch"]}, Python {made["Python"]})']
    imported = card.get('Imported')
    if imported:
        title = imported['Title'] or 'a SurrealGAN checkpoint'
        lines.append(f'imported from {imported["File"]}, epoch {imported["Epoch"]}: {title}')
        lines.append(imported['Note'])
        shown = {'Source': 'source', 'License': 'licence'}
        lines += [f'{word}: {imported[key]}' for key, word in shown.items() if key in imported]
    return lines


def _sample(card: Card) -> list[str]:
    sample = card.get('TrainingSample')
    if sample is None:
        return [UNKNOWN]
    lines = []
    for group, word in ((CONTROL, 'controls'), (PATIENT, 'patients')):
        columns = [describe_column(name, it) for name, it in sample[group].items() if name != 'n']
        described = f': {"; ".join(columns)}' if columns else ''
        lines.append(f'{sample[group]["n"]} {word} ({group}){described}')
    return lines


def _features(card: Card) -> list[str]:
    features = card['Preprocessing']['features']
    units = sorted({feature['Units'] for feature in card['FeatureDetails']})
    chosen = 'columns of the table' if features['name'] == 'columns' else features['name']
    return [
        f'{len(features["features"])} features, unit: {", ".join(units)}',
        f'{chosen}: {list_briefly(card["Features"])}',
    ]


def _preprocessing(state: Mapping[str, Any]) -> dict[str, str]:
    options = state['options']
    encoder = (state['residualiser'] or {}).get('encoder', {})
    icv = str(options['icv_column'] or column_of(options['covariates'], 'icv'))
    handling = 'covariate' if icv in options['covariates'] else options['icv']
    facts = {'head size': HEAD_SIZE[handling].format(icv)}
    if state['imputer'] is not None:
        facts['missing features'] = 'imputed by regression among controls'
    facts['sites'] = _harmonization(options['site_column'], state['combat'])
    covariates = ', '.join(encoder.get('covariates', [])) or 'none'
    facts['covariates'] = f'{covariates} (effects estimated in controls and removed)'
    for name, ends in encoder.get('range', {}).items():
        low, high = np.exp(ends) if name == LOG_ICV else ends
        column = icv if name in (ICV, LOG_ICV) else name
        facts[f'range of {column} in controls'] = range_of(column, low, high)
    for name, levels in encoder.get('levels', {}).items():
        facts[f'levels of {name}'] = ', '.join(levels)
    facts['scaling'] = 'each feature has mean 1 and SD 0.1 in controls'
    return facts


def _harmonization(site_column: str | None, combat: Mapping[str, Any] | None) -> str:
    if combat is None:
        return 'not harmonized'
    sizes = zip(combat['sites'], combat['site_sizes'])
    others = 'not harmonized' if combat['unseen_site'] == 'skip' else combat['unseen_site']
    return (
        f'ComBat fitted on controls ({", ".join(f"{site} {size}" for site, size in sizes)}; column '
        f'{site_column}); participants from other sites: {others}'
    )


def model_facts(card: Card) -> Facts:
    """Return the settings of a model and how it was trained."""
    chosen = card['Selected']
    facts: dict[str, Any] = {'patterns (M)': chosen['n_patterns']}
    if chosen['n_patterns']:
        facts['weight of orthogonality'] = f'lambda {_number(chosen["ortho"])}'
        facts |= _member_facts(card)
    facts['preset'] = card['Preset']
    if card['RandomState'] is not None:
        facts['random seed'] = card['RandomState']
    return Facts(facts)


def _member_facts(card: Card) -> dict[str, str]:
    if 'Imported' in card:
        citation = card['Imported'].get('Citation')
        cite = {'cite': citation} if citation else {}
        return {'members': 'one, as saved by its authors', **published_meanings(card), **cite}
    chosen, limit = card['Selected'], 'maximum' if card['Preset'] == 'sparse' else 'minimum'
    return {
        'members': f'{len(chosen["members"])} of {card["Repetitions"]} are averaged (a member is '
        'one training run with its own random seed)',
        'reference member': f'{chosen["reference"] + 1} (gives the order of the patterns)',
        'agreement of members': _index(chosen['agreement']),
        f'{limit} iterations per member': f'{card["Iterations"]:,}',
    }


def published_meanings(card: Card) -> dict[str, str]:
    """Return the meaning of each R-index of a published model in its paper; empty for others."""
    return dict(sorted(card.get('Imported', {}).get('Patterns', {}).items()))


def _read_in(imported: Mapping[str, Any]) -> str:
    """Return where to read about the training sample of a published model."""
    return f'; see {imported["Citation"]}' if 'Citation' in imported else ''


def _tested(card: Card) -> Stability | None:
    """Return the test of whether there is any pattern at all; None if there was none."""
    number = stored_number(card.get('Stability'))
    return None if number is None else number.tested


def _p_value(tested: Stability) -> tuple[str, str]:
    """Return a p-value, and from how many permutations: whether it could have been smaller."""
    count = len(tested.null)
    smallest = 'the smallest possible ' if tested.p_value == 1 / (count + 1) else ''
    return f'p = {tested.p_value:.2g}', f'{smallest}with {count} permutations'


def against_chance(card: Card) -> list[Number]:
    """Return the test of whether there is any pattern at all, by permuted data."""
    tested = _tested(card)
    if tested is None:
        return []
    note = (
        f'Stability {tested.value:.2f}; with permuted data median {median(tested.null):.2f}, '
        f'maximum {max(tested.null):.2f}. Preprocessing was repeated for each permutation'
    )
    return [Number('Permutation test of any pattern', *_p_value(tested), note)]


def explain_number(card: Card) -> Explanation | None:
    """Return why a model has its number of patterns; None if nothing was compared."""
    number = stored_number(card.get('Stability'))
    if number is None:
        return None
    return explain_choice(number, card['Selected']['n_patterns'], card['Sample']['n_pt'])


def stability_table(card: Card) -> tuple[Table, ...]:
    """Return each number of patterns that was tried, and why it was chosen or not."""
    explained = explain_number(card)
    if explained is None:
        return ()
    table = pd.DataFrame(explained.rows)
    formats = dict.fromkeys(table.columns[1:5], '{:.2f}') | {'p': '{:.2g}'}
    return (Table(table, STABILITY, formats),)


STABILITY = (
    'Stability: correlation of a pattern between models of different random subsamples; the '
    'lowest over patterns is shown. The largest number of patterns is chosen that has the needed '
    'stability and is more stable than with permuted data. The permutation test was run only '
    'where it could affect the choice.'
)
"""What the columns of the table mean, and how the number was chosen."""


def agreement_table(card: Card) -> tuple[Block, ...]:
    """Return the agreement of the members of each setting that was tried."""
    if not card['Agreement']:
        return ()
    chosen = (card['Selected']['n_patterns'], card['Selected']['ortho'])
    names = {
        'n_patterns': 'patterns',
        'ortho': 'lambda',
        'n_members': 'members',
        'n_healthy': 'usable',
        'agreement': 'agreement',
        'score': 'score',
    }
    table = pd.DataFrame(card['Agreement'])
    is_chosen = [pair == chosen for pair in zip(table['n_patterns'], table['ortho'])]
    table = table[[name for name in names if name in table]].rename(columns=names)
    numbers = (card.get('Stability') or {}).get('stabilities', ())
    word = 'requested' if len(table) == 1 and len(numbers) < 2 else 'chosen'
    table['selection'] = [word if each else '' for each in is_chosen]
    formats = {'agreement': '{:.3f}', 'score': '{:.3f}', 'lambda': '{:g}'}
    caption = f'Mean agreement of all pairs of members (pattern-agr-index). {AGREEMENT_TERMS}'
    return (Table(table, caption, formats, fold='All settings'),)


AGREEMENT_TERMS = (
    'Lambda: weight of the orthogonality loss. Usable: number of members that converged. Score: '
    'criterion by which the number of patterns and lambda are chosen (the mean agreement, or the '
    'agreement of the best member with its nearest members, depending on the preset).'
)


def _cross_fit(card: Card) -> list[str]:
    """Return how the R-indices of the training sample were computed."""
    if 'Imported' in card or 'TrainingSample' not in card or not card['PatternNames']:
        return []
    fitted = card.get('CrossFit')
    if fitted is None:
        return ['from this model, which was trained on them']
    least = ', '.join(f'{name} {value:.3f}' for name, value in fitted['LeastCorrelation'].items())
    known = ', starting from its patterns,' if fitted.get('StartsFromFinal') else ''
    lines = [
        f'out of fold, {fitted["Folds"]} folds; each fold repeats all steps with M and lambda of '
        f'this model{known} and {counted(fitted["MembersPerFold"], "member")}',
        'lowest correlation between the model of a fold and the final model (below '
        f'{MIN_REPRODUCED:g}: not reproduced): {least}',
    ]
    if INTERVALS in card:
        lines.append(f'intervals: from {card[INTERVALS]["Controls"]} out-of-fold controls')
    if fitted['NotHeldOut']:
        lines.append(
            f'{counted(fitted["NotHeldOut"], "participant")} without out-of-fold R-indices: the '
            'column reason of rindices.tsv explains why'
        )
    return lines


def _excluded_members(card: Card) -> list[str]:
    return [
        f'{counted(member["n_patterns"], "pattern")}, lambda {member["ortho"]:g}, member '
        f'{member["repetition"] + 1}: {member["status"]} (agreement {_index(member["agreement"])})'
        for member in card['Members']
        if member['status'] in EXCLUDED_MEMBERS
    ]


def _feature_table(card: Card) -> Table:
    logarithm = ' (log)' if card['Preprocessing']['options']['icv'] == 'power' else ''
    rows = [
        {
            'name': feature['Name'],
            'MUSE': '+'.join(map(str, feature['MUSERegions'])) or '-',
            'CN mean': feature['CNMean'],
            'CN SD': feature['CNStd'],
        }
        | {f'{name}{logarithm}': value for name, value in feature['Coefficients'].items()}
        for feature in card['FeatureDetails']
    ]
    table = pd.DataFrame(rows)
    caption = 'Mean and SD in controls, and coefficients of the covariates'
    return Table(table, caption, dict.fromkeys(table.columns[2:], '{:.6g}'))


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f'{value:.6g}'


def _index(value: float | None) -> str:
    return UNKNOWN if value is None else f'{value:.3f}'
