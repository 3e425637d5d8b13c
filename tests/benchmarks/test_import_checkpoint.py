import json
import os

import numpy as np
import pandas as pd
import pytest
import torch
from import_checkpoint import import_checkpoint, read_checkpoint
from torch import nn

from surreal_bids.cohort.roles import column_features
from surreal_bids.model.bundle import save_bundle
from surreal_bids.published import find_model
from surreal_bids.rindices.model import TableModel
from tests.shared_data import shared_data

FEATURES = column_features([f'roi{k}' for k in range(12)])


def networks(n_regions: int, n_patterns: int) -> tuple[nn.Sequential, nn.Sequential]:
    """Decomposer and reconstruction of the authors' program, written from their description."""
    half, quarter = n_regions // 2, n_regions // 4
    decomposer = nn.Sequential(nn.LeakyReLU(0.2), nn.Linear(n_regions, n_patterns * n_regions))
    reconstruction = nn.Sequential(
        nn.Linear(n_regions, half),
        nn.LeakyReLU(0.2),
        nn.Linear(half, quarter),
        nn.LeakyReLU(0.2),
        nn.Linear(quarter, n_patterns),
    )
    return decomposer, reconstruction


def reference_r_indices(content, networks, volumes: np.ndarray, covariates: np.ndarray):
    """R-indices (n, M) step by step: correct, normalise, decompose, reconstruct, add up."""
    correction, scale = content['correction_variables'], content['normalization_variables']
    low, high = correction['min_cov'], correction['max_cov']
    corrected = volumes - ((covariates - low) / (high - low)) @ correction['beta']
    y = torch.tensor(1 + (corrected - scale['cn_mean']) / (10 * scale['cn_std'])).float()
    decomposer, reconstruction = networks
    with torch.no_grad():
        changes = decomposer(y).split(content['nROI'], dim=1)
        return sum(reconstruction(change) for change in changes).numpy()


@pytest.fixture
def checkpoint(tmp_path):
    """A file as the authors' program saves it: 12 regions, 3 patterns, 2 covariates."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    both = networks(12, 3)
    names = ('netDecomposer', 'netReconstruction')
    state = {
        name: {f'model.{k}': v for k, v in own.state_dict().items()}
        for name, own in zip(names, both)
    }
    shapes = {'0': (6, 12), '2': (3, 6), '4.add_noise.0': (3, 3), '5': (6, 3), '7': (12, 6)}
    state['netMapping'] = {f'model.{k}.weight': torch.randn(v) for k, v in shapes.items()}
    state['netMapping']['model.4.add_noise.0.bias'] = torch.randn(3)
    content = {
        'npattern': 3,
        'nROI': 12,
        'lr': 0.0008,
        'normalization_variables': {
            'cn_mean': rng.uniform(500, 900, 12),
            'cn_std': rng.uniform(50, 90, 12),
        },
        'correction_variables': {
            'min_cov': np.array([0.0, 50.0]),
            'max_cov': np.array([1.0, 90.0]),
            'beta': rng.normal(0, 30, (2, 12)),
        },
        6000: state,
    }
    path = tmp_path / 'model3'
    torch.save(content, path)
    return path, content, both


def test_r_indices_of_a_checkpoint_equal_plain_linear_layers(tmp_path, checkpoint):
    path, content, both = checkpoint
    rng = np.random.default_rng(1)
    people = pd.DataFrame({'sex': rng.integers(0, 2, 7) * 1.0, 'age': rng.uniform(50, 90, 7)})
    volumes = pd.DataFrame(rng.uniform(400, 1000, (7, 12)), columns=FEATURES.names)
    import_checkpoint(path, FEATURES, ['sex', 'age']).save(tmp_path / 'bundle')
    model = TableModel.load(tmp_path / 'bundle')
    expected = reference_r_indices(content, both, volumes.to_numpy(), people.to_numpy())
    assert np.abs(model.compute(volumes, people)[['r1', 'r2', 'r3']] - expected).max(None) < 1e-5
    contributions = model.contributions(volumes, people).sum(axis=1).to_numpy()
    assert np.abs(contributions - expected.ravel()).max() < 1e-5


@pytest.mark.parametrize(
    ('name', 'file'), [('ad', 'ad_2rindices'), ('ageing', 'brain_aging_5rindices')]
)
def test_the_shipped_models_are_those_of_the_authors(tmp_path, name, file):
    """Only the versions that wrote the card may differ."""
    tensors, card = import_checkpoint(shared_data(f'official/{file}.pt')).state()
    shipped = find_model(name)
    made = json.loads((shipped / 'model.json').read_text())['GeneratedBy']
    save_bundle(tmp_path, tensors, card | {'GeneratedBy': made})
    for each in ('model.json', 'model.safetensors'):
        assert (tmp_path / each).read_bytes() == (shipped / each).read_bytes()


class Payload:
    """What an attacker would put in a pickle: unpickling it runs a command."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def test_nothing_in_a_checkpoint_runs(tmp_path, checkpoint):
    path, content, _ = checkpoint
    torch.save(content | {'lr': Payload(tmp_path / 'trace')}, path)
    with pytest.raises(Exception, match='Weights only load failed'):
        read_checkpoint(path)
    assert not (tmp_path / 'trace').exists()
