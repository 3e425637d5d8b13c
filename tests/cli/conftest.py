"""Workers of Nipype that start at once."""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def forking_workers() -> Iterator[None]:
    """Fork workers from a server that has imported everything: a new one imports for 3 seconds.

    The server has no threads, so a fork of it cannot hang. Workers have the server's environment.
    """
    context = multiprocessing.get_context('forkserver')
    context.set_forkserver_preload(['surreal_bids.cli.app', 'surreal_bids.cli.execution'])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr('surreal_bids.cli.execution.multiprocessing.get_context', lambda _: context)
        yield


@pytest.fixture
def forked_workers() -> Iterator[None]:
    with forking_workers():
        yield
