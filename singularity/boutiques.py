"""Write the Boutiques descriptor from the command line's own parser.

    python singularity/boutiques.py > singularity/boutiques.json

A test holds that the file is what this writes, so that no option is forgotten in it.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from surreal_bids import __version__
from surreal_bids.cli.app import build_parser
from surreal_bids.cli.main import path_of

FIRST = ('participant_label', 'session_label')
"""Options that BIDS Apps name right after the analysis level."""

PAPER = 'https://openreview.net/forum?id=nf3A0WZsXS5'
"""Where the method is described."""

LICENCES = (
    'Apache-2.0 AND MIT AND LicenseRef-surreal-bids-network AND LicenseRef-surreal-bids-tables '
    'AND LicenseRef-surreal-bids-atlas'
)
"""Licences of the image; Boutiques has no field for them."""

SKIPPED = {'--help', '--version', '--mem', '--notrack'}
"""Options that run nothing, and those of fMRIPrep that stand for others or have no effect."""

NUMBERS: dict[Any, dict[str, Any]] = {
    int: {'type': 'Number', 'integer': True},
    float: {'type': 'Number'},
    path_of: {'type': 'File'},
    str: {'type': 'String'},
}
"""Boutiques types of the values."""


def describe_app() -> dict[str, Any]:
    """The descriptor: positional arguments as BIDS has them, then every option."""
    options = [action for action in build_parser()._actions if action.option_strings]
    options = [action for action in options if SKIPPED.isdisjoint(action.option_strings)]
    options.sort(key=lambda action: name_of(action) not in FIRST)
    keys = ' '.join(f'[{name_of(action).upper()}]' for action in options)
    return {
        'name': 'surreal_bids',
        'description': 'R-indices of disease-related brain patterns from T1-weighted MRI '
        '(Surreal-GAN): a BIDS App.',
        'author': 'The surreal_bids developers',
        'url': PAPER,
        'tool-version': __version__,
        'schema-version': '0.5',
        'command-line': 'mkdir -p [OUTPUT_DIR]; surreal-bids [BIDS_DIR] [OUTPUT_DIR] '
        f'[ANALYSIS_LEVEL] {keys}',
        'custom': {'licenses': LICENCES},
        'tags': {'domain': ['neuroinformatics', 'mri'], 'toolType': ['bids app']},
        'inputs': [*_positionals(), *map(describe_option, options)],
        'groups': [
            {
                'id': 'output',
                'name': 'Output folder',
                'members': ['output_dir_name', 'output_dir'],
                'mutually-exclusive': True,
                'one-is-required': True,
            }
        ],
        'output-files': [
            {'id': 'outputs', 'name': 'Outputs', 'path-template': '[OUTPUT_DIR]', 'optional': False}
        ],
        'error-codes': [
            {'code': code, 'description': meaning} for code, meaning in EXIT_CODES.items()
        ],
    }


EXIT_CODES = {
    1: 'some participants failed and are listed',
    2: 'wrong usage',
    16: 'not a BIDS dataset',
    18: 'nothing matches the filters',
    65: 'bad data',
    73: 'the output cannot be written',
}


def _positionals() -> list[dict[str, Any]]:
    output = {'value-key': '[OUTPUT_DIR]', 'optional': True}
    return [
        {
            'id': 'bids_dir',
            'name': 'BIDS dataset',
            'type': 'File',
            'value-key': '[BIDS_DIR]',
            'description': 'Root of a BIDS dataset.',
            'optional': False,
        },
        {'id': 'output_dir_name', 'name': 'Output folder to make', 'type': 'String', **output},
        {'id': 'output_dir', 'name': 'Output folder that exists', 'type': 'File', **output},
        {
            'id': 'analysis_level',
            'name': 'Levels to run',
            'type': 'String',
            'value-key': '[ANALYSIS_LEVEL]',
            'value-choices': ['participant', 'group'],
            'list': True,
            'min-list-entries': 1,
            'max-list-entries': 2,
            'optional': False,
        },
    ]


def name_of(action: argparse.Action) -> str:
    """Name of an option after its flag: `--quiet` and `--verbose` set one and the same value."""
    return flag_of(action).lstrip('-').replace('-', '_')


def flag_of(action: argparse.Action) -> str:
    """Flag of an option: its first long name."""
    return next(name for name in action.option_strings if name.startswith('--'))


def describe_option(action: argparse.Action) -> dict[str, Any]:
    """One option as an input of the descriptor."""
    name = name_of(action)
    described: dict[str, Any] = {
        'id': name,
        'name': name.replace('_', ' ').capitalize(),
        'description': (action.help or '').replace('%%', '%'),
        'value-key': f'[{name.upper()}]',
        'command-line-flag': flag_of(action),
        'optional': True,
    }
    if action.nargs == 0:
        return {**described, 'type': 'Flag'}
    described |= NUMBERS[action.type]
    if action.choices:
        described['value-choices'] = list(action.choices)
    if action.nargs in ('+', '*'):
        described['list'] = True
    return described


if __name__ == '__main__':
    sys.stdout.write(json.dumps(describe_app(), indent=2) + '\n')
