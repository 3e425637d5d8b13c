"""Checks that results of other programs belong to a T1w image.

Results of the same head fit the image best where they are: moved by `STEP_MM`, they fit much less.
Results of another head fit as badly elsewhere. This comparison needs no registration, and it does
not depend on the contrast of the image. Limits were found in 20 heads with labels of DLMUSE (2 mm)
and 35 with labels drawn by hand (1 mm), with labels of other heads at the same centre as negatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import NoReturn

import numpy as np
import pandas as pd
from nibabel.affines import apply_affine, voxel_sizes
from numpy.typing import NDArray
from scipy import ndimage
from scipy.stats import rankdata

from surreal_bids.exceptions import DataError
from surreal_bids.images import Image, require_same_grid, voxel_volume
from surreal_bids.imaging.brain import MASK_LITRES, MM3_PER_LITRE, check_mask_volume
from surreal_bids.regions import side_of, tissue_of

STEP_MM = 4.0
"""Distance by which results are moved, or one voxel if that is larger."""

POINTS = 40_000
"""Maximum number of voxels to look at."""

FEWEST_VOXELS = 50
"""Number of voxels of a side below which it is not checked."""

LEAST_TISSUE = 0.1
"""Share of a segmentation in grey or white matter below which tissue is not checked."""

LEAST_IN_VIEW = 0.9
"""Minimum share of a segmentation inside the field of view of the T1w image."""

LEAST_CONTRAST, SURE_CONTRAST = 0.1, 0.4
"""Contrast of white to grey matter, from -0.5 to 0.5: too low, or high enough for the same head.
0.31 to 0.49 in the same head, at most 0.31 in another one, at most 0.35 for mirrored labels."""

LEAST_PEAK = 0.2
"""Minimum share of a lower contrast that is lost by moving the labels. At least 0.31 in the same
head, at most 0.13 in another one, at most 0.17 for mirrored labels. Simulated heads of 3 mm, which
have a smooth cortex, lose 0.15 of a contrast of 0.45."""

WEAK_CONTRAST, WEAK_PEAK = 0.05, 0.14
"""From these to the limits above, the same head with much noise, low contrast or smooth labels is
likelier than another one, and there is only a warning."""

INVERTED_CONTRAST = -0.3
"""Contrast of images in which white matter is dark."""

LEAST_CORRELATION, LEAST_DROP, CHANCE = 0.8, 0.25, 0.1
"""A corrected T1w image of the same head correlates with the raw one at least so much, or loses so
much of the correlation when it is moved. At most 0.68 and 0.20 in another head. Noise correlates by
chance."""

MOST_MISPLACED = 0.03
"""Maximum share of voxels on the other side of the plane between left and right. At most 0.011 in
153 heads; 0.06 and 0.12 in two with wrong labels."""

LEAST_ALONG_X = 0.5
"""Minimum cosine of the angle between the axis from left to right and x of the header."""

LEAST_KNOWN = 0.5
"""Minimum share of a segmentation in regions of a built-in table."""

MOST_REGIONS = 0.75
"""Share of the regions of a built-in table below which a segmentation is in doubt."""

MARGIN_MM, BIN_MM = 10.0, 2.0
"""Distance from the surface of a mask up to which intensities are compared, in bins."""

COARSE_MM = 2.0
"""Voxel size at which the distance from a mask is computed."""


def _at(image: Image, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the nearest voxel of an image to each point (N, 3) in mm; NaN outside the image."""
    voxels = np.rint(apply_affine(np.linalg.inv(image.affine), points)).astype(int)
    inside = ((voxels >= 0) & (voxels < image.shape)).all(axis=1)
    values = np.full(len(points), np.nan)
    values[inside] = np.asarray(image.dataobj)[tuple(voxels[inside].T)]
    return values


def _scores(
    image: Image, points: NDArray[np.float64], score: Callable[[NDArray[np.float64]], float]
) -> tuple[float, list[float]]:
    """Compute a score of the intensities at points, and at points moved in six directions."""
    step = max(STEP_MM, float(voxel_sizes(image.affine).max()))
    moves = [sign * step * axis for axis, sign in product(np.eye(3), (-1, 1))]
    return score(_at(image, points)), [score(_at(image, points + move)) for move in moves]


