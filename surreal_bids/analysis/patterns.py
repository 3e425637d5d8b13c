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
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.files import write_image
from surreal_bids.harmonization.covariates import CN_SD
from surreal_bids.model.training import pattern_changes
from surreal_bids.regions import readable_name
from surreal_bids.rindices.crossfit import CrossFit
from surreal_bids.rindices.model import R_INDEX, VISIT, TableModel
from surreal_bids.templates import muse_labels

PATTERN_COLUMNS = [
    *('pattern', 'region', 'muse_regions', 'change_percent', 'change_sd', 'change_sd_spread'),
    *('contribution', 'shown'),
]

LEAST_CHANGE = 0.3
"""Standard deviations of controls: smaller changes occur where a simulated pattern has none."""

LEAST_ENLARGEMENT = 0.6
"""The same for enlargement, of which decomposers show up to 0.55 where volumes are only lost."""


def describe_patterns(
    model: TableModel, people: Cohort, contributions: pd.DataFrame, fitted: CrossFit | None = None
) -> pd.DataFrame:
    """Describe what each pattern changes, as the decomposer assigns it.

    What a pattern changes is not what its R-index rests on: the network weighs regions that vary
    little among controls more than others, and a region that two patterns share may count in one of
    their R-indices only. A region is shown if its change is clear, whatever it contributes.

    Parameters
    ----------
    model
        The model.
    people
        Participants, in most cases patients.
    contributions
        Contribution of each feature to their R-indices; see `TableModel.contributions`.
    fitted
        Models of folds, from which the spread is computed; None: members of the model.

    Returns
    -------
    DataFrame, one row per pattern and feature
        `pattern` (its R-index), `region` (or sum of regions), `muse_regions` (their MUSE indices),
        `change_percent` (mean change of the volume, in per cent of the mean of controls; missing
        for z-scores), `change_sd` (the same in standard deviations of controls), its standard error
        `change_sd_spread` (jackknife over folds, or the SD over members), the mean `contribution`,
        and whether the change is `shown`: beyond its spread and `LEAST_CHANGE` (enlargement:
        `LEAST_ENLARGEMENT`).
    """
    names, steps = list(model.pattern_names), model.preprocessing
    if not names:
        return pd.DataFrame(columns=PATTERN_COLUMNS)
    features = steps.structures.features
    members = _changes(model, people)
    change = members.mean(axis=0)
    if fitted is None or len(fitted.models) < 2:
        spread = members.std(axis=0, ddof=1) if len(members) > 1 else np.full_like(change, np.nan)
    else:
        spread = _spread_of_folds(fitted, people, names)
    own = contributions[contributions.index.get_level_values(VISIT).isin(people.visits.index)]
    of_features = own.reindex(columns=steps.structures.names).astype(float)
    contribution = of_features.groupby(level=R_INDEX).mean().reindex(names).to_numpy()
    least = np.where(change > 0, LEAST_ENLARGEMENT, LEAST_CHANGE)
    shown = np.abs(change) > np.fmax(spread, least)
    relative = 100 * np.asarray(steps.normaliser.sd_) / np.asarray(steps.normaliser.mean_)
    if steps.structures.are_z_scores:
        relative = np.full_like(relative, np.nan)
    values = {
        'change_percent': change * relative,
        'change_sd': change,
        'change_sd_spread': spread,
        'contribution': contribution,
        'shown': shown,
    }
    regions = {
        'pattern': np.repeat(names, len(features)),
        'region': [readable_name(feature) for feature in features] * len(names),
        'muse_regions': [' '.join(map(str, f.indices)) or None for f in features] * len(names),
    }
    return pd.DataFrame(regions | {name: each.ravel() for name, each in values.items()})


def _changes(model: TableModel, people: Cohort) -> NDArray[np.float64]:
    """Mean change of each feature by each pattern of each member, in SD of controls: (E, M, S)."""
    steps = model.with_unseen_site('skip').preprocessing
    seen = steps.transform(people.features, people.people).normalised[steps.structures.names]
    changes = pattern_changes(model.gan.weights_, torch.tensor(seen.to_numpy(dtype=np.float32)))
    return np.asarray(changes) / CN_SD


def _spread_of_folds(fitted: CrossFit, people: Cohort, names: list[str]) -> NDArray[np.float64]:
    """Return the jackknife standard error of changes over the models of folds: (M, S)."""
    found = []
    for fold, model in fitted.models.items():
        own_name = {final: own for own, final in fitted.names[fold].items()}
        order = [model.pattern_names.index(own_name[name]) for name in names]
        found.append(_changes(model, people).mean(axis=0)[order])
    centred = np.array(found) - np.mean(found, axis=0)
    return np.asarray(np.sqrt((len(found) - 1) / len(found) * np.square(centred).sum(axis=0)))


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


def values_by_region(table: pd.DataFrame, column: str = 'change_sd') -> dict[int, float]:
    """Values of each MUSE region, by index, of the rows of one pattern."""
    return {
        int(index): float(change)
        for regions, change in zip(table['muse_regions'], table[column])
        if isinstance(regions, str)
        for index in regions.split()
    }


def write_pattern_maps(root: Path, patterns: pd.DataFrame, whose: str = 'patients') -> None:
    """Write what each pattern changes as an image of the atlas."""
    labels = muse_labels()
    for name, rows in patterns.groupby('pattern', sort=False):
        target = output_path(root, 'pattern_map', atlas='muse', contrast=str(name))
        write_image(target, paint_regions(labels, values_by_region(rows[rows['shown']])))
        text = (
            f'Mean change in {whose} attributed to {name}, in standard deviations of controls; 0 '
            'where the region is not part of the pattern (column shown of the table)'
        )
        write_sidecar('pattern_map', target, {'Description': text})
