"""Model files and checkpoints: safetensors and JSON, never pickle."""

from __future__ import annotations

import hashlib
import json
import logging
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from surreal_bids import __version__
from surreal_bids.exceptions import DataError, OutputError, SurrealError
from surreal_bids.files import (
    atomic_path,
    is_unfinished,
    read_file,
    remove_leftovers,
    write_text,
)
from surreal_bids.model.networks import HyperParameters
from surreal_bids.published import NAMES, find_model

LOGGER = logging.getLogger(__name__)

TENSORS = 'model.safetensors'
CARD = 'model.json'
CHECKPOINTS = 'checkpoints'
"""Subfolder with the state of an unfinished training."""
OWNER = 'run.txt'
"""File beside checkpoints that identifies the training."""
FORMAT = 1
"""Increased when older versions cannot read a model of this version."""
TENSORS_SHA256, CARD_SHA256 = 'TensorsSHA256', 'CardSHA256'
"""Keys of the card: checksums of the tensors' file, and of all other values of the card."""


def save_bundle(folder: str | Path, tensors: dict[str, Tensor], card: dict[str, Any]) -> Path:
    """Write tensors and card, linked by checksums.

    Both files are complete before either replaces a file of an earlier model. A full disk leaves
    the earlier model intact.
    """
    folder = Path(folder)
    data = save({name: value.cpu().contiguous() for name, value in tensors.items()})
    card = {'Format': FORMAT} | card | {TENSORS_SHA256: hashlib.sha256(data).hexdigest()}
    card[CARD_SHA256] = _card_checksum(card)
    text = json.dumps(card, indent=2, allow_nan=False) + '\n'
    with atomic_path(folder / CARD) as new_card, atomic_path(folder / TENSORS) as new_tensors:
        new_tensors.write_bytes(data)
        new_card.write_text(text, encoding='utf-8')
    return folder


