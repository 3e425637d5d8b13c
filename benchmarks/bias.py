"""Bias fields estimated by N4, compared with the true ones, and with N4 of ANTs.

    python benchmarks/bias.py [--fields 2] [--heads FILE ...]

Each field is applied to a simulated head at 1 mm with noise. Fields alternate between polynomials,
as in `surreal_bids.simulation`, and smoothed noise. A real head (`--heads`) has its own field; the
difference between the fields estimated with and without ours is used. Logarithms of the fields are
compared inside the brain; `largest_difference` is that from our field, less the mean. Seconds are
CPU time, which depends little on the load of the machine, and cover the whole call.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import nibabel as nib
import numpy as np
import pandas as pd
from machine import write_results
from numpy.typing import NDArray

from surreal_bids.images import Image, like, load_image, to_ants
from surreal_bids.imaging.brain import extract_brain, log_bias_field
from surreal_bids.simulation.anatomy import smooth
from surreal_bids.simulation.scanner import (
    BRIGHTNESS,
    MATERIALS,
    TEXTURE_STRENGTH,
    Scanner,
    bias_field,
)
from surreal_bids.simulation.templates import load_template

POLYNOMIAL_SD = 0.2
NOISE_FIELD_SD = 0.2
"""Standard deviation of the logarithm of each kind of field over the image."""

NOISE_FIELD_MM = 35.0
"""Standard deviation of the Gaussian that smooths noise into a field."""

NOISE = 0.025
"""Standard deviation of the noise in each channel, relative to white matter."""

SCALE = 600.0
"""Stored intensity of white matter."""


@dataclass(frozen=True)
class Head:
    """An image without an added field, its brain mask, and whether it has its own field."""

    name: str
    image: Image
    brain: Image
    simulated: bool


def ants_n4(
    values: NDArray, inside: NDArray, *, iterations: Sequence[int], tolerance: float
) -> NDArray:
    """Stand in for `n4_log_field`."""
    import ants

    field = ants.n4_bias_field_correction(
        ants.from_numpy(np.ascontiguousarray(values)),
        mask=ants.from_numpy(inside.astype(np.float32)),
        shrink_factor=1,
        convergence={'iters': list(iterations), 'tol': tolerance},
        return_bias_field=True,
    )
    return np.log(field.numpy())


def ants_at_our_voxels(image: Image, mask: Image | None) -> NDArray:
    with patch('surreal_bids.imaging.brain.n4_log_field', ants_n4):
        return log_bias_field(image, mask)


def ants_defaults(image: Image, mask: Image | None) -> NDArray:
    import ants

    inside = None if mask is None else to_ants(mask)
    field = ants.n4_bias_field_correction(to_ants(image), mask=inside, return_bias_field=True)
    return np.log(field.numpy())


OURS = 'ours, in the brain'

METHODS: dict[str, tuple[Callable[[Image, Image | None], NDArray], bool]] = {
    'ours': (log_bias_field, False),
    OURS: (log_bias_field, True),
    'ants at the same voxels': (ants_at_our_voxels, True),
    "ants' defaults": (ants_defaults, False),
}
"""How each method finds a field, and whether it is told where the brain is."""


def simulated_head() -> Head:
    """Simulate the template head at 1 mm, without noise."""
    template = load_template(1.0)
    scanner = Scanner(template)
    brightness = np.array([BRIGHTNESS[material] for material in MATERIALS], dtype=np.float32)
    contrast = TEXTURE_STRENGTH * (BRIGHTNESS['WM'] - BRIGHTNESS['CSF'])
    values = np.tensordot(brightness, scanner.materials, axes=1) + contrast * scanner.texture
    image = nib.Nifti1Image(values.clip(0).astype(np.float32), template.affine)
    return Head('simulated', image, like(image, template.brain > 0.5, np.uint8), simulated=True)


def real_head(path: Path) -> Head:
    image = load_image(path)
    return Head(path.name.split('.')[0], image, extract_brain(image), simulated=False)


def draw_field(shape: tuple[int, ...], number: int) -> tuple[str, NDArray]:
    """Sample a field; return its kind and its logarithm (X, Y, Z)."""
    rng = np.random.default_rng(number)
    if number % 2 == 0:
        coefficients = rng.standard_normal(9)
        coefficients *= POLYNOMIAL_SD / np.linalg.norm(coefficients)
        return 'polynomial', np.log(bias_field(shape, coefficients))
    pattern = smooth(rng.standard_normal(shape, dtype=np.float32), NOISE_FIELD_MM)
    return 'smoothed noise', NOISE_FIELD_SD * (pattern - pattern.mean()) / pattern.std()


def lay_over(head: Head, log_field: NDArray, number: int) -> Image:
    """Apply the field; a simulated head also gets noise."""
    values = np.asarray(head.image.dataobj, dtype=np.float32) * np.exp(log_field)
    if head.simulated:
        rng = np.random.default_rng(number)
        real, imaginary = rng.normal(0, NOISE, (2, *values.shape))
        values = SCALE * np.hypot(values + real, imaginary)
    return like(head.image, values, np.float32)


def timed(method: str, image: Image, brain: Image) -> tuple[NDArray, float]:
    find, masked = METHODS[method]
    start = time.process_time()
    found = find(image, brain if masked else None)
    return found, time.process_time() - start


def measure(head: Head, fields: int) -> Iterator[dict]:
    """Correlation with the true field and spread of the error, for each field and method."""
    inside = np.asarray(head.brain.dataobj) > 0
    own = dict.fromkeys(METHODS, np.float32(0))
    if not head.simulated:
        own = {method: timed(method, head.image, head.brain)[0] for method in METHODS}
    for number in range(fields):
        kind, truth = draw_field(head.image.shape, number)
        image = lay_over(head, truth, number)
        results = {method: timed(method, image, head.brain) for method in METHODS}
        for method, (found, seconds) in results.items():
            added = (found - own[method])[inside]
            difference = (found - results[OURS][0])[inside]
            row = {
                'head': head.name,
                'field': kind,
                'seed': number,
                'true_sd': truth[inside].std(),
                'method': method,
                'correlation': np.corrcoef(added, truth[inside])[0, 1],
                'error_sd': (added - truth[inside]).std(),
                'largest_difference': np.abs(difference - difference.mean()).max(),
                'cpu_seconds': seconds,
            }
            print(row, flush=True)
            yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--fields', type=int, default=2, help='fields for each head')
    parser.add_argument('--heads', type=Path, nargs='*', default=[], help='real T1w images')
    arguments = parser.parse_args()
    # ants is loaded before any clock starts.
    to_ants(nib.Nifti1Image(np.zeros((2, 2, 2), np.float32), np.eye(4)))
    rows = list(measure(simulated_head(), arguments.fields))
    for path in arguments.heads:
        rows += measure(real_head(path), arguments.fields)
    table = pd.DataFrame(rows)
    table = table.round(dict.fromkeys(table, 4) | {'largest_difference': 7})
    figures = ['correlation', 'error_sd', 'largest_difference', 'cpu_seconds']
    print(table.groupby(['head', 'method'], sort=False)[figures].mean().to_string())
    write_results('bias', table, 'surreal_bids', 'antspyx', 'numpy', 'scipy')


if __name__ == '__main__':
    main()
