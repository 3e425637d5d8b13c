"""How far each region of each visit is from those of controls and of healthy people."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from surreal_bids.cohort.cohort import Cohort
from surreal_bids.cohort.volumes import ICV
from surreal_bids.harmonization.covariates import CN_SD
from surreal_bids.imaging.quality import NORM_AGES, Subject, volume_deviations
from surreal_bids.names import CONTROL, PARTICIPANT, sex_of
from surreal_bids.regions import recognise
from surreal_bids.rindices.preprocessing import Preprocessing, is_complete, prepare_inputs
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
    inputs = prepare_inputs(known.features, known.people, steps.options)
    sites = {} if inputs.site is None else {str(inputs.site_column): inputs.site.astype(str)}
    columns = covariate_columns(inputs.covariates.assign(**sites))
    everyone = model_of_controls(known, columns)
    if everyone.df < LEAST_DF:
        return None
    volumes = steps.harmonize(known.features, known.people)
    values = volumes.apply(np.log) if steps.options.icv == 'power' else volumes
    measured = inputs.features.notna()
    parts = [pd.DataFrame(index=volumes.index)]
    for names in _same_rows(measured.iloc[everyone.fitted].T):
        model = model_of_controls(known, columns, measured[names[0]].to_numpy(bool))
        if model.df >= LEAST_DF:
            own = values[names].where(measured[names]).to_numpy(np.float64)
            parts.append(pd.DataFrame(model.z_scores(own), volumes.index, names))
    return pd.concat(parts, axis=1).reindex(columns=volumes.columns)


def _same_rows(table: pd.DataFrame) -> list[list[str]]:
    """Names of rows, those with equal values together."""
    together: dict[bytes, list[str]] = {}
    for name, row in zip(table.index, table.to_numpy()):
        together.setdefault(row.tobytes(), []).append(name)
    return list(together.values())


def from_model(cohort: Cohort, steps: Preprocessing) -> pd.DataFrame:
    """z-scores of regions by the controls that a model learned from."""
    return (steps.transform(cohort.features, cohort.people).normalised - 1) / CN_SD


def from_norms(cohort: Cohort) -> pd.DataFrame:
    """z-scores of regions of the built-in network by the norms; see `imaging.quality`.

    They need age and head size; outside `NORM_AGES` they are missing.

    Parameters
    ----------
    cohort
        Volumes of the participant level.
    """
    ages, sexes = cohort.ages, cohort.column_of('sex')
    measured = cohort.measured.loc[cohort.visits.index]
    head_size = measured.get(ICV, pd.Series(np.nan, measured.index))
    column_of = {index: column for column, index in recognise(measured.columns).items()}
    index_of = {
        name: index
        for name, index in recognise(cohort.features.columns).items()
        if index in column_of
    }
    columns = [column_of[index] for index in index_of.values()]
    z = pd.DataFrame(np.nan, cohort.visits.index, list(index_of))
    youngest, oldest = NORM_AGES
    for visit in z.index[ages.ge(youngest) & ages.lt(oldest + 1) & head_size.gt(0)]:
        subject = Subject(
            age=float(ages[visit]),
            sex=None if sexes is None else sex_of(str(sexes[visit])),
            icv_mm3=float(head_size[visit]),
        )
        volumes = pd.DataFrame(
            {'index': list(index_of.values()), 'volume_mm3': measured.loc[visit, columns]}
        )
        z.loc[visit] = volume_deviations(volumes, subject)
    return z
