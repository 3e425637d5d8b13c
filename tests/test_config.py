import re
from pathlib import Path
from types import NoneType
from typing import get_args, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal_bids.cli.app import parse_arguments
from surreal_bids.cli.main import TYPES, write_config
from surreal_bids.config import (
    AppConfig,
    CohortOptions,
    TrainingOptions,
    change_options,
    check_config,
    flag_of,
    options_of,
)
from surreal_bids.exceptions import UsageError
from surreal_bids.harmonization.covariates import ICVHandling
from surreal_bids.model.networks import PRESETS

TEXT = st.text(
    st.characters(exclude_categories=['Cs'], exclude_characters='\0'), min_size=1
).filter(lambda text: text.strip() and text != '--')  # argparse drops `--`
STRATEGIES = {
    str: TEXT,
    Path: TEXT.filter(lambda text: not text.startswith('~')).map(Path),
    int: st.integers(1, 100),
    float: st.floats(1, 3),
    bool: st.booleans(),
}
OPTIONS = options_of(AppConfig)
CHOICES = {name: option.choices for name, option in OPTIONS.items() if option.choices}
MINIMUMS = {name: option.minimum for name, option in OPTIONS.items() if option.minimum is not None}
ARGUMENTS = ['in', 'out', 'group']
REQUIRED = dict(zip(('bids_dir', 'output_dir'), map(Path, ARGUMENTS)), analysis_levels=('group',))
KINDS = get_type_hints(AppConfig)


def _any_value(name, kind):
    """Strategy for the values that an option may have."""
    inner = [STRATEGIES[option] for option in get_args(kind) if option in STRATEGIES]
    base = (
        st.sampled_from(CHOICES[name]) if name in CHOICES else (inner or [STRATEGIES.get(kind)])[0]
    )
    if get_origin(kind) is tuple:
        return st.lists(base, min_size=1).map(tuple)
    return st.none() | base if NoneType in get_args(kind) else base


@pytest.mark.slow
@given(
    st.fixed_dictionaries(
        {name: _any_value(name, kind) for name, kind in KINDS.items() if name not in REQUIRED}
    )
)
def test_a_file_gives_the_configuration_that_was_written(tmp_path_factory, options):
    config = AppConfig(**REQUIRED, **options)
    path = write_config(tmp_path_factory.mktemp('config') / 'config.toml', config)
    assert parse_arguments([*ARGUMENTS, '--config-file', str(path)])[0] == config


def test_defaults_are_those_of_the_model():
    assert CHOICES['preset'] == tuple(PRESETS)
    assert CHOICES['icv'] == get_args(ICVHandling)
    assert AppConfig.preset == next(iter(PRESETS))


def _refused(name, value):
    value = (value,) if get_origin(KINDS[name]) is tuple else value
    with pytest.raises(UsageError) as refusal:
        check_config(AppConfig(**REQUIRED | {name: value}))
    return str(refusal.value)


def test_values_that_cannot_be_meant_are_refused():
    for name in MINIMUMS:
        for number in (10**400, float('inf'), 2.0**32):
            assert _refused(name, number).startswith(f'{flag_of(name)} ')
        for number in (MINIMUMS[name] - 1, float('nan')):
            assert f'expected {MINIMUMS[name]:g} or more' in _refused(name, number)
    for name, choices in CHOICES.items():
        assert f'{flag_of(name)} red: expected {choices[0]}' in _refused(name, 'red')
    for name in (name for name, kind in KINDS.items() if kind == str | None):
        for text in ('', ' ', '\0'):
            assert _refused(name, text).startswith(flag_of(name))
    with pytest.raises(UsageError, match='--analysis-levels: expected at least one value'):
        check_config(AppConfig(**REQUIRED | {'analysis_levels': ()}))


def test_the_command_line_wins_over_the_file(tmp_path):
    path = tmp_path / 'config.toml'
    path.write_text('group_column = "dx"\ncontrol_label = "CN"\npatient_label = ["A", "B"]\n')
    arguments = [*ARGUMENTS, '--config-file', str(path)]
    found = parse_arguments([*arguments, '--patient-label', 'C', '--group-column', 'd'])[0]
    assert (found.group_column, found.control_label) == ('d', ('CN',))
    assert found.patient_label == ('C',)


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('group_column = ', 'cannot be read as TOML'),
        ('colour = "red"', 'unrecognized arguments: --colour=red'),
        ('nprocs = 1.5', "--nprocs.*: invalid int value: '1.5'"),
        ('bids_filter_file = " "', '--bids-filter-file: expected text that is not empty'),
        ('dry_run = "yes"', "--dry-run: ignored explicit argument 'yes'"),
        (None, 'No such file'),
    ],
)
def test_a_wrong_file_is_explained(tmp_path, text, message):
    path = tmp_path / 'config.toml'
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=f'--config-file .*config.toml: (argument )?.*{message}'):
        parse_arguments([*ARGUMENTS, '--config-file', str(path)])


def test_every_option_is_on_the_command_line():
    assert set(TYPES) == set(KINDS)


def test_options_of_python_calls_may_be_single_values_or_lists():
    training = change_options(TrainingOptions(), {'n_patterns': 2, 'ortho': 0.4, 'folds': 3})
    assert training == TrainingOptions(n_patterns=(2,), ortho=(0.4,), folds=3)
    several = change_options(TrainingOptions(), {'n_patterns': np.arange(1, 4), 'ortho': None})
    assert several == TrainingOptions(n_patterns=(1, 2, 3))
    assert all(type(number) is int for number in several.n_patterns)
    cohort = change_options(
        CohortOptions(), {'covariates': 'age', 'exclude': 'bad.tsv', 'phenotype': ['one.tsv']}
    )
    paths = {'exclude': Path('bad.tsv'), 'phenotype': (Path('one.tsv'),)}
    assert cohort == CohortOptions(covariates=('age',), **paths)
    assert change_options(TrainingOptions(n_patterns=2), {}).n_patterns == (2,)


@pytest.mark.parametrize(
    ('kind', 'options', 'message'),
    [
        (TrainingOptions, {'n_patterns': '2'}, "--n-patterns '2': expected a whole number"),
        (TrainingOptions, {'n_patterns': (2, 2.5)}, '--n-patterns 2.5: expected a whole number'),
        (TrainingOptions, {'n_patterns': 0}, '--n-patterns 0: expected 1 or more'),
        (TrainingOptions, {'ortho': 'none'}, "--ortho 'none': expected a number"),
        (TrainingOptions, {'folds': True}, '--folds True: expected a whole number'),
        (CohortOptions, {'covariates': 5}, '--covariates 5: expected text'),
        (CohortOptions, {'impute': 'yes'}, "--impute 'yes': expected True or False"),
        (CohortOptions, {'exclude': 5}, '--exclude 5: expected a path'),
    ],
)
def test_options_of_python_calls_have_their_type(kind, options, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        change_options(kind(), options)
