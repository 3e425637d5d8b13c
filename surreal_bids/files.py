"""Files are complete or absent; a set of files is complete if its marker, written last, is there.

Every file is written under a temporary name and renamed. A command that replaces a set of files
deletes their marker first and writes it last. After a kill, no marker says that a mixture of old
and new files is complete, and the same command resumes.
"""

from __future__ import annotations

import errno
import io
import json
import os
import secrets
import shutil
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surreal_bids.exceptions import (
    DataError,
    InUseError,
    OutputError,
    SurrealError,
    UsageError,
)
from surreal_bids.parallel import in_threads

if TYPE_CHECKING:
    import nibabel as nib
    import pandas as pd
    from filelock import BaseFileLock

CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
"""Errors of writing only: full disk or quota, read-only file system, limit of file sizes."""
RANDOM_BYTES = 4
"""Random part of a temporary name."""
MISSING = 'n/a'
"""Missing value in a table, as defined by BIDS."""


def system_error(error: BaseException) -> SurrealError | None:
    """Return an error of the system as one for users; None if it may be a bug."""
    if isinstance(error, MemoryError):
        return DataError('the data do not fit into the memory; use a machine with more memory')
    if not isinstance(error, OSError) or error.errno is None:
        return None
    if error.errno in CANNOT_WRITE:
        # Of a copy, the second name is that of the new file.
        name = error.filename2 or error.filename or 'the output'
        return OutputError(f'{name}: {error.strerror}')
    return DataError(f'{error.filename or "the output"}: {error.strerror}')


def _cannot_write(path: Path, error: OSError) -> OutputError:
    return OutputError(f'{path}: cannot be written ({error.strerror})')


@contextmanager
def atomic_path(target: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `target`, which replaces it if no error occurs.

    The temporary name is hidden and keeps the extension, which image writers use. Its content is
    flushed to the disk before it replaces `target`, which protects against power failures.
    """
    target = Path(target)
    temporary = target.with_name(f'.{secrets.token_hex(RANDOM_BYTES)}.{target.name}')
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open('rb+') as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        names = {error.filename}
        if error.errno in CANNOT_WRITE and error.filename2 is not None:
            names = {error.filename2}  # The first name of a copy is that of the source.
        is_input = names.isdisjoint({None, *map(os.fspath, (temporary, *target.parents))})
        if error.errno is None or is_input:
            raise
        raise _cannot_write(target, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def replacing(marker: Path, earlier: Iterable[Path] = ()) -> Iterator[None]:
    """Delete a marker, then the files that belong to it; the caller writes the marker last.

    A hidden note beside the marker stays after an error or a kill: see :func:`is_unfinished`.
    """
    note = _note(marker)
    write_text(note, '')
    for path in (marker, *earlier):
        path.unlink(missing_ok=True)
    yield
    note.unlink()


def is_unfinished(marker: Path) -> bool:
    """Whether a command that writes this marker has not ended: files beside it are its own."""
    return _note(marker).exists()


def _note(marker: Path) -> Path:
    return marker.with_name(f'.{marker.name}.unfinished')


@contextmanager
def sole_use(part: str, *folders: Path, wait: float = 0.0) -> Iterator[None]:
    """Lock a participant, the group level or a model in folders against other processes.

    The system releases the locks when a process ends, also between machines that share a disk.

    Parameters
    ----------
    part
        What is locked, in words.
    *folders
        Where it is locked.
    wait
        For how many seconds to wait until another process releases a lock.

    Raises
    ------
    InUseError
        Another process uses it.
    """
    from filelock import Timeout  # Imported here to keep `--help` fast.

    with ExitStack() as locks:
        for folder in dict.fromkeys(Path(folder).resolve() for folder in folders):
            path = folder / f'.{part}.lock'
            try:
                folder.mkdir(parents=True, exist_ok=True)
                lock = _acquired(path, wait)
            except Timeout as error:
                raise InUseError(
                    f'{folder}: another run is using it for {part}; wait until it ends, or choose '
                    'another folder'
                ) from error
            except OSError as error:
                raise _cannot_write(folder, error) from error
            locks.callback(lock.release)
            locks.callback(path.unlink, missing_ok=True)
        yield


def _acquired(path: Path, wait: float) -> BaseFileLock:
    """Lock a file; a disk without locks, such as NFS without its lock service, has a marker."""
    from filelock import FileLock, SoftFileLock

    lock = FileLock(path, timeout=wait)
    try:
        lock.acquire()
    except OSError as error:
        if error.errno != errno.ENOLCK:
            raise
        # Another file: the one above exists now, whether or not a run holds it.
        lock = SoftFileLock(path.with_name(f'{path.name}ed'), timeout=wait)
        lock.acquire()
    return lock


def require_file(path: str | Path) -> None:
    """Refuse a broken link, as datasets of DataLad have before their content is fetched."""
    if Path(path).is_symlink() and not Path(path).exists():
        raise DataError(f'{path}: broken link; fetch the content (datalad get)')


def read_file(path: str | Path) -> bytes:
    """Read a file, or say that it is a broken link."""
    require_file(path)
    return Path(path).read_bytes()


def read_option_file(option: str, path: Path) -> str:
    """Read the text of a file that was given with an option."""
    try:
        return path.read_text(encoding='utf-8-sig')
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else 'not UTF-8 text'
        raise UsageError(f'{option} {path}: {reason}; correct the path or the file') from error


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


def copy_file(source: str | Path, target: str | Path) -> None:
    """Copy a file; the target is complete or absent."""
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)


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