def check_segmentation(dseg: Image, regions: pd.DataFrame, t1w: Image) -> str:
    """Check that a segmentation shows the head of a T1w image.

    Parameters
    ----------
    dseg
        Label map on any grid.
    regions
        Columns `index` and `name`. Names tell side and tissue; other regions are not checked.
    t1w
        The T1w image, with or without a skull.

    Returns
    -------
    str
        Doubts that are no proof; empty without doubts.

    Raises
    ------
    DataError
        It is outside of the image, left and right are exchanged, or tissue does not fit.
    """
    points, labels = _labelled(dseg)
    share = np.isfinite(_at(t1w, points)).mean()
    if share < LEAST_IN_VIEW:
        raise DataError(
            f'only {share:.0%} of the segmentation is in the field of view of the T1w image; '
            'check that both are of the same head and that their headers match'
        )
    names = dict(zip(regions['index'].tolist(), regions['name'].astype(str).tolist()))
    check_sides(points, _mapped(labels, {i: side_of(name) for i, name in names.items()}))
    tissues = _mapped(labels, {i: tissue_of(name) for i, name in names.items()})
    return check_tissue(t1w, points, tissues)


def _mapped(labels: NDArray[np.int64], meaning: dict[int, str]) -> NDArray[np.str_]:
    found, places = np.unique(labels, return_inverse=True)
    return np.array([meaning.get(int(label), 'none') for label in found])[places]


