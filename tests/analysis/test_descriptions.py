"""Every column of every table is described, in the JSON beside it."""

import json

import pandas as pd
import pytest

from surreal_bids.analysis.change import CHANGE_COLUMNS, GROUP_COLUMNS
from surreal_bids.analysis.descriptions import TABLES, write_described
from surreal_bids.analysis.diagnosis import DIAGNOSIS_COLUMNS, DIFFERENCE_COLUMNS
from surreal_bids.analysis.engine import HALVES_COLUMNS, PATTERN_COLUMNS
from surreal_bids.bids.outputs import output_names
from surreal_bids.stats.associations import COLUMNS, COVARIATE_COLUMNS

WRITTEN = {
    'changes': CHANGE_COLUMNS,
    'group_change': GROUP_COLUMNS,
    'patterns': [*PATTERN_COLUMNS, 'contribution'],
    'split_half': [*HALVES_COLUMNS, 'trained_on'],
    'diagnosis': DIAGNOSIS_COLUMNS,
    'differences': DIFFERENCE_COLUMNS,
    'associations': COLUMNS,
    'covariates': ['group', *COVARIATE_COLUMNS],
}


@pytest.mark.parametrize('name', WRITTEN)
def test_the_columns_that_are_written_are_those_described(name):
    assert set(TABLES[name]) == set(WRITTEN[name])


def test_every_table_of_the_group_level_has_a_sidecar():
    of_volumes = {'roi_volumes', 'harmonized_volumes', 'rindices', 'contributions'}
    tables = {
        name: row
        for name, row in output_names().items()
        if row.level == 'group' and row.path.endswith('.tsv')
    }
    assert set(tables) - of_volumes == set(TABLES) - {'site_shifts'}
    assert all(row.metadata is not None for row in tables.values())


def test_the_sidecar_has_the_columns_in_their_order(tmp_path):
    table = pd.DataFrame({'auc': [0.7], 'by': ['all regions']})
    described = write_described('diagnosis', tmp_path / 'a.b.tsv', table)
    assert list(described) == ['auc', 'by']
    assert described['auc']['Units'] == '1'
    assert json.loads((tmp_path / 'a.b.json').read_text()) == described
    with pytest.raises(KeyError):
        write_described('diagnosis', tmp_path / 'c.tsv', table.assign(unknown=1))
    assert not (tmp_path / 'c.tsv').exists()
