"""Covariates: whether R-indices depend on them, and whether harmonization removed sites."""

from __future__ import annotations

import numpy as np
import pandas as pd

from surreal_bids.cohort.cohort import Cohort
from surreal_bids.columns import column_of
from surreal_bids.harmonization.combat import ComBat
from surreal_bids.harmonization.quality import N_FOLDS, HarmonizationQuality, assess_harmonization
from surreal_bids.names import GROUP_NAMES
from surreal_bids.rindices.preprocessing import prepare_inputs
from surreal_bids.stats.associations import associate_covariates


def describe_covariates(first: Cohort, indices: pd.DataFrame) -> pd.DataFrame:
    """What R-indices have to do with head size, sex and other covariates, in each group.

    Returns
    -------
    DataFrame
        `group`, and the columns of :func:`~surreal_bids.stats.associations.associate_covariates`.
    """
    tables = []
    for group, name in GROUP_NAMES.items():
        chosen = first.select(first.groups == group)
        covariates, _ = chosen.covariates_and_measures()
        table = associate_covariates(covariates, indices.loc[chosen.visits.index])
        table.insert(0, 'group', name)
        tables.append(table)
    return pd.concat([table for table in tables if len(table)] or tables[:1], ignore_index=True)


ENOUGH_TO_REFIT = 2 * N_FOLDS
"""Controls that each site needs for ComBat to be learned again without a fold of them."""


def assess_cohort(
    cohort: Cohort, harmonized: pd.DataFrame, random_state: int
) -> HarmonizationQuality | None:
    """Measure site effects among controls before and after.

    None where that is not possible: no numeric covariate, or fewer than two sites with enough
    controls to tell them apart.
    """
    first = cohort.first_visits()
    controls = first.select(~first.is_patient)
    inputs = prepare_inputs(controls.features, controls.people, controls.options)
    numeric = [str(name) for name in inputs.covariates.select_dtypes('number')]
    if inputs.site is None or not numeric:
        return None
    sizes = inputs.site.value_counts()
    large = inputs.site.isin(sizes.index[sizes >= N_FOLDS])
    if len(set(inputs.site[large])) < 2:
        return None
    age = column_of(numeric, 'age') or numeric[0]
    after = harmonized.loc[inputs.features.index[large]]
    if controls.options.icv == 'power':
        after = pd.DataFrame(np.log(after.to_numpy()), after.index, after.columns)
    return assess_harmonization(
        inputs.features[large],
        after,
        inputs.site[large],
        inputs.covariates[large],
        covariate=age,
        harmonizer=ComBat() if sizes[sizes >= N_FOLDS].min() >= ENOUGH_TO_REFIT else None,
        random_state=random_state,
    )
