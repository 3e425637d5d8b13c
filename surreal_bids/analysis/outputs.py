"""Results as files and as text: R-indices, volumes, summaries and model cards."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from surreal_bids.analysis.descriptions import (
    EXCLUDED,
    describe_contributions,
    describe_results,
    write_described,
)
from surreal_bids.bids.outputs import output_path, write_sidecar
from surreal_bids.bids.tabular import (
    CONTROL,
    PARTICIPANT,
    PATIENT,
    SESSION,
)
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.cohort.volumes import ICV, describe_volumes
from surreal_bids.files import write_json, write_tsv
from surreal_bids.harmonization.covariates import ICV as HEAD_SIZE
from surreal_bids.harmonization.covariates import LOG_ICV
from surreal_bids.model.agreement import LOW_AGREEMENT
from surreal_bids.model.bundle import load_bundle, save_bundle
from surreal_bids.model.stability import Stability
from surreal_bids.regions import recognise
from surreal_bids.rindices.crossfit import HELD_OUT, lost_patterns
from surreal_bids.rindices.intervals import INTERVALS
from surreal_bids.rindices.model import VISIT
from surreal_bids.rindices.new_sites import describe_added
from surreal_bids.rindices.preprocessing import COMPLETE
from surreal_bids.rindices.uncertainty import REFERENCE
from surreal_bids.text import counted, list_briefly

if TYPE_CHECKING:
    from surreal_bids.analysis.engine import GroupResults

LOGGER = logging.getLogger(__name__)


DECIMALS = 6
"""R-indices are written to the millionth: their rounding error is a tenth of that."""

SHOWN = 10
"""Excluded participants who are listed on the screen; the table has all."""


def write_results(
    path: Path, cohort: Cohort, results: pd.DataFrame, pattern_names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Write R-indices and, beside them, the JSON that describes the columns; returns the latter.

    Parameters
    ----------
    path
        The TSV file; the JSON has the same name with its own extension.
    cohort
        Whose they are.
    results
        What `TableModel.apply` returned, perhaps with the excluded.
    pattern_names
        Names of the R-indices.
    """
    table = results.round(DECIMALS)
    for name in ('brain_in_range', HELD_OUT):
        if name in table:
            table[name] = table[name].map(str, na_action='ignore').str.lower()
    visits = pd.concat([cohort.visits, cohort.exclusions]).loc[table.index]
    known = [name for name in (PARTICIPANT, SESSION, 'group') if name in visits]
    table = pd.concat([visits[known], table], axis=1)
    described = describe_results(table.columns, pattern_names)
    write_tsv(path, table)
    write_json(path.with_suffix('.json'), described)
    return described


def with_excluded(results: pd.DataFrame, cohort: Cohort) -> pd.DataFrame:
    """Add those of whom there are volumes but who were excluded, without R-indices."""
    excluded = [name for name in cohort.exclusions.index if name in cohort.measured.index]
    if not excluded:
        return results
    everyone = [name for name in cohort.measured.index if name in {*results.index, *excluded}]
    table = results.reindex(everyone)
    table.loc[excluded, 'status'] = EXCLUDED
    reasons = cohort.exclusions['reason'].reindex(everyone)
    return table.assign(
        reason=reasons.combine_first(table['reason']) if 'reason' in table else reasons
    )


CONTRIBUTION_DECIMALS = 8
"""So that the sum over hundreds of regions is the R-index to the millionth."""


def write_contributions(
    path: Path, cohort: Cohort, contributions: pd.DataFrame
) -> dict[str, dict[str, Any]]:
    """Write contributions and, beside them, the JSON that describes the columns; returns it.

    Parameters
    ----------
    path
        The TSV file; the JSON has the same name with its own extension.
    cohort
        Whose they are.
    contributions
        What `TableModel.contributions` or `CrossFit.contributions` returned.
    """
    visits = identifiers(cohort.visits).loc[contributions.index.get_level_values(VISIT)]
    numbers = contributions.round(CONTRIBUTION_DECIMALS).reset_index().drop(columns=VISIT)
    table = pd.concat([visits.reset_index(drop=True), numbers], axis=1)
    described = describe_contributions(table.columns)
    write_tsv(path, table)
    write_json(path.with_suffix('.json'), described)
    return described


