"""Change of R-indices between visits, beside the noise of measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from statsmodels.stats.multitest import multipletests

from surreal_bids.analysis.limits import (
    FALSE_ALARMS,
    SOURCE_COLUMNS,
    PairNoise,
    noise_by_controls,
    noise_by_model,
)
from surreal_bids.analysis.statistics import STATISTICS_COLUMNS
from surreal_bids.cohort.cohort import FRAMES, Cohort
from surreal_bids.cohort.roles import ONE_SITE
from surreal_bids.cohort.visits import NAME, in_order
from surreal_bids.names import CONTROL, GROUP_NAMES, PARTICIPANT, PATIENT, SESSION, Visit, column_of
from surreal_bids.rindices.crossfit import HELD_OUT, CrossFit
from surreal_bids.rindices.measurement_noise import (
    Noise,
    noise_of_indices,
    widening_between_sites,
    widening_by_shifts,
)
from surreal_bids.rindices.model import TableModel
from surreal_bids.rindices.new_sites import HERE
from surreal_bids.rindices.preprocessing import Preprocessing
from surreal_bids.stats.mixed import DIFFERENCE, MIN_YEARS, compare_change, slopes_of_participants
from surreal_bids.stats.repeated import limit_of_chances

CHANGE_COLUMNS = [
    PARTICIPANT,
    *('from_session', 'to_session', 'years', 'order_by', 'site_changed'),
    *('measure', 'change', 'per_year', 'expected', 'noise', 'limit', 'reliable'),
    *SOURCE_COLUMNS,
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
    scored: Cohort | None = None,
    fitted_apart: CrossFit | None = None,
) -> tuple[pd.DataFrame | None, pd.DataFrame | None, str]:
    """Changes of participants and of groups, and which visits the latter exclude.

    None where everyone has one visit.

    Parameters
    ----------
    cohort, model, fitted
        Whom, by which model, and by which models of folds.
    results
        R-indices of every visit, those of `scored` included.
    scored
        The cohort together with participants of other groups; None: there are none.
    fitted_apart
        Models of folds for visits of other groups, which the final model has scored otherwise.
    """
    everyone = cohort if scored is None else _in_order_of_time(scored)
    if not everyone.visits[PARTICIPANT].duplicated().any() or not model.pattern_names:
        return None, None, ''
    noise = noise_of_results(cohort, model, fitted)
    if cohort.apart is not None:
        of_apart = _noise_of_apart(cohort.apart, model, fitted_apart)
        noise = Noise(*(pd.concat(tables) for tables in zip(noise, *of_apart)))
    linked = linked_sites(everyone, model, fitted)
    changes = describe_changes(everyone, results, noise, model.preprocessing, linked)
    if 'group' not in everyone.visits:
        return changes, None, ''
    return changes, *compare_groups_over_time(everyone, results, model.pattern_names, linked)


def _noise_of_apart(apart: Cohort, model: TableModel, fitted: CrossFit | None) -> list[Noise]:
    """Noise of the R-indices of other groups, by the models that gave them."""
    parts = []
    is_in_folds = pd.Series(False, apart.visits.index)
    if fitted is not None:
        is_in_folds[fitted.results.index] = True
        parts.append(noise_of_results(apart.select(is_in_folds), model, fitted))
    if not is_in_folds.all():
        parts.append(noise_of_indices(model.with_unseen_site('skip'), apart.select(~is_in_folds)))
    return parts


def _in_order_of_time(cohort: Cohort) -> Cohort:
    """Sort the visits of each participant, who may have been of two groups."""
    visits = cohort.visits
    participant = pd.factorize(visits[PARTICIPANT])[0]
    years = np.zeros(len(visits))
    if 'years' in visits:
        years = visits['years'].fillna(0.0).to_numpy(np.float64)
    by_label = np.arange(len(visits))
    if SESSION in visits:
        place = {visit: number for number, visit in enumerate(in_order(_labels(visits)))}
        by_label = np.array([place[visit] for visit in _labels(visits)])
    order = np.lexsort((by_label, years, participant))
    return replace(cohort, **{name: getattr(cohort, name).iloc[order] for name in FRAMES})


def _labels(visits: pd.DataFrame) -> list[Visit]:
    """Participant and session of each visit."""
    return list(zip(visits[PARTICIPANT], visits[SESSION].fillna('')))


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

    Noise is learned from the controls of the cohort with several visits and no other diagnosis at
    any of them; where these are too few, it is that of the model. A limit allows for all rated
    pairs of visits of the participant.

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
    before, after = (values.loc[pairs[end]].to_numpy(np.float64) for end in ('from', 'to'))
    change = after - before
    is_comparable = _are_comparable(pairs, cohort, results)
    is_reference = is_comparable & _are_of_controls_at_one_site(pairs, cohort)
    at_sites = [pairs[end].map(linked) for end in ('from', 'to')]
    moved = pairs['site_changed'].eq('true').to_numpy()
    shifts = np.where(moved, widening_by_shifts(steps, *at_sites), 1.0)
    # Noise of controls has all that differs between their visits, but not the error of shifts.
    by_controls = noise_by_controls(pairs, change, is_reference).widened(shifts)
    by_model = _noise_of_pairs(pairs, noise).widened(
        np.where(moved, widening_between_sites(steps, *at_sites), 1.0)
    )
    chosen = by_controls.completed_by(by_model)
    is_rated = is_comparable & np.isfinite(shifts)
    is_known = np.isfinite(change) & (chosen.error > 0) & is_rated[:, np.newaxis]
    n_pairs = _rated_pairs(pairs, is_known)
    limit = chosen.error * limit_of_chances(FALSE_ALARMS, change.shape[1], n_pairs, chosen.df)
    reliable = np.where(np.abs(change - chosen.expected) > limit, 'true', 'false').astype(object)
    reliable[~is_known] = None
    years = pairs['years'].where(pairs['years'] >= MIN_YEARS).to_numpy(np.float64)[:, np.newaxis]
    columns = {
        'change': change,
        'per_year': change / years,
        'expected': np.where(np.isfinite(chosen.noise), chosen.expected, np.nan),
        'noise': chosen.noise,
        'limit': limit,
    }
    described = pd.concat([pairs, chosen.source], axis=1)
    table = described.loc[pairs.index.repeat(change.shape[1])].assign(
        measure=np.tile(list(values), len(pairs)),
        reliable=reliable.ravel(),
        **{name: each.ravel().round(6) for name, each in columns.items()},
    )
    return table.reset_index(drop=True)[CHANGE_COLUMNS]


def _are_comparable(
    pairs: pd.DataFrame, cohort: Cohort, results: pd.DataFrame
) -> NDArray[np.bool_]:
    """Whether R-indices of both visits can be compared.

    Volumes that were filled in are no measurements, and have more noise than one.
    """
    complete = cohort.features.notna().all(axis=1).reindex(results.index)
    is_sound = _is_sound(results) & complete
    both = is_sound.loc[pairs['from']].to_numpy() & is_sound.loc[pairs['to']].to_numpy()
    return np.asarray(both, dtype=bool)


def _are_of_controls_at_one_site(pairs: pd.DataFrame, cohort: Cohort) -> NDArray[np.bool_]:
    """Whether noise can be learned from both visits."""
    is_control = (cohort.groups == CONTROL) & _are_of_one_group(cohort)
    both = is_control.loc[pairs['from']].to_numpy() & is_control.loc[pairs['to']].to_numpy()
    return both & pairs['site_changed'].ne('true').to_numpy()


def _are_of_one_group(cohort: Cohort) -> pd.Series:
    """Whether the participant of each visit has one diagnosis at all visits where it is known.

    A control with another diagnosis later may be ill already, and tells nothing of healthy ageing.
    """
    n_groups = cohort.groups.groupby(cohort.visits[PARTICIPANT]).transform('nunique')
    return n_groups <= 1


def _noise_of_pairs(pairs: pd.DataFrame, noise: Noise) -> PairNoise:
    """Return the noise of changes by that of visits."""
    sd = [noise.sd.loc[pairs[end]].to_numpy(np.float64) for end in ('from', 'to')]
    df = [noise.df.loc[pairs[end]].to_numpy(np.float64) for end in ('from', 'to')]
    # Both visits have the same noise, so that it is no better known of their difference.
    return noise_by_model(np.hypot(*sd), np.fmin(*df))


def _rated_pairs(pairs: pd.DataFrame, is_known: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Number of rated pairs of visits of the participant of each pair: (n_pairs, 1)."""
    rated = pd.Series(is_known.any(axis=1).astype(float), pairs.index)
    of_participant = rated.groupby(pairs[PARTICIPANT]).transform('sum')
    return of_participant.clip(lower=1.0).to_numpy()[:, np.newaxis]


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


