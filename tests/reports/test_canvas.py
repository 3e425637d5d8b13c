"""Pictures that are written directly, read back by matplotlib."""

import io

import numpy as np
import pytest
from matplotlib.image import imread

from surreal_bids.reports.canvas import png


@pytest.mark.parametrize('n_colours', [1, 2, 3, 256, 257, 5000])
def test_every_pixel_keeps_its_colour(n_colours):
    rng = np.random.default_rng(n_colours)
    colours = np.unique(rng.integers(256, size=(2 * n_colours, 3)), axis=0)[:n_colours]
    pixels = rng.permutation(np.resize(colours, (90 * 70, 3))).reshape(90, 70, 3)
    found = imread(io.BytesIO(png(pixels.astype(np.uint8))))
    np.testing.assert_array_equal(np.round(found[..., :3] * 255), pixels)
    assert len(np.unique(found.reshape(-1, found.shape[-1]), axis=0)) == n_colours
