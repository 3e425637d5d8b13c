import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surreal_bids.bids.tabular import (
    read_participants,
    read_sessions,
    read_table,
    read_visits,
)
from surreal_bids.columns import column_of
from surreal_bids.exceptions import DataError
from surreal_bids.files import write_tsv
from tests.shared_data import shared_data

PEOPLE = (
    'participant_id\tage\tsite\tcode\tdiagnosis\n'
    'sub-001\t61.5\t1\t007\tCN\n'
    'sub-002\tn/a\t2\t011\tPT\n'
    'sub-003\t70\t1\tn/a\tn/a\n'
)


@pytest.fixture
def write(tmp_path):
    def write_participants(text, encoding='utf-8'):
        (tmp_path / 'participants.tsv').write_bytes(text.encode(encoding))
        return tmp_path

    return write_participants


@pytest.mark.parametrize('encoding', ['utf-8', 'utf-8-sig'])
@pytest.mark.parametrize('line_end', ['\n', '\r\n'])
def test_typed_columns(write, encoding, line_end):
    table = read_participants(write(PEOPLE.replace('\n', line_end), encoding))
    typed = table.typed()
    assert typed['participant_id'].tolist() == ['001', '002', '003']
    np.testing.assert_array_equal(typed['age'], [61.5, np.nan, 70])
    assert typed['site'].tolist() == [1.0, 2.0, 1.0]
    assert typed['code'].tolist() == ['007', '011', None]
    assert typed['diagnosis'].tolist() == ['CN', 'PT', None]


@pytest.mark.parametrize(
    ('cells', 'numeric'),
    [
        (['1', '2.5', '-3e2'], True),
        (['0', '0.5', 'n/a'], True),
        (['00', '1', '2'], False),
        (['1', 'two', '3'], False),
        (['1', 'inf', '3'], False),
        (['n/a', 'n/a', 'N/A'], False),
    ],
)
def test_what_counts_as_numbers(tmp_path, cells, numeric):
    path = tmp_path / 't.tsv'
    path.write_text('\n'.join(['x\ty', *(f'{cell}\t.' for cell in cells)]))
    assert pd.api.types.is_float_dtype(read_table(path).typed()['x']) is numeric


@pytest.mark.parametrize('value', ['63,5', 'old', 'inf', '1_000', '\u0661', '0x1A', '1e999'])
def test_text_among_numbers_is_named_with_its_line(write, value):
    table = read_participants(write(PEOPLE.replace('70', value)))
    with pytest.raises(DataError, match=f'column age should hold .* line 4 has "{value}"'):
        table.numbers('age')


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('', 'the table is empty'),
        ('\ufeff\r\n\r\n', 'the table is empty'),
        ('id\tage\nsub-1\t3\n', 'no column participant_id; there are: id, age'),
        ('participant_id\tage\nsub-1\n', 'line 2 has 1 cell, but the header has 2'),
        ('participant_id\tage\nsub-1\t2\t3\n', 'line 2 has 3 cells, but the header has 2'),
        ('participant_id\tage\tage\nsub-1\t2\t3\n', 'more than one column age'),
        ('participant_id\nsub-1\nsub-2\n1\n', r'sub-1 \(line 2, line 4\)'),
        ('participant_id\tage\nn/a\t2\n', 'participant_id of line 2 is "n/a"; expected sub-'),
        ('participant_id\nsub-1\n../../x\n', 'participant_id of line 3 is "../../x"'),
        ('participant_id\nsub-a_b\n', 'participant_id of line 2 is "sub-a_b"'),
        ('participant_id\tnote\nsub-1\t"open\nsub-2\tx\n', 'a quoted cell that does not end'),
    ],
)
def test_a_wrong_table_is_explained(write, text, message):
    with pytest.raises(DataError, match=message):
        read_participants(write(text))


