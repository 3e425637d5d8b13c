"""Simulated scanners: from tissue to an image with contrast, bias field and noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import nibabel as nib
import numpy as np
from nibabel.affines import apply_affine
from numpy.typing import NDArray
from scipy import ndimage

from surreal_bids.simulation.anatomy import (
    FLUID_RIM_MM,
    Field,
    HeadTemplate,
    distance_to,
    interpolate,
    pull_back,
    smooth,
)

BRIGHTNESS = {
    'GM': 0.62,
    'WM': 1.0,
    'CSF': 0.18,
    'bone': 0.07,
    'marrow': 0.5,
    'fat': 0.95,
    'muscle': 0.42,
    'eye': 0.16,
}
"""Usual T1-weighted intensity of each material, relative to white matter."""

MATERIALS = tuple(BRIGHTNESS)
"""What a voxel may be made of; the rest of it is air."""

SKULL_LAYERS_MM = (
    ('bone', 8.2),
    ('marrow', 6.4),
    ('bone', 4.8),
    ('CSF', FLUID_RIM_MM),
)
"""Layers around the brain and the distance from it at which each ends, outermost first."""

SCALP_MM = 14.0
"""Distance of the skin from the brain."""

SKIN_FAT_MM = 3.5
"""Thickness of the bright layer under the skin."""

CLOSING_MM = 12.0
"""Clefts of the brain narrower than twice this do not show in the skull."""

BONE_SMOOTHNESS_MM = 2.0
"""Standard deviation of the Gaussian that smooths the surfaces of the skull."""

FACE = (
    ((0, 42, -62), (58, 52, 66)),
    ((0, 80, -62), (14, 27, 24)),
    ((0, -2, -92), (68, 66, 66)),
)
"""Centre and half-axes (mm) of the ellipsoids of the face: cheeks, nose, jaw."""

NECK = ((0, -42, -120), (56, 64, 95))
ORBITS = tuple(((x, 57, -36), (19, 24, 18)) for x in (-32, 32))
EYES = tuple(((x, 64, -36), (12, 12, 12)) for x in (-32, 32))
AIRWAYS = (
    ((0, 52, -56), (13, 30, 20)),
    ((-30, 48, -68), (12, 15, 14)),
    ((30, 48, -68), (12, 15, 14)),
    ((0, 10, -95), (9, 8, 38)),
)
"""Nose, maxillary sinuses and pharynx."""

SPINE = (('bone', (24, 24)), ('CSF', (9, 9)), ('WM', (5.5, 5.5)))
"""Vertebra, its canal and the cord: half-axes of upright cylinders below the brain stem."""

TEXTURE_SEED = 0
"""The texture of the soft tissue is the same in all heads before they are deformed."""

TEXTURE_MM = 3.0
TEXTURE_SD = 0.12
"""Smoothness and relative strength of that texture."""


def build_head(template: HeadTemplate) -> Field:
    """Fraction of each material in each voxel of the working grid, (materials, X, Y, Z)."""
    world = _world(template)
    depth = _distance_from_brain(template)
    body = np.minimum.reduce([depth - SCALP_MM, *(ellipsoid(world, *e) for e in (*FACE, NECK))])
    fractions = np.zeros((len(MATERIALS), *template.shape), dtype=np.float32)

    def paint(material: str | None, distance: NDArray) -> None:
        """Fill the body where the signed distance (mm) is negative; edges are one voxel soft."""
        cover = np.clip(0.5 - distance / template.voxel_size, 0, 1).astype(np.float32)
        fractions[:] *= 1 - cover
        if material is not None:
            fractions[MATERIALS.index(material)] += cover

    paint('fat', body)
    paint('muscle', _signed_distance(body < -SKIN_FAT_MM, template.voxel_size))
    for cavity in AIRWAYS:
        paint(None, ellipsoid(world, *cavity))
    for material, bodies in (('fat', ORBITS), ('eye', EYES)):
        for each in bodies:
            paint(material, ellipsoid(world, *each))
    for material, radii in SPINE:
        paint(material, _spine(template, world, radii))
    for material, distance in SKULL_LAYERS_MM:
        paint(material, depth - distance)
    fractions *= 1 - template.brain
    fractions[:3] += template.tissue
    return fractions


def build_texture(template: HeadTemplate) -> Field:
    """What the template's T1 shows beyond its tissue, relative to the contrast of WM to CSF."""
    inside = template.brain > 0.5
    design = template.tissue[:, inside].T
    means = np.linalg.lstsq(design, template.t1[inside], rcond=None)[0]
    residual = template.t1 - np.tensordot(means, template.tissue, axes=1)
    return (residual * template.brain / (means[1] - means[2])).astype(np.float32)


