"""Atomic writes, and locks on folders.

A file appears under its final name when it is complete, or not at all.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import secrets
import shutil
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from surreal_bids.exceptions import OutputError, UsageError

if TYPE_CHECKING:
    import nibabel as nib
    import pandas as pd

LOGGER = logging.getLogger(__name__)

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Errors of writing only: full disk or quota, read-only file system."""
CANNOT_WRITE = (*DISK_FULL, errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE, errno.ENOTCONN)
"""Also missing permission, and a disk or server that is no longer available."""
RANDOM_BYTES = 4
"""Random part of a temporary name."""
MISSING = 'n/a'
"""Missing value in a table, as defined by BIDS."""


@contextmanager
def atomic_path(target: str | Path) -> Iterator[Path]:
    """Yield a temporary path next to `target`, which replaces it if no error occurs.

    The temporary name is hidden and keeps the extension, which image writers use. The file gets
    the default permissions. Its content is flushed to the disk before it replaces `target`, which
    protects against power failures.
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
    """Compose the error message for a file or folder that cannot be written."""
    remedy = 'choose an output folder with write permission'
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = 'free some space and rerun the command to resume'
    return f'{target}: cannot be written ({error.strerror}); {remedy}'


def read_option_file(option: str, path: Path) -> str:
    """Read the text of a file that was given with an option."""
    try:
        return path.read_text(encoding='utf-8-sig')
    except FileNotFoundError as error:
        raise UsageError(f'{option} {path}: no such file; correct the path') from error
    except OSError as error:
        raise UsageError(
            f'{option} {path}: cannot be read ({error.strerror}); check the path'
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f'{option} {path}: not UTF-8 text; correct the file') from error


def refuse_inputs(outputs: Iterable[Path], inputs: Iterable[Path | None]) -> None:
    """Raise an error if an output would replace an input, also through links."""
    there = [path for path in inputs if path is not None and path.exists()]
    for output in outputs:
        same = [path for path in there if output.exists() and output.samefile(path)]
        if same:
            raise OutputError(f'{output}: would replace the input {same[0]}; choose another name')


def remove_leftovers(target: str | Path) -> None:
    """Delete temporary files of interrupted writers; only for files with a single writer."""
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
    """Write a JSON file atomically; NaN raises an error, since JSON does not support it."""
    return write_text(path, json.dumps(content, indent=2, allow_nan=False) + '\n')


def write_tsv(path: str | Path, table: pd.DataFrame) -> Path:
    """Write a table in the format of BIDS: tab-separated, no index, `n/a` for missing values.

    The values of a CSV file are separated by commas.
    """
    separator = ',' if Path(path).suffix.lower() == '.csv' else '\t'
    with atomic_path(path) as temporary:
        table.to_csv(temporary, sep=separator, index=False, na_rep=MISSING, lineterminator='\n')
    return Path(path)


def copy_file(source: Path, target: Path) -> Path:
    """Copy a file; the target is complete or absent."""
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)
    return target


def write_image(path: str | Path, image: nib.Nifti1Image) -> Path:
    """Write a NIfTI image atomically."""
    with atomic_path(path) as temporary:
        image.to_filename(temporary)
    return Path(path)


LOCK = '.surreal_bids.lock'
"""File that lists the processes that use a folder; deleted by the last one."""

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of file systems without locks."""


@contextmanager
def sole_use(folder: str | Path, parts: Iterable[str]) -> Iterator[None]:
    """Lock parts of a folder against other processes.

    A part is a unit of work, such as a participant; jobs with different participants can share a
    folder. The system releases these POSIX locks whenever a process ends. On NFS they also work
    between machines, unless it is mounted without locks. File systems without locks only give a
    warning.

    Raises
    ------
    OutputError
        Another process uses a part; the message names it.
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
    """Lock one byte per part, far beyond the end of the file, and register this process."""
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
                    '%s: this file system has no locks. Make sure that no other run uses it.',
                    folder,
                )
                break
            raise OutputError(
                f'{folder}: another run is using it for {part} ({_user_of(file, part)}); wait '
                'until it ends, or choose another folder'
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
    """Describe the process that last locked a part."""
    file.seek(0)
    with suppress(ValueError):
        for user in reversed([json.loads(line) for line in file]):
            if part in user['parts']:
                return f'process {user["pid"]} on {user["host"]}, since {user["since"]}'
    return f'see {file.name}'
