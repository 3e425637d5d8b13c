"""A model for tables: preprocessing and Surreal-GAN, fitted, saved and applied as one."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from torch import Tensor

from surreal_bids.cautions import MODEL, Caution
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.cohort.roles import Requirements
from surreal_bids.config import TrainingOptions, change_options
from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.harmonization.combat import UnseenSite
from surreal_bids.harmonization.encoding import as_labels
from surreal_bids.harmonization.options import PreprocessingOptions, learns_from_visits
from surreal_bids.harmonization.quality import without_warnings
from surreal_bids.model.bundle import load_bundle, reading_model, save_bundle
from surreal_bids.model.estimator import SurrealGAN
from surreal_bids.model.networks import MIN_PEOPLE, hyperparameters
from surreal_bids.model.number import LEAST_FOR_STRUCTURES, reproduce
from surreal_bids.names import CONTROL, PARTICIPANT, PATIENT, SINGULAR
from surreal_bids.rindices.limits import warn_of_applied
from surreal_bids.rindices.preprocessing import (
    COMPLETE,
    Prepared,
    Preprocessing,
    Visits,
    add_to_features,
    fit_preprocessing,
    fit_to_regions,
    residuals_of_all,
)
from surreal_bids.sides import APART, combine_sides
from surreal_bids.text import counted, list_briefly

LOGGER = logging.getLogger(__name__)

PREPROCESSING = 'preprocessing'
"""Prefix of the tensors of a bundle that belong to preprocessing."""

VISIT, R_INDEX, BASELINE = 'visit', 'r_index', 'baseline'
"""Index, and first column, of a table of contributions."""

ADDED_SITES, INDEX_ERROR = 'AddedSites', 'IndexStandardError'
"""Keys of the card: sites that were added later, and how sure R-indices there are."""

TAUGHT_BY = 'SiteRows'
"""Key of an added site: digests of the volumes of the controls that it was learned from."""

REPRODUCIBILITY = 'Reproducibility'
"""Key of the card: how well patterns are reproduced in subsamples."""

INTERVALS, REFERENCE = 'Intervals', 'Reference'
"""Keys of the card, which :mod:`surreal_bids.rindices.uncertainty` learns."""

SHARE = 0.95
"""Of the severities that intervals are meant to hold."""

PER_CENT = np.arange(101)

SEEN = 'TrainingRows'
"""Key of the card: digests of the volumes of training participants."""

NOTES = (
    *('TrainingSample', REPRODUCIBILITY, 'CrossFit', 'Imported', 'HyperParameters', ADDED_SITES),
    *(INTERVALS, REFERENCE, SEEN),
)
"""What a card may hold of `TableModel.notes`."""


@dataclass(frozen=True, eq=False)
class TableModel:
    """Preprocessing and a fitted Surreal-GAN: R-indices from a table of regional volumes.

    Attributes
    ----------
    preprocessing
        Fitted preprocessing steps.
    gan
        The fitted Surreal-GAN.
    pattern_names
        Names of the R-indices, in the order of `gan`.
    notes
        Provenance for the model card, as plain JSON values.
    """

    preprocessing: Preprocessing
    gan: SurrealGAN
    pattern_names: tuple[str, ...]
    notes: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def fit(
        cls,
        cohort: Cohort,
        options: TrainingOptions | None = None,
        checkpoint_dir: Path | None = None,
        **changes: Any,
    ) -> TableModel:
        """Learn preprocessing and patterns from the first visit of every participant.

        R-indices by this model are biased in the participants that it was trained on. Use
        :func:`surreal_bids.analyse` instead for their R-indices out of fold; new participants then
        have 95 % intervals and centiles, too.

        Parameters
        ----------
        cohort
            Controls and patients.
        options
            How to train; by default as the commands do.
        checkpoint_dir
            Where members are kept; if training is interrupted, the same call resumes it.
        **changes
            Fields of `options`, named as on the command line: `n_patterns=(2, 3)`. `folds` has no
            effect here and is refused.
        """
        if 'folds' in changes:
            raise UsageError(
                'folds: TableModel.fit trains no folds; surreal_bids.analyse does, and gives '
                'out-of-fold R-indices'
            )
        options = change_options(options or TrainingOptions(), changes)
        return select_model(prepare(cohort), options, checkpoint_dir)

    def apply(self, cohort: Cohort) -> pd.DataFrame:
        """Compute the R-indices of every visit of a cohort; see :meth:`compute`.

        Read the cohort with ``Cohort.read(..., model=model)``, unless the model was trained on it.
        """
        return self.compute(cohort.features, cohort.people)

    def compute(self, features: pd.DataFrame, people: pd.DataFrame) -> pd.DataFrame:
        """Compute R-indices of new participants.

        Parameters
        ----------
        features : frame of shape (n_participants, n_features)
            Features as measured, NaN where missing.
        people : frame of shape (n_participants, n_columns)
            Covariates, ICV and site.

        Returns
        -------
        DataFrame, one row per participant
            - `r1`, ...: R-indices, missing for incomplete participants;
            - `r1_low`, `r1_high`: 95 % interval, if the model was cross-fitted;
            - `r1_centile`: centile among the training controls, if the model was cross-fitted;
            - `brain_in_range`: whether the profile lies within the training population;
            - `covariates_out_of_range`: covariates outside their range in training;
            - `n_imputed`: number of missing regions, if the model imputes;
            - `status`: complete, unharmonized or incomplete.
        """
        return self._describe(self.preprocessing.transform(features, people), people)

    def _describe(self, prepared: Prepared, people: pd.DataFrame) -> pd.DataFrame:
        r = np.asarray(self.gan.transform(prepared.normalised))
        finite = np.isfinite(r).all(axis=1)
        if not finite.all():
            who = prepared.normalised.index[~finite]
            raise DataError(
                f'the model gives no finite R-indices for {list_briefly(who)}; train it again'
            )
        computed = pd.DataFrame(r, prepared.normalised.index, list(self.pattern_names))
        if self.gan.domain_ is not None:
            computed['brain_in_range'] = self.gan.in_range(prepared.normalised)
        if INTERVALS in self.notes:
            errors = self._site_errors(people, prepared.status[computed.index])
            computed = with_intervals(computed, self.notes[INTERVALS], errors)
        if CONTROL in self.notes.get(REFERENCE, {}):
            computed = with_training_centiles(
                computed, self.notes[REFERENCE][CONTROL], prepared.status == COMPLETE
            )
        results = computed.reindex(prepared.status.index)
        extra = {'covariates_out_of_range': prepared.beyond_range, 'n_imputed': prepared.n_imputed}
        columns = {name: column for name, column in extra.items() if column is not None}
        return results.assign(**columns, status=prepared.status)

    def _site_errors(self, people: pd.DataFrame, status: pd.Series) -> dict[str, pd.Series]:
        """What few controls of an added site leave open, by R-index.

        0 at sites of the training sample, and unknown at sites that the model does not know.
        """
        column, added = self.preprocessing.options.site_column, self.notes.get(ADDED_SITES, {})
        sites = pd.Series('', status.index)
        if added and column is not None:
            sites = pd.Series(as_labels(people.loc[status.index, column]), status.index)
        errors = {}
        for name in self.pattern_names:
            known = {site: told[INDEX_ERROR].get(name, np.nan) for site, told in added.items()}
            error = sites.map(known).where(sites.isin(list(known)), 0.0).astype(float)
            errors[name] = error.where(status == COMPLETE)
        return errors

    def contributions(self, features: pd.DataFrame, people: pd.DataFrame) -> pd.DataFrame:
        """What each feature contributes to the R-indices that `compute` gives.

        Returns
        -------
        DataFrame, one row for every visit and R-index
            Indexed by visit and `r_index`; `baseline`, the R-index of the mean control, and a
            column for every feature, which add up to the R-index
            (integrated gradients). The incomplete have no rows.
        """
        normalised = self.preprocessing.transform(features, people).normalised
        baseline, of_features = self.gan.contributions(normalised)
        rows = pd.MultiIndex.from_product(
            [normalised.index, self.pattern_names], names=[VISIT, R_INDEX]
        )
        columns = self.preprocessing.structures.names
        table = pd.DataFrame(of_features.reshape(len(rows), len(columns)), rows, columns)
        table.insert(0, BASELINE, np.tile(baseline, len(normalised)))
        return table

    @property
    def requirements(self) -> Requirements:
        """What a cohort must have for the model to be applied to it."""
        return self.preprocessing.requirements

    def trained_on(self, cohort: Cohort) -> pd.Series:
        """Whether the model was trained on the volumes of each visit: booleans (n_visits,)."""
        rows = digests_of_rows(cohort.features, self.preprocessing.features.names)
        return rows.isin(self.notes.get(SEEN, ()))

    def warn_of(self, cohort: Cohort) -> list[Caution]:
        """Reasons to doubt the R-indices of a cohort that the model is applied to."""
        n_seen = int(self.trained_on(cohort).sum())
        return warn_of_applied(self, cohort, self.notes.get(ADDED_SITES, {}), n_seen)

    def with_unseen_site(self, choice: UnseenSite) -> TableModel:
        """The same model with another choice for people of unseen sites."""
        return replace(self, preprocessing=self.preprocessing.with_unseen_site(choice))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything the model needs: tensors, and the card as plain JSON values."""
        tensors, card = self.gan.state()
        state, arrays = self.preprocessing.to_state()
        tensors |= {
            f'{PREPROCESSING}/{name}': torch.from_numpy(value) for name, value in arrays.items()
        }
        card |= {
            'PatternNames': list(self.pattern_names),
            'Atlas': self.preprocessing.features.atlas,
            'FeatureDetails': describe_features(self.preprocessing),
            'Preprocessing': state,
            **self.notes,
        }
        return tensors, card

    def save(self, folder: str | Path) -> Path:
        """Write the model as a bundle: `model.safetensors` and the card, `model.json`."""
        return save_bundle(folder, *self.state())

    @classmethod
    def load(cls, folder: str | Path) -> TableModel:
        """Read a model that `save` wrote."""
        tensors, card = load_table_bundle(folder)
        prefix = f'{PREPROCESSING}/'
        arrays = {
            name.removeprefix(prefix): tensor.numpy()
            for name, tensor in tensors.items()
            if name.startswith(prefix)
        }
        with reading_model(Path(folder)):
            return cls(
                Preprocessing.from_state(card['Preprocessing'], arrays),
                SurrealGAN.from_state(tensors, card),
                tuple(card['PatternNames']),
                {name: card[name] for name in NOTES if name in card},
            )

    @property
    def meanings(self) -> Mapping[str, str]:
        """Role of the R-indices by name; empty unless the model was published."""
        return dict(self.notes.get('Imported', {}).get('Patterns', {}))