VOLUME_DECIMALS = 2
"""Volumes of regions that are known are written to 0.01 mm3; the unit of others is not known."""


def publish_volumes(
    output_dir: Path, name: str, visits: pd.DataFrame, volumes: pd.DataFrame, cohort: Cohort
) -> Path:
    """Write a table of volumes and its description.

    Parameters
    ----------
    output_dir
        Root of the outputs.
    name
        `roi_volumes` or `harmonized_volumes`.
    visits : frame
        `participant_id`, and `session_id` if there are sessions, of each row.
    volumes : frame of the same rows
        Volumes, or, where they were divided by the ICV, proportions.
    cohort
        Tells what the regions are called.
    """
    is_volume = name == 'roi_volumes' or cohort.options.icv != 'proportion'
    known = {*recognise(volumes.columns), ICV}
    decimals = {column: VOLUME_DECIMALS for column in volumes if is_volume and column in known}
    table = pd.concat([visits, volumes.round(decimals)], axis=1)
    path = write_tsv(output_path(output_dir, name), table)
    write_sidecar(name, path, describe_volumes(table.columns, is_volume))
    return path


def identifiers(visits: pd.DataFrame) -> pd.DataFrame:
    """The columns that say whose visit it is."""
    return visits[[name for name in (PARTICIPANT, SESSION) if name in visits]]


def publish_group(output_dir: Path, found: GroupResults, model_dir: Path) -> None:
    """Write the tables of what was found in a cohort, and the model in `model_dir`."""
    cohort = found.cohort
    visits = identifiers(cohort.measured)
    measured = cohort.measured.drop(columns=visits.columns)
    publish_volumes(output_dir, 'roi_volumes', visits, measured, cohort)
    publish_volumes(
        output_dir, 'harmonized_volumes', identifiers(cohort.visits), found.harmonized, cohort
    )
    path = output_path(output_dir, 'rindices')
    write_sidecar('rindices', path, write_results(path, cohort, found.results, found.names))
    if found.names:
        path = output_path(output_dir, 'contributions')
        described = write_contributions(path, cohort, found.contributions)
        write_sidecar('contributions', path, described)
    notes = {} if found.fitted is None else {'CrossFit': found.fitted.note}
    learned = {
        name: found.model.notes[name]
        for name in (INTERVALS, REFERENCE)
        if name in found.model.notes
    }
    publish_model(output_dir, model_dir, notes | learned)
    tables = {
        'exclusions': cohort.exclusions,
        'patterns': found.patterns,
        'associations': found.associations,
        'covariates': found.covariates,
        'split_half': found.halves,
        'diagnosis': found.diagnosis,
        'differences': found.differences,
        'group_change': found.group_change,
        'changes': found.changes,
    }
    agreement = found.model.gan.state()[1]['Agreement']
    if agreement:
        tables['agreement'] = pd.DataFrame(agreement)
    for name, table in tables.items():
        if table is not None:
            write_described(name, output_path(output_dir, name), table)


def publish_model(output_dir: Path, model_dir: Path, notes: Mapping[str, Any]) -> None:
    """Write a model, with what its card says of models of folds and of what they showed."""
    tensors, card = load_bundle(model_dir)
    save_bundle(output_path(output_dir, 'model_card').parent, tensors, {**card, **notes})


Card = Mapping[str, Any]

UNKNOWN = 'not known'
LEFT_OUT = ('disagrees', 'diverged', 'collapsed')
"""What may have become of members that are not in the consensus, though of the chosen setting or
unfit for any."""

_ICV = {
    'none': 'head size: left in the features',
    'power': 'head size: removed by ratio; logarithms of features and of ICV (column {}) are used, '
    'then features again',
    'covariate': 'head size: ICV (column {}) is a covariate',
    'proportion': 'head size: features are divided by ICV (column {})',
}


