"""A model for tables: preprocessing and Surreal-GAN, fitted, saved and applied as one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from surreal_bids.bids.participants import Table
from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.combat import UnseenSite
from surreal_bids.model import SurrealGAN
from surreal_bids.model.bundle import load_bundle, save_bundle
from surreal_bids.model.checks import FEWEST_PEOPLE
from surreal_bids.tables.features import FeatureList, read_features
from surreal_bids.tables.groups import CONTROL, PATIENT
from surreal_bids.tables.people import PreprocessingOptions, read_person_columns
from surreal_bids.tables.preprocessing import COMPLETE, Prepared, Preprocessing, fit_preprocessing

PREPROCESSING = 'preprocessing'
"""Prefix of the tensors of a bundle that belong to preprocessing."""

STD_SUFFIX = '_std'

NOTES = ('TrainingSample', 'Imported', 'HyperParameters')
"""What a card may hold of `TableModel.notes`."""


@dataclass(frozen=True, eq=False)
class TableModel:
    """What turns a table of people into R-indices.

    Attributes
    ----------
    preprocessing
        From features as measured to what the network sees.
    gan
        The fitted Surreal-GAN.
    pattern_names
        Names of the R-indices, in the order of `gan`.
    notes
        More for the card: plain JSON values that say where the model comes from.
    """

    preprocessing: Preprocessing
    gan: SurrealGAN
    pattern_names: tuple[str, ...]
    notes: Mapping[str, Any] = field(default_factory=dict)

    def read(self, table: Table, people: Table) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Take what `apply` needs out of tables: features, and what is known of people."""
        steps = self.preprocessing
        known = read_person_columns(people, steps.options, steps.text_covariates, steps.codes)
        return read_features(table, steps.features), known

    def apply(self, features: pd.DataFrame, people: pd.DataFrame) -> pd.DataFrame:
        """Compute R-indices of anyone, one person or many.

        Parameters
        ----------
        features : frame of shape (n_people, n_features)
            Features as measured, NaN where missing.
        people : frame of shape (n_people, n_columns)
            Covariates, ICV and site.

        Returns
        -------
        DataFrame, one row a person
            The R-indices under their names; with `_std`, their spread over members (if there are
            several); `in_range`, whether the profile lies within the training population (coarsely,
            for imported models); `beyond_range`, covariates that do not (if there are any);
            `n_imputed` (if the model imputes); `status`: complete, unharmonized or incomplete.
            Incomplete people have missing values throughout.
        """
        return self._describe(self.preprocessing.transform(features, people))

    def _describe(self, prepared: Prepared) -> pd.DataFrame:
        r, spread = self.gan.transform(prepared.normalised, return_std=True)
        names = list(self.pattern_names)
        computed = pd.DataFrame(r, prepared.normalised.index, names)
        if not np.isnan(spread).any():
            computed[[f'{name}{STD_SUFFIX}' for name in names]] = spread
        if self.gan.domain_ is not None:
            computed['in_range'] = self.gan.in_range(prepared.normalised)
        results = computed.reindex(prepared.status.index)
        extra = {'beyond_range': prepared.beyond_range, 'n_imputed': prepared.n_imputed}
        columns = {name: column for name, column in extra.items() if column is not None}
        return results.assign(**columns, status=prepared.status)

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
        return cls(
            Preprocessing.from_state(card['Preprocessing'], arrays),
            SurrealGAN.from_state(tensors, card),
            tuple(card['PatternNames']),
            {name: card[name] for name in NOTES if name in card},
        )


def load_table_bundle(folder: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors and card of a bundle, which must have preprocessing."""
    tensors, card = load_bundle(folder)
    if 'Preprocessing' not in card:
        raise DataError(
            f'{folder}: this model has no preprocessing, so that it takes normalised numbers '
            'only; use SurrealGAN.load in Python'
        )
    return tensors, card


def fit_table_model(
    wanted: FeatureList,
    options: PreprocessingOptions,
    features: pd.DataFrame,
    people: pd.DataFrame,
    is_patient: pd.Series,
    gan: SurrealGAN,
) -> tuple[TableModel, pd.DataFrame]:
    """Fit preprocessing, then the network on everyone who is complete and harmonized.

    Returns the model, and of everyone what `TableModel.apply` gives.

    Parameters
    ----------
    wanted, options
        Which features, and what is done to them.
    features, people : frames of one row a person
        Features as measured; covariates, ICV and site.
    is_patient : Series of bool
        Who is a patient; the others are controls.
    gan
        Not fitted yet; it will be.
    """
    _require_groups(is_patient)
    preprocessing, prepared = fit_preprocessing(wanted, options, features, people, ~is_patient)
    trained = prepared.normalised[prepared.status[prepared.normalised.index] == COMPLETE]
    gan.fit(trained, is_patient[trained.index].to_numpy(dtype=bool))
    sample = describe_sample(people.loc[trained.index], is_patient[trained.index], options)
    names = tuple(f'r{number}' for number in range(1, gan.selected_.n_patterns + 1))
    model = TableModel(preprocessing, gan, names, {'TrainingSample': sample})
    return model, model._describe(prepared)


def _require_groups(is_patient: pd.Series) -> None:
    """Refuse groups that are too small, before preprocessing finds another fault with them."""
    counts = {'controls': int((~is_patient).sum()), 'patients': int(is_patient.sum())}
    for group, count in counts.items():
        if count < FEWEST_PEOPLE:
            raise DataError(f'{count} {group}, but training needs at least {FEWEST_PEOPLE}')


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
    """Each feature with its unit, what it sums, and the numbers that preprocessing uses."""
    normaliser, residualiser = preprocessing.normaliser, preprocessing.residualiser
    columns = [] if residualiser is None else residualiser.encoder_.column_names_
    unit = 'proportion of ICV' if preprocessing.options.icv == 'proportion' else None
    return [
        {
            'Name': feature.name,
            'Units': unit or preprocessing.features.unit,
            'MUSERegions': list(feature.indices),
            'CNMean': float(normaliser.mean_[number]),
            'CNStd': float(normaliser.sd_[number]),
            'Coefficients': {
                column: float(residualiser.coefficients_[row, number])
                for row, column in enumerate(columns)
                if residualiser is not None
            },
        }
        for number, feature in enumerate(preprocessing.features.features)
    ]
