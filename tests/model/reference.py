"""One member of the model, written the plain and slow way: torch modules and a step by the book.

Nothing is stacked, shared, fused or compiled: each network is made of `torch.nn` modules, patterns
are taken one after another, losses are those of `torch.nn.functional`, the copula is a
`torch.distributions` object and each optimiser a plain Adam. The stacked code must give the same
numbers.

Shapes: B people in a batch, S regions, M patterns.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import (
    MultivariateNormal,
    Normal,
    TransformedDistribution,
    kl_divergence,
)
from torch.distributions.transforms import CumulativeDistributionTransform

from surreal_bids.model.networks import HyperParameters

REAL, SYNTHESISED = 0, 1
"""Classes of the discriminator."""


class Draws(NamedTuple):
    """What a step sees of one member: people (B, S) and latent vectors (B, M)."""

    x: Tensor
    y: Tensor
    z: Tensor
    later: Tensor
    cn: Tensor


class Mapper(nn.Module):
    """f (Table 3): the change of a person x under a latent vector z."""

    def __init__(self, n_regions: int, n_patterns: int) -> None:
        super().__init__()
        h, q = n_regions // 2, n_regions // 4
        self.encode1 = nn.Linear(n_regions, h, bias=False)
        self.encode2 = nn.Linear(h, q, bias=False)
        self.latent = nn.Linear(n_patterns, q)
        self.decode1 = nn.Linear(q, h, bias=False)
        self.decode2 = nn.Linear(h, n_regions, bias=False)
        self.activation = nn.LeakyReLU(0.2)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        code = self.activation(self.encode2(self.activation(self.encode1(x))))
        gated = code * torch.sigmoid(self.latent(z))
        return self.activation(self.decode2(self.activation(self.decode1(gated))))


class Decomposer(nn.Module):
    """g1 (Table 4): the part of each pattern in a person, M tensors (B, S)."""

    def __init__(self, n_regions: int, n_patterns: int) -> None:
        super().__init__()
        self.n_regions = n_regions
        self.weight = nn.Linear(n_regions, n_patterns * n_regions)
        self.activation = nn.LeakyReLU(0.2)

    def forward(self, y: Tensor) -> tuple[Tensor, ...]:
        return self.weight(self.activation(y)).split(self.n_regions, dim=1)


class Perceptron(nn.Module):
    """g2 and D (Table 4): three linear layers; factors, if given, multiply the hidden units."""

    def __init__(self, n_regions: int, n_outputs: int) -> None:
        super().__init__()
        h, q = n_regions // 2, n_regions // 4
        self.layer1 = nn.Linear(n_regions, h)
        self.layer2 = nn.Linear(h, q)
        self.layer3 = nn.Linear(q, n_outputs)
        self.activation = nn.LeakyReLU(0.2)

    def forward(self, y: Tensor, factors: tuple[Tensor, Tensor] | None = None) -> Tensor:
        first, second = factors or (1.0, 1.0)
        hidden = self.activation(self.layer1(y)) * first
        return self.layer3(self.activation(self.layer2(hidden)) * second)


def networks(n_regions: int, n_patterns: int) -> nn.ModuleDict:
    """The four networks of one member, in double precision."""
    return nn.ModuleDict(
        {
            'f': Mapper(n_regions, n_patterns),
            'g1': Decomposer(n_regions, n_patterns),
            'g2': Perceptron(n_regions, n_patterns),
            'D': Perceptron(n_regions, 2),
        }
    ).double()


def stacked_name(module_name: str) -> str:
    """The stacked code's name of a parameter: `g2.layer1.bias` is `g2.layer1_bias` there."""
    layer, kind = module_name.rsplit('.', 1)
    return layer if kind == 'weight' else f'{layer}_bias'


def load_member(modules: nn.Module, weights: Mapping[str, Tensor], member: int) -> None:
    """Copy one member's stacked weights; torch's linear layers hold theirs transposed."""
    for name, parameter in modules.named_parameters():
        value = weights[stacked_name(name)][member].detach().T
        parameter.data.copy_(value.reshape(parameter.shape))


def member_weights(modules: nn.Module) -> dict[str, Tensor]:
    """The weights under the names and in the shapes of the stacked code, without its first axis."""
    return {
        stacked_name(name): torch.atleast_2d(parameter.detach()).T
        if parameter.ndim == 2
        else parameter.detach()[None]
        for name, parameter in modules.named_parameters()
    }


def copula(phi: Tensor) -> TransformedDistribution:
    """Gaussian copula whose correlation has the Cholesky factor `cholesky_rows(phi)`."""
    factor = cholesky_rows(phi)
    normal = MultivariateNormal(factor.new_zeros(len(factor)), scale_tril=factor)
    to_uniform = CumulativeDistributionTransform(Normal(factor.new_zeros(()), 1.0))
    return TransformedDistribution(normal, to_uniform)


def cholesky_rows(phi: Tensor) -> Tensor:
    """Row i: the first i + 1 entries of phi's row at length 1, the last of them made positive."""
    rows = []
    for i, row in enumerate(phi):
        unit = row[: i + 1] / row[: i + 1].norm()
        rows.append(torch.cat([unit[:i], unit[i:].abs(), row.new_zeros(len(phi) - i - 1)]))
    return torch.stack(rows)


def only(z: Tensor, pattern: int) -> Tensor:
    """The latent vector with this component of z, the others zero."""
    alone = torch.zeros_like(z)
    alone[:, pattern] = z[:, pattern]
    return alone


