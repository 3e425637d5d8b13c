"""Voxelwise maps beside nilearn and statsmodels; maps of z-scores; what is reused between runs."""

import json
from dataclasses import replace
from types import SimpleNamespace

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from nilearn.image import smooth_img
from nilearn.mass_univariate import permuted_ols
from statsmodels.stats.multitest import multipletests

from surreal_bids.analysis.engine import Analysis
from surreal_bids.analysis.maps import (
    LEAST_CONTROLS,
    MapOptions,
    MappedCohort,
    make_contrasts,
    map_tissue,
    mean_mask,
    read_voxels,
    to_image,
)
from surreal_bids.bids.outputs import visit_output
from surreal_bids.exceptions import DataError
from surreal_bids.files import write_image
from surreal_bids.stats import linear
from surreal_bids.templates import TEMPLATE_SPACE
from tests.analysis.group_study import read_study
from tests.cohort.study import make_study
from tests.reports.studies import make_cohort
from tests.stats.fields import AFFINE, SHAPE, simulate_people, smooth_fields


@pytest.fixture(scope='module')
def found():
    """Controls and patients; one patient has no R-index."""
    rng = np.random.default_rng(0)
    cohort = make_cohort(rng, 12, 20)
    results = pd.DataFrame(rng.uniform(size=(32, 2)), cohort.visits.index, ['r1', 'r2'])
    results.iloc[-1] = np.nan
    model = SimpleNamespace(pattern_names=('r1', 'r2'))
    return Analysis(cohort=cohort, model=model, results=results)


@pytest.fixture(scope='module')
def files(found, tmp_path_factory):
    """Maps that depend on the group and r1; one voxel is constant, the first layer empty."""
    rng, folder = np.random.default_rng(1), tmp_path_factory.mktemp('ravens')
    images = (3 + smooth_fields(rng, 32)).astype(np.float32)
    images[:, 2, 3, 4:] -= 2 * found.cohort.is_patient.to_numpy(np.float32)[:, None]
    images[:, 0], images[:, 3, 3, 3] = 0, 2
    return write_ravens(folder, found.cohort, images)


def write_ravens(folder, cohort, images):
    """Files of maps, by visit."""
    files = {}
    for (visit, row), image in zip(cohort.visits.iterrows(), images.astype(np.float32)):
        who = row['participant_id'], row.get('session_id')
        files[visit] = visit_output(folder, 'ravens', *who, tissue='GM')
        write_image(files[visit], nib.Nifti1Image(image, AFFINE))
    return files


@pytest.fixture
def root(files):
    """The output folder."""
    return next(iter(files.values())).parents[2]


def values_of(files):
    return np.array([nib.load(path).get_fdata() for path in files.values()])


def design_of(found, name):
    """Rows and model matrix of a contrast, written out; the tested column first."""
    people = pd.get_dummies(found.cohort.people, drop_first=True, dtype=float)
    patient = found.cohort.is_patient.to_numpy()
    if name == 'patients':
        return np.arange(32), np.column_stack([patient, np.ones(32), people])
    rows = np.flatnonzero(patient & found.results['r1'].notna().to_numpy())
    return rows, np.column_stack([found.results, np.ones(32), people])[rows]


@pytest.mark.slow
@pytest.mark.parametrize('name', ['patients', 'r1slope'])
def test_effect_and_t_are_those_of_statsmodels(found, root, files, tmp_path, monkeypatch, name):
    monkeypatch.setattr(linear, 'VALUES_AT_ONCE', 50)
    written = map_tissue(found, root, tmp_path, MapOptions('GM'))
    assert written.skipped == {}
    rows, design = design_of(found, name)
    inside = mean_mask(list(files.values())).get_fdata() > 0
    values = values_of(files)[rows][:, inside]
    fitted = [sm.OLS(y, design).fit() if np.ptp(y) else None for y in values.T]
    for statistic, attribute in (('t', 'tvalues'), ('effect', 'params')):
        (path,) = root.rglob(f'*{name}*stat-{statistic}_*.nii.gz')
        image = nib.load(path).get_fdata()
        expected = [0 if each is None else getattr(each, attribute)[0] for each in fitted]
        np.testing.assert_allclose(image[inside], expected, rtol=1e-5, atol=1e-6)
        assert not image[~inside].any()
    summary = written.summary.set_index('contrast').loc[name]
    tested = [each for each in fitted if each is not None]
    assert summary['degrees_of_freedom'] == tested[0].df_resid
    assert summary['voxels'] == len(tested) == inside.sum() - 1
    if name == 'patients':
        t = np.array([each.tvalues[0] for each in tested])
        is_discovery = multipletests([each.pvalues[0] for each in tested], 0.05, 'fdr_bh')[0]
        assert summary['discoveries'] == is_discovery.sum() > 0
        threshold = np.abs(t[is_discovery]).min()
        assert summary['t_at_fdr_0.05'] == pytest.approx(threshold, rel=1e-5)