def _labelled(image: Image) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return points (N, 3) in mm and labels of some voxels that are not 0."""
    values = np.asarray(image.dataobj)
    flat = np.flatnonzero(values > 0)
    flat = flat[:: max(1, len(flat) // POINTS)]
    voxels = np.column_stack(np.unravel_index(flat, values.shape))
    return apply_affine(image.affine, voxels), values.ravel()[flat].astype(np.int64)


def check_known(volumes: dict[int, float], regions: pd.DataFrame) -> str:
    """Check that most of a segmentation is in regions of its table; return a doubt if few are."""
    listed = set(regions['index'].tolist())
    total = sum(volumes.values())
    share = sum(volume for label, volume in volumes.items() if label in listed) / (total or 1.0)
    if share < LEAST_KNOWN:
        others = sorted(set(volumes) - listed)[:5]
        raise DataError(
            f'only {share:.0%} of the segmentation is in known regions (unknown labels: '
            f'{", ".join(map(str, others))}...); name its labels in a dseg.tsv, or replace it'
        )
    found = len(listed.intersection(volumes))
    if found >= MOST_REGIONS * len(listed):
        return ''
    return f'it has {found} of {len(listed)} regions'


def check_sides(points: NDArray[np.float64], sides: NDArray[np.str_]) -> None:
    """Check that labels of the left are left of those of the right.

    Parameters
    ----------
    points
        World coordinates (N, 3): x grows to the right.
    sides
        `L`, `R` or `none` of each point.
    """
    sided = sides != 'none'
    signs = np.where(sides[sided] == 'R', 1.0, -1.0)
    if min(np.sum(signs > 0), np.sum(signs < 0)) < FEWEST_VOXELS:
        return
    centred = points[sided] - points[sided].mean(axis=0)
    design = np.column_stack([centred, np.ones(len(centred))])
    plane = np.linalg.lstsq(design, signs, rcond=None)[0]
    misplaced = np.mean(design @ plane * signs < 0)
    remedy = 'correct or remove the segmentation, or correct its header'
    if plane[0] / np.linalg.norm(plane[:3]) < -LEAST_ALONG_X:
        raise DataError(f'left and right are exchanged in the segmentation; {remedy}')
    if misplaced > MOST_MISPLACED:
        raise DataError(
            f'{misplaced:.0%} of the voxels labelled left or right are on the other side; {remedy}'
        )
    if plane[0] / np.linalg.norm(plane[:3]) < LEAST_ALONG_X:
        raise DataError(f'left and right of the segmentation are not along the x axis; {remedy}')


def check_tissue(t1w: Image, points: NDArray[np.float64], tissues: NDArray[np.str_]) -> str:
    """Check that white matter is brighter than grey matter, and most where the labels are.

    The doubts of :func:`check_segmentation` are returned.

    Parameters
    ----------
    t1w
        The T1w image.
    points
        World coordinates (N, 3).
    tissues
        `GM`, `WM` or another name of each point.
    """
    used = np.isin(tissues, ['GM', 'WM'])
    white = tissues[used] == 'WM'
    if min(white.sum(), (~white).sum()) < LEAST_TISSUE * len(points):
        return ''

    def contrast(values: NDArray[np.float64]) -> float:
        """Probability that white matter is brighter than grey matter (Mann-Whitney), minus 0.5."""
        ranks = rankdata(np.nan_to_num(values))
        n_white = white.sum()
        above = ranks[white].sum() - n_white * (n_white + 1) / 2
        return float(above / (n_white * (~white).sum()) - 0.5)

    here, moved = _scores(t1w, points[used], contrast)
    lost = 1 - np.mean(moved) / max(here, 1e-6)
    if here >= SURE_CONTRAST or (here >= LEAST_CONTRAST and lost >= LEAST_PEAK):
        return ''
    if here >= max(WEAK_CONTRAST, *moved) and lost >= WEAK_PEAK:
        return 'its white and grey matter fit the T1w image only roughly'
    if here > INVERTED_CONTRAST:
        _refuse('its white and grey matter do not fit the T1w image')
    raise DataError(
        'its white matter is darker than its grey matter in the T1w image; replace the image if it '
        'has another contrast, or the segmentation if its tissues are exchanged'
    )


def _refuse(what: str) -> NoReturn:
    raise DataError(
        f'{what}: it may be of another participant or session, or moved; replace it, or remove it '
        'to compute a new one'
    )


def check_mask(mask: Image, t1w: Image) -> None:
    """Check that a brain mask has the size of a brain and fits a T1w image.

    Intensities depend on the distance from the surface of the brain. A mask of the same head, tight
    or loose, shows this dependence best where it is.
    """
    require_same_grid(mask, t1w, 'the brain mask')
    values = np.asarray(mask.dataobj)
    if np.any((values != 0) & (values != values.max())):
        raise DataError('more than two values; provide a mask, or remove it to compute a new one')
    check_mask_volume(float(np.sum(values > 0) * voxel_volume(mask)))
    points, bins = _near_surface(mask)

    def dependence(intensities: NDArray[np.float64]) -> float:
        """Share of the variance of ranks between the bins of distance."""
        ranks = rankdata(np.nan_to_num(intensities))
        counts = np.bincount(bins)
        means = np.bincount(bins, ranks) / np.maximum(counts, 1)
        between = np.sum(counts * (means - ranks.mean()) ** 2)
        return float(between / max(np.sum((ranks - ranks.mean()) ** 2), 1.0))

    here, moved = _scores(t1w, points, dependence)
    if here < max(moved):
        _refuse(f'the mask fits the T1w image better {STEP_MM:g} mm away')


def _near_surface(mask: Image) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return points (N, 3) near the surface of a mask, and the bin of their signed distance."""
    strides = np.maximum(1, np.floor(COARSE_MM / voxel_sizes(mask.affine) + 0.01)).astype(int)
    sampling = voxel_sizes(mask.affine) * strides
    margin = np.ceil(MARGIN_MM / sampling).astype(int)
    coarse = np.asarray(mask.dataobj)[tuple(slice(None, None, stride) for stride in strides)]
    inside = np.pad(coarse > 0, np.column_stack([margin, margin]))
    distance: NDArray[np.float64] = np.zeros(inside.shape)
    for sign, part in ((1.0, ~inside), (-1.0, inside)):
        edge = ndimage.distance_transform_edt(part, sampling=sampling)
        distance += sign * np.asarray(edge, dtype=np.float64)
    flat = np.flatnonzero(np.abs(distance) < MARGIN_MM)
    flat = flat[:: max(1, len(flat) // POINTS)]
    voxels = np.column_stack(np.unravel_index(flat, inside.shape)) - margin
    bins = np.floor((distance.ravel()[flat] + MARGIN_MM) / BIN_MM).astype(np.int64)
    return apply_affine(mask.affine, voxels * strides), bins


def check_tissue_maps(maps: Sequence[Image], t1w: Image) -> str:
    """Check that maps of GM, WM and CSF are probabilities and fit a T1w image; return doubts."""
    for each in maps:
        require_same_grid(each, t1w, 'the tissue map')
        values = np.asarray(each.dataobj)
        if values.min() < -0.01 or values.max() > 1.01:
            raise DataError(
                f'values from {values.min():g} to {values.max():g} are not probabilities; replace '
                'the tissue map, or remove it to compute a new one'
            )
    grey, white = (np.asarray(each.dataobj) > 0.5 for each in maps[:2])
    numbers = Image((grey + 2 * (white & ~grey)).astype(np.int16), t1w.affine)
    points, tissues = _labelled(numbers)
    return check_tissue(t1w, points, np.array(['none', 'GM', 'WM'])[tissues])


def check_lesion(lesion: Image, t1w: Image) -> None:
    """Check that a lesion mask is a mask on the grid of a T1w image, and smaller than a brain."""
    require_same_grid(lesion, t1w, 'the lesion mask', 'the T1w image in use')
    values = np.asarray(lesion.dataobj)
    if np.any((values != 0) & (values != values.max())) or 0 < values.max() < 1:
        raise DataError(
            'values between 0 and 1, or more than two values; a lesion mask is 0 outside and 1 '
            'inside the lesion'
        )
    litres = float(np.sum(values > 0) * voxel_volume(lesion) / MM3_PER_LITRE)
    if litres > MASK_LITRES[0]:
        raise DataError(
            f'{litres:.2f} litres are larger than a hemisphere; a lesion mask is 0 outside and 1 '
            'inside the lesion'
        )


def check_same_head(corrected: Image, raw: Image) -> None:
    """Check that a corrected T1w image shows the head of the raw image, in the same place."""
    points, _ = _labelled(raw)
    expected = _at(raw, points)

    def correlation(values: NDArray[np.float64]) -> float:
        both = np.isfinite(values) & (values > 0)
        if both.sum() < FEWEST_VOXELS or np.ptp(values[both]) == 0:
            return 0.0
        return float(np.corrcoef(expected[both], values[both])[0, 1])

    here, moved = _scores(corrected, points, correlation)
    drops = here > CHANCE and 1 - np.mean(moved) / here >= LEAST_DROP
    if here < LEAST_CORRELATION and not drops:
        _refuse(f'it does not fit the raw T1w image (correlation {here:.2f})')


OVERLAP_POINTS = 100_000
LEAST_OVERLAP = 0.85
"""Number of labelled voxels to check, and minimum share of them inside the brain mask. In 55 heads,
the share is 0.97 to 1; a segmentation 1.2 times as large as the mask has at most 0.83."""


def require_overlap(labels: Image, mask: Image, regions: pd.DataFrame) -> None:
    """Check that a segmentation overlaps the brain mask.

    Parameters
    ----------
    labels
        Label map on any grid, such as that of FreeSurfer.
    mask
        Brain mask on the grid of the T1w image.
    regions
        Columns `index` and `name`. CSF around the brain, which SynthSeg labels, is not compared:
        some masks are without it.

    Raises
    ------
    DataError
        Much of the segmentation is outside the mask.
    """
    fluid = regions.loc[regions['name'].str.contains('csf', case=False), 'index']
    brain = np.argwhere(~np.isin(np.asarray(labels.dataobj), [0, *fluid]))
    voxels = brain[:: max(1, len(brain) // OVERLAP_POINTS)]
    to_mask = np.linalg.inv(mask.affine) @ labels.affine
    places = np.rint(apply_affine(to_mask, voxels)).astype(int)
    within = ((places >= 0) & (places < mask.shape)).all(axis=1)
    inside = np.asarray(mask.dataobj)[tuple(places[within].T)] > 0
    share = inside.sum() / max(1, len(voxels))
    if share < LEAST_OVERLAP:
        raise DataError(
            f'only {share:.0%} of the segmentation is inside the brain mask of the T1w image; '
            'check that both are from the same image and that their headers match'
        )
