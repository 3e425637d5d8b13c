import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from surreal_bids.exceptions import DataError
from surreal_bids.imaging.fusion import volume_table, volumes_of_labels

REGIONS = pd.DataFrame({'index': [7, 3, 900], 'name': ['seven', 'three', 'nine hundred']})


@pytest.mark.parametrize('dtype', [np.uint8, np.int16, np.float32])
@pytest.mark.parametrize(
    'affine',
    [
        np.diag([2.0, 1.5, 3.0, 1.0]),
        np.array([[0, 0, 3.0, 1], [-1.5, 0, 0, 2], [0, 2.0, 0, 3], [0, 0, 0, 1]]),
    ],
)
def test_volumes_are_voxels_times_their_size(dtype, affine):
    labels = np.zeros((7, 8, 9), dtype=dtype)
    labels[:2, :3, :4] = 3
    labels[4:, 7, 0] = 7
    found = volumes_of_labels(nib.Nifti1Image(labels, affine))
    assert found == pytest.approx({3: 24 * 9.0, 7: 3 * 9.0})


@pytest.mark.parametrize('value', [0.5, -1.0])
def test_probabilities_are_no_labels(value):
    labels = np.zeros((3, 4, 5), dtype=np.float32)
    labels[1, 1, 1] = value
    with pytest.raises(DataError, match='give a label map'):
        volumes_of_labels(nib.Nifti1Image(labels, np.eye(4)))


def test_the_table_follows_the_regions(caplog):
    caplog.set_level('INFO', 'surreal_bids')
    table = volume_table({3: 12.5, 7: 1.0, 5: 99.0}, REGIONS)
    assert table.columns.tolist() == ['index', 'name', 'volume_mm3']
    assert table['index'].tolist() == REGIONS['index'].tolist()
    assert table['volume_mm3'].tolist() == [1.0, 12.5, 0.0]
    assert 'Labels [5] are no regions' in caplog.text


@pytest.mark.parametrize('volumes', [{}, {1: 5.0, 2: 6.0}])
def test_volumes_of_another_atlas_are_refused(volumes):
    with pytest.raises(DataError, match='made with another one'):
        volume_table(volumes, REGIONS)
