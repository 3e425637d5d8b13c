"""Atomic writes of files and of sets of files, errors of the system, and locks on folders.

A file appears under its final name when it is complete, or not at all. Files that belong together
are staged, then replaced together.
"""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import secrets
import shutil
import socket
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import dropwhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surreal_bids.cautions import Caution
from surreal_bids.exceptions import DataError, OutputError, SurrealError, UsageError
from surreal_bids.parallel import in_threads

if TYPE_CHECKING:
    import nibabel as nib
    import pandas as pd
    from filelock import BaseFileLock

LOGGER = logging.getLogger(__name__)

CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
"""Errors of writing only: full disk or quota, read-only file system, limit of file sizes."""
NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE, errno.ENOTCONN)
"""Missing permission, and a disk or server that is no longer available."""
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
        is_ours = error.filename == os.fspath(temporary) or not target.parent.is_dir()
        if not is_ours and error.errno not in (*CANNOT_WRITE, *NO_ACCESS):
            raise
        raise OutputError(cannot_write(target, error)) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), 'free some space and rerun the command'),
    errno.EFBIG: 'raise the limit of file sizes (ulimit -f) and rerun the command',
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), 'raise the limit of open files (ulimit -n)'),
    **dict.fromkeys(
        (errno.EIO, errno.ESTALE, errno.ENOTCONN), 'check the disk and rerun the command'
    ),
    errno.ENAMETOOLONG: 'use a shorter name',
    errno.ELOOP: 'correct the links, which form a circle',
    errno.ENOTDIR: 'part of the path is a file; correct the path',
    errno.EISDIR: 'give the name of a file',
    errno.EINVAL: 'correct the path',
    errno.ENOENT: 'correct the path',
    errno.ENOMEM: 'use a machine with more memory',
}
"""What to do about errors of the system."""


def cannot_write(target: str | Path, error: OSError) -> str:
    """Compose the error message for a file or folder that cannot be written."""
    remedy = REMEDIES.get(error.errno or 0, 'choose an output folder with write permission')
    return f'{final_path(target)}: cannot be written ({error.strerror}); {remedy}'


def cannot_read(source: str | Path, error: OSError) -> str:
    """Compose the error message for a file or folder that cannot be read."""
    remedy = REMEDIES.get(error.errno or 0, 'check the path and its permissions')
    return f'{source}: cannot be read ({error.strerror}); {remedy}'


def explain(error: BaseException, place: str = 'the output') -> SurrealError | None:
    """Turn an error of the system into one for users; None if it may be a bug.

    Parameters
    ----------
    error
        The error.
    place
        What was written if the error names no file.
    """
    if isinstance(error, MemoryError):
        return DataError(f'the data do not fit into the memory; {REMEDIES[errno.ENOMEM]}')
    if not isinstance(error, OSError) or error.errno is None:
        return None
    if error.errno in CANNOT_WRITE:
        return OutputError(cannot_write(error.filename or place, error))
    if error.errno not in REMEDIES and error.errno not in NO_ACCESS:
        return None
    remedy = REMEDIES.get(error.errno, 'check its permissions')
    return DataError(f'{error.filename or "a file"}: cannot be used ({error.strerror}); {remedy}')


LARGEST = 1 << 30
"""Size from which a file of text is refused: the largest studies have tables of 0.1 GB."""


def read_file(path: str | Path, largest: int = LARGEST) -> bytes:
    """Read a file; devices and pipes, which may never end, and huge files are refused."""
    require_file(path)
    size = Path(path).stat().st_size
    if size > largest:
        raise DataError(
            f'{path}: {size / 1e9:.1f} GB, but at most {largest / 1e9:.1f} GB can be read; '
            'check that it is the right file'
        )
    return Path(path).read_bytes()


def require_file(path: str | Path) -> None:
    """Refuse broken links, folders, devices and pipes; what is missing fails when it is read."""
    path = Path(path)
    if path.is_symlink() and not path.exists():
        raise DataError(f'{path}: broken link; fetch the content (datalad get)')
    if path.exists() and not path.is_file():
        raise DataError(f'{path}: a folder, device or pipe; replace it with a file')


def read_option_file(option: str, path: Path) -> str:
    """Read the text of a file that was given with an option."""
    try:
        return read_file(path).decode('utf-8-sig')
    except DataError as error:
        raise UsageError(f'{option} {error}') from error
    except FileNotFoundError as error:
        raise UsageError(f'{option} {path}: no such file; correct the path') from error
    except OSError as error:
        raise UsageError(f'{option} {cannot_read(path, error)}') from error
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
    for leftover in target.parent.glob(f'.{"[0-9a-f]" * 2 * RANDOM_BYTES}.{target.name}'):
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


