"""Simulated anatomy: individual heads, and regional atrophy imposed as a diffeomorphism."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from nibabel.affines import apply_affine
from numpy.typing import NDArray
from scipy import fft, ndimage, sparse
from scipy.spatial.transform import Rotation

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.images import Image, voxel_volume
from surreal_bids.regions import muse_table
from surreal_bids.templates import muse_labels, read_brain, resample, tissue_fractions

Field = NDArray[np.float32]
"""A scalar field (X, Y, Z), or a vector field (3, X, Y, Z) in voxels."""

BOX_ORIGIN_MM = (-96, -130, -96)
"""World coordinates of the first grid point; the box holds the head from the neck upwards."""

BOX_EXTENT_MM = (192, 240, 200)
"""Extent of the grid; its factors 2, 3 and 5 make Fourier transforms fast."""

VOXEL_SIZES_MM = (1.0, 2.0, 3.0, 4.0)
"""Voxel sizes of the working grid; the coarsest is for tests."""


def load_regions() -> pd.DataFrame:
    """List the labelled regions: index (MUSE numbering), name, hemisphere and tissue."""
    return muse_table()[['index', 'name', 'hemisphere', 'tissue']]


@dataclass(frozen=True)
class HeadTemplate:
    """A template head on a working grid.

    Attributes
    ----------
    affine
        Voxel to world (mm) of the working grid: isotropic, RAS.
    t1
        T1-weighted brain, 0 outside, shape (X, Y, Z), in the units of the file (about 0 to 100).
    tissue
        Fractions of GM, WM and CSF, shape (3, X, Y, Z); they add up to `brain`.
    brain
        Fraction of each voxel that is brain, its fluid included.
    labels
        MUSE indices of the regions at their native resolution; 0 where there is no region.
    regions
        index, name, hemisphere and tissue of each region in `labels`.
    """

    affine: NDArray[np.float64]
    t1: NDArray[np.float32]
    tissue: NDArray[np.float32]
    brain: NDArray[np.float32]
    labels: Image
    regions: pd.DataFrame

    @property
    def voxel_size(self) -> float:
        """Edge of a voxel of the working grid in mm."""
        return float(self.affine[0, 0])

    @property
    def shape(self) -> tuple[int, ...]:
        """Points along each axis of the working grid."""
        return self.t1.shape


def load_template(voxel_size: float = 2.0) -> HeadTemplate:
    """Load the template on the working grid of a voxel size in mm."""
    if voxel_size not in VOXEL_SIZES_MM:
        sizes = ', '.join(f'{size:g}' for size in VOXEL_SIZES_MM)
        raise UsageError(f'--voxel-size {voxel_size:g}: choose one of {sizes} mm')
    affine = np.diag([voxel_size] * 3 + [1.0])
    affine[:3, 3] = BOX_ORIGIN_MM
    shape = tuple(int(extent // voxel_size) for extent in BOX_EXTENT_MM)
    t1_image, brain = read_brain()
    t1 = np.asarray(t1_image.dataobj, dtype=np.float32)
    brain_on_grid = resample(brain, t1_image.affine, affine, shape).clip(0, 1)
    return HeadTemplate(
        affine=affine,
        t1=resample(t1, t1_image.affine, affine, shape).clip(0),
        tissue=tissue_fractions(affine, shape, brain_on_grid),
        brain=brain_on_grid,
        labels=load_labels(),
        regions=load_regions(),
    )


def load_labels() -> Image:
    """Load the labels of the template, cropped to the brain."""
    labels = muse_labels()
    (box,) = ndimage.find_objects((np.asarray(labels.dataobj) > 0).astype(np.uint8))
    return labels.slicer[box]


def labels_at(labels: Image, affine: NDArray, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Resample labels on another grid in template space, by nearest neighbour."""
    to_label = np.linalg.inv(labels.affine) @ affine
    data = np.asarray(labels.dataobj)
    found = ndimage.affine_transform(data, to_label, output_shape=shape, order=0)
    return np.asarray(found, dtype=np.uint8)


