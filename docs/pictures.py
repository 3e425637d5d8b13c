"""Draw the figures of docs/demo.md.

    python docs/pictures.py head ANAT_DIR OUT.png
    python docs/pictures.py indices RINDICES.tsv SEVERITIES.tsv OUT.png

ANAT_DIR is the `anat` folder of `sub-PT0001` among the outputs of `make demo`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import nibabel as nib
import numpy as np
import pandas as pd
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
    labels = middle(anat / f'{PARTICIPANT}_seg-atlases_dseg.nii.gz')
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


def draw_indices(rindices: pd.DataFrame, severities: pd.DataFrame) -> plt.Figure:
    """Draw each R-index against the severity that it follows best."""
    names = [name for name in rindices if name[0] == 'r' and name[1:].isdecimal()]
    patients = rindices[rindices['group'] == 'PT'].index.intersection(severities.index)
    truth = severities.loc[patients].select_dtypes('number')
    figure, axes = plt.subplots(
        1, len(names), figsize=(3.2 * len(names), 3), dpi=100, squeeze=False, layout='constrained'
    )
    for axis, name in zip(axes[0], names):
        found = rindices.loc[patients, name]
        best = truth.corrwith(found, method='spearman').idxmax()
        axis.scatter(truth[best], found, s=12, label='patients')
        controls = rindices.loc[rindices['group'] == 'CN', name]
        axis.scatter(np.zeros(len(controls)), controls, s=12, color='0.6', label='controls')
        axis.set_xlabel(f'true severity of {best}')
        axis.set_ylabel(f'R-index {name}')
    axes[0, 0].legend(fontsize=8, frameon=False)
    return figure


def read(path: str) -> pd.DataFrame:
    """Read a table of participants."""
    return pd.read_csv(path, sep='\t', index_col='participant_id')


if __name__ == '__main__':
    mpl.use('Agg')
    what, *inputs, output = sys.argv[1:]
    Path(output).parent.mkdir(parents=True, exist_ok=True)
    drawn = draw_head(*map(Path, inputs)) if what == 'head' else draw_indices(*map(read, inputs))
    drawn.savefig(output)
