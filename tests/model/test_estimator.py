import json

import numpy as np
import pandas as pd
import pytest
import torch

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.model.estimator import SurrealGAN
from surreal_bids.model.networks import encode, synthesise
from surreal_bids.parallel import find_device
from surreal_bids.stats.concordance import pattern_c_index
from tests.model.tiny import N_REGIONS, people
from tests.shared_data import shared_data

N_CN, N_PT = 40, 60
NAMES = [f'region{k:02d}' for k in range(N_REGIONS)]


def normalised(values, n_cn):
    cn = values[:n_cn]
    return 1 + (values - cn.mean(axis=0)) / (10 * cn.std(axis=0))


@pytest.fixture(scope='module')
def table():
    values = np.concatenate([people(N_CN, 0).numpy(), people(N_PT, 1, severity=0.4).numpy()])
    return pd.DataFrame(normalised(values.astype(float), N_CN), columns=NAMES)


@pytest.fixture(scope='module')
def is_patient():
    return np.arange(N_CN + N_PT) >= N_CN


def tiny_gan(hyperparameters=None, **changes):
    defaults = {
        'preset': 'iclr2022',
        'n_patterns': 2,
        'ortho': (0.2, 0.6),
        'repetitions': 3,
        'iterations': 150,
        'device': 'cpu',
        'hyperparameters': {'lr': 5e-3, 'extra_iterations': 0.0} | (hyperparameters or {}),
    }
    return SurrealGAN(**(defaults | changes))


@pytest.fixture(scope='module')
def gan(table, is_patient):
    return tiny_gan(n_patterns=(2, 3)).fit(table, is_patient)


def test_synthesise_is_what_the_generators_do_to_the_mean_control(gan):
    rng = np.random.default_rng(0)
    n_patterns = gan.selected_.n_patterns
    z = rng.uniform(size=(5, n_patterns))
    expected = np.zeros((5, N_REGIONS))
    for member in range(len(gan.weights_['f.latent'])):
        own = {name: value[[member]] for name, value in gan.weights_.items()}
        code = encode(own, torch.ones(1, 1, N_REGIONS))
        for row, severities in enumerate(z):
            for pattern, severity in enumerate(severities):
                alone = torch.zeros(1, 1, 1, n_patterns)
                alone[..., pattern] = severity
                expected[row] += synthesise(own, code, alone).flatten().numpy()
    np.testing.assert_allclose(gan.synthesise(z), expected / (member + 1), atol=1e-6)


def test_the_winner_has_the_best_agreement(gan):
    scores = {(row['n_patterns'], row['ortho']): row['score'] for row in gan.agreement_}
    assert set(scores) == {(2, 0.2), (2, 0.6), (3, 0.2), (3, 0.6)}
    eligible = [
        row['score'] for row in gan.agreement_ if row['n_healthy'] >= 3 and row['score'] is not None
    ]
    assert scores[gan.selected_.n_patterns, gan.selected_.ortho] == max(eligible)


def test_every_member_is_told_and_only_those_used_are_averaged(gan):
    assert len(gan.members_) == 2 * 2 * 3
    used = [member.repetition for member in gan.members_ if member.status == 'used']
    assert sorted(used) == sorted(gan.selected_.members)
    assert gan.selected_.reference == gan.selected_.members[0]
    assert len(gan.weights_['g1.weight']) == len(used)


def test_transform_is_the_mean_over_members_and_std_their_spread(gan, table):
    r, std = gan.transform(table, return_std=True)
    each = [
        _member_r_indices(gan.weights_, member, table.to_numpy())
        for member in range(len(gan.weights_['g1.weight']))
    ]
    np.testing.assert_allclose(r, np.mean(each, axis=0), atol=1e-5)
    np.testing.assert_allclose(std, np.std(each, axis=0, ddof=1), atol=1e-5)


def _member_r_indices(weights, member, X):
    """g2 after g1, summed over the patterns, in plain numpy."""

    def leaky(values):
        return np.where(values > 0, values, 0.2 * values)

    w = {name: value[member].double().numpy() for name, value in weights.items()}
    n_patterns = w['f.latent'].shape[0]
    changes = np.split(leaky(X) @ w['g1.weight'] + w['g1.weight_bias'], n_patterns, axis=1)
    total = 0
    for change in changes:
        hidden = leaky(change @ w['g2.layer1'] + w['g2.layer1_bias'])
        hidden = leaky(hidden @ w['g2.layer2'] + w['g2.layer2_bias'])
        total = total + hidden @ w['g2.layer3'] + w['g2.layer3_bias']
    return total


