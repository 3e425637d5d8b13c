"""Cost model: estimated time, memory and disk space of the participant level."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import nibabel as nib
import numpy as np
from nibabel.filebasedimages import ImageFileError
from nibabel.spatialimages import HeaderDataError, SpatialImage

from surreal_bids.bids.layout import T1wImage
from surreal_bids.bids.preflight import free_bytes
from surreal_bids.cautions import Caution
from surreal_bids.cli.plan import Job
from surreal_bids.config import BUILTIN_ATLAS, AppConfig, uses_network
from surreal_bids.workflows.anatomy import registration_settings

HEAD_VOXELS = 11.5e6
"""Voxels of the image (1 mm) on which these costs were measured, with one thread."""

SECONDS = {
    'find_brain': 8.0,
    'n4': 3.0,
    'register_template': 60.0,
    'classify': 8.0,
    'register_atlas': 48.0,
    'fuse': 18.0,
    'label': 20.0,
    'make_ravens': 12.0,
    'measure_quality': 6.0,
    'report': 8.0,
    'copies': 12.0,
}
"""Processor time of each step, by the name of its node."""

FIXED = ('find_brain', 'register_template', 'label')
"""Steps whose time does not depend on the voxels of the T1w image: networks work on their own
grid, and registration to the template on the grid of the template."""

PROCESS_GB = 3.0
"""Memory of the largest step."""

OUTPUT_BYTES_PER_VOXEL, OUTPUT_GB_IN_TEMPLATE = 12.5, 0.1
WORK_BYTES_PER_VOXEL, WORK_GB_IN_TEMPLATE = 21.0, 0.13
ATLAS_BYTES_PER_VOXEL = 9.0
"""Size of outputs, of intermediate results, and of those for each atlas: on the grid of the image,
and on that of the template at 1 mm."""


@dataclass(frozen=True)
class Estimate:
    """Estimated cost of a number of images.

    Attributes
    ----------
    n_images
        Number of images.
    cpu_seconds
        Total processor time.
    nprocs
        Number of parallel processes.
    memory_gb
        Total memory of these processes.
    output_gb, work_gb
        Disk space.
    """

    n_images: int
    cpu_seconds: float
    nprocs: int
    memory_gb: float
    output_gb: float
    work_gb: float

    @property
    def duration(self) -> str:
        """Time and number of processes in words."""
        hours = self.cpu_seconds / self.nprocs / 3600
        time = f'{hours:.1f} h' if hours >= 1 else f'{max(1, round(60 * hours))} min'
        processes = '1 process' if self.nprocs == 1 else f'{self.nprocs} processes'
        return f'about {time} with {processes}'

    def __str__(self) -> str:
        return (
            f'Estimate: {self.duration} '
            f'({self.cpu_seconds / self.n_images / 60:.0f} min of processor time per image), '
            f'{self.memory_gb:.0f} GB of memory, {self.output_gb:.1f} GB for outputs and '
            f'{self.work_gb:.1f} GB for intermediate results'
        )


def estimate(config: AppConfig, jobs: Sequence[Job], nprocs: int) -> Estimate:
    """Estimate the cost of jobs from that of one measured image.

    Parameters
    ----------
    config
        Its atlas and template matter.
    jobs
        Images to process.
    nprocs
        Number of parallel processes.
    """
    n_registrations = _count_registrations(config)
    sizes = [_relative_size(job.image) for job in jobs]
    seconds = [_seconds(job, size, config, n_registrations) for job, size in zip(jobs, sizes)]
    voxels = HEAD_VOXELS * sum(sizes)
    work_bytes = WORK_BYTES_PER_VOXEL + n_registrations * ATLAS_BYTES_PER_VOXEL
    in_template = len(jobs) / config.template_resolution**3
    return Estimate(
        n_images=len(jobs),
        cpu_seconds=sum(seconds),
        nprocs=nprocs,
        memory_gb=PROCESS_GB * nprocs,
        output_gb=voxels * OUTPUT_BYTES_PER_VOXEL / 1e9 + in_template * OUTPUT_GB_IN_TEMPLATE,
        work_gb=voxels * work_bytes / 1e9 + in_template * WORK_GB_IN_TEMPLATE,
    )


def lacking_space(config: AppConfig, expected: Estimate) -> list[Caution]:
    """Name the folders that have less free space than a run is estimated to need."""
    needed = {config.output_dir: expected.output_gb, config.work_dir: expected.work_gb}
    free = {folder: free_bytes(folder) / 1e9 for folder in needed}
    return [
        Caution(
            f'{folder}: {free[folder]:.1f} GB are free, but about {size:.1f} GB are needed',
            'The run will stop when the disk is full',
            'Free some space, or choose another folder',
        )
        for folder, size in needed.items()
        if free[folder] < size
    ]


def _count_registrations(config: AppConfig) -> int:
    """Count the registrations of atlases to an image."""
    if uses_network(config):
        return 0
    builtin = config.atlas == BUILTIN_ATLAS
    atlases = 1 if builtin else len(list(Path(config.atlas).glob('*_dseg.nii.gz')))
    return atlases * len(registration_settings(atlases))


def _relative_size(image: T1wImage) -> float:
    """Divide the voxels of an image by those of the measured one; 1 if it is unreadable."""
    try:
        header = nib.load(image.path)
    except (ImageFileError, HeaderDataError, OSError, EOFError, zlib.error):
        return 1.0
    shape = header.shape if isinstance(header, SpatialImage) else (HEAD_VOXELS,)
    return float(np.prod(shape)) / HEAD_VOXELS


def _seconds(job: Job, size: float, config: AppConfig, n_registrations: int) -> float:
    """Estimate the processor time of one image, without steps whose results are reused."""
    reusable = job.reusable
    counts = dict.fromkeys(SECONDS, 1.0) | {
        'find_brain': reusable.mask is None,
        'n4': reusable.t1w is None,
        'register_template': (reusable.anat2std_xfm is None) / config.template_resolution**3,
        'classify': not reusable.tpms,
        'register_atlas': n_registrations if reusable.dseg is None else 0,
        'fuse': reusable.dseg is None and not uses_network(config),
        'label': reusable.dseg is None and uses_network(config),
    }
    return sum(n * SECONDS[step] * (1 if step in FIXED else size) for step, n in counts.items())
