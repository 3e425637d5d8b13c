"""All results of a cohort as one object: `surreal-gan` and the group level share it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from surreal_bids.analysis.change import follow_visits, sites_of
from surreal_bids.analysis.image_quality import OUTLIERS, ImageQuality
from surreal_bids.analysis.limits import count_reliable
from surreal_bids.analysis.statistics import (
    associate,
    compare_groups,
    gather,
    separate,
    warn_of_differences,
)
from surreal_bids.cautions import Caution
from surreal_bids.cohort.cohort import FRAMES, Cohort
from surreal_bids.config import TrainingOptions, change_options, training_options
from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.combat import UNHARMONIZED
from surreal_bids.harmonization.covariates import CN_MEAN, CN_SD
from surreal_bids.harmonization.quality import HarmonizationQuality, assess_harmonization
from surreal_bids.model.agreement import NO_PATTERN
from surreal_bids.names import GROUP_NAMES, PARTICIPANT, PATIENT
from surreal_bids.rindices.crossfit import (
    HELD_OUT,
    MIN_REPRODUCED,
    NOT_HELD_OUT,
    CrossFit,
    Trained,
    cross_fit,
    doubts_of_model,
    final_results,
    prepare_folds,
    train,
    warn_of_not_held_out,
)
from surreal_bids.rindices.limits import IN_SAMPLE, are_children, in_sample, trained_on_visits
from surreal_bids.rindices.model import (
    ADDED_SITES,
    TAUGHT_BY,
    TableModel,
    digests_of_rows,
    prepare,
    require_trainable,
)
from surreal_bids.rindices.preprocessing import COMPLETE, INCOMPLETE, NONE_BEYOND
from surreal_bids.rindices.uncertainty import add_standing, standing_of_apart, with_centiles
from surreal_bids.text import counted

if TYPE_CHECKING:
    from surreal_bids.analysis.asymmetry import Asymmetry

# Tables that only the group level needs are computed by modules imported where they are used.


@dataclass(frozen=True, eq=False, kw_only=True)
class Analysis:
    """R-indices of a cohort, and everything that follows from them.

    Tables are computed when they are first used, and once.

    Attributes
    ----------
    cohort, model
        Participants, and the model whose patterns they are described by. Its notes hold what was
        learned from folds.
    results : frame
        R-indices of every visit: out of fold where the model was cross-fitted.
    fitted
        Models of folds; None where a model was applied, or trained without folds.
    trained_here
        Whether the model was trained on this cohort.
    adapted
        Whether anything was learned from the controls of this cohort.
    random_seed
        Seed of everything that is sampled.
    read
        All participants that were read; None: those of `cohort`.
    z_norms : frame
        z-scores of regions by the norms of healthy people; None where there are none.
    images
        Quality of the images; None without images.
    image_flags : Series
        Flags of the images of each visit, a tuple of `Flag`; None without images.
    """

    cohort: Cohort
    model: TableModel
    results: pd.DataFrame
    fitted: CrossFit | None = None
    trained_here: bool = True
    adapted: bool = True
    random_seed: int = 0
    read: Cohort | None = None
    z_norms: pd.DataFrame | None = None
    images: ImageQuality | None = None
    image_flags: pd.Series | None = None

    @property
    def names(self) -> list[str]:
        """Names of the R-indices."""
        return list(self.model.pattern_names)

    @property
    def whose(self) -> Literal['patients', 'participants']:
        """In whom patterns are described: in everyone where there are no patients."""
        return 'patients' if self.cohort.counts['PT'] else 'participants'

    @property
    def _patients(self) -> Cohort:
        first = self.cohort.first_visits()
        return first.select(first.is_patient)

    @cached_property
    def scored(self) -> Cohort:
        """The cohort together with participants of other groups, who have R-indices too."""
        return _together(self.cohort)

    @cached_property
    def _fitted_apart(self) -> CrossFit | None:
        """Models of folds for visits of other groups of participants who are in a fold."""
        return None if self.fitted is None else self.fitted.of_apart(self.cohort)

    @cached_property
    def _apart_by_final(self) -> Cohort | None:
        """Visits of other groups that only the final model can be applied to."""
        apart = self.cohort.apart
        if apart is None or self._fitted_apart is None:
            return apart
        is_in_folds = apart.visits.index.to_series().isin(self._fitted_apart.results.index)
        by_final = apart.select(~is_in_folds)
        return by_final if len(by_final) else None

    @cached_property
    def all_results(self) -> pd.DataFrame:
        """Results of everyone in `scored`.

        Those of other groups are by the final model, but for participants who are in a fold: all
        their visits have the model of the fold.
        """
        if self.cohort.apart is None:
            return self.results
        parts = [self.results]
        if self._fitted_apart is not None:
            by_folds = standing_of_apart(self._fitted_apart, self.results, self.scored, self.model)
            parts.append(by_folds)
        others = self._apart_by_final
        if others is not None:
            by_final = self.model.with_unseen_site('skip').apply(others)
            if HELD_OUT in self.results:
                # The final model was trained on the first visits of these participants.
                is_seen = others.visits[PARTICIPANT].isin(self.cohort.visits[PARTICIPANT])
                by_final[HELD_OUT] = ~is_seen
            parts.append(by_final)
        return pd.concat(parts).loc[self.scored.visits.index]

    @cached_property
    def flags(self) -> pd.Series:
        """Quality flags of every visit in `scored`, each a tuple of `Flag`."""
        results = self.all_results
        is_child = are_children(self.model, self.scored)
        of_images = {} if self.image_flags is None else self.image_flags.to_dict()
        flags = []
        for visit, row in zip(results.index, results.to_dict('records')):
            of_visit = flags_of_result(row)
            if is_child[visit]:
                of_visit.append(Flag(BEYOND, 'age'))
            if self.taught_site[visit]:
                of_visit.append(Flag(TAUGHT))
            flags.append((*of_visit, *of_images.get(visit, ())))
        return pd.Series(flags, results.index, dtype=object)

    @cached_property
    def first_visits(self) -> pd.DataFrame:
        """Results of first visits, one row per participant, with the group."""
        first = self.scored.first_visits()
        return self.all_results.loc[first.visits.index].assign(group=first.groups)

    @cached_property
    def described(self) -> Cohort:
        """`scored` for reports, with words where the model has numbers: F and M for 0 and 1."""
        people = self.scored.people
        words = {
            name: people[name].map({codes[word]: word.upper() for word in reversed(list(codes))})
            for name, codes in self.model.preprocessing.codes.items()
        }
        return replace(self.scored, people=people.assign(**words))

    @cached_property
    def harmonized(self) -> pd.DataFrame:
        """Volumes of every visit without site effects."""
        steps = self.model.preprocessing.of_regions
        return steps.harmonize(self.scored.features, self.scored.people)

    @cached_property
    def contributions(self) -> pd.DataFrame:
        """Contribution of each feature to each R-index; see `TableModel.contributions`."""
        if self.fitted is None:
            return self.model.contributions(self.scored.features, self.scored.people)
        tables = [self.fitted.contributions(self.cohort)]
        apart = self.cohort.apart
        if apart is None or not self.names:
            return tables[0]
        if self._fitted_apart is not None:
            is_in_folds = apart.visits.index.to_series().isin(self._fitted_apart.results.index)
            tables.append(self._fitted_apart.contributions(apart.select(is_in_folds)))
        others = self._apart_by_final
        if others is not None:
            model = self.model.with_unseen_site('skip')
            tables.append(model.contributions(others.features, others.people))
        return pd.concat(tables)

    @cached_property
    def patterns(self) -> pd.DataFrame:
        """What each pattern changes in each region, and the mean contribution of the region."""
        from surreal_bids.analysis.patterns import describe_patterns

        patients = self._patients
        described = patients if len(patients) else self.cohort.first_visits()
        return describe_patterns(self.model, described, self.contributions, self.fitted)

    @cached_property
    def asymmetry(self) -> Asymmetry | None:
        """Left-right differences along patterns; None where the model sees sides apart."""
        from surreal_bids.analysis.asymmetry import describe_asymmetry

        paired = self.model.preprocessing.paired
        if paired is None or not self.names:
            return None
        is_comparable = ~self.all_results['status'].isin([UNHARMONIZED, INCOMPLETE])
        visits = self.scored.visits
        z_scores = self.z_scores.loc[visits.index].where(is_comparable[visits.index])
        return describe_asymmetry(
            z_scores, self.patterns, paired, self.scored.groups, visits['is_first']
        )

    @cached_property
    def _associated(self) -> tuple[pd.DataFrame, dict[str, str]]:
        patients = self._patients
        covariates, measures = patients.covariates_and_measures()
        indices = self.results.loc[patients.visits.index, self.names]
        associations, untested = associate(measures, indices, covariates)
        if not len(patients):
            untested = dict.fromkeys(map(str, measures), NO_PATIENTS)
        reason = 'a covariate with missing values; neither tested nor adjusted for'
        unused = patients.others[patients.unused_covariates()]
        return associations, untested | dict.fromkeys(unused.columns[unused.isna().any()], reason)

    @property
    def associations(self) -> pd.DataFrame:
        """Partial correlations of R-indices with other measures, in patients."""
        return self._associated[0]

    @cached_property
    def _associated_in_others(self) -> tuple[pd.DataFrame, dict[str, str]]:
        """Associations within each group of other participants, and what was not tested."""
        tables: list[pd.DataFrame] = []
        untested: dict[str, str] = {}
        first = self.scored.first_visits()
        for label in self.other_groups:
            members = first.select(first.groups == label)
            covariates, measures = members.covariates_and_measures()
            indices = self.all_results.loc[members.visits.index, self.names]
            table, reasons = associate(measures, indices, covariates)
            tables.append(table.assign(group=label))
            untested |= {f'{what} in {label}': reason for what, reason in reasons.items()}
        return _concatenate(tables), untested

    @property
    def other_groups(self) -> list[str]:
        """Labels of participants who are neither controls nor patients."""
        return sorted({str(label) for label in self.scored.groups.dropna()} - set(GROUP_NAMES))

    @property
    def associations_of_others(self) -> pd.DataFrame:
        """Partial correlations within each other group, its label in `group`; may be empty."""
        return self._associated_in_others[0]

    @property
    def untested(self) -> Mapping[str, str]:
        """Measures that were not tested, and the reasons."""
        return self._associated[1] | self._associated_in_others[1]

    @cached_property
    def quality(self) -> HarmonizationQuality | None:
        """Site effects among controls before and after harmonization; None if not assessed."""
        if self.model.preprocessing.combat is None or not self.trained_here:
            return None
        first = self.cohort.first_visits()
        controls = first.select(~first.is_patient)
        steps = self.model.preprocessing.of_regions
        inputs = steps.inputs(controls.features, controls.people)
        after = self.harmonized.loc[inputs.features.index]
        after = after.apply(np.log) if controls.options.icv == 'power' else after
        site = controls.people[str(controls.options.site_column)]
        # Where a covariate has rare values, folds may lack them: no reason to do without results.
        with suppress(DataError):
            before = inputs.filled(steps.imputer)
            return assess_harmonization(
                before,
                after,
                site,
                inputs.covariates,
                self.random_seed,
                controls.options.make_combat,
            )
        return None

    @property
    def sites(self) -> pd.DataFrame:
        """Participants of each group and site, by first visits."""
        first = self.cohort.first_visits()
        groups = first.groups.fillna('unknown').rename('group')
        return pd.crosstab(sites_of(first).rename('site'), groups).reset_index()

    @cached_property
    def trained_on(self) -> pd.Series:
        """Whether the model was trained on the volumes of each visit."""
        return self.model.trained_on(self.cohort)

    @cached_property
    def taught_site(self) -> pd.Series:
        """Whether a site was added to the model from the volumes of each visit in `scored`."""
        digests: set[str] = set()
        for site in self.model.notes.get(ADDED_SITES, {}).values():
            digests.update(site.get(TAUGHT_BY, ()))
        if not digests:
            return pd.Series(False, self.scored.features.index)
        rows = digests_of_rows(self.scored.features, self.model.preprocessing.features.names)
        return rows.isin(digests)

    @cached_property
    def separation(self) -> pd.DataFrame:
        """How well patients and controls are told apart by models that did not learn from them.

        Empty in sample, and where an applied model was adapted to the controls; see `separate`.
        """
        is_honest = self.results['status'] == COMPLETE
        if not self.fitted:
            taught = self.taught_site.reindex(self.cohort.visits.index)
            is_honest &= ~self.trained_on & ~taught & (not self.adapted)
        known = self.cohort.select(is_honest.reindex(self.cohort.visits.index))
        return separate(known, self.results[self.names])

    @cached_property
    def differences(self) -> pd.DataFrame:
        """What else patients and controls differ in; see `compare_groups`."""
        return compare_groups(self.described)

    @cached_property
    def _followed(self) -> tuple[pd.DataFrame | None, pd.DataFrame | None, str]:
        results = self.all_results
        if not self.trained_here and self.trained_on.any():
            # A visit that the model was trained on differs from a later one for this reason alone.
            who = self.scored.visits[PARTICIPANT]
            trained_on = set(who[self.trained_on.reindex(who.index, fill_value=False)])
            is_held_out = ~who.isin(trained_on).reindex(results.index)
            results = results.assign(**{HELD_OUT: is_held_out})
        return follow_visits(
            self.cohort, self.model, results, self.fitted, self.scored, self._fitted_apart
        )

    @property
    def changes(self) -> pd.DataFrame | None:
        """What changed between visits; None where everyone has one visit."""
        return self._followed[0]

    @property
    def group_change(self) -> pd.DataFrame | None:
        """Change per year in either group; None where everyone has one visit."""
        return self._followed[1]

    @cached_property
    def reliable_changes(self) -> pd.DataFrame | None:
        """Participants with a reliable change in each group; None where everyone has one visit."""
        if self.changes is None:
            return None
        first = self.scored.first_visits()
        groups = first.groups.set_axis(first.visits[PARTICIPANT])
        return count_reliable(self.changes, groups)

    @property
    def excluded_visits(self) -> str:
        """How many visits are excluded from the change per year, in words; may be empty."""
        return self._followed[2]

    @cached_property
    def statistics(self) -> pd.DataFrame:
        """All statistics of groups: a row for each estimate; see `gather`."""
        in_patients = self.associations.assign(group=GROUP_NAMES[PATIENT])
        return gather(
            {
                'separation': self.separation,
                'group difference': self.differences,
                'association': _concatenate([in_patients, self.associations_of_others]),
                'change per year': self.group_change,
                'reliable change': self.reliable_changes,
            }
        )

    @cached_property
    def cautions(self) -> list[Caution]:
        """What to check before the results are used."""
        card = self.model.state()[1]
        who = self.cohort.visits[PARTICIPANT].reindex(self.results.index)
        found = [*self.cohort.warnings, *doubts_of_model(card)]
        if not self.names:
            # There are no R-indices to doubt.
            found = [each for each in found if each.consequence != IN_SAMPLE]
            found.append(NO_PATTERN)
        elif self.trained_here:
            found += warn_of_not_held_out(self.results, who)
            found += self._in_sample()
        elif self.trained_on.any() and not self.adapted and not self._says_in_sample:
            found.append(trained_on_visits(int(self.trained_on.sum()), self.cohort))
        if self.trained_here and self.model.preprocessing.paired is None:
            from surreal_bids.analysis.headlines import warn_of_mirror_images

            found += warn_of_mirror_images(self.patterns, self.model.preprocessing.features)
        return [*found, *warn_of_differences(self.differences)]

    @property
    def _says_in_sample(self) -> bool:
        """Whether the cohort has a warning that its R-indices are in sample, with the reason."""
        return any(each.consequence == IN_SAMPLE for each in self.cohort.warnings)

    def _in_sample(self) -> Iterator[Caution]:
        """Warn of R-indices in sample, unless the cohort has a warning with the reason."""
        in_folds = self.results.get(HELD_OUT, True) | (self.results['status'] == NOT_HELD_OUT)
        if not in_folds.all() and not self._says_in_sample:
            yield in_sample('No cross-fitting', 'Use --folds 5, or do not compare the groups')

    @property
    def everyone(self) -> Cohort:
        """All participants that were read, whoever was chosen."""
        return self.cohort if self.read is None else self.read

    @cached_property
    def _by_controls(self) -> pd.DataFrame | None:
        from surreal_bids.analysis.deviations import from_controls

        if not self.adapted:
            return None
        return from_controls(_together(self.everyone), self.model.preprocessing.of_regions)

    @property
    def has_own_controls(self) -> bool:
        """Whether z-scores refer to controls of this study, not to those of the model."""
        return self._by_controls is not None

    @cached_property
    def z_scores(self) -> pd.DataFrame:
        """How far the regions of each visit are from those of controls, in SD."""
        if self._by_controls is not None:
            return self._by_controls.reindex(self.scored.visits.index)
        steps = self.model.preprocessing.of_regions
        seen = steps.transform(self.scored.features, self.scored.people)
        return (seen.normalised - CN_MEAN) / CN_SD

    @cached_property
    def of_individuals(self) -> pd.DataFrame:
        """What reports of participants show, one row per visit.

        Columns of the visit, its results and flags (`store_flags`), age, sex and site as known,
        outliers of image quality, and z-scores of regions.
        """
        known, flags = self.described, self.flags.map(store_flags)
        facts = self.all_results.assign(flags=flags, site=sites_of(known), age=known.ages)
        facts['sex'] = known.column_of('sex')
        if self.images is not None:
            facts[OUTLIERS] = self.images.table[OUTLIERS]
        if self.asymmetry is not None:
            facts = facts.join(self.asymmetry.table)
        facts = facts.drop(columns=self.z_scores.columns, errors='ignore')
        return self.scored.visits.join(facts).join(self.z_scores.round(2) + 0.0)  # No minus zero.


NO_PATIENTS = 'associations are tested in patients, and there are none'
"""Why a measure was not tested."""


class Flag(NamedTuple):
    """A reason to look at a visit twice.

    Attributes
    ----------
    kind
        What is unusual, in words.
    detail
        What it concerns, such as the name of a covariate; may be empty.
    """

    kind: str
    detail: str = ''

    def __str__(self) -> str:
        return f'{self.detail} {self.kind}'.lstrip()


STATUS_FLAGS = {
    UNHARMONIZED: 'site not harmonized',
    INCOMPLETE: 'covariate, ICV or site missing',
    NOT_HELD_OUT: 'no out-of-fold model',
}
OUTSIDE = 'volumes unlike the training participants'
ANOTHER_FOLD = 'pattern not reproduced in the fold'
TAUGHT = 'site learned from this participant'
BEYOND, IMPUTED = 'outside the training range', 'imputed'
"""Kinds of flags of R-indices; the last two have names of covariates, and a number of regions, as
their detail."""


def flags_of_result(row: Mapping[Any, Any]) -> list[Flag]:
    """Return the quality flags of a visit, a row of `Analysis.results`."""
    # Participants of other groups, and those without an R-index, lack some of these.
    known = {name: value for name, value in row.items() if pd.notna(value)}
    flags = [Flag(STATUS_FLAGS[row['status']])] if row['status'] in STATUS_FLAGS else []
    if not known.get('brain_in_range', True):
        flags.append(Flag(OUTSIDE))
    if known.get('covariates_out_of_range', NONE_BEYOND) != NONE_BEYOND:
        flags.append(Flag(BEYOND, str(known['covariates_out_of_range'])))
    if known.get('n_imputed', 0) > 0:
        flags.append(Flag(IMPUTED, counted(int(known['n_imputed']), 'region')))
    if row['status'] != NOT_HELD_OUT and known.get('fold_correlation', 1.0) < MIN_REPRODUCED:
        flags.append(Flag(ANOTHER_FOLD))
    return flags


def describe_flags(flags: Iterable[Flag]) -> str:
    """Write the flags of a visit for a reader; empty without flags."""
    return '; '.join(map(str, flags))


def store_flags(flags: Iterable[Flag]) -> str:
    """Write the flags of a visit for `read_flags`: names of covariates may hold any character."""
    return json.dumps(list(flags))


def read_flags(text: object) -> list[Flag]:
    """Read what `store_flags` wrote; no flags where nothing is stored."""
    return [Flag(*flag) for flag in json.loads(text)] if isinstance(text, str) else []


def _concatenate(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate the tables that have rows; an empty table without any."""
    with_rows = [table for table in tables if len(table)]
    return pd.concat(with_rows, ignore_index=True) if with_rows else pd.DataFrame()