def compare_groups_over_time(
    cohort: Cohort, results: pd.DataFrame, names: Sequence[str], linked: pd.Series
) -> tuple[pd.DataFrame, str]:
    """Compare change per year of R-indices between controls and each other group.

    Only visits whose R-indices can be compared, at the site of the participant's first such visit
    (at any, where no site of the participant is known). If that visit is at one of the `linked`
    sites, since ComBat has compared these within participants, visits at the others are used too.
    Controls with another diagnosis at a later visit are excluded.

    Returns
    -------
    table : DataFrame with `GROUP_COLUMNS`, three rows per R-index, and two per other group
        Mean change per year of patients minus controls with its 95 % interval, p, and p corrected
        for the number of R-indices (Holm, 1979); that of controls, and of patients; the difference
        and the mean of each other group; numbers of participants who are compared; and `outcome`,
        which says why nothing was compared if so.
    excluded : str
        How many visits were excluded and why, in words; may be empty.
    """
    used, excluded = _visits_at_one_site(cohort, results, linked)
    is_compared = cohort.groups.isin(GROUP_NAMES).reindex(results.index)
    is_in_sample = HELD_OUT in results and not results.loc[is_compared, HELD_OUT].any()
    labels = sorted(set(cohort.groups.dropna()) - set(GROUP_NAMES))
    rows = []
    for name in names:
        visits = used[results.loc[used.index, name].notna()].assign(value=results[name])
        # A participant of two groups in turn counts as of the first.
        visits['group'] = visits.groupby(PARTICIPANT)['group'].transform('first')
        for group in (PATIENT, *labels):
            of_two = visits[visits['group'].isin([CONTROL, group])]
            rows += [{'index': name, **row} for row in _rows_of_group(of_two, group, is_in_sample)]
    return _corrected(pd.DataFrame(rows, columns=GROUP_COLUMNS)), excluded