def distance_to(mask: NDArray[np.bool_], voxel_size: float) -> NDArray[np.float32]:
    """Compute the distance (mm) of each voxel from a mask."""
    return np.asarray(ndimage.distance_transform_edt(~mask), dtype=np.float32) * voxel_size


LARGEST_STEP = 0.5
"""The first step of scaling and squaring moves no point further than this, in voxels."""


def identity(shape: tuple[int, ...]) -> Field:
    """Voxel coordinates of every point of a grid, shape (3, X, Y, Z)."""
    return np.indices(shape, dtype=np.float32)


def interpolate(volumes: Field, points: Field) -> Field:
    """Interpolate volumes (C, X, Y, Z) linearly at points (3, *P), in voxels: (C, *P).

    Outside the grid, the value of the nearest edge holds.
    """
    # Takes seconds to import, which tables and scores need not wait for.
    import torch

    from surreal_bids.imaging.transforms import sample

    values = torch.from_numpy(np.ascontiguousarray(volumes, dtype=np.float32))
    return sample(values, torch.from_numpy(points).movedim(0, -1), 'border').numpy()


def compose(outer: Field, inner: Field) -> Field:
    """Displacement of `outer` after `inner`: u(x) = inner(x) + outer(x + inner(x))."""
    return inner + interpolate(outer, identity(inner.shape[1:]) + inner)


def exponential(velocity: Field) -> Field:
    """Displacement of the flow of a stationary velocity field after unit time.

    Scaling and squaring (Arsigny et al., MICCAI 2006): a short step by the midpoint rule, composed
    with itself until it covers the unit time.
    """
    halvings = np.log2(max(float(np.abs(velocity).max()) / LARGEST_STEP, 1))
    squarings = max(1, int(np.ceil(halvings)))
    step = velocity / np.float32(2**squarings)
    midpoints = identity(step.shape[1:]) + step * np.float32(0.5)
    displacement = interpolate(step, midpoints)
    for _ in range(squarings):
        displacement = compose(displacement, displacement)
    return displacement


def pull_back(displacement: Field, points: Field) -> Field:
    """Find where each point came from: solve x + u(x) = y for x.

    Parameters
    ----------
    displacement
        Forward map `u`, shape (3, X, Y, Z), in voxels.
    points
        Voxel coordinates `y`, shape (3, *P).

    Returns
    -------
    Voxel coordinates `x`, shape (3, *P).
    """
    import torch

    from surreal_bids.imaging.transforms import solve_offsets

    wanted = torch.from_numpy(points).flatten(1)
    start = -torch.from_numpy(interpolate(displacement, points)).flatten(1)
    offsets = solve_offsets(torch.from_numpy(displacement), wanted, start)
    return (wanted + offsets).numpy().reshape(points.shape)


def _determinant(gradients: Sequence[Sequence[Field]]) -> Field:
    """det(I + grad u), given the gradient of each component of u."""
    (a, b, c), (d, e, f), (g, h, i) = gradients
    a, e, i = a + 1, e + 1, i + 1
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)


def solve_poisson(source: Field) -> Field:
    """Solve laplace(p) = source on a unit grid with no flow through its faces.

    The mean of the source, for which there is no solution, is ignored.

    Parameters
    ----------
    source
        Shape (X, Y, Z).

    Returns
    -------
    The potential `p` with mean zero, same shape; the Laplacian is the seven-point one.
    """
    x, y, z = (2 * np.cos(angles) - 2 for angles in _angles(source.shape))
    laplacian = x + y + z
    laplacian[0, 0, 0] = np.inf
    return _multiply(source, 1 / laplacian)


def smooth(field: Field, sigma: float) -> Field:
    """Convolve with a Gaussian of standard deviation `sigma` (voxels), mirrored at the faces."""
    x, y, z = (np.exp(-((sigma * angles) ** 2) / 2) for angles in _angles(field.shape))
    return _multiply(field, x * y * z)