Floats = NDArray[np.floating]


def interval(
    r: Floats, curves: Mapping[str, Any], shared: float = 0.0, share: float = SHARE
) -> tuple[Floats, Floats]:
    """Lower and upper end of the interval of each R-index, in the unit of the R-index.

    The ends are what is expected at the severities at which R-indices as large, or as small, become
    unusual. Beyond the severities that were tried, the distance stays as at the last of them.

    Parameters
    ----------
    r
        R-indices.
    curves
        `Expected`, `Lower` and `Upper` R-index at each of the severities that were tried.
    shared
        Standard error that all of them share, beside those in the curves.
    share
        Of the severities that the curves are meant to hold.
    """
    expected, lower, upper = (np.asarray(curves[row]) for row in ('Expected', 'Lower', 'Upper'))
    reach = shared * in_sd(share)
    low = _follow(r, expected + np.hypot(upper - expected, reach), expected)
    high = _follow(r, expected - np.hypot(lower - expected, reach), expected)
    return np.minimum(low, r), np.maximum(high, r)


def in_sd(share: float) -> float:
    """Half-width of the interval that holds this share of a normal distribution, in SD."""
    return float(norm.ppf((1 + share) / 2))


def _follow(r: Floats, curve: Floats, expected: Floats) -> Floats:
    """Expected R-index where a curve passes r; parallel to the curve beyond its ends."""
    beyond = r - np.clip(r, curve[0], curve[-1])
    return np.interp(r, curve, expected) + beyond


