"""How well the patterns of a model exist in a second cohort, which has controls and patients.

The model of the original study is applied to the second cohort, and a model of its own with the
same number of patterns is trained there. Both score the same patients, out of fold, and neither
has learned anything from them: where both have found the same pattern, their R-indices agree, and
the same regions change.

R-indices of one brain agree to some extent whatever the patterns are, since all regions vary with
the size of the brain and with general atrophy. The reference is therefore what unrelated patterns
give: patterns of the second cohort after a permutation that leaves nobody ill, and the other
patterns of both models.

Shapes: N patients, S regions, M patterns, R permutations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from surreal_bids.analysis.patterns import LEAST_CHANGE, LEAST_ENLARGEMENT
from surreal_bids.analysis.statistics import (
    associate,
    compare_groups,
    separate,
    warn_of_differences,
)
from surreal_bids.cautions import MODEL, PARTICIPANTS, R_INDICES, Caution
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.config import TrainingOptions
from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.covariates import CN_SD
from surreal_bids.model.factors import fit_samples, most_patterns, one_thread
from surreal_bids.model.networks import MIN_PEOPLE
from surreal_bids.model.number import (
    CANDIDATES,
    PERMUTATIONS,
    Number,
    choose_number,
)
from surreal_bids.names import PARTICIPANT, SINGULAR
from surreal_bids.parallel import in_threads
from surreal_bids.progress import report, stage
from surreal_bids.regions import readable_name
from surreal_bids.rindices.crossfit import (
    Folds,
    Trained,
    assign_folds,
    cross_fit,
    final_results,
    fit_folds,
    prepare_folds,
)
from surreal_bids.rindices.model import (
    SEEN,
    TableModel,
    TrainingData,
    prepare,
    select_model,
)
from surreal_bids.rindices.new_sites import HERE, adapt_to_controls
from surreal_bids.rindices.preprocessing import COMPLETE
from surreal_bids.stats.concordance import match_patterns
from surreal_bids.text import counted, list_briefly

Floats = NDArray[np.floating]

REPLICATED, UNCERTAIN, NOT_REPLICATED = 'replicated', 'uncertain', 'not replicated'
NOT_ASSESSED = 'not assessed'
"""Verdicts on a pattern; the last one where the cohort has no pattern of its own."""

FORWARD, BACKWARD = 'original in second cohort', 'second cohort in original'
"""Whose patterns are looked for in whom."""

CHANCE_LEVEL = 0.95
"""Quantile of what unrelated patterns give that a replicated pattern has to exceed."""

LEAST_AGREEMENT = 0.6
"""Correlation of R-indices below which no pattern is called replicated. Diseases that share a
general atrophy, but differ in regions, exceed what unrelated patterns give."""

NO_AREA = 0.5
"""Area under the curve of an R-index that does not tell patients from controls."""

MEAN_SEVERITY = 0.5
"""Severity at which changes of regions are compared: that of the mean patient."""

_PERMUTATION = 4
"""Stream of random numbers."""

REPLICATION_COLUMNS = (
    *('direction', 'pattern', 'matched_pattern', 'verdict', 'analysis', 'measure'),
    *('estimate', 'low', 'high', 'reference', 'p', 'p_corrected', 'n'),
)
"""Columns of the table of results, which has a row for each estimate."""

NUMBERS = ('estimate', 'low', 'high', 'reference', 'p', 'p_corrected')
"""Those that are written to six digits."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """The patterns of a model in a cohort, beside those of the cohort's own model.

    Attributes
    ----------
    direction
        `FORWARD` or `BACKWARD`.
    cohort
        Participants with both R-indices.
    patterns : frame of shape (M, ...)
        One row per pattern of the model that comes from elsewhere: see :func:`compare_patterns`.
    associations, separation : frame
        Of its R-indices in the cohort; see `Analysis.associations` and `separate`.
    is_held_out
        Whether the cohort's own R-indices are out of fold.
    """

    direction: str
    cohort: Cohort
    patterns: pd.DataFrame
    associations: pd.DataFrame
    separation: pd.DataFrame
    is_held_out: bool

    @property
    def n_replicated(self) -> int:
        """Number of patterns that are replicated."""
        return int((self.patterns['verdict'] == REPLICATED).sum())


@dataclass(frozen=True, eq=False, kw_only=True)
class Replication:
    """How well the patterns of a model exist in a second cohort.

    Attributes
    ----------
    model
        The original model, which has learned the sites of the second cohort.
    number
        How many patterns the second cohort shows on its own.
    forward
        The original patterns in the second cohort; its own patterns are not known if there are
        none.
    backward
        Patterns of the second cohort in the original one; None without its tables.
    maps : frame
        Change of each region by each pattern in SD of controls: `pattern`, `region`,
        `muse_regions`, `original` and `second`. Empty if the second cohort has no patterns.
    cautions
        What to check.
    """

    model: TableModel
    number: Number
    forward: Comparison
    backward: Comparison | None = None
    maps: pd.DataFrame = field(default_factory=pd.DataFrame)
    cautions: tuple[Caution, ...] = ()

    @property
    def has_patterns(self) -> bool:
        """Whether the second cohort shows any pattern of its own."""
        return self.number.n_patterns > 0

    @property
    def table(self) -> pd.DataFrame:
        """All results, a row for each estimate."""
        comparisons = [self.forward, self.backward]
        tables = [_tidy(each) for each in comparisons if each is not None]
        rows = pd.concat([*tables, _tidy_number(self.number)], ignore_index=True)
        rows = rows.reindex(columns=list(REPLICATION_COLUMNS)).astype({'n': 'Int64'})
        numbers = rows[list(NUMBERS)].astype(float).map(lambda value: float(f'{value:.6g}'))
        return rows.assign(**{name: numbers[name] for name in NUMBERS})


def replicate(
    model: TableModel,
    cohort: Cohort,
    options: TrainingOptions,
    original: Cohort | None = None,
    original_indices: pd.DataFrame | None = None,
    checkpoint_dir: Path | None = None,
    n_procs: int = 1,
) -> Replication:
    """Look for the patterns of a model in a second cohort, and the other way round.

    Parameters
    ----------
    model
        Model of the original study.
    cohort
        Controls and patients that the model was not trained on, read for it
        (:func:`~surreal_bids.cohort.cohort.read_cohort` with `model`).
    options
        How the model of the second cohort is trained; its number of patterns is that of `model`.
    original
        Participants whom `model` was trained on, read for it; None: they are not at hand.
    original_indices
        Their out-of-fold R-indices by visit; None: those of `model`, which are in sample.
    checkpoint_dir, n_procs
        As of :func:`~surreal_bids.rindices.crossfit.train`.
    """
    require_second_cohort(model, cohort)
    if original is not None:
        original = require_original(model, original)
    cohort = replace(cohort, apart=None)
    data, folds = prepare_own(cohort, options)
    seed = options.random_seed
    with stage('number of patterns'):
        number = _choose_own_number(data, len(model.pattern_names), options)
    taught, foreign = score_without_own_site(model, cohort, assign_folds(cohort, options))
    cautions = _cautions_of(model, cohort)
    result = Replication(
        model=taught, number=number, forward=_describe_alone(taught, cohort, foreign)
    )
    if not number.n_patterns:
        return replace(result, cautions=tuple(cautions))
    own = train_own(data, folds, options, len(model.pattern_names), checkpoint_dir, n_procs)
    maps = change_maps(model), change_maps(own.model)
    with stage('comparison'):
        scores = score_own(cohort, own)
        forward = compare(FORWARD, cohort, data, foreign, scores, maps, number, seed)
    backward = None
    if original is not None:
        cautions += _doubts_of_original(original_indices)
        backward = _look_back(model, own.model, original, original_indices, options)
    if not forward.is_held_out:
        cautions.append(NOT_HELD_OUT)
    side_by_side = _describe_maps(model, forward.patterns, *maps)
    result = replace(result, forward=forward, backward=backward, maps=side_by_side)
    return replace(result, cautions=tuple(cautions))


NOT_HELD_OUT = Caution(
    'The R-indices of the second cohort by its own model are in sample',
    'Their agreement with those of the original model is biased, and no pattern is called '
    'replicated',
    'Use --folds 5 and more participants',
    R_INDICES,
)
"""Warning of a second cohort whose own model was trained without folds."""


def require_second_cohort(model: TableModel, cohort: Cohort) -> None:
    """Refuse a model without patterns, a cohort without groups, and training participants.

    Raises
    ------
    DataError
        The patterns of the model cannot be looked for in these participants.
    """
    if not model.pattern_names:
        raise DataError('the model has no patterns, so there is nothing to replicate')
    for group, count in cohort.counts.items():
        if count < MIN_PEOPLE:
            raise DataError(
                f'{counted(count, SINGULAR[group])} in the second cohort, but controls and '
                f'patients are needed, at least {MIN_PEOPLE} of each; name the groups with '
                '--group-column, --control-label and --patient-label, or add participants'
            )
    is_seen = model.trained_on(cohort)
    if is_seen.any():
        names = cohort.visits.loc[is_seen, PARTICIPANT].unique()
        raise DataError(
            f'the model was trained on {counted(len(names), "participant")} of the second cohort: '
            f'{list_briefly(names)}. Remove them from the table or list them in a file for '
            '--exclude: only participants who are new to the model can replicate its patterns'
        )


def require_original(model: TableModel, original: Cohort) -> Cohort:
    """Keep the participants whom the model was trained on; refuse a cohort without them."""
    first = model.trained_on(original) & original.visits['is_first']
    if not first.any():
        raise DataError(
            'the model was not trained on any of these participants; give the tables '
            'that the model was fitted to'
        )
    return replace(original.select(first), apart=None)


def _cautions_of(model: TableModel, cohort: Cohort) -> list[Caution]:
    """Collect warnings of the second cohort and of a model with unknown training participants."""
    cautions = [*cohort.warnings, *warn_of_differences(compare_groups(cohort))]
    if SEEN not in model.notes:
        cautions.append(UNKNOWN_PARTICIPANTS)
    return cautions


UNKNOWN_PARTICIPANTS = Caution(
    'The model does not list its training participants',
    'It is not known whether any of them are in the second cohort, whose R-indices would then be '
    'in sample',
    'Make sure that the two cohorts have no participant in common',
    PARTICIPANTS,
)
"""Warning of published models, and of models of earlier versions."""


def _doubts_of_original(indices: pd.DataFrame | None) -> list[Caution]:
    """Warn of an original cohort whose out-of-fold R-indices are not known."""
    if indices is not None:
        return []
    return [
        Caution(
            'There are no out-of-fold R-indices of the original cohort in the folder of the model',
            'Those by the model itself are used, which are in sample',
            'Give the folder that "surreal-gan fit" wrote, with rindices.tsv in it',
            MODEL,
        )
    ]


def prepare_own(cohort: Cohort, options: TrainingOptions) -> tuple[TrainingData, Folds | None]:
    """Fit preprocessing for a model of the cohort's own, to everyone and without each fold.

    Features and covariates are those of the original model, which the cohort was read for.
    """
    cohort = with_several_sites(cohort)
    return prepare(cohort), prepare_folds(cohort, options)


def with_several_sites(cohort: Cohort) -> Cohort:
    """Drop the site of a cohort that has one site only: there is nothing to harmonize."""
    column = cohort.options.site_column
    if column is None or len(cohort.people[column].unique()) > 1:
        return cohort
    options = replace(cohort.options, site_column=None)
    return replace(cohort, options=options, people=cohort.people[options.columns])


def _choose_own_number(data: TrainingData, n_original: int, options: TrainingOptions) -> Number:
    """Choose the number of patterns of the second cohort; that of the original is tried, too."""
    X, is_patient = data.arrays
    values = X.to_numpy()
    possible = [m for m in CANDIDATES if m <= most_patterns(values.shape[1])]
    return choose_number(
        values[~is_patient],
        values[is_patient],
        sorted({*possible, n_original}),
        options.random_seed,
        data.shuffle,
        least_of_several=data.least_of_several,
    )


def train_own(
    data: TrainingData,
    folds: Folds | None,
    options: TrainingOptions,
    n_patterns: int,
    checkpoint_dir: Path | None = None,
    n_procs: int = 1,
) -> Trained:
    """Train the model of the second cohort, and one without each fold."""
    options = replace(options, n_patterns=(n_patterns,))
    with stage('model of the second cohort'):
        model = select_model(data, options, checkpoint_dir, assess_number=False)
    if folds is None:
        return Trained(model)
    return Trained(model, *fit_folds(folds, model, options, checkpoint_dir, n_procs))


class Scores(NamedTuple):
    """R-indices of visits (n_visits, M), and whether they are out of fold."""

    indices: pd.DataFrame
    is_held_out: bool = True


def score_own(cohort: Cohort, trained: Trained) -> Scores:
    """Compute the R-indices of a cohort by its own models, out of fold where there are folds."""
    names = list(trained.model.pattern_names)
    cohort = with_several_sites(cohort)
    if trained.folds is None:
        return Scores(final_results(cohort, trained.model)[names], False)
    fitted = cross_fit(cohort, trained.model, trained.folds, trained.fold_models)
    return Scores(fitted.results[names])


def score_without_own_site(
    model: TableModel, cohort: Cohort, folds: Folds | None
) -> tuple[TableModel, pd.DataFrame]:
    """Compute R-indices by a model that learns the sites of a cohort from its controls.

    Controls would be too close to the mean of a site that was learned from themselves. The sites
    are therefore learned without each fold, and applied to that fold.

    Returns
    -------
    model
        The model that has learned the sites from all controls.
    DataFrame of shape (n_visits, M)
        R-indices; missing for participants of sites whose controls are all in one fold.
    """
    taught, named = adapt_to_controls(model, cohort)
    names = list(model.pattern_names)
    if folds is None:
        return taught, taught.apply(named)[names]
    column = str(cohort.options.site_column)
    parts = []
    for fold in range(1, folds.count + 1):
        is_held_out = folds.number == fold
        teacher = cohort.select(~is_held_out)
        held_out = cohort.select(is_held_out)
        without_fold, _ = adapt_to_controls(model, teacher)
        people = held_out.people.assign(**{column: held_out.people[column].map(HERE.format)})
        results = without_fold.with_unseen_site('skip').compute(held_out.features, people)
        # As measured, a volume of an unknown scanner would pass for a pattern.
        parts.append(results[names].where(results['status'] == COMPLETE))
    return taught, pd.concat(parts).loc[cohort.visits.index]


def change_maps(model: TableModel) -> Floats:
    """Compute what each pattern changes in the mean control, (M, S), in SD of controls.

    The generator shows it at the severity of the mean patient, so that no participants are needed.
    """
    n_patterns = len(model.pattern_names)
    severities = np.vstack([np.zeros(n_patterns), MEAN_SEVERITY * np.eye(n_patterns)])
    healthy, *changed = model.gan.synthesise(severities)
    return (np.array(changed) - healthy) / CN_SD


def compare(
    direction: str,
    cohort: Cohort,
    data: TrainingData,
    foreign: pd.DataFrame,
    own: Scores,
    maps: tuple[Floats, Floats],
    number: Number | None,
    seed: int,
) -> Comparison:
    """Compare the patterns of a model from elsewhere with those of the cohort's own model.

    Parameters
    ----------
    direction
        `FORWARD` or `BACKWARD`.
    cohort, data
        Participants, and what their own model was trained on.
    foreign, own
        R-indices by the two models.
    maps : (M, S) and (M, S)
        What the patterns of the two models change.
    number
        How many patterns the cohort shows; None: not known.
    seed
        Of the permutations.
    """
    everyone = data.normalised.index
    compared = everyone[data.is_patient[everyone]]
    has_both = foreign.loc[compared].notna().all(axis=1)
    has_both &= own.indices.loc[compared].notna().all(axis=1)
    compared = compared[has_both]
    null = permuted_agreement(data, foreign.loc[compared], maps[0], seed)
    patterns = compare_patterns(foreign.loc[compared], own.indices.loc[compared], maps, null)
    separation, associations = describe_indices_of(cohort, foreign)
    areas = separation.set_index('index').reindex(patterns['pattern'])
    areas = areas.set_index(patterns.index)[['estimate', 'low', 'high']]
    patterns = patterns.join(areas.set_axis(['auc', 'auc_low', 'auc_high'], axis=1))
    is_stable = is_number_stable(number, len(patterns))
    rows = patterns.to_dict('records')
    patterns['verdict'] = [judge(row, own.is_held_out, is_stable) for row in rows]
    return Comparison(
        direction=direction,
        cohort=cohort,
        patterns=patterns,
        associations=associations,
        separation=separation,
        is_held_out=own.is_held_out,
    )


class Null(NamedTuple):
    """What unrelated patterns give: correlations of R-indices and of maps, (R, M) each."""

    agreement: Floats
    similarity: Floats


@one_thread()
def permuted_agreement(
    data: TrainingData, foreign: pd.DataFrame, changes: Floats, seed: int
) -> Null:
    """Compare the patterns of a model with those found in a cohort in which nobody is ill.

    What covariates and sites do not explain is permuted, factors are fitted to the permuted
    cohort, and their severities are computed in the patients as they are. The best match of each
    pattern counts, as in the comparison.

    Parameters
    ----------
    data
        What the own model of the cohort was trained on.
    foreign : frame of shape (N, M)
        R-indices of some of its patients by the model from elsewhere.
    changes : (M, S)
        What its patterns change.
    seed
        Of the permutations.
    """
    patients = data.normalised.loc[foreign.index].to_numpy()
    indices = foreign.to_numpy(dtype=float)
    n_patterns = len(changes)

    def compare_with(groups: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        everyone = (np.arange(len(groups[0])), np.arange(len(groups[1])))
        (factors,) = fit_samples(*groups, [everyone], n_patterns)
        agreement = correlate(indices, factors.severities(patients))
        similarity = correlate(changes.T, factors.patterns)
        return _best_match(agreement), _best_match(similarity)

    shuffled = _shuffles(data, seed)
    pairs = []
    for done, pair in enumerate(in_threads(compare_with, shuffled), start=1):
        report(done, PERMUTATIONS, f'permutations: {done} of {PERMUTATIONS}')
        pairs.append(pair)
    agreements, similarities = zip(*pairs)
    return Null(np.array(agreements), np.array(similarities))


def _shuffles(data: TrainingData, seed: int) -> Iterator[tuple[Floats, Floats]]:
    """Draw controls and patients as if nobody were ill, once for each permutation."""
    for number in range(PERMUTATIONS):
        yield data.shuffle(np.random.default_rng((seed, _PERMUTATION, number)))


def correlate(first: Floats, second: Floats) -> Floats:
    """Correlate the columns of two arrays, (N, M) each; a constant column correlates at 0."""
    standardised = []
    for values in (first, second):
        centred = values - values.mean(axis=0)
        sd = centred.std(axis=0)
        unit = np.divide(centred, sd, out=np.zeros_like(centred, dtype=float), where=sd > 0)
        standardised.append(np.nan_to_num(unit))
    return np.asarray(standardised[0].T @ standardised[1] / len(first))


def _best_match(correlation: Floats) -> Floats:
    """Correlation of each row's pattern with the one it is matched to."""
    order = match_patterns(correlation.T)
    return np.asarray(correlation[np.arange(len(order)), order])