def _angles(shape: tuple[int, ...]) -> list[NDArray[np.float32]]:
    """Angular frequency of each cosine along each axis, in radians a voxel; they broadcast."""
    axes = (np.pi * np.arange(n, dtype=np.float32) / n for n in shape)
    return list(np.meshgrid(*axes, indexing='ij', sparse=True))


def _multiply(field: Field, factor: NDArray) -> Field:
    spectrum = fft.dctn(field, type=2, norm='ortho')
    spectrum *= factor
    return np.asarray(fft.idctn(spectrum, type=2, norm='ortho'), dtype=np.float32)


SMOOTHNESS_MM = (8.0, 16.0)
"""Standard deviations of the Gaussians that smooth the noise: gyri and lobes."""

DIVERGENCE_SD = (0.10, 0.09)
"""Standard deviation of the local log volume ratio that each of them brings."""

MEAN_LOG_HEAD_VOLUME = float(np.log(0.80))
"""Heads are smaller than the template, whose brain with its fluid has 1.89 litres."""

SEX_LOG_HEAD_VOLUME = {'F': -0.055, 'M': 0.055}
"""Men's heads are about 11 % larger (Ruigrok et al., Neurosci. Biobehav. Rev. 2014)."""

HEAD_VOLUME_LOG_SD = 0.06
"""Spread of the head volume within a sex."""

ROTATION_SD_DEGREES = 3.0
TRANSLATION_SD_MM = 4.0
"""How heads lie in the scanner."""


@dataclass(frozen=True)
class Anatomy:
    """A healthy anatomy.

    Attributes
    ----------
    displacement
        Forward map from the template, shape (3, X, Y, Z), in voxels; apart from size and pose.
    placement
        Affine that then brings template coordinates (mm) to the scanner: size and pose, (4, 4).
    """

    displacement: Field
    placement: NDArray[np.float64]

    @property
    def volume_scale(self) -> float:
        """Factor of all volumes that comes from the size of the head."""
        return float(np.linalg.det(self.placement[:3, :3]))


def sample_anatomy(template: HeadTemplate, sex: str, rng: np.random.Generator) -> Anatomy:
    """Sample an individual anatomy.

    Parameters
    ----------
    template
        What it is a deformation of.
    sex
        Men have larger heads.
    rng
        Source of randomness.
    """
    placement = sample_placement(sex, rng)
    velocity = sample_velocity(template.shape, template.voxel_size, rng)
    return Anatomy(exponential(velocity), placement)


def sample_velocity(shape: tuple[int, ...], voxel_size: float, rng: np.random.Generator) -> Field:
    """Sample a stationary velocity field: smoothed white noise of two scales, (3, X, Y, Z), voxels.

    White noise smoothed with a Gaussian of standard deviation s and scaled to a standard deviation
    a has a divergence of variance 3 a**2 / (2 s**2), from which its amplitude follows.
    """
    velocity = np.zeros((3, *shape), dtype=np.float32)
    for smoothness, divergence_sd in zip(SMOOTHNESS_MM, DIVERGENCE_SD):
        sigma = smoothness / voxel_size
        amplitude = divergence_sd * sigma * np.sqrt(2 / 3)
        # Smoothing white noise of unit variance leaves the variance (2 sqrt(pi) sigma)**-3.
        gain = amplitude * (2 * np.sqrt(np.pi) * sigma) ** 1.5
        for component in velocity:
            noise = rng.standard_normal(shape, dtype=np.float32)
            component += np.float32(gain) * smooth(noise, sigma)
    return velocity


def sample_placement(sex: str, rng: np.random.Generator) -> NDArray[np.float64]:
    """Sample size and pose of a head: an affine from template to scanner coordinates in mm."""
    log_volume = rng.normal(MEAN_LOG_HEAD_VOLUME + SEX_LOG_HEAD_VOLUME[sex], HEAD_VOLUME_LOG_SD)
    angles = rng.normal(0, ROTATION_SD_DEGREES, 3)
    placement = np.eye(4)
    placement[:3, :3] = (
        np.exp(log_volume / 3) * Rotation.from_euler('xyz', angles, degrees=True).as_matrix()
    )
    placement[:3, 3] = rng.normal(0, TRANSLATION_SD_MM, 3)
    return placement


