"""Controls and patients of a screen: told apart, counted, and all others excluded."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

import pandas as pd

from surreal_bids.bids.tabular import Table, names
from surreal_bids.cohort.exclusions import Screen
from surreal_bids.cohort.groups import (
    UNDIVIDED,
    Grouping,
    GroupLabels,
    Groups,
    GroupUse,
    find_controls,
    find_groups,
    names_no_controls,
)
from surreal_bids.cohort.plausibility import Reasons, summarise_reasons
from surreal_bids.cohort.reader import visit_columns
from surreal_bids.cohort.requirements import Requirements
from surreal_bids.columns import column_of
from surreal_bids.config import CohortOptions
from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.empirical_bayes import MIN_FOR_SCALE
from surreal_bids.model.networks import MIN_PEOPLE
from surreal_bids.names import CONTROL, PATIENT, SINGULAR
from surreal_bids.text import counted, list_briefly


def divide_people(
    known: Table,
    screen: Screen,
    options: CohortOptions,
    model: Requirements | None,
    groups: GroupUse = 'known',
) -> Grouping:
    """Tell controls from patients, and count the controls that a model can learn from.

    A model can be applied without controls, for example to one new participant. Its groups are
    looked for among all participants, whether or not they have volumes.
    """
    if groups == 'compared':
        return UNDIVIDED
    group_labels = GroupLabels(
        options.group_column, options.control_label, options.patient_label, options.no_guess
    )
    if groups == 'controls':
        return Grouping(find_controls(known, group_labels))
    if model is None:
        return Grouping(find_groups(known, group_labels))
    if names_no_controls(known, group_labels):
        return Grouping(lacking='no diagnosis is known to mean controls; set --control-label')
    divided = find_groups(known, group_labels, both=False)
    n_controls = screen.counts(divided)[CONTROL]
    if n_controls >= MIN_FOR_SCALE:
        return Grouping(divided)
    return Grouping(divided, f'{counted(n_controls, "control")}, at least {MIN_FOR_SCALE} needed')


def compared_groups(known: Table, used: Collection[str]) -> Grouping:
    """Tell controls from patients for comparisons only, where the diagnosis shows who they are.

    Parameters
    ----------
    known
        Facts about visits.
    used
        Columns that the model needs.
    """
    column = column_of(known.columns, 'diagnosis')
    if column is None or column in used:
        return UNDIVIDED
    with suppress(DataError):
        if not names_no_controls(known):
            return Grouping(find_groups(known, both=False), only_compared=True)
    values = list_briefly(sorted(set(names(known, column).dropna())))
    needed = 'needs one value for controls and one for patients, others empty'
    return Grouping(lacking=f'{needed}; found: {values}' if values else 'no values')


def exclude_other_groups(screen: Screen, grouping: Grouping, training: bool) -> None:
    """Exclude visits of neither group; refuse groups that are too small."""
    if grouping.groups is not None:
        screen.exclude(_of_other_groups(grouping.groups))
    if grouping.learned_from is not None:
        require_groups(grouping.learned_from, screen, training)


def _of_other_groups(groups: Groups) -> Reasons:
    """Return the reasons for excluding visits that belong to neither group."""
    neither = 'neither control nor patient' if groups.patient_labels else 'not a control'
    return {
        name: f'{groups.column} is missing'
        if value is None
        else f'{groups.column} is {value}, which is {neither}'
        for name, value in groups.left_out.items()
    }


def require_groups(groups: Groups, screen: Screen, training: bool) -> None:
    """Refuse groups that are too small, and name the most frequent reasons for exclusion."""
    needed = {CONTROL: MIN_PEOPLE, PATIENT: MIN_PEOPLE if groups.patient_labels else 0}
    if not training:
        needed = {CONTROL: MIN_FOR_SCALE, PATIENT: 0}
    remedy = 'add participants, or correct --control-label and --patient-label'
    if screen.reasons:
        reasons = summarise_reasons(screen.reasons.values())
        remedy = f'{counted(len(screen.reasons), "visit")} excluded: {reasons}'
    counts = screen.counts(groups)
    for group, minimum in needed.items():
        n_left = counts[group]
        if n_left < minimum:
            raise DataError(
                f'{counted(n_left, SINGULAR[group])} left, but at least {minimum} are needed; '
                f'{remedy}'
            )


def visits_with_groups(screen: Screen, grouping: Grouping, groups: GroupUse) -> pd.DataFrame:
    """Return remaining visits with their group, which is missing where it is not known."""
    visits = visit_columns(screen.remaining_visits().values(), screen.prefix)
    if groups == 'compared' and grouping.groups is None:
        return visits
    labels = pd.Series(dtype=object) if grouping.groups is None else grouping.groups.labels
    return visits.assign(group=labels.reindex(visits.index))
