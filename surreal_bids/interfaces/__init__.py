"""Nipype interfaces: each loads files, calls one function of a layer below, and saves."""

import os

# Nipype asks a server for its newest version unless this is set before an interface is made.
os.environ.setdefault('NIPYPE_NO_ET', '1')

from contextlib import suppress
from pathlib import Path
from typing import Any

from nipype.interfaces.base import SimpleInterface

from surreal_bids.exceptions import OutputError, SurrealError
from surreal_bids.files import DISK_FULL, cannot_write, write_json

ERROR = 'error.json'
"""File in the folder of a step that failed: `exit_code` and `message` of its error.

Of an exception, Nipype passes on nothing but its traceback as text.
"""


class Step(SimpleInterface):
    """An interface of this package; it defines `_run_step` where others have `_run_interface`."""

    def _run_interface(self, runtime: Any) -> Any:
        record = Path(runtime.cwd) / ERROR
        record.unlink(missing_ok=True)
        try:
            return self._run_step(runtime)
        except SurrealError as error:
            _keep_error(record, error)
            raise
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            full = OutputError(cannot_write(error.filename or runtime.cwd, error))
            _keep_error(record, full)
            raise full from error

    def _run_step(self, runtime: Any) -> Any:
        """Do the work; returns `runtime`."""
        raise NotImplementedError


def _keep_error(record: Path, error: SurrealError) -> None:
    with suppress(OSError):
        write_json(record, {'exit_code': error.exit_code, 'message': str(error)})