def compare_patterns(
    foreign: pd.DataFrame, own: pd.DataFrame, maps: tuple[Floats, Floats], null: Null
) -> pd.DataFrame:
    """Match the patterns of two models, and compare them with what unrelated patterns give.

    Parameters
    ----------
    foreign, own : frames of shape (N, M)
        R-indices of the same patients by the two models.
    maps : (M, S) and (M, S)
        What their patterns change.
    null
        What unrelated patterns give.

    Returns
    -------
    DataFrame, one row per pattern of the model from elsewhere
        `pattern` and `matched_pattern`; `agreement`, the correlation of their R-indices, with its
        95 % interval (`agreement_low`, `agreement_high`) and number of patients `n`;
        `agreement_reference`, the larger of the 95th centile of permutations and of the correlation
        with another pattern; `similarity`, the correlation of their changes over regions, its
        reference, and number of regions.
    """
    agreement = correlate(foreign.to_numpy(dtype=float), own.to_numpy(dtype=float))
    similarity = correlate(maps[0].T, maps[1].T)
    order = match_patterns(agreement.T)
    rows = []
    for row, matched in enumerate(order):
        tested = stats.pearsonr(foreign.iloc[:, row], own.iloc[:, matched])
        low, high = tested.confidence_interval(0.95)
        rows.append(
            {
                'pattern': str(foreign.columns[row]),
                'matched_pattern': str(own.columns[matched]),
                'agreement': float(tested.statistic),
                'agreement_low': float(low),
                'agreement_high': float(high),
                'agreement_reference': _reference(agreement, row, matched, null.agreement),
                'n': len(foreign),
                'similarity': float(similarity[row, matched]),
                'similarity_reference': _reference(similarity, row, matched, null.similarity),
                'n_regions': maps[0].shape[1],
            }
        )
    return pd.DataFrame(rows)


