import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from surreal_bids.analysis.outputs import describe_table
from surreal_bids.bids.outputs import output_path, record_path, write_record
from surreal_bids.cohort.reader import in_order, read_visit_table, visit_columns
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
    table = found.table.typed()
    assert list(table.index) == ['sub-2_ses-a', 'sub-2_ses-b', 'sub-10']
    assert list(table.columns)[:2] == ['MUSE_23', 'MUSE_30']
    assert table.loc['sub-10', 'MUSE_30'] == 101
    assert (table['icv'] == 24 * 6).all()
    assert found.names['MUSE_23'] == 'Right accumbens area'


@pytest.mark.parametrize(
    ('index', 'name', 'column'),
    [(23, 'Right accumbens area', 'MUSE_23'), (23, 'Something', 'Something'), (999, 'X', 'X')],
)
def test_only_muse_regions_are_called_so(tmp_path, index, name, column):
    write_visit(tmp_path, '1', regions={index: name}, mask=False)
    assert collect_volumes(tmp_path, 'muse').table.columns == [column]


def test_other_regions_are_an_error_that_names_them(tmp_path):
    write_visit(tmp_path, '1')
    write_visit(tmp_path, '2', regions={23: REGIONS[23]})
    with pytest.raises(DataError, match=r'sub-2 and sub-1 .* different regions .*MUSE_30'):
        collect_volumes(tmp_path, 'muse')


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


@pytest.mark.parametrize('atlas', ['muse', 'other'])
def test_only_the_atlas_asked_for_is_found(tmp_path, atlas):
    write_visit(tmp_path, '1')
    assert bool(find_segmented(tmp_path, atlas)) == (atlas == 'muse')
    if atlas == 'other':
        with pytest.raises(DataError, match='run the participant level first'):
            collect_volumes(tmp_path, atlas)


@pytest.mark.parametrize(
    ('cells', 'expected'),
    [
        ('sub-01\tn/a', ('01', None)),
        ('01\tn/a', ('01', None)),
        ('sub-01\tses-2', ('01', '2')),
        ('sub-01\t2', ('01', '2')),
        ('sub-01_ses-2\tn/a', ('01', '2')),
    ],
)
def test_visits_in_any_usual_spelling(tmp_path, cells, expected):
    (tmp_path / 't.tsv').write_text(f'participant_id\tsession_id\tMUSE_47\n{cells}\t5\n')
    found = read_visit_table(tmp_path / 't.tsv')
    assert found.visits == [expected]
    assert found.table.columns == ['MUSE_47']
    assert found.names == {'MUSE_47': 'Right hippocampus'}


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('person,a\n1,2\n', 'no column participant_id'),
        ('participant_id,a\n', 'the table has no rows'),
        ('participant_id,a\nsub-1,2\n1,3\n', 'more than one row for sub-1'),
        ('participant_id,a\n,2\n', 'line 2 has no participant_id'),
        ('participant_id,a\nx y,2\n', 'line 2 has the id x y'),
        ('participant_id,a\n../x,2\n', 'line 2 has the id ../x'),
        ('participant_id,a\n1.0,2\n2.0,2\n', 'ids are decimal numbers such as 1.0'),
        ('participant_id,a\n1,2\nmean,2\n', r'line 3 \(mean\) is not a participant'),
        ('participant_id,a\nsub-a,2\nsub-A,3\n', 'sub-a and sub-A differ in case only'),
        ('participant_id,a\nsub-1,2\nsub-1_ses-2,3\n', 'sub-1 has rows with and without'),
        ('MRID,a\nA_v1,2\nA_v2,3\n', 'A_v1 and A_v2 look like visits of one participant'),
        ('MRID,a\n0001_bl,2\n0001_M12,3\n', '0001_bl and 0001_M12 look like visits'),
        ('MRID,a\nA,2\nA_2019-03-02,3\n', 'A and A_2019-03-02 look like visits'),
    ],
)
def test_bad_tables_are_explained(tmp_path, text, message):
    (tmp_path / 't.csv').write_text(text)
    with pytest.raises(DataError, match=message):
        read_visit_table(tmp_path / 't.csv')


@pytest.mark.parametrize(
    ('text', 'visits', 'prefix'),
    [
        ('MRID,a\nADNI_002_S_0295,2\nADNI_002_S_0413,3\n',
         [('ADNI_002_S_0295', None), ('ADNI_002_S_0413', None)], ''),
        ('ID,a\nsub-1,2\n02,3\n', [('1', None), ('02', None)], 'sub-'),
        ('ID,visit,a\n1,bl,2\n1,m12,3\n', [('1', 'bl'), ('1', 'm12')], ''),
        ('ID,visit,a\n1,bl,2\n2,bl,3\n', [('1', None), ('2', None)], ''),
        ('ID,session_id,a\nA_v1,1,2\nA_v2,1,3\n', [('A_v1', '1'), ('A_v2', '1')], ''),
        ('ID,a\nIXI013-HH-1212-T1,2\nIXI014-HH-1213-T1,3\n',
         [('IXI013-HH-1212-T1', None), ('IXI014-HH-1213-T1', None)], ''),
    ],
)  # fmt: skip
def test_ids_stay_as_they_are_written(tmp_path, text, visits, prefix):
    (tmp_path / 't.csv').write_text(text)
    found = read_visit_table(tmp_path / 't.csv')
    assert found.visits == visits
    assert found.prefix == prefix


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
