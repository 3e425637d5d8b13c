"""Norms of simulated people whose law is known, and beside statsmodels."""

import numpy as np
import pandas as pd
import statsmodels.api as sm
from norms import TERMS, fine_effect, fit_norms

REGIONS = [4, 23, 47, 101]
LAW = np.array(
    [
        [7.0, 0.20, 0.03, 0.05, 0.6],
        [6.0, -0.05, 0.00, 0.00, 0.8],
        [8.2, -0.03, -0.02, 0.01, 0.7],
        [8.6, -0.08, 0.01, -0.02, 0.9],
    ]
)
SPREAD = np.array([0.35, 0.12, 0.08, 0.10])
FINE = np.array([-0.10, 0.02, -0.04, 0.00])


def simulate(rng, n, scanner=0.0):
    """Heads of `n` people, half of them on either scanner; those of OASIS at 1 mm too."""
    heads = pd.DataFrame(
        {
            'person': [f'p{k}' for k in range(n)],
            'source': np.where(np.arange(n) % 2, 'OASIS', 'IXI'),
            'age': rng.uniform(18, 80, n),
            'male': rng.random(n) < 0.4,
            'icv_mm3': np.exp(rng.normal(np.log(1.45e6), 0.1, n)),
            'voxel_mm': 2.0,
        }
    )
    age = (heads['age'] - 50) / 10
    terms = [np.ones(n), age, age**2, heads['male'], np.log(heads['icv_mm3'] / 1.4e6)]
    logs = np.stack(terms, axis=1).astype(float) @ LAW.T + SPREAD * rng.normal(size=(n, 4))
    logs[heads['source'] == 'OASIS'] += scanner * SPREAD
    fine = (heads['source'] == 'OASIS').to_numpy()
    both = pd.concat([heads, heads[fine].assign(voxel_mm=1.0)], ignore_index=True)
    return both, pd.DataFrame(np.concatenate([logs, logs[fine] + FINE]), columns=REGIONS)


def test_volumes_at_1_mm_are_compared_at_the_same_head_size():
    heads, logs = simulate(np.random.default_rng(3), 200)
    fine = heads['voxel_mm'] == 1.0
    heads.loc[fine, 'icv_mm3'] *= 1.1
    logs[fine] += np.log(1.1) * LAW[:, 4]
    found = fine_effect(heads, logs, pd.Series(LAW[:, 4], REGIONS))
    np.testing.assert_allclose(found, FINE, atol=1e-9)


def test_agrees_with_statsmodels():
    heads, logs = simulate(np.random.default_rng(2), 60, scanner=0.5)
    norms = fit_norms(heads, logs)
    coarse = heads[heads['voxel_mm'] == 2.0]
    age = (coarse['age'] - 50) / 10
    x = pd.DataFrame(
        {
            'intercept': 1.0,
            'age': age,
            'age_squared': age**2,
            'male': coarse['male'].astype(float),
            'log_icv': np.log(coarse['icv_mm3'] / 1.4e6),
            'scanner': (coarse['source'] == 'OASIS') - 0.5,
        }
    )
    fits = [sm.OLS(logs.loc[coarse.index, region], x).fit() for region in REGIONS]
    for region, fit in zip(REGIONS, fits):
        np.testing.assert_allclose(norms.loc[region, list(TERMS)], fit.params[:-1], rtol=1e-6)
    share = np.mean([(f.params['scanner'] ** 2 - f.bse['scanner'] ** 2) / f.scale for f in fits])
    spread = [np.sqrt(fit.scale * (1 + 0.75 * max(share, 0))) for fit in fits]
    np.testing.assert_allclose(norms['sd'], spread, rtol=1e-6)