NEGLIGIBLE_WEIGHT = 1e-6
"""Interpolation weights below this are rounding errors."""


class _AxisOperators(NamedTuple):
    """What brings one axis of the working grid to the label voxels.

    Attributes
    ----------
    span
        The part of the working grid that the labels need.
    mean, slope
        Mean and mean derivative over each label voxel, shape (label voxels, span).
    """

    span: slice
    mean: NDArray[np.float32]
    slope: NDArray[np.float32]


class RegionIntegrator:
    """Integrates the Jacobian determinant of a map over each region of a template.

    The map is linear between the points of the working grid. Its gradient, averaged over each
    voxel of the label map, is a product of one small matrix per axis; the determinant of that
    average times the volume of the voxel is the volume of the deformed voxel up to third-order
    terms, and the deformed voxels of a region add up to the region without gaps.

    Parameters
    ----------
    template
        Its labels and its working grid.
    """

    def __init__(self, template: HeadTemplate) -> None:
        labels = template.labels
        self.voxel_volume = voxel_volume(labels)
        self.n_regions = len(template.regions)
        flat = np.asarray(labels.dataobj).ravel()
        self.row = np.searchsorted(template.regions['index'], flat)
        self.row[flat == 0] = self.n_regions
        to_grid = np.linalg.inv(template.affine) @ labels.affine
        self.axes = tuple(
            _axis_operators(n_labels, n_grid, to_grid[axis, axis], to_grid[axis, 3])
            for axis, (n_labels, n_grid) in enumerate(zip(labels.shape, template.shape))
        )

    def volumes(self, displacement: Field) -> NDArray[np.float64]:
        """Volume of each region after the map x + u(x), in mm3, in the order of the table."""
        determinant = _determinant([self._gradient(component) for component in displacement])
        sums = np.bincount(self.row, determinant, minlength=self.n_regions + 1)
        return sums[: self.n_regions].astype(np.float64) * self.voxel_volume

    def _gradient(self, component: Field) -> list[Field]:
        """Mean gradient of one component over each label voxel: three flat arrays."""
        x, y, z = self.axes
        needed = component[x.span, y.span, z.span]
        mean_z, slope_z = needed @ z.mean.T, needed @ z.slope.T
        products = (
            (x.slope, y.mean, mean_z),
            (x.mean, y.slope, mean_z),
            (x.mean, y.mean, slope_z),
        )
        return [_contract(along_x, along_y, along_z) for along_x, along_y, along_z in products]


def _contract(along_x: NDArray, along_y: NDArray, volume: NDArray) -> Field:
    """Apply a matrix along the second axis, then one along the first; flat result."""
    partial = np.matmul(along_y, volume)
    banded = sparse.csr_matrix(along_x)
    return (banded @ partial.reshape(len(partial), -1)).ravel()


def _axis_operators(n_labels: int, n_grid: int, step: float, start: float) -> _AxisOperators:
    """Operators of one axis; label voxel k is centred at `start + step * k` of the grid."""
    edges = start + step * (np.arange(n_labels + 1) - 0.5)
    lower = np.floor(edges).astype(int)
    span = slice(int(lower[0]), min(int(lower[-1]) + 2, n_grid))
    points = np.arange(span.start, span.stop)
    at_edges = np.maximum(1 - np.abs(edges[:, None] - points), 0).astype(np.float32)
    mean = (at_edges[1:] + at_edges[:-1]) / 2
    slope = (at_edges[1:] - at_edges[:-1]) / np.float32(step)
    return _AxisOperators(span, mean, slope)


