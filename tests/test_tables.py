"""One reader for every table: participants, sessions, volumes, measures and exclusions."""

import pytest

from surreal_bids.cohort.visits import ages_and_sexes
from surreal_bids.exceptions import DataError
from surreal_bids.tables import (
    read_exclusions,
    read_participants,
    read_sessions,
    read_table,
    read_visit_table,
)


def write(folder, text, name='t.tsv'):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ('text', 'cells'),
    [
        ('a\tb\n1\tx y\n', ['1', 'x y']),
        ('a,b\r\n1,"x, y"\r\n', ['1', 'x, y']),
        (b'\xef\xbb\xbfa;b\n1,5;x\n\n', ['1.5', 'x']),
        ('a\tb\n1,25e3\tn/a\n', ['1.25e3', None]),
        ('a;b\n1,5;1,5 kg\n2;\n', ['1.5', '1,5 kg']),
        ('a\tb\n?\t#DIV/0!\n', [None, None]),
        ('"Left hippocampus, volume";b\n1;2\n', ['1', '2']),
        ('a,b,,\n1,2,,\n', ['1', '2']),
        ('a,b\n"1,234.5",x\n987.2,x\n', ['1234.5', 'x']),
        ('a,b\n"1,234,567","2,345"\n"1,234","2,31"\n', ['1234567', '2.345']),
        ('a;b\n1.234,5;1\n987,2;2\n', ['1234.5', '1']),
        ('a;b\n1,234.5;1\n', ['1234.5', '1']),
        ('a,b\n"3,4",x\n', ['3,4', 'x']),
        ('a;b\n1.234.567;1\n2,5;2\n', ['1234567', '1']),
        ('a;b\n0,512;x\n1;x\n', ['0.512', 'x']),
        ('a;b\n12.03.2010;x\n1,5;x\n', ['12.03.2010', 'x']),
    ],
)
def test_formats_of_spreadsheets_and_statistics(tmp_path, text, cells):
    assert read_table(write(tmp_path, text)).text.iloc[0].tolist() == cells


def test_columns_that_count_rows_are_ignored(tmp_path):
    for text in (',ID,a\n0,x,5\n1,y,6\n', 'ID,a\n1,x,5\n2,y,6\n', '"","ID","a"\n"1","x",5\n'):
        table = read_visit_table(write(tmp_path, text))
        assert table.columns == ['a']
        assert table.visits[0] == ('x', None)


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('', 'the table is empty'),
        (b'PK\x03\x04xl', 'an Excel or zip file'),
        ('a\tb\n1\t2\n'.encode('utf-16'), 'UTF-16'),
        (b'a,b\n\xe9,1\n', 'not a table in UTF-8'),
        (b'a,b\n\x00,1\n', 'not text'),
        ('version https://git-lfs.github.com/spec/v1\n', 'git lfs pull'),
        ('a,b\n"1,2\n', 'a quoted cell that does not end'),
        ('a,b\n1,2,3\n1,2\n', 'line 2 has 3 cells, but the header has 2'),
        ('a,b\n1,2,\n1,2, \n', 'line 2 has 3 cells, but the header has 2'),
        ('a,b\n1,2\na,b\n', 'line 3 repeats the header'),
        ('a,A\n1,2\n', 'more than one column a'),
        ('My study\na,b\n1,2\n', '"My study", like a title'),
        ('id   age  volume\n1    70   3000\n', 'separated by blanks'),
        ('a;b\n1,234;x\n987;y\n', 'column a has 1,234; use decimal points'),
        ('a;b\n-1,234;x\n987;y\n', 'column a has -1,234; use decimal points'),
        ('a;b\n2.345;1\n2,512;1\n2.101;1\n2,9;1\n', 'column a has 2.345 and 2,9, and the sign'),
        ('a\tb\n0.512\t1\n0,498\t1\n0.611\t1\n', 'column a has 0.512 and 0,498, and the sign'),
        ('a,b\n"2,345",x\n2.5,x\n', 'column a has 2.5 and 2,345, and the sign'),
        ('a,b\n"1,234.5",x\n"0,498",x\n', 'column a has 1,234.5 and 0,498, and the sign'),
        ('a;b\n1.234,5;1\n2.5;2\n', 'has 2.5 and 1.234,5, and the sign'),
        ('person,a\n1,2\n', 'no column participant_id; name the column of ids with --id-column'),
        ('participant_id,a\n', 'the table has no rows'),
        ('participant_id,a\nsub-1,2\n1,3\n', 'more than one row for sub-1'),
        (
            'ID,region,volume\n1,x,2\n1,y,3\n',
            'keep one row each, with regions as columns',
        ),
        ('participant_id,a\n,2\n', 'line 2 has no id in participant_id; write an id'),
        ('participant_id,a\n../x,2\n', 'line 2 has the id ../x'),
        (f'participant_id,a\n{"x" * 65},2\n', 'at most 64 characters'),
        ('participant_id,a\nsub-1,2\nsub-1_ses-2,3\n', 'sub-1 has rows with and without'),
        (
            'ID,a\nT1_05,1\nT1_05.long.05,2\n',
            'T1_05 and T1_05.long.05 are the same scan in both streams',
        ),
        ('ID,a\nT1_05.long.05,1\n05,2\n', '05 is the base of T1_05.long.05'),
        (
            'ID,a\nT1_05.long.05,1\nT2_05,2\n',
            'T2_05 and T1_05.long.05 are scans of one participant in different streams',
        ),
        (
            'ID,a\nsub-1_ses-1.long.sub-1,1\nsub-1_ses-2,2\n',
            'sub-1_ses-2 and sub-1_ses-1.long.sub-1 are scans of one participant',
        ),
        (
            'ID,a\nsub-1_ses-1.long.T,1\nsub-2_ses-1.long.T,2\n',
            'have the same base, but seem to be of two',
        ),
        ('ID,a\ns.long.T,1\ns.long.U,2\n', 'are the same scan with two bases'),
        (',a,b\n1,2,3\n2,4,3\n', 'the first column has no name and starts with 1: call it part'),
        (',a,b\nS1,2,3\nS1,4,3\n', 'no name and starts with S1'),
        (',a,b\n2010-01-01,2,3\n2011-01-01,4,3\n', 'no name and starts with 2010-01-01'),
    ],
)
def test_what_is_no_table_of_participants_is_an_error(tmp_path, text, message):
    with pytest.raises(DataError, match=rf't\.tsv: .*{message}'):
        read_visit_table(write(tmp_path, text))