def doubts_of_model(card: Card, lost: bool = True) -> list[str]:
    """What speaks against all R-indices of a model, in sentences.

    Parameters
    ----------
    card
        Content of `model.json`.
    lost
        Whether patterns count that were not found again without a part of the training sample.
    """
    doubts = []
    agreement = card.get('Selected', {}).get('agreement')
    if agreement is not None and agreement < LOW_AGREEMENT:
        doubts.append(
            f'The members of the model hardly agree ({agreement:.2f}, where 0.8 is good): do not '
            'use these R-indices.'
        )
    listed = lost_patterns(card.get('CrossFit', {})) if lost else []
    if listed:
        doubts.append(
            'Not found again when a part of the training sample was left out: '
            f'{", ".join(listed)}. Take these R-indices with care.'
        )
    return doubts


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
        'Sites added after training': describe_added(card.get('AddedSites', {})),
        'Model': _model(card, details),
        'R-indices of the training sample': _cross_fit(card),
        'Stability of patterns over subsamples of participants': _stability(card),
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
    return [title, f'{chosen}: {list_briefly(card["Features"])}']


def _preprocessing(state: Mapping[str, Any]) -> list[str]:
    options = state['options']
    encoder = (state['residualiser'] or {}).get('encoder', {})
    covariates = ', '.join(encoder.get('covariates', [])) or 'none'
    lines = [_ICV[options['icv']].format(options['icv_column'])]
    if state['imputer'] is not None:
        lines.append('missing features: filled in by regression among CN')
    lines.append(_harmonization(options['site_column'], state['combat']))
    lines.append(f'covariates, their effect among CN removed: {covariates}')
    for name, ends in encoder.get('range', {}).items():
        low, high = np.exp(ends) if name == LOG_ICV else ends
        column = options['icv_column'] if name in (HEAD_SIZE, LOG_ICV) else name
        lines.append(f'  {column} from {low:.6g} to {high:.6g} among CN')
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
        + f'; participants of other sites: {combat["unseen_site"]}'
    )


def _stability(card: Card) -> list[str]:
    if not card.get('Stability'):
        return []
    rows = [
        (
            str(row['n_patterns']),
            _index(row['value']),
            _index(max(row['null'], default=None)),
            _p_value(row),
            'chosen' if row['n_patterns'] == card['Selected']['n_patterns'] else '',
        )
        for row in card['Stability']['stabilities']
    ]
    return align([('patterns', 'stability', 'highest with shuffled labels', 'p', ''), *rows])


def _p_value(row: Mapping[str, Any]) -> str:
    p = Stability(row['n_patterns'], row['value'], tuple(row['null'])).p_value
    return UNKNOWN if p is None else f'{p:.3f}'


def _model(card: Card, details: bool) -> list[str]:
    selected = card['Selected']
    if selected['n_patterns'] == 0:
        return [
            'no pattern is supported: none is found again in other subsamples of the participants,',
            'or not better than with shuffled labels; there are no R-indices',
            f'preset {card["Preset"]}, seed {card["RandomState"]}',
        ]
    names = ', '.join(card['PatternNames'])
    lines = [
        f'{selected["n_patterns"]} patterns ({names}), lambda {_number(selected["ortho"])}, '
        f'agreement {_index(selected["agreement"])}'
    ]
    if 'Imported' in card:
        lines.append('one member, as saved by the authors')
    else:
        lines += [
            f'{len(selected["members"])} of {card["Repetitions"]} members averaged; patterns are '
            f'in the order of member {selected["reference"] + 1}',
            f'preset {card["Preset"]}, {card["Iterations"]} iterations, seed {card["RandomState"]}',
        ]
    if card.get('Spent'):
        spent = card['Spent']
        lines.append(
            f'trained: {spent["members"]} members, {spent["iterations"]:,} iterations in all; '
            f'ended because {spent["reason"]}'
        )
    if card.get('Linear'):
        agreed = ', '.join(map(_index, card['Linear']['agreement']))
        apart = ', '.join(f'{share:.1%}' for share in card['Linear']['differing'])
        lines += [
            f'linear factors of the same participants agree at {agreed}',
            f'  patients whose places differ by more than a quarter: {apart}',
        ]
    if details:
        given = {name: value for name, value in card['HyperParameters'].items() if value}
        lines += ['hyper-parameters', *(f'  {name} {value}' for name, value in given.items())]
    return lines


