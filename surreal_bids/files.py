"""Atomic writes, and folders that only one run at a time may write to.

A file appears under its final name whole, or not at all.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import secrets
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from surreal_bids.exceptions import OutputError

if TYPE_CHECKING:
    import nibabel as nib
    import pandas as pd

LOGGER = logging.getLogger(__name__)

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""A full disk or quota, or a read-only file system: only writing fails so."""
CANNOT_WRITE = (*DISK_FULL, errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE, errno.ENOTCONN)
"""Also no permission, or a disk or server that has gone."""
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
        raise OutputError(cannot_write(target.parent, error)) from error
    temporary = target.with_name(f'.{secrets.token_hex(RANDOM_BYTES)}.{target.name}')
    try:
        temporary.touch()
        usual_mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(usual_mode)
        _flush(temporary)
        temporary.replace(target)
    except OSError as error:
        if error.errno not in CANNOT_WRITE and target.parent.is_dir():
            raise
        raise OutputError(cannot_write(target, error)) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def cannot_write(target: str | Path, error: OSError) -> str:
    """What to tell of a file or folder that cannot be written."""
    remedy = 'choose an output folder that you may write to'
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = 'free some space, and repeat the same command: it resumes'
    return f'{target}: cannot be written ({error.strerror}); {remedy}'


def refuse_inputs(outputs: Iterable[Path], inputs: Iterable[Path | None]) -> None:
    """Refuse to write over an input, whatever it is called: links are followed."""
    there = [path for path in inputs if path is not None and path.exists()]
    for output in outputs:
        same = [path for path in there if output.exists() and output.samefile(path)]
        if same:
            raise OutputError(f'{output}: would replace the input {same[0]}; choose another name')


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


LOCK = '.surreal_bids.lock'
"""File in a folder in use that lists who uses it; gone when nobody does."""

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""How a file system says that it has no locks."""


@contextmanager
def sole_use(folder: str | Path, parts: Iterable[str]) -> Iterator[None]:
    """Let no other process use the same parts of a folder meanwhile.

    A part is whatever may be worked on alone, such as a participant, so that jobs with different
    participants can share a folder. Locks are of POSIX: the system releases them however a process
    ends, and on NFS they hold among machines unless it is mounted without locks. Where a file
    system has none, a warning is all that can be given.

    Raises
    ------
    OutputError
        Another process uses a part; it is named.
    """
    folder = Path(folder)
    is_new = not folder.exists()
    try:
        file = _lock(folder, sorted(set(parts)))
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(cannot_write(folder, error)) from error
    try:
        yield
    finally:
        # Only the last process that uses the folder gets a lock on all of the file.
        with file, suppress(OSError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (folder / LOCK).unlink()
            if is_new and not any(folder.iterdir()):
                folder.rmdir()


def _lock(folder: Path, parts: list[str]) -> IO[str]:
    """Lock a byte for each part, far beyond the end of the file, and add a line on this process."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    file = path.open('a+', encoding='utf-8')
    for part in parts:
        place = int.from_bytes(hashlib.sha256(part.encode()).digest()[:7], 'big')
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except OSError as error:
            if error.errno in NO_LOCKS:
                LOGGER.warning(
                    '%s: this file system has no locks; make sure that no other run uses it', folder
                )
                break
            raise OutputError(
                f'{folder}: another run is using it for {part} ({_user_of(file, part)}); wait '
                'until it has ended, or choose another folder'
            ) from error
    if not (path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())):
        # Its last user has deleted it between opening and locking.
        file.close()
        return _lock(folder, parts)
    now = f'{datetime.now().astimezone():%Y-%m-%d %H:%M:%S}'
    user = {'pid': os.getpid(), 'host': socket.gethostname(), 'since': now, 'parts': parts}
    file.write(json.dumps(user) + '\n')
    file.flush()
    return file


def _user_of(file: IO[str], part: str) -> str:
    """The process that has last locked a part."""
    file.seek(0)
    with suppress(ValueError):
        for user in reversed([json.loads(line) for line in file]):
            if part in user['parts']:
                return f'process {user["pid"]} on {user["host"]}, since {user["since"]}'
    return f'see {file.name}'