def test_members_are_matched_before_they_are_averaged(gan, table):
    """Patterns of members lie in the reference's order: no permutation agrees better."""
    X = table.to_numpy()[N_CN:]
    members = [_member_r_indices(gan.weights_, k, X) for k in range(len(gan.weights_['g1.weight']))]
    for other in members[1:]:
        correlation = np.corrcoef(members[0].T, other.T)[: other.shape[1], other.shape[1] :]
        assert np.trace(correlation) >= np.trace(correlation[:, ::-1]) - 1e-6


def test_saved_and_loaded_it_gives_the_same_numbers(gan, table, tmp_path):
    loaded = SurrealGAN.load(gan.save(tmp_path / 'model'))
    np.testing.assert_array_equal(loaded.transform(table), gan.transform(table))
    np.testing.assert_array_equal(loaded.in_range(table), gan.in_range(table))
    assert loaded.selected_ == gan.selected_
    assert loaded.members_ == gan.members_
    assert sorted(path.name for path in (tmp_path / 'model').iterdir()) == [
        'model.json',
        'model.safetensors',
    ]


def test_the_card_is_plain_json_without_nan(gan):
    _, card = gan.state()
    text = json.dumps(card, allow_nan=False)
    assert json.loads(text)['Features'] == NAMES


def test_columns_are_matched_by_name(gan, table):
    shuffled = table[table.columns[::-1]]
    np.testing.assert_array_equal(gan.transform(shuffled), gan.transform(table))


