"""How far single participants are from controls: a linear model of controls, and z-scores by it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surreal_bids.stats.glm import CONSTANT, DEPENDENT
from surreal_bids.stats.maps import MapSeries, t_to_z

Floats = NDArray[np.float64]

LARGEST_Z = 32.0
"""z-scores of maps are limited to this, so that they fit 16 bits."""

GRID = np.linspace(0, 200, 200_001)
"""Values of t between which the z-scores of maps are interpolated, with an error below 1e-5."""


class ControlModel:
    """Least squares of one or many values on covariates, in controls.

    Everyone is measured against the prediction for a new person with the same covariates, whose
    error includes that of the coefficients. Controls are measured against the other controls, as if
    the model had been fitted without them (deleted residuals; Belsley, Kuh and Welsch 1980,
    section 2.1). So the same share of healthy people is beyond a limit, controls or not.

    Parameters
    ----------
    columns : (N, c)
        Covariates of all N visits; a mean is added.
    fitted : (n,) array of int
        Visits that the model is fitted to, one for each control.
    own : (N,) array of int
        Of each visit of a control, the visit of the same person that the model is fitted to; -1 for
        all others.

    Attributes
    ----------
    n_columns, df : int
        Independent columns of mean and covariates, and degrees of freedom of the residuals.
    estimable : (N,) array of bool
        Who can be measured: not who has a site or a sex that no other control has.
    """

    def __init__(self, columns: ArrayLike, fitted: ArrayLike, own: ArrayLike) -> None:
        self.fitted, self.own = np.asarray(fitted, np.intp), np.asarray(own, np.intp)
        self._axes, outside = _axes_of(np.asarray(columns, np.float64), self.fitted)
        self.n_columns = self._axes.shape[1]
        self.df = self.fitted.size - self.n_columns
        is_control = self.own >= 0
        # What the other controls leave of a control's own axes: 0 if they cannot predict it.
        self._free = 1 - np.where(is_control, np.square(self._axes[self.own]).sum(axis=1), 0.0)
        self.estimable = ~outside & (self._free > DEPENDENT) & (self.df - is_control > 0)
        self._origin: Floats | None = None

    def add(self, rows: NDArray[np.intp], values: NDArray) -> None:
        """Take in the values (B, V) of some of the visits in `fitted` (B,)."""
        if self._origin is None:
            # Numbers near 0 keep the difference of sums of squares accurate.
            self._origin = np.asarray(values[0], np.float64)
            self._products = np.zeros((self._axes.shape[1], values.shape[1]))
            self._squares = np.zeros(values.shape[1])
        y = values - self._origin
        self._products += self._axes[rows].T @ y
        self._squares += np.square(y).sum(axis=0)

    def t(self, row: int, values: NDArray, own_values: NDArray | None = None) -> tuple[Floats, int]:
        """Distance of one visit from its prediction, in standard errors, and degrees of freedom.

        Parameters
        ----------
        row
            The visit, which is estimable.
        values : (V,)
            Its values.
        own_values : (V,)
            Of a control: the values that the model was fitted to. None: the same.

        Returns
        -------
        t : (V,)
            Student t; missing where controls do not vary.
        df
            Its degrees of freedom.
        """
        axes = self._axes[row]
        residual = values - self._origin - axes @ self._products
        rest = self._squares - np.square(self._products).sum(axis=0)
        varies, leverage, df = rest > CONSTANT * self._squares, axes @ axes, self.df
        if self.own[row] >= 0:
            own, free = self._axes[self.own[row]], self._free[row]
            shared, kept = axes @ own, values if own_values is None else own_values
            removed = kept - self._origin - own @ self._products
            residual = residual + shared / free * removed
            rest = rest - np.square(removed) / free
            leverage, df = leverage + shared**2 / free, df - 1
        varies &= rest > CONSTANT * self._squares
        spread = np.sqrt(np.where(varies, rest, np.nan) / df * (1 + leverage))
        return residual / spread, df

    def z_scores(self, values: NDArray) -> Floats:
        """z-scores (N, V) of everyone, fitted to the values (N, V) of the controls.

        They are normal deviates with the p value of t; missing for who is not estimable.
        """
        self.add(self.fitted, values[self.fitted])
        t = np.full(values.shape, np.nan)
        for row in np.flatnonzero(self.estimable):
            own = self.own[row]
            t[row], _ = self.t(row, values[row], None if own < 0 else values[own])
        is_control = self.own[:, None] >= 0
        return np.where(is_control, t_to_z(t, max(self.df - 1, 1)), t_to_z(t, max(self.df, 1)))


def _axes_of(columns: Floats, fitted: NDArray[np.intp]) -> tuple[Floats, NDArray[np.bool_]]:
    """Mean and covariates on axes (N, q) that are orthonormal in controls; who is not on them."""
    mean = columns[fitted].sum(axis=0) / max(fitted.size, 1)
    centred = columns - mean
    length = np.linalg.norm(centred[fitted], axis=0)
    varies = length > DEPENDENT * np.maximum(np.abs(mean), 1)
    differs = np.abs(centred) > DEPENDENT * np.maximum(np.abs(mean), 1)
    unknown = (differs & ~varies).any(axis=1)
    scaled = centred[:, varies] / length[varies]
    _, sizes, directions = np.linalg.svd(scaled[fitted], full_matrices=False)
    directions, sizes = directions[sizes > DEPENDENT], sizes[sizes > DEPENDENT]
    along = scaled @ directions.T
    outside = np.linalg.norm(scaled - along @ directions, axis=1)
    unknown |= outside > DEPENDENT * (1 + np.linalg.norm(scaled, axis=1))
    constant = np.full((len(columns), 1), max(fitted.size, 1) ** -0.5)
    return np.hstack([constant, along / sizes]), unknown


def deviation_maps(
    series: MapSeries, model: ControlModel, rows: Sequence[int]
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield the z-scores (V,) of each of these rows of a series; 0 where controls do not vary.

    Images of controls are read twice. Memory does not depend on the number of images.
    """
    for batch, values in series.batches(model.fitted):
        model.add(batch, values)
    limits = {df: t_to_z(GRID, df) for df in (model.df, model.df - 1) if df > 0}
    for batch, values in series.batches([row for row in rows if model.estimable[row]]):
        for row, each in zip(batch, values):
            own = model.own[row]
            t, df = model.t(row, each, None if own in (-1, row) else series.read(own))
            z = np.copysign(np.interp(np.abs(t), GRID, limits[df]), t)
            yield int(row), np.nan_to_num(np.clip(z, -LARGEST_Z, LARGEST_Z)).astype(np.float32)
