"""A small head that is quick to simulate: a ball of brain in a box of unequal axes."""

from functools import cache

import numpy as np
import pandas as pd
from scipy import ndimage

from surreal_bids.images import Image
from surreal_bids.simulation.anatomy import HeadTemplate, load_template
from surreal_bids.templates import resample

HIPPOCAMPUS, FAR_REGION, WHITE_MATTER, VENTRICLE = 47, 176, 44, 51
BALL_CENTRE_MM = np.array([9.0, -3.0, 2.0])
BALL_RADIUS_MM = 7.0
BRAIN_RADIUS_MM = 26.0

REGIONS = pd.DataFrame(
    {
        'index': [WHITE_MATTER, HIPPOCAMPUS, VENTRICLE, FAR_REGION],
        'name': ['White matter', 'Hippocampus', 'Ventricle', 'Postcentral gyrus'],
        'hemisphere': ['none', 'R', 'none', 'L'],
        'tissue': ['WM', 'GM', 'CSF', 'GM'],
    }
)


def _grid(voxel_size: float) -> tuple[tuple[int, ...], np.ndarray, np.ndarray]:
    """Shape, affine and world coordinates (X, Y, Z, 3) of a box around the phantom."""
    shape = tuple(int(extent // voxel_size) for extent in (72, 80, 76))
    affine = np.diag([voxel_size] * 3 + [1.0])
    affine[:3, 3] = (-36, -40, -38)
    world = np.moveaxis(np.indices(shape), 0, -1) * voxel_size + affine[:3, 3]
    return shape, affine, world


def phantom_labels() -> Image:
    """White matter with a shrinkable ball, a ventricle beside it and a region far from both."""
    _, affine, world = _grid(1.0)
    data = np.zeros(world.shape[:3], dtype=np.uint8)
    data[np.linalg.norm(world, axis=-1) < BRAIN_RADIUS_MM - 4] = WHITE_MATTER
    data[np.linalg.norm(world - (-2, -3, 2), axis=-1) < 4] = VENTRICLE
    data[np.linalg.norm(world - (-14, 6, 2), axis=-1) < 5] = FAR_REGION
    data[np.linalg.norm(world - BALL_CENTRE_MM, axis=-1) < BALL_RADIUS_MM] = HIPPOCAMPUS
    return Image(data, affine).slicer[ndimage.find_objects((data > 0).astype(np.uint8))[0]]


@cache
def phantom(voxel_size: float = 2.0) -> HeadTemplate:
    """HeadTemplate of the phantom on a working grid."""
    shape, affine, _ = _grid(voxel_size)
    labels = phantom_labels()
    _, fine_affine, fine_world = _grid(1.0)
    inside = np.linalg.norm(fine_world, axis=-1) < BRAIN_RADIUS_MM
    brain = resample(inside, fine_affine, affine, shape)
    data = np.asarray(labels.dataobj)
    grey = resample(np.isin(data, [HIPPOCAMPUS, FAR_REGION]), labels.affine, affine, shape)
    white = resample(data == WHITE_MATTER, labels.affine, affine, shape)
    fluid = brain - grey - white
    return HeadTemplate(
        affine=affine,
        t1=65 * grey + 85 * white + 25 * fluid,
        tissue=np.stack([grey, white, fluid]),
        brain=brain,
        labels=labels,
        regions=REGIONS,
    )


real_template = cache(load_template)
"""The template of the packages, loaded once a process."""


def row_of(template: HeadTemplate, index: int) -> int:
    """Position of a region in the table of a template."""
    return int(np.flatnonzero(template.regions['index'] == index)[0])
