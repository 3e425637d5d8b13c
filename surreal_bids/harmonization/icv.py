"""Head size: three ways to handle intracranial volume (ICV), each with its consequence.

`covariate`
    ICV joins the covariates, and its linear effect among CN is removed (and kept by ComBat).
    Volumes stay in mm3. Nothing is assumed about proportionality; a disease or a scanner that
    changes ICV itself goes unnoticed only as far as ICV is measured well. The usual choice.
`proportion`
    Every volume is divided by ICV before anything else. It assumes that regions grow in
    proportion to the head; most grow less, so that small heads come out with large proportions,
    and women with larger ones than men. An error in ICV enters all regions at once, as one shared
    component, which a model of patterns may take for a pattern. Only for volumes, never thickness.
`none`
    Head size stays in the data: differences between people and sexes are mostly head size then.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.harmonization.tables import as_covariates, as_features, as_vector, name_some

ICVHandling = Literal['covariate', 'proportion', 'none']

ICV = 'icv'
"""Name of the covariate that `covariate` adds."""


def handle_icv(
    X: pd.DataFrame,
    covariates: pd.DataFrame | None,
    icv: pd.Series[Any] | ArrayLike,
    how: ICVHandling,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Apply one of the three ways, before harmonization and residualisation.

    Parameters
    ----------
    X : frame of shape (n_people, n_features)
        Regional volumes, mm3.
    covariates : frame of shape (n_people, n_covariates), optional
        Covariates so far.
    icv : Series or array of shape (n_people,)
        Intracranial volume in the unit of `X`.
    how : {'covariate', 'proportion', 'none'}
        See the module.

    Returns
    -------
    X, covariates : frames
        Features (divided by ICV with `proportion`) and covariates (with `icv` for `covariate`).

    Raises
    ------
    DataError
        An ICV is missing or not positive where it is used.
    """
    table = as_features(X)
    covariate_table = as_covariates(covariates, table.index)
    if how == 'none':
        return table, covariate_table
    if how not in ('covariate', 'proportion'):
        raise UsageError(f'ICV handling {how!r}: choose covariate, proportion or none')
    volume = _positive(as_vector(icv, table.index, 'ICV'), table.index)
    if how == 'proportion':
        return table.div(volume, axis=0), covariate_table
    if ICV in covariate_table.columns:
        raise DataError(f'the covariates already hold {ICV!r}: ICV would count twice; drop it')
    return table, covariate_table.assign(**{ICV: volume})


def _positive(icv: Any, people: pd.Index[Any]) -> Any:
    volume = np.asarray(icv, dtype=np.float64)
    wrong = ~(np.isfinite(volume) & (volume > 0))
    if wrong.any():
        raise DataError(
            f'ICV missing or not positive: {name_some(people[wrong])}; complete or exclude them'
        )
    return volume
