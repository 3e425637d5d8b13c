"""Tasks beyond the paper's five: linear factors, Surreal-GAN and supervised regression.

    python benchmarks/beyond.py --seeds 31 32 33 [--tasks threshold dense]
    python benchmarks/beyond.py --seeds 300 301 302 --tasks 'diseases 150 + 250' [--controls TABLE]

Tasks called diseases have 2 to 4 patterns (2 + seed % 3) with graded losses in 40 % of the regions,
which regions that vary together share, severities correlated at 0.4, and a tenth of the controls in
an early stage. People are sampled from the built-in population or from that of a table of controls.
In the other tasks, regions are those of `basic`. Each row is one task and one sample of
participants: the c-index of the linear factors, of the default Surreal-GAN with M = 3, and of ridge
regression that is given the true severities of four fifths of the patients and predicts those of
the others.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from default_fit import SIZES, normalise
from machine import write_results
from scipy.stats import beta, norm
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import cross_val_predict

from surreal_bids.model.estimator import SurrealGAN
from surreal_bids.model.factors import fit_factors
from surreal_bids.regions import muse_indices
from surreal_bids.simulation.tables import TASKS as PAPER_TASKS
from surreal_bids.simulation.tables import (
    Controls,
    read_controls,
    resample_gaussian,
    sample_controls,
)
from surreal_bids.stats.concordance import pattern_c_index

N_PATTERNS, LOSS, NOISE = 3, 0.3, 0.05
EFFECTS = {
    'threshold': lambda s: np.maximum(2 * s - 1, 0),
    'quadratic': np.square,
    'saturating': lambda s: 1 - np.exp(-4 * s),
}
OTHER = ('linear', 'skewed', 'correlated', 'own volume', 'age', 'interaction', 'dense', 'shared')
DISEASES = {
    f'diseases {n_cn} + {n_pt}': (n_cn, n_pt) for n_cn, n_pt in ((492, 900), (150, 250), (90, 130))
}
TASKS = (*OTHER, *EFFECTS, *SIZES, *DISEASES)


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
    return normalise(volumes, patient), patient, true


def simulate_disease(
    task: str, seed: int, controls: Controls | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As `simulate`, with dense, overlapping patterns of correlated severities."""
    rng, n_patterns = np.random.default_rng(seed), 2 + seed % 3
    n_cn, n_pt = DISEASES[task]
    n_all = n_cn + n_pt
    people = (
        sample_controls(n_all, rng) if controls is None else resample_gaussian(controls, n_all, rng)
    )
    volumes = people.volumes.to_numpy(copy=True)
    patient = np.repeat([False, True], [n_cn, n_pt])
    covariance = 0.6 * np.eye(n_patterns) + 0.4
    true = norm.cdf(rng.multivariate_normal(np.zeros(n_patterns), covariance, size=n_all))
    early = rng.random(n_all) < 0.1
    expressed = true * np.where(patient, 1.0, 0.35 * early)[:, None]
    anatomy = np.corrcoef(np.log(volumes[:n_cn]).T) + 1e-6 * np.eye(volumes.shape[1])
    weights = rng.multivariate_normal(np.zeros(len(anatomy)), anatomy, size=n_patterns)
    weights = np.clip(weights - np.quantile(weights, 0.6, axis=1, keepdims=True), 0, None)
    losses = np.clip(LOSS * weights / np.quantile(weights, 0.98, axis=1, keepdims=True), 0, 0.35)
    for severity, loss in zip(expressed.T, losses):
        volumes *= 1 - severity[:, None] * loss * rng.normal(1, 2 * NOISE, volumes.shape)
    return normalise(volumes, patient), patient, true[patient]


def compare(task: str, seed: int, controls: Controls | None) -> dict[str, object]:
    """One row of the table."""
    if task in DISEASES:
        X, patient, true = simulate_disease(task, seed, controls)
    else:
        X, patient, true = simulate(task, seed)
    n_patterns = true.shape[1]
    cn, pt = X[~patient], X[patient]
    ridge = RidgeCV(np.logspace(-3, 3, 25))
    row: dict[str, object] = {
        'task': task,
        'seed': seed,
        'patterns': n_patterns,
        'factors': pattern_c_index(fit_factors(cn, pt, n_patterns).severities(pt), true),
        'supervised': pattern_c_index(cross_val_predict(ridge, 10 * (pt - 1), true, cv=5), true),
    }
    begin = time.perf_counter()
    gan = SurrealGAN(n_patterns).fit(X, patient, assess_number=False)
    row['surreal_gan'] = pattern_c_index(gan.transform(pt), true)
    row['members'] = len(gan.members_)
    row['seconds'] = time.perf_counter() - begin
    print(row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seeds', type=int, nargs='+', default=[31, 32, 33])
    parser.add_argument('--tasks', nargs='+', choices=TASKS, default=list(TASKS))
    parser.add_argument('--controls', type=read_controls, help='table of healthy participants')
    arguments = parser.parse_args()
    rows = [
        compare(task, seed, arguments.controls)
        for task in arguments.tasks
        for seed in arguments.seeds
    ]
    write_results('beyond', rows, 'torch', 'numpy')


if __name__ == '__main__':
    main()
