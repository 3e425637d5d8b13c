"""Simulated RAVENS maps: grey matter in template space that adds up to given regional volumes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from surreal_bids.images import Image, like
from surreal_bids.regions import muse_table
from surreal_bids.simulation.anatomy import smooth
from surreal_bids.simulation.templates import labels_at, load_labels
from surreal_bids.templates import builtin_template

VOXEL_SIZE_MM = 4.0
"""Coarse maps keep a study of hundreds of participants small and fast."""

VARIATION_MM, VARIATION_SD = 8.0, 0.15
"""Smoothness and relative strength of the variation within regions."""


def simulate_ravens(volumes: pd.DataFrame, rng: np.random.Generator) -> Iterator[Image]:
    """Simulate the RAVENS map of grey matter of each participant.

    The template's grey matter varies smoothly, and each region is scaled to its volume. Where the
    template has no grey matter region, there is only the variation.

    Parameters
    ----------
    volumes
        One row per participant, columns ``MUSE_23`` to ``MUSE_207``, in mm3.
    rng
        Source of the variation.
    """
    template = builtin_template(VOXEL_SIZE_MM)
    grey = np.asarray(template.priors['GM'].dataobj)
    labels = labels_at(load_labels(), template.t1w.affine, grey.shape)
    table = muse_table()
    regions = [i for i in table.loc[table['tissue'] == 'GM', 'index'] if (labels == i).any()]
    column = np.searchsorted(regions, labels)
    column[~np.isin(labels, regions)] = len(regions)
    for wanted in volumes[[f'MUSE_{index}' for index in regions]].to_numpy(dtype=float):
        noise = smooth(
            rng.standard_normal(grey.shape, dtype=np.float32), VARIATION_MM / VOXEL_SIZE_MM
        )
        own = grey * np.exp(VARIATION_SD * noise / noise.std())
        present = np.bincount(column.ravel(), own.ravel()) * VOXEL_SIZE_MM**3
        factors = np.ones(len(regions) + 1)
        factors[:-1] = wanted / present[:-1]
        yield like(template.t1w, own * factors[column], np.float32)
