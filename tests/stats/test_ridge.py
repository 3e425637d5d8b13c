"""Ridge regression beside models that are fitted without each participant."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from surreal_bids.stats.ridge import predictability


@pytest.mark.parametrize(('n_participants', 'n_predictors'), [(30, 7), (20, 40)])
def test_predictions_are_those_of_models_fitted_without_the_participant(
    n_participants, n_predictors
):
    rng = np.random.default_rng(0)
    x = rng.normal(3, 2, (n_participants, n_predictors))
    y = x[:, 0] + rng.normal(0, 2, n_participants)
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)
    predicted = []
    for row in range(n_participants):
        others = np.arange(n_participants) != row
        model = Ridge(alpha=n_predictors).fit(scaled[others], y[others])
        predicted.append(model.predict(scaled[[row]])[0])
    expected = np.corrcoef(predicted, y)[0, 1]
    constant = np.ones((n_participants, 1))
    # The mean without a participant is part of the intercept there, and of the leverage here.
    assert predictability(np.hstack([x, constant]), y) == pytest.approx(expected, abs=1e-9)
    assert np.isnan(predictability(x, np.full(n_participants, 2.0)))


def test_what_is_unrelated_is_not_predicted():
    rng = np.random.default_rng(0)
    found = [predictability(rng.normal(size=(50, 9)), rng.normal(size=50)) for _ in range(200)]
    assert np.mean(found) < 0.02
    assert np.quantile(found, 0.97) < 2.3 / np.sqrt(49)