def test_files_that_cannot_be_read_are_named(tmp_path):
    for path in (tmp_path, tmp_path / 'nowhere.tsv'):
        with pytest.raises(DataError, match=f'{path.name}: cannot be read'):
            read_table(path)


@pytest.mark.parametrize(
    ('text', 'visits', 'prefix'),
    [
        ('participant_id\tsession_id\nsub-01\tn/a\n', [('01', None)], 'sub-'),
        ('ID\tsession_id\nsub-01\tses-2\n01\t3\n', [('01', '2'), ('01', '3')], 'sub-'),
        ('ID\nsub-01_ses-a+b\nsub-02_ses-2\n', [('01', 'a+b'), ('02', '2')], 'sub-'),
        ('ID\tvisit\n1\tbl\n1\tm12\n', [('1', 'bl'), ('1', 'm12')], ''),
        ('ID\tvisit\n1\tbl\n2\tbl\n', [('1', None), ('2', None)], ''),
        ('MRID\nA_v1\nA_v2\n0001_M12\n', [('A_v1', None), ('A_v2', None), ('0001_M12', None)], ''),
        ('ID\n12\n12.1\n7-1\n', [('12', None), ('12.1', None), ('7-1', None)], ''),
        ('ID\n12.0\n13.0\n', [('12', None), ('13', None)], ''),
        ('Measure:volume\nA B\n', [('A B', None)], ''),
        (
            'ID\nT1_0005.long.0005\nT2_0005.long.0005\nT1_0007\n',
            [('0005', 'T1'), ('0005', 'T2'), ('T1_0007', None)],
            '',
        ),
        ('ID\nsub-1_ses-2.long.sub-1_base\n', [('1', '2')], 'sub-'),
        ('ID\n00_S_1_2011-06-02.long.00_S_1_base3\n', [('00_S_1', '2011-06-02')], ''),
        ('ID\nsub-1_ses-M0.long.sub-1_long-M0M18\n', [('1', 'M0')], 'sub-'),
        ('ID\nscan17.long.p3\nscan9.long.p3\n', [('p3', 'scan17'), ('p3', 'scan9')], ''),
        ('ID\tsession_id\nT1_0005.long.0005\tbl\n', [('0005', 'bl')], ''),
        ('ID\nx.long.\n', [('x.long.', None)], ''),
    ],
)
def test_ids_stay_as_they_are_written(tmp_path, text, visits, prefix):
    found = read_visit_table(write(tmp_path, text))
    assert (found.visits, found.prefix) == (visits, prefix)


@pytest.mark.parametrize(
    'text',
    [
        ',a,b\nS1,2,3\nS2,4,5\n',
        '"a","b"\n"S1",2,3\n"S2",4,5\n',
        'Unnamed: 0\ta\tb\nS1\t2\t3\nS2\t4\t5\n',
    ],
)
def test_names_of_rows_are_ids(tmp_path, text):
    """R and pandas write them without the name of a column."""
    table = read_visit_table(write(tmp_path, text))
    assert (table.visits, table.columns) == ([('S1', None), ('S2', None)], ['a', 'b'])
    with pytest.raises(DataError, match='no column SubjID'):
        read_visit_table(tmp_path / 't.tsv', id_column='SubjID')


