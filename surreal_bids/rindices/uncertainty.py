"""How sure an R-index is, and where it stands among controls.

Both are learned from controls who were held out, and stored in the card of the model as plain
numbers of all of them together.

The unit of severity is that of the model: controls have none, and the mean patient half of the most
(severities of patients are U[0, 1]). So R-indices of controls and patients who were held out tell
which R-index a severity has on average.

How far single R-indices are from that is tried on simulated patients: held-out controls who lose
from each region the share that the generator of the final model takes from the mean control at a
known severity, measured by the model of the fold. They differ by all that makes people differ in
R-index without differing in severity: anatomy, the noise of the segmentation (controls were
measured by the same scanners and programs), other patterns, and what few people and a few members
leave open (the two models were trained on other people). The interval of an R-index has the
severities at which it would not be unusual (Neyman, Phil. Trans. R. Soc. A 236:333-380, 1937).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from surreal_bids.cohort.cohort import Cohort
from surreal_bids.harmonization.covariates import CN_MEAN, CN_SD
from surreal_bids.names import CONTROL, PARTICIPANT
from surreal_bids.rindices.crossfit import CrossFit
from surreal_bids.rindices.model import (
    INTERVALS,
    PER_CENT,
    REFERENCE,
    SHARE,
    Floats,
    TableModel,
    add_centiles,
    in_sd,
    with_intervals,
)

SEVERITIES = np.linspace(0, 1, 11)
"""At which the error is tried."""
INCLUDED = (
    'The interval includes anatomical variation, segmentation noise, other patterns, variation '
    'between members and sampling error'
)
"""Which errors an interval allows for."""
SIMULATED = 200
"""Patients at each severity, at least; as many as there are controls where these are more."""
MIN_FOR_INTERVALS = 20
"""Controls held out."""
MIN_FOR_CENTILES = 30
FAR_FROM_ZERO = 3.0
"""Standard deviations of controls: a feature whose mean is not so far above zero is no volume, and
changes by as much in everyone."""


def learn_standing(
    cohort: Cohort, final: TableModel, fitted: CrossFit, random_seed: int = 0
) -> dict[str, Any]:
    """What the card of the final model says of the error of R-indices, and of those of controls.

    Parameters
    ----------
    cohort
        Controls and patients.
    final
        The model of all of them.
    fitted
        Models of folds, and R-indices of the held out.
    random_seed
        Of the severities of other patterns.

    Returns
    -------
    dict
        `Intervals`: for each pattern, what R-indices are expected to be at each of `SEVERITIES`,
        and between which two most are, if patients have higher R-indices than controls.
        `Reference`: percentiles (0 to 100) of the R-indices of held-out controls and patients. Each
        if there are enough people.
    """
    names = [str(name) for name in fitted.correlation]
    known = fitted.results[names].notna().all(axis=1)
    if not names or not known.any():
        return {}
    first = cohort.select(known).first_visits()
    indices = fitted.results.loc[first.visits.index, names]
    notes = _learn_intervals(first, final, fitted, random_seed)
    reference = {
        str(group): {
            'Number': len(rows),
            'Percentiles': {name: np.percentile(rows[name], PER_CENT).tolist() for name in names},
        }
        for group, rows in indices.groupby(first.visits['group'])
        if len(rows) >= MIN_FOR_CENTILES
    }
    return notes | ({REFERENCE: reference} if reference else {})


def _learn_intervals(
    first: Cohort, final: TableModel, fitted: CrossFit, seed: int
) -> dict[str, Any]:
    """Intervals for the card; empty if there are too few people, or patients are like controls."""
    indices = fitted.results.loc[first.visits.index, list(final.pattern_names)]
    controls, patients = indices[~first.is_patient], indices[first.is_patient]
    enough = len(controls) >= MIN_FOR_INTERVALS and len(patients) > 1
    if not enough or not (patients.mean() > controls.mean()).all():
        return {}
    errors = _try_error(first.select(~first.is_patient), final, fitted, seed)
    curves = {
        name: severity_curves(error, controls[name].to_numpy(), patients[name].to_numpy())
        for name, error in errors.items()
    }
    return {INTERVALS: {'Share': SHARE, 'Controls': len(controls), 'Patterns': curves}}


def _try_error(
    controls: Cohort, final: TableModel, fitted: CrossFit, seed: int
) -> dict[str, Floats]:
    """R-indices of each pattern in simulated patients, at each of `SEVERITIES`."""
    rng = np.random.default_rng(seed)
    repeats = -(-SIMULATED // len(controls))
    found: dict[str, list[Floats]] = {name: [] for name in final.pattern_names}
    for fold, model in fitted.models.items():
        own = controls.select(fitted.folds.number[controls.visits.index] == fold)
        if not len(own):
            continue  # All of the fold are of sites that its model does not know.
        preprocessing = model.with_unseen_site('skip').preprocessing
        people = preprocessing.transform(own.features, own.people).normalised
        rows = np.repeat(people.to_numpy(), repeats, axis=0)
        for number, pattern in enumerate(model.pattern_names):
            name = fitted.names[fold][pattern]
            severities = rng.uniform(size=(len(SEVERITIES), len(rows), len(found)))
            severities[..., final.pattern_names.index(name)] = SEVERITIES[:, None]
            patients = simulate_patients(final, model, rows, severities)
            found[name].append(
                np.stack([np.asarray(model.gan.transform(x))[:, number] for x in patients], axis=1)
            )
    return {name: np.concatenate(parts) for name, parts in found.items()}


def simulate_patients(
    final: TableModel, model: TableModel, controls: Floats, severities: Floats
) -> list[Floats]:
    """Controls who lose what the generator of the final model takes.

    Parameters
    ----------
    final
        The model of all participants.
    model
        A model that was not trained on the controls.
    controls : (N, S)
        Normalised for it.
    severities : (K, N, M)
        Severities of each of them, K times.

    Returns
    -------
    K arrays of shape (N, S)
    """
    # A share of what a person has: v (1 - l), where the mean control, m, changes by -l m.
    scale = model.preprocessing.normaliser
    mean, sd = np.asarray(scale.mean_), np.asarray(scale.sd_)
    share = np.divide(sd, mean, out=np.zeros_like(mean), where=mean > FAR_FROM_ZERO * sd)
    relative = 1 + (controls - CN_MEAN) / CN_SD * share
    return [controls + relative * final.gan.synthesise(z) for z in severities]


def severity_curves(found: Floats, controls: Floats, patients: Floats) -> dict[str, list[float]]:
    """What R-indices are expected to be at each of `SEVERITIES`, and between which two most are.

    Parameters
    ----------
    found : (N, n_severities)
        R-indices of simulated patients, whose deviations from their mean count.
    controls, patients
        R-indices of participants who were held out.

    Returns
    -------
    dict
        `Expected`, `Lower` and `Upper`, none of which falls.
    """
    tail = (1 - SHARE) / 2
    expected = controls.mean() + 2 * (patients.mean() - controls.mean()) * SEVERITIES
    # The means of both groups have errors, which all participants share.
    of_controls, of_patients = (group.var(ddof=1) / len(group) for group in (controls, patients))
    shared = np.sqrt((1 - 2 * SEVERITIES) ** 2 * of_controls + 4 * SEVERITIES**2 * of_patients)
    shared *= in_sd(SHARE)
    below, above = np.quantile(found - found.mean(axis=0), [tail, 1 - tail], axis=0)
    rows = {
        'Expected': expected,
        'Lower': expected - np.hypot(below, shared),
        'Upper': expected + np.hypot(above, shared),
    }
    return {name: np.maximum.accumulate(row).tolist() for name, row in rows.items()}


def add_standing(
    cohort: Cohort, final: TableModel, fitted: CrossFit, random_seed: int = 0
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Results of the held out with intervals and centiles, and what the card says of these."""
    notes = learn_standing(cohort, final, fitted, random_seed)
    results = fitted.results
    if INTERVALS in notes:
        results = with_intervals(results, notes[INTERVALS])
    names = [str(name) for name in fitted.correlation if results[name].notna().any()]
    return with_centiles(results, cohort, names), notes