def test_another_encoding_is_named(write):
    with pytest.raises(DataError, match='not a table in UTF-8 text'):
        read_participants(write('participant_id\tname\nsub-1\tJos\xe9\n', 'latin-1'))


def test_an_absent_table_is_named(tmp_path):
    with pytest.raises(DataError, match=r'participants\.tsv: no such file; add it'):
        read_participants(tmp_path)


def test_a_missing_column_brings_the_nearest_of_many(write):
    columns = [f'measure{i}' for i in range(20)]
    table = read_participants(write('\t'.join(['participant_id', *columns, 'site']) + '\n'))
    with pytest.raises(DataError, match='no column sites; the nearest of 22 are: site'):
        table.require(['sites'])


def test_a_table_of_no_rows_has_typed_columns_too(write):
    table = read_participants(write('participant_id\tage\n'))
    assert len(table) == 0
    assert table.numbers('age').dtype == np.float64


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
            st.one_of(st.none(), st.text('abc \t"\'é', min_size=1).filter(lambda s: s.strip())),
        ),
        min_size=1,
    )
)
@settings(deadline=None)
def test_what_is_written_is_read_back(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp('table') / 't.tsv'
    numbers = np.array([np.nan if number is None else number for number, _ in rows])
    texts = [text for _, text in rows]
    write_tsv(path, pd.DataFrame({'x': numbers, 'y': pd.Series(texts, dtype=object)}))
    table = read_table(path)
    np.testing.assert_array_equal(table.numbers('x'), numbers)
    assert table.categories('y').tolist() == [text and text.strip() for text in texts]


@pytest.fixture
def longitudinal(write):
    root = write(PEOPLE)
    for label in ('001', '002'):
        (root / f'sub-{label}').mkdir()
    (root / 'sub-001' / 'sub-001_sessions.tsv').write_text(
        'session_id\tage\tscanner\nses-1\t61.5\tA\nses-2\t63.5\tB\nses-3\tn/a\tB\n'
    )
    return root


def test_a_session_overrides_the_participant(longitudinal):
    visits = [('001', '2'), ('002', None), ('001', '3'), ('001', '4')]
    table = read_visits(longitudinal, visits)
    assert table.categories('participant_id').tolist() == ['001', '002', '001', '001']
    assert table.categories('session_id').tolist() == ['2', None, '3', '4']
    np.testing.assert_array_equal(table.numbers('age'), [63.5, np.nan, 61.5, 61.5])
    assert table.categories('scanner').tolist() == ['B', None, 'B', None]


def test_no_visits_have_columns_all_the_same(longitudinal):
    table = read_visits(longitudinal, [])
    assert table.columns == ['participant_id', 'session_id', 'age', 'site', 'code', 'diagnosis']


def test_errors_in_visits_name_the_visit(longitudinal):
    table = read_visits(longitudinal, [('001', '2')])
    with pytest.raises(DataError, match=r'column scanner .* sub-001 ses-2 has "B"'):
        table.numbers('scanner')


def test_people_without_a_row_are_named(longitudinal):
    with pytest.raises(DataError, match='no row for sub-9, sub-8; add it'):
        read_visits(longitudinal, [('9', None), ('001', '1'), ('8', None)])


def test_sessions_may_be_absent_but_not_repeated(longitudinal):
    assert read_sessions(longitudinal, '002') is None
    path = longitudinal / 'sub-002' / 'sub-002_sessions.tsv'
    path.write_text('session_id\nses-1\nses-1\n')
    with pytest.raises(DataError, match='2 rows have session_id ses-1'):
        read_sessions(longitudinal, '002')


def test_a_real_table():
    table = read_participants(shared_data('ds002748-subset'))
    assert column_of(table.columns, 'diagnosis') == 'group'
    assert table.categories('group').value_counts().to_dict() == {'depr': 3, 'control': 3}
    assert table.numbers('age').tolist() == [39, 50, 47, 32, 44, 26]
    assert table.numbers('MADRS').isna().all()
