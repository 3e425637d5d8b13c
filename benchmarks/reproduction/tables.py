"""Tables of the results of units, with the paper's numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from baselines import BASELINES

from surreal_bids.stats.concordance import pattern_c_index

from .experiments import (
    GAN,
    GAN_CONSENSUS,
    HYPER_PARAMETERS,
    REGRESSIONS,
    REMOVED_TERMS,
    ROBUSTNESS_TASKS,
    UNCHANGED,
    Study,
    run_baseline,
    run_fold,
    run_half,
    run_members,
    run_variant,
)
from .reference import TABLE_1, TABLE_6, TABLE_7, Reported

Row = dict[str, Any]
UNKNOWN = Reported(np.nan, np.nan)
"""Where the paper gives no number."""
GAN_REFERENCE = 'Surreal-GAN, selected member'


def spread(values: Sequence[float]) -> Row:
    """Mean, standard deviation (divided by n - 1) and number."""
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else np.nan
    return {'c_index': float(np.mean(values)), 'sd': sd, 'n': len(values)}


def standard_error(values: Sequence[float]) -> float:
    """Standard error of the mean; NaN for less than two values."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.nan


def beside_paper(row: Row, reported: Reported | None) -> Row:
    """The row with the paper's mean and standard deviation."""
    mean, sd = reported or UNKNOWN
    return {**row, 'paper': mean, 'paper_sd': sd}


def chosen_accuracies(members: Row) -> list[float]:
    """Accuracies of all members of the chosen lambda."""
    return next(s['accuracies'] for s in members['settings'] if s['ortho'] == members['ortho'])


def table1(study: Study, tasks: Iterable[str]) -> pd.DataFrame:
    """Surreal-GAN (members, the selected one, their consensus) against the five methods."""
    rows = []
    for task in tasks:
        members = study.unit(run_members, task)
        if members is not None:
            found = {
                GAN: spread(chosen_accuracies(members)),
                GAN_REFERENCE: spread([members['reference']]),
                GAN_CONSENSUS: {**spread([members['consensus']]), 'n': members['n_used']},
            }
            rows += [
                beside_paper({'task': task, 'method': name, **row}, TABLE_1.get((task, name)))
                for name, row in found.items()
            ]
        rows += _baselines(study, task)
    return pd.DataFrame(rows)


def _baselines(study: Study, task: str) -> list[Row]:
    n_components = study.plan.n_components[0]
    rows = []
    for method in BASELINES:
        result = study.unit(run_baseline, task, method, n_components)
        if result is not None:
            row = {'task': task, 'method': method, **spread(result['accuracies'])}
            rows.append(beside_paper(row, TABLE_1.get((task, method))))
    return rows


def fig2(study: Study, tasks: Iterable[str]) -> pd.DataFrame:
    """Accuracy and agreement over lambda; the paper's accuracy is that of its best lambda."""
    rows = []
    for task in tasks:
        members = study.unit(run_members, task)
        for setting in members['settings'] if members else ():
            row = {
                'task': task,
                'ortho': setting['ortho'],
                **accuracy_and_agreement(setting),
                'chosen': setting['ortho'] == members['ortho'],
            }
            rows.append(beside_paper(row, TABLE_1.get((task, GAN))))
    return pd.DataFrame(rows)


def accuracy_and_agreement(setting: Row) -> Row:
    """Means and standard errors over the members of a setting."""
    accuracies, agreements = setting['accuracies'], setting['agreements']
    return {
        'c_index': float(np.mean(accuracies)) if accuracies else np.nan,
        'c_index_se': standard_error(accuracies),
        'agreement': float(np.mean(agreements)) if agreements else np.nan,
        'agreement_se': standard_error(agreements),
        'n': len(accuracies),
        'n_healthy': setting['n_healthy'],
    }


