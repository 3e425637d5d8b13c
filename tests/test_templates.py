import nibabel as nib
import numpy as np
import pytest
from scipy import ndimage

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.images import same_grid, voxel_volume
from surreal_bids.templates import TISSUES, builtin_template, package_file, read_template, resample


@pytest.mark.parametrize(
    ('package', 'relative', 'message'),
    [
        ('no_such_package', 'x.nii', 'pip install no_such_package'),
        ('nibabel', 'no/such/file.nii', 'reinstall it'),
    ],
)
def test_a_missing_package_or_file_is_named_with_the_remedy(package, relative, message):
    with pytest.raises(DataError, match=message):
        package_file(package, relative)


@pytest.mark.parametrize('orientation', ['RAS', 'LAS', 'PSR'])
def test_resampling_goes_by_the_affine_not_by_the_array(orientation):
    rng = np.random.default_rng(0)
    affine = np.diag([2.0, 2.0, 2.0, 1.0])
    affine[:3, 3] = (-7, 3, 5)
    image = nib.Nifti1Image(rng.random((7, 8, 9), dtype=np.float32), affine)
    turn = nib.orientations.ornt_transform(
        nib.io_orientation(affine), nib.orientations.axcodes2ornt(orientation)
    )
    turned = image.as_reoriented(turn)
    back = resample(np.asarray(turned.dataobj), turned.affine, affine, image.shape)
    np.testing.assert_allclose(back, image.get_fdata(), atol=1e-5)


def test_resampling_to_larger_voxels_keeps_the_integral():
    data = np.zeros((24, 26, 28), dtype=np.float32)
    data[9:15, 8:17, 10:17] = 1
    data = ndimage.gaussian_filter(data, 1.0)
    coarse = resample(data, np.eye(4), np.diag([2.0, 2.0, 2.0, 1.0]), (12, 13, 14))
    assert coarse.sum() * 8 == pytest.approx(data.sum(), rel=0.005)


SHAPE = (7, 8, 9)
AFFINE = np.diag([2.0, 2.0, 2.0, 1.0])
ENDINGS = ['T1w', 'desc-brain_mask', *(f'label-{tissue}_probseg' for tissue in TISSUES)]


def template_arrays():
    rng = np.random.default_rng(0)
    mask = np.zeros(SHAPE, dtype=np.uint8)
    mask[2:5, 2:6, 2:7] = 1
    fractions = rng.dirichlet(np.ones(3), SHAPE).astype(np.float32) * mask[..., None]
    t1w = rng.uniform(10, 100, SHAPE).astype(np.float32)
    return dict(zip(ENDINGS, [t1w, mask, *np.moveaxis(fractions, -1, 0)]))


def write_template(folder, arrays, stem='tpl-Mine', affine=AFFINE):
    for ending, array in arrays.items():
        nib.Nifti1Image(array, affine).to_filename(folder / f'{stem}_{ending}.nii.gz')
    return folder


@pytest.mark.slow
def test_the_builtin_template_is_one_brain():
    template = builtin_template(3.0)
    images = [template.t1w, template.mask, *template.priors.values()]
    assert all(same_grid(template.t1w, image) for image in images)
    mask = np.asarray(template.mask.dataobj) > 0
    total = sum(np.asarray(image.dataobj) for image in template.priors.values())
    np.testing.assert_allclose(total, mask, atol=1e-4)
    assert mask.sum() * voxel_volume(template.mask) == pytest.approx(1.887e6, rel=0.01)
    t1w = np.asarray(template.t1w.dataobj)
    assert not t1w[~mask].any()
    means = [t1w[np.asarray(template.priors[t].dataobj) > 0.9].mean() for t in ('CSF', 'GM', 'WM')]
    assert means == sorted(means)


@pytest.mark.parametrize('resolution', [0.2, 7.0, float('nan')])
def test_odd_resolutions_are_refused(resolution):
    with pytest.raises(UsageError, match=r'template-resolution.* 0\.5 to 4 mm'):
        builtin_template(resolution)


@pytest.mark.parametrize('stem', ['tpl-Mine', 'tpl-Mine_res-01', 'tpl-Mine_cohort-1_res-2'])
def test_a_template_of_ones_own(tmp_path, stem):
    arrays = template_arrays()
    template = read_template(write_template(tmp_path, arrays, stem))
    assert template.name == 'Mine'
    np.testing.assert_allclose(template.t1w.dataobj, arrays['T1w'] * arrays['desc-brain_mask'])
    for tissue in TISSUES:
        np.testing.assert_allclose(
            template.priors[tissue].dataobj, arrays[f'label-{tissue}_probseg']
        )


@pytest.mark.parametrize('ending', ENDINGS)
def test_each_file_is_needed(tmp_path, ending):
    write_template(tmp_path, template_arrays())
    (tmp_path / f'tpl-Mine_{ending}.nii.gz').unlink()
    with pytest.raises(DataError, match=f'{ending.split("-")[-1]}|T1w'):
        read_template(tmp_path)


def test_two_t1w_images_leave_a_choice(tmp_path):
    for stem in ('tpl-Mine_res-01', 'tpl-Mine_res-02'):
        write_template(tmp_path, template_arrays(), stem)
    with pytest.raises(DataError, match='exactly one T1w image'):
        read_template(tmp_path)


@pytest.mark.parametrize(
    ('ending', 'change', 'message'),
    [
        ('desc-brain_mask', lambda array: array * 0.1, 'no voxel is above 0.5'),
        ('label-WM_probseg', lambda array: array * 255, 'WM has values from 0 to 2'),
        ('label-GM_probseg', lambda array: array * -0.1, 'GM has values from -'),
        ('label-CSF_probseg', lambda array: np.clip(array + 0.3, 0, 1), 'GM . WM . CSF has values'),
        ('label-CSF_probseg', lambda array: array[:-1], r'not on the grid'),
    ],
)
def test_unusable_files_are_refused(tmp_path, ending, change, message):
    arrays = template_arrays()
    arrays[ending] = change(arrays[ending].astype(np.float32))
    with pytest.raises(DataError, match=message):
        read_template(write_template(tmp_path, arrays))
