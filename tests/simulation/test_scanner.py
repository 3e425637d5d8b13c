"""Simulated scanners: the head around the brain, contrast, bias field, noise and place."""

from functools import cache

import nibabel as nib
import numpy as np
import pytest

from surreal_bids.simulation.anatomy import identity, sample_anatomy
from surreal_bids.simulation.scanner import (
    MATERIALS,
    ORIENTATIONS,
    Scanner,
    bias_field,
    build_head,
    build_texture,
    ellipsoid,
    neutral_protocol,
    record,
    sample_protocol,
    soft_tissue_texture,
)
from tests.simulation.phantom import BALL_CENTRE_MM, BRAIN_RADIUS_MM, HIPPOCAMPUS, phantom

CENTRE = tuple(n // 2 for n in phantom(1.0).shape)


@cache
def fine_head():
    return build_head(phantom(1.0))


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
    assert main_material(fine_head(), surface + depth) == material


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


@pytest.fixture(scope='module')
def scanner():
    return Scanner(phantom(2.0))


def still(template):
    return np.zeros((3, *template.shape), dtype=np.float32)


def protocol_of(site, voxel_size=2.0):
    return sample_protocol(site, voxel_size, np.random.default_rng(site))


@pytest.mark.parametrize('site', range(len(ORIENTATIONS)))
def test_storage_order_changes_the_array_and_not_the_place(scanner, site):
    protocol = protocol_of(site)
    scan = scanner.scan(still(scanner.template), np.eye(4), protocol, np.random.default_rng(0))
    assert ''.join(nib.aff2axcodes(scan.t1w.affine)) == ORIENTATIONS[site]
    canonical = nib.as_closest_canonical(scan.t1w)
    np.testing.assert_allclose(canonical.header.get_zooms(), protocol.voxel_size, rtol=1e-5)
    voxels = np.argwhere(np.asarray(scan.labels.dataobj) == HIPPOCAMPUS)
    centre = nib.affines.apply_affine(scan.labels.affine, voxels).mean(axis=0)
    np.testing.assert_allclose(centre, BALL_CENTRE_MM, atol=0.5)


@pytest.mark.parametrize('seed', range(2))
def test_the_image_goes_where_the_placement_puts_it(scanner, seed):
    placement = sample_anatomy(scanner.template, 'F', np.random.default_rng(seed)).placement
    scan = scanner.scan(
        still(scanner.template),
        placement,
        neutral_protocol(1.5),
        np.random.default_rng(0),
    )
    voxels = np.argwhere(np.asarray(scan.labels.dataobj) == HIPPOCAMPUS)
    centre = nib.affines.apply_affine(scan.labels.affine, voxels).mean(axis=0)
    expected = nib.affines.apply_affine(placement, BALL_CENTRE_MM)
    np.testing.assert_allclose(centre, expected, atol=0.5)


@pytest.mark.parametrize('shift_mm', [-4.0, 6.0])
def test_the_forward_map_moves_the_image_forwards(scanner, shift_mm):
    displacement = still(scanner.template)
    displacement[1] = shift_mm / 2
    scan = scanner.scan(displacement, np.eye(4), neutral_protocol(2.0), np.random.default_rng(0))
    voxels = np.argwhere(np.asarray(scan.labels.dataobj) == HIPPOCAMPUS)
    centre = nib.affines.apply_affine(scan.labels.affine, voxels).mean(axis=0)
    np.testing.assert_allclose(centre, BALL_CENTRE_MM + np.array([0, shift_mm, 0]), atol=0.5)


def test_the_brain_stands_out_from_its_fluid_and_the_skull(scanner):
    scan = scanner.scan(
        still(scanner.template),
        np.eye(4),
        neutral_protocol(2.0),
        np.random.default_rng(0),
    )
    image, labels, brain = (
        np.asarray(part.dataobj) for part in (scan.t1w, scan.labels, scan.brain)
    )
    assert image[labels == 44].mean() > 1.3 * image[labels == HIPPOCAMPUS].mean()
    assert image[labels == HIPPOCAMPUS].mean() > 1.5 * image[labels == 51].mean()
    assert brain[labels > 0].all()
    assert image.dtype == np.int16


def test_background_noise_is_rician():
    protocol = protocol_of(0)
    dark = np.zeros((40, 44, 48), dtype=np.float32)
    noise = record(dark, protocol, np.random.default_rng(0)) / (protocol.scale * protocol.noise)
    assert noise.mean() == pytest.approx(np.sqrt(np.pi / 2), rel=0.02)
    assert noise.std() == pytest.approx(np.sqrt(2 - np.pi / 2), rel=0.02)


@pytest.mark.parametrize('term', range(9))
def test_each_term_of_the_bias_field_has_unit_variance(term):
    coefficients = np.zeros(9)
    coefficients[term] = 0.1
    log_field = np.log(bias_field((60, 70, 80), coefficients))
    assert log_field.mean() == pytest.approx(0, abs=0.01)
    assert log_field.std() == pytest.approx(0.1, rel=0.06)


@pytest.mark.parametrize('site', range(1, 6))
def test_sites_differ_in_everything_they_can(site):
    first, other = protocol_of(0), protocol_of(site)
    assert first.brightness != other.brightness
    assert first.bias != other.bias
    assert (first.gamma, first.noise, first.scale) != (other.gamma, other.noise, other.scale)


def test_a_scan_comes_back_with_its_seed(scanner):
    scans = [
        scanner.scan(
            still(scanner.template),
            np.eye(4),
            protocol_of(1),
            np.random.default_rng(seed),
        )
        for seed in (5, 5, 6)
    ]
    same, again, other = (np.asarray(scan.t1w.dataobj) for scan in scans)
    np.testing.assert_array_equal(same, again)
    assert (same != other).any()
