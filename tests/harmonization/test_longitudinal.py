"""Longitudinal ComBat: the formulas of longCombat, and a change of scanners that leaves no change.

Beer et al. (NeuroImage 220:117129, 2020), equations 3 to 8, as in the program `longCombat` by the
same authors, but with mixed models by statsmodels.
"""

import numpy as np
import pandas as pd
import pytest
from statsmodels.regression.mixed_linear_model import MixedLM

from surreal_bids.harmonization.combat import ComBat
from tests.harmonization.simulated_sites import harmonize

N_ITERATIONS = 30
"""Of longCombat."""


def simulate_visits(seed, n_people=40, n_features=6, moved=0.5, shift_sd=1.0):
    """Visits of participants, some of which are on another scanner; and the shifts of scanners."""
    rng = np.random.default_rng(seed)
    sites = np.array(['Aarhus', 'Bern', 'Cork'])
    rows = []
    for person in range(n_people):
        home, age, sex = rng.integers(3), rng.uniform(50, 80), rng.integers(2)
        for visit in range(rng.integers(1, 5)):
            away = rng.random() < moved
            rows.append((person, (home + away) % 3, age + visit * rng.uniform(0.8, 1.2), sex))
    person, site, age, sex = map(np.array, zip(*rows))
    shift = rng.normal(0, shift_sd, (3, n_features)) + rng.normal(0, 1, (3, 1))
    spread = np.array([0.9, 1.0, 1.1])[:, None]
    slopes = rng.normal(-0.3, 0.1, n_features)
    # Participants differ by 10 %, and two measurements of one of them by 1.5 %.
    own = rng.normal(0, 7, (n_people, n_features))
    errors = spread[site] * rng.normal(size=(len(rows), n_features))
    fixed = 500 + np.outer(age, slopes) + 3 * sex[:, None]
    names = [f'visit-{number:03d}' for number in range(len(rows))]
    X = pd.DataFrame(
        fixed + own[person] + shift[site] + errors, names, [f'roi{i}' for i in range(n_features)]
    )
    known = pd.DataFrame({'age': age, 'sex': sex}, names)
    return X, pd.Series(sites[site], names), known, pd.Series(person, names), shift


def long_combat(X, site, covariates, person):
    """The published formulas, feature by feature and site by site."""
    sites, codes = np.unique(site, return_inverse=True)
    sizes = np.bincount(codes)
    n, n_features = X.shape
    # lmer(feature ~ age + sex + batch + (1 | subject)); the first batch is the reference.
    batches = [(codes == number).astype(float) for number in range(1, len(sites))]
    design = np.column_stack([np.ones(n), covariates.to_numpy(float), *batches])
    design[:, 1:3] -= design[:, 1:3].mean(axis=0)
    predicted, effects, sigma = np.empty((n, n_features)), [], []
    for v, name in enumerate(X):
        model = MixedLM(X[name].to_numpy(), design, person.to_numpy())
        fitted = model.fit(reml=True, method='bfgs', gtol=1e-7)
        predicted[:, v] = fitted.fittedvalues
        sigma.append(np.sqrt(fitted.scale))
        raw = np.concatenate([[0.0], fitted.fe_params[3:]])
        effects.append(raw - sizes @ raw / n)
    sigma, effects = np.array(sigma), np.array(effects).T[codes]
    z = (X.to_numpy() - predicted + effects) / sigma
    shift, ratio = np.empty((len(sites), n_features)), np.empty((len(sites), n_features))
    for i in range(len(sites)):
        own = z[codes == i]
        gamma_hat, delta_hat = own.mean(axis=0), own.var(axis=0, ddof=1)
        gamma_bar, tau = gamma_hat.mean(), gamma_hat.var(ddof=1)
        m, s = delta_hat.mean(), delta_hat.var(ddof=1)
        lam, theta = (m**2 + 2 * s) / s, (m**3 + m * s) / s
        gamma, delta = gamma_hat, delta_hat
        for _ in range(N_ITERATIONS + 1):
            gamma = (sizes[i] * tau * gamma_hat + delta * gamma_bar) / (sizes[i] * tau + delta)
            squares = ((own - gamma) ** 2).sum(axis=0)
            delta = (theta + squares / 2) / (sizes[i] / 2 + lam - 1)
        shift[i], ratio[i] = gamma, delta
    scaled = sigma * (z - shift[codes]) / np.sqrt(ratio[codes]) + predicted - effects
    shifted = sigma * (z - shift[codes]) + predicted - effects
    return sigma, shift, ratio, shifted, scaled