def _together(cohort: Cohort) -> Cohort:
    """Return a cohort whose participants of other groups are among the rest."""
    apart = cohort.apart
    if apart is None:
        return cohort
    frames = {name: pd.concat([getattr(cohort, name), getattr(apart, name)]) for name in FRAMES}
    return replace(cohort, apart=None, **frames)


def analyse(
    cohort: Cohort,
    options: TrainingOptions | None = None,
    checkpoint_dir: Path | None = None,
    n_procs: int = 1,
    **changes: Any,
) -> Analysis:
    """Train a model and compute R-indices of the same participants out of fold.

    This is what `surreal-gan fit` does.

    Parameters
    ----------
    cohort
        Controls and patients.
    options
        How to train; by default as the commands do.
    checkpoint_dir
        Folder of checkpoints. If training is interrupted, the same call resumes it.
    n_procs
        Number of folds that are trained at the same time, if training takes long.
    **changes
        Fields of `options`, named as on the command line: `n_patterns=3`, `folds=5`.

    Returns
    -------
    Analysis
        `model` is the trained model. `results` has the R-indices of every visit; the column
        `held_out` says whether they are out of fold. `cautions` lists reasons to doubt them.
        Further tables, such as `patterns` and `statistics`, are computed when they are first used.

    Raises
    ------
    DataError
        The participants cannot be used for training.
    UsageError
        An option cannot be used.
    """
    training = training_options(change_options(options or TrainingOptions(), changes))
    data = prepare(cohort)
    require_trainable(data, training)
    folds = prepare_folds(cohort, training)
    trained = train(data, folds, training, checkpoint_dir, n_procs)
    return analyse_trained(cohort, trained, training.random_seed)