def soft_tissue_texture(template: HeadTemplate) -> Field:
    """Factor with mean one that makes muscle, fat and marrow uneven, (X, Y, Z)."""
    rng = np.random.default_rng(TEXTURE_SEED)
    noise = rng.standard_normal(template.shape, dtype=np.float32)
    pattern = smooth(noise, TEXTURE_MM / template.voxel_size)
    return (1 + TEXTURE_SD * pattern / pattern.std()).clip(0).astype(np.float32)


def ellipsoid(world: NDArray, centre: Sequence[float], half_axes: Sequence[float]) -> NDArray:
    """Signed distance (mm, to first order) from an ellipsoid along the axes, negative inside."""
    scaled = (world - np.reshape(centre, (3, 1, 1, 1))) / np.reshape(half_axes, (3, 1, 1, 1))
    return (np.sqrt((scaled**2).sum(axis=0)) - 1) * min(half_axes)


def _world(template: HeadTemplate) -> Field:
    """Template coordinates (mm) of each voxel, (3, X, Y, Z)."""
    voxels = np.moveaxis(np.indices(template.shape), 0, -1)
    return np.moveaxis(apply_affine(template.affine, voxels), -1, 0).astype(np.float32)


def _signed_distance(mask: NDArray, voxel_size: float) -> NDArray:
    """Distance (mm) from the border of a mask, negative inside."""
    half = voxel_size / 2
    outside, inside = distance_to(mask, voxel_size), distance_to(~mask, voxel_size)
    return np.where(mask, half - inside, outside - half)


def _distance_from_brain(template: HeadTemplate) -> NDArray:
    """Distance (mm) from the brain with its clefts closed, smoothed as bone is."""
    brain = template.brain > 0.5
    dilated = distance_to(brain, template.voxel_size) < CLOSING_MM
    closed = (distance_to(~dilated, template.voxel_size) > CLOSING_MM) | brain
    distance = _signed_distance(closed, template.voxel_size)
    return smooth(distance, BONE_SMOOTHNESS_MM / template.voxel_size)


def _spine(template: HeadTemplate, world: NDArray, radii: tuple[float, float]) -> NDArray:
    """Signed distance (mm) from an upright cylinder under the lowest part of the brain."""
    lowest = np.flatnonzero((template.brain > 0.5).any(axis=(0, 1)))[0]
    foot = np.argwhere(template.brain[:, :, lowest] > 0.5).mean(axis=0)
    x, y, z = apply_affine(template.affine, (*foot, lowest))
    beside = (np.hypot((world[0] - x) / radii[0], (world[1] - y) / radii[1]) - 1) * min(radii)
    return np.maximum(beside, world[2] - z)


SOFT_MATERIALS = ('marrow', 'fat', 'muscle')
"""Materials that take the texture of soft tissue."""

TEXTURE_STRENGTH = 0.6
"""Share of the template's own texture that a simulated brain shows."""

CONTRAST_SD = 0.04
"""Spread over sites of the logarithm of each material's intensity."""

GAMMA_RANGE = (0.9, 1.12)
NOISE_RANGE = (0.018, 0.035)
"""Standard deviation of the noise in each channel, relative to white matter."""

BIAS_SD_RANGE = (0.06, 0.14)
"""Standard deviation over the head of the logarithm of the bias field."""

PERSONAL_BIAS_SD = 0.03
"""How much the bias field of a scan differs from that of its site."""

SCALE_RANGE = (400.0, 900.0)
"""Stored intensity of white matter."""

VOXEL_FACTORS = ((1.0, 1.0, 1.0), (0.95, 0.95, 1.15), (1.1, 0.95, 0.95), (1.0, 1.0, 1.2))
ORIENTATIONS = ('RAS', 'LAS', 'PSR', 'LPS')
"""Voxel size, relative to the one asked for, and storage order; sites take turns."""

