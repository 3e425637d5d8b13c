import nibabel as nib
import numpy as np
import pytest
from scipy import ndimage

from surreal_bids.exceptions import UsageError
from surreal_bids.regions import region_names
from surreal_bids.simulation.templates import crop, distance_to, load_regions, load_template
from tests.simulation.phantom import real_template


@pytest.mark.parametrize('voxel_size', [0.5, 1.5, 5.0])
def test_only_some_voxel_sizes_are_offered(voxel_size):
    with pytest.raises(UsageError, match='1, 2, 3, 4 mm'):
        load_template(voxel_size)


def test_regions_are_those_of_muse_with_their_names():
    regions = load_regions()
    assert regions['index'].is_monotonic_increasing
    assert len(regions) == 133
    known = regions[regions['index'].isin(region_names())]
    assert set(regions['index']) - set(known['index']) == {44, 45, 46}
    assert dict(zip(known['index'], known['name'])).items() <= region_names().items()


@pytest.mark.parametrize(
    ('index', 'hemisphere', 'tissue'),
    [(47, 'R', 'GM'), (48, 'L', 'GM'), (75, 'L', 'GM'), (35, 'none', 'WM'), (51, 'R', 'CSF')],
)
def test_regions_have_a_side_and_a_tissue(index, hemisphere, tissue):
    row = load_regions().set_index('index').loc[index]
    assert (row['hemisphere'], row['tissue']) == (hemisphere, tissue)


def test_cropping_keeps_world_coordinates():
    data = np.zeros((7, 8, 9), dtype=np.uint8)
    data[2:4, 3:7, 5] = 1
    affine = np.diag([2.0, 3.0, 4.0, 1.0])
    small, moved = crop(data, affine)
    assert small.shape == (2, 4, 1)
    np.testing.assert_allclose(moved[:3, 3], (4, 9, 20))


def test_distances_are_in_millimetres():
    mask = np.zeros((7, 8, 9), dtype=bool)
    mask[3, 4, 5] = True
    assert distance_to(mask, 2.0)[0, 0, 5] == pytest.approx(10.0)


@pytest.mark.slow
def test_tissue_adds_up_to_a_brain_that_looks_t1_weighted():
    template = real_template(2.0)
    np.testing.assert_allclose(template.tissue.sum(axis=0), template.brain, atol=1e-5)
    assert template.tissue.min() > -1e-5
    assert template.brain.sum() * template.voxel_size**3 == pytest.approx(1.887e6, rel=0.01)
    grey, white, fluid = (template.t1[fraction > 0.9].mean() for fraction in template.tissue)
    assert white > grey > fluid


@pytest.mark.slow
@pytest.mark.parametrize(
    ('index', 'tissue', 'side'), [(47, 0, 1), (177, 0, -1), (44, 1, 1), (51, 2, 1), (52, 2, -1)]
)
def test_labels_lie_on_their_tissue_and_side(index, tissue, side):
    template = real_template(2.0)
    data, affine = template.labels.data, template.labels.affine
    places = nib.affines.apply_affine(affine, np.argwhere(data == index))
    assert np.sign(places[:, 0].mean()) == side
    voxels = nib.affines.apply_affine(np.linalg.inv(template.affine), places)
    within = ndimage.map_coordinates(template.tissue[tissue], voxels.T, order=1)
    assert within.mean() > 0.5
