import tomllib
from pathlib import Path
from types import NoneType
from typing import get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surreal_bids.cli.config_file import (
    config_to_toml,
    item_type,
    make_config,
    read_options,
    write_config,
)
from surreal_bids.config import AppConfig, flag_of, options_of
from surreal_bids.exceptions import UsageError
from surreal_bids.harmonization.covariates import ICVHandling
from surreal_bids.model.networks import PRESETS

TEXT = st.text(
    st.characters(exclude_categories=['Cs'], exclude_characters='\0'), min_size=1
).filter(str.strip)
PATH = TEXT.map(Path)
WHOLE = st.integers(1, 100)
NUMBER = st.floats(1, 100)
STRATEGIES = {str: TEXT, Path: PATH, int: WHOLE, float: NUMBER, bool: st.booleans()}
OPTIONS = options_of(AppConfig)
CHOICES = {name: option.choices for name, option in OPTIONS.items() if option.choices}
MINIMUMS = {name: option.minimum for name, option in OPTIONS.items() if option.minimum is not None}
REQUIRED = {'bids_dir': Path('in'), 'output_dir': Path('out'), 'analysis_levels': ('group',)}


def _any_value(name, kind):
    """Strategy for the values that an option may have."""
    inner = [STRATEGIES[option] for option in get_args(kind) if option in STRATEGIES]
    base = (
        st.sampled_from(CHOICES[name]) if name in CHOICES else (inner or [STRATEGIES.get(kind)])[0]
    )
    if get_origin(kind) is tuple:
        return st.lists(base, min_size=1).map(tuple)
    return st.none() | base if NoneType in get_args(kind) else base


KINDS = get_type_hints(AppConfig)
ANY_CONFIG = st.fixed_dictionaries({name: _any_value(name, kind) for name, kind in KINDS.items()})


@settings(deadline=None)
@given(ANY_CONFIG)
def test_round_trip(tmp_path_factory, options):
    config = AppConfig(**options)
    path = write_config(tmp_path_factory.mktemp('config') / 'config.toml', config)
    assert make_config({}, path) == config


def test_toml_is_readable():
    config = AppConfig(Path('in'), Path('out'), ('participant',), n_patterns=(2, 3), mem_gb=4.5)
    lines = config_to_toml(config).splitlines()
    assert lines[:3] == [
        'bids_dir = "in"',
        'output_dir = "out"',
        'analysis_levels = ["participant"]',
    ]
    assert {'n_patterns = [2, 3]', 'mem_gb = 4.5', 'dry_run = false', 'preset = "sparse"'} <= set(
        lines
    )
    assert not any(line.startswith('nprocs') for line in lines), 'options not set are left out'
    assert tomllib.loads(config_to_toml(config))['n_patterns'] == [2, 3]


def test_defaults_are_those_of_the_model():
    assert CHOICES['preset'] == tuple(PRESETS)
    assert CHOICES['icv'] == get_args(ICVHandling)
    assert AppConfig.preset == next(iter(PRESETS))


@pytest.mark.parametrize('name', [name for name in KINDS if name not in MINIMUMS])
@pytest.mark.parametrize('text', ['', ' ', '\0', 'a\udcff'], ids=ascii)
def test_text_that_cannot_be_meant_is_refused(name, text):
    kind = item_type(KINDS[name])
    if kind is bool or (kind is Path and not text):
        return
    value = kind(text)
    with pytest.raises(UsageError, match=flag_of(name)):
        make_config({**REQUIRED, name: (value,) if get_origin(KINDS[name]) is tuple else value})


@pytest.mark.parametrize('name', MINIMUMS)
@pytest.mark.parametrize('number', [10**400, float('inf'), 2.0**32])
def test_numbers_that_are_too_large_are_refused(name, number):
    value = (number,) if get_origin(KINDS[name]) is tuple else number
    with pytest.raises(UsageError, match=f'{flag_of(name)} .*or less'):
        make_config({**REQUIRED, name: value})


@pytest.mark.parametrize('text', ['', ' '])
@pytest.mark.parametrize('name', [name for name, kind in KINDS.items() if item_type(kind) is Path])
def test_empty_paths_of_a_file_are_refused(name, text, tmp_path):
    path = tmp_path / 'options.toml'
    path.write_text(f'{name} = "{text}"\n')
    with pytest.raises(UsageError, match=name):
        read_options(path)


@pytest.mark.parametrize('name', CHOICES)
def test_wrong_words_are_refused(name):
    value = ('red',) if get_origin(KINDS[name]) is tuple else 'red'
    with pytest.raises(UsageError, match=f'{flag_of(name)} red: expected {CHOICES[name][0]}'):
        make_config({**REQUIRED, name: value})


@pytest.mark.parametrize('name', MINIMUMS)
@pytest.mark.parametrize('distance', [1, float('nan')])
def test_numbers_have_bounds(name, distance):
    below = MINIMUMS[name] - distance
    value = (below,) if get_origin(KINDS[name]) is tuple else below
    with pytest.raises(UsageError, match=f'{flag_of(name)} .* expected {MINIMUMS[name]:g} or more'):
        make_config({**REQUIRED, name: value})


def test_a_list_that_may_not_be_empty():
    with pytest.raises(UsageError, match='--analysis-levels: expected at least one value'):
        make_config({**REQUIRED, 'analysis_levels': ()})


@pytest.mark.parametrize(
    ('given_options', 'expected'),
    [({}, 'dx'), ({'group_column': 'diagnosis'}, 'diagnosis')],
)
def test_the_command_line_wins_over_the_file(tmp_path, given_options, expected):
    path = tmp_path / 'config.toml'
    path.write_text('group_column = "dx"\ncontrol_label = "CN"\n')
    config = make_config({**REQUIRED, **given_options}, path)
    assert config.group_column == expected
    assert config.control_label == ('CN',)


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('group_column = ', 'cannot be read as TOML'),
        ('colour = "red"', 'unknown option colour; valid options: bids_dir, output_dir'),
        ('participant_label = [1]', r'participant_label = \[1\]; expected a list of text'),
        ('group_column = 1', 'group_column = 1; expected text'),
        ('bids_filter_file = true', 'bids_filter_file = True; expected a path'),
        ('nprocs = 1.5', 'nprocs = 1.5; expected a whole number'),
        ('nprocs = true', 'nprocs = True; expected a whole number'),
        ('map_smoothing = "8"', "map_smoothing = '8'; expected a number"),
        ('n_patterns = [2, 2.5]', r'n_patterns = \[2, 2.5\]; expected a list of whole numbers'),
        ('dry_run = "yes"', "dry_run = 'yes'; expected true or false"),
    ],
)
def test_a_wrong_file_is_explained(tmp_path, text, message):
    path = tmp_path / 'config.toml'
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_options(path)


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r'none\.toml: no such file'):
        read_options(tmp_path / 'none.toml')
