"""A model meets a new dataset: its sites are brought to the model's reference by their controls.

A model that was trained with ComBat knows the reference and how sites differ from it, and new sites
are added to it. One without knows where its own controls lie: mean, spread and the effect of
covariates. Controls of each new site are compared with that, by the same empirical Bayes estimates,
and what differs is taken out of everyone of the site.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import compress
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from surreal_bids.harmonization.combat import ComBat
from surreal_bids.harmonization.covariates import Residualiser
from surreal_bids.harmonization.empirical_bayes import (
    FEWEST_FOR_SCALE,
    estimate_site,
    least_squares,
    moments_prior,
)
from surreal_bids.harmonization.encoding import CovariateEncoder
from surreal_bids.tables.cohort import Cohort
from surreal_bids.tables.pipeline import TableModel
from surreal_bids.tables.preprocessing import Preprocessing, prepare_inputs

HERE = '{} (this dataset)'
"""How a site of the dataset is called in the model: its name may be that of another site there."""

REFERENCE = 'reference'
"""Name of the site that the controls of a model without ComBat are taken for."""


def adapt_to_controls(model: TableModel, cohort: Cohort) -> tuple[TableModel, Cohort]:
    """Teach a model the sites of a cohort, from its controls.

    Parameters
    ----------
    model
        Any model for tables.
    cohort
        People with all that the model needs, and a site.

    Returns
    -------
    model, cohort
        The model that knows the sites, and the cohort with the sites' names in it.
    """
    steps = model.preprocessing
    column = str(cohort.options.site_column)
    people = cohort.people.assign(**{column: cohort.people[column].map(HERE.format)})
    named = replace(cohort, people=people)
    first = named.first_visits()
    controls = first.select(~first.is_patient)
    site = controls.people[column]
    learned = None if steps.combat is None else _as_learned(steps.combat)
    if learned is not None and len(learned.sites_) > 1:
        combat = _add_sites(learned, controls, site)
    else:
        combat = _compare_with_model(steps, controls, site)
    options = replace(steps.options, site_column=column)
    adapted = replace(steps, combat=combat, options=options)
    return replace(model, preprocessing=adapted), named


def _as_learned(combat: ComBat) -> ComBat:
    """A copy without the sites of datasets that the model has met since it was trained."""
    state = combat.to_arrays()
    kept = np.array([not str(name).endswith(HERE.format('')) for name in state['sites']])
    lists = {name: list(compress(state[name], kept)) for name in ('sites', 'site_sizes')}
    arrays = {name: np.asarray(state[name])[kept] for name in ('shift', 'ratio')}
    return ComBat.from_arrays({**state, **lists, **arrays})


def _add_sites(combat: ComBat, controls: Cohort, site: pd.Series) -> ComBat:
    """Add new sites to the ComBat of a model; all else stays as learned."""
    inputs = prepare_inputs(controls.features, controls.people, controls.options)
    return combat.add_site(inputs.features, site, inputs.covariates)


def _compare_with_model(steps: Preprocessing, controls: Cohort, site: pd.Series) -> ComBat:
    """ComBat whose reference is where the controls of the model lie."""
    inputs = prepare_inputs(controls.features, controls.people, controls.options)
    table = inputs.features
    if steps.residualiser is not None:
        table = steps.residualiser.transform(table, inputs.covariates)
    z = ((table - steps.normaliser.mean_) / steps.normaliser.sd_).to_numpy(np.float64)
    sites = sorted(set(site))
    estimates = [_estimate(z[(site == name).to_numpy()]) for name in sites]
    nothing = np.zeros(z.shape[1])
    return ComBat.from_arrays(
        _reference_state(steps)
        | {
            'sites': [REFERENCE, *sites],
            'site_sizes': [0, *(int((site == name).sum()) for name in sites)],
            'shift': np.vstack([nothing, *(shift for shift, _ in estimates)]),
            'ratio': np.vstack([nothing + 1, *(ratio for _, ratio in estimates)]),
        }
    )


def _estimate(z: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Shift and variance ratio (n_features,) of a site's controls, as ComBat estimates them."""
    rough = least_squares(z)
    prior = moments_prior(*rough) if len(z) >= FEWEST_FOR_SCALE and z.shape[1] > 1 else None
    return estimate_site(z, prior, mean_only=prior is None)


def _reference_state(steps: Preprocessing) -> dict[str, Any]:
    """State of a ComBat that knows what the model expects of its controls, and no site yet."""
    residualiser = steps.residualiser or _no_covariates(steps)
    encoder, slopes = residualiser.encoder_, residualiser.coefficients_
    return {
        'empirical_bayes': True,
        'mean_only': False,
        'unseen_site': 'error',
        'reference_site': None,
        'features': steps.features.names,
        'constant': [],
        'tied': [],
        'fit_on': 'controls',
        'excluded': [],
        'encoder': encoder.to_json(),
        'prior': None,
        'grand_mean': steps.normaliser.mean_ - residualiser.center_ @ slopes,
        # Copies: tensors of a bundle may not share memory.
        'scale': np.array(steps.normaliser.sd_),
        'slopes': np.array(slopes),
        'penalties': np.zeros((len(steps.features), 0)),
    }


def _no_covariates(steps: Preprocessing) -> Residualiser:
    """A residualiser that takes nothing out."""
    encoder = CovariateEncoder().fit(pd.DataFrame(index=[0]))
    return Residualiser.from_arrays(
        {
            'features': steps.features.names,
            'encoder': encoder.to_json(),
            'n_controls': 0,
            'coefficients': np.zeros((0, len(steps.features))),
            'center': np.zeros(0),
        }
    )
