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

from surreal_bids.cohort.cohort import Cohort
from surreal_bids.cohort.requirements import ONE_SITE
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
from surreal_bids.stats.mixed import Comparison, compare_change

FALSE_ALARMS = 0.05
"""Share of pairs of visits without any change in which that of some R-index is called reliable."""

CHANGE_COLUMNS = [
    PARTICIPANT,
    *('from_session', 'to_session', 'years', 'order_by', 'site_changed'),
    *('measure', 'change', 'per_year', 'noise', 'limit', 'reliable'),
]
"""Columns of the table of changes."""

GROUP_COLUMNS = [
    *('r_index', 'controls', 'patients', 'visits', 'visits_elsewhere', 'visits_without_site'),
    'visits_without_time',
    *('controls_per_year', 'patients_per_year'),
    *('difference', 'low', 'high', 'p', 'p_holm', 'outcome'),
]
"""Columns of the table of change per year in groups."""

COMPARED = 'compared'
"""Outcome of a comparison of groups that could be made."""

YEAR_DECIMALS = 4
"""A day is 0.0027 years."""

LEAST_YEARS = 0.25
"""For a change per year: scans up to 90 days apart are what noise was learned from."""

DECIMALS = 6
"""Of changes."""


def noise_of_results(
    cohort: Cohort, model: TableModel, fitted: CrossFit | None
) -> Noise[pd.DataFrame]:
    """Noise of the R-indices of a cohort, by the models that gave them: (n_visits, M)."""
    if fitted is None:
        return noise_of_indices(model, cohort)
    found = []
    for fold, known in fitted.models.items():
        own = cohort.select(fitted.results[HELD_OUT] & (fitted.folds.number == fold))
        if len(own):
            noise = noise_of_indices(known.with_unseen_site('skip'), own)
            found.append([each.rename(columns=fitted.names[fold]) for each in noise])
    tables = list(zip(*found)) or [(pd.DataFrame(),)] * 2
    sd, df = (
        pd.concat(each).reindex(index=cohort.visits.index, columns=list(model.pattern_names))
        for each in tables
    )
    return Noise(sd, df)


def follow_visits(
    cohort: Cohort,
    model: TableModel,
    results: pd.DataFrame,
    fitted: CrossFit | None = None,
) -> tuple[pd.DataFrame | None, pd.DataFrame | None]:
    """Changes of participants and of groups; None where everyone has one visit.

    Parameters
    ----------
    cohort, model, fitted
        Whom, by which model, and by which models of folds.
    results
        R-indices of every visit.
    """
    if not cohort.visits[PARTICIPANT].duplicated().any() or not model.pattern_names:
        return None, None
    noise = noise_of_results(cohort, model, fitted)
    linked = is_linked(cohort, model, fitted)
    changes = describe_changes(cohort, results, noise, model.preprocessing, linked)
    if 'group' not in cohort.visits:
        return changes, None
    return changes, compare_groups_over_time(cohort, results, model.pattern_names, linked)


