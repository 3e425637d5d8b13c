from dataclasses import replace

import mpmath
import nibabel as nib
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from nilearn.image import smooth_img
from nilearn.mass_univariate import permuted_ols
from scipy import stats
from statsmodels.stats.multitest import multipletests

from surreal_bids.exceptions import DataError
from surreal_bids.stats import maps
from surreal_bids.stats import maps as images
from surreal_bids.stats import maps as permutation
from surreal_bids.stats.glm import make_design, pattern_designs
from surreal_bids.stats.maps import (
    Grid,
    MapSeries,
    Permutation,
    ScratchMaps,
    compute_maps,
    draw_permutations,
    family_wise_p,
    fdr_adjusted,
    fdr_discoveries,
    fdr_t_threshold,
    largest_t,
    mean_mask,
    read_map,
    t_to_z,
    two_sided_p,
)

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
    designs = [replace(design, is_test=True) for design in pattern_designs(*people)[0]]
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


def test_nothing_is_discovered_where_participants_are_chosen_by_their_brains(study, tmp_path):
    paths, _, people = study
    designs, _ = pattern_designs(*people)
    permutation = Permutation(9, scratch_dir=tmp_path)
    for found in compute_maps(MapSeries.open(paths), designs, permutation=permutation):
        claims = (found.t_fdr, found.n_discoveries, found.log_p_fwe)
        is_test = found.design.name == 'patients'
        assert [claim is not None for claim in claims] == [is_test] * 3
        assert found.effect.get_fdata().any()


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
    (slope,) = [design for design in pattern_designs(*people)[0] if design.name == 'r1slope']
    designs = [replace(slope, is_test=True)]
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
    assert [design.name for design in designs] == ['patients', 'r1mid', 'r1high', 'r1slope']


def test_who_lacks_an_r_index_is_compared_as_a_patient_and_as_a_control():
    r_indices = pd.DataFrame({'r1': np.linspace(0, 1, 40), 'r2': 0.1})
    r_indices.loc[[0, 1, 38, 39], 'r2'] = np.nan
    r_indices.loc[30:, 'r2'] += np.linspace(0, 0.2, 10)
    found = {each.name: each for each in pattern_designs(r_indices, np.arange(40) < 10)[0]}
    assert found['patients'].rows.tolist() == list(range(40))
    assert found['r1slope'].rows.tolist() == list(range(10, 38))
    high = r_indices.index[(r_indices['r1'] > 0.7) & r_indices['r2'].notna()]
    assert found['r1high'].rows.tolist() == [*range(10), *high]


def test_without_patterns_patients_are_compared_with_controls():
    designs, skipped = pattern_designs(pd.DataFrame(index=range(30)), np.arange(30) < 10)
    assert [design.name for design in designs] == ['patients']
    assert not skipped


FULL_MASK = nib.Nifti1Image(np.ones(SHAPE, np.uint8), AFFINE)


@pytest.fixture
def fields():
    return 5 + smooth_fields(np.random.default_rng(0), 5)


@pytest.fixture
def paths(tmp_path, fields):
    return write_maps(tmp_path, fields)


@pytest.mark.parametrize('n_threads', [1, 3])
@pytest.mark.parametrize('batch', [1, 2, 16])
def test_voxels_go_to_vectors_and_back(paths, fields, n_threads, batch, monkeypatch):
    monkeypatch.setattr(images, 'BATCH', batch)
    mask = np.random.default_rng(1).uniform(size=SHAPE) < 0.3
    series = MapSeries.open(
        paths, nib.Nifti1Image(mask.astype(np.uint8), AFFINE), n_threads=n_threads
    )
    read = list(series.batches([4, 0, 3]))
    assert np.concatenate([rows for rows, _ in read]).tolist() == [4, 0, 3]
    values = np.concatenate([part for _, part in read])
    image = series.to_image(values[0])
    np.testing.assert_array_equal(
        image.get_fdata(dtype=np.float32), np.where(mask, fields[4].astype(np.float32), 0)
    )
    np.testing.assert_array_equal(image.affine, AFFINE)


