"""What interfaces share: images from files, and back into the folder of the node."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from surreal_bids.exceptions import DataError
from surreal_bids.files import write_image
from surreal_bids.imaging.images import Image, like, load_image, same_grid

if TYPE_CHECKING:
    from surreal_bids.imaging.template import Template


def save(runtime: Any, name: str, image: Image) -> str:
    """Write an image into the folder in which a node runs."""
    return os.fspath(write_image(Path(runtime.cwd) / name, image))


def load_brain(t1w_file: str, mask_file: str) -> tuple[Image, Image]:
    """Read a T1w image and its mask; the image is 0 outside of it."""
    t1w, mask = load_image(t1w_file), load_image(mask_file)
    if not same_grid(t1w, mask):
        raise DataError(
            f'{mask_file}: this mask {mask.shape} is not on the grid of {t1w_file} {t1w.shape}; '
            'resample it, or let it be computed'
        )
    inside = np.asarray(mask.dataobj) > 0
    return like(t1w, np.where(inside, t1w.dataobj, 0), np.float32), mask


def load_template(folder: str) -> Template:
    """Read the template that the run has prepared."""
    from surreal_bids.imaging.template import read_template

    return read_template(Path(folder))


def torch_device(name: str) -> str:
    """Where torch works: `auto` is a GPU if there is one."""
    if name != 'auto':
        return name
    import torch

    return 'cuda' if torch.cuda.is_available() else 'cpu'
