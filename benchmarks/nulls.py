"""Numbers of the report under a null, or with a known truth.

    python benchmarks/nulls.py [NAME ...] [--full]

Each null simulates participants of the built-in healthy population, runs the package, and compares
a number with its expected value. `--full` repeats each at least 20 times and writes the table to
`benchmarks/results`. Without it, a few small draws show that everything runs and that nothing is
far off, as in the tests. docs/validation.md has the results.

To add a null, write a function of a seed that returns the named numbers of one draw, and list it in
`NULLS` with the limits of each number. A number that a draw lacks (no test was made) is NaN. Unless
stated, models are linear factors in closed form, from which members start (`fit_linear`).
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pandas as pd
from machine import RESULTS, circumstances, one_thread
from planning import SITE_SHIFT
from scipy import stats
from tqdm import tqdm

from surreal_bids.analysis.engine import Analysis
from surreal_bids.analysis.maps import FDR_LEVEL, make_contrasts
from surreal_bids.analysis.statistics import SUM_OF_INDICES, associate, compare_groups, separate
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.config import TrainingOptions
from surreal_bids.files import write_tsv
from surreal_bids.model.factors import Factors, fit_factors, fit_known
from surreal_bids.model.number import CANDIDATES, Number, choose_number
from surreal_bids.rindices.crossfit import CrossFit, cross_fit, prepare_folds
from surreal_bids.rindices.model import TrainingData, prepare
from surreal_bids.simulation.tables import (
    TASKS,
    built_in_population,
    impose_atrophy,
    sample_controls,
    sample_severities,
    volume_columns,
)
from surreal_bids.stats.concordance import area_under_curve, match_patterns, pattern_c_index
from surreal_bids.stats.linear import regress

Draw = Callable[[int], dict[str, float]]
Limits = Mapping[str, tuple[float, float]]


ANY = (-np.inf, np.inf)
"""Limits of a number that is only shown."""

TOLERATED_ERRORS = 3.0
"""A quick run may miss its limits by so many standard errors of the mean over its draws."""


@dataclass(frozen=True)
class Study:
    """Participants of a simulated study.

    Attributes
    ----------
    n_cn, n_pt
        Controls and patients of each site.
    sites
        Number of scanners.
    years_older
        Age difference between patients and controls.
    task
        Atrophy of patients (a task of the paper's section 4.2); None: there is no disease.
    """

    n_cn: int
    n_pt: int
    sites: int = 1
    years_older: float = 0.0
    task: str | None = None


class Simulated(NamedTuple):
    """A cohort, read as from a user's tables, and the severities (N, M) of all its participants."""

    cohort: Cohort
    severities: np.ndarray


def simulate(study: Study, seed: int, **options: object) -> Simulated:
    """Simulate a study; `options` are those of :meth:`Cohort.read`."""
    rng = np.random.default_rng(seed)
    of_site = study.n_cn + study.n_pt
    n = study.sites * of_site
    site, is_patient = np.arange(n) // of_site, np.arange(n) % of_site >= study.n_cn
    healthy, people = _healthy(study, is_patient, rng)
    shift = rng.normal(0, SITE_SHIFT, (study.sites, healthy.shape[1]))
    volumes = healthy * np.exp(shift[site] if study.sites > 1 else 0)
    severities = np.zeros((n, 3))
    if study.task:
        severities[is_patient] = sample_severities(int(is_patient.sum()), rng)
        volumes = impose_atrophy(volumes, severities, TASKS[study.task], rng)
    groups = np.where(is_patient, 'PT', 'CN')
    people = people.assign(site=[f'site{k}' for k in site], diagnosis=groups)
    return _read(pd.DataFrame(volumes, columns=volume_columns()), people, severities, options)


def _healthy(
    study: Study, is_patient: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, pd.DataFrame]:
    """Volumes (N, S) of healthy participants of one scanner, and their age, sex and ICV."""
    pool = sample_controls(4 * len(is_patient), rng)
    chosen = np.flatnonzero(pool.people['site'] == 'site1')[: len(is_patient)]
    older = study.years_older * is_patient
    people = pool.people.iloc[chosen].reset_index(drop=True)
    ageing = np.exp(np.outer(older / 10, built_in_population().known[0]))
    return pool.volumes.to_numpy()[chosen] * ageing, people.assign(age=people['age'] + older)


def _read(
    volumes: pd.DataFrame,
    people: pd.DataFrame,
    severities: np.ndarray,
    options: Mapping[str, object],
) -> Simulated:
    """Read a study as from a user's tables."""
    names = pd.DataFrame({'participant_id': [f'sub-{k:05}' for k in range(len(people))]})
    with tempfile.TemporaryDirectory() as folder:
        tables = {'volumes': names.join(volumes), 'people': names.join(people)}
        paths = {name: write_tsv(Path(folder) / f'{name}.tsv', t) for name, t in tables.items()}
        cohort = Cohort.read(paths['volumes'], paths['people'], **options)
    kept = [int(str(name).removeprefix('sub-')) for name in cohort.visits.index]
    return Simulated(cohort, severities[kept])


def fit_linear(
    data: TrainingData, n_patterns: int = 3, like: Factors | None = None
) -> tuple[Factors, pd.DataFrame]:
    """Factors in closed form, as members start from, and the severities that they give to all.

    They replace a model: R-indices of trained members rank patients almost equally. `like`: factors
    of all participants, from which those of a fold start.
    """
    X, is_patient = data.arrays
    values = X.to_numpy()
    groups = values[~is_patient], values[is_patient]
    if like is None:
        factors = fit_factors(*groups, n_patterns)
    else:
        factors = fit_known(*groups, like.patterns, like.penalty)
    names = [f'r{k}' for k in range(1, n_patterns + 1)]
    return factors, pd.DataFrame(factors.severities(values), X.index, names)


def share_below(p: Sequence[float], level: float = 0.05) -> float:
    """Return the share of significant p values."""
    return float(np.mean(np.asarray(p) < level))


FOLLOWS = 0.7
"""Correlation of a score with the covariate that it follows."""


def associations(
    seed: int, controls: Sequence[int] = (30, 100, 492), n_pt: int = 200, n_scores: int = 20
) -> dict[str, float]:
    """False positives of scores that have nothing to do with the disease, which is there.

    They are read and tested as those of a report: out-of-fold R-indices, covariates and all.
    """
    shares = {}
    for n_cn in controls:
        cohort, _ = simulate(Study(n_cn, n_pt, task='mild'), seed)
        rng, n = np.random.default_rng([seed, n_cn]), len(cohort)
        scores = {}
        for kind, follows in (('unrelated', None), ('age', 'age'), ('ICV', 'icv')):
            drawn = rng.normal(size=(n_scores, n))
            if follows:
                standard = stats.zscore(cohort.people[follows].to_numpy())
                drawn = FOLLOWS * standard + np.sqrt(1 - FOLLOWS**2) * drawn
            scores |= {f'{kind} score {number}': row for number, row in enumerate(drawn)}
        fitted = hold_out(cohort, seed)
        model = SimpleNamespace(pattern_names=tuple(fitted.correlation))
        scored = replace(cohort, others=cohort.others.assign(**scores))
        analysis = Analysis(cohort=scored, model=model, results=fitted.results, fitted=fitted)
        table, patients = analysis.associations, cohort.is_patient
        r = fitted.results.loc[patients, list(model.pattern_names)]
        unadjusted, _ = associate(
            scored.others.loc[patients, list(scores)], r, pd.DataFrame(index=r.index)
        )
        for name, each in (('', table), (', not adjusted', unadjusted)):
            kind = each['measure'].str.split(' score ').str[0]
            for which, p in each['p'].groupby(kind):
                shares[f'{which}, {n_cn} CN{name}'] = share_below(p)
    return shares


def limits_of_associations(controls: Sequence[int] = (30, 100, 492)) -> Limits:
    names = [f'{kind}, {n} CN' for n in controls for kind in ('unrelated', 'age', 'ICV')]
    return dict.fromkeys(names, (0.03, 0.07)) | {f'{name}, not adjusted': ANY for name in names}


def head_size(seed: int, size: tuple[int, int] = (200, 300)) -> dict[str, float]:
    """Dependence of R-indices of equal severity on head size and sex; the paper's atrophy."""
    return _of_heads(partial(simulate, Study(*size, task='basic'), seed))


def _of_heads(read: Callable[..., Simulated]) -> dict[str, float]:
    """Compare the default with the linear correction for head size."""
    found = {}
    for icv in ('power', 'covariate'):
        cohort, severities = read(icv=icv)
        patient = cohort.is_patient.to_numpy()
        truth, people = severities[patient], cohort.people[patient]
        r = fit_linear(prepare(cohort))[1].to_numpy()[patient]
        r = r[:, match_patterns(np.corrcoef(r.T, truth.T)[:3, 3:])]
        at_equal = partial(residual, design=truth)
        rest, size, men = at_equal(r), at_equal(np.log(people['icv'])), people['sex'] == 'M'
        found[icv] = {
            'correlation with head size': np.mean([np.corrcoef(x, size)[0, 1] for x in rest.T]),
            'men less women, sd': np.mean((rest[men].mean(0) - rest[~men].mean(0)) / r.std(0)),
            'c-index': pattern_c_index(r, truth),
        }
    gain = found['power']['c-index'] - found['covariate']['c-index']
    linear = {f'{name}, --icv covariate': value for name, value in found['covariate'].items()}
    return {**found['power'], **linear, 'c-index gained': gain}


def residual(values: np.ndarray | pd.Series, design: np.ndarray) -> np.ndarray:
    """Return the residuals of values (N, ...) after regression on the design and a constant."""
    values, columns = np.asarray(values), np.column_stack([np.ones(len(design)), design])
    return values - columns @ np.linalg.lstsq(columns, values, rcond=None)[0]


HEAD_SIZE = {
    'correlation with head size': (-0.05, 0.05),
    'men less women, sd': (-0.05, 0.05),
    'c-index': (0.5, 1.0),
    'c-index gained': (0.0, 1.0),
    'correlation with head size, --icv covariate': ANY,
    'men less women, sd, --icv covariate': ANY,
    'c-index, --icv covariate': ANY,
}


class LinearModel:
    """Factors in closed form that replace a `TableModel`; `like` is that of all participants."""

    def __init__(
        self, data: TrainingData, n_patterns: int = 2, like: LinearModel | None = None
    ) -> None:
        self.preprocessing = data.preprocessing
        self.factors, of_all = fit_linear(data, n_patterns, like and like.factors)
        self.pattern_names = tuple(of_all)
        self.gan = SimpleNamespace(members_=())

    def with_unseen_site(self, choice: str) -> LinearModel:
        other = copy(self)
        other.preprocessing = self.preprocessing.with_unseen_site(choice)
        return other

    def apply(self, cohort: Cohort) -> pd.DataFrame:
        prepared = self.preprocessing.transform(cohort.features, cohort.people)
        severities = self.factors.severities(prepared.normalised.to_numpy())
        r = pd.DataFrame(severities, prepared.normalised.index, list(self.pattern_names))
        return r.reindex(prepared.status.index).assign(status=prepared.status)


def hold_out(cohort: Cohort, seed: int) -> CrossFit:
    """Return out-of-fold R-indices by linear factors, and those of the final model."""
    folds = prepare_folds(cohort, TrainingOptions(random_seed=seed))
    final = LinearModel(prepare(cohort))
    models = {number: LinearModel(data, like=final) for number, data in folds.data.items()}
    fitted = cross_fit(cohort, final, folds, models)
    in_sample = final.apply(cohort)[['r1', 'r2']].add_suffix('_final')
    return replace(fitted, results=fitted.results.join(in_sample))


def name_design(study: Study) -> str:
    """Return how results call a study."""
    size = f'{study.n_cn} CN, {study.n_pt} PT'
    sites = f'{study.sites} sites of ' if study.sites > 1 else ''
    older = f' {study.years_older:g} years older' if study.years_older else ''
    return f'{sites}{size}{older}'


SITES = (Study(5, 20, sites=6), Study(3, 10, sites=10))
"""Sites of two controls, as in 10 of 2 CN and 10 PT, are refused."""
AGES = tuple(
    Study(*size, years_older=years)
    for years in (12.0, 5.0, 0.0)
    for size in ((30, 60), (40, 60), (120, 180))
)
SMALL, OLDER = Study(30, 60), Study(30, 60, years_older=12.0)
"""Studies of a quick run; patients of the second are older than almost all controls."""


def diagnosis(seed: int, designs: Sequence[Study] = (*AGES, *SITES)) -> dict[str, float]:
    """Area under the curve if nobody is ill; and whether an age difference is reported."""
    found: dict[str, float] = {}
    for study in designs:
        name, cohort = name_design(study), simulate(study, seed).cohort
        fitted = hold_out(cohort, seed)
        area = separate(cohort, fitted.results[['r1', 'r2']]).iloc[0]
        number = f'{name}, {SUM_OF_INDICES}, everyone'
        found[f'AUC, {number}'] = area['estimate']
        found[f'interval holds 0.5, {number}'] = area['low'] <= 0.5 <= area['high']
        trained_on = fitted.results[['r1_final', 'r2_final']].sum(axis=1)
        area = area_under_curve(trained_on, cohort.is_patient)
        found[f'AUC, {name}, {SUM_OF_INDICES}, trained on'] = area.value
        if study == OLDER:
            differs = compare_groups(cohort).set_index('measure').loc['age']
            named = differs['p_corrected'] < 0.05 and 'years older' in differs['in_words']
            found['age gap is named'] = named
    return {name: float(value) for name, value in found.items()}


def limits_of_diagnosis() -> Limits:
    limits: dict[str, tuple[float, float]] = {'age gap is named': (1.0, 1.0)}
    for study in (*AGES, *SITES):
        name = name_design(study)
        number = f'{name}, {SUM_OF_INDICES}, everyone'
        limits[f'AUC, {number}'] = ANY if study.years_older else (0.45, 0.55)
        limits[f'interval holds 0.5, {number}'] = ANY
        limits[f'AUC, {name}, {SUM_OF_INDICES}, trained on'] = ANY
    return limits


NEW, FINAL = 'new ones', 'new ones by the final model'
CONTROLS = {
    f'mean of controls held out, less that of {NEW}': (-0.05, 0.05),
    f'sd of controls held out, over that of {NEW}': (0.8, 1.2),
    f'mean of controls held out, less that of {FINAL}': (-0.05, 0.05),
    f'sd of controls held out, over that of {FINAL}': ANY,
    f'mean of controls trained on, less that of {FINAL}': ANY,
    f'sd of controls trained on, over that of {FINAL}': ANY,
}
"""R-indices of new controls are by the models of folds, each by one of them, or by the final model,
whose error is the same for all of them and so no part of their sd."""


def controls(seed: int, size: tuple[int, int] = (20, 30), n_new: int = 100) -> dict[str, float]:
    """R-indices of controls of a small study, compared with those of new controls."""
    everyone, _ = simulate(Study(size[0] + n_new, size[1], task='basic'), seed)
    number = pd.Series(np.arange(len(everyone)), everyone.visits.index)
    is_new = ~everyone.is_patient & (number >= size[0])
    cohort = everyone.select(~is_new)
    options = TrainingOptions(n_patterns=(2,), device='cpu', random_seed=seed)
    folds = prepare_folds(cohort, options)
    model = LinearModel(prepare(cohort))
    models = {fold: LinearModel(data, like=model) for fold, data in folds.data.items()}
    of_new = 1 + number % folds.count
    numbers = folds.number.reindex(number.index).fillna(of_new).astype(int)
    results = cross_fit(everyone, model, replace(folds, number=numbers), models).results
    names, final = ['r1', 'r2'], ['r1_final', 'r2_final']
    results[final] = model.apply(everyone)[names]
    own, new = results[~everyone.is_patient & ~is_new], results[is_new]
    pairs = {
        ('held out', NEW): (own[names], new[names]),
        ('held out', FINAL): (own[names], new[final]),
        ('trained on', FINAL): (own[final], new[final]),
    }
    found = {}
    for (which, whose), (these, those) in pairs.items():
        difference = these.mean().mean() - those.mean().mean()
        found[f'mean of controls {which}, less that of {whose}'] = difference
        ratio = these.std().mean() / those.std().mean()
        found[f'sd of controls {which}, over that of {whose}'] = ratio
    return found


def maps(seed: int, size: tuple[int, int] = (60, 90)) -> dict[str, float]:
    """Comparisons with a discovery if nobody is ill; regions as voxels, R-indices out of fold."""
    cohort, _ = simulate(Study(*size), seed)
    r = hold_out(cohort, seed).results[['r1', 'r2']]
    contrasts, _ = make_contrasts(r, cohort.is_patient.to_numpy(bool), cohort.people)
    values = cohort.features.to_numpy()
    found: dict[str, list[bool]] = {'patients': [], 'slopes': []}
    for each in contrasts:
        _, t, df = regress(values[each.rows], each.tested, each.columns)
        p = stats.false_discovery_control(2 * stats.t.sf(np.abs(t), df))
        found['patients' if each.is_test else 'slopes'].append(bool((p <= FDR_LEVEL).any()))
    return {f'discoveries in {kind}': float(any(each)) for kind, each in found.items()}


MAPS = {
    'discoveries in patients': (0.0, 0.07),
    'discoveries in slopes': ANY,
}


def choose(data: TrainingData, seed: int, candidates: Sequence[int] = CANDIDATES) -> Number:
    """The number of patterns, as training chooses it."""
    X, patient = data.arrays
    groups = X[~patient].to_numpy(), X[patient].to_numpy()
    return choose_number(
        *groups,
        candidates,
        random_state=seed,
        shuffle=data.shuffle,
        least_of_several=data.least_of_several,
    )


def any_pattern_at_all(
    seed: int,
    designs: Sequence[Study] = (*AGES, *SITES),
    candidates: Sequence[int] = CANDIDATES,
) -> dict[str, float]:
    """Whether a pattern is found if nobody is ill, and whether its p is significant."""
    found = {}
    for study in designs:
        name = name_design(study)
        number = choose(prepare(simulate(study, seed).cohort), seed, candidates)
        tested = number.tested
        found[f'M >= 1, {name}'] = float(number.n_patterns > 0)
        found[f'p < 0.05, {name}'] = float(tested.p_value < 0.05)
    return found


ANY_PATTERN = {
    f'{what}, {name_design(study)}': (0.0, 0.07)
    for what in ('M >= 1', 'p < 0.05')
    for study in (*AGES, *SITES)
}


class Null(NamedTuple):
    """A draw, how many of them make a quick and a full run, and what each number has to be.

    A quick run may take smaller draws, which may have fewer numbers.
    """

    draw: Draw
    quick: int
    full: int
    limits: Limits
    quick_draw: Draw | None = None


NULLS: dict[str, Null] = {
    'associations': Null(
        associations,
        *(3, 40, limits_of_associations()),
        quick_draw=partial(associations, controls=(30,), n_pt=60),
    ),
    'diagnosis': Null(
        diagnosis,
        *(3, 40, limits_of_diagnosis()),
        quick_draw=partial(diagnosis, designs=(SMALL, OLDER)),
    ),
    'controls': Null(controls, 3, 40, CONTROLS, partial(controls, n_new=50)),
    'maps': Null(maps, 2, 100, MAPS),
    'any_pattern': Null(
        any_pattern_at_all,
        *(2, 40, ANY_PATTERN),
        quick_draw=partial(any_pattern_at_all, designs=(SMALL,), candidates=(1, 2)),
    ),
    'head_size': Null(head_size, 2, 20, HEAD_SIZE, partial(head_size, size=(100, 150))),
}


def run(name: str, full: bool = False, jobs: int = 1) -> pd.DataFrame:
    """Mean, sd and limits of each number of one null over its draws."""
    null = NULLS[name]
    seeds = range(null.full if full else null.quick)
    draw = null.draw if full or null.quick_draw is None else null.quick_draw
    if jobs == 1:
        rows = [draw(seed) for seed in tqdm(seeds, desc=name, disable=None)]
    else:
        context = multiprocessing.get_context('spawn')
        with ProcessPoolExecutor(jobs, context, one_thread) as processes:
            done = processes.map(draw, seeds)
            rows = list(tqdm(done, desc=name, total=len(seeds), disable=None))
    return summarise(name, pd.DataFrame(rows))


def summarise(name: str, draws: pd.DataFrame) -> pd.DataFrame:
    """Mean, sd and limits of the numbers in the columns of `draws`, one row each."""
    rows = [
        {
            'null': name,
            'number': number,
            'mean': draws[number].mean(),
            'sd': draws[number].std(),
            'error': stats.sem(draws[number], nan_policy='omit'),
            'at_least': low,
            'at_most': high,
            'draws': int(draws[number].count()),
        }
        for number, (low, high) in NULLS[name].limits.items()
        if number in draws
    ]
    table = pd.DataFrame(rows)
    return table.assign(holds=table['mean'].between(table['at_least'], table['at_most']))


def keep(table: pd.DataFrame) -> Path:
    """Write results, with the latest ones of nulls that were not repeated."""
    table = table.assign(**circumstances('surreal_bids', 'numpy', 'torch'))
    earlier = sorted(RESULTS.glob('*_nulls.tsv'))
    if earlier:
        kept = pd.read_csv(earlier[-1], sep='\t')
        table = pd.concat([kept[~kept['null'].isin(table['null'])], table], ignore_index=True)
    return write_tsv(RESULTS / f'{table["date"].max()}_nulls.tsv', table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('names', nargs='*', metavar='NAME', help=f'of {", ".join(NULLS)}')
    parser.add_argument('--full', action='store_true', help='at least 20 draws of each')
    parser.add_argument('--jobs', type=int, default=1, help='processes of one thread each')
    arguments = parser.parse_args()
    names = arguments.names or list(NULLS)
    table = pd.concat(
        [run(name, arguments.full, arguments.jobs) for name in names], ignore_index=True
    )
    print(table.to_string(index=False))
    if arguments.full:
        print(f'Written to {keep(table)}')


if __name__ == '__main__':
    main()
