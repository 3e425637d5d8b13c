"""z-scores by a linear model of controls, beside statsmodels."""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

from surreal_bids.stats.deviations import ControlModel, deviation_maps
from surreal_bids.stats.maps import MapSeries, t_to_z

from .fields import AFFINE, smooth_fields, write_maps

N_CONTROLS, N_ALL, N_VALUES = 24, 40, 5


def simulate(rng, n_values=N_VALUES):
    """Age and sex of all, and values that depend on them; controls come first."""
    columns = np.column_stack([rng.normal(60, 8, N_ALL), rng.integers(0, 2, N_ALL)])
    values = 3 + columns @ rng.normal(0, 0.1, (2, n_values)) + rng.normal(0, 1, (N_ALL, n_values))
    own = np.where(np.arange(N_ALL) < N_CONTROLS, np.arange(N_ALL), -1)
    return columns, values, own


def fit(columns, values, rows):
    return sm.OLS(values[rows], sm.add_constant(columns)[rows]).fit()


def test_others_are_measured_by_prediction_errors():
    columns, values, own = simulate(np.random.default_rng(0))
    z = ControlModel(columns, np.arange(N_CONTROLS), own).z_scores(values)
    for number in range(N_VALUES):
        model = fit(columns, values[:, number], np.arange(N_CONTROLS))
        predicted = model.get_prediction(sm.add_constant(columns)[N_CONTROLS:])
        error = np.sqrt(predicted.var_pred_mean + model.scale)
        t = (values[N_CONTROLS:, number] - predicted.predicted_mean) / error
        np.testing.assert_allclose(z[N_CONTROLS:, number], t_to_z(t, model.df_resid), rtol=1e-9)


def test_controls_are_measured_by_deleted_residuals():
    columns, values, own = simulate(np.random.default_rng(1))
    z = ControlModel(columns, np.arange(N_CONTROLS), own).z_scores(values)
    model = fit(columns, values[:, 2], np.arange(N_CONTROLS))
    t = model.get_influence().resid_studentized_external
    np.testing.assert_allclose(z[:N_CONTROLS, 2], t_to_z(t, model.df_resid - 1), rtol=1e-9)


def test_a_later_visit_of_a_control_is_measured_without_the_first():
    columns, values, own = simulate(np.random.default_rng(2))
    own[N_CONTROLS] = 4
    z = ControlModel(columns, np.arange(N_CONTROLS), own).z_scores(values)
    alone = own.copy()
    alone[[4, N_CONTROLS]] = -1
    others = np.delete(np.arange(N_CONTROLS), 4)
    expected = ControlModel(columns, others, alone).z_scores(values)
    np.testing.assert_allclose(z[[4, N_CONTROLS]], expected[[4, N_CONTROLS]], rtol=1e-9)


def test_who_cannot_be_predicted_has_no_z_score():
    columns, values, own = simulate(np.random.default_rng(3))
    at_other_site, at_own_site = np.zeros((2, N_ALL))
    at_other_site[30] = 1
    at_own_site[[3, 31]] = 1
    columns = np.column_stack([columns, at_other_site, at_own_site])
    z = ControlModel(columns, np.arange(N_CONTROLS), own).z_scores(values)
    assert np.flatnonzero(np.isnan(z).any(axis=1)).tolist() == [3, 30]


def test_units_and_order_of_columns_do_not_matter():
    columns, values, own = simulate(np.random.default_rng(4))
    z = ControlModel(columns, np.arange(N_CONTROLS), own).z_scores(values)
    other = np.column_stack([1e6 - columns[:, 1], columns[:, 0] * 365.25, columns.sum(axis=1)])
    again = ControlModel(other, np.arange(N_CONTROLS), own).z_scores(1e4 + 1e-3 * values)
    np.testing.assert_allclose(z, again, rtol=1e-5)


@pytest.mark.parametrize('n_controls', [12, 24])
def test_one_in_twenty_healthy_values_is_beyond_1_96(n_controls):
    """As often in controls as in others, however few the controls are."""
    columns, values, _ = simulate(np.random.default_rng(5), 20_000)
    own = np.where(np.arange(N_ALL) < n_controls, np.arange(N_ALL), -1)
    z = ControlModel(columns, np.arange(n_controls), own).z_scores(values)
    for each in (z[:n_controls], z[n_controls:]):
        assert (np.abs(each) > stats.norm.isf(0.025)).mean() == pytest.approx(0.05, abs=0.004)


def test_maps_hold_the_z_scores_of_their_voxels(tmp_path, monkeypatch):
    monkeypatch.setattr('surreal_bids.stats.maps.BATCH', 7)
    rng = np.random.default_rng(6)
    columns, _, own = simulate(rng)
    own[30] = 5
    images = (3 + smooth_fields(rng, N_ALL)).astype(np.float32)
    images[:, 0] = 0
    images[:, 2, 3, 4] = 2
    series = MapSeries.open(write_maps(tmp_path, images))
    model = ControlModel(columns, np.arange(N_CONTROLS), own)
    found = dict(deviation_maps(series, model, [0, 25, 30]))
    voxels = images.reshape(N_ALL, -1, order='F')[:, series.voxels]
    expected = ControlModel(columns, np.arange(N_CONTROLS), own).z_scores(voxels)
    for row, z in found.items():
        np.testing.assert_allclose(z, np.nan_to_num(expected[row]), atol=1e-4)
        assert (series.to_image(z).get_fdata()[2, 3, 4], z.std() > 0.5) == (0, True)
    assert list(found) == [0, 25, 30]
    assert np.allclose(series.grid.affine, AFFINE)
