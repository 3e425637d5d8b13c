"""Presets, first weights and the copula; networks and losses are in the reference (`training`)."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import MultivariateNormal, kl_divergence

from surreal_bids.exceptions import UsageError
from surreal_bids.model.networks import (
    cholesky_factor,
    copula_density,
    divergence_from_independence,
    hyperparameters,
    initial_weights,
    latents,
)
from surreal_bids.model.training import member_seeds
from tests.model.reference import copula

E, B = 4, 11

PAPER = {
    'gamma': 6, 'kappa': 80, 'zeta': 80, 'mu': 500, 'eta': 6, 'lr': 2e-4, 'betas': (0.5, 0.999),
    'lipschitz': 0.5, 'reconstruction_threshold': 0.003, 'monotonicity_threshold': 6e-4,
    'discriminator_lr_ratio': 0.2,
}  # fmt: skip
PROGRAM = {'gamma': 2, 'lr': 8e-4, 'alpha': 0.02, 'mu': 500, 'weight_decay': 2.5e-3}


def test_presets_have_the_published_values():
    for preset, values in (('iclr2022', PAPER), ('correlated', PROGRAM)):
        found = vars(hyperparameters(preset))
        assert {name: found[name] for name in values} == values
    assert hyperparameters('iclr2022', gamma=1.5).gamma == 1.5
    with pytest.raises(UsageError, match='lamda; choose from adversarial'):
        hyperparameters('iclr2022', lamda=1)


def draw_weights(n_members, n_regions=13):
    return initial_weights(n_regions, 3, member_seeds(0, 3, (0.1,) * n_members))


def test_weights_start_normal_and_biases_as_those_of_linear_layers():
    weights = draw_weights(60, 40)
    for name, value in weights.items():
        expected = stats.norm(0, 0.1)
        if name.endswith('_bias'):
            limit = weights[name.removesuffix('_bias')].shape[1] ** -0.5
            expected = stats.uniform(-limit, 2 * limit)
        assert stats.kstest(value.flatten().numpy(), expected.cdf).pvalue > 1e-4, name


def draw_uniforms(*shape):
    return torch.from_numpy(np.random.default_rng(0).uniform(size=shape))


def draw_phi(n_patterns):
    """Free parameters of E copulas, with both signs on the diagonal."""
    rng = np.random.default_rng(0)
    signs = rng.permuted(np.resize([1, -1], (E, n_patterns)), axis=1)
    noise = rng.normal(0, 0.5, (E, n_patterns, n_patterns))
    return torch.from_numpy(noise) + torch.diag_embed(torch.from_numpy(2.0 * signs))


def test_latent_vectors_follow_algorithm_1():
    z, later, cn = latents(draw_uniforms(E, 1000, 6))
    assert (later >= z).all()
    for values in (z, (later - z) / (1 - z), cn / 0.05):
        assert stats.kstest(values.flatten().numpy(), 'uniform').pvalue > 1e-3
    drawn = torch.cat([z, (later - z) / (1 - z), cn], dim=-1).flatten(0, 1)
    assert np.abs(np.corrcoef(drawn.T.numpy()) - np.eye(6)).max() < 5 / np.sqrt(len(drawn))
    extreme = latents(torch.tensor([[[1 - 2**-24, 1 - 2**-24, 0.5]]]))
    assert extreme.z <= extreme.later <= 1


@pytest.mark.parametrize('n_patterns', [1, 2, 4])
def test_the_copula_equals_scipy_and_torch_distributions(n_patterns):
    phi, z = draw_phi(n_patterns).requires_grad_(), draw_uniforms(E, B, n_patterns)
    factor = cholesky_factor(phi)
    density, divergence = copula_density(factor, z), divergence_from_independence(factor)
    theirs = torch.stack([copula(p).log_prob(values).exp() for p, values in zip(phi, z)])
    torch.testing.assert_close(density, theirs)
    torch.testing.assert_close(
        *(torch.autograd.grad(d.sum(), phi, retain_graph=True)[0] for d in (density, theirs))
    )
    zero, identity = torch.zeros(n_patterns).double(), torch.eye(n_patterns).double()
    for member in range(E):
        correlation = (factor[member] @ factor[member].T).detach().numpy()
        np.testing.assert_allclose(np.diag(correlation), 1)
        normal = stats.norm.ppf(z[member])
        joint = stats.multivariate_normal(cov=correlation).pdf(normal)
        expected = joint / stats.norm.pdf(normal).prod(axis=1)
        np.testing.assert_allclose(density[member].detach(), expected, rtol=1e-6)
        own = MultivariateNormal(zero, scale_tril=factor[member])
        expected = kl_divergence(MultivariateNormal(zero, identity), own)
        torch.testing.assert_close(divergence[member], expected)
