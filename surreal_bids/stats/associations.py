"""What R-indices go along with: clinical scores and the diagnosis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold, StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.parallel import Parallel, delayed

from surreal_bids.exceptions import DataError
from surreal_bids.stats.glm import Skipped
from surreal_bids.stats.maps import fdr_adjusted

MINIMUM_PAIRS = 5
"""People with both numbers that a correlation needs."""

COLUMNS = (
    'variable',
    'pattern',
    'test',
    'higher_level',
    'n',
    'r',
    'r_low',
    'r_high',
    'p',
    'p_fdr',
)
"""Columns of the table of associations."""


class _Variable(NamedTuple):
    """A clinical variable as numbers; `higher_level` is what 1 stands for in one of two values."""

    numbers: pd.Series
    test: str
    higher_level: str | None


def associate(
    clinical: pd.DataFrame, r_indices: pd.DataFrame
) -> tuple[pd.DataFrame, list[Skipped]]:
    """Correlate every clinical column with each R-index, over the people who have both.

    Parameters
    ----------
    clinical
        Clinical variables, a row a person; NaN is missing. Columns of two values, words or
        numbers, are dichotomous; numbers written as text are numbers.
    r_indices
        R-indices, a row a person (in the paper, patients), with the same kind of index.

    Returns
    -------
    table
        A row a variable and pattern: `test` (`pearson`, or `point_biserial` for dichotomous
        variables, where a positive r means more of the pattern in people of the `higher_level`),
        people used, r with its 95 % confidence interval, p, and p adjusted for the false discovery
        rate over the whole table (Benjamini and Hochberg).
    skipped
        Columns, or column and pattern, that were not tested, and why.
    """
    _require_unique(clinical, r_indices)
    people = r_indices.index.intersection(clinical.index)
    rows: list[dict[str, object]] = []
    skipped: list[Skipped] = []
    for name, column in clinical.loc[people].items():
        variable = _to_numbers(column)
        if isinstance(variable, str):
            skipped.append(Skipped(str(name), variable))
            continue
        for pattern in r_indices.columns:
            found = _correlate(variable, r_indices[pattern].loc[people])
            if isinstance(found, str):
                skipped.append(Skipped(f'{name} and {pattern}', found))
            else:
                rows.append({'variable': str(name), 'pattern': str(pattern)} | found)
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    return table.assign(p_fdr=fdr_adjusted(table['p'])), skipped


def _require_unique(clinical: pd.DataFrame, r_indices: pd.DataFrame) -> None:
    for table in (clinical, r_indices):
        twice = table.index[table.index.duplicated()]
        if twice.size:
            raise DataError(f'{twice[0]} has several rows; give one row a person')
    if r_indices.index.intersection(clinical.index).empty:
        raise DataError(
            'no one has both R-indices and clinical variables; '
            'check that both tables name people alike'
        )


def _to_numbers(column: pd.Series) -> _Variable | str:
    """Numbers of a clinical variable, or why it has none."""
    numbers = pd.to_numeric(column.astype(object), errors='coerce').astype(float)
    is_number = bool(np.isfinite(numbers[column.notna()]).all())
    # 0 and 0.0 are the same number, though not the same text.
    values = numbers if is_number else column.astype(object)
    levels = sorted(values.dropna().unique(), key=float if is_number else str)
    if len(levels) < 2:
        return 'all who have a value have the same' if levels else 'no one has a value'
    if len(levels) == 2:
        upper = str(column[values == levels[1]].iloc[0])
        return _Variable(values.map({levels[0]: 0.0, levels[1]: 1.0}), 'point_biserial', upper)
    if not is_number:
        return f'text of {len(levels)} different values has no order'
    return _Variable(numbers, 'pearson', None)


def _correlate(variable: _Variable, index: pd.Series) -> dict[str, object] | str:
    """Correlation of those who have both numbers, or why there is none."""
    both = variable.numbers.notna() & index.notna()
    x, y = variable.numbers[both].to_numpy(float), index[both].to_numpy(float)
    if x.size < MINIMUM_PAIRS:
        return f'only {x.size} people have both; at least {MINIMUM_PAIRS} are needed'
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 'all who have both have the same value'
    result = stats.pearsonr(x, y)
    interval = result.confidence_interval()
    return {
        'test': variable.test,
        'higher_level': variable.higher_level,
        'n': x.size,
        'r': result.statistic,
        'r_low': interval.low,
        'r_high': interval.high,
        'p': result.pvalue,
    }


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
    """Area under the ROC curve of an SVM on people left out, for several sets of features.

    Scaling and grid search see the training people only. All scans of a person are on the same
    side of every split, and every set of features has the same splits. R-indices of a model that
    was trained on these people have seen their diagnoses: use people that it was not trained on
    (the paper does), or read the result as an upper bound.

    Parameters
    ----------
    features : mapping of name to (N, K)
        Sets of features, such as R-indices and ROI volumes, a row a scan.
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
        A row a split, a column a set of features.
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
    """Who is trained on (N,) in each split: 80 % of people, with the same share of patients.

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
    """AUC among those left out, with settings chosen among the others."""
    folds = StratifiedGroupKFold(N_FOLDS)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), SVC(kernel='linear')), GRID, scoring='roc_auc', cv=folds
    )
    search.fit(X[train], is_patient[train], groups=person[train])
    return float(roc_auc_score(is_patient[~train], search.decision_function(X[~train])))