def region_fractions(template: HeadTemplate) -> sparse.csr_matrix:
    """Fraction of each voxel of the working grid that each region fills, (regions, X * Y * Z).

    Each label voxel gives its volume to the grid points around it, by linear weights.
    """
    labels, data = template.labels, np.asarray(template.labels.dataobj)
    voxels = np.argwhere(data)
    rows = np.searchsorted(template.regions['index'], data[tuple(voxels.T)])
    position = apply_affine(np.linalg.inv(template.affine) @ labels.affine, voxels)
    lower = np.floor(position + NEGLIGIBLE_WEIGHT).astype(int)
    shape = (len(template.regions), int(np.prod(template.shape)))
    share = voxel_volume(labels) / template.voxel_size**3
    entries = []
    for corner in np.ndindex(2, 2, 2):
        weight = np.prod(1 - np.abs(position - lower - corner), axis=1) * share
        used = weight > NEGLIGIBLE_WEIGHT
        columns = np.ravel_multi_index((lower[used] + corner).T, template.shape)
        entries.append((weight[used], rows[used], columns))
    values, row, column = (np.concatenate(parts) for parts in zip(*entries))
    return sparse.csr_matrix((values.astype(np.float32), (row, column)), shape)


PATTERNS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ('medial temporal', (31, 32, 47, 48, 116, 117, 170, 171)),
    ('fronto-insular', (100, 101, 102, 103, 118, 119, 178, 179)),
    ('posterior parietal', (106, 107, 166, 167, 168, 169, 198, 199)),
    ('subcortical', (36, 37, 57, 58, 59, 60)),
)
"""Name and MUSE indices of each pattern, left and right; every region fills over 140 voxels of
2 mm. Amygdala, hippocampus, entorhinal area, parahippocampal gyrus; anterior cingulate gyrus,
anterior insula, frontal operculum, posterior orbital gyrus; angular gyrus, posterior cingulate
gyrus, precuneus, superior parietal lobule; caudate, putamen, thalamus."""

LARGEST_LOSS = 0.3
"""Part of its volume that a region loses at severity 1 (the basic task of the paper, Table 5)."""

FLUID_RIM_MM = 3.0
"""Thickness of the fluid between brain and skull."""

REACH_MM = 20.0
"""The fluid within about this distance (sd of a Gaussian) of a loss expands to make up for it."""

ADJACENT_MM = 2
"""Regions this close to an atrophied region count as its neighbours."""

RELAXATION = 1.3
"""Step of the fixed point. A region answers a change of its divergence with about three quarters
of it, since the linear interpolation of the velocity blurs its border."""

LOSS_TOLERANCE = 0.001
"""The fixed point ends when all regions with a loss are this close to it,"""

REST_TOLERANCE = 0.004
"""and all others changed by no more than this."""

MOST_ITERATIONS = 20
"""Iterations after which the fixed point gives up; it needs three to five."""


@dataclass(frozen=True)
class Atrophy:
    """What the disease did to an anatomy.

    Attributes
    ----------
    displacement
        Forward map from the template to the diseased anatomy, shape (3, X, Y, Z), in voxels.
    baseline, achieved
        Volume of each region in mm3 before and after the disease.
    """

    displacement: Field
    baseline: NDArray[np.float64]
    achieved: NDArray[np.float64]

    @property
    def loss(self) -> NDArray[np.float64]:
        """Part of the volume that each region lost."""
        return 1 - self.achieved / self.baseline


def pattern_table(n_patterns: int, regions: pd.DataFrame) -> pd.DataFrame:
    """List the regions of the first patterns: pattern (from 1), pattern_name, index, name."""
    if not 0 <= n_patterns <= len(PATTERNS):
        raise UsageError(f'--patterns {n_patterns}: choose a number between 0 and {len(PATTERNS)}')
    names = regions.set_index('index')['name']
    rows = [
        (number, pattern_name, index, names[index])
        for number, (pattern_name, indices) in enumerate(PATTERNS[:n_patterns], start=1)
        for index in indices
    ]
    return pd.DataFrame(rows, columns=['pattern', 'pattern_name', 'index', 'name'])


