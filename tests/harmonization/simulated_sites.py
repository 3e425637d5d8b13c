"""People at several sites with known effects of site, age and sex."""

import numpy as np
import pandas as pd

from surreal_bids.harmonization.combat import ComBat

SITE_SIZES = {'Aarhus': 24, 'Bern': 9, 'Cork': 31, 'Delft': 5, 'Evora': 17}


def simulate_sites(seed, n_features=11, site_sizes=None):
    """Draw features, site and covariates; ages are in quarters of a year, exact in float32."""
    sizes = SITE_SIZES if site_sizes is None else site_sizes
    rng = np.random.default_rng(seed)
    n_people = sum(sizes.values())
    site = np.repeat(list(sizes), list(sizes.values()))
    codes = np.repeat(np.arange(len(sizes)), list(sizes.values()))
    age = np.round(4 * rng.uniform(20, 80, n_people)) / 4
    sex = rng.integers(0, 2, n_people)
    shift = rng.normal(0, 0.7, (len(sizes), n_features)) + rng.normal(0, 0.4, (len(sizes), 1))
    spread = np.sqrt(rng.gamma(6, 1 / 6, (len(sizes), n_features)))
    z = shift[codes] + spread[codes] * rng.standard_normal((n_people, n_features))
    effect = np.outer(age - 50, rng.normal(0, 1.2, n_features)) + 8 * sex[:, None]
    bend = -0.01 * np.outer((age - 45) ** 2, rng.uniform(0, 1, n_features))
    people = [f'sub-{number:03d}' for number in range(n_people)]
    features = [f'roi{number}' for number in range(n_features)]
    X = pd.DataFrame(1000 + effect + bend + 20 * z, index=people, columns=features)
    covariates = pd.DataFrame({'age': age, 'sex': sex}, index=people)
    return X, pd.Series(site, index=people, name='site'), covariates


def harmonize(X, site, covariates, **options):
    """Fit ComBat and harmonize the same participants."""
    return ComBat().fit(X, site, covariates, **options).transform(X, site, covariates)
