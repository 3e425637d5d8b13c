"""People of the dataset as intermediate templates (MAGeT-Brain, Chakravarty et al., 2013)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from surreal_bids.bids.visit import VisitOutputs
from surreal_bids.files import atomic_path, write_image, write_text
from surreal_bids.imaging.atlas import AtlasSet, read_atlas_set
from surreal_bids.imaging.images import like, load_image


def write_library(folder: Path, visits: Sequence[VisitOutputs], regions_file: Path) -> AtlasSet:
    """Write the brains and regions of visits as an atlas set.

    Parameters
    ----------
    folder
        Where to; files that are there and current are kept, so that steps that used them hold.
    visits
        Outputs of the people of the library.
    regions_file
        Table of the regions.
    """
    for visit in visits:
        t1w, dseg = visit.path('t1w'), visit.path('segmentation')
        target = folder / f'{visit.name}_T1w.nii.gz'
        if target.is_file() and target.stat().st_mtime >= t1w.stat().st_mtime:
            continue
        copy_file(dseg, folder / f'{visit.name}_dseg.nii.gz')
        image, mask = load_image(t1w), load_image(visit.path('brain_mask'))
        inside = np.asarray(mask.dataobj) > 0
        write_image(target, like(image, np.where(inside, image.dataobj, 0), np.float32))
    copy_file(regions_file, folder / 'dseg.tsv')
    write_text(
        folder / 'LICENSE', 'That of the dataset, and of the atlas its people were labelled with\n'
    )
    return read_atlas_set(folder)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file atomically."""
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)
