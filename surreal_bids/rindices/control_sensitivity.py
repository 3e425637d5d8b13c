"""How much R-indices depend on who the controls of a sample are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.covariance import LedoitWolf

from surreal_bids.cohort.cohort import Cohort
from surreal_bids.rindices.model import TableModel
from surreal_bids.rindices.new_sites import adapt_to_controls
from surreal_bids.rindices.preprocessing import fit_preprocessing, prepare_inputs

RESAMPLINGS = 40
"""A standard deviation over so many is known to about a tenth."""


def shift_of_controls(
    model: TableModel, cohort: Cohort, trained_here: bool = True, random_seed: int = 0
) -> pd.Series:
    """Estimate how much patients' mean R-indices depend on who the controls are.

    Controls are replaced by simulated ones of the same number, sites and covariates, whose regions
    vary as those of the controls do (normally; correlations of few controls are shrunk as Ledoit
    and Wolf have it). All that is learned from controls before the network (sites, covariates,
    normalisation) is learned again. Below 5 controls, the estimate is too large rather than small.

    Parameters
    ----------
    model
        A model that knows the sites of the cohort.
    cohort
        Controls and patients.
    trained_here
        Whether preprocessing was learned from these controls; else only their sites were.
    random_seed
        Of the simulated controls.

    Returns
    -------
    Series of shape (n_patterns,)
        Standard deviation of the mean R-index of patients over such controls. Missing where it
        is not known: there are no patients or no controls, a site has one control, or volumes are
        missing.
    """
    names, first = list(model.pattern_names), cohort.first_visits()
    site = _sites(first)[~first.is_patient]
    if (
        not names
        or not cohort.has_all_controls
        or not first.is_patient.any()
        or not site.value_counts().min() >= 2
        or first.features.isna().any(axis=None)
    ):
        return pd.Series(np.nan, names, dtype=float)
    rng = np.random.default_rng(random_seed)
    deviations = _deviations(model, first)
    roots = {place: _root_covariance(deviations[site == place]) for place in set(site)}
    means = []
    for _ in range(RESAMPLINGS):
        others = pd.DataFrame(rng.normal(size=deviations.shape), site.index, deviations.columns)
        for place, root in roots.items():
            others[site == place] = others[site == place].to_numpy() @ root
        other = _with_changes(first, others - deviations)
        learned, named = _learn_again(model, other, trained_here)
        patients = named.select(named.is_patient)
        means.append(learned.apply(patients)[names].mean())
    return pd.DataFrame(means).std()


def _sites(first: Cohort) -> pd.Series:
    column = first.options.site_column
    return pd.Series('', first.visits.index) if column is None else first.people[column]


def _deviations(model: TableModel, first: Cohort) -> pd.DataFrame:
    """Deviations of controls from means of their sites at equal covariates, as ComBat sees them."""
    controls = first.select(~first.is_patient)
    inputs = prepare_inputs(controls.features, controls.people, controls.options)
    adjusted = inputs.features
    if model.preprocessing.residualiser is not None:
        adjusted = model.preprocessing.residualiser.transform(adjusted, inputs.covariates)
    return adjusted - adjusted.groupby(_sites(controls)).transform('mean')


def _root_covariance(deviations: pd.DataFrame) -> NDArray[np.float64]:
    """A matrix (S, S) that gives independent normal numbers the covariance of deviations (n, S)."""
    sd = deviations.std().replace(0.0, 1.0).to_numpy()
    fitted = LedoitWolf(assume_centered=True).fit(deviations.to_numpy() / sd).covariance_
    scale = sd / np.sqrt(np.diag(fitted))
    root: NDArray[np.float64] = np.linalg.cholesky(fitted * np.outer(scale, scale)).T
    return root


def _with_changes(first: Cohort, change: pd.DataFrame) -> Cohort:
    """The cohort after a change of its controls on the scale of ComBat."""
    everyone = change.reindex(first.features.index, fill_value=0.0)
    if first.options.icv == 'power':
        return replace(first, features=first.features * np.exp(everyone))
    if first.options.icv == 'proportion':
        everyone = everyone.mul(first.people[str(first.options.icv_column)], axis=0)
    return replace(first, features=first.features + everyone)


def _learn_again(
    model: TableModel, cohort: Cohort, trained_here: bool
) -> tuple[TableModel, Cohort]:
    """The model with what its preprocessing would be with these controls."""
    if not trained_here:
        return adapt_to_controls(model, cohort)
    # Sites that were learned from later visits are unseen among first visits.
    options = replace(cohort.options, unseen_site='skip')
    steps, _ = fit_preprocessing(
        cohort.wanted, options, cohort.features, cohort.people, ~cohort.is_patient
    )
    return replace(model, preprocessing=steps), cohort


def describe_shift(shift: pd.Series) -> str:
    """Say what :func:`shift_of_controls` has found; empty where it has not."""
    known = shift.dropna()
    if known.empty:
        return ''
    listed = ', '.join(f'{name} {value:.2f}' for name, value in known.items())
    return (
        'With another sample of as many controls, the mean R-indices of patients would vary by '
        f'about (SD): {listed}'
    )
