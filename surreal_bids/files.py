"""Atomic writes, and locks on folders.

A file appears under its final name when it is complete, or not at all.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import secrets
import shutil
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import dropwhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surreal_bids.exceptions import OutputError, UsageError

if TYPE_CHECKING:
    import nibabel as nib
    import pandas as pd
    from filelock import BaseFileLock

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
    descriptor = os.open(path, os.O_RDWR)  # Windows flushes only what can be written
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: str | Path, text: str) -> Path:
    """Write a text file atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding='utf-8', newline='\n')
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
"""File that a process locks while it reads and writes the list of runs."""

RUNS = '.surreal_bids.runs.json'
"""List of the runs that use a folder; the last one deletes it."""

LOCK_SECONDS = 60.0
"""Longest wait for the list of runs, which each run only needs for a moment."""

OWN: set[str] = set()
"""Names of the runs of this process, which may lock a folder twice."""

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of file systems without locks."""


@contextmanager
def sole_use(folder: str | Path, parts: Iterable[str]) -> Iterator[None]:
    """Lock parts of a folder against other processes.

    A part is a unit of work, such as a participant; jobs with different participants can share a
    folder. Each run locks a file of its own for as long as it lasts. The system releases this lock
    whenever a process ends, also between machines that share a disk. File systems without locks
    only give a warning.

    Raises
    ------
    OutputError
        Another process uses a part; the message names it.
    """
    folder = Path(folder)
    is_new = not folder.exists()
    run = Run.this_process(parts)
    try:
        with _locked(folder, run):
            yield
    finally:
        if is_new:
            with suppress(OSError):
                folder.rmdir()  # unless there is something in it


@contextmanager
def _locked(folder: Path, run: Run) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _enter(folder, run)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(cannot_write(folder, error)) from error
    OWN.add(run.name)
    try:
        yield
    finally:
        OWN.remove(run.name)
        with suppress(OSError):
            _leave(folder, run, lock)


@dataclass(frozen=True)
class Run:
    """A process that uses parts of a folder."""

    name: str
    pid: int
    host: str
    since: str
    parts: tuple[str, ...]

    @classmethod
    def this_process(cls, parts: Iterable[str]) -> Run:
        """Describe this process under a new name."""
        since = f'{datetime.now().astimezone():%Y-%m-%d %H:%M:%S}'
        name = secrets.token_hex(RANDOM_BYTES)
        return cls(name, os.getpid(), socket.gethostname(), since, tuple(sorted(set(parts))))

    def __str__(self) -> str:
        return f'process {self.pid} on {self.host}, since {self.since}'

    def shared(self, other: Run) -> set[str]:
        """Return the parts that another run also uses."""
        return set(self.parts) & set(other.parts)

    def lock(self, folder: Path) -> BaseFileLock:
        """Return the lock that the process holds while it runs."""
        return _file_lock(folder / f'.surreal_bids.{self.name}.lock')

    def has_ended(self, folder: Path) -> bool:
        """Tell whether the process no longer holds its lock; its file is then deleted."""
        lock = self.lock(folder)
        try:
            lock.acquire(timeout=0)
        except TimeoutError:
            return False
        _remove(lock)
        return True


def _enter(folder: Path, run: Run) -> BaseFileLock | None:
    """Lock the parts of a run; None on a file system without locks."""
    try:
        with _list_of_runs(folder) as runs:
            others = [each for each in runs if not (each.shared(run) and each.has_ended(folder))]
            for other in others:
                if other.shared(run) and other.name not in OWN:
                    raise OutputError(
                        f'{folder}: another run is using it for {min(other.shared(run))} '
                        f'({other}); wait until it ends, or choose another folder'
                    )
            _write_runs(folder, [*others, run])
            lock = run.lock(folder)
            lock.acquire()
            return lock
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        LOGGER.warning(
            '%s: this file system has no locks. Make sure that no other run uses it.', folder
        )
        return None


def _leave(folder: Path, run: Run, lock: BaseFileLock | None) -> None:
    """Release the lock of a run. The last one deletes all files of locks."""
    if lock is None:
        return
    with _list_of_runs(folder) as runs:
        _remove(lock)
        others = [other for other in runs if other.name != run.name]
        # From the first that still runs on, no other has to be asked.
        _write_runs(folder, list(dropwhile(lambda other: other.has_ended(folder), others)))


@contextmanager
def _list_of_runs(folder: Path) -> Iterator[list[Run]]:
    """Yield the runs of a folder while no other process can change the list."""
    lock = _file_lock(folder / LOCK)
    try:
        lock.acquire(timeout=LOCK_SECONDS)
    except TimeoutError as error:
        raise OutputError(
            f'{folder}: another run is using it and keeps {lock.lock_file} locked; wait until it '
            'ends, or choose another folder'
        ) from error
    try:
        yield _read_runs(folder)
    finally:
        if (folder / RUNS).exists():
            lock.release()
        else:
            _remove(lock)


def _read_runs(folder: Path) -> list[Run]:
    """Read the list of runs; a missing or damaged list is empty."""
    try:
        listed = json.loads((folder / RUNS).read_text(encoding='utf-8'))
        return [Run(**{**each, 'parts': tuple(each['parts'])}) for each in listed]
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return []


def _write_runs(folder: Path, runs: list[Run]) -> None:
    if runs:
        write_json(folder / RUNS, [asdict(run) for run in runs])
    else:
        (folder / RUNS).unlink(missing_ok=True)


def _file_lock(path: Path) -> BaseFileLock:
    # Imported here, because it takes as long as the rest of this module.
    from filelock import FileLock

    return FileLock(path, fallback_to_soft=False)


def _remove(lock: BaseFileLock) -> None:
    """Release a lock and delete its file: while it is locked, or afterwards on Windows."""
    from filelock import has_fcntl

    path = Path(lock.lock_file)
    if has_fcntl:
        path.unlink(missing_ok=True)
    lock.release()
    if os.name == 'nt':
        with suppress(OSError):
            path.unlink(missing_ok=True)
