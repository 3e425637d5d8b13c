"""How far each region of each visit is from those of controls and of healthy people."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from surreal_bids.cohort.cohort import Cohort
from surreal_bids.cohort.volumes import ICV
from surreal_bids.imaging.quality import NORM_AGES, Subject, volume_deviations
from surreal_bids.names import CONTROL, PARTICIPANT, sex_of
from surreal_bids.regions import recognise
from surreal_bids.rindices.preprocessing import Preprocessing, is_complete
from surreal_bids.stats.linear import ControlModel, covariate_columns

LEAST_DF = 10
"""Degrees of freedom that controls must leave: with fewer, their spread is hardly known."""


def model_of_controls(
    cohort: Cohort, columns: NDArray[np.float64], measured: NDArray[np.bool_] | bool = True
) -> ControlModel:
    """Return the model of the first visits of controls.

    Parameters
    ----------
    cohort
        Visits of everyone.
    columns : (n_visits, c)
        Their covariates.
    measured : bool or (n_visits,) array of bool
        Visits that the model may be fitted to.
    """
    names = cohort.visits[PARTICIPANT].to_numpy()
    first = (cohort.groups == CONTROL) & cohort.visits['is_first']
    fitted = np.flatnonzero(first.to_numpy(bool) & measured)
    row_of = dict(zip(names[fitted], fitted))
    return ControlModel(columns, fitted, [row_of.get(name, -1) for name in names])


def from_controls(cohort: Cohort, steps: Preprocessing) -> pd.DataFrame | None:
    """z-scores of regions by the controls of a cohort; None where these are too few.

    They are on the scale that covariates act on (logarithms by default), of harmonized volumes.
    Sites are covariates once more: what harmonization learned from a control is not used for it.
    Imputed regions have no z-score, and are not among those of controls.

    Parameters
    ----------
    cohort
        Visits of everyone.
    steps
        Steps that harmonize them.
    """
    known = cohort.select(is_complete(cohort.people, steps.options))
    inputs = steps.inputs(known.features, known.people)
    sites = {} if inputs.site is None else {str(inputs.site_column): inputs.site.astype(str)}
    columns = covariate_columns(inputs.covariates.assign(**sites))
    everyone = model_of_controls(known, columns)
    if everyone.df < LEAST_DF:
        return None
    volumes = steps.harmonize(known.features, known.people)
    values = volumes.apply(np.log) if steps.options.icv == 'power' else volumes
    measured = inputs.features.notna()
    z = pd.DataFrame(np.nan, volumes.index, volumes.columns)
    together = [list(volumes)] if measured.all(axis=None) else [[name] for name in volumes]
    for names in together:
        model = model_of_controls(known, columns, measured[names[0]].to_numpy(bool))
        if model.df >= LEAST_DF:
            own = values[names].where(measured[names]).to_numpy(np.float64)
            z.loc[:, names] = model.z_scores(own)
    return z


def from_norms(cohort: Cohort) -> pd.DataFrame:
    """z-scores of regions of the built-in network by the norms; see `imaging.quality`.

    They need age and head size; outside `NORM_AGES` they are missing.

    Parameters
    ----------
    cohort
        Volumes of the participant level.
    """
    ages, sexes = cohort.ages, cohort.column_of('sex')
    head_size = cohort.measured.reindex(index=cohort.visits.index, columns=[ICV])[ICV]
    index_of = recognise(cohort.features.columns)
    z = pd.DataFrame(np.nan, cohort.visits.index, list(index_of))
    youngest, oldest = NORM_AGES
    for visit in z.index[ages.ge(youngest) & ages.lt(oldest + 1) & head_size.gt(0)]:
        subject = Subject(
            age=float(ages[visit]),
            sex=None if sexes is None else sex_of(str(sexes[visit])),
            icv_mm3=float(head_size[visit]),
        )
        volumes = cohort.features.loc[visit, list(index_of)]
        table = pd.DataFrame({'index': list(index_of.values()), 'volume_mm3': volumes})
        z.loc[visit] = volume_deviations(table, subject)
    return z
