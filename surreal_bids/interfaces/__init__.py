"""Nipype interfaces; each one loads files, calls one function and saves the result."""

import os

# Must be set before the first interface, or Nipype asks a server for its newest version.
os.environ.setdefault('NIPYPE_NO_ET', '1')

from contextlib import suppress
from pathlib import Path
from typing import Any

from nipype.interfaces.base import SimpleInterface

from surreal_bids.exceptions import SurrealError
from surreal_bids.files import system_error, write_json
from surreal_bids.progress import STATUS, reporting_to

ERROR = 'error.json'
"""File with the `exit_code` and `message` of an error, in the folder of the step that failed.

Nipype itself only reports the traceback as text.
"""


class Step(SimpleInterface):
    """Base class of all interfaces; subclasses define `_run_step` instead of `_run_interface`."""

    def _run_interface(self, runtime: Any) -> Any:
        record = Path(runtime.cwd) / ERROR
        record.unlink(missing_ok=True)
        try:
            with reporting_to(Path(runtime.cwd) / STATUS):
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
