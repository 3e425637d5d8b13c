"""Metrics against values computed by hand, and what each of them notices."""

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from scipy.stats import median_abs_deviation

from surreal_bids.imaging.quality import (
    RAYLEIGH,
    entropy_focus,
    image_quality,
    segmentation_quality,
)

AFFINE = np.diag([2.0, 2.0, 2.0, 1.0])
SHAPE = (48, 48, 48)
MEANS = {'GM': 60.0, 'WM': 100.0, 'CSF': 20.0}


def image(values):
    return nib.Nifti1Image(np.asarray(values, dtype=np.float32), AFFINE)


def head(sd=4.0, air=2.0, seed=0):
    """A cube of three slabs of tissue in noisy air: raw image, mask and tissues."""
    rng = np.random.default_rng(seed)
    values = np.abs(rng.normal(0, air, SHAPE)) if air else np.zeros(SHAPE)
    tissues, mask = {}, np.zeros(SHAPE)
    for number, (name, mean) in enumerate(MEANS.items()):
        place = np.zeros(SHAPE, dtype=bool)
        place[12:36, 12:36, 12 + 8 * number : 20 + 8 * number] = True
        values[place] = rng.normal(mean, sd, place.sum())
        tissues[name], mask[place] = image(place), 1
    return image(values), image(mask), tissues


def measure(raw, mask, tissues, corrected=None):
    return image_quality(raw, corrected or raw, mask, tissues)


def inside(raw, tissues, name):
    return np.asarray(raw.dataobj)[np.asarray(tissues[name].dataobj) > 0].astype(float)


def test_ratios_are_those_of_mriqc():
    raw, mask, tissues = head()
    found = measure(raw, mask, tissues)
    grey, white, fluid = (inside(raw, tissues, name) for name in ('GM', 'WM', 'CSF'))
    gap = np.median(white) - np.median(grey)
    n = len(grey)
    assert found['snr_gm'] == pytest.approx(
        np.median(grey) / (grey.std() * np.sqrt(n / (n - 1))), rel=1e-5
    )
    assert found['snr_wm'] == pytest.approx(100 / 4, rel=0.05)
    spread = median_abs_deviation(white) + median_abs_deviation(grey)
    assert found['cjv'] == pytest.approx(1.4826 * spread / gap, rel=1e-4)
    noise = np.sqrt(2 / np.pi * (np.pi / 2 - 1)) * 2.0  # SD of |N(0, 2)|.
    assert found['cnr'] == pytest.approx(40 / np.sqrt(16 + 16 + noise**2), rel=0.05)
    air = np.asarray(raw.dataobj)[:6].ravel()
    mad = 1.4826 * median_abs_deviation(air)
    assert found['snrd_total'] == pytest.approx(60 / (mad * RAYLEIGH), rel=0.05)
    assert found['mask_ml'] == pytest.approx(24**3 * 8 / 1000)
    assert found['voxel_mm'] == 2
    assert np.median(fluid) / fluid.std() == pytest.approx(found['snr_csf'], rel=1e-3)


def test_entropy_focus():
    assert entropy_focus(np.ones((8, 8, 8))) == pytest.approx(1)
    assert entropy_focus(np.eye(1, 512).reshape(8, 8, 8)) == pytest.approx(0, abs=1e-12)
    assert np.isnan(entropy_focus(np.zeros((2, 2, 2))))


def test_field_is_measured_in_the_brain():
    corrected, mask, tissues = head()
    field = np.linspace(0.8, 1.2, SHAPE[0])[:, None, None]
    raw = image(np.asarray(corrected.dataobj) * field)
    brain = field[12:36].ravel()
    low, high = np.percentile(np.repeat(brain, 24**2), [5, 95])
    found = measure(raw, mask, tissues, corrected)['inu_range']
    assert found == pytest.approx(high - low, rel=0.01)
    assert measure(corrected, mask, tissues)['inu_range'] is None


@pytest.mark.parametrize('residue', [0, 1e-4])
def test_erased_air_is_no_air(residue):
    found = measure(*head(air=residue))
    assert found['snrd_total'] is None
    assert found['cnr'] == pytest.approx(40 / np.sqrt(32), rel=0.05)


def test_tissue_that_is_missing_has_no_metrics():
    raw, mask, tissues = head()
    found = measure(raw, mask, {**tissues, 'CSF': image(np.zeros(SHAPE))})
    assert found['snr_csf'] is None
    assert found['snr_gm'] is not None


def regions(**columns):
    rows = {
        'index': [47, 48, 35],
        'name': ['Right Hippocampus', 'Left Hippocampus', 'Brain Stem'],
        'volume_mm3': [3000.0, 1500.0, 6000.0],
    }
    return pd.DataFrame(rows | columns)


def test_segmentation():
    found = segmentation_quality(regions(confidence=[0.9, 0.5, 0.8]), {'a': 0.9, 'b': 0.6})
    assert found == {
        'confidence': pytest.approx((0.9 * 3 + 0.5 * 1.5 + 0.8 * 6) / 10.5, rel=1e-5),
        'uncertain_regions': 1,
        'empty_regions': 0,
        'asymmetry': pytest.approx(1500 / 2250, rel=1e-5),
        'overlap': 0.6,
    }


def test_segmentation_of_another_program_has_no_confidence():
    found = segmentation_quality(regions(volume_mm3=[3000.0, 0.0, 6000.0]))
    assert found['confidence'] is found['uncertain_regions'] is found['overlap'] is None
    assert found['empty_regions'] == 1
