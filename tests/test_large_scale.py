"""Examples for clusters and data management name options that the program has."""

import re
import shlex
from pathlib import Path

import yaml

from surreal_bids import __version__
from surreal_bids.cli.app import build_parser

DOCS = Path(__file__).resolve().parents[1] / 'docs'


def test_babs_calls_the_app_with_options_that_it_has():
    config = yaml.safe_load((DOCS / 'babs.yaml').read_text())
    assert config['zip_foldernames'] == {'surreal_bids': __version__.replace('.', '-')}
    words = ['/bids', '/out', 'participant']
    for name, value in config['bids_app_args'].items():
        if name == '$SUBJECT_SELECTION_FLAG':
            words += [value, 'sub-01']
        else:
            words += [name, *([value] if value else [])]
    parsed = build_parser().parse_args(words)
    assert parsed.participant_label == ['sub-01']
    memory = re.search(r'--mem=(\d+)G', config['cluster_resources']['customized_text'])
    assert parsed.mem_gb == float(memory[1])
    cores = re.search(r'--cpus-per-task=(\d+)', config['cluster_resources']['customized_text'])
    assert parsed.nprocs == int(cores[1])


def test_datalad_calls_the_app_with_options_that_it_has():
    blocks = re.findall(r'```bash\n(.*?)```', (DOCS / 'cluster.md').read_text(), re.DOTALL)
    (block,) = (block for block in blocks if 'datalad containers-run' in block)
    commands = [shlex.split(line) for line in block.replace('\\\n', ' ').splitlines() if line]
    (run,) = (words for words in commands if words[:2] == ['datalad', 'containers-run'])
    parsed = build_parser().parse_args(shlex.split(run[-1]))
    given = [run[k + 1] for k, word in enumerate(run) if word == '--output']
    assert str(parsed.output_dir) in given
    assert list(parsed.analysis_levels) == ['participant']


def test_slurm_scripts_name_only_options_that_the_app_has():
    known = set(build_parser()._option_string_actions)
    for script in (DOCS.parent / 'singularity' / 'slurm').iterdir():
        text = script.read_text()
        # The options of Slurm and Apptainer stand in lines of their own.
        options = re.findall(r'surreal-bids (--[\w-]+)', text)
        after_image = text.partition('surreal_bids.sif')[2]
        options += re.findall(r'(?<![\w-])--[a-z][\w-]+', after_image)
        assert set(options) <= known, script.name
