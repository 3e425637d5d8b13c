"""Reading and checking images, comparing grids, and conversion from nibabel to ITK."""

from __future__ import annotations

import gzip
import logging
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nibabel as nib
import numpy as np
from nibabel.affines import apply_affine, voxel_sizes
from nibabel.arrayproxy import ArrayProxy
from nibabel.filebasedimages import ImageFileError
from nibabel.orientations import axcodes2ornt
from nibabel.spatialimages import HeaderDataError, SpatialImage
from numpy.typing import DTypeLike, NDArray

from surreal_bids.cautions import FIGURES, Caution
from surreal_bids.exceptions import DataError
from surreal_bids.files import require_file

if TYPE_CHECKING:
    import ants

LOGGER = logging.getLogger(__name__)

Image = nib.nifti1.Nifti1Image
"""Image type of this package; world coordinates are RAS, in mm."""

RAS_TO_LPS = np.diag([-1.0, -1.0, 1.0])
"""Conversion of world axes between nibabel (RAS) and ITK (LPS), in both directions."""

UPRIGHT = axcodes2ornt('RAS')
"""Orientation with axes to the right, front and top."""

MM3_PER_ML = 1000.0

VOXEL_SIZE_TOLERANCE = 0.01
"""Relative difference of voxel sizes from which the scale of an sform does not match."""

SAME_PLACE_MM = 0.05
"""Maximum distance of the corners of equal grids; single precision has smaller errors."""

QUATERNION_ROUNDING = np.float32(1e-4)
"""By how much the square of the length of a quaternion may exceed 1. Single precision of other
programs leaves less; nibabel itself allows 4e-7 only."""

GZIP_MAGIC = bytes.fromhex('1f8b')
"""First bytes of a gzip file, whatever its name is."""

READ_BYTES = 1 << 20
"""Bytes that are read at a time behind the voxels of a compressed image."""

SCANNER_CODE = 1
"""NIfTI code of scanner coordinates, the default without a reference."""

UNREADABLE = (
    ImageFileError,
    HeaderDataError,
    OSError,
    EOFError,
    zlib.error,
    ValueError,
    MemoryError,
)
"""Exceptions of nibabel for files that are missing, damaged, truncated or not images."""


def load_image(path: str | Path, warn: Callable[[Caution], None] = LOGGER.warning) -> Image:
    """Read a three-dimensional image with finite voxels.

    Unscaled integers stay integers; other types become float32. A fourth axis of one volume is
    dropped. Voxels that are not finite become 0, because some programs use NaN as background; a
    warning reports their number.

    Parameters
    ----------
    path
        NIfTI or MGH file.
    warn
        Called with each warning.

    Raises
    ------
    DataError
        The file cannot be read, is not one real-valued volume, has no valid affine, or all voxels
        have the same value.
    """
    path = Path(path)
    image = open_image(path)
    values = read_voxels(path, image)
    return _with_affine(_one_volume(path, values, warn), _affine_of(path, image, warn), image)


def open_image(path: str | Path) -> SpatialImage:
    """Read the header of an image, without its voxels."""
    require_file(path)
    with reading(path):
        image = nib.load(path)
    if not isinstance(image, SpatialImage):
        raise DataError(f'{path}: {type(image).__name__} is not a volume; convert it to NIfTI')
    return image


def read_voxels(path: str | Path, image: SpatialImage) -> NDArray:
    """Read the voxels of an image from :func:`open_image`.

    A compressed file is read to its end, where its checksum is. Without it, most damage would pass
    for voxels.
    """
    stored = image.dataobj
    with reading(path):
        if not (isinstance(stored, ArrayProxy) and _is_gzip(stored.file_like)):
            return np.asanyarray(stored)
        layout = stored.shape, stored.dtype, stored.offset, stored.slope, stored.inter
        with gzip.open(stored.file_like) as stream:
            values = np.asanyarray(type(stored)(stream, layout))
            while stream.read(READ_BYTES):
                pass
    return values


