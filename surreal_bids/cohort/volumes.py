"""Regional volumes of all visits, from the outputs of the participant level."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd

from surreal_bids.bids.outputs import Record, output_path
from surreal_bids.cohort.visits import in_order
from surreal_bids.exceptions import DataError
from surreal_bids.names import Visit, is_label, visit_name
from surreal_bids.regions import region_names
from surreal_bids.tables import Table, read_table

ICV = 'icv'
"""Name of the column of head size."""

MUSE_COLUMN = 'MUSE_{}'
"""Column of a MUSE region; the JSON sidecar has the name of the region."""


def find_segmented(output_dir: Path, atlas: str) -> dict[Visit, Path]:
    """Find the volumes of an atlas that complete runs of the participant level wrote, by visit.

    Raises
    ------
    DataError
        They were measured with different options.
    """
    found: dict[Visit, Path] = {}
    options: dict[str, dict[str, Any]] = {}
    for path in output_dir.glob(f'sub-*/**/*_seg-{atlas}_dseg.tsv'):
        name = path.relative_to(output_dir)
        participant, *session = (part.partition('-')[2] for part in name.parts[:-2])
        visit = participant, session[0] if session else None
        if not all(map(is_label, (participant, *session))):
            continue
        record = Record.read(output_dir, visit)
        if name.as_posix() in record.outputs and not record.why_not_done():
            found[visit] = path
            options[visit_name(visit)] = (record.made_from or {}).get('options', {})
    _require_same(output_dir, options)
    return {visit: found[visit] for visit in in_order(found)}


def _require_same(output_dir: Path, options: Mapping[str, dict[str, Any]]) -> None:
    """Refuse volumes that were measured with different options."""
    first = min(options, default='')
    for visit, own in options.items():
        other = [name for name in own | options[first] if own.get(name) != options[first].get(name)]
        if other:
            raise DataError(
                f'{output_dir}: {visit} and {first} were processed with different options '
                f'({", ".join(other)}); rerun the participant level for all participants'
            )


def collect_volumes(output_dir: Path, atlas: str) -> Table:
    """Read all volumes that the participant level wrote.

    The volume of the brain mask becomes the column `icv`, as an approximation of head size.

    Raises
    ------
    DataError
        There are no volumes.
    """
    found = find_segmented(output_dir, atlas)
    if not found:
        raise DataError(
            f'{output_dir}: no regional volumes (sub-*/anat/*_seg-{atlas}_dseg.tsv) of a complete '
            'run (logs/*_record.json); run the participant level first with this --segmentation, '
            'or add a table with --roi-table'
        )
    volumes = {visit_name(visit): _read_segmentation(path) for visit, path in found.items()}
    rows = pd.DataFrame(volumes).T
    rows[ICV] = [_mask_volume(output_dir, visit) for visit in found]
    cells = rows.dropna(axis=1, how='all').map(lambda v: None if np.isnan(v) else repr(float(v)))
    return Table(output_dir, cells.astype(object), list(found))


def _read_segmentation(path: Path) -> pd.Series:
    """Read the volume of each region, by its column."""
    table = read_table(path, verbatim=('name',))
    muse = region_names()
    columns = [
        MUSE_COLUMN.format(number) if muse.get(int(number or 0)) == name else name
        for number, name in zip(table.categories('index'), table.categories('name'))
    ]
    return table.numbers('volume_mm3').set_axis(columns)


def _mask_volume(output_dir: Path, visit: Visit) -> float:
    """Compute the volume of a brain mask in mm3; NaN if there is none."""
    path = output_path(output_dir, 'brain_mask', participant=visit[0], session=visit[1])
    if not path.is_file():
        return np.nan
    mask = nib.Nifti1Image.from_filename(path)
    voxel = float(abs(np.linalg.det(mask.affine[:3, :3])))
    return float(np.count_nonzero(np.asanyarray(mask.dataobj))) * voxel
