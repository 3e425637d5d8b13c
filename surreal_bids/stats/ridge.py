"""How well one variable can be predicted from many, by ridge regression."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def predictability(predictors: NDArray[np.float64], outcome: NDArray[np.float64]) -> float:
    """Correlate an outcome with what ridge regression predicts from the other participants.

    The penalty is that of a model in which predictors and noise explain half of the variance each.
    Predictions without a participant follow from its leverage (Hastie et al., The Elements of
    Statistical Learning, 2009, equation 7.64).

    Parameters
    ----------
    predictors : array of shape (n_participants, n_predictors)
        Numbers without missing values; constant ones have no effect.
    outcome : array of shape (n_participants,)
        Numbers without missing values.

    Returns
    -------
    float
        Correlation; about 0, or less, if predictors and outcome are unrelated; NaN if the outcome
        is constant.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> volumes = rng.normal(size=(200, 5))
    >>> round(predictability(volumes, volumes.sum(axis=1)), 2)
    1.0
    """
    spread = predictors.std(axis=0)
    varying = predictors[:, spread > 0]
    scaled = (varying - varying.mean(axis=0)) / spread[spread > 0]
    centred = outcome - outcome.mean()
    left, singular, _ = np.linalg.svd(scaled, full_matrices=False)
    shrinkage = singular**2 / (singular**2 + max(1, scaled.shape[1]))
    fitted = left @ (shrinkage * (left.T @ centred))
    leverage = left**2 @ shrinkage + 1 / len(outcome)
    predicted = (fitted - leverage * centred) / (1 - leverage)
    if predicted.std() == 0 or centred.std() == 0:
        return np.nan
    return float(np.corrcoef(predicted, centred)[0, 1])
