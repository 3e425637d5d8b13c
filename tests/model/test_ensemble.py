import numpy as np
import pytest
import torch

from surreal_bids.model.networks import Latents, hyperparameters
from surreal_bids.model.training import LOSSES, Batch, Stack, shorten
from tests.model.reference import Draws, Member
from tests.model.tiny import CPU, people

N_REGIONS, N_PATTERNS, N_PEOPLE = 13, 3, 5
ORTHO = (0.1, 0.7, 3.0)
HIDDEN = (6, 3)

VARIANTS = {
    'the paper': ('iclr2022', {}),
    'learned copula': ('correlated', {}),
    'gradients clipped': ('iclr2022', {'max_gradient_norm': 0.05}),
    'copula and gradients clipped': ('correlated', {'max_gradient_norm': 0.05}),
    'weights clipped': ('iclr2022', {'lipschitz': 0.12}),
    'strong weight decay': ('iclr2022', {'weight_decay': 3.0}),
    'weak prior on the copula': ('correlated', {'alpha': 1e-4, 'copula_lr_ratio': 1.0}),
    'weights of the losses': (
        'iclr2022',
        {'adversarial': 0.5, 'gamma': 1, 'kappa': 2, 'zeta': 3, 'mu': 4, 'eta': 5},
    ),
    'half the voice of the critic': ('correlated', {'adversarial': 0.5}),
    'rates': ('correlated', {'lr': 3e-3, 'discriminator_lr_ratio': 2.0, 'betas': (0.8, 0.95)}),
    'robust': ('robust', {}),
    'scaled critic': ('iclr2022', {'discriminator_scale': 10.0}),
    'noisy critic': ('iclr2022', {'discriminator_noise': 0.6}),
    'noisy critic and copula': (
        'correlated',
        {'discriminator_noise': 1.0, 'discriminator_scale': 4.0},
    ),
}


def double_stack(preset, changes):
    """A stack in double precision, whose copula, if any, does not start at independence."""
    hyper = hyperparameters(preset, **changes)
    stack = Stack(N_REGIONS, N_PATTERNS, ORTHO, hyper, 7, CPU)
    if 'copula.phi' in stack.weights:
        shift = torch.from_numpy(np.random.default_rng(3).normal(0, 0.3, (3, 3, 3)))
        stack.weights['copula.phi'].data += shift.float()
    for value in stack.weights.values():
        value.data = value.data.double()
    for optimiser in stack.optimisers.values():
        for moments in optimiser.state.values():
            for key in ('exp_avg', 'exp_avg_sq'):
                moments[key] = moments[key].double()
    return stack


def random_batch(seed, with_coins):
    rng = np.random.default_rng(seed)
    n_members = len(ORTHO)
    x, y = (
        torch.stack(
            [people(N_PEOPLE, 100 * seed + 10 * k + i, N_REGIONS) for k in range(n_members)]
        )
        for i in range(2)
    )
    z = rng.uniform(size=(n_members, N_PEOPLE, N_PATTERNS))
    later = rng.uniform(z, 1)
    cn = rng.uniform(0, 0.05, z.shape)
    coins = rng.integers(2, size=(n_members, 3 * N_PEOPLE, sum(HIDDEN)))
    return Batch(
        x.double(),
        y.double() - 0.2,
        Latents(*(torch.from_numpy(values) for values in (z, later, cn))),
        torch.from_numpy(coins) if with_coins else None,
    )


def of_member(batch, member):
    return Draws(batch.x_EBS[member], batch.y_EBS[member], *(v[member] for v in batch.latents))


def factors_of_member(batch, member, noise):
    """What D's hidden units are multiplied by: heads 1 + noise, tails 1 - noise."""
    if batch.coins is None:
        return None, None, None
    factors = 1 + noise * (2.0 * batch.coins[member].double() - 1)
    return tuple(part.split(HIDDEN, dim=1) for part in factors.split(N_PEOPLE))


