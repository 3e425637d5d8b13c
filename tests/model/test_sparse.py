"""The default: members that start from sparse factors, as many as it takes."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.model.agreement import (
    HOPELESS,
    MOST_ROUNDS,
    ROUND,
    Setting,
    Trained,
    train_in_rounds,
)
from surreal_bids.model.estimator import SurrealGAN
from surreal_bids.model.networks import hyperparameters
from surreal_bids.model.training import Steps, members_r_indices
from surreal_bids.stats.concordance import pattern_c_index
from tests.conftest import drawing_few
from tests.model.test_factors import cohort

SHORT = {'hyperparameters': {'held_iterations': 50}, 'iterations': 100, 'device': 'cpu'}
SHORTER = SHORT | {'hyperparameters': {'held_iterations': 20}, 'iterations': 40}


def table(n_patterns=2, **changes):
    cn, pt, severities, _ = cohort(n_patterns, n_cn=90, n_pt=100, size=0.35, **changes)
    return np.concatenate([cn, pt]), np.repeat([False, True], [len(cn), len(pt)]), severities


@pytest.fixture(scope='module')
def fitted(few_draws):
    X, is_patient, _ = table()
    return SurrealGAN(n_patterns=(1, 2, 3), **SHORT).fit(X, is_patient)


def test_number_and_severities_are_found(fitted):
    X, is_patient, severities = table()
    assert fitted.selected_.n_patterns == fitted.number_.n_patterns == 2
    assert pattern_c_index(fitted.transform(X[is_patient]), severities) > 0.85
    assert min(fitted.linear_['agreement']) > 0.9


def test_patterns_of_another_model_keep_their_order(fitted, tmp_path):
    X, is_patient, severities = table(seed=5)
    both = [fitted, fitted.__class__.load(fitted.save(tmp_path / 'model'))]
    weights = {name: value.clone() for name, value in fitted.weights_.items()}
    settings = {'n_patterns': 2, 'repetitions': 2, 'random_state': 3, **SHORT}
    own, loaded = (
        SurrealGAN(**settings).fit(X, is_patient, assess_number=False, like=each) for each in both
    )
    np.testing.assert_array_equal(own.transform(X), loaded.transform(X))
    of_both = np.corrcoef(own.transform(X).T, fitted.transform(X).T)[:2, 2:]
    assert np.diag(of_both).min() > 0.7 > np.abs(of_both[0, 1])
    assert pattern_c_index(own.transform(X[is_patient]), severities) > 0.8
    assert all(torch.equal(weights[name], fitted.weights_[name]) for name in weights)
    with pytest.raises(UsageError, match='set n_patterns to 2'):
        SurrealGAN(3, **SHORT).fit(X, is_patient, assess_number=False, like=fitted)


def test_a_checkpoint_of_members_that_started_elsewhere_is_refused(fitted, tmp_path):
    X, is_patient, _ = table(seed=5)
    settings = {'n_patterns': 2, 'repetitions': 2, 'random_state': 3, **SHORT}
    for like, code in ((fitted, None), (fitted, None), (None, DataError)):
        gan = SurrealGAN(**settings)
        how = {'assess_number': False, 'like': like, 'checkpoint_dir': tmp_path}
        if code is None:
            gan.fit(X, is_patient, **how)
        else:
            with pytest.raises(code, match='other data, settings'):
                gan.fit(X, is_patient, **how)


def test_what_was_spent_is_told(fitted):
    assert fitted.spent_.members == len(fitted.members_) == 2 * ROUND
    assert fitted.spent_.iterations <= 2 * ROUND * 100
    assert fitted.spent_.reason.startswith('the consensus no longer changed')


def test_it_is_the_same_after_saving_and_loading(fitted, tmp_path):
    X, *_ = table()
    loaded = SurrealGAN.load(fitted.save(tmp_path / 'model'))
    np.testing.assert_array_equal(loaded.transform(X), fitted.transform(X))
    assert loaded.number_ == fitted.number_
    assert loaded.spent_ == fitted.spent_
    assert loaded.linear_ == fitted.linear_
    card = json.loads((tmp_path / 'model' / 'model.json').read_text())
    assert card['Preset'] == 'sparse'
    assert len(card['Stability']['stabilities'][1]['null']) == 1


@pytest.mark.slow
def test_the_card_counts_the_members_of_the_chosen_lambda(few_draws):
    X, is_patient, _ = table()
    gan = SurrealGAN(n_patterns=2, ortho=(0.1, 0.4), **SHORT).fit(X, is_patient)
    n_chosen = next(r['n_members'] for r in gan.agreement_ if r['ortho'] == gan.selected_.ortho)
    assert gan.state()[1]['Repetitions'] == n_chosen < len(gan.members_)


@pytest.mark.slow
def test_few_controls_beside_many_patients(few_draws):
    cn, pt, *_ = cohort(1, n_cn=20, n_pt=200, size=0.35)
    X, is_patient = np.concatenate([cn, pt]), np.repeat([False, True], [20, 200])
    X = (X - X[:20].mean(axis=0)) / X[:20].std(axis=0) / 10 + 1
    # A member sees 16 of the 20 controls: no batch of 20 or 25.
    gan = SurrealGAN(n_patterns=1, repetitions=2, **SHORT).fit(X, is_patient)
    assert np.isfinite(gan.transform(X)).all()
    with pytest.raises(DataError, match='set batch_size to at most 16'):
        gan.set_params(hyperparameters={'batch_size': 17}).fit(X, is_patient)


def weights_of(repetition, gan):
    return {n: v[gan.selected_.members.index(repetition)] for n, v in gan.weights_.items()}


@pytest.mark.slow
def test_a_member_does_not_depend_on_who_else_is_trained(tmp_path):
    X, is_patient, _ = table()
    runs = {
        'few': {'repetitions': 2},
        'many': {'repetitions': 5},
        'lambdas': {'repetitions': 2, 'ortho': (0.1, 0.4)},
    }
    states = {}
    for name, how in runs.items():
        gan = SurrealGAN(2, random_state=1, **SHORTER, **how)
        states[name] = load_file(gan.train(X, is_patient, 2, tmp_path / name))
    assert sorted(path.name for path in (tmp_path / 'many').iterdir()) == [
        'patterns-2_members-00.safetensors',
        'patterns-2_members-04.safetensors',
    ]
    few, many, lambdas = (
        members_r_indices(
            {key.removeprefix('final/'): state[key] for key in state if key.startswith('final/')},
            torch.tensor(X, dtype=torch.float32),
        )
        for state in states.values()
    )
    # Products of a stack of two and of one of four are rounded differently.
    np.testing.assert_allclose(many[:2], few, atol=0.005)
    np.testing.assert_allclose(lambdas[2:], few, atol=0.005)
    assert np.abs(few[0] - few[1]).max() > 0.05


@pytest.mark.slow
def test_an_interrupted_fit_resumes_to_the_same_bytes(tmp_path, monkeypatch):
    X, is_patient, _ = table()

    def fit(folder):
        with drawing_few():
            gan = SurrealGAN(2, repetitions=5, **SHORTER)
            return gan.fit(X, is_patient, checkpoint_dir=tmp_path / folder)

    whole = fit('whole')
    monkeypatch.setattr('surreal_bids.model.training.SECONDS_BETWEEN_CHECKPOINTS', 0.0)
    run, blocks = Steps.run, iter(range(100))
    with monkeypatch.context() as patch:

        def run_or_stop(self, iterations, held=False):
            if next(blocks) == 3:
                raise KeyboardInterrupt
            return run(self, iterations, held)

        patch.setattr(Steps, 'run', run_or_stop)
        with pytest.raises(KeyboardInterrupt):
            fit('cut')
    resumed = fit('cut')
    for folder, gan in (('a', whole), ('b', resumed)):
        gan.save(tmp_path / folder)
    for name in ('model.json', 'model.safetensors'):
        assert (tmp_path / 'a' / name).read_bytes() == (tmp_path / 'b' / name).read_bytes()


@pytest.mark.slow
def test_where_nothing_is_supported_the_model_has_no_pattern(few_draws, tmp_path, caplog):
    X, is_patient, _ = table()
    shuffled = np.random.default_rng(0).permutation(X)
    cn = shuffled[~is_patient]
    shuffled = 1 + (shuffled - cn.mean(axis=0)) / (10 * cn.std(axis=0))
    gan = SurrealGAN(n_patterns=(1, 2), **SHORT).fit(shuffled, is_patient)
    assert 'No pattern is supported' in caplog.text
    assert gan.selected_.n_patterns == 0
    loaded = SurrealGAN.load(gan.save(tmp_path / 'model'))
    r, spread = loaded.transform(shuffled, return_std=True)
    assert r.shape == spread.shape == (len(X), 0)
    assert loaded.in_range(shuffled).mean() > 0.9
    assert loaded.number_.stabilities[0].null


@pytest.mark.slow
def test_one_number_of_patterns_is_trained_in_any_case(few_draws):
    X, is_patient, _ = table()
    rng = np.random.default_rng(0)
    noise = rng.normal(1, 0.1, X.shape)
    cn = noise[~is_patient]
    noise = 1 + (noise - cn.mean(axis=0)) / (10 * cn.std(axis=0))
    gan = SurrealGAN(n_patterns=1, repetitions=3, **SHORT).fit(noise, is_patient)
    assert gan.number_.n_patterns == 0
    assert gan.transform(noise).shape == (len(X), 1)


def test_too_few_regions_are_refused():
    X, is_patient, _ = table()
    with pytest.raises(UsageError, match='12 regions are too few for n_patterns 2'):
        SurrealGAN(2, **SHORT).fit(X[:, :12], is_patient)


SPARSE = hyperparameters('sparse')


def scripted_rounds(spread):
    """Rounds of made-up members: truth plus noise, whose size depends on lambda."""
    rng = np.random.default_rng(0)
    truth = rng.uniform(size=(200, 2))
    asked = []

    def train(ortho, first, count):
        asked.append((ortho, first, count))
        trained = {}
        for value in ortho:
            r = truth + spread[value] * rng.normal(size=(count, 200, 2))
            trained[value] = Trained({'f.latent': torch.zeros(count, 2, 3)}, r, [True] * count)
        return trained, 10

    return train, asked


def test_rounds_end_when_the_consensus_settles():
    how, asked = scripted_rounds({0.4: 0.01})
    settings, spent = train_in_rounds(how, (0.4,), None, SPARSE)
    assert asked == [((0.4,), 0, ROUND), ((0.4,), ROUND, ROUND)]
    assert isinstance(settings[0], Setting)
    assert (spent.members, spent.iterations) == (2 * ROUND, 20 * ROUND)


def test_rounds_end_at_the_most_members():
    how, asked = scripted_rounds({0.4: 2.0})
    _, spent = train_in_rounds(how, (0.4,), None, SPARSE)
    assert len(asked) == MOST_ROUNDS
    assert 'the most that are trained' in spent.reason


def test_repetitions_fix_the_members():
    how, asked = scripted_rounds({0.4: 0.01})
    settings, spent = train_in_rounds(how, (0.4,), 6, SPARSE)
    assert [count for _, _, count in asked] == [4, 2]
    assert len(settings[0].members) == spent.members == 6


def test_a_hopeless_lambda_gets_no_further_members():
    how, asked = scripted_rounds({0.1: 1.0, 0.4: 0.08})
    settings, _ = train_in_rounds(how, (0.1, 0.4), None, SPARSE)
    assert [ortho for ortho, _, _ in asked] == [(0.1, 0.4)] + [(0.4,)] * (len(asked) - 1)
    assert len(asked) > 1
    assert settings[1].score(3) - settings[0].score(3) > HOPELESS
