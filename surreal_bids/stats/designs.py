"""Who is compared in a voxelwise map, and by which linear model.

Shape legend: N people, n of them in a design, q columns of what is held fixed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from surreal_bids.exceptions import DataError
from surreal_bids.stats.subgroups import form_subgroups

Floats = NDArray[np.float64]

MINIMUM_PEOPLE = 5
"""A subgroup of fewer people is not compared: its map would show its members, not the pattern."""

DEPENDENT = 1e-7
"""A column counts as a combination of others if less than this part of its length is its own."""


@dataclass(frozen=True)
class Design:
    """One linear model y = x beta + Z gamma + e of which beta is tested, in orthonormal form.

    The t statistic of beta depends on the space that Z spans, not on Z: it is held as an
    orthonormal basis, and x as what is left of it outside this space. So columns of Z that repeat
    one another do no harm.

    Attributes
    ----------
    name
        Letters and digits only, for file names: `r1high`, `r1slope`.
    description
        What is compared, and how many people, for people.
    rows : (n,) array of int
        The people, as positions among all N.
    tested : (n,)
        x without what Z explains of it, of length 1.
    nuisance : (n, q)
        Orthonormal basis of Z: the mean and the covariates. The first column is constant.
    scale : float
        Length of x without what Z explains of it.
    """

    name: str
    description: str
    rows: NDArray[np.intp]
    tested: Floats
    nuisance: Floats
    scale: float

    @property
    def df(self) -> int:
        """Degrees of freedom of the residuals."""
        return self.rows.size - self.nuisance.shape[1] - 1


@dataclass(frozen=True)
class Skipped:
    """Something that was not tested, and why."""

    name: str
    reason: str


def make_design(
    name: str, description: str, rows: ArrayLike, tested: ArrayLike, columns: ArrayLike
) -> Design:
    """Build the model of `tested` (n,), with a mean and `columns` (n, c) held fixed.

    Raises
    ------
    DataError
        `tested` follows from what is held fixed, or there are too few people for the columns.
    """
    x = np.asarray(tested, np.float64)
    nuisance = _orthonormal(np.asarray(columns, np.float64))
    centred = x - x.mean()
    own = centred - nuisance @ (nuisance.T @ centred)
    scale = float(np.linalg.norm(own))
    if scale <= DEPENDENT * np.linalg.norm(centred) or scale == 0:
        raise DataError(f'{name}: {description}: cannot be told apart from the covariates')
    design = Design(name, description, np.asarray(rows, np.intp), own / scale, nuisance, scale)
    if design.df < 1:
        raise DataError(
            f'{name}: {description}: {x.size} people are too few for {nuisance.shape[1]} '
            'columns of mean and covariates; use fewer covariates'
        )
    return design


def _orthonormal(columns: Floats) -> Floats:
    """Orthonormal basis (n, q) of a constant and these columns (n, c), the constant first."""
    mean = columns.mean(axis=0)
    centred = columns - mean
    length = np.linalg.norm(centred, axis=0)
    varies = length > DEPENDENT * np.abs(mean)
    scaled = centred[:, varies] / length[varies]
    left, sizes, _ = np.linalg.svd(scaled, full_matrices=False)
    constant = np.full((len(columns), 1), len(columns) ** -0.5)
    return np.hstack([constant, left[:, sizes > DEPENDENT]])


def covariate_columns(covariates: pd.DataFrame) -> Floats:
    """Covariates of N people as numbers (N, c): text becomes an indicator a level but the first.

    Raises
    ------
    DataError
        A value is missing or infinite.
    """
    if covariates.shape[1] == 0:
        return np.empty((len(covariates), 0))
    indicators = pd.get_dummies(covariates, drop_first=True, dtype=float)
    columns = indicators.to_numpy(np.float64, na_value=np.nan)
    lacking = covariates.isna().any(axis=1).to_numpy() | ~np.isfinite(columns).all(axis=1)
    if lacking.any():
        raise DataError(
            f'{lacking.sum()} people lack a covariate, {covariates.index[lacking][0]} among them; '
            'leave them out, or leave the covariate out'
        )
    return columns


def pattern_designs(
    r_indices: pd.DataFrame,
    is_control: ArrayLike,
    covariates: pd.DataFrame | None = None,
    *,
    minimum: int = MINIMUM_PEOPLE,
) -> tuple[list[Design], list[Skipped]]:
    """All comparisons that show what the patterns are (section 4.3).

    Each subgroup of `form_subgroups` against the controls; and, among patients, the regression on
    each R-index with the other R-indices held fixed, as the subgroups hold them.

    Parameters
    ----------
    r_indices : (N, M)
        R-indices, a row a person, with one image each; those of controls are not used.
    is_control : (N,) of bool
        Who is a control; the others are patients.
    covariates : (N, c)
        Columns held fixed in every model, such as age and sex; same rows.
    minimum
        Subgroups, and groups, of fewer people are skipped.

    Returns
    -------
    designs
        Named `low`, `r1mid`, `r1high`, ..., `r1slope`, ... by the columns of `r_indices`.
    skipped
        What was left out, and why.
    """
    control = np.asarray(is_control, bool)
    if covariates is None:
        covariates = pd.DataFrame(index=r_indices.index)
    if not len(r_indices) == len(control) == len(covariates):
        raise DataError(
            f'R-indices of {len(r_indices)}, groups of {len(control)} and covariates of '
            f'{len(covariates)} people; give the same people in the same order'
        )
    people = _People(r_indices, control, covariate_columns(covariates))
    designs: list[Design] = []
    skipped: list[Skipped] = []
    for name, description, counts, arguments in people.comparisons():
        small = [f'{count} {group}' for group, count in counts.items() if count < minimum]
        if small:
            reason = f'{description}: only {" and ".join(small)}; at least {minimum} are needed'
            skipped.append(Skipped(name, reason))
            continue
        try:
            designs.append(make_design(name, description, *arguments))
        except DataError as error:
            skipped.append(Skipped(name, str(error)))
    return designs, skipped


Comparison = tuple[str, str, dict[str, int], tuple[NDArray[np.intp], Floats, Floats]]


@dataclass(frozen=True)
class _People:
    r_indices: pd.DataFrame
    control: NDArray[np.bool_]
    columns: Floats

    def comparisons(self) -> Iterator[Comparison]:
        """Name, description, sizes of groups, and rows, tested and fixed columns of each."""
        yield from self._against_controls()
        yield from self._among_patients()

    def _against_controls(self) -> Iterator[Comparison]:
        patients = np.flatnonzero(~self.control)
        for subgroup in form_subgroups(self.r_indices.iloc[patients]):
            belongs = np.zeros(self.control.size)
            belongs[patients[subgroup.members]] = 1
            rows = np.flatnonzero(self.control | (belongs > 0))
            counts = {'controls': int(self.control.sum()), 'patients': subgroup.size}
            yield (
                subgroup.name,
                f'{subgroup.description} (n = {subgroup.size}) against controls '
                f'(n = {counts["controls"]})',
                counts,
                (rows, belongs[rows], self.columns[rows]),
            )

    def _among_patients(self) -> Iterator[Comparison]:
        rows = np.flatnonzero(~self.control)
        values = self.r_indices.iloc[rows].to_numpy(np.float64)
        for number, pattern in enumerate(map(str, self.r_indices.columns)):
            others = np.delete(values, number, axis=1)
            fixed = ', other R-indices held fixed' if others.shape[1] else ''
            yield (
                f'{pattern}slope',
                f'{pattern} among patients (n = {rows.size}){fixed}',
                {'patients': rows.size},
                (rows, values[:, number], np.hstack([self.columns[rows], others])),
            )
