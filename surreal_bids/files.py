"""Atomic writes: a file appears under its final name whole, or not at all."""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surreal_bids.exceptions import OutputError

if TYPE_CHECKING:
    import nibabel as nib
    import pandas as pd

CANNOT_WRITE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)
"""No permission, a read-only file system, a full disk or quota."""
RANDOM_BYTES = 4
"""Random part of a temporary name."""
MISSING = 'n/a'
"""How BIDS writes a missing value in a table."""


@contextmanager
def atomic_path(target: str | Path) -> Iterator[Path]:
    """Give a temporary path beside `target`; move it there if the block ends without an error.

    The temporary name is hidden and keeps the extension, since image writers look at it. The file
    is as readable as any other, though some writers would keep it to its owner. The content is
    flushed to the disk before the move, so that not even a power cut leaves half a file.
    """
    target = Path(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f'{target.parent}: cannot make this folder ({error.strerror}); '
            'choose an output folder you may write to'
        ) from error
    temporary = target.with_name(f'.{secrets.token_hex(RANDOM_BYTES)}.{target.name}')
    try:
        temporary.touch()
        usual_mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(usual_mode)
        _flush(temporary)
        temporary.replace(target)
    except OSError as error:
        if error.errno not in CANNOT_WRITE:
            raise
        raise OutputError(
            f'{target}: cannot be written ({error.strerror}); '
            'make room there, or choose another output folder'
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(target: str | Path) -> None:
    """Delete what killed writers of this file have left; only for files with a single writer."""
    target = Path(target)
    for leftover in target.parent.glob(f'.{"?" * 2 * RANDOM_BYTES}.{target.name}'):
        leftover.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: str | Path, text: str) -> Path:
    """Write a text file atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding='utf-8')
    return Path(path)


def write_json(path: str | Path, content: Any) -> Path:
    """Write a JSON file atomically; NaN is refused, since JSON has none."""
    return write_text(path, json.dumps(content, indent=2, allow_nan=False) + '\n')


def write_tsv(path: str | Path, table: pd.DataFrame) -> Path:
    """Write a table as BIDS wants it: tab-separated, no index, `n/a` where a value is missing."""
    with atomic_path(path) as temporary:
        table.to_csv(temporary, sep='\t', index=False, na_rep=MISSING, lineterminator='\n')
    return Path(path)


def write_image(path: str | Path, image: nib.Nifti1Image) -> Path:
    """Write a NIfTI image atomically."""
    with atomic_path(path) as temporary:
        image.to_filename(temporary)
    return Path(path)
