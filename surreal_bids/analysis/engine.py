"""What a model shows in a cohort: R-indices, patterns, associations, reproducibility, sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import nibabel as nib
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from surreal_bids.analysis.change import follow_visits, sites_of
from surreal_bids.analysis.diagnosis import compare_groups, diagnose
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.cohort.exclusions import GROUP_NAMES
from surreal_bids.columns import column_of
from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.combat import ComBat
from surreal_bids.harmonization.covariates import CN_SD
from surreal_bids.harmonization.quality import N_FOLDS, HarmonizationQuality, assess_harmonization
from surreal_bids.model.train import pattern_changes
from surreal_bids.regions import readable_name
from surreal_bids.rindices.control_sensitivity import shift_of_controls
from surreal_bids.rindices.crossfit import NEITHER, CrossFit, final_results, split_halves
from surreal_bids.rindices.model import BASELINE, R_INDEX, VISIT, TableModel
from surreal_bids.rindices.preprocessing import prepare_inputs
from surreal_bids.rindices.uncertainty import add_standing, with_centiles
from surreal_bids.stats.associations import associate, associate_covariates
from surreal_bids.stats.concordance import pattern_reproducibility
from surreal_bids.stats.glm import Skipped

HALVES_COLUMNS = [
    *('comparison', 'participants', 'outcome'),
    *('pattern', 'counterpart', 'c_index', 'pearson', 'regions_pearson'),
]
"""Columns of the table of split halves."""

PATTERN_COLUMNS = [
    *('pattern', 'region', 'muse_regions'),
    *('change_percent', 'change_percent_member_spread', 'change_sd'),
]
"""Columns of the table of patterns."""


@dataclass(frozen=True, eq=False)
class GroupResults:
    """What was found in a cohort.

    Attributes
    ----------
    cohort, model
        Whom, and by which model.
    results : frame
        R-indices of every visit: of participants held out, where `fitted` is there.
    harmonized : frame
        Volumes of every visit without site effects.
    patterns : frame
        What each pattern changes in each region; see `describe_patterns`.
    associations, untested
        Correlations with other measures, and why others were not tested.
    covariates : frame
        What R-indices have to do with covariates; see `describe_covariates`.
    shift : Series of shape (n_patterns,)
        How much mean R-indices depend on who the controls are; see `shift_of_controls`.
    quality, halves
        What harmonization did, and how alike models of two halves are; None where not known.
    fitted, diagnosis
        Models of folds, and how well the held out are told apart; None where a model was applied,
        or trained without folds.
    differences : frame
        What else patients and controls differ in; see `compare_groups`.
    changes, group_change : frame, or None
        What changed between visits (`describe_changes`), and how much per year in either group
        (`compare_groups_over_time`); None where everyone has one visit.
    contributions : frame
        What each feature contributes to each R-index; see `TableModel.contributions`.
    """

    cohort: Cohort
    model: TableModel
    results: pd.DataFrame
    harmonized: pd.DataFrame
    patterns: pd.DataFrame
    associations: pd.DataFrame
    untested: Mapping[str, str]
    quality: HarmonizationQuality | None = None
    halves: pd.DataFrame | None = None
    covariates: pd.DataFrame = field(default_factory=pd.DataFrame)
    fitted: CrossFit | None = None
    shift: pd.Series = field(default_factory=lambda: pd.Series(dtype=float))
    diagnosis: pd.DataFrame | None = None
    differences: pd.DataFrame = field(default_factory=pd.DataFrame)
    changes: pd.DataFrame | None = None
    group_change: pd.DataFrame | None = None
    contributions: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def names(self) -> list[str]:
        """Names of the R-indices."""
        return list(self.model.pattern_names)

    @property
    def whose(self) -> Literal['patients', 'participants']:
        """In whom patterns are described: in everyone where there are no patients."""
        return 'patients' if self.cohort.counts['PT'] else 'participants'

    @property
    def found_again(self) -> list[str]:
        """Names of the R-indices that anybody has: no fold may have found a pattern again."""
        return [name for name in self.names if self.results[name].notna().any()]

    @property
    def first_visits(self) -> pd.DataFrame:
        """Results of first visits, one row per participant, with the group."""
        first = self.cohort.first_visits().visits
        return self.results.loc[first.index].assign(group=first['group'])

    def deviations(self) -> pd.DataFrame:
        """Visits, with age, sex and site as known, and how far regions are from controls, in SD."""
        steps = self.model.preprocessing
        seen = steps.transform(self.cohort.features, self.cohort.people).normalised
        known = _who_is_seen(self.cohort).drop(columns=seen.columns, errors='ignore')
        return self.cohort.visits.join(known).join(((seen - 1) / CN_SD).round(2))


def _who_is_seen(cohort: Cohort) -> pd.DataFrame:
    """`age`, `sex` and `site` of each visit as far as known, whatever their columns are called."""
    columns = pd.concat([cohort.people, cohort.others], axis=1)
    known = {'site': sites_of(cohort)}
    facts = {'age': column_of(columns, 'age'), 'sex': column_of(columns, 'sex')}
    known |= {fact: columns[name] for fact, name in facts.items() if name is not None}
    table = pd.DataFrame(known, cohort.visits.index)
    if 'age' in table:
        table['age'] = pd.to_numeric(table['age'], errors='coerce')
    return table


def analyse_group(
    cohort: Cohort,
    model: TableModel,
    of_halves: Sequence[TableModel] = (),
    *,
    fitted: CrossFit | None = None,
    trained_here: bool = True,
    random_seed: int = 0,
) -> GroupResults:
    """Apply a model to a cohort, and describe what it shows.

    Parameters
    ----------
    cohort
        Controls and patients.
    model
        The model; where it was trained on other participants, adapted to the sites of the cohort.
    of_halves
        Models of the two halves of the cohort, if they were trained.
    fitted
        Models of folds and R-indices of the held out, if they were trained.
    trained_here
        Whether the model was trained on this cohort, so that its harmonization can be assessed.
    random_seed
        That halves were sampled with; of the folds that sites are classified in.
    """
    steps = model.preprocessing
    if fitted is not None:
        results, learned = add_standing(cohort, fitted, random_seed)
        model = replace(model, notes={**model.notes, **learned})
    elif trained_here:
        results = final_results(cohort, model)
    else:
        results = with_centiles(model.apply(cohort), cohort, model.pattern_names)
    harmonized = steps.harmonize(cohort.features, cohort.people)
    names = list(model.pattern_names)
    first = cohort.first_visits()
    patients = first.select(first.is_patient)
    covariates, measures = patients.covariates_and_measures()
    of_patients = results.loc[patients.visits.index, names]
    associations, skipped = associate(measures, of_patients, covariates)
    skipped += [
        Skipped(str(name), 'a covariate that is missing in some; neither tested nor adjusted for')
        for name in patients.incomplete_covariates()
    ]
    described = first if patients.visits.empty else patients
    contributions = (
        model.contributions(cohort.features, cohort.people)
        if fitted is None
        else fitted.contributions(cohort)
    )
    patterns = describe_patterns(
        model, steps.transform(described.features, described.people).normalised
    )
    quality = None
    if steps.combat is not None and trained_here:
        # Where a covariate has rare values, folds may lack them: no reason to do without results.
        with suppress(DataError):
            quality = assess_cohort(cohort, harmonized, random_seed)
    return GroupResults(
        cohort,
        model,
        results,
        harmonized,
        with_contributions(patterns, contributions, described.visits.index),
        associations,
        {each.name: each.reason for each in skipped},
        quality,
        compare_halves(
            cohort,
            (model, results[names]),
            dict(enumerate(of_halves, start=1)),
            split_halves(cohort, random_seed),
        )
        if of_halves
        else None,
        describe_covariates(first, results.loc[first.visits.index, names]),
        fitted,
        shift_of_controls(model, cohort, trained_here, random_seed),
        None if fitted is None else diagnose(cohort, fitted, names),
        compare_groups(cohort),
        *follow_visits(cohort, model, results, fitted),
        contributions,
    )


def describe_covariates(first: Cohort, indices: pd.DataFrame) -> pd.DataFrame:
    """What R-indices have to do with head size, sex and other covariates, in each group.

    Returns
    -------
    DataFrame
        `group`, and the columns of :func:`~surreal_bids.stats.associations.associate_covariates`.
    """
    tables = []
    for group, name in GROUP_NAMES.items():
        chosen = first.select(first.visits['group'] == group)
        covariates, _ = chosen.covariates_and_measures()
        table = associate_covariates(covariates, indices.loc[chosen.visits.index])
        table.insert(0, 'group', name)
        tables.append(table)
    return pd.concat([table for table in tables if len(table)] or tables[:1], ignore_index=True)


def describe_patterns(model: TableModel, normalised: pd.DataFrame) -> pd.DataFrame:
    """Describe what each pattern changes, as the decomposer assigns it.

    Parameters
    ----------
    model
        The model.
    normalised : frame of shape (n_participants, n_features)
        Participants, in most cases patients, as the network sees them.

    Returns
    -------
    DataFrame, one row per pattern and feature
        `pattern` (its R-index), `region` (or sum of regions), `muse_regions` (their MUSE indices),
        `change_percent` (mean change of the volume, in per cent of the mean of controls) with
        `change_percent_member_spread` (over the members of the consensus), and `change_sd` (the
        same change in standard deviations of controls).
    """
    if not model.pattern_names:
        return pd.DataFrame(columns=PATTERN_COLUMNS)
    steps = model.preprocessing
    features = steps.features.features
    X = normalised[steps.features.names]
    seen = torch.tensor(X.to_numpy(dtype=np.float32))
    in_sd = pattern_changes(model.gan.weights_, seen) / CN_SD
    relative = 100 * np.asarray(steps.normaliser.sd_) / np.asarray(steps.normaliser.mean_)
    spread = in_sd.std(axis=0, ddof=1) if len(in_sd) > 1 else np.full(in_sd.shape[1:], np.nan)
    tables = [
        pd.DataFrame(
            {
                'pattern': pattern,
                'region': [readable_name(feature) for feature in features],
                'muse_regions': [' '.join(map(str, f.indices)) or None for f in features],
                'change_percent': in_sd[:, number].mean(axis=0) * relative,
                'change_percent_member_spread': spread[number] * np.abs(relative),
                'change_sd': in_sd[:, number].mean(axis=0),
            }
        )
        for number, pattern in enumerate(model.pattern_names)
    ]
    return pd.concat(tables, ignore_index=True)


def with_contributions(
    patterns: pd.DataFrame, contributions: pd.DataFrame, visits: pd.Index
) -> pd.DataFrame:
    """Add to a table of patterns what each region contributes to the R-index, the mean of visits.

    What a pattern changes is not what its R-index rests on: the network weighs regions that vary
    little among controls more than others.
    """
    own = contributions[contributions.index.get_level_values(VISIT).isin(visits)]
    if own.empty:
        return patterns.assign(contribution=np.nan)
    means = own.drop(columns=BASELINE).groupby(level=R_INDEX).mean()
    wide = means.reindex(patterns['pattern'].unique())
    return patterns.assign(contribution=wide.to_numpy().ravel())


def paint_regions(labels: nib.Nifti1Image, values: Mapping[int, float]) -> nib.Nifti1Image:
    """An image in which every voxel holds the value of its region; 0 elsewhere."""
    data = np.asarray(labels.dataobj).astype(np.int32)
    of_label = np.zeros(int(data.max()) + 1, dtype=np.float32)
    for index, value in values.items():
        if index < of_label.size:
            of_label[index] = value
    painted: NDArray[np.float32] = of_label[data]
    image = nib.Nifti1Image(painted, labels.affine)
    image.header.set_xyzt_units('mm')
    return image


def values_by_region(table: pd.DataFrame) -> dict[int, float]:
    """Change in per cent of each MUSE region, by index, of the rows of one pattern."""
    return {
        int(index): float(change)
        for regions, change in zip(table['muse_regions'], table['change_percent'])
        if isinstance(regions, str)
        for index in regions.split()
    }


class _Described(NamedTuple):
    """What a model says of some patients: R-indices (N, M), and mean changes (S, M)."""

    title: str
    indices: pd.DataFrame
    changes: pd.DataFrame


COMPARED = 'compared'
"""Outcome of a comparison of halves that have the same number of patterns."""


def compare_halves(
    cohort: Cohort,
    everyone: tuple[TableModel, pd.DataFrame],
    of_half: Mapping[int, TableModel],
    half_of: pd.Series,
) -> pd.DataFrame:
    """How alike patients are described by models that were trained on different participants.

    Parameters
    ----------
    cohort
        All participants.
    everyone
        The model that was trained on all, and R-indices of all, if possible held out.
    of_half
        Models of halves 1 and 2, each with its own M and lambda.
    half_of : Series of shape (n_visits,)
        Half of each visit, 0 for neither. Patients of neither are compared, if there are any; else
        all patients are.

    Returns
    -------
    DataFrame
        `comparison`; `participants` (how many patients) and `trained_on` (whether the models of
        the halves were trained on them); `outcome`; the columns of
        :func:`~surreal_bids.stats.concordance.pattern_reproducibility`, and `regions_pearson`, the
        correlation over regions of what the two patterns change in these patients. Where models
        have different numbers of patterns, as many are compared as the smaller has.
    """
    neither = bool((half_of == NEITHER).any())
    first = cohort.first_visits()
    chosen = first.is_patient & ((half_of[first.visits.index] == NEITHER) | (not neither))
    patients = first.select(chosen)
    final, indices = everyone
    whole = _describe_by(final, patients, 'all')
    whole = whole._replace(indices=indices.loc[patients.visits.index])
    halves = [_describe_by(each, patients, f'half {half}') for half, each in of_half.items()]
    pairs = [(halves[0], halves[1]), *((half, whole) for half in halves)]
    table = pd.concat([_compare(*pair) for pair in pairs], ignore_index=True)
    table.insert(2, 'trained_on', 'no' if neither else 'yes')
    return table


def _describe_by(model: TableModel, patients: Cohort, title: str) -> _Described:
    lenient = model.with_unseen_site('skip')
    names = list(model.pattern_names)
    prepared = lenient.preprocessing.transform(patients.features, patients.people)
    changes = describe_patterns(lenient, prepared.normalised)
    wide = {name: rows['change_sd'].to_numpy() for name, rows in changes.groupby('pattern')}
    return _Described(title, lenient.apply(patients)[names], pd.DataFrame(wide))


MIN_TO_COMPARE = 2
"""Patients that a c-index needs."""


def _compare(first: _Described, second: _Described) -> pd.DataFrame:
    """Compare as many patterns as the model with fewer of them has."""
    title = f'{first.title} and {second.title}'
    fewer, more = sorted((first, second), key=lambda each: each.indices.shape[1])
    n_fewer, n_more = fewer.indices.shape[1], more.indices.shape[1]
    there = fewer.indices.notna().all(axis=1) & more.indices.notna().all(axis=1)
    row: dict[str, Any] = {'comparison': title, 'participants': int(there.sum())}
    if n_fewer == 0:
        without = ' and '.join(each.title for each in (first, second) if each.indices.empty)
        outcome = f'no pattern is supported in {without}'
        return pd.DataFrame([row | {'outcome': outcome}], columns=HALVES_COLUMNS)
    if there.sum() < MIN_TO_COMPARE:
        outcome = 'too few patients of neither half have R-indices'
        return pd.DataFrame([row | {'outcome': outcome}], columns=HALVES_COLUMNS)
    outcome = COMPARED
    if n_fewer < n_more:
        outcome = f'M = {n_fewer} in {fewer.title}, {n_more} in {more.title}'
    table = pattern_reproducibility(fewer.indices[there], more.indices[there])
    pairs = zip(table['pattern'], table['counterpart'])
    alike = [np.corrcoef(fewer.changes[a], more.changes[b])[0, 1] for a, b in pairs]
    own = {name: [value] * len(table) for name, value in (row | {'outcome': outcome}).items()}
    return table.assign(regions_pearson=alike).join(pd.DataFrame(own))[HALVES_COLUMNS]


ENOUGH_TO_REFIT = 2 * N_FOLDS
"""Controls that each site needs for ComBat to be learned again without a fold of them."""


def assess_cohort(
    cohort: Cohort, harmonized: pd.DataFrame, random_state: int
) -> HarmonizationQuality | None:
    """Measure site effects among controls before and after.

    None where that is not possible: no numeric covariate, or fewer than two sites with enough
    controls to tell them apart.
    """
    first = cohort.first_visits()
    controls = first.select(~first.is_patient)
    inputs = prepare_inputs(controls.features, controls.people, controls.options)
    numeric = [str(name) for name in inputs.covariates.select_dtypes('number')]
    if inputs.site is None or not numeric:
        return None
    sizes = inputs.site.value_counts()
    large = inputs.site.isin(sizes.index[sizes >= N_FOLDS])
    if len(set(inputs.site[large])) < 2:
        return None
    age = column_of(numeric, 'age') or numeric[0]
    after = harmonized.loc[inputs.features.index[large]]
    if controls.options.icv == 'power':
        after = pd.DataFrame(np.log(after.to_numpy()), after.index, after.columns)
    return assess_harmonization(
        inputs.features[large],
        after,
        inputs.site[large],
        inputs.covariates[large],
        covariate=age,
        harmonizer=ComBat() if sizes[sizes >= N_FOLDS].min() >= ENOUGH_TO_REFIT else None,
        random_state=random_state,
    )
