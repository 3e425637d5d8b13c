"""What each pattern does to each region, in units that people know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from surreal_bids.harmonization.covariates import CN_SD
from surreal_bids.model.patterns import pattern_changes
from surreal_bids.regions import Feature, region_names
from surreal_bids.tables.pipeline import TableModel

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