def _card_checksum(card: dict[str, Any]) -> str:
    values = {name: value for name, value in card.items() if name != CARD_SHA256}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def load_bundle(folder: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors and card of a model, or of a published one by its name.

    Nothing in the files is executed.

    Raises
    ------
    DataError
        The folder is not a model, or a file is damaged, edited or replaced.
    """
    folder = find_model(folder)
    with reading_model(folder):
        missing = [name for name in (CARD, TENSORS) if not (folder / name).is_file()]
    if missing:
        remedy = (
            'give the folder that surreal-gan fit wrote, or the name of a published model '
            f'({", ".join(NAMES)})'
        )
        if (folder / CHECKPOINTS).is_dir() or is_unfinished(folder / CARD):
            remedy = 'the command that writes it has not ended: wait for it, or rerun it to resume'
        found = f'no {" and no ".join(missing)}' if folder.exists() else 'no such folder'
        raise DataError(f'{folder} is not a model: {found}; {remedy}')
    with reading_model(folder / CARD):
        card = dict(json.loads(read_file(folder / CARD).decode()))
    if card.get('Format') != FORMAT:
        raise DataError(
            f'{folder / CARD}: the model has format {card.get("Format")}, but this version reads '
            f'format {FORMAT}; use the version that wrote it: {card.get("GeneratedBy")}'
        )
    with reading_model(folder / TENSORS):
        data = read_file(folder / TENSORS)
        _verify(folder, card, data)
        return load(data), card


def _verify(folder: Path, card: dict[str, Any], data: bytes) -> None:
    """Verify the checksums of both files."""
    if card.get(CARD_SHA256) != _card_checksum(card):
        raise DataError(
            f'{folder / CARD}: the file was edited after it was written. Copy the model again or '
            'train it again'
        )
    if card[TENSORS_SHA256] != hashlib.sha256(data).hexdigest():
        raise DataError(
            f'{folder / TENSORS}: the file is damaged, or does not belong to the {CARD} in the '
            'same folder. Copy both files again or train the model again'
        )


@contextmanager
def reading_model(path: Path) -> Iterator[None]:
    """Convert any error caused by a damaged or manipulated model into one that names the file."""
    try:
        yield
    except SurrealError:
        raise
    except OSError as error:
        raise DataError(f'{path}: cannot be read ({error.strerror})') from error
    except (
        *(SafetensorError, ArithmeticError, AttributeError, LookupError, RecursionError),
        *(RuntimeError, TypeError, ValueError),
    ) as error:
        raise invalid_model(path, _describe_damage(error)) from error


def invalid_model(path: str | Path, problem: str) -> DataError:
    """Make the error for a model that cannot be used."""
    return DataError(
        f'{path}: the model is invalid: {problem}. Copy the model again or train it again'
    )


def _describe_damage(error: Exception) -> str:
    """Describe an error in a file of a model without the words of Python."""
    if isinstance(error, json.JSONDecodeError):
        return f'not valid JSON at line {error.lineno}, column {error.colno}'
    if isinstance(error, UnicodeDecodeError):
        return 'not UTF-8 text'
    return 'a value is missing, or has the wrong type or size'


def fingerprint(hyper: HyperParameters, numbers: dict[str, Any], *arrays: Tensor) -> str:
    """Identify a run by a hash of its settings and data, and of this program's version."""
    settings = [__version__, asdict(hyper), numbers]
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for array in arrays:
        digest.update(repr((tuple(array.shape), str(array.dtype))).encode())
        digest.update(array.cpu().numpy().tobytes())
    return digest.hexdigest()


def save_checkpoint(
    path: Path, tensors: dict[str, Tensor], progress: dict[str, Any], owner: str
) -> None:
    """Write a checkpoint whole or not at all; `owner` is the run's fingerprint."""
    metadata = {'owner': owner, 'progress': json.dumps(progress)}
    with atomic_path(path) as temporary:
        # In Python: safetensors would report a full disk as an error of its own.
        data = save({name: value.cpu().contiguous() for name, value in tensors.items()}, metadata)
        temporary.write_bytes(data)


def load_checkpoint(path: Path, owner: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors, on the CPU, and progress of a checkpoint; those of another run are an error."""
    try:
        with safe_open(path, framework='pt') as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise DataError(
            f'{path}: not a checkpoint, or damaged ({error}); delete it to start again'
        ) from error
    if metadata.get('owner') != owner:
        raise DataError(
            f'{path}: this checkpoint is from a run with other data, settings or version; '
            'delete it (surreal-gan fit: --overwrite), or choose another folder'
        )
    return tensors, json.loads(metadata['progress'])


def checkpoint_path(folder: Path, n_patterns: int, first: int | None) -> Path:
    """Return the checkpoint of all members, or of those of a round that begins with `first`."""
    part = '' if first is None else f'_members-{first:02d}'
    return folder / f'patterns-{n_patterns}{part}.safetensors'


def number_path(folder: Path, owner: str) -> Path:
    """Return the checkpoint of the choice of the number of patterns, by the fingerprint."""
    return folder / f'patterns-number-{owner[:16]}.safetensors'


def list_checkpoints(folder: Path) -> list[Path]:
    """List all checkpoints below a folder."""
    return list(folder.rglob('patterns-*.safetensors'))


def remove_checkpoints(folder: Path) -> None:
    """Remove all checkpoints below a folder, and folders that are then empty."""
    for path in [*list_checkpoints(folder), folder / OWNER]:
        remove_leftovers(path)
        path.unlink(missing_ok=True)
    for path in sorted([*folder.rglob('*'), folder], reverse=True):
        with suppress(OSError):  # It holds files of others, or is a file.
            path.rmdir()


def claim_checkpoints(folder: Path, owner: str, overwrite: bool) -> None:
    """Keep checkpoints of the same training, to resume it; refuse or remove those of another."""
    path = folder / OWNER
    if path.is_file() and read_file(path) == owner.encode():
        return
    if not overwrite and list_checkpoints(folder):
        raise OutputError(
            f'{folder.parent}: holds an unfinished run with other tables, options or version; '
            'choose another folder or use --overwrite'
        )
    remove_checkpoints(folder)
    write_text(path, owner)


def generated_by() -> dict[str, str]:
    """Return the versions that a model is made with, for its card."""
    return {
        'Name': 'surreal_bids',
        'Version': __version__,
        'Torch': torch.__version__,
        'Python': platform.python_version(),
    }
