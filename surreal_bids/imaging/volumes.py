"""Volumes of regions, as tables."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
import pandas as pd

from surreal_bids.exceptions import DataError
from surreal_bids.imaging.images import Image, voxel_volume

LOGGER = logging.getLogger(__name__)


def volumes_of_labels(labels: Image) -> dict[int, float]:
    """Volume (mm3) of each label of a segmentation by its voxels; 0 is background.

    Parameters
    ----------
    labels
        Label map, e.g. one that another program made.
    """
    values, counts = np.unique(np.asarray(labels.dataobj), return_counts=True)
    if (values != np.round(values)).any() or values.min() < 0:
        raise DataError(
            f'a segmentation with values from {values.min():g} to {values.max():g} that are not '
            'all whole numbers from 0; give a label map, not probabilities'
        )
    size = voxel_volume(labels)
    return {int(v): float(n * size) for v, n in zip(values, counts) if v > 0}


def volume_table(volumes: Mapping[int, float], regions: pd.DataFrame) -> pd.DataFrame:
    """Arrange volumes as the list of regions has them.

    Parameters
    ----------
    volumes
        Volume (mm3) of each label.
    regions
        Columns `index` and `name`, one row a region.

    Returns
    -------
    pandas.DataFrame
        `index`, `name` and `volume_mm3`. A region that was not found has volume 0; labels that
        are no region are left out, which the log says.

    Raises
    ------
    DataError
        None of the labels is a region: the list belongs to another atlas.
    """
    listed = regions['index'].tolist()
    others = sorted(set(volumes) - set(listed))
    if len(others) == len(volumes):
        raise DataError(
            f'none of the labels {others[:5]} is among the {len(listed)} regions of the atlas; '
            'the segmentation was made with another one'
        )
    if others:
        LOGGER.info('Labels %s are no regions of the atlas and are left out', others)
    table = regions[['index', 'name']].reset_index(drop=True)
    return table.assign(volume_mm3=[float(volumes.get(index, 0.0)) for index in listed])
