"""Maps that are kept between runs are those of the same images, designs and options."""

from types import SimpleNamespace

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from surreal_bids.analysis.engine import Analysis
from surreal_bids.analysis.maps import MapOptions, map_tissue, write_maps
from surreal_bids.files import write_image
from tests.reports.group_report import make_cohort

SHAPE = (5, 6, 7)


@pytest.fixture(scope='module')
def found():
    rng = np.random.default_rng(0)
    cohort = make_cohort(rng, 12, 12)
    results = pd.DataFrame({'r1': rng.uniform(size=24)}, cohort.visits.index)
    return Analysis(cohort=cohort, model=SimpleNamespace(pattern_names=('r1',)), results=results)


@pytest.fixture(scope='module')
def files(found, tmp_path_factory):
    rng, folder = np.random.default_rng(1), tmp_path_factory.mktemp('ravens')
    images = {
        name: nib.Nifti1Image(rng.uniform(1, 2, SHAPE).astype(np.float32), np.eye(4))
        for name in found.cohort.visits.index
    }
    return {name: write_image(folder / f'{name}.nii.gz', each) for name, each in images.items()}


def images_of(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.glob('*.nii.gz')}


def test_the_same_maps_are_reused(found, files, tmp_path):
    first = map_tissue(found, files, tmp_path, MapOptions())
    before = images_of(tmp_path)
    again = map_tissue(found, files, tmp_path, MapOptions())
    assert images_of(tmp_path) == before
    assert 'patients_t.nii.gz' in before
    pd.testing.assert_frame_equal(first.summary, again.summary)


def test_no_map_of_other_options_is_left(found, files, tmp_path):
    work, out = tmp_path / 'work', tmp_path / 'out'
    map_tissue(found, files, work, MapOptions(permutations=9))
    assert 'patients_logp.nii.gz' in images_of(work)
    maps = map_tissue(found, files, work, MapOptions(smoothing=2.0))
    written = write_maps(out, maps, 'GM', 'Tiny')
    assert written.images['patients'].is_file()
    assert not list(out.rglob('*logp*'))


@pytest.mark.parametrize('lost', ['patients_t.nii.gz', 'summary.tsv'])
def test_what_was_deleted_is_computed_again(found, files, tmp_path, lost):
    map_tissue(found, files, tmp_path, MapOptions())
    (tmp_path / lost).unlink()
    map_tissue(found, files, tmp_path, MapOptions())
    assert (tmp_path / lost).is_file()


def test_r_indices_of_another_scale_are_other_maps(found, files, tmp_path):
    map_tissue(found, files, tmp_path, MapOptions())
    before = images_of(tmp_path)
    other = Analysis(cohort=found.cohort, model=found.model, results=found.results / 2)
    map_tissue(other, files, tmp_path, MapOptions())
    assert images_of(tmp_path) != before
