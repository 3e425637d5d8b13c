"""Which atlases resemble a head, so that only these need to be registered to it.

All brains are brought to the size and pose of the template, where their portraits are compared:
cheap, since an affine alignment is all it takes, and once for each atlas. MUSE chooses its atlases
by likeness too (Doshi et al., NeuroImage 127:186, 2016).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from surreal_bids.images import Image, like
from surreal_bids.imaging.registration import align_affine, normalise_intensity
from surreal_bids.imaging.transforms import affine_transform, resample
from surreal_bids.templates import Template, builtin_template

PORTRAIT_MM = 4.0
"""Voxels of a portrait, and the standard deviation of its smoothing: sulci differ between any two
people, while ventricles and the room around the brain tell who resembles whom."""


SAME_PERSON = 0.97
"""Portraits that correlate so much are of one person: of the 35 scans of MICCAI 2012, two of one
person do with 0.990 to 0.998, those of different people with 0.94 at most."""


@cache
def _template() -> Template:
    return builtin_template(PORTRAIT_MM)


def portrait(brain: Image) -> Image:
    """Return a smoothed brain in the size and pose of the built-in template, in large voxels.

    Parameters
    ----------
    brain
        T1w image, 0 outside the brain; on any grid, anywhere in space.
    """
    template = normalise_intensity(_template().t1w)
    moving = normalise_intensity(brain)
    matrix = align_affine(template, moving)
    posed = resample(moving, affine_transform(template.shape, template.affine, matrix))
    smooth = ndimage.gaussian_filter(np.asarray(posed.dataobj), 1.0)
    return like(template, smooth, np.float32)


def likenesses(head: Image, atlases: Sequence[Image]) -> NDArray[np.float64]:
    """Correlate one portrait with each of the others, in the brain of the template."""
    inside = np.asarray(_template().mask.dataobj) > 0
    values = np.stack([np.asarray(each.dataobj)[inside] for each in (head, *atlases)])
    return np.corrcoef(values)[0, 1:]


def most_alike(head: Image, atlases: Sequence[Image], number: int) -> list[int]:
    """Return positions of the atlases most similar to a head, in their order.

    Parameters
    ----------
    head, atlases
        Portraits.
    number
        Number of atlases; fewer if there are fewer people. Only the most similar atlas of a person
        counts, because their votes are almost the same; of two equally similar ones, the first.
    """
    to_head = likenesses(head, atlases)
    chosen: list[int] = []
    for position in np.argsort(-to_head, kind='stable').tolist():
        others = [atlases[each] for each in chosen]
        if not others or likenesses(atlases[position], others).max() < SAME_PERSON:
            chosen.append(position)
        if len(chosen) == number:
            break
    return sorted(chosen)
