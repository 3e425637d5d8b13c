"""Atlases are chosen by how much they resemble a head, whatever its pose and size."""

from functools import cache

import numpy as np
import pytest
from atlas_selection import SAME_PERSON, likenesses, most_alike, portrait
from nibabel.affines import from_matvec
from nibabel.nifti1 import Nifti1Image
from scipy.spatial.transform import Rotation

from surreal_bids.templates import Template, builtin_template

POSE = from_matvec(
    1.1 * Rotation.from_euler('xyz', [9, -5, 12], degrees=True).as_matrix(), [20, -9, 4]
)


@cache
def template() -> Template:
    return builtin_template(4.0)


@cache
def brain(ventricles: float, seed: int = 0) -> Nifti1Image:
    """The template in another pose and size, fluid around its centre, and noise of a scan."""
    t1w = template().t1w
    rng = np.random.default_rng(seed)
    values = np.asarray(t1w.dataobj)
    x, y, z = np.meshgrid(*(np.linspace(-1, 1, n) for n in t1w.shape), indexing='ij')
    inner = np.exp(-(x**2 + y**2 + (z - 0.1) ** 2) / 0.05)
    noisy = values * (1 - ventricles * inner) * rng.normal(1, 0.02, values.shape)
    return Nifti1Image(np.where(values > 0, noisy.clip(1), 0).astype(np.float32), POSE @ t1w.affine)


SIZES = (0.0, 0.9, 0.3, 0.6)


@cache
def portraits() -> list[Nifti1Image]:
    return [portrait(brain(size)) for size in SIZES]


def test_a_portrait_lies_as_the_template_does():
    found, expected = portraits()[0], template()
    assert found.shape == expected.t1w.shape
    inside = np.asarray(expected.mask.dataobj) > 0
    values = [np.asarray(image.dataobj)[inside] for image in (found, expected.t1w)]
    assert np.corrcoef(*values)[0, 1] > 0.8


@pytest.mark.parametrize(('head', 'expected'), [(0.05, 0), (0.85, 1), (0.35, 2), (0.62, 3)])
def test_the_atlas_with_ventricles_of_the_same_size_is_most_alike(head, expected):
    alike = likenesses(portrait(brain(head, seed=1)), portraits())
    assert alike.argmax() == expected
    assert (alike <= 1).all()


def unlike(number: int, rng: np.random.Generator) -> list[Nifti1Image]:
    """Portraits of different people."""
    grid = template().t1w
    return [Nifti1Image(rng.normal(size=grid.shape), grid.affine) for _ in range(number)]


def mixed(image: Nifti1Image, other: Nifti1Image, share: float) -> Nifti1Image:
    values = (1 - share) * image.get_fdata() + share * other.get_fdata()
    return Nifti1Image(values, image.affine)


def test_the_most_alike_are_chosen_in_their_order():
    head, *others = unlike(5, np.random.default_rng(0))
    atlases = [mixed(head, other, share) for other, share in zip(others, (0.7, 0.5, 0.9, 0.6))]
    assert most_alike(head, atlases, 2) == [1, 3]
    assert most_alike(head, atlases, 3) == [0, 1, 3]
    assert most_alike(head, atlases, 9) == [0, 1, 2, 3]


def test_of_two_scans_of_a_person_one_is_chosen():
    rng = np.random.default_rng(0)
    head, first, second, noise = unlike(4, rng)
    person = mixed(head, first, 0.6)
    again = mixed(person, noise, 0.05)
    assert likenesses(person, [again])[0] > SAME_PERSON
    atlases = [again, mixed(head, second, 0.8), person]
    assert most_alike(head, atlases, 2) == [1, 2]
    assert most_alike(head, [person, person, atlases[1]], 3) == [0, 2]
