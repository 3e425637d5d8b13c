"""Complete reading of image files: headers, voxels, and the checksum at the end."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import nibabel as nib
import numpy as np
from nibabel.arrayproxy import ArrayProxy
from nibabel.spatialimages import SpatialImage

from surreal_bids.cautions import FIGURES, Caution
from surreal_bids.exceptions import DataError
from surreal_bids.files import require_file
from surreal_bids.images import no_orientation, open_image, reading, voxel_volume

CHUNK = 1 << 20
"""Bytes of an image that are read at a time."""


SMALLEST_VOXEL_MM, LARGEST_VOXEL_MM = 0.05, 20.0
"""Plausible voxel sizes; others are errors or in another unit."""

SLAB_MM, LARGEST_VIEW_MM = 60.0, 600.0
"""Fields of view shorter than the first show a part of a head; longer than the second, no head."""

WIDEST_TESTED_MM = 2.1
"""Cube root of the volume of a voxel above which network and registration were never tested."""


@dataclass(frozen=True)
class Voxels:
    """Digest of the voxels of an image, the number that are not finite, and a warning or none."""

    digest: str
    not_finite: int
    doubt: Caution | None = None


FIELD_AXES = (1, 3)
"""Size of the last two axes of a displacement field: one point in time, three components."""

HDF5_SIGNATURE = b'\x89HDF\r\n\x1a\n'
HDF5_END = {0: 40, 1: 44, 2: 28, 3: 28}
"""Position of the file's length in the first bytes of HDF5, by version (8-byte addresses)."""


@contextmanager
def _reading_to_the_end(path: Path) -> Iterator[None]:
    try:
        require_file(path)
        if path.stat().st_size == 0:
            raise DataError(f'{path}: the file is empty; copy or convert it again')
        yield
    except PermissionError as error:
        raise DataError(f'{path}: no permission to read it; change its permissions') from error
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(
            f'{path}: truncated or damaged ({error}); copy or convert it again'
        ) from error


def check_image(path: Path, *, mgh: bool = False) -> Voxels:
    """Check that a file is a complete three-dimensional NIfTI image.

    A compressed image is decompressed to its end (0.25 s for 60 MB of voxels), because only the
    checksum at the end proves that it is complete.

    Parameters
    ----------
    path
        The file.
    mgh
        Whether the format of FreeSurfer is accepted as well.

    Raises
    ------
    DataError
        The file is missing, empty, truncated, damaged or no image; it is not one volume of real
        numbers; its affine is not valid; or all voxels have the same value.
    """
    with _reading_to_the_end(path):
        image = _open(path, mgh)
        _check_shape(path, image)
        _check_place(path, image)
        return replace(_read_voxels(path, image), doubt=_doubt(path, image))


def is_blank(path: Path) -> bool:
    """Tell whether all voxels of an image are 0; those of a damaged image are not."""
    try:
        image = open_image(path)
        with reading(path):
            return not np.any(np.asanyarray(image.dataobj))
    except DataError:
        return False


def _doubt(path: Path, image: SpatialImage) -> Caution | None:
    if isinstance(image, nib.Nifti1Image) and not any(
        image.header[code] > 0 for code in ('sform_code', 'qform_code')
    ):
        return no_orientation(path)
    return doubt_voxels(image)


def doubt_voxels(image: SpatialImage) -> Caution | None:
    """Warn of a field of view that is not of a head, or of voxels larger than any tested."""
    edges = np.array(image.shape[:3]) * nib.affines.voxel_sizes(image.affine)
    if edges.min() < SLAB_MM < edges.max() / 2 or edges.max() > LARGEST_VIEW_MM:
        shown = ' x '.join(f'{edge:.0f}' for edge in edges)
        return Caution(
            f'{shown} mm is no field of view of a head',
            'The brain may be incomplete, or volumes scaled wrongly',
            'Check the image and its header',
            FIGURES,
        )
    size = voxel_volume(image) ** (1 / 3)
    if size > WIDEST_TESTED_MM:
        return Caution(
            f'voxels of {size:.1f} mm; network and registration were tested up to 2 mm',
            'Regions and registration may be wrong',
            'Use an image with smaller voxels, or check all figures',
            FIGURES,
        )
    return None


def check_transform(path: Path) -> Voxels:
    """Check that a file is a complete ITK transform: HDF5, or a displacement field in NIfTI."""
    with _reading_to_the_end(path):
        if path.suffix == '.h5':
            _check_hdf5(path)
            return Voxels(hashlib.sha256(path.read_bytes()).hexdigest(), 0)
        image = _open(path, mgh=False)
        if image.shape[3:] != FIELD_AXES:
            raise DataError(
                f'{path}: {_size(image)} voxels, but a displacement field has X x Y x Z x 1 x 3; '
                'replace it, or remove it to register the image'
            )
        _check_place(path, image)
        return _read_voxels(path, image)


def _check_hdf5(path: Path) -> None:
    with path.open('rb') as stream:
        start = stream.read(64)
    known = len(start) == 64 and start.startswith(HDF5_SIGNATURE)
    position = HDF5_END.get(start[8]) if known else None
    if position is None:
        raise DataError(f'{path}: not an HDF5 file; copy it again')
    expected = int.from_bytes(start[position : position + 8], 'little')
    if path.stat().st_size < expected:
        raise DataError(
            f'{path}: truncated: {path.stat().st_size} bytes instead of {expected}; copy it again'
        )


