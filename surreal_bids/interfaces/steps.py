"""What all interfaces of the participant level share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nipype.interfaces.base import SimpleInterface

WARNINGS = 'warnings.txt'
"""File in the working folder of a step with what it has warned of, if anything."""


class Step(SimpleInterface):
    """An interface whose warnings stay with its results, where the record finds them."""

    def run(
        self, cwd: str | None = None, ignore_exception: bool | None = None, **inputs: Any
    ) -> Any:
        """Run as any interface of Nipype does."""
        with _kept_warnings(Path(cwd or Path.cwd()) / WARNINGS):
            return super().run(cwd=cwd, ignore_exception=ignore_exception, **inputs)


@contextmanager
def _kept_warnings(path: Path) -> Iterator[None]:
    """Write warnings of this package to a file, which is there only if there are some."""
    path.unlink(missing_ok=True)
    handler = logging.FileHandler(path, encoding='utf-8', delay=True)
    handler.setLevel(logging.WARNING)
    logger = logging.getLogger('surreal_bids')
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


def warnings_in(folder: Path) -> list[str]:
    """What the steps of a workflow have warned of, each once."""
    lines = [
        line
        for path in sorted(folder.rglob(WARNINGS))
        for line in path.read_text(encoding='utf-8').splitlines()
    ]
    return list(dict.fromkeys(lines))
