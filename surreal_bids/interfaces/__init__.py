"""Nipype interfaces; each one loads files, calls one function and saves the result."""

import os

# Must be set before the first interface, or Nipype asks a server for its newest version.
os.environ.setdefault('NIPYPE_NO_ET', '1')

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nipype.interfaces.base import SimpleInterface

from surreal_bids.cautions import Caution, CheckList
from surreal_bids.exceptions import SurrealError
from surreal_bids.files import system_error, write_json
from surreal_bids.progress import STATUS, reporting_to

ERROR = 'error.json'
"""File with the `exit_code` and `message` of an error, in the folder of the step that failed.

Nipype itself only reports the traceback as text.
"""

WARNINGS = 'warnings.json'
"""File with the warnings of a step, in its folder."""


class Step(SimpleInterface):
    """Base class of all interfaces; subclasses define `_run_step` instead of `_run_interface`.

    Warnings are stored for the record of the outputs.
    """

    def _run_interface(self, runtime: Any) -> Any:
        record = Path(runtime.cwd) / ERROR
        record.unlink(missing_ok=True)
        try:
            with _kept_warnings(runtime.cwd), reporting_to(Path(runtime.cwd) / STATUS):
                return self._run_step(runtime)
        except SurrealError as error:
            _keep_error(record, error)
            raise
        except (OSError, MemoryError) as error:
            known = system_error(error)
            if known is None:
                raise
            _keep_error(record, known)
            raise known from error

    def _run_step(self, runtime: Any) -> Any:
        """Run the step and return `runtime`."""
        raise NotImplementedError


def _keep_error(record: Path, error: SurrealError) -> None:
    with suppress(OSError):
        write_json(record, {'exit_code': error.exit_code, 'message': str(error)})


@contextmanager
def _kept_warnings(folder: str) -> Iterator[None]:
    """Write warnings of this package to a file; without warnings, there is no file."""
    path, kept, logger = Path(folder) / WARNINGS, CheckList(), logging.getLogger('surreal_bids')
    path.unlink(missing_ok=True)
    logger.addHandler(kept)
    try:
        yield
    finally:
        logger.removeHandler(kept)
        if kept.cautions:
            write_json(path, kept.cautions)


def warnings_in(folder: Path) -> list[Caution]:
    """Collect the warnings of the steps of a workflow, without repetitions."""
    found = [
        Caution(*each)
        for path in sorted(folder.rglob(WARNINGS))
        for each in json.loads(path.read_text(encoding='utf-8'))
    ]
    return list(dict.fromkeys(found))
