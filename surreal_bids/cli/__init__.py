"""Command lines: parse, build one frozen configuration, run."""

import sys
from types import TracebackType


def _end(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """End without a traceback when interrupted (Ctrl-C) before a command starts."""
    if issubclass(kind, KeyboardInterrupt):
        sys.stderr.write('interrupted\n')
    else:
        sys.__excepthook__(kind, error, traceback)


sys.excepthook = _end
