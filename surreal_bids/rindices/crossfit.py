"""R-indices of participants by models that were not trained on them: folds.

A model knows the participants that it was trained on: their R-indices are too low in controls, and
too high in patients. Cross-fitting learns imputation, ComBat, covariates, normalisation and
Surreal-GAN again without each fold of the participants, and applies them to that fold.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from surreal_bids.cautions import INVALID, R_INDICES, Caution
from surreal_bids.cautions import MODEL as MODEL_SECTION
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.config import TrainingOptions
from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.harmonization.quality import without_warnings
from surreal_bids.model.agreement import Selection, warn_of_agreement
from surreal_bids.model.estimator import SurrealGAN
from surreal_bids.model.networks import MIN_PEOPLE, hyperparameters
from surreal_bids.model.number import least_stability, stored_number, warn_of_chance
from surreal_bids.names import PARTICIPANT, SINGULAR
from surreal_bids.parallel import in_workers
from surreal_bids.progress import report, stage
from surreal_bids.rindices.limits import in_sample
from surreal_bids.rindices.model import (
    BASELINE,
    R_INDEX,
    REPRODUCIBILITY,
    VISIT,
    TableModel,
    TrainingData,
    prepare,
    select_model,
)
from surreal_bids.rindices.preprocessing import Preprocessing
from surreal_bids.stats.concordance import match_patterns
from surreal_bids.text import beside_limit, counted, list_briefly

LOGGER = logging.getLogger(__name__)

MEMBERS = 4
"""Members of the model of a fold."""

NOT_HELD_OUT = 'not_held_out'
"""Status of a participant whom no model was applied to that was not trained on them."""

MIN_REPRODUCED = 0.7
"""A pattern of a fold whose R-indices correlate less with those of all is another one."""

HELD_OUT = 'held_out'
"""Column that says whether R-indices are by a model that was not trained on the participant."""

_FOLDS = 3
"""Stream of random numbers."""


def split_people(cohort: Cohort, n_parts: int, seed: int) -> pd.Series:
    """Put people into parts 1 to `n_parts`, groups and sites shared out evenly, visits together.

    Returns
    -------
    Series of shape (n_visits,)
        Number of the part.
    """
    first = cohort.first_visits()
    strata = first.visits[['group']]
    if cohort.options.site_column is not None:
        strata = strata.assign(site=first.people[cohort.options.site_column])
    order = np.random.default_rng(seed).permutation(len(first))
    shuffled = strata.iloc[order]
    # Counting on across strata keeps the parts equal where strata cannot be shared out evenly.
    ranked = shuffled.sort_values(list(shuffled.columns), kind='stable')
    part = pd.Series(1 + np.arange(len(ranked)) % n_parts, index=ranked.index)
    by_person = part.set_axis(first.visits.loc[part.index, 'participant_id'])
    return pd.Series(by_person[cohort.visits['participant_id']].to_numpy(), cohort.visits.index)


@dataclass(frozen=True, eq=False)
class Folds:
    """Who is held out together, and what is learned without them.

    Attributes
    ----------
    number : Series of shape (n_visits,)
        Fold of each visit, from 1; all visits of a participant are in one fold.
    data
        What to train on without each fold.
    failed
        Folds without which nothing can be learned, and why.
    """

    number: pd.Series
    data: Mapping[int, TrainingData] = field(default_factory=dict)
    failed: Mapping[int, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many folds there are."""
        return int(self.number.max())


def assign_folds(cohort: Cohort, options: TrainingOptions) -> Folds | None:
    """Assign participants to folds; None where folds are off or participants are too few.

    Raises
    ------
    UsageError
        One fold is asked for.
    """
    n_folds = usable_folds(cohort.counts, options.folds)
    if n_folds == 0:
        return None
    return Folds(split_people(cohort, n_folds, part_seed(options.random_seed, _FOLDS, 0)))


def prepare_fold(cohort: Cohort, folds: Folds, fold: int) -> TrainingData:
    """Fit preprocessing to everyone outside a fold; sites without controls are left as measured."""
    options = replace(cohort.options, unseen_site='skip')
    with without_warnings():
        others = replace(cohort, options=options).select(folds.number != fold)
        return prepare(others, with_regions=False)


