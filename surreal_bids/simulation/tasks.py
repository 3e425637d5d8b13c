"""The five semi-synthetic tasks: which regions shrink, by how much, and how regularly.

Section 4.2 and Table 5 (appendix B.1) of Yang, Wen and Davatzikos, ICLR 2022.

Shape legend: N people, S = 139 regions in the order of :func:`surreal_bids.regions.muse_indices`,
M = 3 patterns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surreal_bids.exceptions import UsageError
from surreal_bids.regions import muse_indices

Array = NDArray[np.float64]

N_PATTERNS = 3

TABLE_5 = {
    'amygdala': ((31, 32), '1', '12', '1'),
    'hippocampus': ((47, 48), '12', '12', '1'),
    'angular gyrus': ((106, 107), '3', '3', '3'),
    'entorhinal area': ((116, 117), '1', '1', ''),
    'frontal operculum': ((118, 119), '2', '2', ''),
    'inferior temporal gyrus': ((132, 133), '1', '1', ''),
    'lateral orbital gyrus': ((136, 137), '3', '3', ''),
    'medial frontal cortex': ((140, 141), '23', '23', ''),
    'middle frontal gyrus': ((142, 143), '2', '23', '2'),
    'middle occipital gyrus': ((144, 145), '3', '3', ''),
    'opercular part of the inferior frontal gyrus': ((162, 163), '2', '2', '2'),
    'parahippocampal gyrus': ((170, 171), '1', '1', ''),
    'posterior insula': ((172, 173), '2', '2', ''),
    'parietal operculum': ((174, 175), '13', '13', ''),
    'supramarginal gyrus': ((194, 195), '3', '3', ''),
    'superior parietal lobule': ((198, 199), '3', '13', '3'),
    'temporal pole': ((202, 203), '1', '1', ''),
    'triangular part of the inferior frontal gyrus': ((204, 205), '2', '2', ''),
}
"""Row by row: MUSE indices (right, left), then the patterns ticked under small overlapping, large
overlapping and scarce region. A tick is both sides, so a pattern has 14, 16 and 4 regions, and
shares 4, 8 and 0 of them with others."""

SMALL_OVERLAP, LARGE_OVERLAP, SCARCE_REGION = 1, 2, 3
"""Columns of :data:`TABLE_5`."""


@dataclass(frozen=True)
class Task:
    """A semi-synthetic task."""

    name: str
    patterns: tuple[tuple[int, ...], ...]
    """MUSE indices of the regions of each pattern, ascending."""
    noise_sd: float = 0.05
    """Standard deviation of the factor N(1, sd) by which losses vary within a pattern."""
    max_loss: float = 0.3
    """Share of the volume that a region loses at severity 1."""


def _patterns(column: int) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(index for row in TABLE_5.values() if str(pattern) in row[column] for index in row[0])
        for pattern in range(1, N_PATTERNS + 1)
    )


TASKS = {
    task.name: task
    for task in (
        Task('basic', _patterns(SMALL_OVERLAP)),
        Task('overlap', _patterns(LARGE_OVERLAP)),
        Task('scarce', _patterns(SCARCE_REGION)),
        Task('noise', _patterns(SMALL_OVERLAP), noise_sd=0.2),
        Task('mild', _patterns(SMALL_OVERLAP), max_loss=0.2),
    )
}
"""The tasks by name, in the order of the paper."""


def find_task(name: str) -> Task:
    """Look up a task by its name."""
    if name not in TASKS:
        raise UsageError(f'no task is called {name!r}; there are {", ".join(TASKS)}')
    return TASKS[name]


def draw_severities(n_people: int, rng: np.random.Generator) -> Array:
    """Draw the severity of each pattern in each person from U[0, 1]; (N, M)."""
    return rng.uniform(size=(n_people, N_PATTERNS))


def impose_atrophy(
    volumes: Array, severities: Array, task: Task, rng: np.random.Generator
) -> Array:
    """Shrink the regions of each pattern: v -= v * s * N(1, noise_sd) * max_loss (section 4.2).

    The patterns act one after the other. A region of two patterns hence keeps the product of what
    either leaves, v (1 - loss_1) (1 - loss_2). Each person, region and pattern has its own draw.

    Parameters
    ----------
    volumes : (N, S)
        Volumes of healthy people.
    severities : (N, M)
        Severity of each pattern, 0 to 1.

    Returns
    -------
    (N, S) array
        The volumes after the loss; the input is left as it is.
    """
    place = {index: position for position, index in enumerate(muse_indices())}
    volumes = volumes.copy()
    for pattern, severity in zip(task.patterns, severities.T):
        columns = [place[index] for index in pattern]
        noise = rng.normal(1, task.noise_sd, size=(len(volumes), len(columns)))
        volumes[:, columns] -= volumes[:, columns] * severity[:, None] * noise * task.max_loss
    return volumes
