"""Time and memory of fitting ComBat to a large study, compared with neuroCombat.

    python benchmarks/combat.py [--participants 10000] [--features 500] [--sites 50] [--rounds 3]

Each fit runs in its own process, which gives its own peak memory (including Python, libraries and
data). neuroCombat is included if it can be imported. `benchmarks/results` gets every round with the
date, machine and versions; the medians are printed.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import multiprocessing
import os
import resource
import time
from contextlib import redirect_stdout

import numpy as np
import pandas as pd
from machine import write_results

from surreal_bids.harmonization.combat import ComBat

TARGET_SECONDS = 5.0
"""A fit may take this long on two cores."""

TARGET_MB = 1000.0
"""A fit may need this much memory, all in all."""

Study = tuple[pd.DataFrame, np.ndarray, pd.DataFrame]


def simulate(participants: int, features: int, sites: int) -> Study:
    """Simulate features with site effects, site names and two covariates."""
    rng = np.random.default_rng(0)
    codes = rng.permutation(np.arange(participants) % sites)
    covariates = pd.DataFrame(
        {'age': rng.uniform(20, 90, participants), 'sex': rng.integers(0, 2, participants)}
    )
    X = rng.normal(1000, 50, (participants, features))
    X += 30 * rng.normal(size=(sites, features))[codes]
    X += np.outer(covariates['age'], rng.normal(0, 1, features))
    return pd.DataFrame(X).add_prefix('roi'), np.char.add('site', codes.astype(str)), covariates


def fit(X: pd.DataFrame, site: np.ndarray, covariates: pd.DataFrame) -> None:
    ComBat().fit(X, site, covariates)


def fit_and_apply(X: pd.DataFrame, site: np.ndarray, covariates: pd.DataFrame) -> None:
    ComBat().fit_transform(X, site, covariates)


def run_neurocombat(X: pd.DataFrame, site: np.ndarray, covariates: pd.DataFrame) -> None:
    from neuroCombat import neuroCombat

    with redirect_stdout(io.StringIO()):
        neuroCombat(
            dat=X.to_numpy().T,
            covars=covariates.assign(site=site),
            batch_col='site',
            categorical_cols=['sex'],
            continuous_cols=['age'],
        )


WAYS = {
    'ComBat fit': fit,
    'ComBat fit and transform': fit_and_apply,
    'neuroCombat (fits and transforms)': run_neurocombat,
}


def measure_once(method: str, size: tuple[int, int, int]) -> tuple[float, float]:
    """Return seconds of one fit and peak memory (MB) of this process."""
    study = simulate(*size)
    start = time.perf_counter()
    WAYS[method](*study)
    seconds = time.perf_counter() - start
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(size: tuple[int, int, int], rounds: int) -> pd.DataFrame:
    context = multiprocessing.get_context('spawn')
    methods = [name for name in WAYS if name.startswith('ComBat') or has_neurocombat()]
    rows = []
    for number in range(1, rounds + 1):
        for method in methods:
            with context.Pool(1) as pool:
                seconds, megabytes = pool.apply(measure_once, (method, size))
            rows.append((number, method, round(seconds, 3), round(megabytes, 1)))
    return pd.DataFrame(rows, columns=['round', 'method', 'seconds', 'peak_mb'])


def has_neurocombat() -> bool:
    return importlib.util.find_spec('neuroCombat') is not None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--participants', type=int, default=10_000)
    parser.add_argument('--features', type=int, default=500)
    parser.add_argument('--sites', type=int, default=50)
    parser.add_argument('--rounds', type=int, default=3)
    arguments = parser.parse_args()
    size = (arguments.participants, arguments.features, arguments.sites)
    table = measure(size, arguments.rounds)
    targets = {'target_seconds': TARGET_SECONDS, 'target_mb': TARGET_MB}
    medians = table.drop(columns='round').groupby('method', sort=False).median()
    print(medians.assign(**targets).to_string())
    table = table.assign(
        **targets,
        participants=arguments.participants,
        features=arguments.features,
        sites=arguments.sites,
        threads=os.environ.get('OMP_NUM_THREADS', 'default'),
    )
    write_results('combat', table, 'surreal_bids', 'neuroCombat', 'numpy', 'pandas')


if __name__ == '__main__':
    main()