GZIP_START = bytes.fromhex('1f8b08000000000000ff')
"""Header of a gzip file without name and time."""

GZIP_PART = 1 << 22
"""Bytes that a thread compresses at a time; the result depends on it, but not on the threads."""


COPIED_PLANES = 16
"""Planes that are copied at a time: a line of the cache holds as many voxels along the axis."""


def write_image(path: str | Path, image: nib.Nifti1Image, *, level: int = 1) -> Path:
    """Write a NIfTI image atomically; `level` is that of its compression, from 0 (none) to 9."""
    ordered = _in_file_order(image)
    with atomic_path(path) as temporary, temporary.open('wb') as file:
        if Path(path).suffix != '.gz':
            ordered.to_stream(file)
        else:
            stream = io.BytesIO()
            ordered.to_stream(stream)
            file.writelines(_gzipped(stream.getbuffer(), level))
    return Path(path)


def _in_file_order(image: nib.Nifti1Image) -> nib.Nifti1Image:
    """Return an image whose first axis is the fastest in memory, as nibabel writes it."""
    # Imported here to keep `--help` fast.
    import numpy as np
    from nibabel.arrayproxy import is_proxy

    if is_proxy(image.dataobj):
        return image
    values = np.asanyarray(image.dataobj)
    if values.flags.f_contiguous:
        return image
    ordered = np.empty(values.shape, values.dtype, order='F')

    def copy(start: int) -> None:
        ordered[start : start + COPIED_PLANES] = values[start : start + COPIED_PLANES]

    for _ in in_threads(copy, range(0, len(values), COPIED_PLANES)):
        pass
    reordered = type(image)(ordered, image.affine, image.header)
    reordered.header.set_slope_inter(*image.header.get_slope_inter())
    return reordered


def _gzipped(content: memoryview, level: int) -> Iterator[bytes]:
    """Yield a gzip file whose parts are compressed in threads."""
    yield GZIP_START
    places = range(0, len(content), GZIP_PART)
    yield from in_threads(
        lambda start: _deflated(content[start : start + GZIP_PART], level), places
    )
    yield zlib.compressobj(level, wbits=-zlib.MAX_WBITS).flush()
    yield struct.pack('<II', zlib.crc32(content), len(content) % 2**32)


def _deflated(part: memoryview, level: int) -> bytes:
    """Compress a part of a stream that goes on after it."""
    stream = zlib.compressobj(level, wbits=-zlib.MAX_WBITS)
    return stream.compress(part) + stream.flush(zlib.Z_SYNC_FLUSH)


STAGING = '.surreal_bids-'
"""Start of the names of hidden folders with new outputs that are not complete yet."""

NEW, OLD, JOURNAL = 'new', 'old', 'journal.json'
"""In such a folder: new outputs, those they have replaced, and a file that exists meanwhile."""


@contextmanager
def staged(folder: str | Path, part: str, owned: Iterable[Path] = ()) -> Iterator[Path]:
    """Yield a folder for new outputs; at the end, they replace earlier outputs all together.

    After an error, the earlier outputs are there. After a kill while they were being replaced,
    :func:`restore` puts them back. The caller locks `part` with :func:`sole_use`.

    Parameters
    ----------
    folder
        Where the outputs belong. Paths below the yielded folder are those below this one.
    part
        Name of this set of outputs.
    owned
        Outputs of earlier runs; those without a successor are removed.
    """
    folder = Path(folder)
    staging = folder / f'{STAGING}{part}'
    restore(folder, part)
    try:
        (staging / NEW).mkdir(parents=True)
    except OSError as error:
        raise OutputError(cannot_write(folder, error)) from error
    try:
        yield staging / NEW
        _replace_all(folder, staging, owned)
    finally:
        # If this fails too, the journal stays, and the next command restores the outputs.
        with suppress(OSError):
            restore(folder, part)


def _replace_all(folder: Path, staging: Path, owned: Iterable[Path]) -> None:
    """Keep earlier outputs in the staging folder while they are replaced one by one."""
    new = staging / NEW
    names = sorted(path.relative_to(new) for path in new.rglob('*') if path.is_file())
    known = [path.relative_to(folder) for path in owned if os.path.lexists(path)]
    names += [name for name in dict.fromkeys(known) if name not in names]
    write_json(
        staging / JOURNAL, {name.as_posix(): os.path.lexists(folder / name) for name in names}
    )
    for name in names:
        try:
            _replace(folder / name, new / name, staging / OLD / name)
        except OSError as error:
            raise OutputError(cannot_write(folder / name, error)) from error
    (staging / JOURNAL).unlink()


def _replace(target: Path, new: Path, old: Path) -> None:
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, 'a folder of this name exists')
    if os.path.lexists(target):
        _move(target, old)
    if new.exists():
        _move(new, target)


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.replace(target)


