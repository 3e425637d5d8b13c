"""Participants, training and units of the paper's experiments.

Accuracy is the pattern-c-index between R-indices and true severities of patients (section 4.2). A
unit is a piece of work whose result is kept as one file: it is never run again, and an interrupted
run resumes.

Shapes: E members, N people, S regions, M patterns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from baselines import BASELINES
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.files import write_json
from surreal_bids.harmonization.covariates import CNNormaliser
from surreal_bids.model.agreement import (
    Selection,
    Setting,
    choose_setting,
    form_consensus,
    make_setting,
)
from surreal_bids.model.networks import (
    BATCHES_PER_EPOCH,
    PAPER_ORTHO,
    HyperParameters,
    hyperparameters,
)
from surreal_bids.model.training import Sample, Stack, Training, members_by_ortho, members_r_indices
from surreal_bids.parallel import find_device
from surreal_bids.simulation.tables import SEVERITY_COLUMNS, Controls, simulate_table
from surreal_bids.stats.concordance import pattern_c_index

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
Result = dict[str, Any]
N_PATTERNS = 3
HELD_OUT = 5
"""One person in so many is in neither half."""
DECIMALS = 6
"""R-indices are kept to so many."""
GAN, GAN_CONSENSUS = 'Surreal-GAN', 'Surreal-GAN, consensus'
"""All members of the chosen lambda, and their consensus."""
REGRESSIONS = {
    'LR': LinearRegression(),
    'SVR': make_pipeline(StandardScaler(), MultiOutputRegressor(SVR(kernel='rbf'))),
}
"""The supervised methods of B.6, which are told the severities of the training patients."""


class People(NamedTuple):
    """Controls and pseudo-patients of a task, row by row."""

    volumes: Floats
    """(N, S), mm3."""
    is_patient: NDArray[np.bool_]
    severities: Floats
    """(N, M), zero in controls."""

    def normalised(self, rows: Rows | slice = slice(None)) -> Floats:
        """All people, (N, S), scaled by the controls among these rows only."""
        volumes = pd.DataFrame(self.volumes)
        normaliser = CNNormaliser().fit(volumes.iloc[rows], ~self.is_patient[rows])
        return normaliser.transform(volumes.set_axis(normaliser.features_, axis=1)).to_numpy()

    def patients(self, rows: Rows) -> Rows:
        """Those of the rows that are patients."""
        return rows[self.is_patient[rows]]


def simulate_people(
    task: str, n_cn: int, n_pt: int, seed: int, controls: Controls | None
) -> People:
    """The people of a task; a table too small to give each person once is resampled."""
    resample = None
    if controls is not None and len(controls.volumes) < n_cn + n_pt:
        resample = 'gaussian'
    table = simulate_table(task, n_cn, n_pt, seed, controls, resample)
    return People(
        table.volumes.drop(columns='participant_id').to_numpy(copy=True),
        (table.participants['diagnosis'] == 'PT').to_numpy(copy=True),
        table.severities[SEVERITY_COLUMNS].to_numpy(),
    )


def split_folds(is_patient: NDArray[np.bool_], n_folds: int, seed: int) -> list[tuple[Rows, Rows]]:
    """Training and test rows of each fold; everyone is in one test set, both groups in each."""
    splitter = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    return list(splitter.split(is_patient, is_patient))


def split_halves(is_patient: NDArray[np.bool_], seed: int) -> tuple[Rows, Rows, Rows]:
    """Two halves to train on and, in neither of them, a fifth of the people to compare on."""
    rest, held_out = split_folds(is_patient, HELD_OUT, seed)[0]
    first, second = train_test_split(
        rest, test_size=0.5, stratify=is_patient[rest], random_state=seed
    )
    return first, second, held_out


ROBUSTNESS_TASKS = ('basic', 'mild')
"""The easy and the hard task, on which B.2 and B.3 try other hyper-parameters."""
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


def variants(factors: Iterable[float]) -> dict[str, dict[str, float]]:
    """Factors of hyper-parameters by the name of the variant (B.2 and B.3)."""
    scaled = {
        f'{name}-{factor:g}': {name: factor} for name in HYPER_PARAMETERS for factor in factors
    }
    removed = {name: dict.fromkeys(terms, 0.0) for name, terms in REMOVED_TERMS.items()}
    return {UNCHANGED: {}, **scaled, **removed}


@dataclass(frozen=True)
class Recipe:
    """How to train."""

    schedule: Schedule
    hyper: HyperParameters
    seed: int = 0
    device: str = 'auto'
    checkpoint: Path | None = field(default=None, compare=False)


def train(recipe: Recipe, X: Floats, is_patient: NDArray[np.bool_]) -> list[Setting]:
    """Train on CN-normalised people, (N, S); one setting with all its members for each lambda."""
    schedule, device = recipe.schedule, torch.device(find_device(recipe.device))
    ortho = [value for value in schedule.ortho for _ in range(schedule.repetitions)]
    tensor = torch.tensor(X, dtype=torch.float32, device=device)
    batch_size = max(int(is_patient.sum()) // BATCHES_PER_EPOCH, 1)
    sample = Sample(tensor[~is_patient], tensor[is_patient], batch_size)
    stack = Stack(X.shape[1], N_PATTERNS, ortho, recipe.hyper, recipe.seed, device)
    training = Training(stack, sample, schedule.iterations, recipe.checkpoint)
    weights = {name: value.cpu() for name, value in training.run().items()}
    r_ENM = members_r_indices(weights, sample.pt.cpu())
    converged = np.array(training.progress.converged)
    return [
        make_setting(
            value,
            {name: tensor[rows.tolist()] for name, tensor in weights.items()},
            r_ENM[rows],
            converged[rows].tolist(),
        )
        for value, rows in members_by_ortho(ortho).items()
    ]


@dataclass(frozen=True)
class Chosen:
    """The setting that agreement picks, and its consensus."""

    setting: Setting
    selection: Selection
    weights: dict[str, torch.Tensor]
    """Of the members of the consensus."""

    def consensus(self, X: Floats) -> Floats:
        """R-indices (N, M): the mean over the members of the consensus."""
        return members_r_indices(self.weights, _as_tensor(X)).mean(axis=0)


def choose(settings: list[Setting], hyper: HyperParameters) -> Chosen:
    """Pick lambda and form the consensus as the estimator does."""
    setting = choose_setting(settings, hyper)
    weights, selection, _ = form_consensus(setting, hyper)
    return Chosen(setting, selection, weights)


def member_accuracies(setting: Setting, X: Floats, severities: Floats) -> list[float]:
    """Pattern-c-index of every member that has not diverged, in order."""
    r_ENM = members_r_indices(setting.weights, _as_tensor(X))
    return [pattern_c_index(r_NM, severities) for r_NM in r_ENM if np.isfinite(r_NM).all()]


def _as_tensor(X: Floats) -> torch.Tensor:
    return torch.tensor(X, dtype=torch.float32)


@dataclass(frozen=True)
class Study:
    """Settings of a run, and the folder that keeps the result of every unit."""

    folder: Path
    plan: Plan
    preset: str
    seed: int
    device: str = 'auto'
    controls: Controls | None = None

    def open(self) -> None:
        """Claim the folder; one that holds results of other settings is refused."""
        path = self.folder / 'settings.json'
        own = json.loads(
            json.dumps([self.preset, self.seed, str(self.controls), asdict(self.plan)])
        )
        if path.exists() and json.loads(path.read_text(encoding='utf-8')) != own:
            raise UsageError(
                f'{self.folder} holds results of a run with other settings (settings.json); give '
                'another folder, or the options it was begun with'
            )
        write_json(path, own)

    def people(self, task: str) -> People:
        """The people of a task."""
        return simulate_people(task, self.plan.n_cn, self.plan.n_pt, self.seed, self.controls)

    def recipe(self, schedule: Schedule, name: str, **changes: float) -> Recipe:
        """How to train in this run, with some hyper-parameters changed."""
        hyper = preset_values(self.preset, **self.plan.changes | changes)
        checkpoint = self.folder / 'checkpoints' / f'{name}.safetensors'
        return Recipe(schedule, hyper, self.seed, self.device, checkpoint)

    def unit(self, work: Callable[..., Result], task: str, *what: str | int) -> Result | None:
        """Return the kept result of a unit, or run it; None if it failed."""
        name = '_'.join(map(str, (work.__name__.removeprefix('run_'), task, *what)))
        path = self.folder / 'units' / f'{name}.json'
        if not path.exists():
            try:
                result = work(self, task, *what)
            except DataError as error:
                result = {'failed': str(error)}
            write_json(path, result)
            (self.folder / 'checkpoints' / f'{name}.safetensors').unlink(missing_ok=True)
            print(name, flush=True)
        found = json.loads(path.read_text(encoding='utf-8'))
        return None if 'failed' in found else found


def run_members(study: Study, task: str) -> Result:
    """Table 1 and Fig. 2: all members of all lambdas, and the choice by agreement."""
    people = study.people(task)
    X = people.normalised()
    truth = people.severities[people.is_patient]
    recipe = study.recipe(study.plan.all_people, f'members_{task}')
    settings = train(recipe, X, people.is_patient)
    chosen = choose(settings, recipe.hyper)
    patients = X[people.is_patient]
    reference = replace_weights(chosen, slice(0, 1))
    return {
        'settings': [describe_setting(setting, patients, truth) for setting in settings],
        'ortho': chosen.selection.ortho,
        'reference': pattern_c_index(reference.consensus(patients), truth),
        'consensus': pattern_c_index(chosen.consensus(patients), truth),
        'n_used': len(chosen.selection.members),
    }


def replace_weights(chosen: Chosen, members: slice) -> Chosen:
    """The same choice with some members of the consensus only; the reference is the first."""
    return replace(chosen, weights={name: value[members] for name, value in chosen.weights.items()})


def describe_setting(setting: Setting, patients: Floats, truth: Floats) -> Result:
    """Accuracy of each member, and its mean agreement with the others, at one lambda."""
    return {
        'ortho': setting.ortho,
        'accuracies': member_accuracies(setting, patients, truth),
        'agreements': [m.agreement for m in setting.members if m.agreement is not None],
        'n_healthy': len(setting.healthy),
    }


def run_baseline(study: Study, task: str, method: str, n_components: int) -> Result:
    """Tables 1 and 7: one method with a number of components, from several seeds.

    With more components than patterns, the best triple counts. `pattern_c_index` finds it by
    one-to-one assignment of patterns to components.
    """
    people = study.people(task)
    X = people.normalised()
    truth = people.severities[people.is_patient]
    accuracies = []
    for seed in range(study.seed, study.seed + study.plan.baseline_seeds):
        model = BASELINES[method](n_components, seed).fit(X, people.is_patient)
        accuracies.append(pattern_c_index(model.transform(X[people.is_patient]), truth))
    return {'accuracies': accuracies}


def run_fold(study: Study, task: str, fold: int) -> Result:
    """Table 6: Surreal-GAN and two regressions, trained on the same fold."""
    people = study.people(task)
    train_rows, test_rows = split_folds(people.is_patient, study.plan.n_folds, study.seed)[fold]
    X = people.normalised(train_rows)
    parts = {'train': people.patients(train_rows), 'test': people.patients(test_rows)}
    recipe = study.recipe(study.plan.folds, f'fold_{task}_{fold}')
    chosen = train_and_choose(recipe, X, people, train_rows)  # Without the test set.
    members, consensus = {}, {}
    for part, rows in parts.items():
        truth = people.severities[rows]
        members[part] = float(np.mean(member_accuracies(chosen.setting, X[rows], truth)))
        consensus[part] = pattern_c_index(chosen.consensus(X[rows]), truth)
    result = {'ortho': chosen.selection.ortho, GAN: members, GAN_CONSENSUS: consensus}
    for name, regression in REGRESSIONS.items():
        regression.fit(X[parts['train']], people.severities[parts['train']])
        result[name] = {
            part: pattern_c_index(regression.predict(X[rows]), people.severities[rows])
            for part, rows in parts.items()
        }
    return result


def train_and_choose(recipe: Recipe, X: Floats, people: People, rows: Rows) -> Chosen:
    """Train on some people and choose lambda by agreement among them."""
    return choose(train(recipe, X[rows], people.is_patient[rows]), recipe.hyper)


def run_variant(study: Study, task: str, variant: str) -> Result:
    """Supplementary Fig. 1: other hyper-parameters, at the lambda chosen for the task."""
    members = study.unit(run_members, task)
    if members is None:
        raise DataError(f'no lambda is known for {task}: its members could not be trained')
    factors = variants(study.plan.factors)[variant]
    preset = preset_values(study.preset)
    changes = {
        name: getattr(preset, name) * factor for name, factor in factors.items() if name != 'ortho'
    }
    ortho = members['ortho'] * factors.get('ortho', 1.0)
    recipe = study.recipe(
        replace(study.plan.variants, ortho=(ortho,)), f'variant_{task}_{variant}', **changes
    )
    people = study.people(task)
    X = people.normalised()
    (setting,) = train(recipe, X, people.is_patient)
    return describe_setting(setting, X[people.is_patient], people.severities[people.is_patient])


def run_half(study: Study, task: str, number: int) -> Result:
    """B.7: train on one half; R-indices of patients who are in neither.

    Each half has its own seed: members that start from the same weights agree whatever they are
    trained on, especially after short training.
    """
    people = study.people(task)
    *halves, held_out = split_halves(people.is_patient, study.seed)
    rows, patients = halves[number], people.patients(held_out)
    X = people.normalised(rows)
    recipe = study.recipe(study.plan.halves, f'half_{task}_{number}')
    recipe = replace(recipe, seed=study.seed + number)
    chosen = train_and_choose(recipe, X, people, rows)
    r_indices = chosen.consensus(X[patients])
    return {
        'ortho': chosen.selection.ortho,
        'agreement': chosen.selection.agreement,
        'accuracy': pattern_c_index(r_indices, people.severities[patients]),
        'r_indices': r_indices.round(DECIMALS).tolist(),
    }
