"""Every column of every table is described, in the JSON beside it."""

import json

import pandas as pd
import pytest

from surreal_bids.analysis.change import CHANGE_COLUMNS
from surreal_bids.analysis.outputs import CONSTANTS, EXCLUDED, TABLES, write_described
from surreal_bids.analysis.patterns import PATTERN_COLUMNS
from surreal_bids.analysis.statistics import GATHERED_COLUMNS
from surreal_bids.bids.outputs import _data_dictionary, describe_columns, output_names
from surreal_bids.harmonization.combat import UNHARMONIZED
from surreal_bids.names import CONTROL, PATIENT
from surreal_bids.rindices.crossfit import NOT_HELD_OUT
from surreal_bids.rindices.preprocessing import COMPLETE, INCOMPLETE


def test_the_columns_that_are_written_are_those_described():
    written = {
        'changes': CHANGE_COLUMNS,
        'patterns': PATTERN_COLUMNS,
        'statistics': GATHERED_COLUMNS,
    }
    for name, columns in written.items():
        assert list(describe_columns(name, **CONSTANTS)) == list(columns)


def test_nine_tables_and_the_contrasts_of_maps():
    tables = {
        name: row
        for name, row in output_names().items()
        if row.level == 'group' and row.path.endswith('.tsv')
    }
    assert set(tables) == {*TABLES, 'contrasts'}
    assert len(TABLES) == 9
    assert all(row.metadata is not None for row in tables.values())
    assert set(tables) - {'roi_volumes', 'harmonized_volumes'} <= set(_data_dictionary())


def test_levels_are_those_that_are_written():
    columns = describe_columns('rindices', **CONSTANTS)
    statuses = {COMPLETE, INCOMPLETE, UNHARMONIZED, EXCLUDED, NOT_HELD_OUT}
    assert set(columns['status']['Levels']) == statuses
    assert set(columns['group']['Levels']) == {CONTROL, PATIENT}


VALUES = {
    'pattern': 'r1', 'column': 'MUSE_47', 'region': 'Right hippocampus', 'unit': 'mm^3',
    'steps': ', after ComBat', 'lesion': 'Volumes include it', 'number': 1,
}  # fmt: skip

WITHOUT_UNITS = {
    *('participant_id', 'session_id', 'from_session', 'to_session', 'site', 'hemisphere'),
    *('fold', 'reason', 'flags', 'r_index', 'measure', 'outliers', 'index', 'pattern'),
    *('pattern_name', 'name', 'region', 'muse_regions', 'contrast', 'description', 'tissue'),
    *('adjacent_to', VALUES['column'], 'matched_pattern'),
}
"""Columns of words, of numbers that are names, and of input whose unit is not known."""


def test_every_column_has_units_or_holds_words():
    for name in _data_dictionary():
        for column, row in describe_columns(name, **CONSTANTS, **VALUES).items():
            described = {'Units', 'Levels', 'Format'} & set(row)
            assert described or column in WITHOUT_UNITS, f'{name}: {column}'


def test_the_data_dictionary_is_sound():
    for name in _data_dictionary():
        for row in describe_columns(name, **CONSTANTS, **VALUES).values():
            assert set(row) <= {'Description', 'Units', 'Levels', 'Format'}
            assert row['Description']
            assert not any(brace in str([row['Description'], row.get('Units')]) for brace in '{}')


def test_the_sidecar_has_the_columns_in_their_order(tmp_path):
    table = pd.DataFrame({'p': [0.7], 'index': ['r1']})
    write_described('statistics', tmp_path / 'a.b.tsv', table)
    described = json.loads((tmp_path / 'a.b.json').read_text())
    assert list(described) == ['p', 'index']
    assert described['p']['Units'] == '1'
    with pytest.raises(KeyError):
        write_described('statistics', tmp_path / 'c.tsv', table.assign(unknown=1))
    assert not (tmp_path / 'c.tsv').exists()
