"""The estimator: choice of the setting, consensus, scores, files; presets with random starts and
`sparse`, whose members start from factors."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.model.agreement import ROUND
from surreal_bids.model.estimator import Domain, SurrealGAN, fit_domain
from surreal_bids.model.networks import encode, synthesise
from surreal_bids.model.training import members_r_indices
from surreal_bids.parallel import find_device
from surreal_bids.stats.concordance import pattern_c_index
from tests.model.test_factors import cohort
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
    n_patterns = gan.selected_.n_patterns
    z = np.random.default_rng(0).uniform(size=(5, n_patterns))
    expected = np.zeros((5, N_REGIONS))
    for member in range(len(gan.weights_['f.latent'])):
        own = {name: value[[member]] for name, value in gan.weights_.items()}
        code = encode(own, torch.ones(1, 1, N_REGIONS))
        for row, pattern in np.ndindex(*z.shape):
            alone = torch.zeros(1, 1, 1, n_patterns)
            alone[..., pattern] = z[row, pattern]
            expected[row] += synthesise(own, code, alone).flatten().numpy()
    np.testing.assert_allclose(gan.synthesise(z), expected / (member + 1), atol=1e-6)


def test_the_setting_that_agrees_best_is_chosen_and_its_members_are_averaged(gan):
    scores = {(row['n_patterns'], row['ortho']): row['score'] for row in gan.agreement_}
    assert set(scores) == {(2, 0.2), (2, 0.6), (3, 0.2), (3, 0.6)}
    eligible = [row['score'] for row in gan.agreement_ if row['n_healthy'] >= 3]
    assert scores[gan.selected_.n_patterns, gan.selected_.ortho] == max(eligible)
    assert len(gan.members_) == 2 * 2 * 3
    used = [member.repetition for member in gan.members_ if member.status == 'used']
    assert sorted(used) == sorted(gan.selected_.members)
    assert gan.selected_.reference == gan.selected_.members[0]
    assert len(gan.weights_['g1.weight']) == len(used)


def test_transform_is_the_mean_over_matched_members_and_std_their_spread(gan, table):
    r, std = gan.transform(table, return_std=True)
    each = members_r_indices(gan.weights_, torch.tensor(table.to_numpy(), dtype=torch.float32))
    np.testing.assert_allclose(r, np.mean(each, axis=0), atol=1e-5)
    np.testing.assert_allclose(std, np.std(each, axis=0, ddof=1), atol=1e-5)
    for other in each[1:]:
        correlation = np.corrcoef(each[0][N_CN:].T, other[N_CN:].T)[: r.shape[1], r.shape[1] :]
        assert np.trace(correlation) >= np.trace(correlation[:, ::-1]) - 1e-6


def test_saved_and_loaded_it_gives_the_same_numbers(gan, table, tmp_path):
    loaded = SurrealGAN.load(gan.save(tmp_path / 'model'))
    np.testing.assert_array_equal(loaded.transform(table), gan.transform(table))
    np.testing.assert_array_equal(loaded.in_range(table), gan.in_range(table))
    assert loaded.selected_ == gan.selected_
    assert loaded.members_ == gan.members_
    _, card = gan.state()
    assert json.loads(json.dumps(card, allow_nan=False))['Features'] == NAMES
    # A preset of earlier versions: all of its values are in the card.
    tensors, _ = gan.state()
    earlier = SurrealGAN.from_state(tensors, card | {'Preset': 'robust', 'DomainLimit': None})
    assert earlier.state()[1]['HyperParameters'] == card['HyperParameters']
    with pytest.raises(UsageError, match='imported'):
        earlier.in_range(table)


@pytest.mark.slow
def test_a_second_fit_takes_the_checkpoint(table, is_patient, tmp_path):
    first = tiny_gan().fit(table, is_patient, checkpoint_dir=tmp_path)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again = tiny_gan().fit(table, is_patient, checkpoint_dir=tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == kept
    np.testing.assert_array_equal(first.transform(table), again.transform(table))


@pytest.mark.slow
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


@pytest.mark.slow
def test_one_repetition_has_no_agreement_and_no_spread(table, is_patient):
    gan = tiny_gan(ortho=0.2, repetitions=1).fit(table, is_patient)
    assert gan.selected_.agreement is None
    assert np.isnan(gan.transform(table, return_std=True)[1]).all()


def test_members_that_hardly_agree_are_warned_of(table, is_patient, caplog):
    gan = tiny_gan({'batch_size': 7}, ortho=0.2, iterations=50).fit(table, is_patient)
    assert gan.selected_.agreement < 0.65
    assert 'hardly agree' in caplog.text


def _break_members(monkeypatch, members):
    """Let these members of every new stack start with NaN weights."""
    from surreal_bids.model import training

    healthy = training.initial_weights

    def broken(*arguments):
        weights = healthy(*arguments)
        weights['f.encode1'][members] = torch.nan
        return weights

    monkeypatch.setattr(training, 'initial_weights', broken)


@pytest.mark.slow
def test_a_diverged_member_is_left_out_and_reported(table, is_patient, monkeypatch, caplog):
    caplog.set_level('INFO', 'surreal_bids')
    _break_members(monkeypatch, [1])
    gan = tiny_gan(ortho=0.2, repetitions=4).fit(table, is_patient)
    assert [member.status == 'diverged' for member in gan.members_] == [False, True, False, False]
    assert 1 not in gan.selected_.members
    assert 'repetition 1 diverged' in caplog.text
    assert np.isfinite(gan.transform(table)).all()


@pytest.mark.slow
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


def _with(table, value):
    changed = table.copy().astype(object)
    changed.iloc[3, 4] = value
    return changed


def test_tables_and_groups_that_cannot_be_trained_on_are_named(table, is_patient):
    for X, message in (
        (_with(table, np.nan), 'row 3, region04'),
        (_with(table, 'abc'), 'not a number'),
        (table.assign(region02=1.0), r'region02 \(mean 1, sd 0\)'),
        (table * 1000, r'mean 1 and sd 0.1.*normalise first: 1 \+ 0.1 .*surreal_bids.analyse'),
        (table.rename(columns={'region01': 'region00'}), 'more than once: region00'),
        (table.rename(columns={'region01': 1}), 'some column names are text'),
        (table.iloc[:, :3], '3 features'),
        (table['region00'], 'participants by features'),
    ):
        with pytest.raises(DataError, match=message):
            tiny_gan().fit(X, is_patient)
    for patient, message in (
        (np.zeros(100, bool), '0 patients'),
        (np.arange(100) > 94, '5 patients'),
        (np.zeros(99, bool), 'each of 100 participants'),
        (np.zeros(100, int), 'True .patient. or False'),
    ):
        with pytest.raises(DataError, match=message):
            tiny_gan().fit(table, patient)


def test_settings_that_make_no_sense_are_named(table, is_patient):
    for changes, error, message in (
        ({'hyperparameters': {'batch_size': 41}}, DataError, 'at most 40'),
        ({'preset': 'iclr'}, UsageError, 'sparse, iclr2022, correlated'),
        ({'device': 'tpu'}, UsageError, 'auto, cpu, cuda'),
        ({'n_patterns': -1}, UsageError, 'at least 1'),
        ({'repetitions': 0}, UsageError, 'at least 1'),
        ({'ortho': -0.1}, UsageError, 'must not be negative'),
        ({'ortho': 'much'}, UsageError, "ortho='much': expected numbers"),
        ({'n_patterns': '2'}, UsageError, "n_patterns='2': expected whole numbers"),
        ({'n_patterns': (2, 2.5)}, UsageError, 'expected whole numbers'),
        ({'iterations': 10.5}, UsageError, 'iterations=10.5: expected whole numbers'),
        (
            {'preset': 'sparse'},
            UsageError,
            '12 regions are too few for 2 patterns: .* ask for at most 1',
        ),
    ):
        with pytest.raises(error, match=message):
            tiny_gan(**changes).fit(table, is_patient)


def test_people_without_the_features_of_the_model_are_refused(gan, table):
    with pytest.raises(DataError, match='lacks columns of the model: region03'):
        gan.transform(table.drop(columns='region03'))
    with pytest.raises(DataError, match='X has 11 features, but SurrealGAN is expecting 12'):
        gan.transform(table.to_numpy()[:, 1:])


def test_a_gpu_is_found_if_it_is_there(monkeypatch):
    for name, backend in (('cuda', 'torch.cuda'), ('mps', 'torch.backends.mps')):
        monkeypatch.setattr(f'{backend}.is_available', lambda: False)
        with pytest.raises(UsageError, match=f'no {name.upper()} device'):
            find_device(name)
        monkeypatch.setattr(f'{backend}.is_available', lambda: True)
        assert find_device(name) == name
    assert find_device('auto') == 'cuda'
    monkeypatch.setattr('torch.cuda.is_available', lambda: False)
    assert find_device('auto') == 'cpu'  # mps is there, but has not been tried.


@pytest.mark.slow
def test_severities_of_the_authors_sample_are_on_the_way_soon():
    """Full length (40,000 iterations, 10 members) is in benchmarks/README.md: 0.887."""
    folder = shared_data('official')
    data = pd.read_csv(folder / 'sample_roi.csv').sort_values('diagnosis', kind='stable')
    truth = pd.read_csv(folder / 'sample_data_ground_truth.csv').iloc[:, 1:].to_numpy()
    patient = (data['diagnosis'] == 1).to_numpy()
    volumes = data.drop(columns=['participant_id', 'diagnosis']).to_numpy()
    X = normalised(volumes, int((~patient).sum()))
    hyper = {'lr': 2e-3, 'gamma': 0.8, 'batch_size': 50}
    gan = tiny_gan(hyper, n_patterns=3, ortho=0.4, repetitions=1, iterations=1000)
    assert pattern_c_index(gan.fit(X, patient).transform(X[patient]), truth) > 0.58


SHORT = {'hyperparameters': {'held_iterations': 50}, 'iterations': 100, 'device': 'cpu'}
SHORTER = SHORT | {'hyperparameters': {'held_iterations': 20}, 'iterations': 40}


def sparse_table(**changes):
    cn, pt, severities, _ = cohort(2, n_cn=90, n_pt=100, size=0.35, **changes)
    return np.concatenate([cn, pt]), np.repeat([False, True], [len(cn), len(pt)]), severities


@pytest.fixture(scope='module')
def sparse(few_draws):
    X, is_patient, _ = sparse_table()
    return SurrealGAN(n_patterns=(1, 2, 3), **SHORT).fit(X, is_patient)


def test_number_and_severities_are_found(sparse, tmp_path):
    X, is_patient, severities = sparse_table()
    assert sparse.selected_.n_patterns == sparse.number_.n_patterns == 2
    assert pattern_c_index(sparse.transform(X[is_patient]), severities) > 0.85
    assert len(sparse.members_) == 2 * ROUND
    loaded = SurrealGAN.load(sparse.save(tmp_path / 'model'))
    np.testing.assert_array_equal(loaded.transform(X), sparse.transform(X))
    for name in ('number_', 'penalty_'):
        assert getattr(loaded, name) == getattr(sparse, name)


@pytest.mark.slow
def test_patterns_of_another_model_keep_their_order(sparse, tmp_path):
    X, is_patient, severities = sparse_table(seed=5)
    both = [sparse, SurrealGAN.load(sparse.save(tmp_path / 'model'))]
    settings = {'n_patterns': 2, 'repetitions': 2, 'random_state': 3, **SHORT}

    def fit(like, **changes):
        gan = SurrealGAN(**settings | changes)
        how = {'assess_number': False, 'checkpoint_dir': tmp_path / 'checkpoints'}
        return gan.fit(X, is_patient, like=like, **how)

    own, loaded = map(fit, both)
    np.testing.assert_array_equal(own.transform(X), loaded.transform(X))
    of_both = np.corrcoef(own.transform(X).T, sparse.transform(X).T)[:2, 2:]
    assert np.diag(of_both).min() > 0.7 > np.abs(of_both[0, 1])
    assert pattern_c_index(own.transform(X[is_patient]), severities) > 0.8
    with pytest.raises(DataError, match='other data, settings'):
        fit(None)  # Members that started elsewhere have another checkpoint.
    with pytest.raises(UsageError, match='set n_patterns to 2'):
        fit(sparse, n_patterns=3)


@pytest.mark.slow
def test_few_controls_beside_many_patients(few_draws):
    cn, pt, *_ = cohort(1, n_cn=20, n_pt=200, size=0.35)
    X, is_patient = normalised(np.concatenate([cn, pt]), 20), np.repeat([False, True], [20, 200])
    # A member sees 16 of the 20 controls: no batch of 20 or 25.
    gan = SurrealGAN(n_patterns=1, repetitions=2, **SHORT).fit(X, is_patient)
    assert np.isfinite(gan.transform(X)).all()
    with pytest.raises(DataError, match='set batch_size to at most 16'):
        gan.set_params(hyperparameters={'batch_size': 17}).fit(X, is_patient)


@pytest.mark.slow
def test_a_member_does_not_depend_on_who_else_is_trained(tmp_path):
    X, is_patient, _ = sparse_table()
    found = {}
    for name, repetitions in (('few', 2), ('many', 5)):
        gan = SurrealGAN(2, random_state=1, **SHORTER, repetitions=repetitions)
        state = load_file(gan.train(X, is_patient, 2, tmp_path / name))
        final = {n.removeprefix('final/'): v for n, v in state.items() if n.startswith('final/')}
        found[name] = members_r_indices(final, torch.tensor(X, dtype=torch.float32))
    assert sorted(path.name for path in (tmp_path / 'many').iterdir()) == [
        'patterns-2_members-00.safetensors',
        'patterns-2_members-04.safetensors',
    ]
    # Products of a stack of two and of one of four are rounded differently.
    np.testing.assert_allclose(found['many'][:2], found['few'], atol=0.005)
    assert np.abs(found['few'][0] - found['few'][1]).max() > 0.05


@pytest.mark.slow
def test_where_nothing_is_supported_the_model_has_no_pattern_unless_asked_for(
    few_draws, tmp_path, caplog
):
    X, is_patient, _ = sparse_table()
    shuffled = normalised(np.random.default_rng(0).permutation(X), 90)
    gan = SurrealGAN(n_patterns=(1, 2), **SHORT).fit(shuffled, is_patient)
    assert 'No pattern is supported' in caplog.text
    assert gan.selected_.n_patterns == 0
    loaded = SurrealGAN.load(gan.save(tmp_path / 'model'))
    r, spread = loaded.transform(shuffled, return_std=True)
    assert r.shape == spread.shape == (len(X), 0)
    assert loaded.contributions(shuffled)[1].shape == (len(X), 0, X.shape[1])
    assert loaded.in_range(shuffled).mean() > 0.9
    forced = SurrealGAN(n_patterns=1, repetitions=3, **SHORT).fit(shuffled, is_patient)
    assert forced.number_.n_patterns == 0
    assert forced.transform(shuffled).shape == (len(X), 1)


def test_the_range_of_a_sample_is_its_mahalanobis_distance():
    """1200 people, 7 regions that vary together, with unequal spread."""
    rng = np.random.default_rng(0)
    shared, own = rng.standard_normal((1200, 1)), rng.standard_normal((1200, 7))
    sample = 1 + np.linspace(0.5, 3, 7) * (shared + 0.5 * own)
    mean, precision = rng.random(7), np.eye(7) + np.ones((7, 7))
    expected = [np.sqrt((x - mean) @ precision @ (x - mean)) for x in sample[:5]]
    np.testing.assert_allclose(Domain(mean, precision, 1.0).distances(sample[:5]), expected)
    domain = fit_domain(sample[:600], np.random.default_rng(0))
    assert 0.97 < domain.contains(sample[600:]).mean() <= 1
    assert not domain.contains(sample + 10 * sample.std(axis=0)).any()
    flipped = sample.copy()  # Its own distribution stays, its relation to others does not.
    flipped[:, 3] = 2 * sample[:, 3].mean() - sample[:, 3]
    assert domain.distances(flipped).mean() > 1.2 * domain.distances(sample).mean()
