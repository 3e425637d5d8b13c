"""Simulated scanners: the head around the brain, contrast, bias field, noise and place."""

import nibabel as nib
import numpy as np
import pytest

from surreal_bids.simulation.anatomy import identity, sample_anatomy
from surreal_bids.simulation.scanner import (
    MATERIALS,
    ORIENTATIONS,
    Protocol,
    Scanner,
    bias_field,
    build_head,
    build_texture,
    ellipsoid,
    record,
    sample_protocol,
    soft_tissue_texture,
)
from tests.simulation.phantom import BALL_CENTRE_MM, BRAIN_RADIUS_MM, HIPPOCAMPUS, phantom


@pytest.mark.slow
def test_layers_follow_each_other_around_the_brain_which_is_left_alone():
    template = phantom(1.0)
    head = build_head(template)
    assert head.min() > -1e-5
    assert head.sum(axis=0).max() < 1 + 1e-5
    inside = template.brain == 1
    np.testing.assert_allclose(head[:3, inside], template.tissue[:, inside], atol=1e-6)
    x, y, z = (n // 2 for n in template.shape)
    for depth, material in ((1.5, 'CSF'), (3.5, 'bone'), (5.5, 'marrow'), (7.5, 'bone')):
        voxel = head[:, x, y + int(BRAIN_RADIUS_MM - 0.5 + depth), z]
        assert MATERIALS[int(voxel.argmax())] == material


@pytest.mark.parametrize('half_axes', [(3, 3, 3), (2, 4, 5)])
def test_ellipsoids_have_their_volume(half_axes):
    inside = ellipsoid(identity((40, 44, 48)) / 4, (5, 5.5, 6), half_axes) < 0
    assert inside.sum() / 64 == pytest.approx(4 / 3 * np.pi * np.prod(half_axes), rel=0.02)


def test_texture_is_what_tissue_does_not_explain():
    template = phantom(2.0)
    assert np.abs(build_texture(template)).max() < 0.1
    spotted = template.t1.copy()
    spotted[tuple(n // 2 for n in template.shape)] += 30
    marked = type(template)(**(template.__dict__ | {'t1': spotted}))
    assert build_texture(marked).max() > 0.3
    uneven = soft_tissue_texture(template)
    assert (uneven.mean(), uneven.std()) == pytest.approx((1, 0.12), rel=0.1)


@pytest.fixture(scope='module')
def scanner():
    return Scanner(phantom(2.0))


def still(template):
    return np.zeros((3, *template.shape), dtype=np.float32)


def protocol_of(site):
    return sample_protocol(site, 2.0, np.random.default_rng(site))


def centre_of_ball(scan):
    voxels = np.argwhere(np.asarray(scan.labels.dataobj) == HIPPOCAMPUS)
    return nib.affines.apply_affine(scan.labels.affine, voxels).mean(axis=0)


@pytest.mark.parametrize('site', range(len(ORIENTATIONS)))
def test_storage_order_changes_the_array_and_not_the_place(scanner, site):
    protocol = protocol_of(site)
    scan = scanner.scan(still(scanner.template), np.eye(4), protocol, np.random.default_rng(0))
    assert ''.join(nib.aff2axcodes(scan.t1w.affine)) == ORIENTATIONS[site]
    canonical = nib.as_closest_canonical(scan.t1w)
    np.testing.assert_allclose(canonical.header.get_zooms(), protocol.voxel_size, rtol=1e-5)
    np.testing.assert_allclose(centre_of_ball(scan), BALL_CENTRE_MM, atol=0.5)


def test_the_image_goes_where_placement_and_map_put_it(scanner):
    placement = sample_anatomy(scanner.template, 'F', np.random.default_rng(0)).placement
    displacement = still(scanner.template)
    displacement[1] = 3
    scan = scanner.scan(displacement, placement, Protocol((1.5,) * 3), np.random.default_rng(0))
    expected = nib.affines.apply_affine(placement, BALL_CENTRE_MM + np.array([0, 6, 0]))
    np.testing.assert_allclose(centre_of_ball(scan), expected, atol=0.5)


def test_the_brain_stands_out_and_a_scan_comes_back_with_its_seed(scanner):
    scans = [
        scanner.scan(
            still(scanner.template), np.eye(4), Protocol((2.0,) * 3), np.random.default_rng(seed)
        )
        for seed in (5, 5, 6)
    ]
    image, again, other = (np.asarray(scan.t1w.dataobj) for scan in scans)
    np.testing.assert_array_equal(image, again)
    assert (image != other).any()
    labels, brain = (np.asarray(part.dataobj) for part in (scans[0].labels, scans[0].brain))
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


def test_each_term_of_the_bias_field_has_unit_variance():
    for coefficients in 0.1 * np.eye(9):
        log_field = np.log(bias_field((60, 70, 80), coefficients))
        assert log_field.mean() == pytest.approx(0, abs=0.01)
        assert log_field.std() == pytest.approx(0.1, rel=0.06)
