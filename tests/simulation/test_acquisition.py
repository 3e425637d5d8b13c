import nibabel as nib
import numpy as np
import pytest

from surreal_bids.simulation.anatomy import draw_anatomy
from surreal_bids.simulation.scanner import (
    ORIENTATIONS,
    Scanner,
    bias_field,
    draw_protocol,
    neutral_protocol,
    record,
)
from tests.simulation.phantom import BALL_CENTRE_MM, HIPPOCAMPUS, phantom


@pytest.fixture(scope='module')
def scanner():
    return Scanner(phantom(2.0))


def still(template):
    return np.zeros((3, *template.shape), dtype=np.float32)


def protocol_of(site, voxel_size=2.0):
    return draw_protocol(site, voxel_size, np.random.default_rng(site))


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


@pytest.mark.parametrize('seed', range(3))
def test_the_image_goes_where_the_placement_puts_it(scanner, seed):
    placement = draw_anatomy(scanner.template, 'F', np.random.default_rng(seed)).placement
    scan = scanner.scan(
        still(scanner.template), placement, neutral_protocol(1.5), np.random.default_rng(0)
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
        still(scanner.template), np.eye(4), neutral_protocol(2.0), np.random.default_rng(0)
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
            still(scanner.template), np.eye(4), protocol_of(1), np.random.default_rng(seed)
        )
        for seed in (5, 5, 6)
    ]
    same, again, other = (np.asarray(scan.t1w.dataobj) for scan in scans)
    np.testing.assert_array_equal(same, again)
    assert (same != other).any()