def _is_gzip(path: str | Path) -> bool:
    with Path(path).open('rb') as stream:
        return stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Convert read errors to a DataError that names the file."""
    try:
        yield
    except PermissionError as error:
        raise DataError(f'{path}: no permission to read it; change its permissions') from error
    except UNREADABLE as error:
        raise DataError(
            f'{path}: cannot be read as an image ({error}); copy or convert it again'
        ) from error


def like(reference: SpatialImage, array: NDArray, dtype: DTypeLike) -> Image:
    """Create an image from an array (X, Y, Z) on the grid of a reference, unscaled."""
    return _with_affine(np.asarray(array, dtype=dtype), reference.affine, reference)


def same_grid(a: SpatialImage, b: SpatialImage) -> bool:
    """Tell whether two images have the same shape and position, up to `SAME_PLACE_MM`."""
    return a.shape[:3] == b.shape[:3] and _offset_mm(a, b) < SAME_PLACE_MM


def _offset_mm(a: SpatialImage, b: SpatialImage) -> float:
    """Return the largest distance of corresponding corners."""
    corners = np.array(list(np.ndindex(2, 2, 2))) * (np.array(a.shape[:3]) - 1)
    shift = apply_affine(a.affine, corners) - apply_affine(b.affine, corners)
    return float(np.linalg.norm(shift, axis=1).max())


def describe_difference(a: SpatialImage, b: SpatialImage) -> str:
    """Return how the grid of an image differs from that of another one."""
    if a.shape[:3] != b.shape[:3]:
        return f'{a.shape} instead of {b.shape} voxels'
    return f'same size, but voxels lie up to {_offset_mm(a, b):.1f} mm apart'


def require_same_grid(
    image: SpatialImage, reference: SpatialImage, name: str, of: str = 'the T1w image'
) -> None:
    """Raise an error if an image, called by `name`, is not on the grid of a reference."""
    if not same_grid(image, reference):
        raise DataError(
            f'{name} is not on the grid of {of} ({describe_difference(image, reference)}); '
            'resample it'
        )


def voxel_volume(image: SpatialImage) -> float:
    """Return the volume of a voxel in mm3."""
    return float(abs(np.linalg.det(image.affine[:3, :3])))


def along_axes(values: NDArray, matrices: Sequence[NDArray | None]) -> NDArray:
    """Multiply each axis of an array with a matrix (new size, size), unless that is None."""
    for axis, matrix in enumerate(matrices):
        if matrix is not None:
            values = np.moveaxis(np.tensordot(matrix, values, axes=(1, axis)), 0, axis)
    return values


def to_ants(image: SpatialImage) -> ants.ANTsImage:
    """Convert an image to ANTs as float32; oblique and sheared affines are kept."""
    # Imported here because ants takes seconds to import.
    import ants

    matrix = RAS_TO_LPS @ image.affine[:3, :3]
    spacing = voxel_sizes(image.affine)
    return ants.from_numpy(
        np.asarray(image.dataobj, dtype=np.float32),
        origin=(RAS_TO_LPS @ image.affine[:3, 3]).tolist(),
        spacing=spacing.tolist(),
        direction=matrix / spacing,
    )


def _with_affine(array: NDArray, affine: NDArray, source: SpatialImage | None = None) -> Image:
    """Create an image with the affine as sform and qform, and the code of the source."""
    header: Any = {} if source is None else source.header
    codes = (int(header[name]) for name in ('sform_code', 'qform_code') if name in header)
    code = next((code for code in codes if code > 0), SCANNER_CODE)
    image = nib.Nifti1Image(array, affine)
    image.header.set_xyzt_units('mm')
    image.set_sform(affine, code)
    image.set_qform(affine, code)
    return image


def _one_volume(path: Path, values: NDArray, warn: Callable[[Caution], None]) -> NDArray:
    """Check the voxels of a file and return a finite array (X, Y, Z)."""
    size = ' x '.join(map(str, values.shape))
    if values.ndim == 4 and values.shape[3] == 1:
        values = values[..., 0]
    if values.ndim != 3:
        raise DataError(f'{path}: {size} voxels, expected one 3-D volume; extract one')
    if values.size == 0:
        raise DataError(f'{path}: no voxels ({size}); convert it again')
    if values.dtype.kind not in 'iuf':
        raise DataError(f'{path}: voxels of type {values.dtype}; store one real number per voxel')
    if values.dtype.kind == 'f':
        values = _finite(path, values.astype(np.float32), warn)
    elif values.dtype.itemsize > np.dtype(np.int32).itemsize:
        values = _without_long_integers(path, values)
    if values.min() == values.max():
        raise DataError(f'{path}: all voxels are {values.min()}; convert it again or exclude it')
    return values


def _without_long_integers(path: Path, values: NDArray) -> NDArray:
    """Convert 64-bit integers, which many programs cannot read, to 32 bits."""
    limits = np.iinfo(np.int32)
    if values.min() < limits.min or values.max() > limits.max:
        raise DataError(f'{path}: integers beyond 32 bits; store it as float32')
    return values.astype(np.int32)


def _finite(
    path: Path, values: NDArray[np.float32], warn: Callable[[Caution], None]
) -> NDArray[np.float32]:
    bad = ~np.isfinite(values)
    if bad.any():
        warn(
            Caution(
                f'{path}: {bad.sum()} voxels are NaN or infinite',
                'They are set to 0, and regions there may be too small',
                'Check the image, or convert it again',
                FIGURES,
            )
        )
        values[bad] = 0
    return values


def _affine_of(
    path: Path, image: SpatialImage, warn: Callable[[Caution], None]
) -> NDArray[np.float64]:
    """Return the affine of an image, checked."""
    affine = image.affine
    if affine is None or not np.isfinite(affine).all() or not np.linalg.det(affine[:3, :3]):
        raise DataError(
            f'{path}: the affine is not finite and invertible; convert the image again. The affine '
            f'is {affine if affine is None else affine[:3].tolist()}'
        )
    return _nifti_affine(path, image, warn) if isinstance(image, nib.Nifti1Pair) else affine


def _nifti_affine(
    path: Path, image: nib.Nifti1Pair, warn: Callable[[Caution], None]
) -> NDArray[np.float64]:
    """Choose the affine: the sform, else the qform, else the voxel sizes (nibabel's rule).

    If the scale of the sform does not match the voxel size, as after registration to a template,
    the qform is used, because volumes are measured in native space.
    """
    sform, qform = (int(image.header[name]) for name in ('sform_code', 'qform_code'))
    if not sform and not qform:
        warn(
            Caution(
                f'{path}: no orientation in the header',
                'Left and right may be swapped',
                'Convert the image again from DICOM, or check the sides in the figures',
                FIGURES,
            )
        )
    if sform and not _to_scale(image):
        chosen = 'qform' if qform else 'sform because there is no qform'
        warn(
            Caution(
                f'{path}: the scale of the sform does not match the voxel size',
                f'Volumes are measured with the {chosen}',
                'Check the voxel size, and correct the header if it is wrong',
                FIGURES,
            )
        )
        return read_qform(path, image) if qform else image.affine
    return image.affine


def read_qform(path: str | Path, image: nib.Nifti1Pair) -> NDArray[np.float64]:
    """Read the qform of a NIfTI header that has one.

    Raises
    ------
    DataError
        Its quaternion is longer than 1 by more than rounding.
    """
    try:
        return image.get_qform()
    except ValueError:
        # Not from the start: it would also change sound quaternions of nearly half a turn.
        image.header.quaternion_threshold = QUATERNION_ROUNDING
    try:
        return image.get_qform()
    except ValueError as error:
        raise DataError(
            f'{path}: the qform of the header is no rotation ({error}); correct the header, or '
            'convert the image again'
        ) from error


def _to_scale(image: nib.Nifti1Pair) -> bool:
    stated = np.array(image.header.get_zooms()[:3], dtype=float)
    return np.allclose(voxel_sizes(image.affine), stated, rtol=VOXEL_SIZE_TOLERANCE, atol=0)
