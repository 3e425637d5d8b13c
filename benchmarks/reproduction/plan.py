"""Size and length of the experiments, and the units of work that each needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from baselines import BASELINES

from surreal_bids.model.networks import PAPER_ORTHO, HyperParameters, hyperparameters

EXPERIMENTS = ('table1', 'fig2', 'table7', 'table6', 'robustness', 'split_half')
ROBUSTNESS_TASKS = ('basic', 'mild')
"""The easy and the hard task, on which B.2 and B.3 try other hyper-parameters."""
N_PATTERNS = 3
HYPER_PARAMETERS = ('gamma', 'kappa', 'zeta', 'mu', 'eta')
"""What B.2 varies from 50 to 150 %."""
REMOVED_TERMS = {
    'no-decomposition': ('kappa',),
    'no-orthogonality': ('ortho',),
    'no-monotonicity': ('mu',),
    'no-cn': ('eta',),
    'no-monotonicity-no-cn': ('mu', 'eta'),
    'pseudo-smile-gan': ('kappa', 'ortho', 'mu', 'eta'),
}
"""What B.3 removes. It calls the weight of the cn loss zeta; in section 2.3 that is eta."""
UNCHANGED = 'as-preset'


@dataclass(frozen=True)
class Schedule:
    """Members trained at once: number per lambda, and iterations."""

    ortho: tuple[float, ...]
    repetitions: int
    iterations: int


@dataclass(frozen=True)
class Plan:
    """Settings that distinguish a quick run from a full one."""

    label: str
    n_cn: int
    n_pt: int
    all_people: Schedule
    """Table 1 and Fig. 2."""
    folds: Schedule
    """Table 6, in each fold."""
    halves: Schedule
    """B.7, in each half."""
    variants: Schedule
    """B.2 and B.3; its lambda is not used, since that chosen in Table 1 is."""
    factors: tuple[float, ...]
    """By which B.2 multiplies a hyper-parameter."""
    n_components: tuple[int, ...]
    """Numbers of components of Table 7; the first is that of Table 1."""
    baseline_seeds: int
    n_folds: int
    changes: dict[str, float] = field(default_factory=dict)
    """Hyper-parameters that differ from the preset's."""

    def describe(self, experiment: str) -> str:
        """One line that goes with every table and figure of an experiment."""
        schedules = {
            'table6': self.folds,
            'split_half': self.halves,
            'robustness': self.variants,
        }
        own = schedules.get(experiment, self.all_people)
        lambdas = f'{len(own.ortho)} lambdas' if len(own.ortho) > 1 else '1 lambda'
        text = (
            f'{self.label}: {self.n_cn} + {self.n_pt} people, {lambdas} x '
            f'{own.repetitions} members x {own.iterations} iterations'
        )
        return text if self.label == 'full' else f'{text}; not comparable with the paper'


ROBUST = {
    'lr': 8e-4,
    'adversarial': 0.25,
    'discriminator_scale': 10.0,
    'discriminator_noise': 1.0,
    'decay_from': 0.5,
    'core_members': 3,
}
"""Changes to `iclr2022` that were found to train better from random weights."""


def preset_values(preset: str, **changes: float) -> HyperParameters:
    """Hyper-parameters of `iclr2022` or `robust`, with some of them changed."""
    own = ROBUST if preset == 'robust' else {}
    return hyperparameters('iclr2022', **own | changes)


FULL_ITERATIONS = {'robust': 18_000, 'iclr2022': 100_000}
"""Iterations of the full setting by preset."""

QUICK_LEARNING_RATE = 2e-3
"""Higher than any preset's: short training is better for it (section 3.3 says so too)."""


def full_plan(preset: str) -> Plan:
    """The paper's numbers of people, members and lambdas."""
    iterations = FULL_ITERATIONS[preset]
    grid = Schedule(PAPER_ORTHO, 10, iterations)
    return Plan(
        label='full',
        n_cn=492,
        n_pt=900,
        all_people=grid,
        folds=grid,
        halves=grid,
        variants=Schedule((), 10, iterations),
        factors=(0.5, 0.75, 1.25, 1.5),
        n_components=tuple(range(N_PATTERNS, 11)),
        baseline_seeds=3,
        n_folds=5,
    )


def quick_plan() -> Plan:
    """Every table and panel in minutes on two cores: few people, iterations, members and folds."""
    return Plan(
        label='quick',
        n_cn=200,
        n_pt=320,
        all_people=Schedule((0.2, 0.6), 3, 2000),
        folds=Schedule((0.4,), 2, 600),
        halves=Schedule((0.4,), 2, 400),
        variants=Schedule((), 2, 200),
        factors=(0.5, 1.5),
        n_components=(N_PATTERNS, 6, 10),
        baseline_seeds=1,
        n_folds=2,
        changes={'lr': QUICK_LEARNING_RATE, 'extra_iterations': 0.0},
    )


@dataclass(frozen=True)
class Unit:
    """A piece of work whose result is kept as one file: its kind, its task and its part."""

    kind: str
    task: str
    what: tuple[str | int, ...] = ()

    @property
    def name(self) -> str:
        """Name of its file."""
        return '_'.join(map(str, (self.kind, self.task, *self.what)))

    @property
    def trains(self) -> bool:
        """Whether it trains Surreal-GAN, which a GPU is for."""
        return self.kind != 'baseline'

    @property
    def stage(self) -> int:
        """Units of a later stage may read the results of an earlier one."""
        return 1 if self.kind == 'variant' else 0


def variants(factors: Iterable[float]) -> dict[str, dict[str, float]]:
    """Factors of hyper-parameters by the name of the variant (B.2 and B.3)."""
    scaled = {
        f'{name}-{factor:g}': {name: factor} for name in HYPER_PARAMETERS for factor in factors
    }
    removed = {name: dict.fromkeys(terms, 0.0) for name, terms in REMOVED_TERMS.items()}
    return {UNCHANGED: {}, **scaled, **removed}


def robustness_tasks(tasks: Iterable[str]) -> list[str]:
    """The tasks of B.2 among these; all of these where none is."""
    tasks = list(tasks)
    return [task for task in ROBUSTNESS_TASKS if task in tasks] or tasks


def units_of(experiment: str, task: str, plan: Plan) -> list[Unit]:
    """The units that an experiment needs for one task, in the order in which they can run."""
    if experiment == 'table6':
        return [Unit('fold', task, (k,)) for k in range(plan.n_folds)]
    if experiment == 'split_half':
        return [Unit('half', task, (k,)) for k in range(2)]
    members = [Unit('members', task)]
    if experiment == 'fig2':
        return members
    if experiment == 'robustness':
        return members + [Unit('variant', task, (name,)) for name in variants(plan.factors)]
    components = plan.n_components if experiment == 'table7' else plan.n_components[:1]
    return members + [Unit('baseline', task, (m, n)) for m in BASELINES for n in components]


def units(experiments: Iterable[str], tasks: Iterable[str], plan: Plan) -> list[Unit]:
    """Every unit of these experiments, once, stage by stage."""
    wanted = [
        unit
        for experiment in experiments
        for task in (robustness_tasks(tasks) if experiment == 'robustness' else tasks)
        for unit in units_of(experiment, task, plan)
    ]
    return sorted(dict.fromkeys(wanted), key=lambda unit: unit.stage)
