"""Accuracy of simulated losses, and the cost of simulating a head.

    python benchmarks/cohort.py [--voxel-size 2]

For each pattern and loss: the largest error of a region with a loss, the largest change of a
region next to one, and of any other tissue region; then CPU seconds and peak memory per head.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from surreal_bids.simulation.anatomy import (
    PATTERNS,
    AtrophySolver,
    adjacent_regions,
    sample_anatomy,
)
from surreal_bids.simulation.cohort import CohortPlan, Simulator, sample_person
from surreal_bids.simulation.templates import load_template

LOSSES = (0.05, 0.1, 0.2, 0.3)


def print_errors(solver: AtrophySolver) -> None:
    template = solver.template
    index = template.regions['index'].to_numpy()
    anatomy = sample_anatomy(template, 'F', np.random.default_rng(0)).displacement
    print('pattern             loss  iterations  error    neighbours  others')
    for name, indices in PATTERNS:
        chosen = np.isin(index, indices)
        beside = np.isin(index, list(adjacent_regions(template.labels, indices)))
        for loss in LOSSES:
            atrophy = solver.solve(anatomy, np.where(chosen, loss, 0.0))
            error = np.abs(atrophy.loss - np.where(chosen, loss, 0.0))
            rest = solver.controlled & ~chosen
            print(
                f'{name:<20}{loss:<6}{atrophy.iterations:<12}{error[chosen].max():<9.5f}'
                f'{error[rest & beside].max():<12.5f}{error[rest & ~beside].max():.5f}'
            )


def print_cost(simulator: Simulator, plan: CohortPlan) -> None:
    for group in ('CN', 'PT'):
        start = time.process_time()
        simulator.simulate(plan, sample_person(plan, group, 0))
        print(f'{group}: {time.process_time() - start:.1f} s of one core')
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f'peak memory {peak:.2f} GB')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--voxel-size', type=float, default=2.0)
    voxel_size = parser.parse_args().voxel_size
    simulator = Simulator(load_template(voxel_size))
    print_cost(simulator, CohortPlan(voxel_size=voxel_size))
    print_errors(simulator.solver)


if __name__ == '__main__':
    main()