def standing_of_apart(
    fitted: CrossFit, results: pd.DataFrame, scored: Cohort, final: TableModel
) -> pd.DataFrame:
    """Add intervals and centiles to results of other groups by models of folds.

    Parameters
    ----------
    fitted
        Result of :meth:`~surreal_bids.rindices.crossfit.CrossFit.of_apart`.
    results
        Those of the cohort, as :func:`add_standing` returns them.
    scored
        The cohort together with other groups.
    final
        The final model, with the notes that :func:`add_standing` returns.
    """
    of_apart = fitted.results
    if INTERVALS in final.notes:
        of_apart = with_intervals(of_apart, final.notes[INTERVALS])
    names = [str(name) for name in fitted.correlation if results[name].notna().any()]
    return with_centiles(pd.concat([results, of_apart]), scored, names).loc[of_apart.index]


def with_centiles(results: pd.DataFrame, cohort: Cohort, names: Sequence[str]) -> pd.DataFrame:
    """Add centiles among the first visits of all controls of a cohort.

    100 (below + equal / 2 + 1 / 2) / (n + 1), with the same n controls for everyone: a higher
    R-index never has a lower centile. Nobody is compared with themselves. Effects of age were
    removed from the volumes. Results stay as they are where there are too few controls.

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
    n = len(controls)
    if not len(names) or n < MIN_FOR_CENTILES:
        return results
    people = cohort.visits.loc[known, PARTICIPANT].to_numpy()
    is_own = people[:, np.newaxis] == controls.visits[PARTICIPANT].to_numpy()
    centiles = {}
    for name in names:
        r = results.loc[known, name].to_numpy(dtype=float)[:, np.newaxis]
        place = np.heaviside(r - results.loc[controls.visits.index, name].to_numpy(float), 0.5)
        below = np.where(is_own, 0.0, place).sum(axis=1)
        centiles[name] = 100 * (below + 0.5) / (n + 1)
    return add_centiles(results, pd.DataFrame(centiles, known), 'all', n)
