"""Change of R-indices between visits, beside the noise of measurement."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats
from statsmodels.stats.multitest import multipletests

from surreal_bids.analysis.statistics import STATISTICS_COLUMNS
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.cohort.roles import ONE_SITE
from surreal_bids.cohort.visits import NAME
from surreal_bids.names import GROUP_NAMES, PARTICIPANT, PATIENT, SESSION, column_of
from surreal_bids.rindices.crossfit import HELD_OUT, CrossFit
from surreal_bids.rindices.measurement_noise import (
    REAL_ERRORS,
    Noise,
    noise_of_indices,
    widening_between_sites,
)
from surreal_bids.rindices.model import TableModel
from surreal_bids.rindices.new_sites import HERE
from surreal_bids.rindices.preprocessing import Preprocessing
from surreal_bids.stats.mixed import DIFFERENCE, MIN_YEARS, compare_change

FALSE_ALARMS = 0.05
"""Share of pairs of visits without any change in which that of some R-index is called reliable."""

CHANGE_COLUMNS = [
    PARTICIPANT,
    *('from_session', 'to_session', 'years', 'order_by', 'site_changed'),
    *('measure', 'change', 'per_year', 'noise', 'limit', 'reliable'),
]

GROUP_COLUMNS = [*STATISTICS_COLUMNS[1:], 'outcome']


def noise_of_results(cohort: Cohort, model: TableModel, fitted: CrossFit | None) -> Noise:
    """Noise of the R-indices of a cohort, by the models that gave them: (n_visits, M)."""
    if fitted is None:
        return noise_of_indices(model, cohort)
    found = [
        [each.rename(columns=names) for each in noise_of_indices(known, own)]
        for known, names, own in fitted.held_out(cohort)
    ]
    sd, df = (
        pd.concat(each).reindex(index=cohort.visits.index, columns=list(model.pattern_names))
        for each in list(zip(*found)) or [(pd.DataFrame(),)] * 2
    )
    return Noise(sd, df)


def follow_visits(
    cohort: Cohort,
    model: TableModel,
    results: pd.DataFrame,
    fitted: CrossFit | None = None,
) -> tuple[pd.DataFrame | None, pd.DataFrame | None, str]:
    """Changes of participants and of groups, and which visits the latter exclude.

    None where everyone has one visit.

    Parameters
    ----------
    cohort, model, fitted
        Whom, by which model, and by which models of folds.
    results
        R-indices of every visit.
    """
    if not cohort.visits[PARTICIPANT].duplicated().any() or not model.pattern_names:
        return None, None, ''
    noise = noise_of_results(cohort, model, fitted)
    linked = linked_sites(cohort, model, fitted)
    changes = describe_changes(cohort, results, noise, model.preprocessing, linked)
    if 'group' not in cohort.visits:
        return changes, None, ''
    return changes, *compare_groups_over_time(cohort, results, model.pattern_names, linked)


def linked_sites(cohort: Cohort, model: TableModel, fitted: CrossFit | None) -> pd.Series:
    """Site of each visit, if R-indices there can be compared with those at other sites.

    They can if all models, those of folds too, have compared the site with others within
    participants. Missing otherwise.
    """
    column = cohort.options.site_column
    if column is None:
        return pd.Series(None, cohort.visits.index, dtype=object)
    site = cohort.people[column]
    for known in (model, *(() if fitted is None else fitted.models.values())):
        combat = known.preprocessing.combat
        site = site.where(site.isin([] if combat is None else combat.compared_sites_))
    return site


def describe_changes(
    cohort: Cohort,
    results: pd.DataFrame,
    noise: Noise,
    steps: Preprocessing,
    linked: pd.Series,
) -> pd.DataFrame:
    """Compare each visit of a participant with the next, and the last with the first.

    Parameters
    ----------
    cohort
        Visits of each participant in order.
    results
        R-indices of every visit, and what is known of them.
    noise : of frames of shape (n_visits, M)
        Noise of R-indices (:func:`noise_of_results`); its columns name them.
    steps
        Fitted steps, by which changes between sites are judged.
    linked : Series of shape (n_visits,)
        Result of :func:`linked_sites`.

    Returns
    -------
    DataFrame with `CHANGE_COLUMNS`
        One row per pair of visits and R-index; `bids/columns.yaml` describes them.
    """
    pairs, values = _pairs(cohort), results[list(noise.sd)]
    ends = pairs['from'], pairs['to']
    before, after = (values.loc[end].to_numpy(np.float64) for end in ends)
    change = after - before
    moved = pairs['site_changed'].eq('true').to_numpy()
    widening = widening_between_sites(steps, *(end.map(linked) for end in ends))
    widening = np.where(moved, widening, 1.0)
    sd = np.hypot(*(noise.sd.loc[end].to_numpy(np.float64) for end in ends))
    sd *= np.nan_to_num(widening, nan=1.0)[:, np.newaxis]
    # Both visits have the same noise, so that it is no better known of their difference.
    df = np.fmin(*(noise.df.loc[end].to_numpy(np.float64) for end in ends))
    limit = sd * limit_in_sd(values.shape[1], df)
    # What was filled in is no measurement, and has more noise than one.
    sound = _is_sound(results) & cohort.features.notna().all(axis=1).reindex(results.index)
    judged = np.isfinite(widening) & sound[ends[0]].to_numpy() & sound[ends[1]].to_numpy()
    known = np.isfinite(change) & np.isfinite(limit) & judged.astype(bool)[:, np.newaxis]
    reliable = np.where(np.abs(change) > limit, 'true', 'false').astype(object)
    reliable[~known] = None
    years = pairs['years'].where(pairs['years'] >= MIN_YEARS).to_numpy(np.float64)[:, np.newaxis]
    columns = {'change': change, 'per_year': change / years, 'noise': sd, 'limit': limit}
    table = pairs.loc[pairs.index.repeat(values.shape[1])].assign(
        measure=np.tile(list(values), len(pairs)),
        reliable=reliable.ravel(),
        **{name: each.ravel().round(6) for name, each in columns.items()},
    )
    return table.reset_index(drop=True)[CHANGE_COLUMNS]


def _pairs(cohort: Cohort) -> pd.DataFrame:
    """Visits to compare: `from` and `to` name them, and the columns that tell about the two."""
    visits = _visits(cohort)
    pairs: list[tuple[Any, Any]] = []
    for own in visits.groupby(PARTICIPANT, sort=False).groups.values():
        pairs += pairwise(own)
        if len(own) > 2:
            pairs.append((own[0], own[-1]))
    first, second = map(list, zip(*pairs))
    before, after = (visits.loc[end].reset_index(drop=True) for end in (first, second))
    known = before['site'].notna() & after['site'].notna()
    changed = before['site'].ne(after['site']).map({True: 'true', False: 'false'})
    return pd.DataFrame(
        {
            'from': first,
            'to': second,
            PARTICIPANT: before[PARTICIPANT],
            'from_session': before[SESSION],
            'to_session': after[SESSION],
            'years': (after['years'] - before['years']).round(4),
            'order_by': after['order_by'],
            'site_changed': changed.where(known, None),
        }
    )


def _visits(cohort: Cohort) -> pd.DataFrame:
    """Visits with their site, and with what is known of their times."""
    visits = cohort.visits.assign(site=sites_of(cohort))
    return visits if 'years' in visits else visits.assign(years=np.nan, order_by=NAME)


def sites_of(cohort: Cohort) -> pd.Series:
    """The site of each visit as the dataset calls it, harmonized or not; missing if not known."""
    column = cohort.options.site_column
    if column is not None:
        suffix = HERE.format('')
        own = cohort.people[column].map(lambda site: str(site).removesuffix(suffix), 'ignore')
        return own.replace([ONE_SITE], None)
    named = column_of(cohort.others, 'site')
    unknown = pd.Series(None, cohort.visits.index, dtype=object)
    return unknown if named is None else cohort.others[named]


def _is_sound(results: pd.DataFrame) -> pd.Series:
    """Whose R-indices can be compared over time: those by a model that was not trained on them.

    What an unharmonized scanner adds is the same at both visits.
    """
    if HELD_OUT not in results:
        return pd.Series(True, results.index)
    return results[HELD_OUT].astype(bool)


def limit_in_sd(n_measures: int, df: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least reliable change in standard deviations of noise, where so many are looked at.

    Of independent measures without a change, one or more exceeds it in `FALSE_ALARMS` of the cases
    (Sidak). That noise is known from few people only, with `df` degrees of freedom, makes it
    larger, as Student's t tells; that real errors exceed it, by `REAL_ERRORS`.
    """
    of_each = 1 - (1 - FALSE_ALARMS) ** (1 / n_measures)
    return np.asarray(REAL_ERRORS * stats.t.isf(of_each / 2, df))


