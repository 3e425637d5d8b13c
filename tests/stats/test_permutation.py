import numpy as np
import pytest
from nilearn.mass_univariate import permuted_ols

from surreal_bids.stats import maps as permutation
from surreal_bids.stats.glm import make_design
from surreal_bids.stats.maps import ScratchMaps, draw_permutations, family_wise_p, largest_t

N_PERMUTATIONS = 50


def nilearn_orders(seed, n_people):
    """Orders that nilearn's `permuted_ols` draws with one job: each shuffles the one before."""
    rng = np.random.RandomState(np.random.RandomState(seed).randint(1, np.iinfo(np.int32).max - 1))
    order, orders = np.arange(n_people), []
    for _ in range(N_PERMUTATIONS):
        order = order[rng.permutation(n_people)]
        orders.append(order)
    return np.array(orders)


def simulate(seed, n_people=30, n_voxels=41):
    rng = np.random.default_rng(seed)
    x, Z = rng.uniform(size=n_people), rng.normal(size=(n_people, 3)) + 5
    Y = rng.normal(size=(n_people, n_voxels)) + Z @ rng.normal(size=(3, n_voxels))
    Y[:, :5] += 4 * x[:, None]
    return x, Z, 10 + Y


@pytest.mark.parametrize('chunk', [7, 41])
@pytest.mark.parametrize('n_covariates', [1, 3])
def test_it_is_nilearns_test_in_chunks(chunk, n_covariates):
    x, Z, Y = simulate(n_covariates)
    Z = Z[:, :n_covariates]
    expected = permuted_ols(x[:, None], Y, Z, n_perm=N_PERMUTATIONS, random_state=3)
    design = make_design('x', '', np.arange(30), x, Z)
    chunks = (Y[:, start : start + chunk] for start in range(0, Y.shape[1], chunk))
    largest = largest_t(chunks, design, nilearn_orders(3, 30))
    np.testing.assert_allclose(np.sort(largest), np.sort(expected['h0_max_t'][0]), rtol=1e-4)
    p = family_wise_p(expected['t'][0], largest)
    np.testing.assert_allclose(-np.log10(p), expected['logp_max_t'][0], atol=1e-12)


@pytest.mark.parametrize('order', [np.arange(30), np.arange(30)[::-1]])
def test_a_permutation_is_freedman_and_lanes(order):
    """Residuals of the nuisance model are permuted, its fit is added, all is fitted again."""
    x, Z, Y = simulate(0)
    nuisance = np.column_stack([np.ones(30), Z])
    fitted = nuisance @ np.linalg.lstsq(nuisance, Y)[0]
    permuted = fitted + (Y - fitted)[np.argsort(order)]
    expected = permuted_ols(x[:, None], permuted, Z, n_perm=0)['t']
    design = make_design('x', '', np.arange(30), x, Z)
    (largest,) = largest_t([Y], design, order[None])
    assert largest == pytest.approx(np.abs(expected).max(), rel=1e-4)


@pytest.mark.parametrize('n_bytes', [0, 200, 10_000])
def test_scratch_file_gives_back_what_was_stored(tmp_path, n_bytes, monkeypatch):
    monkeypatch.setattr(permutation, 'CHUNK_BYTES', n_bytes)
    values = np.random.default_rng(1).normal(size=(9, 23)).astype(np.float32)
    scratch = ScratchMaps(tmp_path / 'maps', values.shape)
    for rows in ([3, 6], [0], [7, 2, 5]):
        scratch.store(np.array(rows), values[rows])
    chosen = np.array([2, 6, 7])
    np.testing.assert_array_equal(np.hstack(list(scratch.chunks(chosen))), values[chosen])


def test_constant_voxels_have_no_say():
    x, Z, Y = simulate(2)
    design = make_design('x', '', np.arange(30), x, Z)
    orders = draw_permutations(30, 20, seed=0)
    expected = largest_t([Y], design, orders)
    with_constants = np.column_stack([Y, np.full((30, 3), 0.3)])
    np.testing.assert_allclose(largest_t([with_constants], design, orders), expected, rtol=1e-6)
    np.testing.assert_array_equal(largest_t([with_constants[:, -3:]], design, orders), 0)


@pytest.mark.parametrize('seed', [0, 1])
def test_orders_are_seeded_permutations(seed):
    orders = draw_permutations(11, 40, seed)
    np.testing.assert_array_equal(np.sort(orders, axis=1), np.tile(np.arange(11), (40, 1)))
    np.testing.assert_array_equal(orders, draw_permutations(11, 40, seed))
    assert len(np.unique(orders, axis=0)) == 40


def test_p_counts_the_observed_order():
    p = family_wise_p([0.5, -2.5, 9.0], [1.0, 2.0, 3.0])
    np.testing.assert_allclose(p, [1, 0.5, 0.25])


@pytest.mark.slow
def test_family_wise_error_stays_at_the_nominal_rate():
    rng = np.random.default_rng(8)
    wrong = 0
    for seed in range(200):
        x, Z, Y = rng.normal(size=16), rng.normal(size=(16, 2)), rng.exponential(size=(16, 60))
        design = make_design('x', '', np.arange(16), x, Z)
        t = permuted_ols(x[:, None], Y, Z, n_perm=0)['t']
        largest = largest_t([Y], design, draw_permutations(16, 99, seed))
        wrong += family_wise_p(t, largest).min() <= 0.05
    assert 1 <= wrong <= 21
