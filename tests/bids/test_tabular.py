from pathlib import Path

import pandas as pd
import pytest

from surreal_bids.bids.tabular import (
    Table,
    age_and_sex,
    find_column,
    find_id_column,
    names,
    prefix_errors,
    read_table,
    require_columns,
)
from surreal_bids.cohort.reader import read_visit_table
from surreal_bids.exceptions import DataError


@pytest.fixture
def write(tmp_path):
    def write_table(text: str, name: str = 'table.csv', encoding: str = 'utf-8') -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode(encoding))
        return path

    return write_table


@pytest.mark.parametrize('separator', ['\t', ',', ';'])
@pytest.mark.parametrize('line_end', ['\n', '\r\n'])
@pytest.mark.parametrize('encoding', ['utf-8', 'utf-8-sig'])
def test_separators_line_ends_and_byte_order_marks(write, separator, line_end, encoding):
    text = 'age|participant_id|site\n61.5|sub-1|Göttingen\n\nn/a|sub-2|x\n'
    table = read_visit_table(
        write(text.replace('|', separator).replace('\n', line_end), 't', encoding)
    ).table
    assert table.text.index.tolist() == ['sub-1', 'sub-2']
    assert table.columns == ['age', 'site']
    assert table.categories('site').tolist() == ['Göttingen', 'x']
    assert table.numbers('age').iloc[0] == 61.5


@pytest.mark.parametrize('cell', ['', 'n/a', 'N/A', 'NA', 'NaN', 'nan', 'NULL'])
def test_missing_in_the_usual_spellings(write, cell):
    table = read_visit_table(write(f'participant_id,age\nsub-1,{cell}\nsub-2,70\n')).table
    assert table.numbers('age').isna().tolist() == [True, False]


def test_a_quoted_cell_may_hold_the_separator(write):
    table = read_visit_table(write('participant_id,site\nsub-1,"Bonn, Germany"\n')).table
    assert table.categories('site').tolist() == ['Bonn, Germany']


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('', 'the table is empty'),
        ('\ufeff\r\n\r\n', 'the table is empty'),
        ('person,age\nsub-1,60\n', r'no column participant_id.*person, age'),
        ('participant_id,age\nsub-1,60,7\n', 'line 2 has 3 cells, but the header has 2'),
        ('participant_id,age,age\nsub-1,60,61\n', 'more than one column age'),
        ('participant_id,age\nsub-1,60\nsub-1,61\n', 'more than one row for sub-1'),
        ('participant_id,age\nsub-1,60\n1,61\n', 'more than one row for sub-1'),
        ('participant_id,age\n,60\n', 'line 2 has no participant_id'),
        ('participant_id,age\n"sub-1,60\n', 'a quoted cell'),
        ('participant_id,age,Age\nsub-1,60,61\n', 'more than one column Age, age'),
        ('participant_id,a\0ge\nsub-1,60\n', 'not a table|not text'),
    ],
)
def test_bad_tables_are_named_and_explained(write, text, message):
    path = write(text)
    with pytest.raises(DataError, match=message) as caught:
        read_visit_table(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ('content', 'message'),
    [
        (b'PK\x03\x04\x80\x81', 'Excel'),
        ('participant_id,age\n'.encode('utf-16'), 'UTF-16'),
        (b'\x1f\x8b\x08\0', 'gunzip'),
        (b'version https://git-lfs.github.com/spec/v1', 'git lfs pull'),
        ('participant_id\tname\nsub-1\tJos\xe9\n'.encode('latin-1'), 'UTF-8'),
    ],
)
def test_what_is_no_table_is_called_by_its_name(tmp_path, content, message):
    path = tmp_path / 'table.tsv'
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_visit_table(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r'nowhere\.tsv: cannot be read'):
        read_visit_table(tmp_path / 'nowhere.tsv')


@pytest.mark.parametrize(
    ('cell', 'message'),
    [('sixty', 'sub-2 has "sixty"'), ('inf', 'sub-2 has "inf"'), ('6,5', 'sub-2 has "6,5"')],
)
def test_text_in_a_column_of_numbers_names_the_person(write, cell, message):
    table = read_visit_table(write(f'participant_id\tage\nsub-1\t60\nsub-2\t{cell}\n')).table
    with pytest.raises(DataError, match=message):
        table.numbers('age')


