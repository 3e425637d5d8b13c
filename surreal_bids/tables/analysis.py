"""What patterns are: regions they change, reproducibility, and what harmonization did."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from surreal_bids.files import write_json
from surreal_bids.harmonization.combat import ComBat
from surreal_bids.harmonization.covariates import CN_SD
from surreal_bids.harmonization.quality import (
    N_FOLDS,
    HarmonizationQuality,
    SiteClassification,
    assess_harmonization,
)
from surreal_bids.model.train import pattern_changes
from surreal_bids.regions import Feature, region_names
from surreal_bids.stats.concordance import pattern_reproducibility
from surreal_bids.tables.cohort import Cohort
from surreal_bids.tables.pipeline import TableModel
from surreal_bids.tables.preprocessing import prepare_inputs

COLUMNS: dict[str, dict[str, Any]] = {
    'pattern': {'Description': 'R-index that measures the pattern'},
    'region': {'Description': 'Region, or sum of regions'},
    'muse_regions': {'Description': 'MUSE indices of the regions, if it is made of such'},
    'change_percent': {
        'Description': 'Mean change of the volume in patients that the decomposer assigns to the '
        'pattern, of the mean of controls',
        'Units': '%',
    },
    'change_percent_std': {
        'Description': 'Standard deviation of the change over the members of the consensus',
        'Units': '%',
    },
    'change_sd': {
        'Description': 'The same change, in standard deviations of controls',
        'Units': '1',
    },
}
"""Columns of the table of patterns."""


def describe_patterns(model: TableModel, normalised: pd.DataFrame) -> pd.DataFrame:
    """Tell what the decomposer says each pattern changes; see `COLUMNS`.

    Parameters
    ----------
    model
        The model.
    normalised : frame of shape (n_people, n_features)
        People, in most cases patients, as the network sees them.
    """
    steps = model.preprocessing
    features = steps.features.features
    X = normalised[model.gan.feature_names_in_ or list(normalised.columns)]
    people = torch.tensor(X.to_numpy(dtype=np.float32))
    in_sd = pattern_changes(model.gan.weights_, people) / CN_SD
    relative = 100 * np.asarray(steps.normaliser.sd_) / np.asarray(steps.normaliser.mean_)
    spread = in_sd.std(axis=0, ddof=1) if len(in_sd) > 1 else np.full(in_sd.shape[1:], np.nan)
    tables = [
        pd.DataFrame(
            {
                'pattern': pattern,
                'region': [readable_name(feature) for feature in features],
                'muse_regions': [' '.join(map(str, f.indices)) or None for f in features],
                'change_percent': in_sd[:, number].mean(axis=0) * relative,
                'change_percent_std': spread[number] * np.abs(relative),
                'change_sd': in_sd[:, number].mean(axis=0),
            }
        )
        for number, pattern in enumerate(model.pattern_names)
    ]
    return pd.concat(tables, ignore_index=True)


def readable_name(feature: Feature) -> str:
    """Name of a feature: that of the region, if it is a single MUSE region."""
    return region_names()[feature.indices[0]] if len(feature.indices) == 1 else feature.name


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


Indices = Mapping[int, pd.DataFrame]
"""Everyone's R-indices by the model of each half, 1 and 2."""

OTHER = {1: 2, 2: 1}


def compare_halves(
    everyone: pd.DataFrame, of_half: Indices, halves: pd.Series, is_patient: pd.Series
) -> pd.DataFrame:
    """How alike patients are described by models that were trained on different people.

    Parameters
    ----------
    everyone : frame of shape (n_visits, M)
        R-indices by the model that was trained on all.
    of_half
        R-indices by the models of the halves.
    halves, is_patient : Series of shape (n_visits,)
        Half and group of each visit.

    Returns
    -------
    DataFrame
        `comparison`, `people` (how many patients), and the columns of
        :func:`~surreal_bids.stats.concordance.pattern_reproducibility`.
    """
    tables = [_compare('half 1 and half 2', of_half[1], of_half[2], is_patient)]
    for half, indices in of_half.items():
        unseen = is_patient & (halves == OTHER[half])
        title = f'half {half} and all, in people of half {OTHER[half]}'
        tables.append(_compare(title, everyone, indices, unseen))
    return pd.concat(tables, ignore_index=True)


def _compare(
    title: str, first: pd.DataFrame, second: pd.DataFrame, chosen: pd.Series
) -> pd.DataFrame:
    people = first.index[chosen & first.notna().all(axis=1) & second.notna().all(axis=1)]
    table = pattern_reproducibility(first.loc[people], second.loc[people])
    table.insert(0, 'comparison', title)
    table.insert(1, 'people', len(people))
    return table


ENOUGH_TO_REFIT = 2 * N_FOLDS
"""Controls that each site needs for ComBat to be learned again without a fold of them."""

_CLASSIFICATIONS = (
    'classification_before',
    'classification_after',
    'classification_held_out',
)


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
    age = next((name for name in numeric if name.lower() == 'age'), numeric[0])
    return assess_harmonization(
        inputs.features[large],
        harmonized.loc[inputs.features.index[large]],
        inputs.site[large],
        inputs.covariates[large],
        covariate=age,
        harmonizer=ComBat() if sizes[sizes >= N_FOLDS].min() >= ENOUGH_TO_REFIT else None,
        random_state=random_state,
    )


def write_quality(path: Path, quality: HarmonizationQuality) -> Path:
    """Write all measures as JSON."""
    plain = {name: getattr(quality, name) for name in _CLASSIFICATIONS}
    return write_json(
        path,
        {
            'features': json.loads(quality.features.to_json(orient='split')),
            'covariate': quality.covariate,
            'site_variance_by_chance': quality.site_variance_by_chance,
            **{name: None if value is None else asdict(value) for name, value in plain.items()},
        },
    )


def read_quality(path: Path) -> HarmonizationQuality:
    """Read what :func:`write_quality` wrote."""
    content = json.loads(path.read_text(encoding='utf-8'))
    table = content['features']
    features = pd.DataFrame(table['data'], table['index'], table['columns'])
    scores: dict[str, Any] = {
        name: None if content[name] is None else SiteClassification(**content[name])
        for name in _CLASSIFICATIONS
    }
    return HarmonizationQuality(
        features=features,
        covariate=content['covariate'],
        site_variance_by_chance=content['site_variance_by_chance'],
        **scores,
    )