def _open(path: Path, mgh: bool) -> SpatialImage:
    image = open_image(path)
    accepted = (nib.Nifti1Image, nib.MGHImage) if mgh else nib.Nifti1Image
    if not isinstance(image, accepted):
        raise DataError(f'{path}: {type(image).__name__}, not NIfTI; convert it to NIfTI')
    return image


def _size(image: SpatialImage) -> str:
    return ' x '.join(map(str, image.shape))


def _check_shape(path: Path, image: SpatialImage) -> None:
    shape = image.shape
    size = _size(image)
    if len(shape) != 3 and not (len(shape) == 4 and shape[3] == 1):
        raise DataError(
            f'{path}: {len(shape)} dimensions ({size}), expected 3; '
            'extract one volume, or choose another image with --bids-filter-file'
        )
    if min(shape) < 1:
        raise DataError(f'{path}: no voxels ({size}); convert it again')
    if min(shape[:3]) == 1:
        raise DataError(f'{path}: one slice ({size}), expected 3 dimensions')
    if image.get_data_dtype().kind not in 'iuf':
        kind = str(image.get_data_dtype())
        if isinstance(image, nib.Nifti1Image):
            kind = image.header.get_value_label('datatype')
        raise DataError(f'{path}: voxels of type {kind}; store one real number per voxel')


def _check_place(path: Path, image: SpatialImage) -> None:
    affine = image.affine
    if not np.isfinite(affine).all() or abs(np.linalg.det(affine[:3, :3])) < np.finfo(float).tiny:
        raise DataError(
            f'{path}: the affine is not finite and invertible; convert the image again. The affine '
            f'is {np.array2string(affine[:3], separator=", ")}'
        )
    sizes = nib.affines.voxel_sizes(affine)
    if not (sizes.min() >= SMALLEST_VOXEL_MM and sizes.max() <= LARGEST_VOXEL_MM):
        raise DataError(
            f'{path}: voxels of {" x ".join(f"{size:g}" for size in sizes)} mm; correct the '
            'header, or convert it again'
        )
    if isinstance(image, nib.Nifti1Image):
        _check_sides(path, image)


def _check_sides(path: Path, image: nib.Nifti1Image) -> None:
    """Check that the two affines of a header agree on which side is left."""
    sform, qform = image.get_sform(coded=True), image.get_qform(coded=True)
    if 0 in (sform[1], qform[1]):
        return
    if np.linalg.det(sform[0][:3, :3]) * np.linalg.det(qform[0][:3, :3]) < 0:
        raise DataError(
            f'{path}: sform and qform disagree on which side is left; convert it again, or correct '
            'the header'
        )


def _read_voxels(path: Path, image: SpatialImage) -> Voxels:
    """Read the stored voxels in chunks, without scaling."""
    dtype = image.get_data_dtype()
    # nibabel resets the offset in the header to 0; the array proxy keeps that of the file.
    proxy = cast(ArrayProxy, image.dataobj)
    offset = proxy.offset
    expected = int(np.prod(image.shape, dtype=np.int64)) * dtype.itemsize
    digest = hashlib.sha256(' '.join(map(str, image.shape[:3])).encode())
    least, most, not_finite, length, rest = np.inf, -np.inf, 0, 0, 0
    packed = path.suffix in {'.gz', '.mgz'}
    with gzip.open(path) if packed else path.open('rb') as stream:
        stream.read(offset)
        while chunk := stream.read(min(CHUNK, expected - length)):
            length += len(chunk)
            values = np.frombuffer(chunk, dtype, len(chunk) // dtype.itemsize)
            # A copy with another type, byte order or scale has the same digest.
            with np.errstate(over='ignore', invalid='ignore'):
                scaled = values.astype('<f4') * np.float32(proxy.slope) + np.float32(proxy.inter)
            digest.update(scaled.tobytes())
            finite = values[np.isfinite(values)]
            not_finite += len(values) - len(finite)
            if len(finite):
                least, most = min(least, float(finite.min())), max(most, float(finite.max()))
        while beyond := stream.read(CHUNK):
            # Read to the end of the stream, which contains the checksum.
            rest += len(beyond)
            if rest > expected + CHUNK:
                raise DataError(
                    f'{path}: much longer than its header says ({_size(image)} voxels); convert '
                    'it again'
                )
    if length < expected:
        raise DataError(
            f'{path}: truncated: {offset + length} bytes instead of {offset + expected}; copy or '
            'convert it again'
        )
    if not least < most:
        shown = 'NaN or infinite' if least > most else f'{least:g}'
        raise DataError(f'{path}: all voxels are {shown}; convert it again, or exclude it')
    largest = max(abs(float(least)), abs(float(most))) * abs(float(proxy.slope))
    if largest > float(np.finfo(np.float32).max):
        raise DataError(
            f'{path}: voxels scaled by scl_slope {proxy.slope:g} exceed the range of float32; '
            'correct scl_slope, or convert it again'
        )
    return Voxels(digest.hexdigest(), not_finite)