def _rows_of_group(visits: pd.DataFrame, group: str, is_in_sample: bool) -> list[dict[str, Any]]:
    """Compare a group with controls; these have a row of their own beside patients.

    Numbers are those of participants who are compared: with a change per year.
    """
    label = GROUP_NAMES.get(group, group)
    slopes = slopes_of_participants(visits['value'], visits['years'], visits[PARTICIPANT])
    group_of = visits.groupby(PARTICIPANT)['group'].first().reindex(slopes.index)
    n_controls, n_group = int((group_of == CONTROL).sum()), int((group_of == group).sum())
    compared: dict[str, dict[str, float]] | str = TRAINED_ON
    if not is_in_sample:
        members = label if group in GROUP_NAMES else f'participants of group {label}'
        compared = compare_change(
            visits['value'], visits['years'], visits[PARTICIPANT], visits['group'] == group, members
        )
    outcome, estimates = (compared, {}) if isinstance(compared, str) else ('compared', compared)
    difference = {'measure': f'{label} minus controls', 'n': n_controls + n_group}
    rows = [difference | estimates.get(DIFFERENCE, {})]
    if group == PATIENT:
        of_controls = {'measure': GROUP_NAMES[CONTROL], 'n': n_controls}
        rows.append(of_controls | estimates.get(GROUP_NAMES[CONTROL], {}))
    rows.append({'measure': label, 'n': n_group} | estimates.get(GROUP_NAMES[PATIENT], {}))
    return [{**row, 'outcome': outcome} for row in rows]


def _corrected(table: pd.DataFrame) -> pd.DataFrame:
    """Correct p of each comparison for the number of R-indices."""
    for _, rows in table.dropna(subset=['p']).groupby('measure'):
        table.loc[rows.index, 'p_corrected'] = multipletests(rows['p'], method='holm')[1]
    return table


TRAINED_ON = 'R-indices are computed in sample; use --folds'


def _visits_at_one_site(
    cohort: Cohort, results: pd.DataFrame, linked: pd.Series
) -> tuple[pd.DataFrame, str]:
    """Visits that tell of change, of participants with several; and how many were excluded."""
    is_sound = _is_sound(results).reindex(cohort.visits.index)
    in_any_group = _of_several(_visits(cohort)[is_sound].dropna(subset=['group']))
    is_control = in_any_group.groupby(PARTICIPANT)['group'].transform('first') == CONTROL
    is_converter = is_control & ~_are_of_one_group(cohort)[in_any_group.index]
    sound = in_any_group[~is_converter]
    known = _of_several(sound.dropna(subset=['years']))
    first_site = known.groupby(PARTICIPANT)['site'].transform('first')
    is_linked = linked[known.index].notna()
    used = known['site'].eq(first_site) | first_site.isna()
    used |= is_linked & is_linked.groupby(known[PARTICIPANT]).transform('first')
    nowhere = known['site'].isna()
    counts = {
        'of controls whose diagnosis changes': int(is_converter.sum()),
        'at another site than the first visit': int((~used & ~nowhere).sum()),
        'without a site, while other visits of the participant have one': (~used & nowhere).sum(),
        'without a date or an age': int(sound['years'].isna().sum()),
    }
    listed = '; '.join(f'{count} {why}' for why, count in counts.items() if count)
    return _of_several(known[used]), f'Excluded visits: {listed}.' if listed else ''


def _of_several(visits: pd.DataFrame) -> pd.DataFrame:
    """Visits of participants with two or more of them."""
    return visits[visits[PARTICIPANT].duplicated(keep=False)]
