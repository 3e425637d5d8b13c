"""The parts of a diffeomorphic registration do what they say."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from surreal_bids.imaging import deformation
from surreal_bids.imaging.deformation import (
    LONGEST,
    LocalCorrelation,
    add_update,
    ascent,
    central_difference,
    gaussian_filter,
    level_iterations,
    pull,
    smooth,
)

SMALL = (19, 18, 9)
"""Two slabs along the axes that are divided, the second thinner."""


@pytest.mark.parametrize('sigma', [0.0, 0.5, 1.5])
def test_smoothing_is_that_of_scipy(sigma):
    volumes = np.random.default_rng(0).normal(size=(3, *SMALL)).astype(np.float32)
    reach = max(1, int(np.ceil(2.5 * sigma)))
    expected = np.stack(
        [ndimage.gaussian_filter(v, sigma, mode='constant', radius=reach) for v in volumes]
    )
    seen = smooth(torch.from_numpy(volumes), sigma).numpy()
    np.testing.assert_allclose(seen, volumes if sigma == 0 else expected, atol=1e-5)


@pytest.mark.parametrize('size', [1e-3, 1.0, 30.0])
def test_pull_is_the_linear_interpolation_of_scipy(size):
    rng = np.random.default_rng(0)
    volume = rng.normal(size=SMALL)
    displacement = rng.normal(scale=size, size=(3, *SMALL))
    expected = ndimage.map_coordinates(
        volume, np.indices(SMALL) + displacement, order=1, mode='nearest'
    )
    seen = pull(torch.from_numpy(volume)[None], torch.from_numpy(displacement))[0]
    np.testing.assert_allclose(seen, expected, atol=1e-12)


def test_local_correlation_is_pearsons_in_each_cube():
    rng = np.random.default_rng(0)
    fixed, other = rng.normal(size=(2, *SMALL))
    correlation = LocalCorrelation(torch.from_numpy(fixed), radius=1, noise=0.0)
    cube = (slice(2, 5), slice(3, 6), slice(4, 7))
    expected = np.corrcoef(fixed[cube].ravel(), other[cube].ravel())[0, 1]
    assert correlation.value(torch.from_numpy(other))[3, 4, 5].item() == pytest.approx(expected)


@pytest.mark.parametrize('radius', [1, 2])
def test_slope_is_the_derivative_of_the_local_correlation(radius):
    rng = np.random.default_rng(0)
    fixed, other = torch.from_numpy(rng.normal(size=(2, *SMALL)))
    correlation = LocalCorrelation(fixed, radius, noise=1e-3)
    place = (3, 4, 5)
    bump = torch.zeros_like(other)
    bump[place] = 1e-5
    rise = correlation.value(other + bump)[place] - correlation.value(other - bump)[place]
    slope = correlation.slope(other)[place] / (2 * radius + 1) ** 3
    assert slope.item() == pytest.approx(rise.item() / 2e-5, rel=1e-4)


def test_ascent_is_the_smoothed_gradient_times_the_slope():
    volume, slope = torch.from_numpy(np.random.default_rng(0).normal(size=(2, *SMALL)))
    smoothing = gaussian_filter(volume, 1.5)
    expected = [smoothing(central_difference(volume, axis) * slope) for axis in range(3)]
    torch.testing.assert_close(ascent(volume, slope, smoothing), torch.stack(expected))


@pytest.mark.parametrize('axis', [0, 1, 2])
def test_central_difference_is_that_of_numpy_inside(axis):
    volumes = np.random.default_rng(0).normal(size=(2, *SMALL))
    seen = central_difference(torch.from_numpy(volumes), axis).numpy()
    expected = np.gradient(volumes, axis=axis + 1)
    inner = (slice(None), slice(1, -1), slice(1, -1), slice(1, -1))
    np.testing.assert_allclose(seen[inner], expected[inner])


@pytest.mark.parametrize('axis', [0, 1, 2])
def test_updates_along_one_axis_compose_exactly(axis):
    rng = np.random.default_rng(axis)
    displacement = torch.from_numpy(rng.normal(size=(3, *SMALL)).astype(np.float32))
    update = torch.zeros_like(displacement)
    update[axis] = torch.from_numpy(rng.uniform(-1, 1, SMALL).astype(np.float32))
    expected = pull(displacement, update) + update
    np.testing.assert_allclose(add_update(displacement, update), expected, atol=1e-5)


@pytest.mark.parametrize(
    ('voxel_mm', 'expected'),
    [
        (0.7, (9, 9, 9, 5, 2)),
        (1.0, (9, 9, 5, 2)),
        (1.499999, (9, 5, 2)),
        (1.5, (9, 5, 2)),
        (4.0, (9, 5, 2)),
    ],
)
def test_small_voxels_get_more_levels(voxel_mm, expected):
    assert level_iterations((9, 5, 2), voxel_mm) == expected


def test_momentum_continues_the_update_before():
    torch.manual_seed(0)
    before, update = torch.randn(2, 3, 20, 5, 6) * 0.5
    expected = (update + 0.7 * before).clamp(-LONGEST, LONGEST)
    deformation._continue(update, before, 0.7)
    torch.testing.assert_close(update, expected)
    assert update.abs().max() == LONGEST
