"""Processes that start at once."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
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


def fork(command: Callable[[], int]) -> tuple[int, str]:
    """Run a command in a copy of this process; return its code and standard error."""
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        sys.stderr = os.fdopen(writer, 'w', 1)
        os._exit(command())
    os.close(writer)
    with os.fdopen(reader) as stream:
        shown = stream.read()
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), shown
