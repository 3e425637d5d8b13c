import numpy as np
import pytest

from surreal_bids.simulation.anatomy import identity
from surreal_bids.simulation.scanner import (
    MATERIALS,
    build_head,
    build_texture,
    ellipsoid,
    soft_tissue_texture,
)
from tests.simulation.phantom import BRAIN_RADIUS_MM, phantom

CENTRE = tuple(n // 2 for n in phantom(1.0).shape)


def main_material(head, radius):
    """Material that fills most of the voxel at a distance from the centre, towards the front."""
    voxel = head[:, CENTRE[0], CENTRE[1] + int(radius), CENTRE[2]]
    return MATERIALS[int(voxel.argmax())] if voxel.max() > 0.5 else 'air'


@pytest.mark.parametrize('voxel_size', [1.0, 2.0])
def test_materials_fill_voxels_and_leave_the_brain_alone(voxel_size):
    template = phantom(voxel_size)
    head = build_head(template)
    assert head.min() > -1e-5
    assert head.sum(axis=0).max() < 1 + 1e-5
    inside = template.brain == 1
    np.testing.assert_allclose(head[:3, inside], template.tissue[:, inside], atol=1e-6)


@pytest.mark.parametrize(
    ('depth', 'material'),
    [(1.5, 'CSF'), (3.5, 'bone'), (5.5, 'marrow'), (7.5, 'bone')],
)
def test_layers_follow_each_other_from_the_brain_outwards(depth, material):
    surface = BRAIN_RADIUS_MM - 0.5
    assert main_material(build_head(phantom(1.0)), surface + depth) == material


def test_texture_is_what_tissue_does_not_explain():
    template = phantom(2.0)
    assert np.abs(build_texture(template)).max() < 0.1
    spotted = template.t1.copy()
    spotted[CENTRE[0] // 2, CENTRE[1] // 2, CENTRE[2] // 2] += 30
    marked = type(template)(**(template.__dict__ | {'t1': spotted}))
    assert build_texture(marked).max() > 0.3


@pytest.mark.parametrize('voxel_size', [1.0, 2.0])
def test_soft_tissue_is_uneven_around_one(voxel_size):
    texture = soft_tissue_texture(phantom(voxel_size))
    assert texture.mean() == pytest.approx(1, abs=0.05)
    assert texture.std() == pytest.approx(0.12, rel=0.1)
    assert texture.min() >= 0


@pytest.mark.parametrize('half_axes', [(3, 3, 3), (2, 4, 5)])
def test_ellipsoids_have_their_volume(half_axes):
    points = identity((40, 44, 48)) / 4
    inside = ellipsoid(points, (5, 5.5, 6), half_axes) < 0
    assert inside.sum() / 64 == pytest.approx(4 / 3 * np.pi * np.prod(half_axes), rel=0.02)