@pytest.mark.parametrize(
    ('wanted', 'found'),
    [('age', 'age'), ('Sex', 'sex'), ('icv', None), ('height', None), ('ICV', 'ICV')],
)
def test_columns_are_found_by_name_and_else_by_the_only_similar_one(wanted, found):
    assert find_column(['age', 'sex', 'ICV', 'Icv'], wanted) == found


def test_missing_columns_come_with_the_nearest():
    table = Table(Path('t.tsv'), pd.DataFrame(columns=[f'MUSE_{k}' for k in range(100, 130)]))
    with pytest.raises(DataError, match=r't\.tsv: no column MUSE_47; .*MUSE_1.7'):
        require_columns(table, ['MUSE_100', 'MUSE_47'])


@pytest.mark.parametrize(
    ('cell', 'name'), [('3.0', '3'), ('-1.0', '-1'), ('3', '3'), ('3.05', '3.05'), ('A3.0', 'A3.0')]
)
def test_names_that_were_taken_for_numbers(write, cell, name):
    table = read_visit_table(write(f'participant_id,site\nsub-1,{cell}\nsub-2,n/a\n')).table
    assert names(table, 'site').tolist() == [name, None]


@pytest.mark.parametrize('message', ['bad', 'some.tsv: bad'])
def test_the_file_is_named_once(message):
    with pytest.raises(DataError) as caught, prefix_errors(Path('some.tsv')):
        raise DataError(message)
    assert str(caught.value) == 'some.tsv: bad'


@pytest.mark.parametrize(
    'name', ['participant_id', 'Participant_ID', 'MRID', 'ID', 'subject', 'sub_id', 'PTID',
             'Measure:volume', 'lh.aparc.volume'],
)  # fmt: skip
def test_ids_under_any_usual_name(write, name):
    table = read_table(write(f'{name}\tage\nsub-1\t61\n'))
    assert find_id_column(table) == name


@pytest.mark.parametrize(('wanted', 'found'), [('code', 'code'), (None, 'ID')])
def test_the_column_of_ids_may_be_named(write, wanted, found):
    assert find_id_column(read_table(write('code,ID\na,b\n')), wanted) == found


def test_a_column_of_ids_that_is_not_there_is_named(write):
    with pytest.raises(DataError, match='no column nobody; there are: code, ID'):
        find_id_column(read_table(write('code,ID\na,b\n')), 'nobody')


@pytest.mark.parametrize(
    ('header', 'row', 'expected'),
    [
        ('age\tsex', '61.5\tF', (61.5, 'F')),
        ('Age\tgender', '61\tMale', (61.0, 'M')),
        ('age\tsex', 'n/a\tn/a', (None, None)),
        ('age\tsex', '89+\tO', (None, None)),
        ('age\tsex', 'inf\tm', (None, 'M')),
        ('group\tsite', 'a\tb', (None, None)),
    ],
)
def test_age_and_sex(tmp_path, header, row, expected):
    (tmp_path / 'participants.tsv').write_text(f'participant_id\t{header}\nsub-01\t{row}\n')
    assert age_and_sex(tmp_path, ('01', None)) == expected
    assert age_and_sex(tmp_path, ('02', None)) == (None, None)


def test_age_at_the_session_counts(tmp_path):
    assert age_and_sex(tmp_path, ('01', None)) == (None, None)
    (tmp_path / 'participants.tsv').write_text('participant_id\tage\tsex\nsub-01\t60\tF\n')
    sessions = tmp_path / 'sub-01' / 'sub-01_sessions.tsv'
    sessions.parent.mkdir()
    sessions.write_text('session_id\tage\nses-b\t63.5\n')
    assert age_and_sex(tmp_path, ('01', 'b')) == (63.5, 'F')
    assert age_and_sex(tmp_path, ('01', 'a')) == (60.0, 'F')
