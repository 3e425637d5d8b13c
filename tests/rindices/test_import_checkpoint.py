import io
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from surreal_bids.bids.tabular import Table
from surreal_bids.cohort.features import column_features, named_features
from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.regions import build_features, feature_set
from surreal_bids.rindices.import_checkpoint import (
    find_checkpoint,
    import_checkpoint,
    read_checkpoint,
)
from surreal_bids.rindices.model import TableModel
from surreal_bids.simulation.tables import simulate_table
from tests.shared_data import shared_data

PUBLISHED = {
    'ad_2rindices': ('sex', 'age'),
    'brain_aging_5rindices': ('sex', 'icv'),
}
IN_CHECKPOINT = {
    'ad_2rindices': ['r1', 'r2'],
    'brain_aging_5rindices': ['r1', 'r3', 'r4', 'r5', 'r2'],
}
"""R-indices in the order of the authors' files."""


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


def strip(state: dict) -> dict:
    return {name.removeprefix('model.'): value for name, value in state.items()}


def reference_r_indices(content, epoch: int, volumes: np.ndarray, covariates: np.ndarray):
    """R-indices (n, M) step by step: correct, normalise, decompose, reconstruct, add up."""
    correction, scale = content['correction_variables'], content['normalization_variables']
    low, high = correction['min_cov'], correction['max_cov']
    corrected = volumes - ((covariates - low) / (high - low)) @ correction['beta']
    y = torch.tensor(1 + (corrected - scale['cn_mean']) / (10 * scale['cn_std'])).float()
    n_regions, n_patterns = content['nROI'], content['npattern']
    decomposer, reconstruction = networks(n_regions, n_patterns)
    decomposer.load_state_dict(strip(content[epoch]['netDecomposer']))
    reconstruction.load_state_dict(strip(content[epoch]['netReconstruction']))
    with torch.no_grad():
        changes = decomposer(y).split(n_regions, dim=1)
        return sum(reconstruction(change) for change in changes).numpy()


