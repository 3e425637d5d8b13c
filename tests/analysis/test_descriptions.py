"""Every column of every table is described, in the JSON beside it."""

import json

import pandas as pd
import pytest

from surreal_bids.analysis.change import CHANGE_COLUMNS, GROUP_COLUMNS
from surreal_bids.analysis.descriptions import CONSTANTS, EXCLUDED, write_described
from surreal_bids.analysis.patterns import PATTERN_COLUMNS
from surreal_bids.analysis.statistics import DIFFERENCE_COLUMNS, SEPARATION_COLUMNS
from surreal_bids.bids.outputs import _data_dictionary, describe_columns, output_names
from surreal_bids.harmonization.combat import UNHARMONIZED
from surreal_bids.names import CONTROL, PATIENT
from surreal_bids.rindices.crossfit import NOT_HELD_OUT
from surreal_bids.rindices.intervals import ALL_CONTROLS, LIKE_AGE, TRAINING_CONTROLS
from surreal_bids.rindices.preprocessing import COMPLETE, INCOMPLETE
from surreal_bids.stats.associations import COLUMNS

WRITTEN = {
    'changes': CHANGE_COLUMNS,
    'group_change': GROUP_COLUMNS,
    'patterns': [*PATTERN_COLUMNS, 'contribution'],
    'diagnosis': SEPARATION_COLUMNS,
    'differences': DIFFERENCE_COLUMNS,
    'associations': COLUMNS,
}


@pytest.mark.parametrize('name', WRITTEN)
def test_the_columns_that_are_written_are_those_described(name):
    assert set(describe_columns(name, **CONSTANTS)) == set(WRITTEN[name])


def test_every_table_of_the_group_level_has_a_sidecar():
    of_volumes = {'roi_volumes', 'harmonized_volumes'}
    tables = {
        name: row
        for name, row in output_names().items()
        if row.level == 'group' and row.path.endswith('.tsv')
    }
    assert set(tables) - of_volumes <= set(_data_dictionary())
    assert all(row.metadata is not None for row in tables.values())


def test_levels_are_those_that_are_written():
    columns = describe_columns('rindices', **CONSTANTS)
    statuses = {COMPLETE, INCOMPLETE, UNHARMONIZED, EXCLUDED, NOT_HELD_OUT}
    assert set(columns['status']['Levels']) == statuses
    assert set(columns['centile_of']['Levels']) == {LIKE_AGE, ALL_CONTROLS, TRAINING_CONTROLS}
    assert set(columns['group']['Levels']) == {CONTROL, PATIENT}


@pytest.mark.parametrize('name', _data_dictionary())
def test_the_data_dictionary_is_sound(name):
    values = {'pattern': 'r1', 'column': 'MUSE_47', 'region': 'Right hippocampus', 'unit': 'mm^3'}
    values |= {'steps': ', after ComBat', 'lesion': 'Volumes include it'}
    for column, row in describe_columns(name, **CONSTANTS, **values).items():
        assert isinstance(column, str)
        assert set(row) <= {'Description', 'Units', 'Levels', 'Format'}
        texts = [row['Description'], row.get('Units', ''), *row.get('Levels', {}).items()]
        assert not any(brace in str(texts[:2]) for brace in '{}')
        assert row['Description']


def test_the_sidecar_has_the_columns_in_their_order(tmp_path):
    table = pd.DataFrame({'auc': [0.7], 'index': ['r1']})
    described = write_described('diagnosis', tmp_path / 'a.b.tsv', table)
    assert list(described) == ['auc', 'index']
    assert described['auc']['Units'] == '1'
    assert json.loads((tmp_path / 'a.b.json').read_text()) == described
    with pytest.raises(KeyError):
        write_described('diagnosis', tmp_path / 'c.tsv', table.assign(unknown=1))
    assert not (tmp_path / 'c.tsv').exists()