@pytest.mark.parametrize('n_steps', [1, 4])
@pytest.mark.parametrize('variant', VARIANTS)
def test_a_stack_trains_as_plain_members_do(variant, n_steps):
    preset, changes = VARIANTS[variant]
    stack = double_stack(preset, changes)
    members = [
        Member(stack.weights, k, ortho, stack.hyper)
        for k, ortho in enumerate(stack.ortho_E.tolist())
    ]
    noise = stack.hyper.discriminator_noise
    for step in range(n_steps):
        batch = random_batch(step, with_coins=noise > 0)
        losses_EL = stack.step(batch)
        for k, member in enumerate(members):
            factors = factors_of_member(batch, k, noise)
            expected = member.step(of_member(batch, k), factors)
            actual = dict(zip(LOSSES, losses_EL[k].tolist()))
            assert actual == pytest.approx(expected, rel=1e-7, abs=1e-10)
    for k, member in enumerate(members):
        expected = member.state()
        assert set(expected) == set(stack.weights)
        for name, value in expected.items():
            torch.testing.assert_close(
                stack.weights[name][k].detach(), value, rtol=0, atol=1e-8, msg=f'{name} of {k}'
            )


@pytest.mark.parametrize('preset', ['iclr2022', 'correlated'])
def test_variants_differ_from_the_preset(preset):
    """Each variant changes the result, so that the comparison above tests what it says."""

    def trained(changes):
        stack = double_stack(preset, changes)
        for step in range(2):
            stack.step(random_batch(step, with_coins=stack.hyper.discriminator_noise > 0))
        return torch.cat([value.detach().flatten() for value in stack.weights.values()])

    plain = trained({})
    for variant, (of_preset, changes) in VARIANTS.items():
        if of_preset == preset and changes:
            assert (trained(changes) - plain).abs().max() > 1e-6, variant


@pytest.mark.parametrize('preset', ['iclr2022', 'correlated'])
def test_lambda_of_one_member_does_not_touch_the_others(preset):
    hyper = hyperparameters(preset)
    stacks = [Stack(N_REGIONS, N_PATTERNS, (0.1, o, 0.4), hyper, 0, CPU) for o in (0.2, 50.0)]
    batch = random_batch(0, with_coins=False)
    single = Batch(
        batch.x_EBS.float(), batch.y_EBS.float(), Latents(*(v.float() for v in batch.latents)), None
    )
    for stack in stacks:
        for _ in range(2):
            stack.step(single)
    one, other = (stack.weights['f.encode1'].detach() for stack in stacks)
    assert torch.equal(one[[0, 2]], other[[0, 2]])
    assert not torch.equal(one[1], other[1])


@pytest.mark.parametrize('preset', ['iclr2022', 'correlated'])
def test_state_restores_in_place(preset):
    stack = double_stack(preset, {})
    stack.step(random_batch(0, with_coins=False))
    saved = {name: value.clone() for name, value in stack.state().items()}
    after = [stack.step(random_batch(1, with_coins=False)) for _ in range(2)]
    assert not torch.equal(after[0], after[1])
    before = {name: value.data_ptr() for name, value in stack.state().items()}
    stack.restore(saved)
    assert {name: value.data_ptr() for name, value in stack.state().items()} == before
    again = [stack.step(random_batch(1, with_coins=False)) for _ in range(2)]
    assert all(torch.equal(*pair) for pair in zip(after, again))


@pytest.mark.parametrize('longest', [0.1, 3.0, 1e6])
def test_gradients_are_shortened_member_by_member(longest):
    rng = np.random.default_rng(0)
    shapes = [(4, 3), (1, 5)]
    sizes = np.array([1e-3, 1.0, 100.0])[:, None, None]
    gradients = [torch.from_numpy(sizes * rng.normal(size=(3, *shape))) for shape in shapes]
    expected = []
    for member in range(3):
        parameters = [torch.nn.Parameter(torch.zeros_like(g[member])) for g in gradients]
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient[member].clone()
        torch.nn.utils.clip_grad_norm_(parameters, longest)
        expected.append([parameter.grad for parameter in parameters])
    shorten(gradients, longest)
    for actual, wanted in zip(gradients, zip(*expected)):
        torch.testing.assert_close(actual, torch.stack(wanted))


@pytest.mark.parametrize('factor', [1.0, 0.3])
def test_learning_rates_scale_from_their_full_value(factor):
    hyper = hyperparameters('correlated')
    stack = Stack(N_REGIONS, N_PATTERNS, ORTHO, hyper, 0, CPU)
    stack.scale_learning_rates(0.01)
    stack.scale_learning_rates(factor)
    rates = {name: float(adam.param_groups[0]['lr']) for name, adam in stack.optimisers.items()}
    expected = {'mapper': 8e-4, 'critic': 8e-4 / 5, 'copula': 8e-4 / 30}
    assert rates == pytest.approx({name: factor * rate for name, rate in expected.items()})