@pytest.fixture
def checkpoint(tmp_path):
    """A file as the authors' program saves it: 12 regions, 3 patterns, 2 covariates, 2 epochs."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    n_regions, n_patterns, quarter = 12, 3, 3
    decomposer, reconstruction = networks(n_regions, n_patterns)
    mapping = {
        'model.0.weight': torch.randn(6, n_regions),
        'model.2.weight': torch.randn(quarter, 6),
        'model.4.add_noise.0.weight': torch.randn(quarter, n_patterns),
        'model.4.add_noise.0.bias': torch.randn(quarter),
        'model.5.weight': torch.randn(6, quarter),
        'model.7.weight': torch.randn(n_regions, 6),
    }
    state = {
        'netMapping': mapping,
        'netDecomposer': {f'model.{k}': v for k, v in decomposer.state_dict().items()},
        'netReconstruction': {f'model.{k}': v for k, v in reconstruction.state_dict().items()},
        'phi': nn.Parameter(torch.randn(6)),
    }
    content = {
        'npattern': n_patterns,
        'nROI': n_regions,
        'lr': 0.0008,
        'beta1': 0.5,
        'lam': 0.2,
        'normalization_variables': {
            'cn_mean': rng.uniform(500, 900, n_regions),
            'cn_std': rng.uniform(50, 90, n_regions),
        },
        'correction_variables': {
            'min_cov': np.array([0.0, 50.0]),
            'max_cov': np.array([1.0, 90.0]),
            'beta': rng.normal(0, 30, (2, n_regions)),
        },
        4000: state,
        6000: {**state, 'netReconstruction': {
            name: 2 * value for name, value in state['netReconstruction'].items()
        }},
    }  # fmt: skip
    path = tmp_path / 'model3'
    torch.save(content, path)
    return path


FEATURES = column_features([f'roi{k}' for k in range(12)])


@pytest.mark.parametrize('epoch', [None, 4000, 6000])
def test_r_indices_of_a_checkpoint_equal_plain_linear_layers(tmp_path, checkpoint, epoch):
    rng = np.random.default_rng(1)
    people = pd.DataFrame({'sex': rng.integers(0, 2, 7) * 1.0, 'age': rng.uniform(50, 90, 7)})
    volumes = pd.DataFrame(rng.uniform(400, 1000, (7, 12)), columns=FEATURES.names)
    import_checkpoint(checkpoint, FEATURES, ['sex', 'age'], epoch).save(tmp_path / 'bundle')
    results = TableModel.load(tmp_path / 'bundle').compute(volumes, people)
    content = read_checkpoint(checkpoint)
    expected = reference_r_indices(content, epoch or 6000, volumes.to_numpy(), people.to_numpy())
    assert np.abs(results[['r1', 'r2', 'r3']].to_numpy() - expected).max() < 1e-5
    contributions = TableModel.load(tmp_path / 'bundle').contributions(volumes, people)
    assert np.abs(contributions.sum(axis=1).to_numpy() - expected.ravel()).max() < 1e-5
    assert set(results.columns) == {
        'r1',
        'r2',
        'r3',
        'brain_in_range',
        'covariates_out_of_range',
        'status',
    }


@pytest.mark.parametrize(('name', 'covariates'), PUBLISHED.items())
@pytest.mark.parametrize('sexes', [{'F': 'F', 'M': 'M'}, {'F': '0', 'M': '1'}])
def test_the_published_models_equal_plain_linear_layers(tmp_path, name, covariates, sexes):
    path = shared_data(f'official/{name}.pt')
    simulated = simulate_table('basic', n_cn=20, n_pt=30, seed=5)
    participants = simulated.participants.set_index('participant_id')
    volumes = simulated.volumes.set_index('participant_id')
    import_checkpoint(path, named_features('muse72'), covariates).save(tmp_path)
    model = TableModel.load(tmp_path)
    content = read_checkpoint(path)
    known = np.column_stack([participants['sex'] == 'M', participants[covariates[1]]]).astype(float)
    epoch = max(key for key in content if isinstance(key, int))
    features = build_features(volumes, feature_set('muse72')).to_numpy()
    expected = reference_r_indices(content, epoch, features, known)
    spelled = participants.assign(sex=participants['sex'].map(sexes))
    results = model.compute(*model.read(as_text(volumes), as_text(spelled)))
    assert np.abs(results[IN_CHECKPOINT[name]].to_numpy() - expected).max() < 1e-5


def as_text(frame: pd.DataFrame):
    return Table(Path('table.tsv'), frame.map(str).astype(object))


@pytest.mark.parametrize('name', PUBLISHED)
def test_published_indices_are_in_the_order_of_their_numbers(name):
    path = shared_data(f'official/{name}.pt')
    model = import_checkpoint(path, named_features('muse72'), PUBLISHED[name])
    assert list(model.pattern_names) == sorted(IN_CHECKPOINT[name])
    assert list(model.meanings) == list(model.pattern_names)
    assert model.notes['Imported']['Title'] is not None


@pytest.mark.parametrize('name', PUBLISHED)
def test_covariates_of_a_published_model_in_the_wrong_order(name):
    path = shared_data(f'official/{name}.pt')
    with pytest.raises(UsageError, match='in this order'):
        import_checkpoint(path, named_features('muse72'), PUBLISHED[name][::-1])


@pytest.mark.parametrize(
    ('name', 'covariates'),
    [
        ('ad_2rindices', ['sex', 'icv']),
        ('brain_aging_5rindices', ['sex', 'age']),
        ('brain_aging_5rindices', ['MUSE_702', 'Sex']),
    ],
)
def test_covariates_of_another_model_are_refused(name, covariates):
    path = shared_data(f'official/{name}.pt')
    with pytest.raises(UsageError, match='in this order'):
        import_checkpoint(path, named_features('muse72'), covariates)


@pytest.mark.parametrize('name', PUBLISHED)
@pytest.mark.parametrize(('factor', 'inside'), [(1.0, True), (0.001, False), (1000.0, False)])
def test_volumes_in_another_unit_are_flagged(name, factor, inside):
    """Mm3 are the model's unit; ml and their like lie far outside of anybody's range."""
    model = import_checkpoint(
        shared_data(f'official/{name}.pt'), named_features('muse72'), PUBLISHED[name]
    )
    simulated = simulate_table('basic', n_cn=30, n_pt=8, seed=5)
    people = simulated.participants.set_index('participant_id').iloc[:30]
    volumes = simulated.volumes.set_index('participant_id').iloc[:30] * factor
    results = model.compute(*model.read(as_text(volumes), as_text(people)))
    assert results['brain_in_range'].mean() == pytest.approx(float(inside), abs=0.1)


@pytest.mark.parametrize('code', ['2', '-1', '0.5'])
def test_a_number_that_is_no_sex_is_refused(code):
    path = shared_data('official/ad_2rindices.pt')
    model = import_checkpoint(path, named_features('muse72'), ['sex', 'age'])
    simulated = simulate_table('basic', n_cn=9, n_pt=8, seed=5)
    people = simulated.participants.set_index('participant_id').assign(sex='M')
    people.iloc[3, people.columns.get_loc('sex')] = code
    volumes = simulated.volumes.set_index('participant_id')
    with pytest.raises(
        DataError, match=f'{people.index[3]} has {code}, but the model expects f = 0'
    ):
        model.read(as_text(volumes), as_text(people))


class Payload:
    """What an attacker would put in a pickle: unpickling it runs a command."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize('function', [os.system, os.mkdir, eval])