def _cross_fit(card: Card) -> list[str]:
    """By which models the R-indices of the training sample are."""
    if 'Imported' in card or 'TrainingSample' not in card or not card['PatternNames']:
        return []
    fitted = card.get('CrossFit')
    if fitted is None:
        return [
            'by this model, which was trained on them: too low in controls, too high in patients',
        ]
    least = ', '.join(f'{name} {value:.3f}' for name, value in fitted['LeastCorrelation'].items())
    lines = [
        f'{fitted["Folds"]} folds: each participant held out once, all steps learned without the '
        f'fold, with M and lambda of this model and {fitted["MembersPerFold"]} members',
        f'patterns of a fold correlate with those of this model at least by: {least}',
    ]
    lost = lost_patterns(fitted)
    if lost:
        lines.append(
            f'not found again without some participants, who have no R-index of it: '
            f'{list_briefly(lost)}; interpret with care'
        )
    if INTERVALS in card:
        lines.append(f'intervals: from {card[INTERVALS]["Controls"]} controls held out')
    if fitted['NotHeldOut']:
        lines.append(f'{fitted["NotHeldOut"]} could not be held out: see the reasons in the table')
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
    return align([('patterns', 'lambda', 'members', 'usable', 'agreement', ''), *rows])


def _members(card: Card) -> list[str]:
    return [
        f'{member["n_patterns"]} patterns, lambda {member["ortho"]:g}, member '
        f'{member["repetition"] + 1}: {member["status"]} (agreement {_index(member["agreement"])})'
        for member in card['Members']
        if member['status'] in LEFT_OUT
    ]


def _feature_details(card: Card) -> list[str]:
    details = card['FeatureDetails']
    columns = list(details[0]['Coefficients'])
    logarithm = ' (log)' if card['Preprocessing']['options']['icv'] == 'power' else ''
    header = ('name', 'MUSE', 'CN mean', 'CN sd', *(f'by {name}{logarithm}' for name in columns))
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


def summarise_cohort(cohort: Cohort) -> str:
    """Who is included and excluded, and what was decided, in words."""
    counts, out = cohort.counts, cohort.exclusions
    who = f'{counted(counts[CONTROL], "control")} and {counted(counts[PATIENT], "patient")}'
    if cohort.n_without_group:
        others = f'{counted(cohort.n_without_group, "participant")} whose group is not known'
        who = f'{who}, {others}' if any(counts.values()) else others
    lines = [
        f'{who}, {counted(len(cohort), "visit")}, {counted(len(cohort.wanted), "region")}',
        *(f'  {note}' for note in cohort.notes),
        *(f'  WARNING: {text}' for text in cohort.warnings),
        f'{len(out)} excluded' + (':' if len(out) else ''),
        *(f'  {visit}: {reason}' for visit, reason in out['reason'].head(SHOWN).items()),
    ]
    if len(out) > SHOWN:
        lines.append(f'  and {len(out) - SHOWN} more')
    return '\n'.join(lines) + '\n'


def summarise_results(results: pd.DataFrame, notes: Sequence[str] = ()) -> str:
    """Of how many participants R-indices were computed, and who needs a second look."""
    status = results['status']
    excluded = status.index[status == EXCLUDED]
    computed = len(results) - len(excluded)
    whose = 'participant or visit' if computed == 1 else 'participants or visits'
    lines = [f'R-indices of {computed} {whose}', *notes]
    lines += [f'excluded: {name}: {results.loc[name, "reason"]}' for name in excluded[:SHOWN]]
    if len(excluded) > SHOWN:
        lines.append(f'excluded: {len(excluded) - SHOWN} more')
    for value in sorted(set(status) - {COMPLETE, EXCLUDED}):
        lines.append(f'{value}: {list_briefly(status.index[status == value])}')
    if 'brain_in_range' in results:
        lines += _outside_population(results)
    return '\n  '.join(lines) + '\n'


def _outside_population(results: pd.DataFrame) -> list[str]:
    people = results.index[results['brain_in_range'].eq(False)]
    if len(people) == len(results) > 1:
        LOGGER.warning(
            'everyone lies outside the training population; check that units and regions are '
            'those of the model (surreal-gan card)'
        )
    return [f'outside the training population: {list_briefly(people)}'] if len(people) else []
