"""z-scores of regions in healthy participants who were not used to compute what is expected."""

from types import SimpleNamespace

import numpy as np
import pytest

from surreal_bids.analysis.engine import Analysis
from surreal_bids.cohort.cohort import read_cohort
from surreal_bids.config import CohortOptions
from surreal_bids.files import write_tsv
from surreal_bids.rindices.model import prepare
from surreal_bids.simulation.population import sample_controls

N_CONTROLS, N_OTHERS = 120, 300


@pytest.fixture(scope='module')
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp('healthy')
    drawn = sample_controls(N_CONTROLS + N_OTHERS, np.random.default_rng(3))
    names = [f'sub-{number:04}' for number in range(len(drawn.people))]
    group = np.where(np.arange(len(names)) < N_CONTROLS, 'CN', 'PT')
    people = drawn.people.assign(diagnosis=group)
    tables = {'volumes': drawn.volumes, 'participants': people}
    paths = []
    for name, table in tables.items():
        table = table.reset_index(drop=True)
        table.insert(0, 'participant_id', names)
        paths.append(write_tsv(folder / f'{name}.tsv', table))
    cohort = read_cohort(*paths, CohortOptions())
    model = SimpleNamespace(preprocessing=prepare(cohort).preprocessing)
    return Analysis(cohort=cohort, model=model, results=None)


def test_five_per_cent_of_others_are_beyond_1_96(found):
    others = found.z_scores[found.cohort.is_patient]
    assert len(others) == N_OTHERS
    assert 0.03 < (others.abs() > 1.96).to_numpy().mean() < 0.08
    assert abs(others.to_numpy().mean()) < 0.1


def test_controls_have_unit_variance(found):
    controls = found.z_scores[~found.cohort.is_patient].to_numpy()
    np.testing.assert_allclose(controls.mean(axis=0), 0, atol=0.01)
    np.testing.assert_allclose(controls.std(axis=0), 1, atol=0.02)