class Member:
    """One member and its optimisers; `step` follows Algorithm 1 and the authors' program."""

    def __init__(
        self, weights: Mapping[str, Tensor], member: int, ortho: float, hyper: HyperParameters
    ) -> None:
        self.n_patterns, n_codes = weights['f.latent'].shape[1:]
        n_regions = weights['f.encode1'].shape[1]
        assert n_codes == n_regions // 4
        self.hyper, self.ortho = hyper, ortho
        self.modules = networks(n_regions, self.n_patterns)
        load_member(self.modules, weights, member)
        self.f, self.g1, self.g2, self.D = (self.modules[name] for name in ('f', 'g1', 'g2', 'D'))
        trained = chain(self.f.parameters(), self.g1.parameters(), self.g2.parameters())
        self.mapper_adam = torch.optim.Adam(
            trained, lr=hyper.lr, betas=hyper.betas, weight_decay=hyper.weight_decay
        )
        self.critic_adam = torch.optim.Adam(
            self.D.parameters(), lr=hyper.lr * hyper.discriminator_lr_ratio, betas=hyper.betas
        )
        self.phi = None
        if hyper.alpha is not None:
            self.phi = nn.Parameter(weights['copula.phi'][member].detach().double().clone())
            self.copula_adam = torch.optim.Adam(
                [self.phi], lr=hyper.lr * hyper.copula_lr_ratio, betas=hyper.betas
            )

    def state(self) -> dict[str, Tensor]:
        """All weights, named and shaped as one member of the stacked code."""
        state = member_weights(self.modules)
        return state if self.phi is None else {**state, 'copula.phi': self.phi.detach()}

    def verdict(
        self, people: Tensor, truth: int, density: Tensor, factors: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """Cross entropy of D, each person weighted by the density of their latent vector."""
        scale = self.hyper.discriminator_scale
        seen = people if scale == 1 else (people - 1) * scale
        target = torch.full((len(people),), truth)
        entropy = F.cross_entropy(self.D(seen, factors), target, reduction='none')
        return (entropy * density).mean()

    def step(
        self, draws: Draws, factors: tuple[tuple[Tensor, Tensor], ...] = (None, None, None)
    ) -> dict[str, float]:
        """Train on one batch; `factors` belong to D on real, synthesised, and f's own step."""
        x, y, z, later, cn = draws
        hyper, patterns = self.hyper, range(self.n_patterns)
        on_real, on_synthesised, on_mapping = factors
        now = [self.f(x, only(z, i)) for i in patterns]
        then = [self.f(x, only(later, i)) for i in patterns]
        fake = x + sum(now)
        density = x.new_ones(len(x)) if self.phi is None else copula(self.phi).log_prob(z).exp()
        weight = density.detach()

        critic = 0.5 * (
            self.verdict(fake.detach(), SYNTHESISED, weight, on_synthesised)
            + self.verdict(y, REAL, weight, on_real)
        )
        self.critic_adam.zero_grad()
        critic.backward()
        nn.utils.clip_grad_norm_(self.D.parameters(), hyper.max_gradient_norm)
        self.critic_adam.step()

        if self.phi is not None:
            self._step_copula(fake.detach(), density, on_mapping)

        decomposed = self.g1(fake)
        terms = {
            'mapping': self.verdict(fake, REAL, weight, on_mapping),
            'change': F.l1_loss(fake, x),
            'decomposition': F.mse_loss(torch.stack(decomposed), torch.stack(now)),
            'reconstruction': F.mse_loss(
                torch.stack([self.g2(part) for part in decomposed]),
                torch.stack([only(z, i) for i in patterns]),
            ),
            'orthogonality': overlap([torch.cat(pair).mean(0) for pair in zip(now, then)]),
            'monotonicity': torch.stack(
                [(before.abs() - after.abs()).clamp(min=0) ** 2 for before, after in zip(now, then)]
            ).mean(),
            'cn': self.f(x, cn).abs().mean(),
        }
        objective = (
            hyper.adversarial * terms['mapping'] / weight.mean()
            + hyper.gamma * terms['change']
            + hyper.kappa * terms['decomposition']
            + hyper.zeta * terms['reconstruction']
            + self.ortho * terms['orthogonality']
            + hyper.mu * terms['monotonicity']
            + hyper.eta * terms['cn']
        )
        self.mapper_adam.zero_grad()
        objective.backward()
        nn.utils.clip_grad_norm_(self.f.parameters(), hyper.max_gradient_norm)
        self.mapper_adam.step()
        for network in (self.f, self.g1, self.g2):
            for parameter in network.parameters():
                parameter.data.clamp_(-hyper.lipschitz, hyper.lipschitz)
        return {'discriminator': critic.item()} | {
            name: term.item() for name, term in terms.items()
        }

    def _step_copula(
        self, fake: Tensor, density: Tensor, factors: tuple[Tensor, Tensor] | None
    ) -> None:
        with torch.no_grad():
            entropy_of_one = [
                self.verdict(
                    fake[i : i + 1],
                    REAL,
                    fake.new_ones(1),
                    None if factors is None else tuple(factor[i : i + 1] for factor in factors),
                )
                for i in range(len(fake))
            ]
        independent = copula(torch.eye(self.n_patterns, dtype=fake.dtype)).base_dist
        prior = kl_divergence(independent, copula(self.phi).base_dist)
        loss = (torch.stack(entropy_of_one) * density).mean() + self.hyper.alpha * prior
        self.copula_adam.zero_grad()
        loss.backward()
        self.copula_adam.step()


def overlap(mean_changes: list[Tensor]) -> Tensor:
    """Mean squared difference between the cosines of all pairs of patterns and the identity."""
    sizes = [change.abs() for change in mean_changes]
    squares = [
        (F.cosine_similarity(a, b, dim=0) - (1.0 if i == j else 0.0)) ** 2
        for i, a in enumerate(sizes)
        for j, b in enumerate(sizes)
    ]
    return torch.stack(squares).mean()
