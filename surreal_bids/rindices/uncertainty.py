"""How sure an R-index is, and where it stands among controls.

Both are learned from controls who were held out, and stored in the card of the model as plain
numbers of all of them together.

The error of an R-index is tried on simulated patients: held-out controls who lose from each region
the share that the model's generator takes from the mean control at a known severity. Their
R-indices differ from what is expected at that severity by all that makes people differ in R-index
without differing in severity: anatomy, the noise of the segmentation (controls were measured by the
same scanners and programs), other patterns, and what few people and a few members leave open (the
model of each fold is trained on other people). The interval of an R-index has the severities at
which it would not be unusual (Neyman, Phil. Trans. R. Soc. A 236:333-380, 1937).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from surreal_bids.bids.tabular import CONTROL, PARTICIPANT
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.harmonization.covariates import CN_MEAN, CN_SD
from surreal_bids.rindices.crossfit import CrossFit
from surreal_bids.rindices.intervals import (
    ALL_CONTROLS,
    CENTILE_CONTROLS,
    CENTILE_OF,
    CENTILE_SUFFIX,
    INTERVALS,
    LIKE_AGE,
    PER_CENT,
    REFERENCE,
    SEVERITIES,
    SHARE,
    Floats,
    insert_columns,
    tidy_centiles,
    with_intervals,
)
from surreal_bids.rindices.model import TableModel

SIMULATED = 200
"""Patients at each severity, at least; as many as there are controls where these are more."""
MIN_FOR_INTERVALS = 20
"""Controls held out: of fewer, the sixth part on each side is two or three people."""
MIN_FOR_CENTILES = 30
FAR_FROM_ZERO = 3.0
"""Standard deviations of controls: a feature whose mean is not so far above zero is no volume, and
changes by as much in everyone."""
AGE_RANGE = 5.0
"""Years by which a control of like age may be younger or older."""


def learn_standing(cohort: Cohort, fitted: CrossFit, random_seed: int = 0) -> dict[str, Any]:
    """What the card of the final model says of the error of R-indices, and of those of controls.

    Parameters
    ----------
    cohort
        Controls and patients.
    fitted
        Models of folds, and R-indices of the held out.
    random_seed
        Of the severities of other patterns.

    Returns
    -------
    dict
        `Intervals`: for each pattern, what R-indices are expected to be at each of `SEVERITIES`,
        and between which two most are. `Reference`: percentiles (0 to 100) of the R-indices of
        held-out controls and patients. Each if there are enough people.
    """
    names = [str(name) for name in fitted.correlation]
    known = fitted.results[names].notna().all(axis=1)
    if not names or not known.any():
        return {}
    first = cohort.select(known).first_visits()
    controls = first.select(~first.is_patient)
    notes: dict[str, Any] = {}
    if len(controls) >= MIN_FOR_INTERVALS:
        notes[INTERVALS] = {
            'Share': SHARE,
            'Controls': len(controls),
            'Patterns': _try_error(controls, fitted, random_seed),
        }
    indices = fitted.results.loc[first.visits.index, names]
    reference = {
        str(group): {
            'Number': len(rows),
            'Percentiles': {name: np.percentile(rows[name], PER_CENT).tolist() for name in names},
        }
        for group, rows in indices.groupby(first.visits['group'])
        if len(rows) >= MIN_FOR_CENTILES
    }
    return notes | ({REFERENCE: reference} if reference else {})


def _try_error(controls: Cohort, fitted: CrossFit, seed: int) -> dict[str, dict[str, list[float]]]:
    """For each pattern: mean and outer quantiles of the R-index at each of `SEVERITIES`."""
    rng = np.random.default_rng(seed)
    repeats = -(-SIMULATED // len(controls))
    found: dict[str, list[Floats]] = {str(name): [] for name in fitted.correlation}
    for fold, model in fitted.models.items():
        own = controls.select(fitted.folds.number[controls.visits.index] == fold)
        if not len(own):
            continue  # All of the fold are of sites that its model does not know.
        preprocessing = model.with_unseen_site('skip').preprocessing
        people = preprocessing.transform(own.features, own.people).normalised
        rows = np.repeat(people.to_numpy(), repeats, axis=0)
        for number, pattern in enumerate(model.pattern_names):
            found[fitted.names[fold][pattern]].append(simulate_error(model, rows, number, rng))
    return {name: _quantiles(np.concatenate(parts)) for name, parts in found.items()}


def simulate_error(
    model: TableModel, controls: Floats, pattern: int, rng: np.random.Generator
) -> Floats:
    """R-indices of one pattern in controls who lose what the model's generator takes.

    Parameters
    ----------
    model
        A model.
    controls : (N, S)
        Controls that it was not trained on, normalised for it.
    pattern
        Number of the pattern whose severities are `SEVERITIES`; those of others are U[0, 1].
    rng
        Source of these.

    Returns
    -------
    (N, n_severities) array
    """
    gan, scale = model.gan, model.preprocessing.normaliser
    severities = rng.uniform(size=(len(SEVERITIES), len(controls), len(model.pattern_names)))
    severities[..., pattern] = SEVERITIES[:, None]
    # A share of what a person has: v (1 - l), where the mean control, m, changes by -l m.
    mean, sd = np.asarray(scale.mean_), np.asarray(scale.sd_)
    share = np.divide(sd, mean, out=np.zeros_like(mean), where=mean > FAR_FROM_ZERO * sd)
    relative = 1 + (controls - CN_MEAN) / CN_SD * share
    return np.stack(
        [
            np.asarray(gan.transform(controls + relative * gan.synthesise(z)))[:, pattern]
            for z in severities
        ],
        axis=1,
    )


def _quantiles(found: Floats) -> dict[str, list[float]]:
    """Mean and outer quantiles of each column, none of which falls."""
    tail = (1 - SHARE) / 2
    rows = {
        'Expected': found.mean(axis=0),
        'Lower': np.quantile(found, tail, axis=0),
        'Upper': np.quantile(found, 1 - tail, axis=0),
    }
    return {name: np.maximum.accumulate(row).tolist() for name, row in rows.items()}


def add_standing(
    cohort: Cohort, fitted: CrossFit, random_seed: int = 0
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Results of the held out with intervals and centiles, and what the card says of these."""
    notes = learn_standing(cohort, fitted, random_seed)
    results = fitted.results
    if INTERVALS in notes:
        results = with_intervals(results, notes[INTERVALS])
    names = [str(name) for name in fitted.correlation if results[name].notna().any()]
    return with_centiles(results, cohort, names), notes


