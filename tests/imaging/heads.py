"""Simulated heads at 3 mm whose tissue, brain and bias field are known."""

from dataclasses import replace
from functools import cache

import nibabel as nib
import numpy as np
from nibabel.affines import apply_affine

from surreal_bids.simulation.anatomy import Anatomy, interpolate, pull_back, sample_anatomy
from surreal_bids.simulation.scanner import Scanner, SimulatedScan, sample_protocol
from tests.simulation.phantom import real_template

TISSUES = ('GM', 'WM', 'CSF')
VOXEL_MM = 3.0


@cache
def scanner() -> Scanner:
    return Scanner(real_template(VOXEL_MM))


@cache
def anatomy(seed: int = 0) -> Anatomy:
    """A person's own anatomy, size and pose."""
    return sample_anatomy(real_template(VOXEL_MM), 'F', np.random.default_rng(seed))


@cache
def scan(seed: int = 0, orientation: str = 'RAS') -> SimulatedScan:
    """A scan with bias field, noise and voxels of unequal edges, and its true brain."""
    rng = np.random.default_rng(seed)
    protocol = replace(sample_protocol(1, VOXEL_MM, rng), orientation=orientation)
    person = anatomy(seed)
    return scanner().scan(person.displacement, person.placement, protocol, rng)


def true_tissue(image: nib.Nifti1Image, seed: int = 0) -> dict[str, nib.Nifti1Image]:
    """Fraction of each tissue in each voxel of a scan of this person."""
    template, person = real_template(VOXEL_MM), anatomy(seed)
    return template_at(image, person.placement, person.displacement, template)


def affine_priors(image: nib.Nifti1Image, seed: int = 0) -> dict[str, nib.Nifti1Image]:
    """Tissue of the template at the person's size and pose, without the person's own anatomy."""
    template, person = real_template(VOXEL_MM), anatomy(seed)
    return template_at(image, person.placement, np.zeros_like(person.displacement), template)


def template_at(image, placement, displacement, template) -> dict[str, nib.Nifti1Image]:
    to_template = np.linalg.inv(placement @ template.affine) @ image.affine
    voxels = np.moveaxis(np.indices(image.shape), 0, -1)
    points = np.moveaxis(apply_affine(to_template, voxels), -1, 0).astype(np.float32)
    fractions = interpolate(template.tissue, pull_back(displacement, points)).clip(0, 1)
    return {
        name: nib.Nifti1Image(fraction, image.affine) for name, fraction in zip(TISSUES, fractions)
    }


def dice(a: np.ndarray, b: np.ndarray) -> float:
    return float(2 * np.sum(a & b) / (np.sum(a) + np.sum(b)))
