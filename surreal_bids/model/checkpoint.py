"""Checkpoints of a training run: tensors and plain JSON in one safetensors file."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from surreal_bids import __version__
from surreal_bids.exceptions import DataError
from surreal_bids.files import atomic_path
from surreal_bids.model.settings import HyperParameters


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
