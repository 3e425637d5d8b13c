"""The models that the authors of Surreal-GAN published, which are part of this package.

Their repository is https://github.com/zhijian-yang/SurrealGAN (MIT). The checkpoints there were
converted by `benchmarks/import_checkpoint.py`.
"""

from __future__ import annotations

from importlib.resources import files as package_files
from pathlib import Path

NAMES = {'ad': 'ad', 'ageing': 'ageing', 'aging': 'ageing'}
"""Folders of the published models in this package by the names that users may give."""


def find_model(model: str | Path) -> Path:
    """Return the folder of a model: that of a published name, unless the path exists."""
    path = Path(model)
    if str(path) not in NAMES or path.exists():
        return path
    return Path(str(package_files('surreal_bids') / 'data' / 'models' / NAMES[str(path)]))


def model_name(model: Path) -> str:
    """Return how reports call a model: by its folder, and the one above if its name is usual."""
    folder = model.absolute()
    is_usual = folder.name in ('model', 'models')
    return f'{folder.parent.name}/{folder.name}' if is_usual else folder.name
