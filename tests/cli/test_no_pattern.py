"""Where no pattern is supported, both commands say so and leave whole outputs."""

import json

import numpy as np
import pandas as pd
import pytest

from surreal_bids.cli.app import main as run_app
from surreal_bids.cli.gan import main as run_gan
from surreal_bids.cli.group import reported
from surreal_bids.simulation.tables import simulate_table, write_simulated_table

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures('few_draws', 'undrawn_figures')]

NUMBERS = ('--n-patterns', 1, 2, '--folds', 2)
"""Few, and so quickly compared."""
N_REGIONS = 40


@pytest.fixture(autouse=True)
def few_permutations(few_draws, monkeypatch):
    monkeypatch.setattr('surreal_bids.model.number.PERMUTATIONS', 3)


@pytest.fixture(scope='module')
def study(tmp_path_factory):
    """A table in which nobody is ill, and diagnoses that mean nothing."""
    folder = tmp_path_factory.mktemp('study')
    simulated = simulate_table('basic', 120, 20, seed=41)
    healthy = simulated.participants['diagnosis'] == 'CN'
    labels = np.random.default_rng(0).permutation(['CN', 'PT'] * 60)
    people = simulated.participants[healthy].assign(diagnosis=labels)
    write_simulated_table(folder, simulated)
    people.to_csv(folder / 'participants.tsv', sep='\t', index=False)
    volumes = simulated.volumes[healthy.to_numpy()].iloc[:, : N_REGIONS + 1]
    volumes.to_csv(folder / 'roi_volumes.tsv', sep='\t', index=False)
    description = {'Name': 'healthy', 'BIDSVersion': '1.8.0'}
    (folder / 'dataset_description.json').write_text(json.dumps(description))
    return folder


def test_both_commands(study, tmp_path, monkeypatch, capsys):
    # Reports of all would take longer than everything else.
    monkeypatch.setattr('surreal_bids.cli.group.reported', lambda cohort: reported(cohort)[:2])
    volumes, people, out = study / 'roi_volumes.tsv', study / 'participants.tsv', tmp_path / 'out'
    plugin = tmp_path / 'linear.yml'
    plugin.write_text('plugin: Linear\n')
    words = (
        *(study, out, 'group', '--roi-table', volumes, '--covariates', 'age', 'sex'),
        *('-w', tmp_path / 'work', '--use-plugin', plugin, '--nprocs', 1, *NUMBERS),
    )
    assert run_app([str(word) for word in words]) == 0
    assert capsys.readouterr().err.count('No pattern is supported') == 1
    report = (out / 'group.html').read_text()
    assert 'No pattern is supported' in report
    assert 'permuted data, highest' in report
    assert pd.read_csv(out / 'group_patterns.tsv', sep='\t').empty
    card = json.loads((out / 'models' / 'model.json').read_text())
    assert card['Selected']['n_patterns'] == 0
    given = ('--participants', people, '--model', out / 'models', '--out', tmp_path / 'r.tsv')
    assert run_gan([str(word) for word in ('apply', volumes, *given)]) == 0
    for table in (out / 'phenotype' / 'rindices.tsv', tmp_path / 'r.tsv'):
        names = pd.read_csv(table, sep='\t')
        assert len(names) == 120
        assert not [name for name in names if name.startswith('r1')]
