"""What each pattern changes in the brain, and what its R-index rests on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from surreal_bids.bids.outputs import output_path, write_sidecar
from surreal_bids.files import write_image
from surreal_bids.harmonization.covariates import CN_SD
from surreal_bids.model.training import pattern_changes
from surreal_bids.regions import readable_name
from surreal_bids.rindices.model import BASELINE, R_INDEX, VISIT, TableModel
from surreal_bids.templates import TEMPLATE_SPACE, muse_labels

PATTERN_COLUMNS = [
    *('pattern', 'region', 'muse_regions'),
    *('change_percent', 'change_percent_member_spread', 'change_sd'),
]
"""Columns of the table of patterns."""


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
        `change_percent` (mean change of the volume, in per cent of the mean of controls; missing
        for z-scores) with
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
    if steps.features.are_z_scores:
        relative = np.full_like(relative, np.nan)
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


def values_by_region(table: pd.DataFrame, measure: str = 'change_percent') -> dict[int, float]:
    """Return a measure of each MUSE region, by index, of the rows of one pattern."""
    return {
        int(index): float(change)
        for regions, change in zip(table['muse_regions'], table[measure])
        if isinstance(regions, str)
        for index in regions.split()
    }


def write_pattern_maps(
    root: Path, patterns: pd.DataFrame, whose: str = 'patients'
) -> dict[str, Path]:
    """Write what each pattern changes as an image of the atlas; images by pattern."""
    labels = muse_labels()
    written = {}
    for name, rows in patterns.groupby('pattern', sort=False):
        target = output_path(
            root,
            'pattern_map',
            template=TEMPLATE_SPACE,
            atlas='muse',
            contrast=str(name),
        )
        written[str(name)] = write_image(target, paint_regions(labels, values_by_region(rows)))
        text = f'Mean change in {whose} attributed to {name}, in percent of controls'
        write_sidecar('pattern_map', target, {'Description': text})
    return written