@pytest.mark.parametrize('row', [0, 55])
def test_one_person_alone_gets_the_same_numbers(gan, table, row):
    alone = gan.transform(table.iloc[[row]])
    np.testing.assert_allclose(alone[0], gan.transform(table)[row], atol=1e-6)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_result_and_another_seed_another(table, is_patient):
    first, again, other = (
        tiny_gan(ortho=0.2, random_state=seed).fit(table, is_patient).transform(table)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert abs(first - other).max() > 1e-3


def test_another_lambda_does_not_change_the_members_of_the_first(table, is_patient):
    alone = tiny_gan(ortho=0.2).fit(table, is_patient)
    both = tiny_gan(ortho=(0.1, 0.2)).fit(table, is_patient)
    agreement = [row['agreement'] for row in both.agreement_ if row['ortho'] == 0.2]
    np.testing.assert_allclose(agreement, [alone.agreement_[0]['agreement']], atol=2e-3)


def test_a_second_fit_takes_the_checkpoint(table, is_patient, tmp_path):
    first = tiny_gan().fit(table, is_patient, checkpoint_dir=tmp_path)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again = tiny_gan().fit(table, is_patient, checkpoint_dir=tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == kept
    np.testing.assert_array_equal(first.transform(table), again.transform(table))


def test_a_second_fit_does_not_choose_the_number_again(table, is_patient, tmp_path, monkeypatch):
    monkeypatch.setattr('surreal_bids.model.number.PERMUTATIONS', 2)
    options = {'preset': 'sparse', 'iterations': 50, 'n_patterns': 1, 'repetitions': 2}
    first = SurrealGAN(**options).fit(table, is_patient, checkpoint_dir=tmp_path)
    monkeypatch.setattr(
        'surreal_bids.model.estimator.choose_number', lambda *_: pytest.fail('chosen again')
    )
    again = SurrealGAN(**options).fit(table, is_patient, checkpoint_dir=tmp_path)
    assert again.number_ == first.number_
    with pytest.raises(pytest.fail.Exception):
        SurrealGAN(**options, random_state=1).fit(table, is_patient, checkpoint_dir=tmp_path)


def test_arrays_do_as_well_as_frames(gan, table, is_patient):
    values = table.to_numpy()
    np.testing.assert_array_equal(gan.transform(values), gan.transform(table))


def test_one_repetition_has_no_agreement_and_no_spread(table, is_patient):
    gan = tiny_gan(ortho=0.2, repetitions=1).fit(table, is_patient)
    assert gan.selected_.agreement is None
    assert np.isnan(gan.transform(table, return_std=True)[1]).all()


def test_members_that_hardly_agree_are_warned_of(table, is_patient, caplog):
    gan = tiny_gan({'batch_size': 7}, ortho=0.2, iterations=50).fit(table, is_patient)
    assert gan.selected_.agreement < 0.65
    assert 'hardly agree' in caplog.text


def test_a_diverged_member_is_left_out_and_reported(table, is_patient, monkeypatch, caplog):
    caplog.set_level('INFO', 'surreal_bids')
    _break_members(monkeypatch, [1])
    gan = tiny_gan(ortho=0.2, repetitions=4).fit(table, is_patient)
    assert [member.status for member in gan.members_].count('diverged') == 1
    assert gan.members_[1].status == 'diverged'
    assert 1 not in gan.selected_.members
    assert 'repetition 1 diverged' in caplog.text
    assert np.isfinite(gan.transform(table)).all()


def test_too_few_healthy_members_are_an_error_that_keeps_what_there_is(
    table, is_patient, monkeypatch, tmp_path
):
    _break_members(monkeypatch, [0, 1])
    gan = tiny_gan(ortho=0.2, repetitions=4)
    with pytest.raises(DataError, match='too few members trained well'):
        gan.fit(table, is_patient, checkpoint_dir=tmp_path)
    assert len(gan.members_) == 4
    assert gan.history_
    assert list(tmp_path.iterdir())


def _break_members(monkeypatch, members):
    """Let these members of every new stack start with NaN weights."""
    from surreal_bids.model import ensemble

    healthy = ensemble.initial_weights

    def broken(*arguments):
        weights = healthy(*arguments)
        weights['f.encode1'][members] = torch.nan
        return weights

    monkeypatch.setattr(ensemble, 'initial_weights', broken)


def _with(table, row, column, value):
    changed = table.copy().astype(object)
    changed.iloc[row, column] = value
    return changed


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (lambda X: _with(X, 3, 4, np.nan), 'row 3, region04'),
        (lambda X: _with(X, 3, 4, 'abc'), 'not a number'),
        (lambda X: X.assign(region02=1.0), 'constant among the controls: region02'),
        (lambda X: X * 1000, 'mean 1 and sd 0.1'),
        (lambda X: X.rename(columns={'region01': 'region00'}), 'more than once: region00'),
        (lambda X: X.iloc[:, :3], '3 features'),
        (lambda X: X['region00'], 'participants by features'),
    ],
)
def test_tables_that_cannot_be_trained_on_are_named(table, is_patient, change, message):
    with pytest.raises(DataError, match=message):
        tiny_gan().fit(change(table), is_patient)


@pytest.mark.parametrize(
    ('patient', 'message'),
    [
        (np.zeros(100, bool), '0 patients'),
        (np.ones(100, bool), '0 controls'),
        (np.arange(100) > 94, '5 patients'),
        (np.zeros(99, bool), 'each of 100 participants'),
        (np.zeros(100, int), 'True .patient. or False'),
    ],
)
def test_groups_that_cannot_be_trained_on_are_named(table, patient, message):
    with pytest.raises(DataError, match=message):
        tiny_gan().fit(table, patient)


@pytest.mark.parametrize(
    ('changes', 'error', 'message'),
    [
        ({'hyperparameters': {'batch_size': 41}}, DataError, 'at most 40'),
        ({'preset': 'iclr'}, UsageError, 'iclr2022, correlated, robust'),
        ({'hyperparameters': {'gama': 3}}, UsageError, 'gama.*gamma'),
        ({'device': 'tpu'}, UsageError, 'auto, cpu, cuda'),
        ({'n_patterns': -1}, UsageError, 'at least 1'),
        ({'repetitions': 0}, UsageError, 'at least 1'),
    ],
)
def test_settings_that_make_no_sense_are_named(table, is_patient, changes, error, message):
    with pytest.raises(error, match=message):
        tiny_gan(**changes).fit(table, is_patient)


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (lambda X: X.drop(columns='region03'), 'lacks columns of the model: region03'),
        (lambda X: X.to_numpy()[:, 1:], 'X has 11 features, but SurrealGAN is expecting 12'),
    ],
)
def test_people_without_the_features_of_the_model_are_refused(gan, table, change, message):
    with pytest.raises(DataError, match=message):
        gan.transform(change(table))