def table7(study: Study, tasks: Iterable[str]) -> pd.DataFrame:
    """Practical upper bounds: the best triple of components at the best number of them."""
    rows = []
    for task in tasks:
        members = study.unit(run_members, task)
        if members is not None:
            row = {'task': task, 'method': GAN, 'n_components': study.plan.n_components[0]}
            row |= spread(chosen_accuracies(members))
            rows.append(beside_paper(row, TABLE_7.get((task, GAN))))
        for method in BASELINES:
            row = {'task': task, 'method': method, **_upper_bound(study, task, method)}
            rows.append(beside_paper(row, TABLE_7.get((task, method))))
    return pd.DataFrame(rows).dropna(subset='c_index') if rows else pd.DataFrame()


def _upper_bound(study: Study, task: str, method: str) -> Row:
    """The number of components whose mean over seeds is best."""
    found = [
        {'n_components': n, **spread(result['accuracies'])}
        for n in study.plan.n_components
        if (result := study.unit(run_baseline, task, method, n)) is not None
    ]
    return max(found, key=lambda row: row['c_index'], default={'c_index': np.nan})


def table6(study: Study, tasks: Iterable[str]) -> pd.DataFrame:
    """Supervised regression beside Surreal-GAN: mean and sd over folds, train and test."""
    rows = []
    for task in tasks:
        found = [study.unit(run_fold, task, k) for k in range(study.plan.n_folds)]
        folds = [fold for fold in found if fold is not None]
        for method in (GAN, GAN_CONSENSUS, *REGRESSIONS) if folds else ():
            for part in ('train', 'test'):
                row = {'task': task, 'method': method, 'part': part}
                row |= spread([fold[method][part] for fold in folds])
                rows.append(beside_paper(row, TABLE_6.get((task, (method, part)))))
    return pd.DataFrame(rows)


def robustness(study: Study, tasks: Iterable[str]) -> pd.DataFrame:
    """Supplementary Fig. 1: scaled hyper-parameters (a, b), and terms removed (c)."""
    rows = []
    for task in filter(ROBUSTNESS_TASKS.__contains__, tasks):
        for panel, parameter, factor, variant in _variants_in_order(study.plan.factors):
            result = study.unit(run_variant, task, variant)
            if result is not None:
                place = {'panel': panel, 'task': task, 'changed': parameter, 'factor': factor}
                own = {'ortho': result['ortho'], **accuracy_and_agreement(result)}
                rows.append(place | own)
    return pd.DataFrame(rows)


def _variants_in_order(factors: Iterable[float]) -> list[tuple[str, str, float, str]]:
    """Panel, what is changed, by which factor, and the variant that did it."""
    scaled = [
        ('scaled', name, factor, UNCHANGED if factor == 1 else f'{name}-{factor:g}')
        for name in HYPER_PARAMETERS
        for factor in sorted((*factors, 1.0))
    ]
    removed = [('removed', name, 0.0, name) for name in REMOVED_TERMS]
    return [*scaled, ('removed', UNCHANGED, 1.0, UNCHANGED), *removed]


def split_half(study: Study, tasks: Iterable[str]) -> pd.DataFrame:
    """B.7: agreement of two halves on people of neither, beside that of members of one half."""
    rows = []
    for task in tasks:
        halves = [study.unit(run_half, task, k) for k in range(2)]
        if None in halves:
            continue
        row = {'task': task, 'agreement_between_halves': _agreement(*halves)}
        for number, half in enumerate(halves, start=1):
            row[f'agreement_within_half_{number}'] = half['agreement']
            row[f'c_index_half_{number}'] = half['accuracy']
            row[f'ortho_half_{number}'] = half['ortho']
        rows.append({**row, 'n_held_out_patients': len(halves[0]['r_indices'])})
    return pd.DataFrame(rows)


def _agreement(first: Row, second: Row) -> float:
    return pattern_c_index(np.array(first['r_indices']), np.array(second['r_indices']))


TABLES: dict[str, Callable[[Study, Iterable[str]], pd.DataFrame]] = {
    'table1': table1,
    'fig2': fig2,
    'table7': table7,
    'table6': table6,
    'robustness': robustness,
    'split_half': split_half,
}
"""The experiments by the names of their files."""