def prescribed_losses(severities: NDArray, regions: pd.DataFrame) -> NDArray[np.float64]:
    """Loss of each region: of a region in several patterns, each takes its part of what is left."""
    remaining = np.ones(len(regions))
    for severity, (_, indices) in zip(severities, PATTERNS):
        remaining[regions['index'].isin(indices)] *= 1 - LARGEST_LOSS * severity
    return 1 - remaining


def adjacent_regions(labels: Image, indices: tuple[int, ...]) -> set[int]:
    """Find the regions that touch, within 2 mm, one of the given regions."""
    data = np.asarray(labels.dataobj)
    around = ndimage.binary_dilation(np.isin(data, indices), iterations=ADJACENT_MM)
    return set(np.unique(data[around]).tolist()) - {0, *indices}


class AtrophySolver:
    """Finds the diffeomorphism that gives each region its prescribed loss.

    The velocity v is the gradient field with div v = f: f is constant in each region, zero in other
    tissue, and positive in the fluid near the losses, which expands into the space they leave.
    The constants start at the logarithm of the volume ratios and are corrected by the volumes
    achieved, of all regions, until these are as prescribed.

    Parameters
    ----------
    template
        Template on its working grid.
    """

    def __init__(self, template: HeadTemplate) -> None:
        self.template = template
        self.integrator = RegionIntegrator(template)
        self.controlled = (template.regions['tissue'] != 'CSF').to_numpy()
        self.to_grid = region_fractions(template).T.tocsr()[:, self.controlled]
        self.fluid = _absorbing_fluid(template, self.to_grid.sum(axis=1))

    def solve(self, anatomy: Field, losses: NDArray) -> Atrophy:
        """Impose losses on an anatomy.

        Parameters
        ----------
        anatomy
            The participant's own forward map, shape (3, X, Y, Z), in voxels.
        losses
            Prescribed loss of each region, 0 to 0.3, in the order of the template's table.
        """
        baseline = self.integrator.volumes(anatomy)
        if not np.any(losses):
            return Atrophy(anatomy, baseline, baseline)
        wanted = np.log1p(-losses[self.controlled])
        divergence = wanted.copy()
        for _ in range(MOST_ITERATIONS):
            displacement = compose(anatomy, exponential(self.velocity(divergence)))
            achieved = self.integrator.volumes(displacement)
            ratio = (achieved / baseline)[self.controlled]
            if _close_enough(ratio, wanted):
                return Atrophy(displacement, baseline, achieved)
            divergence += RELAXATION * (wanted - np.log(ratio))
        raise DataError(
            f'losses of up to {np.max(losses):.2f} were not reached in {MOST_ITERATIONS} '
            'iterations; prescribe smaller losses'
        )

    def velocity(self, divergence: NDArray) -> Field:
        """Gradient field with the given divergence in each region; (3, X, Y, Z), in voxels."""
        source = (self.to_grid @ divergence.astype(np.float32)).reshape(self.template.shape)
        nearby = smooth(np.abs(source), REACH_MM / self.template.voxel_size)
        sink = self.fluid * nearby.clip(0)
        source -= sink * (source.sum() / sink.sum())
        return np.stack(np.gradient(solve_poisson(source)))


def _close_enough(ratio: NDArray, wanted: NDArray) -> bool:
    error = np.abs(ratio - np.exp(wanted))
    return bool(np.all(error < np.where(wanted < 0, LOSS_TOLERANCE, REST_TOLERANCE)))


def _absorbing_fluid(template: HeadTemplate, tissue: NDArray) -> Field:
    """Part of each voxel that may take up volume: ventricles, sulci, the rim of the brain."""
    outside = template.brain < 0.5
    near = distance_to(~outside, template.voxel_size) < FLUID_RIM_MM
    fluid = np.where(outside, near, template.tissue[2])
    free = 1 - np.asarray(tissue).reshape(template.shape).clip(0, 1)
    return (fluid * free).astype(np.float32)
