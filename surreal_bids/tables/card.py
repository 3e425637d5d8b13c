"""The card of a model in words: what it was trained on, what it does, how far to trust it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from surreal_bids.harmonization.tables import name_some
from surreal_bids.tables.groups import CONTROL, PATIENT

Card = Mapping[str, Any]

UNKNOWN = 'not known'
LEFT_OUT = ('disagrees', 'diverged', 'collapsed')
"""What may have become of members that are not in the consensus, though of the chosen setting or
unfit for any."""

_ICV = {
    'none': 'head size: left in the features',
    'covariate': 'head size: ICV (column {}) is a covariate',
    'proportion': 'head size: features are divided by ICV (column {})',
}


def readable_card(card: Card, details: bool = True) -> str:
    """Write a card as text.

    Parameters
    ----------
    card
        Content of `model.json`.
    details
        Also list every feature with its numbers.
    """
    sections = {
        'Origin': _origin(card),
        'Training sample': _sample(card),
        'Features': _features(card),
        'Preprocessing': _preprocessing(card['Preprocessing']),
        'Model': _model(card, details),
        'Agreement of members (pattern-agr-index)': _agreement(card),
        'Members left out': _members(card),
        'Numbers of each feature': _feature_details(card) if details else [],
    }
    return '\n\n'.join(
        '\n'.join([title, *(f'  {line}' for line in lines)])
        for title, lines in sections.items()
        if lines
    )


def align(rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table with columns of equal width."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ['  '.join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows]


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f'{value:.6g}'


def _index(value: float | None) -> str:
    return UNKNOWN if value is None else f'{value:.3f}'


def _origin(card: Card) -> list[str]:
    made = card['GeneratedBy']
    lines = [f'{made["Name"]} {made["Version"]} (torch {made["Torch"]}, Python {made["Python"]})']
    imported = card.get('Imported')
    if imported:
        title = imported['Title'] or 'a checkpoint of SurrealGAN'
        lines.append(f'imported from {imported["File"]}, epoch {imported["Epoch"]}: {title}')
        lines.append(imported['Note'])
    return lines


def _sample(card: Card) -> list[str]:
    sample = card.get('TrainingSample')
    if sample is None:
        return [UNKNOWN]
    return [
        f'{sample[group]["n"]} {word} ({group}){_people(sample[group])}'
        for group, word in ((CONTROL, 'controls'), (PATIENT, 'patients'))
    ]


def _people(group: Mapping[str, Any]) -> str:
    described = [_column(name, values) for name, values in group.items() if name != 'n']
    return f': {"; ".join(described)}' if described else ''


def _column(name: str, values: Mapping[str, float]) -> str:
    if set(values) == {'mean', 'std', 'min', 'max'}:
        return (
            f'{name} {values["mean"]:.4g} +- {values["std"]:.3g} '
            f'({values["min"]:.4g} to {values["max"]:.4g})'
        )
    return f'{name}: ' + ', '.join(f'{level} {count}' for level, count in values.items())


def _features(card: Card) -> list[str]:
    features = card['Preprocessing']['features']
    units = sorted({feature['Units'] for feature in card['FeatureDetails']})
    title = f'{len(features["features"])} features, unit: {", ".join(units)}'
    chosen = 'columns of the table' if features['name'] == 'columns' else features['name']
    return [title, f'{chosen}: {name_some(card["Features"])}']


def _preprocessing(state: Mapping[str, Any]) -> list[str]:
    options = state['options']
    encoder = (state['residualiser'] or {}).get('encoder', {})
    covariates = ', '.join(encoder.get('covariates', [])) or 'none'
    lines = [_ICV[options['icv']].format(options['icv_column'])]
    if state['imputer'] is not None:
        lines.append('missing features: filled in by regression among CN')
    lines.append(_harmonization(options['site_column'], state['combat']))
    lines.append(f'covariates, their effect among CN removed: {covariates}')
    for name, (low, high) in encoder.get('range', {}).items():
        lines.append(f'  {name} from {low:.6g} to {high:.6g} among CN')
    for name, levels in encoder.get('levels', {}).items():
        lines.append(f'  {name}: {", ".join(levels)}')
    lines.append('scaled so that CN have mean 1 and sd 0.1 in each feature')
    return lines


def _harmonization(site_column: str | None, combat: Mapping[str, Any] | None) -> str:
    if combat is None:
        return 'sites: not harmonized'
    sizes = zip(combat['sites'], combat['site_sizes'])
    return (
        f'sites (column {site_column}): ComBat, learned on {combat["fit_on"]}: '
        + ', '.join(f'{site} {size}' for site, size in sizes)
        + f'; people of other sites: {combat["unseen_site"]}'
    )


def _model(card: Card, details: bool) -> list[str]:
    selected = card['Selected']
    names = ', '.join(card['PatternNames'])
    lines = [
        f'{selected["n_patterns"]} patterns ({names}), lambda {_number(selected["ortho"])}, '
        f'agreement {_index(selected["agreement"])}'
    ]
    if 'Imported' in card:
        lines.append('one member, as saved by the authors')
    else:
        lines += [
            f'{len(selected["members"])} of {card["Repetitions"]} members averaged; repetition '
            f'{selected["reference"]} names the patterns',
            f'preset {card["Preset"]}, {card["Iterations"]} iterations, seed {card["RandomState"]}',
        ]
    if details:
        given = {name: value for name, value in card['HyperParameters'].items() if value}
        lines += ['hyper-parameters', *(f'  {name} {value}' for name, value in given.items())]
    return lines


def _agreement(card: Card) -> list[str]:
    if not card['Agreement']:
        return []
    chosen = (card['Selected']['n_patterns'], card['Selected']['ortho'])
    rows = [
        (
            str(row['n_patterns']),
            f'{row["ortho"]:g}',
            str(row['n_members']),
            str(row['n_healthy']),
            _index(row['agreement']),
            'chosen' if (row['n_patterns'], row['ortho']) == chosen else '',
        )
        for row in card['Agreement']
    ]
    return align([('patterns', 'lambda', 'members', 'healthy', 'agreement', ''), *rows])


def _members(card: Card) -> list[str]:
    return [
        f'{member["n_patterns"]} patterns, lambda {member["ortho"]:g}, repetition '
        f'{member["repetition"]}: {member["status"]} (agreement {_index(member["agreement"])})'
        for member in card['Members']
        if member['status'] in LEFT_OUT
    ]


def _feature_details(card: Card) -> list[str]:
    details = card['FeatureDetails']
    columns = list(details[0]['Coefficients'])
    header = ('name', 'MUSE', 'CN mean', 'CN sd', *(f'by {name}' for name in columns))
    rows = [
        (
            feature['Name'],
            '+'.join(map(str, feature['MUSERegions'])) or '-',
            _number(feature['CNMean']),
            _number(feature['CNStd']),
            *(_number(feature['Coefficients'][name]) for name in columns),
        )
        for feature in details
    ]
    return align([header, *rows])
