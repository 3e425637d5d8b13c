"""Model files and checkpoints: safetensors and JSON, never pickle."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from surreal_bids import __version__
from surreal_bids.exceptions import DataError
from surreal_bids.files import atomic_path, write_json
from surreal_bids.model.settings import HyperParameters

TENSORS = 'model.safetensors'
CARD = 'model.json'
CHECKPOINTS = 'checkpoints'
"""Folder inside a bundle's in which an unfinished training keeps its state."""
FORMAT = 1
"""Raised when a bundle of this version cannot be read by an older one."""


def save_bundle(folder: str | Path, tensors: dict[str, Tensor], card: dict[str, Any]) -> Path:
    """Write a bundle; the card comes last, so that a folder with a card is complete."""
    folder = Path(folder)
    (folder / CARD).unlink(missing_ok=True)
    with atomic_path(folder / TENSORS) as temporary:
        save_file({name: value.cpu().contiguous() for name, value in tensors.items()}, temporary)
    write_json(folder / CARD, {'Format': FORMAT} | card)
    return folder


def load_bundle(folder: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a bundle: its tensors and its card. Nothing in it is executed."""
    folder = Path(folder)
    missing = [name for name in (CARD, TENSORS) if not (folder / name).is_file()]
    if missing:
        remedy = 'give the folder that surreal-gan fit or import-checkpoint wrote'
        if (folder / CHECKPOINTS).is_dir():
            remedy = 'its training has not ended: repeat the same surreal-gan fit to go on with it'
        raise DataError(f'{folder}: not a model, since it lacks {" and ".join(missing)}; {remedy}')
    try:
        card = json.loads((folder / CARD).read_text(encoding='utf-8'))
        tensors = load_file(folder / TENSORS)
    except (json.JSONDecodeError, SafetensorError) as error:
        raise DataError(
            f'{folder}: this model is damaged ({error}); copy or fit it anew'
        ) from error
    if card.get('Format') != FORMAT:
        raise DataError(
            f'{folder / CARD}: a model of format {card.get("Format")}, but this version reads '
            f'format {FORMAT}; use the version that wrote it: {card.get("GeneratedBy")}'
        )
    return tensors, card


def fingerprint(hyper: HyperParameters, numbers: dict[str, Any], *arrays: Tensor) -> str:
    """Tell one run from another: a hash of its settings and data, and of this program's version."""
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
        save_file(
            {name: value.contiguous() for name, value in tensors.items()}, temporary, metadata
        )


def load_checkpoint(
    path: Path, owner: str, device: torch.device
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and progress of a checkpoint; one of another run is an error, never used."""
    try:
        with safe_open(path, framework='pt', device=str(device)) as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise DataError(
            f'{path}: not a checkpoint, or a damaged one ({error}); delete it to start anew'
        ) from error
    if metadata.get('owner') != owner:
        raise DataError(
            f'{path}: this checkpoint belongs to a run with other data, settings or version; '
            'delete it (surreal-gan fit: --overwrite), or choose another folder for checkpoints'
        )
    return tensors, json.loads(metadata['progress'])
