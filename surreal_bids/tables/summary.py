"""What happened, in plain text: after training, and after applying a model."""

from __future__ import annotations

import logging

import pandas as pd

from surreal_bids.harmonization.tables import name_some
from surreal_bids.tables.card import readable_card
from surreal_bids.tables.groups import CONTROL, PATIENT, Groups
from surreal_bids.tables.pipeline import TableModel
from surreal_bids.tables.preprocessing import COMPLETE, NONE_BEYOND
from surreal_bids.tables.training import TrainingTable

LOGGER = logging.getLogger(__name__)


def summarise_training(model: TableModel, training: TrainingTable, results: pd.DataFrame) -> str:
    """Say who was in, what was chosen, how well members agree, and who was left out and why."""
    groups = training.groups
    counts = groups.labels.value_counts()
    lines = [
        f'{counts[CONTROL]} controls ({CONTROL}) and {counts[PATIENT]} patients ({PATIENT}) '
        f'in the table; {groups.describe()}',
        *_other_people(groups),
        *(f'not trained on, {line}' for line in _unusual_status(results['status'])),
    ]
    people = '\n'.join(['People', *(f'  {line}' for line in lines)])
    return f'{people}\n\n{readable_card(model.state()[1], details=False)}\n'


def _other_people(groups: Groups) -> list[str]:
    if not groups.left_out:
        return []
    people = [f'{person} ({value or "missing"})' for person, value in groups.left_out.items()]
    return [f'{len(people)} left out for their diagnosis: {name_some(people)}']


def _unusual_status(status: pd.Series) -> list[str]:
    unusual = sorted(set(status) - {COMPLETE})
    return [f'{value}: {name_some(status.index[status == value])}' for value in unusual]


def summarise_results(results: pd.DataFrame) -> str:
    """Say how many people R-indices were computed of, and who needs a second look."""
    count = f'{len(results)} {"person" if len(results) == 1 else "people"}'
    lines = [f'R-indices of {count}', *_unusual_status(results['status'])]
    if 'in_range' in results:
        lines += _outside_population(results)
    if 'beyond_range' in results:
        lines += _beyond_range(results['beyond_range'].dropna())
    return '\n  '.join(lines) + '\n'


def _outside_population(results: pd.DataFrame) -> list[str]:
    people = results.index[results['in_range'].eq(False)]
    if len(people) == len(results) > 1:
        LOGGER.warning(
            'everyone lies outside the training population; check that units and regions are '
            'those of the model (surreal-gan card)'
        )
    return [f'outside the training population: {name_some(people)}'] if len(people) else []


def _beyond_range(beyond: pd.Series) -> list[str]:
    people = [f'{person} ({names})' for person, names in beyond.items() if names != NONE_BEYOND]
    return [f'covariates beyond the training range: {name_some(people)}'] if people else []