def compare_groups_over_time(
    cohort: Cohort, results: pd.DataFrame, names: Sequence[str], linked: pd.Series
) -> tuple[pd.DataFrame, str]:
    """Compare change per year of R-indices between patients and controls.

    Only visits whose R-indices can be compared, at the site of the participant's first such visit
    (at any, where no site of the participant is known). If that visit is at one of the `linked`
    sites, since ComBat has compared these within participants, visits at the others are used too.

    Returns
    -------
    table : DataFrame with `GROUP_COLUMNS`, three rows per R-index
        Mean change per year of patients minus controls with its 95 % interval, p, and p corrected
        for the number of R-indices (Holm, 1979); that of controls, and of patients; numbers of
        participants with two visits or more; and `outcome`, which says why nothing was compared if
        so.
    excluded : str
        How many visits were excluded and why, in words; may be empty.
    """
    used, excluded = _visits_at_one_site(cohort, results, linked)
    rows = []
    for name in names:
        own = _of_several(used[results.loc[used.index, name].notna()])
        of_group = own.groupby(PARTICIPANT)['group'].first().value_counts()
        counts = {word: of_group.get(group, 0) for group, word in GROUP_NAMES.items()}
        found: dict[str, dict[str, float]] | str = TRAINED_ON
        if HELD_OUT not in results or results[HELD_OUT].any():
            found = compare_change(
                results.loc[own.index, name],
                own['years'],
                own[PARTICIPANT],
                own['group'] == PATIENT,
            )
        outcome, known = (found, {}) if isinstance(found, str) else ('compared', found)
        counts = {DIFFERENCE: sum(counts.values()), **counts}
        rows += [
            {
                'index': name,
                'measure': measure,
                'n': n,
                'outcome': outcome,
                **known.get(measure, {}),
            }
            for measure, n in counts.items()
        ]
    table = pd.DataFrame(rows, columns=GROUP_COLUMNS)
    p = table['p'].dropna()
    if len(p):
        table.loc[p.index, 'p_corrected'] = multipletests(p, method='holm')[1]
    return table, excluded