def analyse_trained(cohort: Cohort, trained: Trained, random_seed: int = 0) -> Analysis:
    """Compute the R-indices of a cohort that models were trained on, out of fold where possible.

    Parameters
    ----------
    cohort
        Controls and patients.
    trained
        The models; what is learned from folds is added to the notes of the final one.
    random_seed
        Seed that models were trained with.
    """
    model = trained.model
    if trained.folds is None:
        results, fitted = final_results(cohort, model), None
    else:
        fitted = cross_fit(cohort, model, trained.folds, trained.fold_models)
        results, learned = add_standing(cohort, model, fitted, random_seed)
        model = replace(model, notes={**model.notes, 'CrossFit': fitted.note, **learned})
    return Analysis(
        cohort=cohort,
        model=model,
        results=results,
        fitted=fitted,
        random_seed=random_seed,
    )


def analyse_applied(
    cohort: Cohort,
    model: TableModel,
    random_seed: int = 0,
    labels: Sequence[str] = (),
    adapted: bool = True,
) -> Analysis:
    """Compute the R-indices of a cohort by a model that was trained on other participants.

    Parameters
    ----------
    cohort
        Participants; centiles refer to its controls where the model was adapted to enough of them.
    model
        A model that knows their sites.
    random_seed
        Seed of everything that is sampled.
    labels
        Participants to analyse; no label: everyone.
    adapted
        Whether the model has learned the sites of the cohort from its controls.
    """
    results = model.apply(cohort)
    if adapted and 'group' in cohort.visits:
        results = with_centiles(results, cohort, model.pattern_names)
    chosen = cohort.of_participants(labels)
    return Analysis(
        cohort=chosen,
        model=model,
        results=results.loc[chosen.visits.index],
        trained_here=False,
        adapted=adapted,
        random_seed=random_seed,
        read=cohort,
    )
