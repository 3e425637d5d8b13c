import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import MultivariateNormal, kl_divergence

from surreal_bids.model.networks import (
    cholesky_factor,
    copula_density,
    divergence_from_independence,
    initial_copula,
    latents,
    one_pattern_at_a_time,
    step_latents,
)
from tests.model.reference import cholesky_rows, copula

E, B = 4, 11


def draw_uniforms(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).uniform(size=shape))


def draw_phi(n_patterns, seed=0):
    """Free parameters of E copulas, with both signs on the diagonal."""
    rng = np.random.default_rng(seed)
    signs = rng.permuted(np.resize([1, -1], (E, n_patterns)), axis=1)
    noise = rng.normal(0, 0.5, (E, n_patterns, n_patterns))
    return torch.from_numpy(noise) + torch.diag_embed(torch.from_numpy(2.0 * signs))


@pytest.mark.parametrize('n_patterns', [1, 2, 3])
def test_latent_vectors_follow_algorithm_1(n_patterns):
    z, later, cn = latents(draw_uniforms(E, 1000, 3 * n_patterns))
    assert z.shape == later.shape == cn.shape == (E, 1000, n_patterns)
    assert (later >= z).all()
    assert later.max() <= 1
    assert 0 < cn.min() < cn.max() < 0.05
    for values in (z, (later - z) / (1 - z), cn / 0.05):
        assert stats.kstest(values.flatten().numpy(), 'uniform').pvalue > 1e-3
    drawn = torch.cat([z, (later - z) / (1 - z), cn], dim=-1).flatten(0, 1)
    correlation = np.atleast_2d(np.corrcoef(drawn.T.numpy()))
    assert np.abs(correlation - np.eye(3 * n_patterns)).max() < 5 / np.sqrt(len(drawn))


@pytest.mark.parametrize('step', [2**-24, 0.5, 1 - 2**-24])
@pytest.mark.parametrize('z', [2**-24, 0.5, 1 - 2**-24])
def test_later_is_never_below_z_nor_above_one_in_single_precision(z, step):
    drawn = latents(torch.tensor([[[z, step, 0.5]]]))
    assert drawn.z <= drawn.later <= 1


@pytest.mark.parametrize('n_patterns', [1, 3])
def test_one_pattern_at_a_time(n_patterns):
    z = draw_uniforms(E, B, n_patterns)
    alone = one_pattern_at_a_time(z)
    assert alone.shape == (E, n_patterns, B, n_patterns)
    for e, i, b, j in np.ndindex(*alone.shape):
        assert alone[e, i, b, j] == (z[e, b, i] if i == j else 0)
    assert torch.equal(alone.sum(dim=1), z)


def test_a_step_meets_the_patterns_now_and_later_and_cn():
    drawn = latents(draw_uniforms(E, B, 9))
    met = step_latents(drawn)
    assert met.shape == (E, 7, B, 3)
    assert torch.equal(met[:, :3], one_pattern_at_a_time(drawn.z))
    assert torch.equal(met[:, 3:6], one_pattern_at_a_time(drawn.later))
    assert torch.equal(met[:, 6], drawn.cn)


@pytest.mark.parametrize('n_patterns', [1, 2, 5])
def test_cholesky_factor_makes_a_correlation(n_patterns):
    phi = draw_phi(n_patterns)
    factor = cholesky_factor(phi)
    correlation = (factor @ factor.transpose(1, 2)).numpy()
    np.testing.assert_allclose(np.diagonal(correlation, axis1=1, axis2=2), 1)
    assert (np.linalg.eigvalsh(correlation) > 0).all()
    assert (np.diagonal(factor, axis1=1, axis2=2) > 0).all()
    torch.testing.assert_close(factor, torch.stack([cholesky_rows(member) for member in phi]))
    np.testing.assert_allclose(np.linalg.cholesky(correlation), factor, atol=1e-12)


@pytest.mark.parametrize('n_patterns', [1, 2, 4])
def test_copula_density_equals_scipy(n_patterns):
    factor, z = cholesky_factor(draw_phi(n_patterns)), draw_uniforms(E, B, n_patterns)
    actual = copula_density(factor, z)
    assert actual.shape == (E, B)
    for member in range(E):
        normal = stats.norm.ppf(z[member])
        joint = stats.multivariate_normal(cov=(factor[member] @ factor[member].T).numpy())
        expected = joint.pdf(normal) / stats.norm.pdf(normal).prod(axis=1)
        np.testing.assert_allclose(actual[member], expected, rtol=1e-6)


@pytest.mark.parametrize('n_patterns', [1, 2, 4])
def test_copula_density_and_its_gradient_equal_torch_distributions(n_patterns):
    phi, z = draw_phi(n_patterns, seed=1).requires_grad_(), draw_uniforms(E, B, n_patterns)
    actual = copula_density(cholesky_factor(phi), z)
    expected = torch.stack([copula(p).log_prob(values).exp() for p, values in zip(phi, z)])
    torch.testing.assert_close(actual, expected)
    gradients = [torch.autograd.grad(d.sum(), phi)[0] for d in (actual, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize('correlation', [-0.5, 0.0, 0.4])
def test_copula_density_integrates_to_one_with_uniform_margins(correlation):
    n = 40_000
    factor = torch.linalg.cholesky(torch.tensor([[1, correlation], [correlation, 1]]).double())
    z = draw_uniforms(1, n, 2)
    density = copula_density(factor[None], z)[0]
    assert density.mean().item() == pytest.approx(1, abs=5 * density.std().item() / np.sqrt(n))
    halves = density * (z[0, :, 0] < 0.5)
    assert halves.mean().item() == pytest.approx(0.5, abs=5 * halves.std().item() / np.sqrt(n))


@pytest.mark.parametrize('n_patterns', [1, 3, 4])
def test_divergence_equals_torch_distributions(n_patterns):
    factor = cholesky_factor(draw_phi(n_patterns))
    actual = divergence_from_independence(factor)
    assert actual.shape == (E,)
    zero = torch.zeros(n_patterns, dtype=factor.dtype)
    independent = MultivariateNormal(zero, torch.eye(n_patterns, dtype=factor.dtype))
    expected = [
        kl_divergence(independent, MultivariateNormal(zero, scale_tril=member)) for member in factor
    ]
    torch.testing.assert_close(actual, torch.stack(expected))
    assert (actual > -1e-12).all()


@pytest.mark.parametrize('n_patterns', [1, 2, 4])
def test_the_copula_starts_at_independence(n_patterns):
    factor = cholesky_factor(initial_copula(E, n_patterns))
    assert torch.equal(factor, torch.eye(n_patterns).expand(E, -1, -1))
    z = draw_uniforms(E, B, n_patterns).float()
    torch.testing.assert_close(copula_density(factor, z), torch.ones(E, B))
    assert (divergence_from_independence(factor) == 0).all()
