"""One function for each kind of unit, which trains models and returns their accuracies.

Accuracy is the pattern-c-index between R-indices and true severities of patients (section 4.2).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from baselines import BASELINES
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from surreal_bids.exceptions import DataError
from surreal_bids.model.agreement import Setting
from surreal_bids.stats.concordance import pattern_c_index

from .people import People, Rows, split_folds, split_halves
from .plan import Unit, preset_values, variants
from .study import Study
from .training import Chosen, Recipe, choose, member_accuracies, train

Result = dict[str, Any]
DECIMALS = 6
"""R-indices are kept to so many."""
Floats = NDArray[np.float64]
GAN = 'Surreal-GAN'
"""All members of the chosen lambda."""
GAN_CONSENSUS = 'Surreal-GAN, consensus'
REGRESSIONS = {
    'LR': LinearRegression(),
    'SVR': make_pipeline(StandardScaler(), MultiOutputRegressor(SVR(kernel='rbf'))),
}
"""The supervised methods of B.6, which are told the severities of the training patients."""


def run_members(study: Study, unit: Unit) -> Result:
    """Table 1 and Fig. 2: all members of all lambdas, and the choice by agreement."""
    people = study.people(unit.task)
    X = people.normalised()
    truth = people.severities[people.is_patient]
    recipe = study.recipe(study.plan.all_people, unit)
    settings = train(recipe, X, people.is_patient)
    chosen = choose(settings, recipe.hyper)
    patients = X[people.is_patient]
    reference = replace_weights(chosen, slice(0, 1))
    return {
        'settings': [describe_setting(setting, patients, truth) for setting in settings],
        'ortho': chosen.selection.ortho,
        'reference': pattern_c_index(reference.consensus(patients), truth),
        'consensus': pattern_c_index(chosen.consensus(patients), truth),
        'n_used': len(chosen.selection.members),
    }


def replace_weights(chosen: Chosen, members: slice) -> Chosen:
    """The same choice with some members of the consensus only; the reference is the first."""
    return replace(chosen, weights={name: value[members] for name, value in chosen.weights.items()})


def describe_setting(setting: Setting, patients: Floats, truth: Floats) -> Result:
    """Accuracy of each member, and its mean agreement with the others, at one lambda."""
    return {
        'ortho': setting.ortho,
        'accuracies': member_accuracies(setting, patients, truth),
        'agreements': [m.agreement for m in setting.members if m.agreement is not None],
        'n_healthy': len(setting.healthy),
    }


def run_baseline(study: Study, unit: Unit) -> Result:
    """Tables 1 and 7: one method with a number of components, from several seeds.

    With more components than patterns, the best triple counts. `pattern_c_index` finds it by
    one-to-one assignment of patterns to components.
    """
    method, n_components = unit.what
    people = study.people(unit.task)
    X = people.normalised()
    truth = people.severities[people.is_patient]
    accuracies = []
    for seed in range(study.seed, study.seed + study.plan.baseline_seeds):
        model = BASELINES[method](n_components, seed).fit(X, people.is_patient)
        accuracies.append(pattern_c_index(model.transform(X[people.is_patient]), truth))
    return {'accuracies': accuracies}


def run_fold(study: Study, unit: Unit) -> Result:
    """Table 6: Surreal-GAN and two regressions, trained on the same fold."""
    people = study.people(unit.task)
    train_rows, test_rows = split_folds(people.is_patient, study.plan.n_folds, study.seed)[
        unit.what[0]
    ]
    X = people.normalised(train_rows)
    parts = {'train': people.patients(train_rows), 'test': people.patients(test_rows)}
    result = _surreal_gan_in_fold(study, unit, X, people, train_rows, parts)
    for name, regression in REGRESSIONS.items():
        regression.fit(X[parts['train']], people.severities[parts['train']])
        result[name] = {
            part: pattern_c_index(regression.predict(X[rows]), people.severities[rows])
            for part, rows in parts.items()
        }
    return result


def _surreal_gan_in_fold(
    study: Study, unit: Unit, X: Floats, people: People, train_rows: Rows, parts: dict[str, Rows]
) -> Result:
    """Choose lambda within the fold, without the test set."""
    chosen = train_and_choose(study.recipe(study.plan.folds, unit), X, people, train_rows)
    members, consensus = {}, {}
    for part, rows in parts.items():
        truth = people.severities[rows]
        members[part] = float(np.mean(member_accuracies(chosen.setting, X[rows], truth)))
        consensus[part] = pattern_c_index(chosen.consensus(X[rows]), truth)
    return {
        'ortho': chosen.selection.ortho,
        GAN: members,
        GAN_CONSENSUS: consensus,
    }


def train_and_choose(recipe: Recipe, X: Floats, people: People, rows: Rows) -> Chosen:
    """Train on some people and choose lambda by agreement among them."""
    return choose(train(recipe, X[rows], people.is_patient[rows]), recipe.hyper)


def run_variant(study: Study, unit: Unit) -> Result:
    """Supplementary Fig. 1: other hyper-parameters, at the lambda chosen for the task."""
    members = study.result(Unit('members', unit.task))
    if members is None:
        raise DataError(f'no lambda is known for {unit.task}: its members could not be trained')
    factors = variants(study.plan.factors)[unit.what[0]]
    preset = preset_values(study.preset)
    changes = {
        name: getattr(preset, name) * factor for name, factor in factors.items() if name != 'ortho'
    }
    ortho = members['ortho'] * factors.get('ortho', 1.0)
    recipe = study.recipe(replace(study.plan.variants, ortho=(ortho,)), unit, **changes)
    people = study.people(unit.task)
    X = people.normalised()
    (setting,) = train(recipe, X, people.is_patient)
    return describe_setting(setting, X[people.is_patient], people.severities[people.is_patient])


def run_half(study: Study, unit: Unit) -> Result:
    """B.7: train on one half; R-indices of patients who are in neither.

    Each half has its own seed: members that start from the same weights agree whatever they are
    trained on, especially after short training.
    """
    people = study.people(unit.task)
    *halves, held_out = split_halves(people.is_patient, study.seed)
    number = unit.what[0]
    rows, patients = halves[number], people.patients(held_out)
    X = people.normalised(rows)
    recipe = replace(study.recipe(study.plan.halves, unit), seed=study.seed + number)
    chosen = train_and_choose(recipe, X, people, rows)
    r_indices = chosen.consensus(X[patients])
    return {
        'ortho': chosen.selection.ortho,
        'agreement': chosen.selection.agreement,
        'accuracy': pattern_c_index(r_indices, people.severities[patients]),
        'r_indices': r_indices.round(DECIMALS).tolist(),
    }


RUNNERS = {
    'members': run_members,
    'baseline': run_baseline,
    'fold': run_fold,
    'variant': run_variant,
    'half': run_half,
}


def run_unit(study: Study, unit: Unit) -> Result:
    """Run a unit of any kind."""
    return RUNNERS[unit.kind](study, unit)
