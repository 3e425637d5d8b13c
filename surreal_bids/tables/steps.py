"""The long steps of a group analysis as functions of a cohort, each of which can run on its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from surreal_bids.model import SurrealGAN
from surreal_bids.tables.cohort import Cohort
from surreal_bids.tables.pipeline import TableModel, fit_table_model
from surreal_bids.tables.preprocessing import Prepared, Preprocessing, fit_preprocessing


@dataclass(frozen=True)
class TrainingSettings:
    """How models are trained: what `SurrealGAN` takes, in values that go to JSON and back."""

    n_patterns: Sequence[int]
    ortho: Sequence[float]
    repetitions: int
    iterations: int
    preset: str
    device: str
    random_seed: int

    def make_gan(self, checkpoint_dir: Path) -> SurrealGAN:
        """A model that is not fitted yet; what it has learned so far is kept in the folder."""
        return SurrealGAN(
            tuple(self.n_patterns),
            tuple(self.ortho),
            self.repetitions,
            self.preset,
            self.iterations,
            self.device,
            self.random_seed,
            checkpoint_dir,
        )


def prepare(cohort: Cohort) -> tuple[Preprocessing, Prepared]:
    """Learn harmonization, covariates and normalisation from first visits, and prepare these."""
    first = cohort.first_visits()
    return fit_preprocessing(
        cohort.wanted, cohort.options, first.features, first.people, ~first.is_patient
    )


def _training_sample(cohort: Cohort) -> tuple[pd.DataFrame, np.ndarray]:
    """What the network is trained on: normalised first visits, and who is a patient."""
    normalised = prepare(cohort)[1].normalised
    return normalised, cohort.is_patient[normalised.index].to_numpy(dtype=bool)


def time_training(cohort: Cohort, settings: TrainingSettings) -> dict[int, float]:
    """Seconds that training will take for each number of patterns, from a few iterations."""
    gan = settings.make_gan(Path())
    sample = _training_sample(cohort)
    return {
        n_patterns: gan.seconds_per_iteration(*sample, n_patterns) * settings.iterations
        for n_patterns in settings.n_patterns
    }


def train_patterns(
    cohort: Cohort, settings: TrainingSettings, n_patterns: int, checkpoint_dir: Path
) -> Path:
    """Train all members of one number of patterns; killed, the same call goes on where it was."""
    return settings.make_gan(checkpoint_dir).train(*_training_sample(cohort), n_patterns)


def select_model(
    cohort: Cohort, settings: TrainingSettings, checkpoint_dir: Path
) -> tuple[TableModel, pd.DataFrame]:
    """Choose M and lambda by agreement, form the consensus, and compute everyone's R-indices.

    Members that :func:`train_patterns` has trained are taken from the checkpoints; others are
    trained.
    """
    first = cohort.first_visits()
    model, _ = fit_table_model(
        cohort.wanted,
        cohort.options,
        first.features,
        first.people,
        first.is_patient,
        settings.make_gan(checkpoint_dir),
    )
    return model, model.apply(cohort.features, cohort.people)


def split_halves(cohort: Cohort, seed: int) -> pd.Series:
    """Put people into halves 1 and 2, groups and sites shared out evenly, visits together.

    Returns
    -------
    Series of shape (n_visits,)
        1 or 2.
    """
    first = cohort.first_visits()
    strata = first.visits[['group']]
    if cohort.options.site_column is not None:
        strata = strata.assign(site=first.people[cohort.options.site_column])
    order = np.random.default_rng(seed).permutation(len(first))
    shuffled = strata.iloc[order]
    # Counting on across strata keeps the halves equal where groups have odd numbers.
    ranked = shuffled.sort_values(list(shuffled.columns), kind='stable')
    half = pd.Series(1 + np.arange(len(ranked)) % 2, index=ranked.index)
    by_person = half.set_axis(first.visits.loc[half.index, 'participant_id'])
    return pd.Series(by_person[cohort.visits['participant_id']].to_numpy(), cohort.visits.index)


def train_half(
    cohort: Cohort, settings: TrainingSettings, half: int, checkpoint_dir: Path
) -> pd.DataFrame:
    """Train on one half only, and compute everyone's R-indices (section B.7)."""
    halves = split_halves(cohort, settings.random_seed)
    options = replace(cohort.options, unseen_site='skip')
    part = replace(cohort.select(halves == half), options=options)
    model, _ = select_model(part, settings, checkpoint_dir)
    return model.apply(cohort.features, cohort.people)[list(model.pattern_names)]