def with_centiles(results: pd.DataFrame, cohort: Cohort, names: Sequence[str]) -> pd.DataFrame:
    """Add centiles among the controls of a cohort, of like age where there are enough of them.

    Nobody is compared with themselves; `centile_controls` is the number of controls behind a
    centile. Results stay as they are where there are too few controls.

    Parameters
    ----------
    results
        R-indices by models that were not trained on the controls.
    cohort
        Whose they are.
    names
        Of the R-indices.
    """
    known = results.index[results[list(names)].notna().all(axis=1)]
    first = cohort.select(list(cohort.visits.index.isin(known))).first_visits()
    controls = first.select(first.visits['group'] == CONTROL)
    if not len(names) or len(controls) < MIN_FOR_CENTILES:
        return results
    reference = results.loc[controls.visits.index, list(names)].to_numpy(dtype=float)
    owner, age = controls.visits[PARTICIPANT].to_numpy(), _ages(cohort)
    age_of_controls = age[controls.visits.index].to_numpy()
    rows = {}
    for visit in known:
        own = results.loc[visit, list(names)].to_numpy(dtype=float)
        other = owner != cohort.visits.loc[visit, PARTICIPANT]
        near = other & (np.abs(age_of_controls - age[visit]) <= AGE_RANGE)
        is_near = near.sum() >= MIN_FOR_CENTILES
        compared = reference[near if is_near else other]
        kind = LIKE_AGE if is_near else ALL_CONTROLS
        rows[visit] = [*_centile(own, compared), kind, len(compared)]
    columns = [*(f'{name}{CENTILE_SUFFIX}' for name in names), CENTILE_OF, CENTILE_CONTROLS]
    table = pd.DataFrame.from_dict(rows, orient='index', columns=columns)
    others = results.drop(columns=columns, errors='ignore')
    return insert_columns(others, tidy_centiles(table, results.index), names)


def _centile(own: Floats, reference_NM: Floats) -> Floats:
    """Centile of each R-index, never 0 or 100: the middle of its place."""
    below, equal = (reference_NM < own).sum(axis=0), (reference_NM == own).sum(axis=0)
    return 100 * (below + equal / 2 + 0.5) / (len(reference_NM) + 1)


def _ages(cohort: Cohort) -> pd.Series:
    """Age of each visit; missing where it is not known."""
    age = cohort.column_of('age')
    unknown = pd.Series(np.nan, cohort.visits.index)
    return unknown if age is None else pd.to_numeric(age, errors='coerce')
