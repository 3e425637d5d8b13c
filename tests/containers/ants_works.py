"""Run in the image: every function of ANTs that the app calls, on a small image."""

import tempfile

import ants
import numpy as np


def make_image(shift: float) -> ants.ANTsImage:
    """A ball with a shell, somewhat to the side."""
    x, y, z = np.meshgrid(*(np.linspace(-1, 1, n) for n in (30, 32, 34)), indexing='ij')
    radius = np.sqrt((x - shift) ** 2 + y**2 + z**2)
    intensity = 100.0 * (radius < 0.7) + 50.0 * (radius < 0.4) + x
    return ants.from_numpy(intensity.astype(np.float32))


fixed, moving = make_image(0.0), make_image(0.15)
mask = ants.from_numpy((fixed.numpy() > 50).astype(np.float32))
corrected = ants.n4_bias_field_correction(fixed, mask=mask, shrink_factor=2)
tissues = ants.atropos(a=corrected, x=mask, i='kmeans[2]', m='[0.1,1x1x1]', c='[3,0]')
with tempfile.TemporaryDirectory() as folder:
    found = ants.registration(fixed, moving, 'SyN', outprefix=f'{folder}/', syn_metric='CC')
    warped = ants.apply_transforms(fixed, moving, found['fwdtransforms'])
before, after = (
    np.corrcoef(fixed.numpy().ravel(), image.numpy().ravel())[0, 1] for image in (moving, warped)
)
if not (after > before and len(tissues['probabilityimages']) == 2):
    raise SystemExit(f'registration: correlation {before:.3f} before, {after:.3f} after')