def test_family_wise_p_are_those_of_nilearn_and_t_too(found, root, files, tmp_path):
    map_tissue(found, root, tmp_path, MapOptions('GM', permutations=99, random_seed=3))
    rows, design = design_of(found, 'patients')
    inside = mean_mask(list(files.values())).get_fdata() > 0
    values = values_of(files)[rows][:, inside]
    varies = np.ptp(values, axis=0) > 0
    tested, others = design[:, :1], design[:, 2:]
    expected = permuted_ols(tested, values[:, varies], others, n_perm=99, random_state=3)
    for statistic, key in (('t', 't'), ('logp', 'logp_max_t')):
        (path,) = root.rglob(f'*patients*stat-{statistic}_*.nii.gz')
        image = nib.load(path).get_fdata()[inside]
        np.testing.assert_allclose(image[varies], expected[key][0], rtol=1e-4, atol=1e-6)
        assert not image[~varies].any()
    assert not list(root.rglob('*r1slope*stat-logp*'))


@pytest.mark.parametrize(
    ('n_controls', 'n_patients', 'skipped'),
    [(20, 90, []), (4, 90, ['patients']), (20, 4, ['patients', 'r1slope', 'r2slope'])],
)
def test_small_groups_are_skipped_with_the_reason(n_controls, n_patients, skipped):
    indices, is_control, covariates = simulate_people(
        np.random.default_rng(5), n_controls, n_patients
    )
    contrasts, reasons = make_contrasts(indices, ~is_control, covariates)
    assert list(reasons) == skipped
    assert all('at least 5 of each group' in reason for reason in reasons.values())
    assert [each.is_test for each in contrasts] == [each.name == 'patients' for each in contrasts]


def test_a_covariate_that_is_the_group_skips_the_comparison():
    indices, is_control, covariates = simulate_people(np.random.default_rng(6))
    covariates['scanner'] = np.where(is_control, 'old', 'new')
    contrasts, reasons = make_contrasts(indices, ~is_control, covariates)
    assert [each.name for each in contrasts] == ['r1slope', 'r2slope']
    assert 'is determined by the covariates' in reasons['patients']


def test_voxels_go_to_vectors_and_back_and_smoothing_is_nilearns(files):
    paths = list(files.values())[:5]
    mask = nib.Nifti1Image(np.uint8(np.random.default_rng(1).random(SHAPE) < 0.3), AFFINE)
    for fwhm, n_threads in ((0.0, 1), (3.0, 3)):
        values = read_voxels(paths, mask, fwhm, n_threads)
        for path, row in zip(paths, values):
            smooth = smooth_img(path, fwhm or None).get_fdata()
            expected = np.where(mask.get_fdata(), smooth, 0)
            np.testing.assert_allclose(to_image(row, mask).get_fdata(), expected, rtol=1e-5)


def test_other_grids_and_damaged_files_are_named(found, files, tmp_path):
    bad = tmp_path / 'sub-bad_ravens.nii.gz'
    image = np.arange(504, dtype=np.float32).reshape(7, 9, 8)
    nib.Nifti1Image(image, AFFINE).to_filename(bad)
    paths = [*files.values()]
    with pytest.raises(DataError, match=r'sub-bad.*grid differs'):
        mean_mask([*paths, bad])
    bad.write_bytes(b'no image')
    with pytest.raises(DataError, match='sub-bad'):
        mean_mask([*paths, bad])


