"""Accuracy of the recovered severities: the authors' sample and the five tasks of the paper.

    python benchmarks/accuracy.py sample --folder OFFICIAL --iterations 40000
    python benchmarks/accuracy.py tasks --controls CN.csv --preset robust --iterations 18000

`OFFICIAL` holds sample_roi.csv and sample_data_ground_truth.csv of the authors' repository.
`CN.csv` holds regional volumes of healthy people, resampled to the paper's 492 + 900 people. Each
row is one fit: the lambda chosen by agreement, the consensus of its members, and each member.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from machine import write_results

from surreal_bids.harmonization.covariates import CNNormaliser
from surreal_bids.model.estimator import SurrealGAN
from surreal_bids.model.train import members_r_indices
from surreal_bids.simulation.population import read_controls
from surreal_bids.simulation.tables import TASKS, simulate_table
from surreal_bids.stats.concordance import pattern_c_index

PAPER = {'basic': 0.838, 'overlap': 0.837, 'scarce': 0.783, 'noise': 0.818, 'mild': 0.762}
"""Pattern-c-index of Surreal-GAN in Table 1."""


def score(gan: SurrealGAN, volumes: np.ndarray, is_patient: np.ndarray, truth: np.ndarray) -> dict:
    """Fit a model, and compare the R-indices of patients with their true severities."""
    X = CNNormaliser().fit(volumes, is_patient == 0).transform(volumes)
    start = time.perf_counter()
    gan.fit(X, is_patient)
    seconds = time.perf_counter() - start
    people = torch.from_numpy(X[is_patient]).float()
    members = [pattern_c_index(r, truth) for r in members_r_indices(gan.weights_, people)]
    return {
        'preset': gan.preset,
        'iterations': gan.iterations,
        'repetitions': gan.repetitions,
        'ortho': gan.selected_.ortho,
        'agreement': gan.selected_.agreement,
        'consensus': pattern_c_index(gan.transform(X[is_patient]), truth),
        'reference_member': members[0],
        'members_mean': np.mean(members),
        'members_sd': np.std(members),
        'n_used': len(members),
        'seconds': seconds,
        'device': gan.device,
    }


def run_sample(arguments: argparse.Namespace) -> list[dict]:
    """Run the authors' sample with their settings."""
    table = pd.read_csv(arguments.folder / 'sample_roi.csv')
    truth = pd.read_csv(arguments.folder / 'sample_data_ground_truth.csv')
    gan = make_gan(arguments, ortho=0.4, gamma=0.8, lr=8e-4)
    volumes = table.drop(columns=['participant_id', 'diagnosis']).to_numpy()
    row = score(gan, volumes, (table['diagnosis'] == 1).to_numpy(), truth.iloc[:, 1:].to_numpy())
    return [{'task': 'sample', **row}]


def run_tasks(arguments: argparse.Namespace) -> list[dict]:
    """Run the five tasks, each on the same resampled people."""
    controls = read_controls(arguments.controls) if arguments.controls else None
    resample = 'gaussian' if arguments.controls else None
    rows = []
    for task in arguments.tasks:
        data = simulate_table(task, seed=arguments.seed, controls=controls, resample=resample)
        is_patient = (data.participants['diagnosis'] == 'PT').to_numpy()
        volumes = data.volumes.drop(columns='participant_id', errors='ignore').to_numpy()
        truth = data.severities.drop(columns='participant_id', errors='ignore').to_numpy()
        row = score(make_gan(arguments), volumes, is_patient, truth[is_patient])
        rows.append({'task': task, 'data_seed': arguments.seed, 'paper': PAPER[task], **row})
    return rows


def make_gan(arguments: argparse.Namespace, **changes: float) -> SurrealGAN:
    """Make an estimator from the command line."""
    return SurrealGAN(
        n_patterns=3,
        repetitions=arguments.repetitions,
        preset=arguments.preset,
        iterations=arguments.iterations,
        device=arguments.device,
        hyperparameters=changes,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    sample = commands.add_parser('sample')
    sample.add_argument('--folder', type=Path, required=True)
    sample.set_defaults(run=run_sample, name='accuracy_sample')
    tasks = commands.add_parser('tasks')
    tasks.add_argument('--controls', type=Path)
    tasks.add_argument('--tasks', nargs='+', choices=TASKS, default=list(TASKS))
    tasks.add_argument('--seed', type=int, default=0)
    tasks.set_defaults(run=run_tasks, name='accuracy_tasks')
    for command in (sample, tasks):
        command.add_argument('--preset', default='iclr2022')
        command.add_argument('--iterations', type=int, default=40_000)
        command.add_argument('--repetitions', type=int, default=10)
        command.add_argument('--device', default='auto')
    arguments = parser.parse_args()
    write_results(arguments.name, arguments.run(arguments), 'torch', 'numpy')


if __name__ == '__main__':
    main()