def test_numbers_names_and_text(tmp_path):
    text = 'ID\ta\tb\tc\td\n1\t1e3\t3.0\t001\tx\n2\tn/a\tn/a\t002\t5\n'
    table = read_visit_table(write(tmp_path, text))
    assert table.values('a').isna().tolist() == [False, True]
    assert table.names('c').tolist() == ['001', '002']
    assert table.names('B').tolist() == ['3', None]
    with pytest.raises(DataError, match=r't.tsv: column d should hold numbers, but 1 has "x"'):
        table.numbers('d')
    with pytest.raises(DataError, match='no column e; there are: a, b, c, d'):
        table.numbers('e')


def test_numbers_follow_their_rows(tmp_path):
    (tmp_path / 'table.tsv').write_text('participant_id\tx\na\t1\nb\t2.0\nc\t3\n')
    table = read_visit_table(tmp_path / 'table.tsv')
    of = table.of({'c': ('c', None), 'z': ('z', None), 'a': ('a', None)})
    assert of.values('x').to_dict() == pytest.approx(
        {'c': 3, 'z': float('nan'), 'a': 1}, nan_ok=True
    )
    assert table.rows(['c', 'b']).values('x').to_dict() == {'c': 3, 'b': 2}


def test_sessions_take_precedence_over_participants(tmp_path):
    write(
        tmp_path, 'participant_id\tage\tsex\nsub-1\t70\tfemale\nsub-2\t50\t?\n', 'participants.tsv'
    )
    (tmp_path / 'sub-1').mkdir()
    write(tmp_path / 'sub-1', 'session_id\tage\nses-a\t71\nses-b\tn/a\n', 'sub-1_sessions.tsv')
    visits = [('1', 'a'), ('1', 'b'), ('2', None), ('3', None)]
    assert ages_and_sexes(tmp_path, visits) == dict(
        zip(visits, [(71.0, 'F'), (70.0, 'F'), (50.0, None), (None, None)])
    )
    assert read_sessions(tmp_path, ['1', '2']) == {('1', 'a'): {'age': '71'}, ('1', 'b'): {}}
    write(tmp_path / 'sub-1', 'session_id\nses-a\nses-a\n', 'sub-1_sessions.tsv')
    with pytest.raises(
        DataError, match='session_id has ses-a in line 3; expected one row per session'
    ):
        read_sessions(tmp_path, ['1'])
    write(tmp_path, 'participant_id\nsub-1_x\n', 'participants.tsv')
    with pytest.raises(DataError, match='expected sub-<label>'):
        read_participants(tmp_path)


def test_participants_are_read_once_for_all_visits(tmp_path, monkeypatch):
    write(tmp_path, 'participant_id\tage\nsub-1\t70\nsub-2\t50\n', 'participants.tsv')
    read = []
    monkeypatch.setattr(
        'surreal_bids.tables.read_file', lambda path: read.append(path) or path.read_bytes()
    )
    ages_and_sexes(tmp_path, [('1', None), ('2', None)] * 10)
    assert len(read) == 1


VISITS = {'sub-1': ('1', None), 'sub-2_ses-a': ('2', 'a'), 'sub-2_ses-b': ('2', 'b')}


@pytest.mark.parametrize(
    ('text', 'expected'),
    [
        ('participant_id\nsub-2\n', {'sub-2_ses-a': '', 'sub-2_ses-b': ''}),
        ('ID\twave\treason\n2\ta\tmotion\n', {'sub-2_ses-a': ': motion'}),
        ('ID\trating\tnote\n1\tFAIL\tblurred\n2\tpass\t\n', {'sub-1': ': blurred'}),
        ('ID\trating\n1\tpass\n', {}),
    ],
)
def test_exclusions(tmp_path, text, expected):
    found = read_exclusions(write(tmp_path, text), VISITS, set(VISITS.values()))
    assert found == {name: f'listed in t.tsv{why}' for name, why in expected.items()}


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('ID\n3\n', 'sub-3: in none of the other tables'),
        (
            'ID\n' + ''.join(f'{n}\n' for n in range(3, 14)),
            'sub-9, sub-10, sub-11, sub-12 and 1 more',
        ),
        ('ID\tsession_id\n2\tc\n', 'sub-2_ses-c: in none'),
        ('ID\trating\n1\tmaybe\n', "the rating 'maybe'"),
        ('ID\tqc\n1\tpass\n2\tfail\n', 'column qc seems to rate images; call it rating'),
    ],
)
def test_wrong_exclusions_are_an_error(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read_exclusions(write(tmp_path, text), VISITS, set(VISITS.values()))
