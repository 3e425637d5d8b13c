"""An anatomy of one's own: a smooth random diffeomorphism of the template, a size and a pose."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from surreal_bids.simulation.spectral import smooth
from surreal_bids.simulation.templates import Template
from surreal_bids.simulation.warps import Field, exponential

SMOOTHNESS_MM = (8.0, 16.0)
"""Standard deviations of the Gaussians that smooth the noise: gyri and lobes."""

DIVERGENCE_SD = (0.10, 0.09)
"""Standard deviation of the local log volume ratio that each of them brings."""

MEAN_LOG_HEAD_VOLUME = float(np.log(0.80))
"""Heads are smaller than the template, whose brain with its fluid has 1.89 litres."""

SEX_LOG_HEAD_VOLUME = {'F': -0.055, 'M': 0.055}
"""Men's heads are about 11 % larger (Ruigrok et al., Neurosci. Biobehav. Rev. 2014)."""

HEAD_VOLUME_LOG_SD = 0.06
"""Spread of the head volume within a sex."""

ROTATION_SD_DEGREES = 3.0
TRANSLATION_SD_MM = 4.0
"""How heads lie in the scanner."""


@dataclass(frozen=True)
class Anatomy:
    """A healthy person's anatomy.

    Attributes
    ----------
    displacement
        Forward map from the template, shape (3, X, Y, Z), in voxels; apart from size and pose.
    placement
        Affine that then brings template coordinates (mm) to the scanner: size and pose, (4, 4).
    """

    displacement: Field
    placement: NDArray[np.float64]

    @property
    def volume_scale(self) -> float:
        """Factor of all volumes that comes from the size of the head."""
        return float(np.linalg.det(self.placement[:3, :3]))


def draw_anatomy(
    template: Template, sex: str, rng: np.random.Generator, variation: float = 1.0
) -> Anatomy:
    """Draw a person's own anatomy.

    Parameters
    ----------
    template
        What it is a deformation of.
    sex
        Men have larger heads.
    rng
        Source of the draws.
    variation
        How much people differ in it, apart from the size of the head: 1 as real people do.
    """
    placement = draw_placement(sex, rng)
    velocity = draw_velocity(template.shape, template.voxel_size, rng)
    return Anatomy(exponential(np.float32(variation) * velocity), placement)


def draw_velocity(shape: tuple[int, ...], voxel_size: float, rng: np.random.Generator) -> Field:
    """Draw a stationary velocity field: smoothed white noise of two scales, (3, X, Y, Z), voxels.

    White noise smoothed with a Gaussian of standard deviation s and scaled to a standard deviation
    a has a divergence of variance 3 a**2 / (2 s**2), from which its amplitude follows.
    """
    velocity = np.zeros((3, *shape), dtype=np.float32)
    for smoothness, divergence_sd in zip(SMOOTHNESS_MM, DIVERGENCE_SD):
        sigma = smoothness / voxel_size
        amplitude = divergence_sd * sigma * np.sqrt(2 / 3)
        # Smoothing white noise of unit variance leaves the variance (2 sqrt(pi) sigma)**-3.
        gain = amplitude * (2 * np.sqrt(np.pi) * sigma) ** 1.5
        for component in velocity:
            noise = rng.standard_normal(shape, dtype=np.float32)
            component += np.float32(gain) * smooth(noise, sigma)
    return velocity


def draw_placement(sex: str, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw size and pose of a head: an affine from template to scanner coordinates in mm."""
    log_volume = rng.normal(MEAN_LOG_HEAD_VOLUME + SEX_LOG_HEAD_VOLUME[sex], HEAD_VOLUME_LOG_SD)
    angles = rng.normal(0, ROTATION_SD_DEGREES, 3)
    placement = np.eye(4)
    placement[:3, :3] = (
        np.exp(log_volume / 3) * Rotation.from_euler('xyz', angles, degrees=True).as_matrix()
    )
    placement[:3, 3] = rng.normal(0, TRANSLATION_SD_MM, 3)
    return placement
