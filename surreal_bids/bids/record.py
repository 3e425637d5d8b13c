"""Whether the outputs of a participant are complete, and made from what there is now."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from surreal_bids import __version__
from surreal_bids.bids.derivatives import output_path
from surreal_bids.bids.participants import Visit
from surreal_bids.files import write_json

CHUNK = 1 << 20
"""Bytes of a file held in memory at a time while its digest is taken."""


def digest_of(path: Path) -> str:
    """SHA-256 of a file's content: touching or copying a file does not change it."""
    digest = hashlib.sha256()
    with path.open('rb') as stream:
        for chunk in iter(lambda: stream.read(CHUNK), b''):
            digest.update(chunk)
    return digest.hexdigest()


def digest_of_files(paths: Iterable[Path]) -> str:
    """One digest of several files, of their names and content, in any order."""
    entries = sorted(f'{path.name} {digest_of(path)}' for path in paths)
    return hashlib.sha256('\n'.join(entries).encode()).hexdigest()


def fingerprint(files: Iterable[Path], options: Mapping[str, Any]) -> dict[str, Any]:
    """What the outputs of a participant depend on.

    Parameters
    ----------
    files
        The T1w image, and what is reused of other programs.
    options
        Those that change the outputs, as JSON can hold them.
    """
    digests = {path.name: digest_of(path) for path in files}
    return {'version': __version__, 'inputs': digests, 'options': dict(options)}


def record_path(root: Path, visit: Visit) -> Path:
    """Path of the record of one participant and session."""
    participant, session = visit
    return output_path(root, 'record', participant=participant, session=session)


def write_record(
    path: Path,
    root: Path,
    made_from: Mapping[str, Any],
    outputs: Iterable[Path],
    warnings: Sequence[str] = (),
) -> Path:
    """Note what was written, with sizes, and what from; the last thing to be written.

    Parameters
    ----------
    path
        Path of the record.
    root
        The output folder.
    made_from
        The fingerprint of what the outputs depend on.
    outputs
        All files that were written.
    warnings
        What people should know of them.
    """
    sizes = {output.relative_to(root).as_posix(): output.stat().st_size for output in outputs}
    content = {'made_from': made_from, 'outputs': dict(sorted(sizes.items()))}
    return write_json(path, {**content, 'warnings': list(warnings)})


def read_record(path: Path) -> dict[str, Any] | None:
    """Read a record; None where there is none, or none that can be used."""
    try:
        content = json.loads(path.read_text(encoding='utf-8'))
    except (OSError, ValueError):
        return None
    complete = isinstance(content, dict) and {'made_from', 'outputs'} <= content.keys()
    return content if complete else None


def why_not_done(root: Path, record: Mapping[str, Any] | None, made_from: Mapping[str, Any]) -> str:
    """Say why a participant has to be processed; empty where all outputs are there and current."""
    if record is None:
        return 'not processed yet'
    before = record['made_from']
    changed = [part for part in made_from if before.get(part) != made_from[part]]
    if changed:
        return f'{" and ".join(changed)} changed since the outputs were made'
    missing = [name for name, size in record['outputs'].items() if _size(root / name) != size]
    return f'{missing[0]} is missing or was changed' if missing else ''


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None