@pytest.mark.parametrize('zipped', [True, False])
def test_a_malicious_checkpoint_is_refused_and_nothing_runs(tmp_path, checkpoint, function, zipped):
    trace = tmp_path / 'trace'
    commands = {
        os.system: f'touch {trace}',
        os.mkdir: str(trace),
        eval: f'open({str(trace)!r}, "w")',
    }
    content = read_checkpoint(checkpoint) | {'lr': Payload(function, commands[function])}
    torch.save(content, checkpoint, _use_new_zipfile_serialization=zipped)
    with pytest.raises(DataError, match='refused'):
        import_checkpoint(checkpoint, FEATURES, ['sex', 'age'])
    assert not trace.exists()


@pytest.mark.parametrize(
    ('content', 'message'),
    [
        (b'', 'cannot be read|refused'),
        (b'not a checkpoint', 'cannot be read|refused'),
        (pickle.dumps({'npattern': 2}, protocol=2), 'cannot be read|refused'),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    path = tmp_path / 'file.pt'
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_checkpoint(path)
    assert str(path) in str(caught.value)


def test_a_state_dict_of_something_else(tmp_path):
    buffer = io.BytesIO()
    torch.save({'weight': torch.zeros(3)}, buffer)
    (tmp_path / 'other.pt').write_bytes(buffer.getvalue())
    with pytest.raises(DataError, match='lacks npattern'):
        read_checkpoint(tmp_path / 'other.pt')


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r'nowhere\.pt: no such file'):
        import_checkpoint(tmp_path / 'nowhere.pt', FEATURES, ['sex', 'age'])


@pytest.mark.parametrize('level', ['', 'ad_2rindices', 'pretrained_models/ad_2rindices'])
def test_a_folder_of_the_authors_repository_is_accepted(tmp_path, checkpoint, level):
    folder = tmp_path / 'clone'
    (folder / level).mkdir(parents=True)
    shutil.copy(checkpoint, folder / level / 'saved_model')
    assert find_checkpoint(folder) == folder / level / 'saved_model'
    model = import_checkpoint(folder, FEATURES, ['sex', 'age'])
    assert model.notes['Imported']['File'] == 'saved_model'


def test_a_folder_with_no_or_two_checkpoints_is_refused(tmp_path, checkpoint):
    folder = tmp_path / 'pretrained_models'
    (folder / 'a').mkdir(parents=True)
    with pytest.raises(DataError, match='pretrained_models: holds no saved_model'):
        find_checkpoint(folder)
    (folder / 'b').mkdir()
    for name in ('a', 'b'):
        shutil.copy(checkpoint, folder / name / 'saved_model')
    with pytest.raises(DataError, match=r'a/saved_model.*b/saved_model'):
        find_checkpoint(folder)


def test_what_is_no_file_is_refused():
    with pytest.raises(DataError, match='/dev/zero'):
        import_checkpoint(Path('/dev/zero'), FEATURES, ['sex', 'age'])


@pytest.mark.parametrize('seed', range(6))
def test_words_that_contain_a_meaning_do_not_have_it(seed):
    rng = np.random.default_rng(seed)
    sex = rng.choice(['unisex_toilet', 'sextant', 'Essex', 'asexual', 'middlesex_score'])
    age = rng.choice(['dosage', 'wage', 'language', 'image_id', 'storage', 'cabbage'])
    path = shared_data('official/ad_2rindices.pt')
    with pytest.raises(UsageError, match=f'in this order, not {sex} and {age}'):
        import_checkpoint(path, named_features('muse72'), [str(sex), str(age)])


def test_a_covariate_is_named_once(checkpoint):
    with pytest.raises(UsageError, match='Sex sex'):
        import_checkpoint(checkpoint, FEATURES, ['Sex', 'sex'])


WRONG = [
    *('text', '', float('nan'), float('inf'), None, [], [1.0, 2.0], {}, {'a': 1}, True, False),
    *(0, -1, 3, 10**30, 2.5, b'bytes', np.zeros(()), np.zeros((5, 7)), np.full((2, 12), np.nan)),
    *(torch.zeros(5, 7), torch.full((6, 12), np.nan), torch.zeros(12, dtype=torch.int64)),
    *(torch.zeros(6, 12, dtype=torch.complex64), torch.zeros(12, dtype=torch.bfloat16)),
    *(torch.zeros(3, 3).to_sparse(), torch.full((6,), 1e300, dtype=torch.float64)),
]
"""Values in place of those of a checkpoint."""


def places(part, way=()):
    """All keys of nested dictionaries, as tuples."""
    for key, value in part.items():
        yield (*way, key)
        if isinstance(value, dict):
            yield from places(value, (*way, key))


def damage(content, rng) -> None:
    """Delete or replace a random value, or a number in a random array."""
    found = list(places(content))
    *way, key = found[rng.integers(len(found))]
    holder = content
    for step in way:
        holder = holder[step]
    kind = rng.integers(4)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder[key], np.ndarray | torch.Tensor):
        holder[key] = holder[key] * rng.choice([np.nan, np.inf])
    else:
        holder[key] = WRONG[rng.integers(len(WRONG))]


