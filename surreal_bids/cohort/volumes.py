"""Regional volumes of all visits, from the outputs of the participant level."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd

from surreal_bids.bids.outputs import Record, output_path
from surreal_bids.cohort.visits import in_order
from surreal_bids.exceptions import DataError
from surreal_bids.names import Visit, is_label, visit_name, without_prefix
from surreal_bids.regions import region_names
from surreal_bids.tables import Table, read_table
from surreal_bids.text import list_briefly

ICV = 'icv'
"""Name of the column of head size."""

MUSE_COLUMN = 'MUSE_{}'
"""Column of a MUSE region; the JSON sidecar has the name of the region."""


def find_segmented(output_dir: Path, atlas: str) -> dict[Visit, Path]:
    """Find the volumes of an atlas that complete runs of the participant level wrote, by visit."""
    found: dict[Visit, Path] = {}
    for folder in output_dir.glob('sub-*'):
        participant = without_prefix(folder.name, 'sub')
        sessions = [None, *(path.name[len('ses-') :] for path in folder.glob('ses-*'))]
        for session in sessions:
            if is_label(participant) and (session is None or is_label(session)):
                visit = participant, session
                path = _output(output_dir, 'segmentation_volumes', visit, atlas)
                if path.is_file() and _is_current(output_dir, visit, path):
                    found[visit] = path
    return {visit: found[visit] for visit in in_order(found)}


def _is_current(output_dir: Path, visit: Visit, path: Path) -> bool:
    """Tell whether a file is of the last run for a visit, and that run is complete."""
    record = Record.read(output_dir, visit)
    return not record.why_not_done() and path.relative_to(output_dir).as_posix() in record.outputs


def _require_same_options(output_dir: Path, visits: Iterable[Visit]) -> None:
    """Refuse volumes that were measured with different options."""
    first: tuple[str, dict[str, Any]] | None = None
    for visit in visits:
        options = (Record.read(output_dir, visit).made_from or {}).get('options', {})
        first = first or (visit_name(visit), options)
        other = [name for name in options | first[1] if options.get(name) != first[1].get(name)]
        if other:
            raise DataError(
                f'{output_dir}: {visit_name(visit)} and {first[0]} were processed with different '
                f'options ({", ".join(other)}); rerun the participant level for all participants'
            )


def _output(output_dir: Path, name: str, visit: Visit, atlas: str | None = None) -> Path:
    entities = {'atlas': atlas} if atlas else {}
    return output_path(output_dir, name, participant=visit[0], session=visit[1], **entities)


def collect_volumes(output_dir: Path, atlas: str) -> Table:
    """Read all volumes that the participant level wrote.

    The volume of the brain mask becomes the column `icv`, as an approximation of head size.

    Raises
    ------
    DataError
        There are no volumes, or the regions differ between visits.
    """
    found = find_segmented(output_dir, atlas)
    if not found:
        raise DataError(
            f'{output_dir}: no regional volumes (sub-*/anat/*_seg-{atlas}_dseg.tsv) of a complete '
            'run (logs/*_record.json); run the participant level first with this --segmentation, '
            'or add a table with --roi-table'
        )
    _require_same_options(output_dir, found)
    volumes = {visit_name(visit): _read_segmentation(path) for visit, path in found.items()}
    first, expected = next(iter(volumes.items()))
    for visit, regions in volumes.items():
        other = regions.index.symmetric_difference(expected.index)
        if len(other):
            raise DataError(
                f'{output_dir}: {visit} and {first} were segmented into different regions '
                f'({list_briefly(other)}); rerun the participant level for one of them'
            )
    rows = pd.DataFrame(volumes).T[list(expected.index)]
    rows[ICV] = [_mask_volume(_output(output_dir, 'brain_mask', visit)) for visit in found]
    cells = rows.dropna(axis=1, how='all').map(_cell)
    return Table(output_dir, cells.astype(object), list(found))


def _cell(value: float) -> str | None:
    """Write a number as text; None where it is missing."""
    return None if np.isnan(value) else repr(float(value))


def _read_segmentation(path: Path) -> pd.Series:
    """Read the volume of each region, by its column."""
    table = read_table(path)
    muse = region_names()
    columns = [
        MUSE_COLUMN.format(number) if muse.get(int(number or 0)) == name else name
        for number, name in zip(table.categories('index'), table.categories('name'))
    ]
    return table.numbers('volume_mm3').set_axis(columns)


def _mask_volume(path: Path) -> float:
    """Compute the volume of a mask in mm3; NaN if there is no mask."""
    if not path.is_file():
        return np.nan
    mask = nib.Nifti1Image.from_filename(path)
    voxel = float(abs(np.linalg.det(mask.affine[:3, :3])))
    return float(np.count_nonzero(np.asanyarray(mask.dataobj))) * voxel
