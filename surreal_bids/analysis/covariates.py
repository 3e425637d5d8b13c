"""Covariates: whether R-indices depend on them, and whether harmonization removed sites."""

from __future__ import annotations

import numpy as np
import pandas as pd

from surreal_bids.cohort.cohort import Cohort
from surreal_bids.harmonization.quality import N_FOLDS, HarmonizationQuality, assess_harmonization
from surreal_bids.rindices.preprocessing import prepare_inputs

ENOUGH_TO_REFIT = 2 * N_FOLDS
"""Controls that each site needs for ComBat to be learned again without a fold of them."""


def assess_cohort(
    cohort: Cohort, harmonized: pd.DataFrame, random_state: int
) -> HarmonizationQuality | None:
    """Measure site effects among controls before and after.

    None where that is not possible: fewer than two sites with enough controls to tell them apart.
    """
    first = cohort.first_visits()
    controls = first.select(~first.is_patient)
    inputs = prepare_inputs(controls.features, controls.people, controls.options)
    if inputs.site is None:
        return None
    sizes = inputs.site.value_counts()
    large = inputs.site.isin(sizes.index[sizes >= N_FOLDS])
    if len(set(inputs.site[large])) < 2:
        return None
    after = harmonized.loc[inputs.features.index[large]]
    if controls.options.icv == 'power':
        after = pd.DataFrame(np.log(after.to_numpy()), after.index, after.columns)
    return assess_harmonization(
        inputs.features[large],
        after,
        inputs.site[large],
        inputs.covariates[large],
        hold_out=sizes[sizes >= N_FOLDS].min() >= ENOUGH_TO_REFIT,
        random_state=random_state,
    )
