"""Results as files and as text: R-indices, volumes, summaries and model cards."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from surreal_bids.analysis.descriptions import (
    EXCLUDED,
    describe_contributions,
    describe_results,
    describe_volumes,
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
from surreal_bids.cohort.volumes import ICV
from surreal_bids.files import write_json, write_tsv
from surreal_bids.model.bundle import load_bundle, save_bundle
from surreal_bids.regions import recognise
from surreal_bids.rindices.crossfit import HELD_OUT
from surreal_bids.rindices.intervals import INTERVALS
from surreal_bids.rindices.model import VISIT
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
