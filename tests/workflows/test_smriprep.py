"""The tutorial of sMRIPrep, with the real sMRIPrep in an environment of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / 'docs' / 'tutorials' / 'plot_3_smriprep.py'
HOST_PYTHON = Path(os.environ.get('HOST_VENV', ROOT / '.venv-smriprep')) / 'bin' / 'python'


@pytest.fixture(scope='module')
def connections(tmp_path_factory) -> list[list[str]]:
    """Connections to and from our steps in the graph of the tutorial."""
    if not HOST_PYTHON.exists():
        pytest.fail(f'{HOST_PYTHON}: no environment with sMRIPrep; `make test` makes it')
    environment = {
        **os.environ,
        'PYTHONPATH': str(ROOT),
        'PATH': f'{Path(sys.executable).parent}:{os.environ["PATH"]}',
        'MPLBACKEND': 'Agg',
        'TMPDIR': str(tmp_path_factory.mktemp('host')),
    }
    script = Path(__file__).with_name('smriprep_graph.py')
    done = subprocess.run(
        [HOST_PYTHON, script, TUTORIAL],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_results_of_smriprep_reach_our_steps(connections):
    between = {
        (source.split('.')[-1], target.split('.')[-1], port)
        for source, _, _, target, port, _ in connections
        if '.anat_fit_wf.' in source
    }
    assert between == {
        ('ds_anat_preproc', 'convert_inverse', 'reference'),
        ('ds_anat_preproc', 'label', 't1w_file'),
        ('ds_anat_mask', 'label', 'mask_file'),
        ('ds_anat_tpms', 'make_ravens', 'in_files'),
    }
    selected = {each[4] for each in connections if each[0].endswith('select_transforms')}
    assert selected == {'in_file'}


@pytest.mark.slow
def test_no_step_is_given_a_list_where_it_takes_one_thing(connections):
    wrong = [
        each for each in connections if (each[2], each[5]) in {('list', 'one'), ('one', 'list')}
    ]
    assert wrong == []