def describe_changes(
    cohort: Cohort,
    results: pd.DataFrame,
    noise: Noise[pd.DataFrame],
    steps: Preprocessing | None = None,
    linked: pd.Series | None = None,
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
        Fitted steps, by which changes between sites can be judged; None: they are not.
    linked : Series of bool of shape (n_visits,)
        Result of :func:`is_linked`; R-indices of other visits are not compared between sites.

    Returns
    -------
    DataFrame with `CHANGE_COLUMNS`
        One row per pair of visits and R-index; `bids/columns.yaml` describes them.
    """
    pairs = _pairs(cohort)
    pairs['widening'] = _widening(pairs, cohort, steps)
    is_sound = _is_sound(results)
    # What was filled in is no measurement, and has more noise than one.
    is_sound &= cohort.features.notna().all(axis=1).reindex(is_sound.index, fill_value=False)
    at_one_site = pairs['site_changed'].ne('true').to_numpy()
    judged = pairs['widening'].notna().to_numpy() & _both(is_sound, pairs)
    if linked is not None:
        judged &= at_one_site | _both(linked, pairs)
    table = _changes(pairs, results[list(noise.sd)], noise, judged)
    rounded = dict.fromkeys(('change', 'per_year', 'noise', 'limit'), DECIMALS)
    return table.round(rounded).reset_index(drop=True)[CHANGE_COLUMNS]


def _pairs(cohort: Cohort) -> pd.DataFrame:
    """Visits to compare: `from` and `to` name them, and the columns that tell about the two."""
    visits = _visits(cohort)
    rows = []
    for participant, own in visits.groupby(PARTICIPANT, sort=False):
        chosen = [*pairwise(range(len(own)))]
        if len(own) > 2:
            chosen.append((0, len(own) - 1))
        known = own['site'].notna().to_numpy()
        for one, other in chosen:
            before, after = own.iloc[one], own.iloc[other]
            rows.append(
                {
                    'from': own.index[one],
                    'to': own.index[other],
                    PARTICIPANT: participant,
                    'from_session': before[SESSION],
                    'to_session': after[SESSION],
                    'years': round(after['years'] - before['years'], YEAR_DECIMALS),
                    'order_by': after['order_by'],
                    'site_changed': str(before['site'] != after['site']).lower()
                    if known[[one, other]].all()
                    else None,
                }
            )
    return pd.DataFrame(rows)


def _widening(
    pairs: pd.DataFrame, cohort: Cohort, steps: Preprocessing | None
) -> NDArray[np.float64]:
    """Widening of noise between sites: 1 at one site, NaN where sites cannot be compared."""
    changed = pairs['site_changed'].eq('true').to_numpy()
    widening = np.where(changed, np.nan, 1.0)
    column = cohort.options.site_column
    if steps is not None and column is not None and changed.any():
        site = cohort.people[column]
        before, after = (pairs.loc[changed, end].map(site) for end in ('from', 'to'))
        widening[changed] = widening_between_sites(steps, before, after)
    return widening


def _both(chosen: pd.Series, pairs: pd.DataFrame) -> NDArray[np.bool_]:
    """Check whether both visits of each pair are among those chosen: booleans by visit."""
    return np.asarray(chosen[pairs['from']].to_numpy() & chosen[pairs['to']].to_numpy(), dtype=bool)


def is_linked(cohort: Cohort, model: TableModel, fitted: CrossFit | None) -> pd.Series:
    """Say of each visit whether its R-indices can be compared with those at other sites.

    They can if the model that gave them, which may be that of a fold, has compared the site with
    others within participants.
    """
    linked = pd.Series(False, cohort.visits.index)
    column = cohort.options.site_column
    if column is None:
        return linked
    if fitted is None:
        return cohort.people[column].isin(_compared_sites(model))
    for fold, known in fitted.models.items():
        own = fitted.folds.number == fold
        linked |= own & cohort.people[column].isin(_compared_sites(known))
    return linked


def _compared_sites(model: TableModel) -> list[str]:
    combat = model.preprocessing.combat
    return [] if combat is None else combat.compared_sites_


def _visits(cohort: Cohort) -> pd.DataFrame:
    """Visits with their site, and with what is known of their times."""
    visits = cohort.visits.assign(site=sites_of(cohort))
    return visits if 'years' in visits else visits.assign(years=np.nan, order_by=NAME)


def sites_of(cohort: Cohort) -> pd.Series:
    """The site of each visit, harmonized or not; missing where nobody says."""
    column = cohort.options.site_column
    if column is not None:
        own = cohort.people[column].map(_name_in_dataset, na_action='ignore')
        return own.replace([ONE_SITE], None)
    named = column_of(cohort.others, 'site')
    unknown = pd.Series(None, cohort.visits.index, dtype=object)
    return unknown if named is None else cohort.others[named]


def _name_in_dataset(site: object) -> str:
    """How the dataset calls a site that a model has learned from it."""
    return str(site).removesuffix(HERE.format(''))


def _is_sound(results: pd.DataFrame) -> pd.Series:
    """Whose R-indices can be compared over time: those by a model that was not trained on them.

    What an unharmonized scanner adds is the same at both visits.
    """
    if HELD_OUT not in results:
        return pd.Series(True, results.index)
    return results[HELD_OUT].astype(bool)


def _changes(
    pairs: pd.DataFrame,
    values: pd.DataFrame,
    noise: Noise[pd.DataFrame],
    judged: NDArray[np.bool_],
) -> pd.DataFrame:
    """Changes of all R-indices between all pairs, indexed by the number of the pair.

    Parameters
    ----------
    pairs : (n_pairs, ...)
        Visits to compare, with `widening` of noise between sites.
    values : frame of shape (n_visits, M)
        R-indices.
    noise : of frames of the same shape
        That of one measurement.
    judged : (n_pairs,)
        Whether a change can be called reliable at all.
    """
    before, after = (values.loc[pairs[end]].to_numpy(np.float64) for end in ('from', 'to'))
    change = after - before
    sd = np.hypot(*(noise.sd.loc[pairs[end]].to_numpy(np.float64) for end in ('from', 'to')))
    sd *= pairs['widening'].fillna(1.0).to_numpy()[:, np.newaxis]
    # Both visits have the same noise, so that it is no better known of their difference.
    df = np.fmin(*(noise.df.loc[pairs[end]].to_numpy(np.float64) for end in ('from', 'to')))
    limit = sd * limit_in_sd(values.shape[1], df)
    known = np.isfinite(change) & np.isfinite(limit) & judged[:, np.newaxis]
    reliable = np.where(np.abs(change) > limit, 'true', 'false').astype(object)
    reliable[~known] = None
    years = pairs['years'].where(pairs['years'] >= LEAST_YEARS).to_numpy(np.float64)[:, np.newaxis]
    table = pairs.loc[pairs.index.repeat(values.shape[1])]
    return table.assign(
        measure=np.tile(list(values), len(pairs)),
        change=change.ravel(),
        per_year=(change / years).ravel(),
        noise=sd.ravel(),
        limit=limit.ravel(),
        reliable=reliable.ravel(),
    )


def limit_in_sd(n_measures: int, df: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least reliable change in standard deviations of noise, where so many are looked at.

    Of independent measures without a change, one or more exceeds it in `FALSE_ALARMS` of the cases
    (Sidak). That noise is known from few people only, with `df` degrees of freedom, makes it
    larger, as Student's t tells; that real errors exceed it, by `REAL_ERRORS`.
    """
    if n_measures == 0:
        return np.full_like(df, np.nan)
    of_each = 1 - (1 - FALSE_ALARMS) ** (1 / n_measures)
    return np.asarray(REAL_ERRORS * stats.t.isf(of_each / 2, df))


def compare_groups_over_time(
    cohort: Cohort, results: pd.DataFrame, names: Sequence[str], linked: pd.Series | None = None
) -> pd.DataFrame:
    """Compare change per year of R-indices between patients and controls.

    Only visits whose R-indices can be compared, at the site of the participant's first such visit
    (at any, where no site of the participant is known). If that visit is `linked`, since ComBat has
    compared its site with others within participants, the other linked ones are used too.

    Returns
    -------
    DataFrame, one row per R-index
        `r_index`; `controls`, `patients` and `visits` (numbers of them, with two visits or more);
        `visits_elsewhere`, `visits_without_site` and `visits_without_time` (that were left out,
        since they are of another site than the first, of none that is known, or since nobody says
        when they were); change per year of either group and the
        difference, patients less controls, with its 95 % interval, p, and p adjusted for the
        number of R-indices (Holm, 1979); and `outcome`, which says why nothing was compared if so.
    """
    used, left_out = _visits_at_one_site(cohort, results, linked)
    trained_on = HELD_OUT in results and not results[HELD_OUT].any()
    rows = []
    for name in names:
        own = _of_several(used[results.loc[used.index, name].notna()])
        found = compare_change(
            results.loc[own.index, name], own['years'], own[PARTICIPANT], own['group'] == PATIENT
        )
        rows.append(_row(name, own, TRAINED_ON if trained_on else found) | left_out)
    table = pd.DataFrame(rows, columns=GROUP_COLUMNS)
    p = table['p'].dropna()
    if len(p):
        table.loc[p.index, 'p_holm'] = multipletests(p, method='holm')[1]
    return table


def _visits_at_one_site(
    cohort: Cohort, results: pd.DataFrame, linked: pd.Series | None
) -> tuple[pd.DataFrame, dict[str, int]]:
    """Visits that tell of change, of participants with several; and how many were left out."""
    sound = _of_several(_visits(cohort)[_is_sound(results)].dropna(subset=['group']))
    known = _of_several(sound.dropna(subset=['years']))
    first_site = known.groupby(PARTICIPANT)['site'].transform('first')
    at_first = known['site'].eq(first_site) | first_site.isna()
    if linked is not None:
        own = linked[known.index]
        at_first |= own & own.groupby(known[PARTICIPANT]).transform('first')
    left_out = known[~at_first]
    nowhere = left_out['site'].isna()
    used = known[at_first]
    counts = {
        'visits_elsewhere': int((~nowhere).sum()),
        'visits_without_site': int(nowhere.sum()),
        'visits_without_time': int(sound['years'].isna().sum()),
    }
    return _of_several(used), counts


def _of_several(visits: pd.DataFrame) -> pd.DataFrame:
    """Visits of participants with two or more of them."""
    return visits[visits[PARTICIPANT].duplicated(keep=False)]


TRAINED_ON = 'R-indices are computed in sample; use --folds'


def _row(name: str, used: pd.DataFrame, found: Comparison | str) -> dict[str, Any]:
    """A row of the table of change per year."""
    of_group = used.groupby(PARTICIPANT)['group'].first().value_counts()
    counts = {word: of_group.get(group, 0) for group, word in GROUP_NAMES.items()}
    row = {'r_index': name, **counts, 'visits': len(used)}
    if isinstance(found, str):
        return row | {'outcome': found}
    return row | {
        'controls_per_year': found.controls,
        'patients_per_year': found.patients,
        'difference': found.difference,
        'low': found.low,
        'high': found.high,
        'p': found.p,
        'outcome': COMPARED,
    }


EXCLUDED_VISITS = {
    'visits_elsewhere': 'at another site than the first visit',
    'visits_without_site': 'without a site, while other visits of the participant have one',
    'visits_without_time': 'without a date or an age',
}
"""Columns with numbers of visits that are excluded from the change per year, and the reason."""


def describe_excluded(table: pd.DataFrame) -> str:
    """Return how many visits are excluded from the change per year, in words; may be empty."""
    counts = {
        name: int(table[name].max()) for name in EXCLUDED_VISITS if name in table and len(table)
    }
    listed = [f'{count} {EXCLUDED_VISITS[name]}' for name, count in counts.items() if count]
    return f'Excluded visits: {"; ".join(listed)}.' if listed else ''
