import numpy as np
import pytest
import torch
import torch.nn.functional as F

from surreal_bids.model import losses

E, M, B, S = 2, 3, 5, 7


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def slow_adversarial(logits, is_real, density):
    """Cross entropy of softmax(logits) with the class 0 (real) or 1 (synthesised)."""
    loss = np.zeros(len(logits))
    for e in range(E):
        for b in range(B):
            real, fake = np.exp(logits[e, b])
            verdict = real / (real + fake) if is_real else fake / (real + fake)
            loss[e] -= np.log(verdict) * density[e, b] / B
    return loss


def slow_mean_absolute(values):
    return np.array([np.mean([abs(value) for value in member.ravel()]) for member in values])


def slow_mean_squared_difference(one, other):
    loss = np.zeros(E)
    for e in range(E):
        for a, b in zip(one[e].ravel(), other[e].ravel()):
            loss[e] += (a - b) ** 2 / one[e].size
    return loss


def slow_orthogonality(mean_change):
    loss = np.zeros(E)
    for e in range(E):
        for i in range(M):
            for j in range(M):
                a, b = np.abs(mean_change[e, i]), np.abs(mean_change[e, j])
                cosine = sum(a * b) / np.sqrt(sum(a * a) * sum(b * b))
                loss[e] += (cosine - (i == j)) ** 2 / M**2
    return loss


def slow_monotonicity(now, later):
    loss = np.zeros(E)
    for e in range(E):
        for before, after in zip(now[e].ravel(), later[e].ravel()):
            loss[e] += max(abs(before) - abs(after), 0) ** 2 / now[e].size
    return loss


REGULARISERS = {
    'change': (losses.change, slow_mean_absolute, [(E, B, S)]),
    'decomposition': (losses.decomposition, slow_mean_squared_difference, [(E, M, B, S)] * 2),
    'reconstruction': (losses.reconstruction, slow_mean_squared_difference, [(E, M, B, M)] * 2),
    'orthogonality': (losses.orthogonality, slow_orthogonality, [(E, M, S)]),
    'monotonicity': (losses.monotonicity, slow_monotonicity, [(E, M, B, S)] * 2),
    'cn': (losses.cn, slow_mean_absolute, [(E, B, S)]),
}


@pytest.mark.parametrize('seed', [0, 1])
@pytest.mark.parametrize('name', REGULARISERS)
def test_regulariser_equals_its_formula_in_loops(name, seed):
    fast, slow, shapes = REGULARISERS[name]
    arrays = [draw(*shape, seed=[seed, i]) for i, shape in enumerate(shapes)]
    actual = fast(*map(torch.from_numpy, arrays))
    assert actual.shape == (E,)
    np.testing.assert_allclose(actual, slow(*arrays), rtol=1e-6)


@pytest.mark.parametrize('name', REGULARISERS)
def test_regularisers_are_never_negative_and_end_finite(name):
    fast, _, shapes = REGULARISERS[name]
    for scale in (0.0, 1e-8, 1.0, 1e8):
        tensors = [torch.from_numpy(scale * draw(*shape)).requires_grad_() for shape in shapes]
        loss = fast(*tensors)
        assert (loss >= 0).all()
        gradients = torch.autograd.grad(loss.sum(), tensors)
        assert all(torch.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize('name', REGULARISERS)
def test_a_members_loss_is_its_own(name):
    fast, _, shapes = REGULARISERS[name]
    tensors = [torch.from_numpy(draw(*shape, seed=i)) for i, shape in enumerate(shapes)]
    for member, loss in enumerate(fast(*tensors)):
        alone = fast(*(tensor[member : member + 1] for tensor in tensors))
        torch.testing.assert_close(alone[0], loss)


@pytest.mark.parametrize('weighted', [False, True])
@pytest.mark.parametrize('is_real', [True, False])
def test_adversarial_loss_is_weighted_cross_entropy(is_real, weighted):
    logits = draw(E, B, 2)
    density = np.exp(draw(E, B, seed=1)) if weighted else np.ones((E, B))
    given = torch.from_numpy(density) if weighted else None
    actual = losses.adversarial(torch.from_numpy(logits), is_real, given)
    np.testing.assert_allclose(actual, slow_adversarial(logits, is_real, density), rtol=1e-6)
    target = torch.full((E * B,), 0 if is_real else 1)
    entropy = F.cross_entropy(torch.from_numpy(logits).flatten(0, 1), target, reduction='none')
    expected = (entropy.unflatten(0, (E, B)) * torch.from_numpy(density)).mean(dim=1)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize('is_real', [True, False])
def test_adversarial_loss_of_a_sure_discriminator_is_finite(is_real):
    right, wrong = torch.tensor([[[300.0, -300.0]]]), torch.tensor([[[-300.0, 300.0]]])
    assert losses.adversarial(right if is_real else wrong, is_real) == 0
    assert losses.adversarial(wrong if is_real else right, is_real) == 600


@pytest.mark.parametrize('growth', [1.0, 1.5])
def test_monotonicity_is_zero_where_changes_grow_in_size(growth):
    now = torch.from_numpy(draw(E, M, B, S))
    flipped = -growth * now
    assert (losses.monotonicity(now, flipped) == 0).all()
    assert (losses.monotonicity(now, 0.9 * now) > 0).all()


@pytest.mark.parametrize('sign', [1, -1])
def test_orthogonality_is_zero_for_disjoint_and_greatest_for_equal_patterns(sign):
    disjoint = torch.zeros(E, M, S)
    for pattern in range(M):
        disjoint[:, pattern, pattern::M] = torch.from_numpy(draw(E, S)).float()[:, pattern::M]
    assert losses.orthogonality(disjoint).max() < 1e-12
    same = torch.from_numpy(draw(E, 1, S)).repeat(1, M, 1)
    same[:, 1] *= sign * 5
    torch.testing.assert_close(
        losses.orthogonality(same), torch.full((E,), (M - 1) / M, dtype=same.dtype)
    )


@pytest.mark.parametrize('name', ['decomposition', 'reconstruction'])
def test_perfect_inversion_costs_nothing(name):
    values = torch.from_numpy(draw(*REGULARISERS[name][2][0]))
    assert (REGULARISERS[name][0](values, values.clone()) == 0).all()


@pytest.mark.parametrize('name', ['change', 'cn'])
def test_no_change_costs_nothing(name):
    assert (REGULARISERS[name][0](torch.zeros(E, B, S)) == 0).all()