@pytest.mark.parametrize('fwhm', [3.0, 8.0])
def test_smoothing_is_nilearns(paths, fwhm):
    ours = read_map(paths[0], Grid.of(paths[0]), fwhm)
    np.testing.assert_allclose(ours, smooth_img(paths[0], fwhm).get_fdata(), rtol=1e-5)


@pytest.mark.parametrize('suffix', ['.nii', '.nii.gz'])
@pytest.mark.parametrize('extra', [(), (1,), (1, 1)])
def test_axes_of_length_one_are_dropped(tmp_path, fields, extra, suffix):
    (path,) = write_maps(tmp_path / 'more', fields[:1].reshape(1, *SHAPE, *extra), suffix=suffix)
    np.testing.assert_array_equal(read_map(path, Grid.of(path)), fields[0].astype(np.float32))


def test_scaled_integers_are_read_as_numbers(tmp_path, fields):
    image = nib.Nifti1Image(fields[0], AFFINE)
    image.set_data_dtype(np.int16)
    image.to_filename(tmp_path / 'scaled.nii.gz')
    read = read_map(tmp_path / 'scaled.nii.gz', Grid(SHAPE, AFFINE))
    np.testing.assert_allclose(read, fields[0], atol=1e-3)


@pytest.mark.parametrize('bad', [np.nan, np.inf, -np.inf])
def test_values_that_are_no_numbers_are_refused(paths, fields, bad):
    fields[3, 0, 0, 0] = bad
    nib.Nifti1Image(fields[3].astype(np.float32), AFFINE).to_filename(paths[3])
    with pytest.raises(DataError, match=r'sub-003.*NaN'):
        list(MapSeries.open(paths, FULL_MASK).batches(range(5)))


@pytest.mark.parametrize(
    ('shape', 'affine'),
    [
        ((7, 9, 8), AFFINE),
        (SHAPE, AFFINE + 0.1 * np.eye(4)),
        ((7, 8), AFFINE),
        ((*SHAPE, 2), AFFINE),
    ],
    ids=['shape', 'affine', 'two axes', 'two volumes'],
)
def test_other_grids_are_refused(paths, shape, affine):
    nib.Nifti1Image(np.ones(shape, np.float32), affine).to_filename(paths[2])
    with pytest.raises(DataError, match='sub-002'):
        mean_mask(paths)


