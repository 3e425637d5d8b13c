import nibabel as nib
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from nilearn.mass_univariate import permuted_ols
from scipy import stats

from surreal_bids.exceptions import DataError
from surreal_bids.stats import maps
from surreal_bids.stats import maps as permutation
from surreal_bids.stats.glm import pattern_designs
from surreal_bids.stats.maps import MapSeries, Permutation, compute_maps, mean_mask

from .fields import AFFINE, SHAPE, simulate_people, smooth_fields, write_maps

ATROPHY = {'r1': np.s_[1:3, 2:5, 3:6], 'r2': np.s_[4:6, 4:7, 1:4]}
"""Where each pattern takes tissue away."""


@pytest.fixture(scope='module')
def study(tmp_path_factory):
    """Maps of people in whom two patterns lower two places; the outermost layer is empty."""
    rng = np.random.default_rng(0)
    r_indices, is_control, covariates = simulate_people(rng)
    images = 3 + 0.3 * smooth_fields(rng, len(r_indices))
    images += 0.01 * covariates['age'].to_numpy()[:, None, None, None]
    for pattern, place in ATROPHY.items():
        loss = np.where(is_control, 0, r_indices[pattern])
        images[:, *place] -= loss[:, None, None, None]
    images[:, 0] = 0
    paths = write_maps(tmp_path_factory.mktemp('maps'), images)
    return paths, images.astype(np.float32), (r_indices, is_control, covariates)


@pytest.fixture(scope='module')
def results(study):
    paths, _, people = study
    designs, _ = pattern_designs(*people)
    return {found.design.name: found for found in compute_maps(MapSeries.open(paths), designs)}


def ordinary_model(name, r_indices, is_control, covariates):
    """Rows and model matrix of a comparison, written out; the tested column first."""
    age, male = covariates['age'], (covariates['sex'] == 'M').astype(float)
    r1, r2 = r_indices['r1'], r_indices['r2']
    chosen = {
        'low': (r1 < 0.4) & (r2 < 0.4),
        'r1high': (r1 > 0.7) & (r2 < 0.4),
        'r2mid': (r2 >= 0.4) & (r2 <= 0.7) & (r1 < 0.4),
    }
    if name == 'r1slope':
        rows, model = ~is_control, np.column_stack([r1, np.ones(len(r1)), age, male, r2])
    else:
        member = chosen[name] & ~is_control
        rows, model = is_control | member, np.column_stack([member, np.ones(len(r1)), age, male])
    return np.flatnonzero(rows), model.astype(float)


@pytest.mark.parametrize('name', ['low', 'r1high', 'r2mid', 'r1slope'])
def test_maps_are_those_of_statsmodels_and_nilearn(study, results, name):
    _, images, people = study
    rows, model = ordinary_model(name, *people)
    found = results[name]
    t, effect = found.t.get_fdata(), found.effect.get_fdata()
    for voxel in [(1, 2, 3), (4, 5, 2), (6, 7, 8), (3, 0, 7)]:
        fit = sm.OLS(images[(rows, *voxel)].astype(float), model[rows]).fit()
        assert t[voxel] == pytest.approx(fit.tvalues[0], abs=1e-5)
        assert effect[voxel] == pytest.approx(fit.params[0], abs=1e-5)
        assert found.design.df == fit.df_resid
    brain = images[rows, 1:].reshape(rows.size, -1).astype(float)
    expected = permuted_ols(model[rows][:, :1], brain, model[rows][:, 2:], n_perm=0)['t'][0]
    np.testing.assert_allclose(t[1:].ravel(), expected, atol=1e-5)


@pytest.mark.parametrize('name', ['r1high', 'r2slope'])
def test_z_and_t_have_the_same_p(results, name):
    found = results[name]
    t, z = found.t.get_fdata(), found.z.get_fdata()
    np.testing.assert_allclose(stats.norm.sf(z), stats.t.sf(t, found.design.df), rtol=1e-4)


@pytest.mark.parametrize('pattern', ['r1', 'r2'])
@pytest.mark.parametrize(('kind', 'effect'), [('high', -0.85), ('slope', -1.0)])
def test_atrophy_is_found_where_it_is(results, pattern, kind, effect):
    found = results[f'{pattern}{kind}']
    discovered = found.t.get_fdata() <= -found.t_fdr
    place = np.zeros(SHAPE, bool)
    place[ATROPHY[pattern]] = True
    assert discovered[place].mean() > 0.9
    assert discovered[~place].mean() < 0.05
    assert found.n_discoveries >= discovered.sum()
    assert found.effect.get_fdata()[place].mean() == pytest.approx(effect, abs=0.2)


