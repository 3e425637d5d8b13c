"""Draw the figure of docs/demo.md.

    python docs/pictures.py ANAT_DIR OUT.png

ANAT_DIR is the `anat` folder of `sub-PT0001` among the outputs of `make demo`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import nibabel as nib
import numpy as np
from matplotlib import pyplot as plt

PARTICIPANT = 'sub-PT0001'
SPACE = 'space-MNI152NLin2009cAsym'


def middle(path: Path) -> np.ndarray:
    """Return the middle axial slice of an image, with left on the left and front up."""
    image = nib.as_closest_canonical(nib.load(path))
    values = np.asarray(image.dataobj)
    return np.rot90(values[:, :, values.shape[2] // 2])


def draw_head(anat: Path) -> plt.Figure:
    """Draw four results of one participant side by side."""
    t1w = middle(anat / f'{PARTICIPANT}_desc-preproc_T1w.nii.gz')
    mask = middle(anat / f'{PARTICIPANT}_desc-brain_mask.nii.gz')
    tissues = [
        middle(anat / f'{PARTICIPANT}_label-{t}_probseg.nii.gz') for t in ('GM', 'WM', 'CSF')
    ]
    labels = middle(anat / f'{PARTICIPANT}_seg-network_dseg.nii.gz')
    ravens = middle(anat / f'{PARTICIPANT}_{SPACE}_label-GM_ravens.nii.gz')
    figure, axes = plt.subplots(1, 4, figsize=(8, 2.6), dpi=100, layout='constrained')
    axes[0].imshow(t1w, cmap='gray')
    axes[0].contour(mask > 0, [0.5], colors='tab:red', linewidths=1)
    axes[1].imshow(np.clip(np.dstack(tissues), 0, 1))
    shuffled = np.random.default_rng(0).permutation(int(labels.max()) + 1)[labels.astype(int)]
    axes[2].imshow(np.ma.masked_where(labels == 0, shuffled), cmap='nipy_spectral')
    axes[3].imshow(ravens, cmap='gray')
    titles = ('T1w, brain mask', 'tissues', 'regions', 'RAVENS map of GM')
    for axis, title in zip(axes, titles):
        axis.set_title(title, fontsize=9)
        axis.set_axis_off()
    return figure


if __name__ == '__main__':
    mpl.use('Agg')
    anat, output = map(Path, sys.argv[1:])
    draw_head(anat).savefig(output)