SCANNERS: tuple[dict[str, Any], ...] = (
    {'Manufacturer': 'Siemens', 'ManufacturersModelName': 'Trio', 'MagneticFieldStrength': 3},
    {'Manufacturer': 'GE', 'ManufacturersModelName': 'Signa HDxt', 'MagneticFieldStrength': 1.5},
    {'Manufacturer': 'Philips', 'ManufacturersModelName': 'Achieva', 'MagneticFieldStrength': 3},
)
"""Fields of the sidecars; sites take turns."""

MARGIN_MM = 4.0
"""Space between the head and the edge of the image."""


@dataclass(frozen=True)
class Protocol:
    """How a site scans; by default in RAS, without a bias field, with little noise.

    Attributes
    ----------
    voxel_size
        Voxel edges in mm along right-left, back-front and down-up.
    orientation
        Storage order as axis codes, such as LAS.
    brightness
        Intensity of each of `MATERIALS`, relative to white matter.
    gamma
        Exponent applied to the relative intensity.
    bias
        Coefficients of the log bias field, nine terms of second order.
    noise
        Standard deviation of the noise in each channel, relative to white matter.
    scale
        Stored intensity of white matter.
    metadata
        Fields of the sidecar.
    """

    voxel_size: tuple[float, float, float]
    orientation: str = 'RAS'
    brightness: tuple[float, ...] = tuple(BRIGHTNESS.values())
    gamma: float = 1.0
    bias: tuple[float, ...] = (0.0,) * 9
    noise: float = NOISE_RANGE[0]
    scale: float = SCALE_RANGE[1]
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SimulatedScan:
    """A simulated scan and its truth, all on one grid."""

    t1w: nib.Nifti1Image
    labels: nib.Nifti1Image
    brain: nib.Nifti1Image


def sample_protocol(site: int, voxel_size: float, rng: np.random.Generator) -> Protocol:
    """Sample the protocol of a site (counted from 0)."""
    usual = np.array(list(BRIGHTNESS.values()))
    factors = np.array(VOXEL_FACTORS[site % len(VOXEL_FACTORS)])
    return Protocol(
        voxel_size=tuple(np.round(voxel_size * factors, 3).tolist()),
        orientation=ORIENTATIONS[site % len(ORIENTATIONS)],
        brightness=tuple((usual * np.exp(rng.normal(0, CONTRAST_SD, len(usual)))).tolist()),
        gamma=rng.uniform(*GAMMA_RANGE),
        bias=tuple(_unit(rng.standard_normal(9)) * rng.uniform(*BIAS_SD_RANGE)),
        noise=rng.uniform(*NOISE_RANGE),
        scale=rng.uniform(*SCALE_RANGE),
        metadata=SCANNERS[site % len(SCANNERS)],
    )


