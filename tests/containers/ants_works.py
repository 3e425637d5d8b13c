"""Run in the image: the function of ANTs that the app calls, which reads transforms of ITK."""

import tempfile
from pathlib import Path

import ants
import nibabel as nib
import numpy as np

from surreal_bids.imaging.transforms import read_composite

reference = nib.Nifti1Image(np.zeros((7, 8, 9), np.float32), np.diag([2.0, 2.0, 2.0, 1.0]))
shift = ants.create_ants_transform(
    transform_type='AffineTransform', dimension=3, translation=(1.0, 2.0, 3.0)
)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / 'shift.mat'
    ants.write_transform(shift, str(path))
    found = read_composite(path, reference).field
# ITK's x and y have the opposite sign.
if not np.allclose(found, (-1, -2, 3), atol=1e-4):
    raise SystemExit(f'a shift of (-1, -2, 3) mm was read as {found.reshape(-1, 3).mean(axis=0)}')
