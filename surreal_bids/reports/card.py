"""The card of a model: what it is, what to know before using it, and how it was made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from surreal_bids.analysis.headlines import differ_by_half, headline
from surreal_bids.analysis.statistics import is_icv_in_mm3, mean_and_sd
from surreal_bids.bids.outputs import output_path
from surreal_bids.cautions import Caution
from surreal_bids.harmonization.covariates import ICV, LOG_ICV
from surreal_bids.imaging.quality import split_side
from surreal_bids.model.agreement import NO_PATTERN
from surreal_bids.model.number import (
    REPRODUCTIONS,
    SHARE,
    Explanation,
    explain_choice,
    least_stability,
    stored_number,
)
from surreal_bids.names import CONTROL, GROUP_NAMES, PATIENT, column_of, means
from surreal_bids.reports.pages import environment, listing
from surreal_bids.rindices.crossfit import doubts_of_model
from surreal_bids.rindices.limits import few_at_added, in_sample
from surreal_bids.rindices.model import ADDED_SITES, REPRODUCIBILITY
from surreal_bids.rindices.new_sites import describe_added
from surreal_bids.text import (
    DECIMALS,
    beside_limit,
    counted,
    decimals_apart,
    list_briefly,
    plain_number,
)

Card = Mapping[str, Any]

HEAD_SIZE = {
    'none': 'not corrected',
    'power': 'corrected with an allometric (log-log) model fitted in controls; ICV is column {}',
    'covariate': 'ICV (column {}) is a covariate',
    'proportion': 'features are divided by ICV (column {})',
}

SHORTEST, BESIDE_CAUTIONS = ('Model', 'To watch'), ('Model', 'Trained on', 'Patterns', 'Applies to')
"""Lines of a verdict that a quiet command shows, and one that lists warnings itself."""

NOT_ASSESSED = (
    'not assessed here, without intervals and centiles, which need R-indices of the training sample'
)
NOTHING_TO_ASSESS = 'cannot be assessed: the file does not describe the training sample'
"""What is not known of an imported model."""


def verdict_text(card: Card, lines: Iterable[str] | None = None) -> str:
    """Return the verdict on a model in lines: what it is and what to know before using it."""
    facts = verdict(card)
    return '\n'.join(f'{name}: {facts[name]}' for name in lines or facts if name in facts)


def card_text(card: Card) -> str:
    """Return the card of a model as text; `model.json` has more."""
    explained = explain_number(card)
    return (
        environment()
        .get_template('card.txt')
        .render(
            verdict=verdict(card),
            origin=_origin(card),
            preprocessing=preprocessing_facts(card['Preprocessing']),
            added=describe_added(card.get(ADDED_SITES, {})),
            model=model_facts(card),
            tried=[] if explained is None else explained.rows,
            features=[feature['Name'] for feature in card['FeatureDetails']],
        )
        .rstrip()
    )


def verdict(card: Card) -> dict[str, str]:
    """Return what a model is, and what to know before using it."""
    watch, explained = cautions_of(card), explain_number(card)
    meanings = [f'{name} {meaning}' for name, meaning in published_meanings(card).items()]
    found = [*how_scored(card), *describe_reproducibility(card)]
    sample = card.get('TrainingSample')
    imported = card.get('Imported')
    facts = {
        'Model': _contents(card),
        'Trained on': 'not known' if sample is None else '; '.join(_sample(sample)),
        'Patterns': ' '.join(found) or ', '.join(card['PatternNames']) or 'none',
        'To watch': ' '.join(map(str, watch)) or 'no warnings about the model',
        'Applies to': _applies_to(card),
    }
    if explained is not None:
        facts['Number of patterns'] = ' '.join(explained.sentences)
    if imported is not None:
        citation = f'; see {imported["Citation"]}' if 'Citation' in imported else ''
        facts['Trained on'] = f'not described in the file{citation}'
        facts['Patterns'] = '; '.join([*meanings, NOT_ASSESSED])
        facts['To watch'] = ' '.join(map(str, watch)) or NOTHING_TO_ASSESS
    return facts


def cautions_of(card: Card) -> list[Caution]:
    """Return what to check before R-indices of a model are used."""
    if card['Selected']['n_patterns'] == 0:
        return [NO_PATTERN]
    without_folds = 'Imported' not in card and 'CrossFit' not in card
    remedy = 'Do not compare the groups of the training sample; train with --folds 5 to do so'
    folds = [in_sample('No cross-fitting', remedy)] if without_folds else []
    added = card.get(ADDED_SITES, {})
    return [*doubts_of_model(card), *folds, *few_at_added(added, added)]


def explain_number(card: Card) -> Explanation | None:
    """Return why a model has its number of patterns; None if nothing was compared."""
    number = stored_number(card.get('Stability'))
    if number is None:
        return None
    used = card['Selected']['n_patterns']
    explained = explain_choice(number, used, card['Sample']['n_pt'])
    tested = [each for each in number.stabilities if each.n_patterns == used]
    if not tested:
        return explained
    joined = _join_verdicts(tested[0].is_supported, reproducibility_of(card))
    return explained._replace(sentences=(*explained.sentences, *joined))


def _join_verdicts(is_supported: bool, patterns: Mapping[str, Reproducibility]) -> list[str]:
    """Explain verdicts on the number of patterns and on the patterns that seem to differ."""
    compared = (
        'Stability compares linear factors of subsamples with each other, and reproducibility '
        'compares them with the final R-indices'
    )
    weak = [name for name, each in patterns.items() if not each.is_enough]
    if is_supported and weak:
        verb = 'is' if len(weak) == 1 else 'are'
        return [
            f'{compared}: the number of patterns is supported, but {listing(weak)} {verb} not '
            'reproducible and should not be interpreted.'
        ]
    if not is_supported and len(weak) < len(patterns):
        return [
            f'{compared}: R-indices can be reproducible although the number of patterns is not '
            'supported, and should not be interpreted then.'
        ]
    return []


class Reproducibility(NamedTuple):
    """How well a pattern is reproduced: the correlation and its range, and a verdict."""

    value: float
    low: float
    high: float
    least: float

    @property
    def is_enough(self) -> bool:
        """Whether the pattern may be interpreted."""
        return self.value >= self.least

    @property
    def correlations(self) -> str:
        """The correlation and its range, with enough decimals beside the minimum."""
        value, low = beside_limit(self.value, self.least), beside_limit(self.low, self.least)
        return f'{value} ({low} to {self.high:.2f})'

    @property
    def verdict(self) -> str:
        """In words; a pattern may be lost in a few subsamples."""
        if not self.is_enough:
            return 'not reproducible'
        return 'reproducible' if self.low >= self.least else 'reproducible in most subsamples'


def reproducibility_of(card: Card) -> dict[str, Reproducibility]:
    """Return the reproducibility of each pattern in random subsamples, as far as known."""
    known = card.get(REPRODUCIBILITY) or {}
    least = least_stability(len(known))
    return {
        name: Reproducibility(each['Median'], each['Low'], each['High'], least)
        for name, each in known.items()
    }


def describe_reproducibility(card: Card) -> list[str]:
    """Return the reproducibility of patterns as a sentence, if it is known."""
    listed = ', '.join(
        f'{name} {each.correlations}' for name, each in reproducibility_of(card).items()
    )
    how = f'the correlation with the R-indices in {REPRODUCTIONS} random subsamples of {SHARE:.0%}'
    return [f'Reproducibility: {listed}, {how} (median; 90% of subsamples).'] if listed else []


def how_scored(card: Card) -> list[str]:
    """Return whether training participants were scored out of fold, as a sentence."""
    if 'CrossFit' not in card or not card['PatternNames']:
        return []
    folds = card['CrossFit']['Folds']
    return [
        f'Each participant was scored by a model trained without them ({folds}-fold cross-fitting).'
    ]


def published_meanings(card: Card) -> dict[str, str]:
    """Return the meaning of each R-index of a published model in its paper; empty for others."""
    return dict(sorted(card.get('Imported', {}).get('Patterns', {}).items()))


def model_facts(card: Card) -> dict[str, Any]:
    """Return the settings of a model and how it was trained."""
    chosen, imported = card['Selected'], card.get('Imported')
    facts: dict[str, Any] = {'patterns': chosen['n_patterns'], 'preset': card['Preset']}
    if imported is not None:
        facts |= {'members': 'one, as saved by its authors', **published_meanings(card)}
        return facts | ({'cite': imported['Citation']} if 'Citation' in imported else {})
    if chosen['n_patterns']:
        agreement = chosen['agreement']
        facts['members'] = (
            f'{len(chosen["members"])} of {card["Repetitions"]} are averaged (a member is one '
            'training run with its own random seed)'
        )
        facts['weight of orthogonality (lambda)'] = f'{chosen["ortho"]:.6g}'
        facts['agreement of members'] = 'not known' if agreement is None else f'{agreement:.3f}'
    if card['RandomState'] is not None:
        facts['random seed'] = card['RandomState']
    fitted = card.get('CrossFit')
    if fitted and fitted['LeastCorrelation']:
        least = ', '.join(f'{name} {r:.3f}' for name, r in fitted['LeastCorrelation'].items())
        facts['R-indices of the training sample'] = (
            f'out of fold, {fitted["Folds"]} folds; lowest correlation between the model of a fold '
            f'and the final model: {least}'
        )
    return facts


def preprocessing_facts(state: Mapping[str, Any]) -> dict[str, str]:
    """Return what a model does to volumes before it sees them."""
    options, combat = state['options'], state['combat']
    icv = str(options['icv_column'] or column_of(options['covariates'], 'icv'))
    handling = 'covariate' if icv in options['covariates'] else options['icv']
    facts = {'sides': _describe_sides(state), 'head size': HEAD_SIZE[handling].format(icv)}
    if state['imputer'] is not None:
        facts['missing features'] = 'imputed by regression among controls'
    facts['sites'] = 'not harmonized'
    if combat is not None:
        sizes = ', '.join(f'{site} {n}' for site, n in zip(combat['sites'], combat['site_sizes']))
        facts['sites'] = f'ComBat fitted on controls ({sizes})'
    encoder = (state['residualiser'] or {}).get('encoder', {})
    covariates = ', '.join(encoder.get('covariates', [])) or 'none'
    facts['covariates'] = f'{covariates} (effects estimated in controls and removed)'
    return facts | _covered(encoder, state['codes'], icv)


def _describe_sides(state: Mapping[str, Any]) -> str:
    """Return whether a model sees left and right regions as one feature."""
    if 'structures' not in state:
        return 'every region of the table is a feature'
    n_regions, n_structures = (len(state[key]['features']) for key in ('features', 'structures'))
    return f'together: {n_regions} regions are {n_structures} features'


def _covered(encoder: Mapping[str, Any], codes: Mapping[str, Any], icv: str) -> dict[str, str]:
    """Return the range or the levels of each covariate; `icv` is the column of the head size."""
    facts = {}
    for name, ends in encoder.get('range', {}).items():
        column = icv if name in (ICV, LOG_ICV) else name
        if name in codes:
            facts[f'levels of {name}'] = ', '.join(word.upper() for word in codes[name])
        else:
            low, high = np.exp(ends) if name == LOG_ICV else ends
            facts[f'range of {column} in controls'] = range_of(column, low, high)
    for name, levels in encoder.get('levels', {}).items():
        facts[f'levels of {name}'] = ', '.join(levels)
    return facts


def _applies_to(card: Card) -> str:
    """Return which participants a model can be applied to."""
    steps = card['Preprocessing']
    facts = preprocessing_facts(steps)
    ranges = [f'{name} {value}' for name, value in facts.items() if name.startswith('range of')]
    known = (steps['combat'] or {}).get('sites', [])
    sites = [f'sites {list_briefly(known)}, others after surreal-gan add-site'] if known else []
    return '; '.join([f'the same {len(card["FeatureDetails"])} features', *ranges, *sites])


def _contents(card: Card) -> str:
    names, made = card['PatternNames'], card['GeneratedBy']
    listed = f' ({", ".join(names)})' if names else ''
    whence = f'{made["Name"]} {made["Version"]}, preset {card["Preset"]}'
    whence = card.get('Imported', {}).get('Title') or whence
    features = f'{len(card["FeatureDetails"])} features'
    return f'{counted(len(names), "pattern")}{listed}, {features}; {whence}'


def _origin(card: Card) -> list[str]:
    made, imported = card['GeneratedBy'], card.get('Imported')
    lines = [f'{made["Name"]} {made["Version"]} (torch {made["Torch"]}, Python {made["Python"]})']
    if imported:
        title = imported['Title'] or 'a SurrealGAN checkpoint'
        lines.append(f'imported from {imported["File"]}, epoch {imported["Epoch"]}: {title}')
        lines.append(imported['Note'])
        shown = {'Source': 'source', 'License': 'licence'}
        lines += [f'{word}: {imported[key]}' for key, word in shown.items() if key in imported]
    return lines


def _sample(sample: Mapping[str, Any]) -> Sequence[str]:
    lines = []
    for group in (CONTROL, PATIENT):
        columns = [describe_column(name, it) for name, it in sample[group].items() if name != 'n']
        described = f': {"; ".join(columns)}' if columns else ''
        lines.append(f'{sample[group]["n"]} {GROUP_NAMES[group]} ({group}){described}')
    return lines


def meanings_of(card: Card, root: Path) -> dict[str, str]:
    """Return what each pattern is: in its paper, or by its regions in the table of patterns."""
    path = output_path(root, 'patterns')
    if 'Imported' in card or not path.is_file():
        return published_meanings(card)
    patterns = pd.read_csv(path, sep='\t', na_values=['n/a'], keep_default_na=False)
    meanings = {}
    for name, rows in patterns.groupby('pattern', sort=False):
        where = headline(rows)
        meanings[str(name)] = f'{where}. {pattern_words(rows)}' if where else pattern_words(rows)
    return meanings


def pattern_words(rows: pd.DataFrame, most: int = 5) -> str:
    """Describe a pattern by the regions that it changes, the largest changes first.

    Parameters
    ----------
    rows : frame
        Rows of one pattern of the table of patterns.
    most
        Regions that are named in each direction.
    """
    shown = rows[rows['shown'].astype(bool)]
    structures = [split_side(str(name))[1] for name in shown['region']]
    shown = shown.assign(structure=_unite_sides(shown['change_sd'].tolist(), structures))
    kinds = []
    for words, sign in (('Smaller', -1), ('Larger', 1)):
        of_sign = shown[np.sign(shown['change_sd']) == sign]
        by_structure = of_sign.groupby('structure', sort=False)
        order = by_structure['change_sd'].mean().abs().sort_values(ascending=False).index
        listed = [_change_words(by_structure.get_group(name)) for name in order[:most]]
        more = f' and {len(order) - most} more' if len(order) > most else ''
        if listed:
            kinds.append(f'{words}: {", ".join(listed)}{more}')
    return '. '.join(kinds) or 'No region changes by more than its spread'


def _unite_sides(changes: Sequence[float], structures: Sequence[str]) -> list[str]:
    """Return a key per region, which two sides of a structure share if their changes are alike."""
    changes_of: dict[str, list[float]] = {}
    for structure, change in zip(structures, changes):
        changes_of.setdefault(structure, []).append(change)
    keys = []
    for number, structure in enumerate(structures):
        of_sides = changes_of[structure]
        are_apart = len(of_sides) == 2 and differ_by_half(*of_sides)
        keys.append(f'{structure} {number}' if are_apart else structure)
    return keys


def _change_words(rows: pd.DataFrame) -> str:
    """Return a region, or both sides of it, with the mean change."""
    name = str(rows['region'].iloc[0])
    if len(rows) > 1:
        name = split_side(name)[1]
    name = f'{name[0].lower()}{name[1:]}' if name[1:2].islower() else name
    if rows['change_percent'].notna().all():
        return f'{name} {rows["change_percent"].mean():+.0f}%'
    return f'{name} {rows["change_sd"].mean():+.1f} SD'


def range_of(name: str, low: float, high: float) -> str:
    """Return the range of a covariate with its unit."""
    if is_icv_in_mm3(name, low):
        return f'{low / 1000:,.0f} to {high / 1000:,.0f} ml'
    if means(name, 'age'):
        return f'{low:.1f} to {high:.1f} years'
    return f'{plain_number(low)} to {plain_number(high)}'


def describe_column(name: str, values: Mapping[str, float]) -> str:
    """Return mean, SD and range of a covariate, or how often it has each value."""
    if set(values) == {'mean', 'std', 'min', 'max'}:
        middle = mean_and_sd(name, values['mean'], values['std'])
        return f'{name} {middle} ({range_of(name, values["min"], values["max"])})'
    return f'{name}: ' + ', '.join(f'{level} {count}' for level, count in values.items())


def formats_of_tried(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return formats for the numbers of patterns that were tried.

    Decimals show on which side of its limits each stability lies.
    """
    limits = ('needed', 'permuted data, highest')
    decimals = DECIMALS
    for row in rows:
        for limit in limits:
            if row[limit] is not None:
                decimals = max(decimals, decimals_apart(row['stability'], row[limit]))
    stabilities = ('stability', *limits, 'permuted data, median')
    return {**dict.fromkeys(stabilities, f'{{:.{decimals}f}}'), 'p': '{:.2g}'}
