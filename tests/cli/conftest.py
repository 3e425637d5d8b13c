"""Commands that start at once."""

import os
import sys
from collections.abc import Callable


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
