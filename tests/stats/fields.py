"""Maps of simulated people: smooth noise with effects where they are wanted."""

import nibabel as nib
import numpy as np
import pandas as pd
from scipy.ndimage import gaussian_filter

SHAPE = (7, 8, 9)
AFFINE = np.array([[-2.0, 0, 0, 5], [0, 2.5, 0, -3], [0, 0, 3, 1], [0, 0, 0, 1]])


def smooth_fields(rng, n_people, shape=SHAPE, sigma=1.0):
    """Noise fields (n_people, *shape) of unit variance."""
    fields = gaussian_filter(rng.normal(size=(n_people, *shape)), (0, *[sigma] * 3), mode='wrap')
    return fields / fields.std()


def write_maps(folder, fields, affine=AFFINE, suffix='.nii.gz'):
    """One file a person."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, field in enumerate(fields):
        paths.append(folder / f'sub-{number:03d}_ravens{suffix}')
        nib.Nifti1Image(field.astype(np.float32), affine).to_filename(paths[-1])
    return paths


def simulate_people(rng, n_controls=20, n_patients=90):
    """R-indices of two patterns, who is a control, and covariates."""
    n_people = n_controls + n_patients
    names = [f'sub-{number:03d}' for number in range(n_people)]
    is_control = np.arange(n_people) < n_controls
    r_indices = pd.DataFrame(rng.uniform(size=(n_people, 2)), names, ['r1', 'r2'])
    covariates = pd.DataFrame(
        {'age': rng.uniform(55, 90, n_people), 'sex': rng.choice(['F', 'M'], n_people)}, names
    )
    return r_indices, is_control, covariates