def prepare_folds(cohort: Cohort, options: TrainingOptions) -> Folds | None:
    """Fit preprocessing without each fold; None where folds are off or cannot be trained."""
    folds = assign_folds(cohort, options)
    if folds is None:
        return None
    data: dict[int, TrainingData] = {}
    failed: dict[int, str] = {}
    for fold in range(1, folds.count + 1):
        try:
            data[fold] = prepare_fold(cohort, folds, fold)
        except DataError as error:
            failed[fold] = explain_failure(fold, error)
    if not data:
        LOGGER.warning(in_sample(failed[1], 'Use fewer covariates'))
        return None
    return replace(folds, data=data, failed=failed)


def explain_failure(fold: int, error: DataError | str) -> str:
    """Say why the participants of a fold have no out-of-fold R-indices."""
    return f'no model could be trained without fold {fold}: {error}'


def usable_folds(counts: Mapping[str, int], wanted: int) -> int:
    """How many folds groups of these sizes allow, at most `wanted`; 0: none."""
    if wanted == 1:
        raise UsageError('--folds 1: use 2 or more folds, or 0 for no cross-fitting')
    group, smallest = min(counts.items(), key=lambda item: item[1])
    n_folds = min(wanted, smallest)
    if n_folds and smallest - -(-smallest // n_folds) < MIN_PEOPLE:
        few = f'{counted(smallest, SINGULAR[group])}: too few for cross-fitting'
        LOGGER.warning(in_sample(few, 'Add participants, and do not compare the groups'))
        return 0
    if n_folds < wanted:
        LOGGER.warning(
            Caution(
                f'--folds {wanted}: there are only {counted(smallest, SINGULAR[group])}',
                f'{n_folds} folds are used',
                f'Use --folds {n_folds} or fewer',
            )
        )
    return n_folds


def part_seed(seed: int, stream: int, number: int) -> int:
    """A seed of its own for a part of the participants."""
    return int(np.random.SeedSequence([seed, stream, number]).generate_state(1)[0])


def fold_options(options: TrainingOptions, chosen: Selection, fold: int) -> TrainingOptions:
    """How the model of a fold is trained: M and lambda of the whole sample, few members, own seed.

    One round of four, so that one in another optimum can be left out.
    """
    return replace(
        options,
        n_patterns=(chosen.n_patterns,),
        ortho=() if chosen.ortho is None else (chosen.ortho,),
        repetitions=min(options.repetitions or MEMBERS, MEMBERS),
        random_seed=part_seed(options.random_seed, _FOLDS, fold),
    )


def fit_fold(
    data: TrainingData,
    options: TrainingOptions,
    final: SurrealGAN,
    fold: int,
    checkpoint_dir: Path | None = None,
) -> TableModel:
    """Train the model of a fold on everyone else; if interrupted, the same call resumes.

    Its members start from the patterns of the final model, after these were fitted to everyone
    else: they are the same patterns, as the others show them.
    """
    own = None if checkpoint_dir is None else checkpoint_dir / f'fold-{fold}'
    options = fold_options(options, final.selected_, fold)
    with without_warnings('surreal_bids.model.agreement'):
        return select_model(data, options, own, assess_number=False, like=final)


def fit_folds(
    folds: Folds,
    model: TableModel,
    options: TrainingOptions,
    checkpoint_dir: Path | None = None,
    n_procs: int = 1,
) -> tuple[Folds, dict[int, TableModel]]:
    """Train the models of all folds, `n_procs` at a time; those that fail are added to `failed`."""
    models: dict[int, TableModel] = {}
    failed = dict(folds.failed)
    jobs = [(data, options, model.gan, fold, checkpoint_dir) for fold, data in folds.data.items()]
    with stage('folds'):
        found = in_workers(_try_fold, jobs, min(n_procs, len(jobs)))
        for trained, fold in zip(found, folds.data):
            if isinstance(trained, DataError):
                failed[fold] = explain_failure(fold, trained)
            else:
                models[fold] = trained
            done = len(models) + len(failed) - len(folds.failed)
            report(done, len(jobs), f'{done} of {len(jobs)}')
    return replace(folds, failed=failed), models


def _try_fold(job: tuple[Any, ...]) -> TableModel | DataError:
    try:
        with stage(f'fold {job[3]}'):
            return fit_fold(*job)
    except DataError as error:
        return DataError(str(error))


@dataclass(frozen=True, eq=False)
class Trained:
    """All models that were trained on a cohort.

    Attributes
    ----------
    model
        The model of all participants.
    folds, fold_models
        Fold of each participant, and the model trained without each fold; None and empty without
        cross-fitting.
    """

    model: TableModel
    folds: Folds | None = None
    fold_models: Mapping[int, TableModel] = field(default_factory=dict)


WORTH_PROCESSES = 30.0
"""Seconds that the final model takes at least if folds are trained in processes of their own."""


FINAL = 'final model'
"""Name of the first stage of training."""


def train(
    data: TrainingData,
    folds: Folds | None,
    options: TrainingOptions,
    checkpoint_dir: Path | None = None,
    n_procs: int = 1,
) -> Trained:
    """Train on all participants, then without each fold; if interrupted, the same call resumes.

    Folds are trained `n_procs` at a time if this is worth the start of processes; the models are
    the same.
    """
    began = time.monotonic()
    with stage(FINAL):
        model = select_model(data, options, checkpoint_dir)
    if folds is None:
        return Trained(model)
    at_once = n_procs if time.monotonic() - began > WORTH_PROCESSES else 1
    return Trained(model, *fit_folds(folds, model, options, checkpoint_dir, at_once))


MODEL, FOLD = 'model', 'fold'
"""Parts of a cohort that a model is trained on: all, or all but fold N."""


def train_part(
    cohort: Cohort,
    options: TrainingOptions,
    part: str,
    checkpoint_dir: Path,
    final: SurrealGAN | None = None,
) -> TableModel:
    """Train the model of one part of a cohort; if interrupted, the same call resumes.

    Parameters
    ----------
    cohort, options
        Participants, and how to train.
    part
        `model` or `fold-N`.
    checkpoint_dir
        Folder of the checkpoints of all parts.
    final
        The model of all participants; only for folds.

    Raises
    ------
    DataError
        The part cannot be trained.
    """
    kind, _, number = part.partition('-')
    if kind == MODEL:
        return select_model(prepare(cohort), options, checkpoint_dir)
    folds = assign_folds(cohort, options)
    if folds is None or final is None:
        raise ValueError(f'{part}: a fold needs participants in folds, and the model of all')
    data = prepare_fold(cohort, folds, int(number))
    return fit_fold(data, options, final, int(number), checkpoint_dir)


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Models that were trained without a fold each, and what they give the participants held out.

    Attributes
    ----------
    folds, models
        Who is in which fold, and the model of each that could be learned.
    results : frame
        As `TableModel.apply` gives them, but by the model of the fold in which the participant was
        held out, with `fold` and `fold_correlation`, the least of its `correlation`; `status` is
        `not_held_out` and `reason` says why where there is none.
    correlation : frame of shape (n_folds, M)
        How R-indices of each pattern correlate with those of the final model, among the patients
        that the model of the fold was trained on.
    names
        For each fold, the final model's name of each pattern of the model of the fold.
    """

    folds: Folds
    models: Mapping[int, TableModel]
    results: pd.DataFrame
    correlation: pd.DataFrame
    names: Mapping[int, Mapping[str, str]]

    def held_out(self, cohort: Cohort) -> Iterator[tuple[TableModel, Mapping[str, str], Cohort]]:
        """Model of each fold, the final names of its patterns, and visits it was not trained on."""
        for fold, model in self.models.items():
            own = cohort.select(self.results[HELD_OUT] & (self.folds.number == fold))
            if len(own):
                yield model.with_unseen_site('skip'), self.names[fold], own

    def contributions(self, cohort: Cohort) -> pd.DataFrame:
        """What each feature contributes to `results`, as :meth:`TableModel.contributions` has it.

        The baseline is the mean control that the model of the fold knows.
        """
        everyone = pd.MultiIndex.from_product(
            [cohort.visits.index, self.correlation.columns], names=[VISIT, R_INDEX]
        )
        tables = [
            model.contributions(own.features, own.people).rename(index=names, level=R_INDEX)
            for model, names, own in self.held_out(cohort)
        ]
        if not tables:
            return pd.DataFrame(index=everyone[:0], columns=[BASELINE])
        is_there = self.results[list(self.correlation)].notna().to_numpy(dtype=bool).ravel()
        return pd.concat(tables).reindex(everyone[is_there]).dropna(how='all')

    def of_apart(self, cohort: Cohort) -> CrossFit | None:
        """Score visits of other groups by the model of the fold that the participant is in.

        Such as those of controls with another diagnosis later: the final model was trained on them.

        Parameters
        ----------
        cohort
            The cohort of the folds, with `apart`.

        Returns
        -------
        CrossFit
            The same models, and `results` of the visits in `apart` that they can be applied to;
            None where there are none.
        """
        if cohort.apart is None:
            return None
        number_of = dict(zip(cohort.visits[PARTICIPANT], self.folds.number))
        number = cohort.apart.visits[PARTICIPANT].map(number_of)
        parts: list[pd.DataFrame] = []
        for fold, model in self.models.items():
            held_out = cohort.apart.select(number == fold)
            if len(held_out):
                parts += _score_fold(model, self.names[fold], held_out, fold)
        if not any(part['status'].ne(NOT_HELD_OUT).any() for part in parts):
            return None
        results = _unite(parts, number, self.correlation)
        # A model of a fold cannot be applied to a site or a level that only its own fold has.
        results = results[results[HELD_OUT]]
        # Visits are selected by their position.
        results = results.loc[number.index[number.index.isin(results.index)]]
        folds = replace(self.folds, number=number[results.index])
        return replace(self, folds=folds, results=results)

    @property
    def note(self) -> dict[str, Any]:
        """What the card of the final model says of it."""
        least = self.correlation.min().dropna()
        return {
            'Folds': self.folds.count,
            'MembersPerFold': max((len(m.gan.members_) for m in self.models.values()), default=0),
            'LeastCorrelation': {str(name): float(value) for name, value in least.items()},
            'StartsFromFinal': any(
                hyperparameters(m.gan.preset).start == 'factors' for m in self.models.values()
            ),
            'NotHeldOut': int((self.results['status'] == NOT_HELD_OUT).sum()),
        }


def cross_fit(
    cohort: Cohort, model: TableModel, folds: Folds, models: Mapping[int, TableModel]
) -> CrossFit:
    """Apply the model of each fold to those it was not trained on.

    Patterns of a fold are matched one to one to those of the final model by the correlation of
    their R-indices among the patients that both were trained on.
    """
    final = model.apply(cohort)
    names = list(model.pattern_names)
    parts, correlations, renaming = [], {}, {}
    for fold in range(1, folds.count + 1):
        held_out = cohort.select(folds.number == fold)
        if fold not in models:
            reasons = pd.Series(folds.failed[fold], held_out.visits.index)
            parts.append(_not_held_out(reasons))
            continue
        known = models[fold].with_unseen_site('skip')
        trained = cohort.select(folds.number != fold).first_visits()
        order, correlations[fold] = _match(known, trained.select(trained.is_patient), final[names])
        renaming[fold] = {names[own]: name for name, own in zip(names, order)}
        parts += _score_fold(models[fold], renaming[fold], held_out, fold)
    correlation = pd.DataFrame.from_dict(correlations, orient='index', columns=names)
    results = _unite(parts, folds.number, correlation).loc[cohort.visits.index]
    return CrossFit(folds, models, results, correlation, renaming)


def _score_fold(
    model: TableModel, names: Mapping[str, str], held_out: Cohort, fold: int
) -> list[pd.DataFrame]:
    """R-indices by the model of a fold, with their final names, and who cannot have any."""
    known = model.with_unseen_site('skip')
    reasons = _unknown(known.preprocessing, held_out.people, fold)
    parts = [_not_held_out(reasons.dropna())]
    usable = held_out.select(reasons.isna())
    if len(usable):
        parts.append(known.apply(usable).rename(columns=names))
    return parts


def _unite(parts: list[pd.DataFrame], number: pd.Series, correlation: pd.DataFrame) -> pd.DataFrame:
    """Unite the results of folds, and add what is known of the fold of each visit."""
    names = list(correlation)
    results = pd.concat([part for part in parts if len(part)])
    results = results.reindex(columns=list(dict.fromkeys([*names, *results])))
    results['fold'] = number[results.index].astype('Int64')
    if names:
        results['fold_correlation'] = results['fold'].map(correlation.min(axis=1))
    results[HELD_OUT] = results['status'] != NOT_HELD_OUT
    return results


def not_reproduced(note: Mapping[str, Any]) -> list[str]:
    """Name the patterns that some fold has not reproduced, each with its correlation.

    `note` is :attr:`CrossFit.note`, `CrossFit` of a card; of a model without folds it is empty.
    """
    least = note.get('LeastCorrelation', {})
    return [
        f'{name} (correlation {beside_limit(r, MIN_REPRODUCED)})'
        for name, r in least.items()
        if r < MIN_REPRODUCED
    ]


def doubts_of_model(card: Mapping[str, Any]) -> list[Caution]:
    """Return warnings that concern all R-indices of a model; `card` is that of `model.json`."""
    selected = card.get('Selected', {})
    doubts = warn_of_agreement(selected.get('agreement'))
    if selected.get('n_patterns'):
        doubts += warn_of_chance(stored_number(card.get('Stability')))
    reproduced = card.get(REPRODUCIBILITY, {})
    least = least_stability(len(reproduced))
    medians = {name: each['Median'] for name, each in reproduced.items()}
    weak = {
        'every fold of the training sample': not_reproduced(card.get('CrossFit', {})),
        'random subsamples': [
            f'{name} ({beside_limit(median, least)})'
            for name, median in medians.items()
            if median < least
        ],
    }
    return doubts + [
        Caution(
            f'Patterns not reproduced in {where}: {", ".join(listed)}; at least {needed:g} is '
            'expected',
            'With other training participants, these patterns would have been other ones',
            'Do not interpret these R-indices; use fewer patterns (--n-patterns) or more training '
            'participants',
            MODEL_SECTION,
            severity=INVALID,
        )
        for (where, listed), needed in zip(weak.items(), (MIN_REPRODUCED, least))
        if listed
    ]


def warn_of_not_held_out(results: pd.DataFrame, who: pd.Series) -> Iterator[Caution]:
    """Warn of participants whom every model was trained on."""
    rows = results['status'].eq(NOT_HELD_OUT)
    if rows.any():
        reasons = results.loc[rows, 'reason'].dropna().unique()
        yield Caution(
            f'No out-of-fold model for {list_briefly(who[rows].unique(), 5)} '
            f'({list_briefly(reasons, 3)})',
            'They have no R-indices',
            'Add controls of the same site and covariates, or use fewer covariates',
            R_INDICES,
        )


def _match(
    model: TableModel, patients: Cohort, final: pd.DataFrame
) -> tuple[list[int], list[float]]:
    """For each pattern of the final model the one of `model`, and how they correlate."""
    if final.shape[1] == 0:
        return [], []
    own = model.apply(patients)[list(model.pattern_names)].dropna()
    both = [_standardised(table.loc[own.index]) for table in (own, final)]
    correlation = both[0].T @ both[1] / len(own)
    order = match_patterns(correlation)
    return list(order), [float(correlation[i, j]) for j, i in enumerate(order)]


def _standardised(table: pd.DataFrame) -> np.ndarray:
    """Columns of mean 0 and sd 1; a constant one becomes zero."""
    centred = (table - table.mean()).to_numpy(np.float64)
    sd = centred.std(axis=0)
    return np.divide(centred, sd, out=np.zeros_like(centred), where=sd > 0)


def _unknown(steps: Preprocessing, people: pd.DataFrame, fold: int) -> pd.Series:
    """Why the model of a fold knows nothing of some participants; missing for the others."""
    reasons = pd.Series(None, people.index, dtype=object)
    for name, levels in steps.levels.items():
        reasons[~people[name].isin(list(levels))] = (
            f'{name} of this value occurs among controls of fold {fold} only'
        )
    column = steps.options.site_column
    if column is not None and steps.combat is not None:
        reasons[~people[column].isin(steps.combat.sites_)] = (
            f'all controls of this site are in fold {fold}'
        )
    return reasons


def _not_held_out(reasons: pd.Series) -> pd.DataFrame:
    return pd.DataFrame({'status': NOT_HELD_OUT, 'reason': reasons}, reasons.index)


def final_results(cohort: Cohort, model: TableModel) -> pd.DataFrame:
    """R-indices by a model that was trained on these participants, and marked so."""
    return model.apply(cohort).assign(**{HELD_OUT: False})
