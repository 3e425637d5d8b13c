"""Time, memory and time to a given accuracy, compared with the authors' program in one run.

Both programs train on the same participants (task basic: 139 regions, M = 3, 492 + 900, batch of
112) with the same number of threads. The authors' program trains one model at a time: one of its
iterations is one iteration of one member.

1. Milliseconds per iteration and member. The programs alternate, and ratios are computed within
   rounds, because the load of the machine may change.
2. Peak memory of a process with 50 members.
3. With `--reach 0.75`: time until the mean pattern-c-index of the members reaches this value. The
   accuracy is computed every 500 iterations; only training is timed.

    pip install --no-deps SurrealGAN==0.1.1
    python benchmarks/speed.py --threads 2 --reach 0.75
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from machine import write_results

sys.path.insert(0, str(Path(__file__).parent))
from reproduction.people import simulate_people

from surreal_bids.model.networks import hyperparameters
from surreal_bids.model.training import BLOCK, Stack, Steps, members_r_indices
from surreal_bids.parallel import find_device
from surreal_bids.stats.concordance import pattern_c_index

N_PATTERNS, N_CN, N_PT, BATCH, ORTHO = 3, 492, 900, 112, 0.2
CHECK_EVERY = 500
"""Iterations between two looks at the truth."""


class People:
    """CN-normalised participants of the task basic, and the true severities of the patients."""

    def __init__(self) -> None:
        people = simulate_people('basic', N_CN, N_PT, 0, None)
        values = torch.tensor(people.normalised(), dtype=torch.float32)
        patient = torch.from_numpy(people.is_patient)
        self.cn, self.pt = values[~patient], values[patient]
        self.severities = people.severities[people.is_patient]


class Program(Protocol):
    """Interface of both programs."""

    name: str
    n_members: int

    def train(self, n_iterations: int) -> None: ...

    def accuracy(self) -> float: ...


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

    def accuracy(self) -> float:
        weights = {name: value.cpu() for name, value in self._stack.weights_now().items()}
        r_ENM = members_r_indices(weights, self._people.pt)
        return float(np.mean([pattern_c_index(r, self._people.severities) for r in r_ENM]))


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

    def accuracy(self) -> float:
        return pattern_c_index(
            self._model.predict_rindices(self._people.pt), self._people.severities
        )


def seconds_to_train(program: Program, n_iterations: int) -> float:
    start = time.perf_counter()
    program.train(n_iterations)
    return time.perf_counter() - start


def compare_iterations(ours: Program, theirs: Program, n_rounds: int) -> list[dict[str, Any]]:
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


def time_to_reach(program: Program, goal: float, longest: int) -> dict[str, Any]:
    """Measure seconds of training until the accuracy is reached, or the accuracy at the limit."""
    seconds = iterations = 0
    accuracy = 0.0
    while accuracy < goal and iterations < longest:
        seconds += seconds_to_train(program, CHECK_EVERY)
        iterations += CHECK_EVERY
        accuracy = program.accuracy()
        print(f'{program.name}: {iterations} iterations, {seconds:.0f} s, {accuracy:.3f}')
    return {
        'program': program.name, 'members': program.n_members, 'goal': goal,
        'reached': accuracy >= goal, 'accuracy': accuracy, 'iterations': iterations,
        'seconds': seconds,
    }  # fmt: skip


def peak_memory(n_members: int) -> float:
    """Measure peak memory (GB) of a process that trains this many members for two blocks."""
    done = subprocess.run(
        [sys.executable, __file__, '--memory-of', str(n_members)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--members', type=int, default=10)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--device', default='cpu', help='of our program; theirs knows the CPU only')
    parser.add_argument('--reach', type=float, metavar='C_INDEX', help='time the way there, too')
    parser.add_argument('--longest', type=int, default=20_000, help='iterations to wait for it')
    parser.add_argument('--memory-of', type=int, help=argparse.SUPPRESS)
    return parser


def main() -> None:
    arguments = make_parser().parse_args()
    torch.set_num_threads(arguments.threads)
    device, people = torch.device(find_device(arguments.device)), People()
    if arguments.memory_of:
        Ours(people, 'iclr2022', arguments.memory_of, device).train(2 * BLOCK)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
        return

    packages = ('torch', 'numpy', 'SurrealGAN')
    common = {'device': str(device), 'threads': arguments.threads}
    ours = Ours(people, 'iclr2022', arguments.members, device)
    rows = compare_iterations(ours, Authors(people), arguments.rounds)
    median = statistics.median(row['ratio'] for row in rows)
    print(f"median ratio {median:.3f}: {1 / median:.1f} times faster than the authors' program")
    rows.append({'members': 50, 'peak_memory_gb': peak_memory(50)})
    write_results('speed', [common | row for row in rows], *packages)
    if arguments.reach:
        programs = [
            Ours(people, 'iclr2022', arguments.members, device),
            Authors(people),
        ]
        reached = [time_to_reach(p, arguments.reach, arguments.longest) for p in programs]
        write_results('time_to_accuracy', [common | row for row in reached], *packages)


if __name__ == '__main__':
    main()
