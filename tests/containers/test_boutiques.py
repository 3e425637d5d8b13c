import json
import subprocess
import sys
from pathlib import Path

import pytest

from surreal_bids.cli.app import build_parser

FOLDER = Path(__file__).resolve().parents[2] / 'singularity'
DESCRIPTOR = json.loads((FOLDER / 'boutiques.json').read_text())
NOT_FOR_BOUTIQUES = {'--help', '--version', '--mem', '--notrack'}


def test_the_descriptor_is_that_of_the_parser():
    command = [sys.executable, FOLDER / 'boutiques.py']
    written = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert json.loads(written) == DESCRIPTOR, (
        'options have changed: python singularity/boutiques.py > singularity/boutiques.json'
    )


@pytest.mark.parametrize('action', build_parser()._actions, ids=lambda action: action.dest)
def test_every_option_is_described(action):
    flags = {described.get('command-line-flag') for described in DESCRIPTOR['inputs']}
    names = set(action.option_strings)
    assert not names or names & NOT_FOR_BOUTIQUES or names & flags


@pytest.mark.parametrize('name', ['QUICK', 'TRAINING'])
def test_options_of_the_tests_of_containers_exist(name):
    script = Path(__file__).with_name('options.sh')
    command = ['bash', '-c', f'source "{script}"; printf "%s\\n" "${{{name}[@]}}"']
    options = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    build_parser().parse_args(['in', 'out', 'group', *options])
