import shutil

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from surreal_bids.analysis.outputs import describe_table
from surreal_bids.bids.outputs import output_path, record_path, write_record
from surreal_bids.cohort.visits import in_order, visit_columns
from surreal_bids.cohort.volumes import collect_volumes, find_segmented
from surreal_bids.exceptions import DataError
from surreal_bids.files import write_image, write_tsv
from surreal_bids.names import visit_name

REGIONS = {23: 'Right accumbens area', 30: 'Left accumbens area', 4: 'Third ventricle'}


def write_visit(
    root, participant, session=None, regions=REGIONS, scale=1.0, mask=True, options=None
):
    entities = {'participant': participant, 'session': session}
    table = pd.DataFrame({'index': list(regions), 'name': list(regions.values())})
    table['volume_mm3'] = scale * (100.0 + np.arange(len(table)))
    path = write_tsv(output_path(root, 'segmentation_volumes', atlas='muse', **entities), table)
    if mask:
        image = nib.Nifti1Image(np.ones((2, 3, 4), np.uint8), np.diag([1, 2, 3, 1]))
        write_image(output_path(root, 'brain_mask', **entities), image)
    record = record_path(root, (participant, session))
    write_record(record, root, {'options': options or {}}, [path])


def test_volumes_of_all_visits_are_collected(tmp_path):
    for participant, session in [('10', None), ('2', 'b'), ('2', 'a')]:
        write_visit(tmp_path, participant, session)
    found = collect_volumes(tmp_path, 'muse')
    assert found.visits == [('2', 'a'), ('2', 'b'), ('10', None)]
    table = found.text.astype(float)
    assert list(table.index) == ['sub-2_ses-a', 'sub-2_ses-b', 'sub-10']
    assert list(table.columns)[:2] == ['MUSE_23', 'MUSE_30']
    assert table.loc['sub-10', 'MUSE_30'] == 101
    assert (table['icv'] == 24 * 6).all()


@pytest.mark.parametrize(
    ('index', 'name', 'column'),
    [
        (23, 'Right accumbens area', 'MUSE_23'),
        (23, 'Something', 'Something'),
        (999, 'X', 'X'),
        (23, 'NA', 'NA'),
        (999, 'Unknown', 'Unknown'),
    ],
)
def test_only_muse_regions_are_called_so(tmp_path, index, name, column):
    write_visit(tmp_path, '1', regions={index: name}, mask=False)
    assert collect_volumes(tmp_path, 'muse').columns == [column]


def test_regions_that_a_visit_lacks_are_missing(tmp_path):
    write_visit(tmp_path, '1')
    write_visit(tmp_path, '2', regions={23: REGIONS[23]})
    found = collect_volumes(tmp_path, 'muse').values('MUSE_30')
    assert found.isna().tolist() == [False, True]


@pytest.mark.parametrize('what', ['no record', 'of an earlier run', 'changed since'])
def test_files_that_no_complete_run_has_made_do_not_count(tmp_path, what):
    write_visit(tmp_path, '1')
    write_visit(tmp_path, '2')
    record = record_path(tmp_path, ('2', None))
    volumes = output_path(tmp_path, 'segmentation_volumes', atlas='muse', participant='2')
    if what == 'no record':
        record.unlink()
    elif what == 'of an earlier run':
        write_record(record, tmp_path, {'options': {}}, [])
    else:
        volumes.write_text(volumes.read_text() + '4\tThird ventricle\t1\n')
    assert collect_volumes(tmp_path, 'muse').visits == [('1', None)]
    record_path(tmp_path, ('1', None)).unlink()
    with pytest.raises(DataError, match='of a complete run'):
        collect_volumes(tmp_path, 'muse')


def test_volumes_that_were_not_made_alike_are_refused(tmp_path):
    for label, mode in (('1', 'default'), ('2', 'default'), ('3', 'fast')):
        write_visit(tmp_path, label, options={'segmentation_mode': mode})
    with pytest.raises(DataError, match=r'sub-3 and sub-1 .* options \(segmentation_mode\); rerun'):
        collect_volumes(tmp_path, 'muse')


def test_only_the_atlas_asked_for_is_found_and_no_copies(tmp_path):
    write_visit(tmp_path, '1')
    shutil.copytree(tmp_path / 'sub-1' / 'anat', tmp_path / 'sub-1' / 'my copy' / 'anat')
    assert list(find_segmented(tmp_path, 'muse')) == [('1', None)]
    with pytest.raises(DataError, match='run the participant level first'):
        collect_volumes(tmp_path, 'other')


@pytest.mark.parametrize(
    ('visits', 'expected'),
    [
        ([('10', None), ('9', None)], ['sub-9', 'sub-10']),
        ([('a2', '10'), ('a2', '9'), ('a1', None)], ['sub-a1', 'sub-a2_ses-9', 'sub-a2_ses-10']),
    ],
)
def test_numbers_count_by_their_value(visits, expected):
    assert [visit_name(visit) for visit in in_order(visits)] == expected


@pytest.mark.parametrize('sessions', [True, False])
def test_sessions_are_a_column_only_where_there_are_some(sessions):
    columns = visit_columns([('1', 'a' if sessions else None), ('2', None)])
    assert ('session_id' in columns) == sessions
    assert columns['participant_id'].tolist() == ['sub-1', 'sub-2']


@pytest.mark.parametrize('unit', ['mm^3', '1'])
def test_columns_are_described(unit):
    columns = ['participant_id', 'MUSE_47', 'thickness']
    described = describe_table('volumes', columns, unit=unit, steps='')
    assert described['MUSE_47'] == {'Description': 'Volume of Right hippocampus', 'Units': unit}
    assert set(described) == {'participant_id', 'MUSE_47', 'thickness'}