def restore(folder: str | Path, part: str) -> None:
    """Undo a replacement that was interrupted: earlier outputs return, new ones are deleted."""
    staging = Path(folder) / f'{STAGING}{part}'
    journal = staging / JOURNAL
    if journal.is_file():
        for name, existed in reversed(json.loads(journal.read_text(encoding='utf-8')).items()):
            target, old, new = Path(folder) / name, staging / OLD / name, staging / NEW / name
            if os.path.lexists(old):
                _move(old, target)
            elif not existed and not new.exists() and target.exists():
                _move(target, new)
        journal.unlink()
    shutil.rmtree(staging, ignore_errors=True)


def restore_interrupted(folder: str | Path, part: str) -> None:
    """Restore outputs whose replacement was killed, unless their writer still runs."""
    if (Path(folder) / f'{STAGING}{part}').exists():
        with sole_use(folder, [part]):
            restore(folder, part)


def is_interrupted(folder: str | Path) -> bool:
    """Whether only some outputs in a folder are replaced: its writer still runs, or was killed."""
    return any(Path(folder).glob(f'{STAGING}*/{JOURNAL}'))


def final_path(path: str | Path) -> Path:
    """Return the path that a file in a staging folder gets in the end."""
    parts = Path(path).parts
    at = [number for number, part in enumerate(parts) if part.startswith(STAGING)]
    return Path(*parts[: at[0]], *parts[at[0] + 2 :]) if at else Path(path)


LOCKS = '.surreal_bids.'
"""Start of the names of hidden files with locks."""

LOCK = f'{LOCKS}lock'
"""File that a process locks while it reads and writes the list of runs."""

RUNS = f'{LOCKS}runs.json'
"""List of the runs that use a folder; the last one deletes it."""

LOCK_SECONDS = 60.0
"""Longest wait for the list of runs, which each run only needs for a moment."""

OWN: set[str] = set()
"""Names of the runs of this process, which may lock a folder twice."""

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of file systems without locks."""


def is_lock(path: Path) -> bool:
    """Whether a file belongs to the locks of a folder."""
    return path.name.startswith(LOCKS)


@contextmanager
def sole_use(folder: str | Path, parts: Iterable[str]) -> Iterator[None]:
    """Lock parts of a folder against other processes.

    A part is a unit of work, such as a participant; jobs with different participants can share a
    folder. Each run locks a file of its own for as long as it lasts. The system releases this lock
    whenever a process ends, also between machines that share a disk. What a killed run leaves in
    the list of runs is deleted by the next one. File systems without locks only give a warning.

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
        # If this fails, the run stays in the list without a lock, and the next one deletes it.
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
        return _file_lock(folder / f'{LOCKS}{self.name}.lock')

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
        (folder / LOCK).unlink(missing_ok=True)
        LOGGER.warning(
            Caution(
                f'{folder}: this file system has no locks',
                'Two runs at once would mix their outputs',
                'Make sure that no other run uses the folder',
            )
        )
        return None


def _leave(folder: Path, run: Run, lock: BaseFileLock | None) -> None:
    """Release the lock of a run. The last one deletes all files of locks."""
    if lock is None:
        return
    try:
        with _list_of_runs(folder) as runs:
            _remove(lock)
            others = [other for other in runs if other.name != run.name]
            # From the first that still runs on, no other has to be asked.
            _write_runs(folder, list(dropwhile(lambda other: other.has_ended(folder), others)))
    finally:
        lock.release()


@contextmanager
def _list_of_runs(folder: Path) -> Iterator[list[Run]]:
    """Yield the runs of a folder while no other process can change the list."""
    lock = _file_lock(folder / LOCK)
    try:
        lock.acquire(timeout=LOCK_SECONDS)
    except TimeoutError as error:
        raise OutputError(
            f'{folder}: another run is using it and does not answer; wait until it ends, or '
            'choose another folder'
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
    if not runs:
        (folder / RUNS).unlink(missing_ok=True)
        return
    # Only one process writes at a time: what a killed one leaves, the next one replaces.
    temporary = folder / f'{RUNS}.new'
    temporary.write_text(json.dumps([asdict(run) for run in runs]), encoding='utf-8')
    temporary.replace(folder / RUNS)


def _file_lock(path: Path) -> BaseFileLock:
    # Imported here, because it takes as long as the rest of this module.
    from filelock import FileLock

    return FileLock(path, fallback_to_soft=False)


def _remove(lock: BaseFileLock) -> None:
    """Release a lock and delete its file; Windows deletes it by itself."""
    from filelock import has_fcntl

    try:
        if has_fcntl:
            Path(lock.lock_file).unlink(missing_ok=True)
    finally:
        lock.release()