class Scanner:
    """Takes images of deformed copies of the template head.

    Parameters
    ----------
    template
        Template on its working grid.
    """

    def __init__(self, template: HeadTemplate) -> None:
        self.template = template
        self.materials = build_head(template)
        self.texture = build_texture(template)
        soft = [MATERIALS.index(material) for material in SOFT_MATERIALS]
        self.materials[soft] *= soft_tissue_texture(template)

    def scan(
        self,
        displacement: Field,
        placement: NDArray,
        protocol: Protocol,
        rng: np.random.Generator,
    ) -> SimulatedScan:
        """Scan a participant.

        Parameters
        ----------
        displacement
            Forward map from the template to the participant, shape (3, X, Y, Z), in voxels.
        placement
            Affine that brings template coordinates (mm) to the scanner: size and pose.
        protocol
            How the site scans.
        rng
            Source of noise and of the scan's own bias field.
        """
        shape, affine = self._field_of_view(placement, protocol.voxel_size)
        to_template = np.linalg.inv(placement @ self.template.affine) @ affine
        voxels = np.moveaxis(np.indices(shape), 0, -1)
        points = np.moveaxis(apply_affine(to_template, voxels), -1, 0).astype(np.float32)
        source = pull_back(displacement, points)
        intensity = self._render(source, protocol)
        recorded = record(intensity, protocol, rng)
        brain = interpolate(self.template.brain[None], source)[0] > 0.5
        images = (recorded, self._labels_at(source), brain.astype(np.uint8))
        return SimulatedScan(*(_store(data, affine, protocol.orientation) for data in images))

    def _field_of_view(
        self, placement: NDArray, voxel_size: tuple[float, float, float]
    ) -> tuple[tuple[int, ...], NDArray]:
        """Shape and affine (RAS) of an image that holds the working grid at its size and place."""
        extent = np.array(self.template.shape) - 1
        corners = np.array(list(np.ndindex(2, 2, 2))) * extent
        centre = apply_affine(placement @ self.template.affine, corners.mean(axis=0))
        size = np.cbrt(np.linalg.det(placement[:3, :3])) * self.template.voxel_size * extent
        shape = np.ceil((size + 2 * MARGIN_MM) / voxel_size).astype(int)
        affine = np.diag([*voxel_size, 1.0])
        affine[:3, 3] = centre - (shape - 1) / 2 * voxel_size
        return tuple(shape.tolist()), affine

    def _render(self, source: Field, protocol: Protocol) -> Field:
        """Noise-free intensity relative to white matter, by cubic splines of the template."""
        brightness = dict(zip(MATERIALS, protocol.brightness))
        image = np.tensordot(np.array(protocol.brightness, np.float32), self.materials, axes=1)
        contrast = brightness['WM'] - brightness['CSF']
        image += np.float32(TEXTURE_STRENGTH * contrast) * self.texture
        rendered = ndimage.map_coordinates(image, source, order=3, mode='constant', cval=0)
        return rendered.clip(0) ** np.float32(protocol.gamma)

    def _labels_at(self, source: Field) -> NDArray[np.uint8]:
        """Label of the voxel of the label map that is nearest to each point."""
        labels = self.template.labels
        to_labels = np.linalg.inv(labels.affine) @ self.template.affine
        points = apply_affine(to_labels, np.moveaxis(source, 0, -1))
        nearest = np.moveaxis(np.rint(points), -1, 0)
        data = np.asarray(labels.dataobj)
        found = ndimage.map_coordinates(data, nearest, order=0, mode='constant', cval=0)
        return np.asarray(found, dtype=np.uint8)


def record(intensity: Field, protocol: Protocol, rng: np.random.Generator) -> NDArray[np.int16]:
    """Add bias field and Rician noise to an image (relative to white matter), and store it."""
    own_bias = _unit(rng.standard_normal(9)) * PERSONAL_BIAS_SD
    biased = intensity * bias_field(intensity.shape, np.array(protocol.bias) + own_bias)
    real, imaginary = rng.normal(0, protocol.noise, (2, *intensity.shape)).astype(np.float32)
    magnitude = np.hypot(biased + real, imaginary)
    return np.rint(magnitude * protocol.scale).clip(0, np.iinfo(np.int16).max).astype(np.int16)


def bias_field(shape: tuple[int, ...], coefficients: NDArray) -> Field:
    """Exponential of a polynomial of second order whose nine terms have unit variance, (X, Y, Z).

    The polynomial is made of Legendre polynomials on [-1, 1], so that each term has mean zero and
    the field about mean one.
    """
    x, y, z = np.meshgrid(
        *(np.linspace(-1, 1, n, dtype=np.float32) for n in shape), indexing='ij', sparse=True
    )
    linear = [np.sqrt(3) * axis for axis in (x, y, z)]
    square = [np.sqrt(5) / 2 * (3 * axis**2 - 1) for axis in (x, y, z)]
    mixed = [3 * x * y, 3 * y * z, 3 * x * z]
    log_field = np.zeros(shape, dtype=np.float32)
    for coefficient, term in zip(coefficients, linear + square + mixed):
        log_field += np.float32(coefficient) * term
    return np.exp(log_field)


def _unit(vector: NDArray) -> NDArray:
    return vector / np.linalg.norm(vector)


def _store(data: NDArray, affine: NDArray, orientation: str) -> nib.Nifti1Image:
    """Make a NIfTI image in a storage order; the affine follows."""
    image = nib.Nifti1Image(data, affine)
    image.header.set_xyzt_units('mm')
    image.set_qform(affine, code='scanner')
    image.set_sform(affine, code='scanner')
    turn = nib.orientations.ornt_transform(
        nib.io_orientation(affine), nib.orientations.axcodes2ornt(orientation)
    )
    return image.as_reoriented(turn)