def with_intervals(
    results: pd.DataFrame,
    note: Mapping[str, Any],
    errors: Mapping[str, pd.Series] | None = None,
) -> pd.DataFrame:
    """Add the interval of each R-index to a table of them: columns `r1_low`, `r1_high`, ...

    Parameters
    ----------
    results
        R-indices.
    note
        Intervals, as the card has them.
    errors
        For each R-index, the standard error that participants share with others of their site.
    """
    columns: dict[str, Floats] = {}
    for name, curves in note['Patterns'].items():
        r = results[name].to_numpy(dtype=float)
        error = np.zeros(len(r)) if errors is None else errors[name].to_numpy()
        ends = np.full((2, len(r)), np.nan)
        for each in np.unique(error):
            own = error == each
            ends[:, own] = interval(r[own], curves, each, note['Share'])
        columns |= dict(zip((f'{name}_low', f'{name}_high'), ends))
    return results.assign(**columns)


def with_training_centiles(
    results: pd.DataFrame, controls: Mapping[str, Any], comparable: pd.Series
) -> pd.DataFrame:
    """Add centiles among the controls of the training sample, as the card has them.

    Only of the `comparable` (n_people,): what an unknown scanner adds would pass for a pattern.
    """
    known = results[comparable[results.index]]
    places = {
        name: np.interp(known[name], quantiles, PER_CENT)
        for name, quantiles in controls['Percentiles'].items()
    }
    return add_centiles(results, pd.DataFrame(places, known.index), 'training', controls['Number'])