@pytest.mark.parametrize('name', ['low', 'r1mid', 'r2slope'])
def test_images_are_zero_outside_the_mask_and_never_nan(study, results, name):
    found = results[name]
    for image in (found.t, found.z, found.effect):
        data = image.get_fdata()
        assert image.get_data_dtype() == np.float32
        np.testing.assert_array_equal(image.affine, AFFINE)
        assert np.isfinite(data).all()
        assert not data[0].any()
    assert found.n_tested == np.prod(SHAPE) - np.prod(SHAPE[1:])


@pytest.mark.parametrize('n_bytes', [0, 60_000])
def test_several_readings_give_the_same(study, results, n_bytes, monkeypatch):
    monkeypatch.setattr(maps, 'SUMS_BYTES', n_bytes)
    paths, _, people = study
    designs, _ = pattern_designs(*people)
    again = compute_maps(MapSeries.open(paths), designs)
    assert [found.design.name for found in again] == list(results)
    for found in again:
        expected = results[found.design.name]
        np.testing.assert_allclose(found.t.get_fdata(), expected.t.get_fdata(), atol=1e-5)


@pytest.mark.parametrize('name', ['r1mid', 'r1slope'])
def test_the_threshold_fits_the_image(results, name):
    found = results[name]
    assert np.sum(np.abs(found.t.get_fdata()) >= found.t_fdr) == found.n_discoveries > 0


def test_voxels_that_never_vary_are_not_tested(study):
    paths, _, people = study
    designs, _ = pattern_designs(*people)
    everywhere = nib.Nifti1Image(np.ones(SHAPE, np.uint8), AFFINE)
    for found in compute_maps(MapSeries.open(paths, everywhere), designs):
        assert found.n_tested == np.prod(SHAPE) - np.prod(SHAPE[1:])
        assert np.isfinite(found.z.get_fdata()).all()
        assert not found.t.get_fdata()[0].any()


@pytest.mark.parametrize('n_bytes', [100_000, 1 << 25])
def test_permutation_finds_the_same_places(study, results, tmp_path, n_bytes, monkeypatch):
    monkeypatch.setattr(permutation, 'CHUNK_BYTES', n_bytes)
    paths, _, people = study
    designs = [design for design in pattern_designs(*people)[0] if design.name == 'r1slope']
    (found,) = compute_maps(
        MapSeries.open(paths), designs, permutation=Permutation(199, seed=1, scratch_dir=tmp_path)
    )
    log_p = found.log_p_fwe.get_fdata()
    discovered = log_p >= -np.log10(0.05)
    assert discovered[ATROPHY['r1']].mean() > 0.8
    assert log_p.max() == pytest.approx(np.log10(200))
    fdr = np.abs(results['r1slope'].t.get_fdata()) >= results['r1slope'].t_fdr
    assert not (discovered & ~fdr).any()
    assert not list(tmp_path.iterdir())


def test_only_images_of_compared_people_are_read(study, tmp_path):
    paths, _, (r_indices, is_control, covariates) = study
    designs, _ = pattern_designs(r_indices, is_control, covariates)
    high = [design for design in designs if design.name == 'r1high']
    needed = set(high[0].rows)
    absent = [path if row in needed else tmp_path / 'absent' for row, path in enumerate(paths)]
    (found,) = compute_maps(MapSeries.open(absent, mean_mask(paths)), high)
    assert found.n_tested > 0


def test_without_comparisons_nothing_is_computed(study):
    with pytest.raises(DataError, match='no comparison'):
        compute_maps(MapSeries.open(study[0]), [])


def test_too_few_images_are_refused(study):
    paths, _, people = study
    designs, _ = pattern_designs(*people)
    with pytest.raises(DataError, match='50 images'):
        compute_maps(MapSeries.open(paths[:50]), designs)


def test_one_pattern_needs_no_others():
    r_indices = pd.DataFrame({'r1': np.linspace(0, 1, 30)})
    designs, _ = pattern_designs(r_indices, np.arange(30) < 10)
    assert [design.name for design in designs] == ['r1mid', 'r1high', 'r1slope']
