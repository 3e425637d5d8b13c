"""Random numbers as a pure function of (member, iteration, stream, position).

Each member of a stack draws from its own keyed Philox4x32-10 generator (Salmon et al., SC'11, the
generator behind cuRAND and PyTorch on CUDA), evaluated at a counter. There is no state: what a
member draws does not depend on who else is in the stack, on the device, or on where a killed run
was resumed.

Shapes: T iterations, E ensemble members, N numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from surreal_bids.model.compilation import fused

WORD = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
WORDS_PER_BLOCK = 4
LAMBDA_STEPS = 1_000_000
"""Lambdas are told apart to this part of 1."""
UNIFORM_BITS = 23
"""Uniforms have 23 random bits, so that (k + 1/2) / 2**23 is exact in float32 and inside (0, 1)."""


def member_seeds(
    random_state: int, n_patterns: int, ortho: Sequence[float]
) -> list[np.random.SeedSequence]:
    """One seed per member, given the lambda of each.

    It depends on M, on lambda and on how many members before it share that lambda, not on what
    else is in the stack: trying one more lambda changes none of the others.
    """
    repetitions: Counter[float] = Counter()
    seeds = []
    for value in ortho:
        key = (n_patterns, round(value * LAMBDA_STEPS), repetitions[value])
        seeds.append(np.random.SeedSequence(entropy=random_state, spawn_key=key))
        repetitions[value] += 1
    return seeds


def member_keys(seeds: list[np.random.SeedSequence], device: torch.device) -> Tensor:
    """Philox keys, shape (E, 2), one per member."""
    words = np.stack([seed.generate_state(2, np.uint32) for seed in seeds]).astype(np.int64)
    return torch.from_numpy(words).to(device)


def _multiply(a: int, b: Tensor) -> tuple[Tensor, Tensor]:
    """High and low word of a 32 x 32 bit product (int64 wraps, the mask takes the sign away)."""
    product = b * a
    return (product >> 32) & WORD, product & WORD


def philox(counter: tuple[Tensor, ...], key: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Philox4x32-10 on int64 tensors that hold 32-bit words; all inputs broadcast together."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        high0, low0 = _multiply(MULTIPLIERS[0], c0)
        high1, low1 = _multiply(MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + WEYL[0]) & WORD, (k1 + WEYL[1]) & WORD
    return c0, c1, c2, c3


def random_words(keys_E2: Tensor, iterations: range, stream: int, n: int) -> Tensor:
    """32-bit words, shape (T, E, N), for these iterations of one named stream."""
    device = keys_E2.device
    blocks = torch.arange(-(-n // WORDS_PER_BLOCK), device=device)
    times_T11 = torch.arange(iterations.start, iterations.stop, device=device)[:, None, None]
    zero = torch.zeros_like(times_T11)
    counter = (blocks, times_T11, zero + stream, zero)
    words = fused(philox, device)(counter, (keys_E2[:, :1], keys_E2[:, 1:]))
    stacked = torch.stack(torch.broadcast_tensors(*words), dim=-1)
    return stacked.flatten(start_dim=2)[..., :n]


def uniforms(keys_E2: Tensor, iterations: range, stream: int, n: int) -> Tensor:
    """Float32 uniforms strictly inside (0, 1), shape (T, E, N)."""
    words = random_words(keys_E2, iterations, stream, n)
    return ((words >> (32 - UNIFORM_BITS)).float() + 0.5) / 2**UNIFORM_BITS


def batches(keys_E2: Tensor, iterations: range, stream: int, n: int, size: int) -> Tensor:
    """Row numbers of mini-batches, shape (T, E, size).

    Every epoch is a fresh permutation of the n rows cut into n // size batches; each member
    shuffles by itself.
    """
    per_epoch = n // size
    epochs = range(iterations.start // per_epoch, (iterations.stop - 1) // per_epoch + 1)
    order = random_words(keys_E2, epochs, stream, n).argsort(dim=-1, stable=True)
    cut = order[..., : per_epoch * size].unflatten(-1, (per_epoch, size))
    times = torch.arange(iterations.start, iterations.stop, device=keys_E2.device)
    return cut[times // per_epoch - epochs.start, :, times % per_epoch]