TRAINED_ON = 'R-indices are computed in sample; use --folds'


def _visits_at_one_site(
    cohort: Cohort, results: pd.DataFrame, linked: pd.Series
) -> tuple[pd.DataFrame, str]:
    """Visits that tell of change, of participants with several; and how many were excluded."""
    sound = _of_several(_visits(cohort)[_is_sound(results)].dropna(subset=['group']))
    known = _of_several(sound.dropna(subset=['years']))
    first_site = known.groupby(PARTICIPANT)['site'].transform('first')
    is_linked = linked[known.index].notna()
    used = known['site'].eq(first_site) | first_site.isna()
    used |= is_linked & is_linked.groupby(known[PARTICIPANT]).transform('first')
    nowhere = known['site'].isna()
    counts = {
        'at another site than the first visit': int((~used & ~nowhere).sum()),
        'without a site, while other visits of the participant have one': (~used & nowhere).sum(),
        'without a date or an age': int(sound['years'].isna().sum()),
    }
    listed = '; '.join(f'{count} {why}' for why, count in counts.items() if count)
    return _of_several(known[used]), f'Excluded visits: {listed}.' if listed else ''


def _of_several(visits: pd.DataFrame) -> pd.DataFrame:
    """Visits of participants with two or more of them."""
    return visits[visits[PARTICIPANT].duplicated(keep=False)]
