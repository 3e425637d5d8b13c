"""Voxelwise maps of what each pattern is (section 4.3, Fig. 3), from images of many people.

    designs, skipped = pattern_designs(r_indices, is_control, covariates)
    maps = compute_maps(MapSeries.open(paths), designs)

Memory does not grow with the number of people: see `surreal_bids.stats.glm`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import nibabel as nib
import numpy as np

from surreal_bids.exceptions import DataError
from surreal_bids.stats.designs import Design
from surreal_bids.stats.glm import Estimates, LinearModels
from surreal_bids.stats.images import MapSeries
from surreal_bids.stats.multiple_testing import FDR_LEVEL, fdr_t_threshold, t_to_z
from surreal_bids.stats.permutation import (
    ScratchMaps,
    draw_permutations,
    family_wise_p,
    largest_t,
)

SUMS_BYTES = 2 << 30
"""Memory that the sums of designs which share one reading of the images may take."""


@dataclass(frozen=True)
class PatternMap:
    """Result of one design. Images are 0 outside the mask and where nothing varies.

    Attributes
    ----------
    design
        What was compared.
    t, z
        Test statistic, and the normal deviate of the same p.
    effect
        Difference of means, or change per unit of the R-index, in units of the images.
    n_tested
        Voxels tested: those in the mask that vary among the people of the design.
    t_fdr
        Voxels of this size of t or more are discoveries at the false discovery rate; infinite if
        there are none.
    n_discoveries
        How many there are.
    log_p_fwe
        -log10 of the family-wise corrected p by permutation, if asked for.
    """

    design: Design
    t: nib.Nifti1Image
    z: nib.Nifti1Image
    effect: nib.Nifti1Image
    n_tested: int
    t_fdr: float
    n_discoveries: int
    log_p_fwe: nib.Nifti1Image | None = None


@dataclass(frozen=True)
class Permutation:
    """How the family-wise error is found.

    Attributes
    ----------
    n_permutations
        Random orders of people; p cannot be below 1 / (1 + n_permutations).
    seed
        Of the random orders.
    scratch_dir
        Folder for a file of 4 bytes a voxel and person, which is deleted in the end; None: the
        system's.
    """

    n_permutations: int = 1000
    seed: int = 0
    scratch_dir: Path | None = None


def compute_maps(
    series: MapSeries,
    designs: Sequence[Design],
    *,
    fdr_level: float = FDR_LEVEL,
    permutation: Permutation | None = None,
) -> list[PatternMap]:
    """Test every design at every voxel, reading each image once.

    Designs of so many columns that their sums would take more than `SUMS_BYTES` share as many
    readings as are needed.

    Parameters
    ----------
    series
        Maps of N people, in the order that the designs' rows refer to. People who are in no design
        are not read.
    designs
        What to compare, as `pattern_designs` makes them.
    fdr_level
        False discovery rate.
    permutation
        Ask for family-wise corrected p values too. Time grows with people, voxels, covariates and
        permutations; the scratch file with people and voxels.

    Raises
    ------
    DataError
        There is no design, or an image cannot be used; it is named.
    """
    if not designs:
        raise DataError('no comparison can be made; see why each was skipped')
    n_needed = 1 + max(int(design.rows.max()) for design in designs)
    if n_needed > len(series.paths):
        raise DataError(f'{len(series.paths)} images for at least {n_needed} people')
    return [
        found
        for some in _passes(designs, series.voxels.size)
        for found in _one_pass(series, some, fdr_level, permutation)
    ]


def _passes(designs: Sequence[Design], n_voxels: int) -> Iterator[list[Design]]:
    """Designs whose sums fit into memory together; usually that is all of them."""
    some: list[Design] = []
    for design in designs:
        if some and LinearModels.n_bytes([*some, design], n_voxels) > SUMS_BYTES:
            yield some
            some = []
        some.append(design)
    yield some


def _one_pass(
    series: MapSeries,
    designs: Sequence[Design],
    fdr_level: float,
    permutation: Permutation | None,
) -> list[PatternMap]:
    """Read the images of all who are in these designs once, and test."""
    size = (len(series.paths), series.voxels.size)
    models = LinearModels(designs, *size)
    scratch_dir = None if permutation is None else permutation.scratch_dir
    with tempfile.TemporaryDirectory(dir=scratch_dir) as folder:
        scratch = ScratchMaps(Path(folder) / 'maps', size)
        for batch, values in series.batches(np.unique(np.hstack([d.rows for d in designs]))):
            models.add(batch, values)
            if permutation is not None:
                scratch.store(batch, values)
        return [
            _to_map(series, design, estimates, fdr_level, _permuted(permutation, scratch, design))
            for design, estimates in zip(designs, models.estimates())
        ]


def _permuted(
    permutation: Permutation | None, scratch: ScratchMaps, design: Design
) -> np.ndarray | None:
    """Largest t of each permutation (K,)."""
    if permutation is None:
        return None
    orders = draw_permutations(design.rows.size, permutation.n_permutations, permutation.seed)
    return largest_t(scratch.chunks(design.rows), design, orders)


def _to_map(
    series: MapSeries,
    design: Design,
    estimates: Estimates,
    fdr_level: float,
    largest: np.ndarray | None,
) -> PatternMap:
    t = estimates.t[estimates.varies].astype(np.float32)  # as written, so that t_fdr fits the image
    t_fdr = fdr_t_threshold(t, design.df, fdr_level)
    log_p = None
    if largest is not None:
        log_p = series.to_image(-np.log10(family_wise_p(estimates.t, largest)))
    return PatternMap(
        design=design,
        t=series.to_image(estimates.t),
        z=series.to_image(t_to_z(estimates.t, design.df)),
        effect=series.to_image(estimates.effect),
        n_tested=t.size,
        t_fdr=t_fdr,
        n_discoveries=int((np.abs(t) >= t_fdr).sum()),
        log_p_fwe=log_p,
    )
