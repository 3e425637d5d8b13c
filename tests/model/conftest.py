"""Tiny tensors: one thread is faster than two, and leaves the other to other tests."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True, scope='package')
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
