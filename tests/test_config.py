import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal_bids.config import AppConfig, config_to_toml, make_config, read_options, write_config
from surreal_bids.exceptions import UsageError

TEXT = st.text(st.characters(exclude_categories=['Cs']), min_size=1)
PATH = TEXT.filter(lambda text: '\x00' not in text).map(Path)
REQUIRED = {'bids_dir': Path('in'), 'output_dir': Path('out'), 'analysis_levels': ('group',)}


@given(
    st.builds(
        AppConfig,
        bids_dir=PATH,
        output_dir=PATH,
        analysis_levels=st.lists(TEXT).map(tuple),
        participant_label=st.lists(TEXT).map(tuple),
        session_label=st.lists(TEXT).map(tuple),
        bids_filter_file=st.none() | PATH,
        bids_database_dir=st.none() | PATH,
        group_column=st.none() | TEXT,
        control_label=st.none() | TEXT,
        patient_label=st.none() | TEXT,
        dry_run=st.booleans(),
    )
)
def test_round_trip(tmp_path_factory, config):
    path = write_config(tmp_path_factory.mktemp('config') / 'config.toml', config)
    assert make_config({}, path) == config


def test_toml_is_readable():
    config = AppConfig(Path('in'), Path('out'), ('participant',), participant_label=('01', '02'))
    assert config_to_toml(config) == (
        'bids_dir = "in"\noutput_dir = "out"\nanalysis_levels = ["participant"]\n'
        'participant_label = ["01", "02"]\nsession_label = []\ndry_run = false\n'
    )
    assert tomllib.loads(config_to_toml(config))['participant_label'] == ['01', '02']


@pytest.mark.parametrize(
    ('given_options', 'expected'),
    [({}, 'dx'), ({'group_column': 'diagnosis'}, 'diagnosis')],
)
def test_the_command_line_wins_over_the_file(tmp_path, given_options, expected):
    path = tmp_path / 'config.toml'
    path.write_text('group_column = "dx"\ncontrol_label = "CN"\n')
    config = make_config({**REQUIRED, **given_options}, path)
    assert config.group_column == expected
    assert config.control_label == 'CN'


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('group_column = ', 'cannot be read as TOML'),
        ('colour = "red"', 'unknown option colour; there are: bids_dir, output_dir'),
        ('participant_label = "01"', r"participant_label = '01'; expected a list of texts"),
        ('participant_label = [1]', r'participant_label = \[1\]; expected a list of texts'),
        ('group_column = 1', 'group_column = 1; expected a text'),
        ('bids_filter_file = true', 'bids_filter_file = True; expected a text'),
        ('dry_run = "yes"', "dry_run = 'yes'; expected true or false"),
    ],
)
def test_a_wrong_file_is_explained(tmp_path, text, message):
    path = tmp_path / 'config.toml'
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_options(path)


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r'none\.toml: cannot be read'):
        read_options(tmp_path / 'none.toml')