def _reference(correlation: Floats, row: int, matched: int, null: Floats) -> float:
    """Return what unrelated patterns give: permuted data, and other patterns of both models."""
    by_chance = float(np.quantile(null[:, row], CHANCE_LEVEL))
    in_row = np.delete(correlation[row], matched)
    in_column = np.delete(correlation[:, matched], row)
    return max([by_chance, *in_row.tolist(), *in_column.tolist()])


def judge(row: Mapping[Any, Any], is_held_out: bool = True, is_stable: bool = True) -> str:
    """Return the verdict on a pattern.

    It is replicated if its R-indices agree with those of the matched pattern at `LEAST_AGREEMENT`
    or more, and by the lower limit of the interval more than those of unrelated patterns; if the
    same regions change; and if patients have higher R-indices than controls. It is not replicated
    if one of these is no better than its reference. A cohort that is too small to show so many
    patterns cannot tell, unless its patients do not even have higher R-indices.

    Parameters
    ----------
    row
        A row of `Comparison.patterns`.
    is_held_out
        Whether the R-indices of the cohort's own model are out of fold.
    is_stable
        Whether so many patterns are stable in the cohort.
    """
    separates = row['auc'] > NO_AREA
    agrees = row['agreement'] > row['agreement_reference']
    is_alike = row['similarity'] > row['similarity_reference']
    if not separates or (is_stable and not (agrees and is_alike)):
        return NOT_REPLICATED
    is_clear = row['agreement_low'] > row['agreement_reference'] and row['auc_low'] > NO_AREA
    is_high = row['agreement'] >= LEAST_AGREEMENT
    if is_alike and is_clear and is_high and is_held_out:
        return REPLICATED
    return UNCERTAIN


