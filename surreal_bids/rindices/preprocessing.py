"""From features as measured to what the model sees, learned once and applied to anyone.

regions -> both sides of a structure together (if so chosen) -> logarithms, or divided by ICV
        -> missing values filled (if so chosen) -> ComBat
        -> residualised on covariates with CN coefficients -> back from logarithms
        -> CN have mean 1 and sd 0.1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import orth

from surreal_bids.cohort.roles import Requirements
from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.combat import UNHARMONIZED, ComBat, UnseenSite, UnseenSiteError
from surreal_bids.harmonization.covariates import (
    ICV,
    LOG_ICV,
    CNImputer,
    CNNormaliser,
    Residualiser,
    handle_icv,
)
from surreal_bids.harmonization.encoding import (
    FILL_OR_EXCLUDE,
    CovariateEncoder,
    missing_covariates,
    require_finite,
)
from surreal_bids.harmonization.options import PreprocessingOptions
from surreal_bids.regions import FeatureList
from surreal_bids.sides import APART, combine_sides, pair_sides
from surreal_bids.text import list_briefly

COMPLETE = 'complete'
"""Status of a person for whom everything was done."""

INCOMPLETE = 'incomplete'
"""Status of a person without a covariate, ICV or site, for whom nothing can be computed."""

NONE_BEYOND = 'none'
"""Written where all covariates of a person lie in the range learned from."""

ROUNDING = 1e-12
"""Relative error that a logarithm and its inverse may leave."""

Arrays = dict[str, NDArray[np.float64]]

_PARTS: dict[str, Any] = {
    'imputer': CNImputer,
    'combat': ComBat,
    'residualiser': Residualiser,
    'normaliser': CNNormaliser,
}
"""Fitted steps, in order; each goes to arrays and back."""

STRUCTURES, REGIONS = 'structures', 'regions'
"""Keys in the state of the steps: the structures that the model sees, and the steps that are fitted
to single regions. The second is also the prefix of their arrays."""


@dataclass(frozen=True, eq=False)
class Visits:
    """All visits of participants, from which ComBat compares sites within participants.

    Attributes
    ----------
    features, people : frames of shape (n_visits, n_features) and (n_visits, n_columns)
        As for `fit_preprocessing`.
    first : Series of shape (n_visits,)
        Name of the first visit of the same participant.
    """

    features: pd.DataFrame
    people: pd.DataFrame
    first: pd.Series


@dataclass(frozen=True, eq=False)
class Prepared:
    """People as the model sees them.

    Attributes
    ----------
    normalised : frame of shape (n_computed, n_features)
        Normalised features of everyone but the incomplete; no value is missing.
    status : Series of shape (n_people,)
        `complete`, `unharmonized` or `incomplete`.
    beyond_range : Series of shape (n_people,), or None
        Covariates outside what was seen among CN, or `none`; missing for the incomplete. None
        where the model has no numeric covariate.
    n_imputed : Series of shape (n_people,), or None
        How many regions were missing and filled in; None where the model does not impute.
    """

    normalised: pd.DataFrame
    status: pd.Series
    beyond_range: pd.Series | None
    n_imputed: pd.Series | None


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """All steps, fitted. A step that was not asked for is None.

    Attributes
    ----------
    features
        Regions that a table must have.
    options
        Which steps.
    normaliser, imputer, combat, residualiser
        The steps, for `structures`.
    codes
        Words that may stand in numeric covariates.
    paired
        Structures that the model sees, each with both sides as one; None: it sees `features`.
    regions
        The same steps fitted to single regions, for z-scores and harmonized volumes; None where the
        model sees single regions itself, and in models of folds.
    """

    features: FeatureList
    options: PreprocessingOptions
    normaliser: CNNormaliser
    imputer: CNImputer | None = None
    combat: ComBat | None = None
    residualiser: Residualiser | None = None
    codes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    paired: FeatureList | None = None
    regions: Preprocessing | None = None

    @property
    def structures(self) -> FeatureList:
        """What the model sees: single regions, or structures with both sides."""
        return self.features if self.paired is None else self.paired

    @property
    def of_regions(self) -> Preprocessing:
        """The steps for single regions; models of folds have none if they see structures."""
        if self.paired is None:
            return self
        if self.regions is None:
            raise ValueError('these steps were not fitted to single regions')
        return self.regions

    def inputs(self, features: pd.DataFrame, people: pd.DataFrame) -> Inputs:
        """Combine sides, take apart what is known of participants, and handle ICV as asked."""
        if self.paired is not None:
            features = combine_sides(features, self.paired)
        return prepare_inputs(features, people, self.options)

    @property
    def levels(self) -> dict[str, Any]:
        """Levels of each covariate that is a category."""
        return {} if self.residualiser is None else dict(self.residualiser.encoder_.levels_)

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Range among CN of each numeric covariate and of the ICV, by column and as measured."""
        ranges = {} if self.residualiser is None else dict(self.residualiser.encoder_.range_)
        column = str(self.options.icv_column)
        if self.options.icv == 'covariate' and ICV in ranges:
            ranges[column] = ranges.pop(ICV)
        elif LOG_ICV in ranges:
            low, high = np.exp(ranges.pop(LOG_ICV))
            # Those at the ends are inside, though a logarithm and its inverse are rounded.
            ranges[column] = (float(low * (1 - ROUNDING)), float(high * (1 + ROUNDING)))
        return ranges

    @property
    def requirements(self) -> Requirements:
        """What a cohort must have for these steps to be applied to it."""
        return Requirements(
            self.features,
            self.options,
            pd.Series(self.of_regions.normaliser.mean_, self.features.names),
            self.ranges,
            self.levels,
            self.codes,
        )

    @property
    def scale_of_sites(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and sd of adjusted features of CN (n_features,) on the scale that ComBat works on.

        Of logarithms they follow from those of volumes by the log-normal distribution.
        """
        mean, sd = self.normaliser.mean_, self.normaliser.sd_
        if self.options.icv != 'power':
            return mean, sd
        variance = np.log1p(np.square(sd / mean))
        return np.log(mean) - variance / 2, np.sqrt(variance)

    def with_unseen_site(self, choice: UnseenSite) -> Preprocessing:
        """The same steps with another choice for people of unseen sites."""
        combat = self.combat
        if combat is not None:
            combat = combat.copy(unseen_site=choice)
        regions = None if self.regions is None else self.regions.with_unseen_site(choice)
        options = replace(self.options, unseen_site=choice)
        return replace(self, combat=combat, options=options, regions=regions)

    def transform(self, features: pd.DataFrame, people: pd.DataFrame) -> Prepared:
        """Prepare anyone, one person or many.

        Parameters
        ----------
        features : frame of shape (n_people, n_features)
            Features as measured; NaN where missing.
        people : frame of shape (n_people, n_columns)
            Covariates, ICV and site, as `read_person_columns` gives them.

        Raises
        ------
        DataError
            A feature is missing and the model does not impute, an unseen site (unless skipped), or
            an unknown level of a covariate.
        """
        self._require_columns(features, people)
        complete = is_complete(people, self.options)
        if not complete.any():
            raise DataError(
                f'no participant has all of {list_briefly(self.options.columns)}, which the model '
                'needs; complete the table'
            )
        inputs = self.inputs(features[complete], people[complete])
        filled = inputs.filled(self.imputer)
        harmonized, unharmonized = _harmonize(self.combat, filled, inputs)
        adjusted = _residualise(self.residualiser, harmonized, inputs)
        return self._prepared(inputs, as_measured(adjusted, self.options), unharmonized, features)

    def _require_columns(self, features: pd.DataFrame, people: pd.DataFrame) -> None:
        """Refuse tables that lack a column of the model."""
        missing = [name for name in self.features.names if name not in features]
        missing += [name for name in self.options.columns if name not in people]
        if missing:
            raise DataError(
                f'no column {list_briefly(missing)}, which the model needs; read the tables with '
                'Cohort.read(..., model=model), which finds columns of other names'
            )

    def harmonize(self, features: pd.DataFrame, people: pd.DataFrame) -> pd.DataFrame:
        """Features without site effects, as far as they are known, or divided by ICV if so chosen.

        Everyone must have all covariates, ICV and site; parameters are those of `transform`.
        """
        inputs = self.inputs(features, people)
        harmonized, _ = _harmonize(self.combat, inputs.filled(self.imputer), inputs)
        return as_measured(harmonized, self.options)

    def _prepared(
        self,
        inputs: Inputs,
        adjusted: pd.DataFrame,
        unharmonized: NDArray[np.bool_],
        features: pd.DataFrame,
    ) -> Prepared:
        """Normalise, and say of everyone with `features` as measured what was done."""
        everyone = features.index
        n_imputed = None
        if self.imputer is not None:
            # Single regions are counted, since reports tell of regions of the table.
            of_complete = features.loc[inputs.features.index, self.features.names]
            n_imputed = of_complete.isna().sum(axis=1).reindex(everyone).astype('Int64')
        status = pd.Series(INCOMPLETE, index=everyone, dtype=object)
        status[adjusted.index] = np.where(unharmonized, UNHARMONIZED, COMPLETE)
        return Prepared(
            self.normaliser.transform(adjusted),
            status,
            self._beyond_range(inputs, everyone),
            n_imputed,
        )

    def _beyond_range(self, inputs: Inputs, people: pd.Index) -> pd.Series | None:
        if self.residualiser is None or not self.residualiser.encoder_.range_:
            return None
        outside = self.residualiser.encoder_.beyond_range(inputs.covariates)
        outside = outside.rename(columns={LOG_ICV: ICV})
        flags, listed = outside.to_numpy(dtype=bool), np.full(len(outside), NONE_BEYOND, object)
        for row in np.flatnonzero(flags.any(axis=1)):
            listed[row] = ', '.join(outside.columns[flags[row]])
        return pd.Series(listed, outside.index, dtype=object).reindex(people)

    def to_state(self) -> tuple[dict[str, Any], Arrays]:
        """The state as plain JSON values, and as float64 arrays named `step/array`."""
        card: dict[str, Any] = {
            'features': self.features.to_json(),
            'options': self.options.to_json(),
            'codes': {name: dict(words) for name, words in self.codes.items()},
        }
        arrays: Arrays = {}
        for part in _PARTS:
            step = getattr(self, part)
            state = {} if step is None else step.to_arrays()
            own = {key: value for key, value in state.items() if isinstance(value, np.ndarray)}
            arrays |= {f'{part}/{key}': value for key, value in own.items()}
            plain = {key: value for key, value in state.items() if key not in own}
            card[part] = None if step is None else plain
        if self.paired is not None:
            card[STRUCTURES] = self.paired.to_json()
        if self.regions is not None:
            card[REGIONS], of_regions = self.regions.to_state()
            arrays |= {f'{REGIONS}/{name}': values for name, values in of_regions.items()}
        return card, arrays

    @classmethod
    def from_state(cls, card: Mapping[str, Any], arrays: Mapping[str, Any]) -> Preprocessing:
        """Rebuild the steps from `to_state`."""
        steps = {
            part: kind.from_arrays({**card[part], **_arrays_of(part, arrays)})
            for part, kind in _PARTS.items()
            if card[part] is not None
        }
        regions = None
        if REGIONS in card:
            regions = cls.from_state(card[REGIONS], _arrays_of(REGIONS, arrays))
        paired = None
        if STRUCTURES in card:
            paired = FeatureList.from_json(card[STRUCTURES])
        return cls(
            features=FeatureList.from_json(card['features']),
            options=PreprocessingOptions.from_json(card['options']),
            codes=card['codes'],
            paired=paired,
            regions=regions,
            **steps,
        )


def _arrays_of(part: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    prefix = f'{part}/'
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}


def fit_preprocessing(
    wanted: FeatureList,
    options: PreprocessingOptions,
    features: pd.DataFrame,
    people: pd.DataFrame,
    is_control: pd.Series,
    visits: Visits | None = None,
) -> tuple[Preprocessing, Prepared]:
    """Learn all steps, and prepare the participants they were learned from.

    Who lacks a covariate, ICV or site is left out of the learning.

    Parameters
    ----------
    wanted
        The features, for the next table.
    options
        Which steps.
    features : frame of shape (n_people, n_features)
        Features as measured; NaN where missing.
    people : frame of shape (n_people, n_columns)
        Covariates, ICV and site, as `read_person_columns` gives them.
    is_control : Series of bool of shape (n_people,)
        Who is CN.
    visits
        Where ComBat compares sites within participants: all visits of the same people.

    Raises
    ------
    DataError
        Data that cannot be used: missing, constant or duplicate features, too few CN, covariates
        that explain each other or the site.
    """
    paired = pair_sides(wanted, options.sides)
    measured = features
    if paired is not None:
        features = combine_sides(features, paired)
        if visits is not None:
            visits = replace(visits, features=combine_sides(visits.features, paired))
    complete = is_complete(people, options)
    control = is_control[complete]
    inputs = prepare_inputs(features[complete], people[complete], options)
    imputer = None
    if options.impute:
        categories = [] if inputs.site_column is None else [inputs.site_column]
        imputer = CNImputer(categories).fit(inputs.features, inputs.with_site, control)
    filled = inputs.filled(imputer)
    _require_informative(filled)
    if visits is None:
        combat = _fit_combat(filled, inputs, control, options)
    else:
        combat = _fit_combat_to_visits(visits, imputer, control, options)
    harmonized, unharmonized = _harmonize(combat, filled, inputs)
    residualiser = None
    if not inputs.covariates.columns.empty:
        residualiser = Residualiser().fit(harmonized, inputs.covariates, control)
    adjusted = as_measured(_residualise(residualiser, harmonized, inputs), options)
    normaliser = CNNormaliser().fit(adjusted, control)
    steps = Preprocessing(wanted, options, normaliser, imputer, combat, residualiser, paired=paired)
    return steps, steps._prepared(inputs, adjusted, unharmonized, measured)


def fit_to_regions(
    steps: Preprocessing,
    features: pd.DataFrame,
    people: pd.DataFrame,
    is_control: pd.Series,
    visits: Visits | None = None,
) -> Preprocessing:
    """Learn the steps for single regions, too, if the model sees structures.

    Parameters are those of `fit_preprocessing`.
    """
    if steps.paired is None:
        return steps
    options = replace(steps.options, sides=APART)
    regions, _ = fit_preprocessing(steps.features, options, features, people, is_control, visits)
    return replace(steps, regions=regions)


def is_complete(people: pd.DataFrame, options: PreprocessingOptions) -> pd.Series:
    """Say who has all covariates, ICV and site that `options` name: booleans (n_people,)."""
    needed = people[options.columns]
    return pd.Series(~missing_covariates(needed), index=people.index)


def as_measured(features: pd.DataFrame, options: PreprocessingOptions) -> pd.DataFrame:
    """Take features back to the unit they were measured in (or its share of the ICV)."""
    if options.icv != 'power':
        return features
    return pd.DataFrame(np.exp(features.to_numpy()), features.index, features.columns)


def residuals_of_all(
    steps: Preprocessing, features: pd.DataFrame, people: pd.DataFrame
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What covariates and sites do not explain in controls and patients, (n_people, n_features).

    On the scale that covariates act on. Returns residuals, and the same enlarged to the size of
    errors: a regression makes residuals of unusual people, who determine it, too small.
    """
    inputs = steps.inputs(features, people)
    values = inputs.filled(steps.imputer).to_numpy()
    columns = [np.ones((len(values), 1))]
    if inputs.site is not None:
        columns.append(pd.get_dummies(inputs.site, dtype=float).to_numpy())
    if not inputs.covariates.columns.empty:
        encoded = CovariateEncoder().fit(inputs.covariates).transform(inputs.covariates)
        columns.append(encoded / np.linalg.norm(encoded, axis=0))
    basis = orth(np.hstack(columns))
    residuals = values - basis @ (basis.T @ values)
    free = 1 - np.square(basis).sum(axis=1, keepdims=True)
    return residuals, residuals / np.sqrt(np.maximum(free, ROUNDING))


def add_to_features(
    features: pd.DataFrame,
    people: pd.DataFrame,
    change: pd.DataFrame,
    options: PreprocessingOptions,
) -> pd.DataFrame:
    """Change features as measured by values on the scale that covariates act on."""
    if options.icv == 'power':
        return features * np.exp(change)
    if options.icv == 'proportion':
        return features + change.mul(people[options.icv_column], axis=0)
    return features + change


@dataclass(frozen=True, eq=False)
class Inputs:
    """People with all that is needed, after ICV was handled; features may be logarithms."""

    features: pd.DataFrame
    covariates: pd.DataFrame
    site: pd.Series | None
    site_column: str | None

    @property
    def with_site(self) -> pd.DataFrame:
        """The covariates, and the site among them if there is one."""
        if self.site is None:
            return self.covariates
        return self.covariates.assign(**{str(self.site_column): self.site})

    def filled(self, imputer: CNImputer | None) -> pd.DataFrame:
        """The features, with imputed values if the model imputes."""
        if imputer is None:
            require_finite(
                self.features, 'features', f'{FILL_OR_EXCLUDE} (surreal-gan fit --impute)'
            )
            return self.features
        return imputer.transform(self.features, self.with_site)


def prepare_inputs(
    features: pd.DataFrame, people: pd.DataFrame, options: PreprocessingOptions
) -> Inputs:
    """Take apart what is known of people, and handle ICV as asked."""
    features, covariates = features.astype(np.float64), people[list(options.covariates)]
    if options.icv_column is not None and options.uses_icv:
        features, covariates = handle_icv(
            features, covariates, people[options.icv_column], options.icv
        )
    site = None if options.site_column is None else people[options.site_column]
    return Inputs(features, covariates, site, options.site_column)


def _fit_combat(
    features: pd.DataFrame,
    inputs: Inputs,
    is_control: pd.Series,
    options: PreprocessingOptions,
) -> ComBat | None:
    if inputs.site is None:
        return None
    return options.make_combat().fit(features[is_control], inputs.site, inputs.covariates)


def _fit_combat_to_visits(
    visits: Visits,
    imputer: CNImputer | None,
    is_control: pd.Series,
    options: PreprocessingOptions,
) -> ComBat:
    """Fit longitudinal ComBat to all visits of the controls."""
    used = is_complete(visits.people, options) & visits.first.isin(is_control.index[is_control])
    inputs = prepare_inputs(visits.features[used], visits.people[used], options)
    sites = visits.people.loc[used, str(options.site_column)]
    return options.make_combat().fit(
        inputs.filled(imputer), sites, inputs.covariates, participants=visits.first[used]
    )


def _harmonize(
    combat: ComBat | None, features: pd.DataFrame, inputs: Inputs
) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
    """Harmonized features, and who had to be left as measured."""
    if combat is None or inputs.site is None:
        return features, np.zeros(len(features), dtype=bool)
    try:
        status = combat.status(features, inputs.site)
    except UnseenSiteError as error:
        raise DataError(
            f'{error.found}; sites of the model: {list_briefly(combat.sites_)}. Use one of these '
            'names, add the site from its controls (surreal-gan add-site), or use volumes as '
            'measured (--unseen-site skip)'
        ) from error
    harmonized = combat.transform(features, inputs.site, inputs.covariates)
    return harmonized, (status == UNHARMONIZED).to_numpy()


def _residualise(
    residualiser: Residualiser | None, features: pd.DataFrame, inputs: Inputs
) -> pd.DataFrame:
    if residualiser is None:
        return features
    return residualiser.transform(features, inputs.covariates)


def _require_informative(features: pd.DataFrame) -> None:
    """Refuse features that are constant, or the same as another one."""
    constant = features.columns[features.min() == features.max()]
    if len(constant):
        raise DataError(
            f'constant in all {len(features)} participants: {list_briefly(constant)}; drop these '
            'columns'
        )
    first: dict[bytes, str] = {}
    columns = {str(name): features[name].to_numpy().tobytes() for name in features}
    copies = [name for name, cells in columns.items() if first.setdefault(cells, name) != name]
    if copies:
        raise DataError(
            f'columns {first[columns[copies[0]]]} and {copies[0]} hold the same numbers '
            f'({len(copies)} such copies); keep one of them'
        )