@pytest.mark.slow
@pytest.mark.parametrize('seed', range(3))
def test_equals_the_published_formulas(seed):
    X, site, covariates, person, _ = simulate_visits(seed)
    sigma, shift, ratio, shifted, _ = long_combat(X, site, covariates, person)
    combat = ComBat().fit(X, site, covariates, participants=person)
    ours = combat.transform(X, site, covariates)
    np.testing.assert_allclose(combat.scale_, sigma, rtol=1e-6)
    np.testing.assert_allclose(combat.shift_, shift, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(combat.ratio_, ratio, rtol=1e-6)
    np.testing.assert_allclose((ours - shifted) / sigma, 0, atol=1e-6)


@pytest.mark.parametrize('seed', range(2))
def test_participants_who_come_once_change_nothing(seed):
    X, site, covariates, *_ = simulate_visits(seed)
    once = harmonize(X, site, covariates, participants=X.index.to_series())
    pd.testing.assert_frame_equal(once, harmonize(X, site, covariates))


def test_the_order_of_visits_is_of_no_account():
    X, site, covariates, person, _ = simulate_visits(1)
    order = np.random.default_rng(0).permutation(len(X))
    ours = harmonize(X, site, covariates, participants=person)
    again = harmonize(X.iloc[order], site, covariates, participants=person)
    pd.testing.assert_frame_equal(again.loc[X.index], ours, rtol=1e-9)


def test_a_stored_model_gives_the_same():
    X, site, covariates, person, _ = simulate_visits(2)
    combat = ComBat().fit(X, site, covariates, participants=person)
    again = ComBat.from_arrays(combat.to_arrays())
    pd.testing.assert_frame_equal(
        again.transform(X, site, covariates), combat.transform(X, site, covariates)
    )
    np.testing.assert_array_equal(again.shift_error_, combat.shift_error_)


def error_of_shifts(combat, shift):
    """Error (n_features,) that a participant's change from the first to the second site keeps."""
    found = combat.scale_ * (combat.shift_[1] - combat.shift_[0])
    return found - (shift[1] - shift[0])


def test_a_change_of_scanners_leaves_no_change():
    kept = {'visits': [], 'first visits': []}
    for seed in range(8):
        X, site, covariates, person, shift = simulate_visits(seed, 120, 20, shift_sd=3)
        first = ~person.duplicated()
        visits = ComBat().fit(X, site, covariates, participants=person)
        kept['visits'].append(error_of_shifts(visits, shift))
        today = ComBat().fit(X[first], site[first], covariates[first])
        kept['first visits'].append(error_of_shifts(today, shift))
    rms = {how: np.sqrt(np.mean(np.square(errors))) for how, errors in kept.items()}
    assert rms['visits'] < 0.2 * rms['first visits']


@pytest.mark.slow
@pytest.mark.parametrize('moved', [0.1, 0.5])
def test_the_error_of_shifts_is_known(moved, monkeypatch):
    monkeypatch.setattr(ComBat, '_borrows', lambda _: False)  # Without shrinkage.
    in_sd = []
    for seed in range(40):
        X, site, covariates, person, shift = simulate_visits(seed, 80, 20, moved)
        combat = ComBat().fit(X, site, covariates, participants=person)
        expected = combat.scale_ * np.sqrt(combat.shift_error_[0, 1])
        in_sd.append(error_of_shifts(combat, shift) / expected)
    assert np.std(in_sd) == pytest.approx(1, abs=0.1)


def test_a_site_can_be_added():
    X, site, covariates, person, _ = simulate_visits(3, 150)
    new = site == 'Cork'
    combat = ComBat().fit(X[~new], site[~new], covariates[~new], participants=person[~new])
    combat.add_site(X[new], site[new], covariates[new])
    everyone = ComBat().fit(X, site, covariates, participants=person)
    shifts = [each.scale_ * (each.shift_[2] - each.shift_[0]) for each in (combat, everyone)]
    assert np.abs(shifts[0] - shifts[1]).max() < 7 * 4 / np.sqrt(new.sum())