def is_number_stable(number: Number | None, n_patterns: int) -> bool:
    """Tell whether a cohort shows so many patterns in a stable way; True where it is not known."""
    if number is None:
        return True
    tried = [each for each in number.stabilities if each.n_patterns == n_patterns]
    return all(each.is_reproduced for each in tried)


def describe_indices_of(cohort: Cohort, indices: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Compute how R-indices separate the groups, and their associations in patients."""
    first = cohort.first_visits()
    patients = first.select(first.is_patient)
    covariates, measures = patients.covariates_and_measures()
    associations, _ = associate(measures, indices.loc[patients.visits.index], covariates)
    return separate(cohort, indices), associations


def _describe_alone(model: TableModel, cohort: Cohort, foreign: pd.DataFrame) -> Comparison:
    """Describe R-indices in a cohort that has no patterns to compare them with."""
    separation, associations = describe_indices_of(cohort, foreign)
    patterns = pd.DataFrame({'pattern': list(model.pattern_names), 'verdict': NOT_ASSESSED})
    areas = separation.set_index('index')[['estimate', 'low', 'high']]
    areas = areas.set_axis(['auc', 'auc_low', 'auc_high'], axis=1)
    return Comparison(
        direction=FORWARD,
        cohort=cohort,
        patterns=patterns.join(areas, on='pattern'),
        associations=associations,
        separation=separation,
        is_held_out=True,
    )


def _look_back(
    model: TableModel,
    own_model: TableModel,
    original: Cohort,
    indices: pd.DataFrame | None,
    options: TrainingOptions,
) -> Comparison:
    """Look for the patterns of the second cohort in the original one."""
    data = prepare(with_several_sites(original))
    _, foreign = score_without_own_site(own_model, original, assign_folds(original, options))
    is_held_out = indices is not None
    if indices is None:
        indices = model.with_unseen_site('skip').apply(original)[list(model.pattern_names)]
    own = Scores(indices.reindex(original.visits.index), is_held_out)
    maps = change_maps(own_model), change_maps(model)
    number = model.gan.number_
    return compare(BACKWARD, original, data, foreign, own, maps, number, options.random_seed)


def _describe_maps(
    model: TableModel, patterns: pd.DataFrame, original: Floats, second: Floats
) -> pd.DataFrame:
    """Put what matched patterns change side by side, one row per pattern and region."""
    features = model.preprocessing.structures.features
    tables = []
    for row, (name, matched) in enumerate(zip(patterns['pattern'], patterns['matched_pattern'])):
        tables.append(
            pd.DataFrame(
                {
                    'pattern': name,
                    'region': [readable_name(feature) for feature in features],
                    'muse_regions': [' '.join(map(str, f.indices)) or None for f in features],
                    'original': original[row],
                    'second': second[list(model.pattern_names).index(matched)],
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


def is_shown(change: pd.Series) -> pd.Series:
    """Tell which changes are large enough for reports, as in the table of patterns."""
    return (change < -LEAST_CHANGE) | (change > LEAST_ENLARGEMENT)


def _tidy(comparison: Comparison) -> pd.DataFrame:
    """Return all estimates of a comparison, a row for each."""
    rows: list[dict[str, object]] = []
    for row in comparison.patterns.to_dict('records'):
        pattern = {
            'direction': comparison.direction,
            'pattern': row['pattern'],
            'matched_pattern': row.get('matched_pattern'),
            'verdict': row['verdict'],
        }
        rows += [pattern | estimate for estimate in _tidy_comparison(row)]
        of_index = {
            'separation': (comparison.separation, NO_AREA),
            'association': (comparison.associations, 0.0),
        }
        for analysis, (table, reference) in of_index.items():
            estimates = table[table['index'] == row['pattern']].to_dict('records')
            named = pattern | {'analysis': analysis, 'reference': reference}
            rows += [estimate | named for estimate in estimates]
    return pd.DataFrame(rows).reindex(columns=list(REPLICATION_COLUMNS))


def _tidy_comparison(row: Mapping[Any, Any]) -> Iterator[dict[str, object]]:
    """Return how a pattern compares with the matched one; nothing if it was not matched."""
    if 'agreement' not in row:
        return
    yield {
        'analysis': 'agreement',
        'measure': 'R-index',
        'estimate': row['agreement'],
        'low': row['agreement_low'],
        'high': row['agreement_high'],
        'reference': row['agreement_reference'],
        'n': row['n'],
    }
    yield {
        'analysis': 'regions',
        'measure': 'change',
        'estimate': row['similarity'],
        'reference': row['similarity_reference'],
        'n': row['n_regions'],
    }


def _tidy_number(number: Number) -> pd.DataFrame:
    """Return the stability of each number of patterns in the second cohort, a row for each."""
    rows = []
    for tried in number.stabilities:
        is_chosen = tried.n_patterns == number.n_patterns
        rows.append(
            {
                'analysis': 'stability',
                'measure': counted(tried.n_patterns, 'pattern')
                + (' (chosen)' if is_chosen else ''),
                'estimate': tried.value,
                'reference': tried.needed,
                'p': tried.p_value,
            }
        )
    return pd.DataFrame(rows)
