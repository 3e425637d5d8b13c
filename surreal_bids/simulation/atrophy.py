"""Regional atrophy as a diffeomorphism whose regional volumes are prescribed.

Direction of maps: the disease acts first, on the template, by D = exp(v); the person's own anatomy
A follows. Template point x lies at A(D(x)) in the diseased person and at A(x) before the disease,
so that a region of the template has the volume of A(region) before and of A(D(region)) after.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import ndimage

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.simulation.spectral import smooth, solve_poisson
from surreal_bids.simulation.templates import LabelMap, Template, distance_to
from surreal_bids.simulation.volumes import RegionIntegrator, region_fractions
from surreal_bids.simulation.warps import Field, compose, exponential

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
    """What the disease did to a person.

    Attributes
    ----------
    displacement
        Forward map from the template to the diseased person, shape (3, X, Y, Z), in voxels.
    baseline, achieved
        Volume of each region in mm3 before and after the disease.
    iterations
        Iterations of the fixed point.
    """

    displacement: Field
    baseline: NDArray[np.float64]
    achieved: NDArray[np.float64]
    iterations: int

    @property
    def loss(self) -> NDArray[np.float64]:
        """Part of the volume that each region lost."""
        return 1 - self.achieved / self.baseline


def pattern_table(n_patterns: int, regions: pd.DataFrame) -> pd.DataFrame:
    """List the regions of the first patterns: pattern (from 1), pattern_name, index, name."""
    if not 0 <= n_patterns <= len(PATTERNS):
        raise UsageError(f'--patterns {n_patterns}: between 0 and {len(PATTERNS)} are defined')
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


def adjacent_regions(labels: LabelMap, indices: tuple[int, ...]) -> set[int]:
    """Find the regions that touch, within 2 mm, one of the given regions."""
    chosen = np.isin(labels.data, indices)
    around = ndimage.binary_dilation(chosen, iterations=ADJACENT_MM)
    return set(np.unique(labels.data[around]).tolist()) - {0, *indices}


class AtrophySolver:
    """Finds the diffeomorphism that gives each region its prescribed loss.

    The velocity v is the gradient field with div v = f: f is constant in each region, zero in other
    tissue, and positive in the fluid near the losses, so that the space they leave is taken up
    there. The constants start at the logarithm of the volume ratios and are corrected by the
    volumes achieved, of all regions, until these are as prescribed.

    Parameters
    ----------
    template
        Template on its working grid.
    """

    def __init__(self, template: Template) -> None:
        self.template = template
        self.integrator = RegionIntegrator(template)
        self.controlled = (template.regions['tissue'] != 'CSF').to_numpy()
        self.to_grid = region_fractions(template).T.tocsr()[:, self.controlled]
        self.fluid = _absorbing_fluid(template, self.to_grid.sum(axis=1))

    def solve(self, anatomy: Field, losses: NDArray) -> Atrophy:
        """Impose losses on a person.

        Parameters
        ----------
        anatomy
            The person's own forward map, shape (3, X, Y, Z), in voxels.
        losses
            Prescribed loss of each region, 0 to 0.3, in the order of the template's table.
        """
        baseline = self.integrator.volumes(anatomy)
        if not np.any(losses):
            return Atrophy(anatomy, baseline, baseline, 0)
        wanted = np.log1p(-losses[self.controlled])
        divergence = wanted.copy()
        for iteration in range(1, MOST_ITERATIONS + 1):
            displacement = compose(anatomy, exponential(self.velocity(divergence)))
            achieved = self.integrator.volumes(displacement)
            ratio = (achieved / baseline)[self.controlled]
            if _close_enough(ratio, wanted):
                return Atrophy(displacement, baseline, achieved, iteration)
            divergence += RELAXATION * (wanted - np.log(ratio))
        raise DataError(
            f'losses of up to {np.max(losses):.2f} were not reached in {MOST_ITERATIONS} '
            'iterations; prescribe smaller ones'
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


def _absorbing_fluid(template: Template, tissue: NDArray) -> Field:
    """Part of each voxel that may take up volume: ventricles, sulci, the rim of the brain."""
    outside = template.brain < 0.5
    near = distance_to(~outside, template.voxel_size) < FLUID_RIM_MM
    fluid = np.where(outside, near, template.tissue[2])
    free = 1 - np.asarray(tissue).reshape(template.shape).clip(0, 1)
    return (fluid * free).astype(np.float32)