def add_centiles(
    results: pd.DataFrame, centiles: pd.DataFrame, whose: str, n_controls: int
) -> pd.DataFrame:
    """Add columns `r1_centile`, ..., `centile_of` and `centile_controls`.

    Centiles have one decimal, are never 0 or 100, and not beyond those that so many controls tell.
    """
    least = 50 / (n_controls + 1)
    table = centiles.clip(least, 100 - least).round(1).clip(0.1, 99.9).add_suffix('_centile')
    table = table.assign(centile_of=whose, centile_controls=n_controls)
    others = results.drop(columns=table.columns, errors='ignore')
    return others.join(table).astype({'centile_controls': 'Int64'})


def load_table_bundle(folder: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors and card of a bundle, which must have preprocessing."""
    tensors, card = load_bundle(folder)
    if 'Preprocessing' not in card:
        raise DataError(
            f'{folder}: this model has no preprocessing and takes normalised features only; load '
            'it '
            'in Python with SurrealGAN.load'
        )
    return tensors, card


def describe_sample(
    people: pd.DataFrame, is_patient: pd.Series, options: PreprocessingOptions
) -> dict[str, Any]:
    """Who a model was trained on, as plain JSON values: numbers, covariates and sites by group."""
    groups = {CONTROL: people[~is_patient], PATIENT: people[is_patient]}
    return {
        group: {
            'n': len(rows),
            **{name: _describe_column(rows[name]) for name in options.columns},
        }
        for group, rows in groups.items()
    }


def _describe_column(values: pd.Series) -> dict[str, float]:
    if pd.api.types.is_numeric_dtype(values):
        measures = values.agg(['mean', 'std', 'min', 'max'])
        return {str(name): float(value) for name, value in measures.items()}
    return {str(name): int(count) for name, count in values.value_counts().sort_index().items()}


def describe_features(preprocessing: Preprocessing) -> list[dict[str, Any]]:
    """Each feature with its unit, what it sums, and the numbers that preprocessing uses.

    Coefficients of covariates are of its logarithm where head size is removed by ratio.
    """
    normaliser, residualiser = preprocessing.normaliser, preprocessing.residualiser
    columns = [] if residualiser is None else residualiser.encoder_.column_names_
    unit = 'proportion of ICV' if preprocessing.options.icv == 'proportion' else None
    return [
        {
            'Name': feature.name,
            'Units': unit or preprocessing.structures.unit,
            'MUSERegions': list(feature.indices),
            'CNMean': float(normaliser.mean_[number]),
            'CNStd': float(normaliser.sd_[number]),
            'CoefficientsOf': 'logarithm' if preprocessing.options.icv == 'power' else 'feature',
            'Coefficients': {
                column: float(residualiser.coefficients_[row, number])
                for row, column in enumerate(columns)
                if residualiser is not None
            },
        }
        for number, feature in enumerate(preprocessing.structures.features)
    ]


def make_gan(options: TrainingOptions) -> SurrealGAN:
    """Make a Surreal-GAN that is not fitted yet."""
    return SurrealGAN(
        tuple(options.n_patterns) or None,
        ortho=tuple(options.ortho) or None,
        repetitions=options.repetitions,
        preset=options.preset,
        iterations=options.iterations,
        device=options.device,
        random_state=options.random_seed,
    )


@dataclass(frozen=True, eq=False)
class TrainingData:
    """What training needs of a cohort, after preprocessing was fitted.

    Attributes
    ----------
    preprocessing
        The fitted steps.
    normalised : frame of shape (n_participants, n_features)
        What the network sees of first visits.
    is_patient : Series of shape (n_participants,)
        Who is a patient; the others are controls.
    sample
        Numbers, covariates and sites of the two groups, for the card.
    features, people : frames of shape (n_participants, n_features) and (n_participants, n_columns)
        What preprocessing was fitted to.
    visits
        All visits, where ComBat was fitted to these.
    """

    preprocessing: Preprocessing
    normalised: pd.DataFrame
    is_patient: pd.Series
    sample: dict[str, Any]
    features: pd.DataFrame
    people: pd.DataFrame
    visits: Visits | None = None

    @property
    def arrays(self) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
        """What `SurrealGAN.fit` takes."""
        return self.normalised, self.is_patient.to_numpy(dtype=bool)

    @property
    def least_of_several(self) -> float | None:
        """Minimum stability of several patterns; None: that of single regions."""
        if self.preprocessing.options.sides == APART:
            return None
        # Structures may also come from a list of features, such as muse72.
        features = self.preprocessing.structures.features
        n_united = sum(max(len(each.columns), len(each.indices)) > 1 for each in features)
        return LEAST_FOR_STRUCTURES if n_united > len(features) / 2 else None

    def shuffle(self, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
        """Draw controls and patients (n_people, n_features) as if nobody were ill, and normalise.

        What covariates and sites do not explain is shuffled within sites; everyone keeps their
        label, covariates and site (Freedman and Lane, 1983). Patients who are older than controls
        stay so, and effects of age are extrapolated to them as in the data.
        """
        steps, (own, errors) = self.preprocessing, self._residuals
        measured = self._of_model(self.features)
        shift = errors[self._shuffled_rows(rng)] - own
        shifts = pd.DataFrame(shift, measured.index, measured.columns)
        features = add_to_features(measured, self.people, shifts, steps.options)
        visits = self.visits
        if visits is not None:
            of_structures = self._of_model(visits.features)
            # Who is not among the participants, such as those of a site without controls, stays.
            of_visits = shifts.reindex(visits.first, fill_value=0.0).set_axis(of_structures.index)
            moved = add_to_features(of_structures, visits.people, of_visits, steps.options)
            visits = replace(visits, features=moved)
        # Sides are together already.
        options = replace(steps.options, sides=APART)
        with without_warnings():
            _, prepared = fit_preprocessing(
                steps.structures, options, features, self.people, ~self.is_patient, visits
            )
        values, rows = prepared.normalised.to_numpy(), self.is_patient.to_numpy(dtype=bool)
        return values[~rows], values[rows]

    def _of_model(self, features: pd.DataFrame) -> pd.DataFrame:
        """Return the features of the model: structures, if it sees both sides as one."""
        paired = self.preprocessing.paired
        return features if paired is None else combine_sides(features, paired)

    @cached_property
    def _residuals(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return residuals_of_all(self.preprocessing, self.features, self.people)

    def _shuffled_rows(self, rng: np.random.Generator) -> NDArray[np.intp]:
        """Whose residuals everyone gets."""
        rows, site = np.arange(len(self.people)), self.preprocessing.options.site_column
        if site is None:
            return rng.permutation(rows)
        for some in self.people.groupby(site).indices.values():
            rows[some] = rng.permutation(some)
        return rows


def prepare(cohort: Cohort, with_regions: bool = True) -> TrainingData:
    """Fit preprocessing to first visits; train on those that are complete and harmonized.

    Parameters
    ----------
    cohort
        Controls and patients.
    with_regions
        Whether the steps are also fitted to single regions, if the model sees structures. Models of
        folds do without: nobody's z-scores are computed by them.
    """
    first = cohort.first_visits()
    for group, count in cohort.counts.items():
        if count < MIN_PEOPLE:
            raise DataError(
                f'{counted(count, SINGULAR[group])} at first visits, but training needs at least '
                f'{MIN_PEOPLE}; add participants'
            )
    visits = _visits_across_sites(cohort)
    steps, prepared = fit_preprocessing(
        cohort.wanted, cohort.options, first.features, first.people, ~first.is_patient, visits
    )
    if with_regions:
        steps = fit_to_regions(steps, first.features, first.people, ~first.is_patient, visits)
    normalised = prepared.normalised
    normalised = normalised[prepared.status[normalised.index] == COMPLETE]
    is_patient = first.is_patient[normalised.index]
    people = first.people.loc[normalised.index, cohort.options.columns]
    sample = describe_sample(people, is_patient, cohort.options)
    features = first.features.loc[normalised.index]
    return TrainingData(steps, normalised, is_patient, sample, features, people, visits)


def _visits_across_sites(cohort: Cohort) -> Visits | None:
    """Visits, if ComBat is to compare sites within participants; None: it uses first visits.

    Without those after a change of the group: disease would be taken for a difference of sites.
    """
    person, is_first = cohort.visits[PARTICIPANT], cohort.visits['is_first']
    first = person.map(dict(zip(person[is_first], cohort.visits.index[is_first])))
    kept = cohort.is_patient == first.map(cohort.is_patient)
    used = kept & ~cohort.is_patient
    if not learns_from_visits(person[used], cohort.people[used], cohort.options):
        return None
    return Visits(cohort.features[kept], cohort.people[kept], first[kept])


def require_trainable(data: TrainingData, options: TrainingOptions) -> None:
    """Refuse settings that do not suit the sample; warn of what will not be known."""
    most, n_features = max(options.n_patterns, default=0), data.normalised.shape[1]
    if most > n_features:
        raise DataError(
            f'--n-patterns {most} exceeds the number of features ({n_features}); reduce it'
        )
    make_gan(options).check_sample(*data.arrays)
    if options.repetitions == 1:
        LOGGER.warning(
            Caution(
                '--repetitions 1: there is one member, that is one training run',
                'It is not known whether another random seed would find the same patterns',
                'Use 2 or more',
                MODEL,
            )
        )


def digests_of_rows(features: pd.DataFrame, names: Sequence[str]) -> pd.Series:
    """Digest of the volumes of each row, by which a training participant is recognised."""
    values = features[list(names)].to_numpy(dtype='<f4')
    return pd.Series(
        [hashlib.sha256(row.tobytes()).hexdigest()[:12] for row in values], features.index
    )


def train_patterns(
    data: TrainingData, options: TrainingOptions, n_patterns: int, checkpoint_dir: Path
) -> Path:
    """Train all members of one number of patterns; if interrupted, the same call resumes."""
    gan = make_gan(replace(options, n_patterns=(n_patterns,)))
    return gan.train(*data.arrays, n_patterns, checkpoint_dir)


def select_model(
    data: TrainingData,
    options: TrainingOptions,
    checkpoint_dir: Path | None = None,
    assess_number: bool = True,
    like: SurrealGAN | None = None,
) -> TableModel:
    """Choose M and lambda and form the consensus.

    Members that :func:`train_patterns` has trained are read from the checkpoints; others are
    trained.
    """
    gan = make_gan(options).fit(
        *data.arrays,
        shuffle=data.shuffle,
        assess_number=assess_number,
        like=like,
        least_of_several=data.least_of_several,
        checkpoint_dir=checkpoint_dir,
    )
    names = tuple(f'r{number}' for number in range(1, gan.selected_.n_patterns + 1))
    rows = digests_of_rows(data.features, data.preprocessing.features.names)
    notes: dict[str, Any] = {'TrainingSample': data.sample, SEEN: sorted(rows)}
    if assess_number and names and hyperparameters(options.preset).start == 'factors':
        notes[REPRODUCIBILITY] = _reproducibility(data, gan, names)
    return TableModel(data.preprocessing, gan, names, notes)


def _reproducibility(
    data: TrainingData, gan: SurrealGAN, names: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Reproducibility of each pattern: the median of subsamples, and 90 % of them."""
    X, is_patient = data.arrays
    values = X.to_numpy()
    cn, pt = values[~is_patient], values[is_patient]
    r_NM = np.asarray(gan.transform(pt))
    found = reproduce(cn, pt, r_NM, gan.random_state)
    low, median, high = np.quantile(found, [0.05, 0.5, 0.95], axis=0).round(3).tolist()
    rows = zip(names, median, low, high)
    return {name: {'Median': m, 'Low': lo, 'High': hi} for name, m, lo, hi in rows}
