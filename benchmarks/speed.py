"""Time per iteration, compared with the authors' program in one run.

Both programs train on the same participants (task basic: 139 regions, M = 3, 492 + 900, batch of
112) with the same number of threads. The authors' program trains one model at a time: one of its
iterations is one iteration of one member.

Milliseconds per iteration and member. The programs alternate, and ratios are computed within
rounds, because the load of the machine may change.

    pip install --no-deps SurrealGAN==0.1.1
    python benchmarks/speed.py --threads 2
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import write_results

sys.path.insert(0, str(Path(__file__).parent))
from reproduction.experiments import simulate_people

from surreal_bids.model.networks import hyperparameters
from surreal_bids.model.training import BLOCK, Stack, Steps
from surreal_bids.parallel import find_device

N_PATTERNS, N_CN, N_PT, BATCH, ORTHO = 3, 492, 900, 112, 0.2


class People:
    """CN-normalised participants of the task basic."""

    def __init__(self) -> None:
        people = simulate_people('basic', N_CN, N_PT, 0, None)
        values = torch.tensor(people.normalised(), dtype=torch.float32)
        patient = torch.from_numpy(people.is_patient)
        self.cn, self.pt = values[~patient], values[patient]


class Ours:
    """A stack of members."""

    def __init__(self, people: People, preset: str, n_members: int, device: torch.device) -> None:
        self.name = f'ours, {preset}'
        self.n_members = n_members
        self._people, self._done = people, 0
        n_regions = people.cn.shape[1]
        hyper = hyperparameters(preset)
        self._stack = Stack(n_regions, N_PATTERNS, [ORTHO] * n_members, hyper, 0, device)
        self._steps = Steps(self._stack, people.cn.to(device), people.pt.to(device), BATCH)

    def train(self, n_iterations: int) -> None:
        for start in range(self._done, self._done + n_iterations, BLOCK):
            losses = self._steps.run(range(start, start + BLOCK))
        losses.cpu()
        self._done += n_iterations


class Authors:
    """The authors' program, with the settings of the paper."""

    name, n_members = 'authors', 1

    def __init__(self, people: People, seed: int = 0) -> None:
        from SurrealGAN.model import SurrealGAN, dotdict

        torch.manual_seed(seed)
        self._people = people
        self._random = np.random.default_rng(seed)
        self._model = SurrealGAN()
        settings = {
            'nROI': people.cn.shape[1], 'npattern': N_PATTERNS, 'lam': ORTHO, 'zeta': 80,
            'kappa': 80, 'gamma': 6, 'mu': 500, 'eta': 6, 'lipschitz_k': 0.5, 'beta1': 0.5,
            'lr': 2e-4, 'max_gnorm': 100,
        }  # fmt: skip
        self._model.create(dotdict(settings))

    def train(self, n_iterations: int) -> None:
        for _ in range(n_iterations):
            cn = self._people.cn[self._random.choice(N_CN, BATCH, replace=False)]
            pt = self._people.pt[self._random.choice(N_PT, BATCH, replace=False)]
            self._model.train_instance(cn, pt, 0.02)


def seconds_to_train(program: Ours | Authors, n_iterations: int) -> float:
    start = time.perf_counter()
    program.train(n_iterations)
    return time.perf_counter() - start


def compare_iterations(
    ours: Ours | Authors, theirs: Ours | Authors, n_rounds: int
) -> list[dict[str, Any]]:
    """Measure milliseconds per member and iteration, alternating programs."""
    ours.train(BLOCK), theirs.train(BLOCK)
    rows = []
    for number in range(1, n_rounds + 1):
        mine = 1e3 * seconds_to_train(ours, BLOCK) / (BLOCK * ours.n_members)
        other = 1e3 * seconds_to_train(theirs, 2 * BLOCK) / (2 * BLOCK)
        rows.append(
            {'round': number, 'members': ours.n_members, 'ours_ms': mine, 'authors_ms': other,
             'ratio': mine / other}
        )  # fmt: skip
    return rows


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--members', type=int, default=10)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--device', default='cpu', help='of our program; theirs knows the CPU only')
    return parser


def main() -> None:
    arguments = make_parser().parse_args()
    torch.set_num_threads(arguments.threads)
    device, people = torch.device(find_device(arguments.device)), People()
    packages = ('torch', 'numpy', 'SurrealGAN')
    common = {'device': str(device), 'threads': arguments.threads}
    ours = Ours(people, 'iclr2022', arguments.members, device)
    rows = compare_iterations(ours, Authors(people), arguments.rounds)
    median = statistics.median(row['ratio'] for row in rows)
    print(f"median ratio {median:.3f}: {1 / median:.1f} times faster than the authors' program")
    write_results('speed', [common | row for row in rows], *packages)


if __name__ == '__main__':
    main()