@pytest.mark.parametrize('seed', range(8))
def test_random_damage_is_named_or_without_effect(checkpoint, tmp_path, seed):
    """What the model does not need may be damaged; all else is an error that names the file."""
    rng = np.random.default_rng(seed)
    people = pd.DataFrame({'sex': [0.0, 1.0], 'age': [55.0, 80.0]})
    volumes = pd.DataFrame(rng.uniform(400, 1000, (2, 12)), columns=FEATURES.names)
    sound = checkpoint.read_bytes()
    expected = import_checkpoint(checkpoint, FEATURES, ['sex', 'age']).compute(volumes, people)
    path = tmp_path / 'damaged.pt'
    refused = []
    for _ in range(40):
        content = torch.load(io.BytesIO(sound), weights_only=False)
        damage(content, rng)
        torch.save(content, path)
        try:
            model = import_checkpoint(path, FEATURES, ['sex', 'age'], 6000)
        except (DataError, UsageError) as error:
            refused.append(str(error))
        else:
            model.save(tmp_path / 'model')
            TableModel.load(tmp_path / 'model')
            pd.testing.assert_frame_equal(model.compute(volumes, people), expected)
    assert len(refused) > 15
    assert all('damaged.pt' in error for error in refused)


@pytest.mark.parametrize(
    ('part', 'name', 'change', 'message'),
    [
        ('normalization_variables', 'cn_std', lambda v: v * 0, 'cn_std .* not positive'),
        ('normalization_variables', 'cn_std', lambda v: -v, 'cn_std .* not positive'),
        ('correction_variables', 'max_cov', lambda v: v * 0, 'max_cov .* not above min_cov'),
    ],
)
def test_numbers_that_cannot_be_are_refused(checkpoint, part, name, change, message):
    content = read_checkpoint(checkpoint)
    content[part][name] = change(content[part][name])
    torch.save(content, checkpoint)
    with pytest.raises(DataError, match=message):
        import_checkpoint(checkpoint, FEATURES, ['sex', 'age'])


@pytest.mark.parametrize(
    ('features', 'covariates', 'epoch', 'message'),
    [
        (named_features('muse72'), ['sex', 'age'], None, '12 features, but 72 are named'),
        (FEATURES, ['age'], None, r'2 covariates, but 1 are named \(age\)'),
        (FEATURES, [], None, r'2 covariates, but 0 are named \(none\)'),
        (FEATURES, ['sex', 'age'], 5000, 'no epoch 5000; there are 4000, 6000'),
    ],
)
def test_what_does_not_fit_the_file_is_explained(checkpoint, features, covariates, epoch, message):
    with pytest.raises(DataError, match=message):
        import_checkpoint(checkpoint, features, covariates, epoch)


@pytest.mark.parametrize(
    ('spoil', 'message'),
    [
        (lambda c: c[6000]['netDecomposer'].pop('model.1.bias'), 'model.1.bias .* is missing'),
        (lambda c: c[6000].pop('netMapping'), 'netMapping is missing'),
        (lambda c: c.update(npattern=4), 'expected'),
        (lambda c: c.update(nROI='many'), "nROI is 'many'"),
        (lambda c: [c.pop(4000), c.pop(6000)], 'holds none'),
    ],
)
def test_an_incomplete_checkpoint_is_explained(checkpoint, spoil, message):
    content = read_checkpoint(checkpoint)
    spoil(content)
    torch.save(content, checkpoint)
    with pytest.raises(DataError, match=message):
        import_checkpoint(checkpoint, FEATURES, ['sex', 'age'])


def test_a_checkpoint_without_covariates(checkpoint):
    content = read_checkpoint(checkpoint) | {'correction_variables': None}
    torch.save(content, checkpoint)
    model = import_checkpoint(checkpoint, FEATURES, [])
    assert model.preprocessing.residualiser is None
    assert model.preprocessing.options.columns == []