@pytest.mark.parametrize('damage', [b'', b'no image', None])
def test_damaged_files_are_named(paths, damage):
    content = paths[2].read_bytes()
    paths[2].write_bytes(content[: len(content) // 2] if damage is None else damage)
    with pytest.raises(DataError, match='sub-002'):
        mean_mask(paths)


def test_missing_files_are_named(paths):
    paths[2].unlink()
    with pytest.raises(DataError, match='sub-002'):
        mean_mask(paths)


@pytest.mark.parametrize('n_images', [2, 3, 100])
def test_mask_is_where_the_mean_is_high(paths, fields, n_images):
    chosen = {2: [0, 4], 3: [0, 2, 4], 100: range(5)}[n_images]
    mask = mean_mask(paths, threshold=5.0, n_images=n_images)
    expected = fields[list(chosen)].astype(np.float32).mean(axis=0) > 5
    np.testing.assert_array_equal(mask.get_fdata(), expected)


@pytest.mark.parametrize(
    ('mask', 'message'),
    [
        (np.zeros(SHAPE, np.uint8), 'empty'),
        (np.ones((9, 8, 7), np.uint8), r'mask has shape \(9, 8, 7\)'),
    ],
)
def test_useless_masks_are_refused(paths, mask, message):
    with pytest.raises(DataError, match=message):
        MapSeries.open(paths, nib.Nifti1Image(mask, AFFINE))


def test_empty_maps_make_no_mask(tmp_path):
    with pytest.raises(DataError, match='no voxel'):
        mean_mask(write_maps(tmp_path, np.zeros((2, *SHAPE))))


def test_no_images_are_refused():
    with pytest.raises(DataError, match='no images'):
        MapSeries.open([])


def precise_log_tail(t, df):
    """log P(T > t) with 60 digits."""
    with mpmath.workdps(60):
        half = mpmath.mpf(1) / 2
        x = df / (df + mpmath.mpf(t) ** 2)
        return mpmath.log(mpmath.betainc(df * half, half, 0, x, regularized=True) / 2)


@pytest.mark.parametrize('df', [3, 20, 500, 2500])
@pytest.mark.parametrize('t', [-6.0, -0.5, 0.0, 1e-4, 2.0, 15.0])
def test_z_has_the_p_of_t(t, df):
    z = t_to_z([t], df)[0]
    assert stats.norm.sf(z) == pytest.approx(stats.t.sf(t, df), rel=1e-9)


@pytest.mark.parametrize(('t', 'df'), [(60.0, 900), (-80.0, 500), (1e4, 120), (45.0, 5000)])
def test_z_stays_finite_and_right_where_p_underflows(t, df):
    z = t_to_z([t], df)[0]
    with mpmath.workdps(60):
        log_normal = mpmath.log(mpmath.erfc(mpmath.mpf(abs(z)) / mpmath.sqrt(2)) / 2)
    expected = float(precise_log_tail(abs(t), df))
    assert float(log_normal) == pytest.approx(expected, rel=1e-8)
    assert np.sign(z) == np.sign(t)


@pytest.mark.parametrize('level', [0.01, 0.05, 0.3])
@pytest.mark.parametrize('share', [0.0, 0.1, 0.9])
def test_discoveries_are_those_of_statsmodels(level, share):
    rng = np.random.default_rng(3)
    p = two_sided_p(rng.normal(size=(40, 50)) + 4 * (rng.uniform(size=(40, 50)) < share), 1e6)
    rejected, adjusted, *_ = multipletests(p.ravel(), level, 'fdr_bh')
    np.testing.assert_array_equal(fdr_discoveries(p, level).ravel(), rejected)
    np.testing.assert_allclose(fdr_adjusted(p.ravel()), adjusted)


@pytest.mark.parametrize('df', [12, 400])
def test_voxels_from_the_threshold_on_are_the_discoveries(df):
    t = np.random.default_rng(4).standard_t(df, 5000) + np.repeat([0, 5], [4000, 1000])
    found = np.abs(t) >= fdr_t_threshold(t, df)
    np.testing.assert_array_equal(found, fdr_discoveries(two_sided_p(t, df)))
    assert 800 < found.sum() < 1100


@pytest.mark.parametrize('t', [[], [0.1, -0.2, 0.3]])
def test_without_discoveries_the_threshold_is_infinite(t):
    assert fdr_t_threshold(t, 10) == np.inf


def test_p_that_underflows_is_a_discovery():
    assert fdr_t_threshold([1e3, 0.1], 2000) == 1e3


def test_missing_p_is_refused():
    with pytest.raises(DataError, match='NaN'):
        fdr_discoveries([0.1, np.nan])


N_PERMUTATIONS = 50


def nilearn_orders(seed, n_people):
    """Orders that nilearn's `permuted_ols` draws with one job: each shuffles the one before."""
    rng = np.random.RandomState(np.random.RandomState(seed).randint(1, np.iinfo(np.int32).max - 1))
    order, orders = np.arange(n_people), []
    for _ in range(N_PERMUTATIONS):
        order = order[rng.permutation(n_people)]
        orders.append(order)
    return np.array(orders)


def simulate(seed, n_people=30, n_voxels=41):
    rng = np.random.default_rng(seed)
    x, Z = rng.uniform(size=n_people), rng.normal(size=(n_people, 3)) + 5
    Y = rng.normal(size=(n_people, n_voxels)) + Z @ rng.normal(size=(3, n_voxels))
    Y[:, :5] += 4 * x[:, None]
    return x, Z, 10 + Y


@pytest.mark.parametrize('chunk', [7, 41])
@pytest.mark.parametrize('n_covariates', [1, 3])
def test_it_is_nilearns_test_in_chunks(chunk, n_covariates):
    x, Z, Y = simulate(n_covariates)
    Z = Z[:, :n_covariates]
    expected = permuted_ols(x[:, None], Y, Z, n_perm=N_PERMUTATIONS, random_state=3)
    design = make_design('x', '', np.arange(30), x, Z)
    chunks = (Y[:, start : start + chunk] for start in range(0, Y.shape[1], chunk))
    largest = largest_t(chunks, design, nilearn_orders(3, 30))
    np.testing.assert_allclose(np.sort(largest), np.sort(expected['h0_max_t'][0]), rtol=1e-4)
    p = family_wise_p(expected['t'][0], largest)
    np.testing.assert_allclose(-np.log10(p), expected['logp_max_t'][0], atol=1e-12)


@pytest.mark.parametrize('order', [np.arange(30), np.arange(30)[::-1]])
def test_a_permutation_is_freedman_and_lanes(order):
    """Residuals of the nuisance model are permuted, its fit is added, all is fitted again."""
    x, Z, Y = simulate(0)
    nuisance = np.column_stack([np.ones(30), Z])
    fitted = nuisance @ np.linalg.lstsq(nuisance, Y)[0]
    permuted = fitted + (Y - fitted)[np.argsort(order)]
    expected = permuted_ols(x[:, None], permuted, Z, n_perm=0)['t']
    design = make_design('x', '', np.arange(30), x, Z)
    (largest,) = largest_t([Y], design, order[None])
    assert largest == pytest.approx(np.abs(expected).max(), rel=1e-4)


@pytest.mark.parametrize('n_bytes', [0, 200, 10_000])
def test_scratch_file_gives_back_what_was_stored(tmp_path, n_bytes, monkeypatch):
    monkeypatch.setattr(permutation, 'CHUNK_BYTES', n_bytes)
    values = np.random.default_rng(1).normal(size=(9, 23)).astype(np.float32)
    scratch = ScratchMaps(tmp_path / 'maps', values.shape)
    for rows in ([3, 6], [0], [7, 2, 5]):
        scratch.store(np.array(rows), values[rows])
    chosen = np.array([2, 6, 7])
    np.testing.assert_array_equal(np.hstack(list(scratch.chunks(chosen))), values[chosen])


def test_constant_voxels_have_no_say():
    x, Z, Y = simulate(2)
    design = make_design('x', '', np.arange(30), x, Z)
    orders = draw_permutations(30, 20, seed=0)
    expected = largest_t([Y], design, orders)
    with_constants = np.column_stack([Y, np.full((30, 3), 0.3)])
    np.testing.assert_allclose(largest_t([with_constants], design, orders), expected, rtol=1e-6)
    np.testing.assert_array_equal(largest_t([with_constants[:, -3:]], design, orders), 0)


@pytest.mark.parametrize('seed', [0, 1])
def test_orders_are_seeded_permutations(seed):
    orders = draw_permutations(11, 40, seed)
    np.testing.assert_array_equal(np.sort(orders, axis=1), np.tile(np.arange(11), (40, 1)))
    np.testing.assert_array_equal(orders, draw_permutations(11, 40, seed))
    assert len(np.unique(orders, axis=0)) == 40


def test_p_counts_the_observed_order():
    p = family_wise_p([0.5, -2.5, 9.0], [1.0, 2.0, 3.0])
    np.testing.assert_allclose(p, [1, 0.5, 0.25])


@pytest.mark.slow
def test_family_wise_error_stays_at_the_nominal_rate():
    rng = np.random.default_rng(8)
    wrong = 0
    for seed in range(200):
        x, Z, Y = rng.normal(size=16), rng.normal(size=(16, 2)), rng.exponential(size=(16, 60))
        design = make_design('x', '', np.arange(16), x, Z)
        t = permuted_ols(x[:, None], Y, Z, n_perm=0)['t']
        largest = largest_t([Y], design, draw_permutations(16, 99, seed))
        wrong += family_wise_p(t, largest).min() <= 0.05
    assert 1 <= wrong <= 21
