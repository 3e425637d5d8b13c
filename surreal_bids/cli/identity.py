"""What of a configuration changes the outputs of participants; nothing is written to tell."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from surreal_bids import __version__
from surreal_bids.bids.layout import T1wImage
from surreal_bids.bids.record import digest_of, digest_of_files
from surreal_bids.config import BUILTIN_ATLAS, BUILTIN_TEMPLATE, AppConfig
from surreal_bids.exceptions import DataError, UsageError

FEWEST = 2
"""Nobody is an atlas of their own, so that even someone of the library needs another."""


def study_identity(config: AppConfig, images: Sequence[T1wImage]) -> dict[str, Any]:
    """Options and files that the outputs of every participant depend on, as JSON can hold them.

    What is built in is told by its name: the version of this package is in every fingerprint.

    Parameters
    ----------
    config
        What was asked for.
    images
        All images that can be read, of which some may serve as intermediate templates.
    """
    library = choose_library(images, config.template_library, config.random_seed)
    return {
        'template_name': template_name(config),
        'template': _identify(config, 'template', BUILTIN_TEMPLATE, 'tpl-*.nii.gz'),
        'template_resolution': config.template_resolution,
        'atlas': _identify(config, 'atlas', BUILTIN_ATLAS, '*'),
        'template_library': {image.name: digest_of(image.path) for image in library},
        'segmentation_mode': config.segmentation_mode,
        'ravens_smoothing': config.ravens_smoothing,
    }


def steps_dir(config: AppConfig) -> Path:
    """Folder for the steps of workflows; one of its own for all that a step does not look at.

    Nipype takes a step for done if its inputs are what they were. It does not see that the program
    is another, nor files in the template's folder; and it keeps nobody from working in its folder.
    """
    template = _identify(config, 'template', BUILTIN_TEMPLATE, 'tpl-*.nii.gz')
    digest = short_digest(config.bids_dir.resolve(), config.output_dir.resolve(), template)
    return config.work_dir.absolute() / f'surreal_bids-{__version__}-{digest}'


def short_digest(*parts: object) -> str:
    """Twelve letters and digits for the name of a folder that belongs to these and no others."""
    return hashlib.sha256('\n'.join(map(str, parts)).encode()).hexdigest()[:12]


def _identify(config: AppConfig, option: str, builtin: str, pattern: str) -> str:
    """The name of what is built in, or else the digest of the files in a folder."""
    value = getattr(config, option)
    if value == builtin:
        return builtin
    files = [path for path in Path(value).glob(pattern) if path.is_file()]
    if not files:
        raise DataError(f'--{option} {value}: no such folder, or nothing in it; correct the path')
    return digest_of_files(files)


def template_name(config: AppConfig) -> str:
    """Name of the template: that of its T1w image, if it is not built in."""
    if config.template == BUILTIN_TEMPLATE:
        return BUILTIN_TEMPLATE
    if config.template_resolution != 1:
        raise UsageError(
            '--template-resolution is that of the built-in template; your own has the voxels of '
            'its files'
        )
    names = {path.name for path in Path(config.template).glob('tpl-*_T1w.nii.gz')}
    if len(names) != 1:
        raise DataError(
            f'--template {config.template}: {len(names)} files tpl-NAME_T1w.nii.gz, where one is '
            'needed; give a folder with a template'
        )
    return names.pop().removeprefix('tpl-').split('_')[0]


def choose_library(images: Sequence[T1wImage], number: int, seed: int) -> list[T1wImage]:
    """Draw as many people as asked for, of each the first image, in the order of the dataset."""
    if number == 0:
        return []
    first = list({image.participant: image for image in reversed(images)}.values())[::-1]
    if not FEWEST <= number <= len(first):
        raise UsageError(
            f'--template-library {number}: expected {FEWEST} to {len(first)}, which is how many '
            'participants can be used'
        )
    drawn = np.random.default_rng(seed).choice(len(first), size=number, replace=False)
    return [first[index] for index in sorted(drawn)]
