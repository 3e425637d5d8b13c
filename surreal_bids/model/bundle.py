"""A model on disk: a folder with `model.safetensors` (tensors) and `model.json` (the card)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from surreal_bids.exceptions import DataError
from surreal_bids.files import atomic_path, write_json

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
