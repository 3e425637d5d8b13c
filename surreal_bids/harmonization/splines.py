"""Cubic B-splines of one covariate, with the roughness penalty of ComBat-GAM.

Knots, basis and penalty follow Pomponio et al. (NeuroImage 208:116450, 2020), whose program takes
them from statsmodels: interior knots at quantiles, boundary knots at the extremes, the first basis
function left out since site (or an intercept) already spans the constant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import simpson
from scipy.interpolate import BSpline

from surreal_bids.exceptions import DataError

DEGREE = 3
"""Cubic splines."""

SIMPSON_STEPS = 4
"""Steps between two knots; products of second derivatives are quadratic there: Simpson is exact."""


@dataclass(frozen=True, eq=False)
class SplineBasis:
    """A cubic B-spline basis without its first function.

    Attributes
    ----------
    knots : ndarray of shape (n_functions + 5,)
        All knots in order, the boundary ones repeated four times, in the unit of the covariate.
    """

    knots: NDArray[np.float64]

    @classmethod
    def at_quantiles(cls, x: ArrayLike, n_functions: int) -> SplineBasis:
        """Place knots at the quantiles of `x` (n,); `n_functions` counts the one left out.

        Raises
        ------
        DataError
            `x` has too few different values for so many functions, or one value too often.
        """
        x = np.asarray(x, dtype=np.float64)
        different = len(np.unique(x))
        if different < n_functions:
            raise DataError(
                f'a spline of {n_functions} functions needs as many different values, '
                f'found {different}; use a line'
            )
        inside = np.linspace(0, 100, n_functions - DEGREE + 1)[1:-1]
        ends = np.repeat([x.min(), x.max()], DEGREE + 1)
        knots = np.sort(np.concatenate([ends, np.percentile(x, inside)]))
        if (knots[DEGREE + 1 :] == knots[: -DEGREE - 1]).any():
            raise DataError('too many people share one value for a spline; use a line')
        return cls(knots)

    @property
    def lower(self) -> float:
        """Smallest value of the covariate that the basis has seen."""
        return float(self.knots[0])

    @property
    def upper(self) -> float:
        """Largest value of the covariate that the basis has seen."""
        return float(self.knots[-1])

    def evaluate(self, x: ArrayLike, derivative: int = 0) -> NDArray[np.float64]:
        """Evaluate the functions, or a derivative, at `x` (n,): shape (n, n_functions - 1).

        Beyond the boundary knots the value at the boundary is used: a cubic that runs on outside
        its data is worth less than no slope at all.
        """
        inside = np.clip(np.asarray(x, dtype=np.float64), self.lower, self.upper)
        every = np.eye(len(self.knots) - DEGREE - 1)
        values = BSpline(self.knots, every, DEGREE)(inside, nu=derivative)
        return np.asarray(values[:, 1:], dtype=np.float64)

    def penalty(self) -> NDArray[np.float64]:
        """Integrate the products of second derivatives: shape (n_functions - 1,) * 2."""
        points = _refine(np.unique(self.knots))
        curvature = self.evaluate(points, derivative=2)
        products = curvature[:, :, None] * curvature[:, None, :]
        return np.asarray(simpson(products, x=points, axis=0), dtype=np.float64)


def _refine(knots: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cut each interval between different knots in `SIMPSON_STEPS` equal steps."""
    steps = np.arange(SIMPSON_STEPS) / SIMPSON_STEPS
    inside = knots[:-1, None] + np.diff(knots)[:, None] * steps
    return np.append(inside.ravel(), knots[-1])
