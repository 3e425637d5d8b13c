"""Patient or control by a support vector machine (section B.8 of the paper)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold, StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.parallel import Parallel, delayed

from surreal_bids.exceptions import DataError

N_REPEATS = 100
"""Random splits (section B.8)."""

LEFT_OUT = 0.2
"""Share of people left out of training in each split (section B.8)."""

N_FOLDS = 3
"""Folds of the grid search within the training people."""

GRID = {'svc__C': [0.01, 0.1, 1.0]}
"""Penalties the grid search chooses from; the paper does not tell its own."""

MINIMUM_PEOPLE = 10
"""Controls, and patients, that are needed: two of each are left out, and each fold has two."""


def diagnosis_auc(
    features: Mapping[str, ArrayLike],
    is_patient: ArrayLike,
    person: ArrayLike,
    *,
    n_repeats: int = N_REPEATS,
    seed: int = 0,
    n_jobs: int = 1,
) -> pd.DataFrame:
    """Area under the ROC curve of an SVM on test people, for several sets of features.

    Scaling and grid search see the training people only. All scans of a person are on the same
    side of every split, and every set of features has the same splits. R-indices of a model that
    was trained on these people have seen their diagnoses: use people that it was not trained on
    (the paper does), or read the result as an upper bound.

    Parameters
    ----------
    features : mapping of name to (N, K)
        Sets of features, such as R-indices and ROI volumes, one row per scan.
    is_patient : (N,) of bool
        Diagnosis.
    person : (N,)
        Whose scan it is.
    n_repeats, seed
        Number of random splits, and their seed.
    n_jobs
        Processes.

    Returns
    -------
    DataFrame
        One row per split, one column per set of features.
    """
    patient, people = np.asarray(is_patient, bool), np.asarray(person)
    tables = {name: np.asarray(values, np.float64) for name, values in features.items()}
    _require_usable(tables, patient, people)
    splits = split_people(patient, people, n_repeats=n_repeats, seed=seed)
    scores = Parallel(n_jobs=n_jobs)(
        delayed(_score)(X, patient, people, train) for X in tables.values() for train in splits
    )
    return pd.DataFrame(np.reshape(scores, (len(tables), n_repeats)).T, columns=list(tables))


def _require_usable(
    tables: Mapping[str, NDArray], patient: NDArray[np.bool_], people: NDArray
) -> None:
    for name, X in tables.items():
        if X.ndim != 2 or not len(X) == patient.size == people.size:
            raise DataError(
                f'{name}: shape {X.shape} for {patient.size} diagnoses of {people.size} scans'
            )
        if not np.isfinite(X).all():
            raise DataError(f'{name}: a value is missing or infinite; leave these people out')
    for group, members in (('patients', patient), ('controls', ~patient)):
        count = np.unique(people[members]).size
        if count < MINIMUM_PEOPLE:
            raise DataError(
                f'only {count} {group}: diagnosis by SVM needs at least {MINIMUM_PEOPLE} of each'
            )


def split_people(
    is_patient: NDArray[np.bool_], person: NDArray, *, n_repeats: int, seed: int
) -> list[NDArray[np.bool_]]:
    """Return training masks (N,) of each split: 80 % of people, with the same share of patients.

    A person who is a patient in any scan counts as a patient.
    """
    names, codes = np.unique(person, return_inverse=True)
    ever_patient = np.bincount(codes, weights=is_patient) > 0
    splitter = StratifiedShuffleSplit(n_repeats, test_size=LEFT_OUT, random_state=seed)
    splits = splitter.split(np.zeros(names.size), ever_patient)
    return [np.isin(codes, train) for train, _ in splits]


def _score(
    X: NDArray[np.float64],
    is_patient: NDArray[np.bool_],
    person: NDArray,
    train: NDArray[np.bool_],
) -> float:
    """Return the test AUC, with settings chosen in the training set."""
    folds = StratifiedGroupKFold(N_FOLDS)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), SVC(kernel='linear')), GRID, scoring='roc_auc', cv=folds
    )
    search.fit(X[train], is_patient[train], groups=person[train])
    return float(roc_auc_score(is_patient[~train], search.decision_function(X[~train])))