def test_groups_of_four_have_no_maps(found, root, tmp_path):
    some = np.arange(32) < 16
    few = replace(found, cohort=found.cohort.select(some), results=found.results[some])
    written = map_tissue(few, root, tmp_path, MapOptions('GM'))
    assert list(written.skipped) == ['patients', 'r1slope', 'r2slope']
    assert written.summary.empty


@pytest.mark.slow
def test_maps_of_the_same_images_contrasts_and_options_are_reused(found, root, files, tmp_path):
    def run(found, **options):
        map_tissue(found, root, tmp_path, MapOptions('GM', **options))
        return {path.name: path.stat().st_mtime_ns for path in tmp_path.rglob('*.nii.gz')}

    before = run(found, permutations=9)
    assert run(found, permutations=9) == before
    assert any('stat-logp' in name for name in before)
    smooth = run(found, smoothing=2.0)
    assert not any('stat-logp' in name for name in smooth)
    other = Analysis(cohort=found.cohort, model=found.model, results=found.results / 2)
    assert run(other, smoothing=2.0) != smooth


@pytest.fixture(scope='module')
def mapped(tmp_path_factory):
    """A study of two visits of everyone with RAVENS maps, in which nobody is ill."""
    folder = tmp_path_factory.mktemp('maps')
    cohort = read_study(folder, make_study(40, 20), sessions=True)
    images = 3 + 0.3 * smooth_fields(np.random.default_rng(0), len(cohort))
    images[:, 0] = 0
    write_ravens(folder, cohort, images)
    return cohort, folder


@pytest.mark.slow
def test_maps_of_visits_are_written(mapped, tmp_path):
    cohort, root = mapped
    chosen = list(cohort.visits.index[[0, 1, 90]])
    replace(MappedCohort.read(root, cohort, 'GM'), root=tmp_path).write(chosen, 2.0, 1)
    paths = sorted(tmp_path.rglob('*.nii.gz'))
    assert [path.name for path in paths] == [
        f'{visit}_space-{TEMPLATE_SPACE}_label-GM_stat-z_statmap.nii.gz' for visit in chosen
    ]
    image = nib.load(paths[0])
    assert image.get_data_dtype() == np.int16
    assert image.shape == SHAPE
    np.testing.assert_allclose(image.affine, AFFINE)
    sidecar = json.loads((tmp_path / paths[0]).with_name(paths[0].name[:-7] + '.json').read_text())
    assert (sidecar['NumberOfControls'], sidecar['SmoothingFWHM']) == (39, 2.0)
    of_patient = json.loads(paths[2].with_name(paths[2].name[:-7] + '.json').read_text())
    assert of_patient['NumberOfControls'] == 40
    assert of_patient['DegreesOfFreedom'] == sidecar['DegreesOfFreedom'] + 1


@pytest.mark.slow
def test_one_in_twenty_voxels_of_healthy_visits_is_beyond_1_96(mapped, tmp_path):
    cohort, root = mapped
    study = replace(MappedCohort.read(root, cohort, 'GM'), root=tmp_path)
    study.write(cohort.visits.index, 0.0, 1)
    paths = sorted(tmp_path.rglob('*.nii.gz'))
    assert len(paths) == len(cohort)
    maps = np.array([nib.load(path).get_fdata() for path in paths])
    assert not maps[:, 0].any()
    inside = maps[:, 1:]
    assert (np.abs(inside) > 1.96).mean() == pytest.approx(0.05, abs=0.01)
    assert inside.std() == pytest.approx(1, abs=0.03)


def test_few_controls_are_refused(mapped):
    cohort, root = mapped
    some = cohort.select(cohort.is_patient | (np.arange(len(cohort)) < 2 * LEAST_CONTROLS - 2))
    with pytest.raises(DataError, match=r'--deviation-maps: 19 controls .* at least 20 controls'):
        MappedCohort.read(root, some, 'GM')
