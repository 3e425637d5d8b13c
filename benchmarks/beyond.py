"""Tasks beyond the paper's five: linear factors, Surreal-GAN and supervised regression.

    python benchmarks/beyond.py --seeds 31 32 33 [--tasks threshold dense] [--factors-only]

Regions are those of `basic`. Each row is one task and one sample of participants: the c-index of
the linear factors, of the default Surreal-GAN with M = 3, and of ridge regression that is given the
true severities of four fifths of the patients and predicts those of the others.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from machine import write_results
from scipy.stats import beta, norm
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import cross_val_predict

from surreal_bids.harmonization.covariates import CNNormaliser
from surreal_bids.model.estimator import SurrealGAN
from surreal_bids.model.factors import fit_factors
from surreal_bids.regions import muse_indices
from surreal_bids.simulation.population import sample_controls
from surreal_bids.simulation.tables import TASKS as PAPER_TASKS
from surreal_bids.stats.concordance import pattern_c_index

N_PATTERNS, LOSS, NOISE = 3, 0.3, 0.05
SIZES = {'250 + 400': (250, 400), '120 + 180': (120, 180), '60 + 90': (60, 90)}
EFFECTS = {
    'threshold': lambda s: np.maximum(2 * s - 1, 0),
    'quadratic': np.square,
    'saturating': lambda s: 1 - np.exp(-4 * s),
}
OTHER = ('linear', 'skewed', 'correlated', 'own volume', 'age', 'interaction', 'dense', 'shared')
TASKS = (*OTHER, *EFFECTS, *SIZES)


def severities(task: str, n_people: int, rng: np.random.Generator) -> np.ndarray:
    """Severities (N, 3): uniform, correlated at 0.4, or skewed towards zero, Beta(1, 2.5)."""
    correlation = 0.4 if task == 'correlated' else 0.0
    covariance = np.full((N_PATTERNS, N_PATTERNS), correlation) + (1 - correlation) * np.eye(3)
    uniform = norm.cdf(rng.multivariate_normal(np.zeros(N_PATTERNS), covariance, size=n_people))
    return beta.ppf(uniform, 1, 2.5) if task == 'skewed' else uniform


def regions(task: str) -> list[np.ndarray]:
    """Columns of each pattern: those of basic, 40 each, or 14 of which half are shared."""
    if task == 'dense':
        return [np.arange(40 * k, 40 * k + 40) % 139 for k in range(N_PATTERNS)]
    if task == 'shared':
        return [np.r_[7 * k : 7 * k + 14] for k in range(N_PATTERNS)]
    place = {index: position for position, index in enumerate(muse_indices())}
    return [np.array([place[i] for i in pattern]) for pattern in PAPER_TASKS['basic'].patterns]


def simulate(task: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """CN-normalised participants, who is a patient, and the patients' severities."""
    rng = np.random.default_rng(seed)
    n_cn, n_pt = SIZES.get(task, (492, 900))
    healthy = sample_controls(n_cn + n_pt, rng)
    volumes = healthy.volumes.to_numpy(copy=True)
    true = severities(task, n_pt, rng)
    z = (volumes[n_cn:] - volumes[:n_cn].mean(axis=0)) / volumes[:n_cn].std(axis=0)
    age = healthy.people['age'].to_numpy(dtype=float)[n_cn:]
    effect = EFFECTS.get(task, np.asarray)(true)
    if task == 'interaction':
        effect = effect * (0.5 + true[:, [1, 2, 0]])
    for k, columns in enumerate(regions(task)):
        loss = LOSS * effect[:, [k]] * rng.normal(1, NOISE, size=(n_pt, len(columns)))
        if task == 'own volume':
            loss *= np.clip(1 + 0.5 * z[:, columns], 0.1, 2.0)
        if task == 'age':
            loss *= np.clip(1 + 0.5 * (age - age.mean()) / age.std(), 0.1, 2.0)[:, None]
        volumes[n_cn:, columns] *= 1 - loss
    patient = np.repeat([False, True], [n_cn, n_pt])
    return CNNormaliser().fit(volumes, ~patient).transform(volumes), patient, true


def compare(task: str, seed: int, factors_only: bool) -> dict[str, object]:
    """One row of the table."""
    X, patient, true = simulate(task, seed)
    cn, pt = X[~patient], X[patient]
    ridge = RidgeCV(np.logspace(-3, 3, 25))
    row: dict[str, object] = {
        'task': task,
        'seed': seed,
        'factors': pattern_c_index(fit_factors(cn, pt, N_PATTERNS).severities(pt), true),
        'supervised': pattern_c_index(cross_val_predict(ridge, 10 * (pt - 1), true, cv=5), true),
    }
    if not factors_only:
        begin = time.perf_counter()
        gan = SurrealGAN(N_PATTERNS).fit(X, patient)
        row['surreal_gan'] = pattern_c_index(gan.transform(pt), true)
        row['members'] = len(gan.members_)
        row['seconds'] = time.perf_counter() - begin
    print(row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seeds', type=int, nargs='+', default=[31, 32, 33])
    parser.add_argument('--tasks', nargs='+', choices=TASKS, default=list(TASKS))
    parser.add_argument('--factors-only', action='store_true')
    arguments = parser.parse_args()
    rows = [
        compare(task, seed, arguments.factors_only)
        for task in arguments.tasks
        for seed in arguments.seeds
    ]
    write_results('beyond', rows, 'torch', 'numpy')


if __name__ == '__main__':
    main()