def test_an_imported_model_does_not_guess_who_is_in_range(gan, table):
    tensors, card = gan.state()
    imported = SurrealGAN.from_state(tensors, card | {'DomainLimit': None})
    with pytest.raises(UsageError, match='imported'):
        imported.in_range(table)


@pytest.mark.skipif(torch.cuda.is_available(), reason='there is a CUDA device here')
def test_asking_for_a_gpu_that_is_not_there_is_an_error():
    with pytest.raises(UsageError, match='no CUDA device'):
        find_device('cuda')
    assert find_device('auto') == 'cpu'


@pytest.mark.parametrize('there', [False, True])
def test_the_gpu_of_apple_is_used_only_if_it_is_asked_for(monkeypatch, there):
    monkeypatch.setattr('torch.backends.mps.is_available', lambda: there)
    monkeypatch.setattr('torch.cuda.is_available', lambda: False)
    assert find_device('auto') == 'cpu'
    if there:
        assert find_device('mps') == 'mps'
    else:
        with pytest.raises(UsageError, match='no MPS device'):
            find_device('mps')


@pytest.mark.slow
@pytest.mark.parametrize('preset', ['iclr2022', 'correlated', 'robust'])
def test_every_preset_trains(table, is_patient, preset):
    gan = tiny_gan(preset=preset, ortho=0.2).fit(table, is_patient)
    assert np.isfinite(gan.transform(table)).all()


def _simulated(rng, n, n_regions=24):
    """Controls and patients with two patterns in disjoint regions, and the patients' severities."""
    values = 0.6 * rng.standard_normal((2 * n, 1)) + 0.8 * rng.standard_normal((2 * n, n_regions))
    volumes = 1 + 0.1 * values
    severity = rng.random((n, 2))
    volumes[n:, :9] -= 0.5 * severity[:, :1]
    volumes[n:, 15:] -= 0.5 * severity[:, 1:]
    return normalised(volumes, n), severity


def _trained_alone(settings, X, is_patient):
    """One member of the published settings, trained fast on small batches."""
    hyper = {'extra_iterations': 0.0, **settings.pop('hyperparameters')}
    gan = SurrealGAN(
        **settings, ortho=0.4, repetitions=1, preset='iclr2022', device='cpu', hyperparameters=hyper
    )
    return gan.fit(X, is_patient)


@pytest.mark.slow
def test_known_severities_are_recovered():
    X, severity = _simulated(np.random.default_rng(0), 300)
    hyper = {'lr': 8e-3, 'gamma': 1.0, 'eta': 1.0, 'batch_size': 100}
    settings = {'n_patterns': 2, 'iterations': 700, 'hyperparameters': hyper}
    r = _trained_alone(settings, X, np.arange(600) >= 300).transform(X)
    assert pattern_c_index(r[300:], severity) > 0.68
    assert (r[300:].mean(axis=0) > r[:300].mean(axis=0)).all()


@pytest.mark.slow
def test_severities_of_the_authors_sample_are_on_the_way_soon():
    """Full length (40,000 iterations, 10 members) is in benchmarks/README.md: 0.887."""
    folder = shared_data('official')
    data = pd.read_csv(folder / 'sample_roi.csv')
    truth = pd.read_csv(folder / 'sample_data_ground_truth.csv').iloc[:, 1:].to_numpy()
    patient = (data['diagnosis'] == 1).to_numpy()
    volumes = data.drop(columns=['participant_id', 'diagnosis']).to_numpy()
    cn = volumes[~patient]
    X = 1 + (volumes - cn.mean(axis=0)) / (10 * cn.std(axis=0))
    hyper = {'lr': 2e-3, 'gamma': 0.8, 'batch_size': 50}
    settings = {'n_patterns': 3, 'iterations': 1000, 'hyperparameters': hyper}
    r = _trained_alone(settings, X, patient).transform(X[patient])
    assert pattern_c_index(r, truth) > 0.58
