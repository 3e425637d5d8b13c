"""Which metric of `quality.tsv` catches which kind of bad image.

    python benchmarks/image_quality.py DATA [--good 20]

DATA holds `ixi2mm` (healthy heads of one scanner, 2 mm). Some heads are measured as they are. One
that is not among them is spoilt in ten ways, measured in the same way, and compared with the others
as the group level does. Without a metric, a kind is caught elsewhere or not at all (`caught`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import nibabel as nib
import numpy as np
import pandas as pd
import torch
from machine import write_results
from tqdm import tqdm

from surreal_bids.analysis.image_quality import METRICS, OUTLYING, outlier_scores
from surreal_bids.exceptions import DataError
from surreal_bids.files import write_image
from surreal_bids.images import Image, like, load_image
from surreal_bids.imaging.atlas import muse_labels, muse_t1w
from surreal_bids.imaging.brain import brain_mask, correct_bias
from surreal_bids.imaging.deformation import FLUID
from surreal_bids.imaging.fusion import volume_table
from surreal_bids.imaging.network import segment_regions
from surreal_bids.imaging.norms import region_overlaps
from surreal_bids.imaging.quality import image_quality, segmentation_quality
from surreal_bids.imaging.registration import register
from surreal_bids.imaging.tissue import classify_tissue
from surreal_bids.imaging.transforms import resample, resample_all
from surreal_bids.regions import muse_table
from surreal_bids.templates import builtin_template

TEMPLATE_MM = 4.0


@cache
def template_labels() -> Image:
    """MUSE regions of the template."""
    return muse_labels(muse_t1w())


def measure(raw: Image) -> dict[str, float | None]:
    """Quality of an image through the steps of the participant level."""
    template = builtin_template(TEMPLATE_MM)
    mask, _ = brain_mask(raw)
    corrected = correct_bias(raw, mask)
    brain = like(raw, np.where(np.asarray(mask.dataobj) > 0, corrected.dataobj, 0), np.float32)
    found = segment_regions(corrected, mask)
    transform = register(
        template.t1w, brain, settings=FLUID, fixed_mask=template.mask, moving_mask=mask
    ).inverse
    priors = dict(zip(template.priors, resample_all(list(template.priors.values()), transform)))
    tissues = classify_tissue(corrected, mask, priors).probabilities
    table = volume_table(found.volumes, muse_table())
    table['confidence'] = table['index'].map(found.confidence)
    labels = resample(template_labels(), transform, order=0)
    overlaps = region_overlaps(np.asarray(found.labels.dataobj), np.asarray(labels.dataobj))
    return {
        **image_quality(raw, corrected, mask, tissues),
        **segmentation_quality(table, overlaps),
    }


def as_read(image: Image) -> Image:
    """The image as the app reads it from a file."""
    with TemporaryDirectory() as folder:
        return load_image(write_image(Path(folder) / 'head.nii.gz', image))


def motion(values: np.ndarray) -> np.ndarray:
    """The head moved by 4 mm during a third of the lines of k-space."""
    lines = np.fft.fftn(values)
    moved = np.fft.fftn(np.roll(values, 2, axis=1))
    chosen = np.random.default_rng(0).permutation(values.shape[1])[: values.shape[1] // 3]
    lines[:, chosen] = moved[:, chosen]
    return np.abs(np.fft.ifftn(lines))


def noise(values: np.ndarray) -> np.ndarray:
    """Noise of a tenth of the brightest tissue, in both channels."""
    real, imaginary = np.random.default_rng(0).normal(
        0, 0.1 * np.percentile(values, 99), (2, *values.shape)
    )
    return np.hypot(values + real, imaginary)


def inverted(values: np.ndarray) -> np.ndarray:
    """Bright is dark inside the head, as in T2w images."""
    top = np.percentile(values, 99)
    return np.where(values > 0.1 * top, np.clip(1.1 * top - values, 0, None), values)


def cut(values: np.ndarray) -> np.ndarray:
    """The uppermost third of the image is missing."""
    kept = values.copy()
    kept[:, :, int(0.67 * values.shape[2]) :] = 0
    return kept


def bias(values: np.ndarray) -> np.ndarray:
    """Intensity falls fivefold from front to back."""
    return values * np.geomspace(1, 0.2, values.shape[1])[None, :, None]


def flipped(values: np.ndarray) -> np.ndarray:
    """Left is right."""
    return values[::-1].copy()


CHANGED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    'motion': motion,
    'noise': noise,
    'wrong contrast': inverted,
    'cut field of view': cut,
    'strong bias field': bias,
    'left and right exchanged': flipped,
    'empty': np.zeros_like,
}


def spoil(raw: Image, other: Image) -> dict[str, Image]:
    """The ten kinds of bad image."""
    values = np.asarray(raw.dataobj, dtype=np.float32)
    upright = {name: like(raw, change(values), np.float32) for name, change in CHANGED.items()}
    step = np.diag([1, 1, 4, 1])
    thick = values[:, :, : values.shape[2] // 4 * 4]
    thick = thick.reshape(*values.shape[:2], -1, 4).mean(axis=-1)
    mask, _ = brain_mask(raw)
    stripped = np.where(np.asarray(mask.dataobj) > 0, values, 0)
    return {
        **upright,
        'slices of 8 mm': nib.Nifti1Image(thick, raw.affine @ step),
        'skull-stripped': like(raw, stripped, np.float32),
        'another participant': other,
    }


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('data', type=Path)
    parser.add_argument('--good', type=int, default=20, help='heads as they are')
    options = parser.parse_args()
    files = sorted((options.data / 'ixi2mm/T1w').iterdir())
    first, second, *others = (nib.as_closest_canonical(load_image(path)) for path in files)
    good = [measure(each) for each in tqdm(others[: options.good])]
    rows = []
    for kind, image in tqdm({'as it is': first, **spoil(first, second)}.items()):
        try:
            table = pd.DataFrame(
                [*good, measure(as_read(image))], columns=list(METRICS), dtype=float
            )
        except DataError as error:
            rows.append({'kind': kind, 'caught': f'error: {str(error).split(": ")[-1]}'})
            print(rows[-1], flush=True)
            continue
        scores = outlier_scores(table, pd.Series('one', table.index)).iloc[-1]
        names = scores[scores > OUTLYING].sort_values(ascending=False)
        caught = ', '.join(f'{name} ({score:.1f})' for name, score in names.items())
        rows.append({'kind': kind, 'caught': caught or 'no'})
        print(rows[-1], flush=True)
    write_results('image_quality', rows, 'torch')


if __name__ == '__main__':
    main()
