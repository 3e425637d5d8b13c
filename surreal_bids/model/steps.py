"""Training steps in blocks: random numbers are drawn a block ahead, CUDA replays a captured step.

Nothing in a block waits for the device.

Shapes: T iterations of a block, E members, B people in a batch, S regions, M patterns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum

import torch
from torch import Tensor

from surreal_bids.model.ensemble import LOSSES, Batch, Stack
from surreal_bids.model.latent import latents
from surreal_bids.model.networks import hidden_sizes
from surreal_bids.model.random import batches, random_words, uniforms

BLOCK = 50
"""Iterations whose random numbers are drawn together."""
WARM_UP_STEPS = 3
"""Steps before capture, in which CUDA libraries set themselves up; they are undone."""
WORD_BITS = 32


class Stream(IntEnum):
    """Independent streams of random numbers of one member."""

    CONTROLS = 1
    PATIENTS = 2
    LATENTS = 3
    NOISE = 4


class Steps:
    """Runs training steps of a stack on one sample.

    Parameters
    ----------
    stack
        The members.
    cn, pt
        Controls and patients, (N, S), on the stack's device.
    batch_size
        B.
    """

    def __init__(self, stack: Stack, cn: Tensor, pt: Tensor, batch_size: int) -> None:
        self.stack, self.cn, self.pt, self.batch_size = stack, cn, pt, batch_size
        self.losses = torch.zeros(len(stack.ortho_E), len(LOSSES), device=stack.device)
        self.slot = torch.zeros(1, dtype=torch.int64, device=stack.device)
        self.drawn = self._draw(range(BLOCK))
        self._replay: Callable[[], None] | None = None

    def run(self, iterations: range) -> Tensor:
        """Train over at most one block of iterations; the sum of the losses, (E, len(LOSSES))."""
        for name, fresh in self._draw(iterations).items():
            self.drawn[name][: len(iterations)].copy_(fresh)
        step = self._captured_step() if self.stack.device.type == 'cuda' else self._step
        self.slot.zero_()
        self.losses.zero_()
        for _ in iterations:
            step()
        return self.losses.clone()

    def _draw(self, iterations: range) -> dict[str, Tensor]:
        """All random numbers of these iterations, each (T, E, ...)."""
        keys, size = self.stack.keys_E2, self.batch_size
        n_uniforms = size * 3 * self.stack.n_patterns
        drawn = {
            'controls': batches(keys, iterations, Stream.CONTROLS, len(self.cn), size),
            'patients': batches(keys, iterations, Stream.PATIENTS, len(self.pt), size),
            'latents': uniforms(keys, iterations, Stream.LATENTS, n_uniforms),
        }
        if self.stack.hyper.discriminator_noise:
            n_words = -(-self._n_coins() // WORD_BITS)
            words = random_words(keys, iterations, Stream.NOISE, n_words)
            drawn['noise'] = (words - 2**31).to(torch.int32)
        return drawn

    def _n_coins(self) -> int:
        """Hidden units of D times people, for its own step (two groups) and that of f."""
        return 3 * self.batch_size * sum(hidden_sizes(self.cn.shape[1]))

    def _batch(self) -> Batch:
        """The batch of the current slot; the slot is a tensor, so that a graph can advance it."""
        now = {name: value.index_select(0, self.slot)[0] for name, value in self.drawn.items()}
        return Batch(
            self.cn[now['controls']],
            self.pt[now['patients']],
            latents(now['latents'].unflatten(1, (self.batch_size, -1))),
            self._coins(now['noise']) if 'noise' in now else None,
        )

    def _coins(self, words_EW: Tensor) -> Tensor:
        """Fair coin tosses (E, 3 B, hidden units): a word holds 32 of them."""
        shifts = torch.arange(WORD_BITS, dtype=torch.int32, device=words_EW.device)
        tosses = ((words_EW[..., None] >> shifts) & 1).flatten(1)[:, : self._n_coins()]
        return tosses.unflatten(1, (3 * self.batch_size, -1))

    def _step(self) -> None:
        self.losses += self.stack.step(self._batch())
        self.slot += 1

    def _captured_step(self) -> Callable[[], None]:
        """The step as a CUDA graph, captured on first use."""
        if self._replay is None:
            with tensor_cores():
                self._replay = self._capture()
        return self._replay

    def _capture(self) -> Callable[[], None]:
        """Warm up on a side stream, capture one step, and undo what warming up has trained."""
        before = {name: value.clone() for name, value in self.stack.state().items()}
        side = torch.cuda.Stream(self.stack.device)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.slot.zero_()
            for _ in range(WARM_UP_STEPS):
                self._step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        self.stack.restore(before)
        return graph.replay


@contextmanager
def tensor_cores() -> Iterator[None]:
    """Let matrix products use TF32 (10-bit mantissa), which training does not notice."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision('high')
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
