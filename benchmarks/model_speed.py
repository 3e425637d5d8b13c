"""Time and memory of a training iteration, beside the authors' program, in one run.

Both train on the same data (139 regions, M = 3, batch of 112) with the same number of threads. The
programs take turns, so that load on the machine does not favour one; ratios are taken within a
round. The authors' program trains one model at a time, so an iteration of it is one member's.

    pip install --no-deps SurrealGAN==0.1.1
    python benchmarks/model_speed.py --threads 2
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from machine import write_results

from surreal_bids.model.ensemble import Stack
from surreal_bids.model.estimator import find_device
from surreal_bids.model.settings import hyperparameters
from surreal_bids.model.steps import BLOCK, Steps

N_REGIONS, N_PATTERNS, N_CN, N_PT, BATCH = 139, 3, 492, 900, 112


def sample(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(0)
    cn = 1 + 0.1 * rng.standard_normal((N_CN, N_REGIONS))
    pt = 0.95 + 0.1 * rng.standard_normal((N_PT, N_REGIONS))
    return tuple(torch.from_numpy(values).float().to(device) for values in (cn, pt))


def our_iterations(n_members: int, device: torch.device) -> Callable[[int], float]:
    """A function that trains for some blocks; seconds per member and iteration."""
    stack = Stack(N_REGIONS, N_PATTERNS, [0.2] * n_members, hyperparameters('iclr2022'), 0, device)
    steps = Steps(stack, *sample(device), BATCH)

    def run(n_blocks: int) -> float:
        start = time.perf_counter()
        for block in range(n_blocks):
            losses = steps.run(range(block * BLOCK, (block + 1) * BLOCK))
        losses.cpu()
        return (time.perf_counter() - start) / (n_blocks * BLOCK * n_members)

    return run


def their_iterations() -> Callable[[int], float]:
    """The same for the authors' program (its default settings of the paper)."""
    from SurrealGAN.model import SurrealGAN, dotdict

    settings = {
        'nROI': N_REGIONS, 'npattern': N_PATTERNS, 'lam': 0.2, 'zeta': 80, 'kappa': 80,
        'gamma': 6, 'mu': 500, 'eta': 6, 'lipschitz_k': 0.5, 'beta1': 0.5, 'lr': 2e-4,
        'max_gnorm': 100,
    }  # fmt: skip
    model = SurrealGAN()
    model.create(dotdict(settings))
    cn, pt = sample(torch.device('cpu'))

    def run(n_blocks: int) -> float:
        start = time.perf_counter()
        for iteration in range(n_blocks * BLOCK):
            first = iteration * BATCH % (N_CN - BATCH)
            model.train_instance(cn[first : first + BATCH], pt[first : first + BATCH], 0.02)
        return (time.perf_counter() - start) / (n_blocks * BLOCK)

    return run


def peak_memory(n_members: int) -> float:
    """Peak resident memory in GB of a process that trains this many members for two blocks."""
    done = subprocess.run(
        [sys.executable, __file__, '--memory-of', str(n_members)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--members', type=int, default=10)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--device', default='cpu')
    parser.add_argument('--memory-of', type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    device = find_device(arguments.device)
    if arguments.memory_of:
        our_iterations(arguments.memory_of, device)(2)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
        return

    ours, theirs = our_iterations(arguments.members, device), their_iterations()
    ours(1), theirs(1)
    rounds = [(ours(1), theirs(2)) for _ in range(arguments.rounds)]
    common = {'device': str(device), 'threads': arguments.threads}
    rows = [
        {
            **common,
            'round': number,
            'members': arguments.members,
            'ours_ms': 1e3 * mine,
            'authors_ms': 1e3 * other,
            'ratio': mine / other,
        }
        for number, (mine, other) in enumerate(rounds, start=1)
    ]
    median = statistics.median(row['ratio'] for row in rows)
    print(f"median ratio {median:.3f}: {1 / median:.1f} times faster than the authors' program")
    rows.append({**common, 'members': 50, 'peak_memory_gb': peak_memory(50)})
    write_results('model_speed', rows, 'torch', 'numpy', 'SurrealGAN')


if __name__ == '__main__':
    main()
