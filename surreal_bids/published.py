"""The models that the authors of Surreal-GAN published, which are part of this package.

Their repository is https://github.com/zhijian-yang/SurrealGAN (MIT). The checkpoints there were
converted by `benchmarks/import_checkpoint.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files as package_files
from pathlib import Path

from surreal_bids.names import Role

REPOSITORY = 'https://github.com/zhijian-yang/SurrealGAN'
LICENCE = (
    'MIT (Copyright (c) 2022 Zhijian Yang). The README of the authors also refers to the licence '
    'of CBICA, University of Pennsylvania: https://www.cbica.upenn.edu/sbia/software/license.html'
)


@dataclass(frozen=True)
class Published:
    """What is known of a published checkpoint and not written in it.

    Attributes
    ----------
    title
        What the model is of.
    checkpoint
        Where the checkpoint is in the authors' repository.
    covariates
        Its covariates, in order. Sex is 0 (F) or 1 (M), age in years, ICV in mm3.
    patterns
        Role of each R-index in the paper, by its published number, in the order of the
        checkpoint. Models have them in the order of their numbers.
    citation
        The paper.
    """

    title: str
    checkpoint: str
    covariates: tuple[Role, ...]
    patterns: Mapping[str, str]
    citation: str


CHECKPOINTS = {
    'c3616ae5c5afb662622aae54416d25b15abd30bfe047f52c83784f1b2dbf38ca': Published(
        "the authors' model of Alzheimer's disease",
        'pretrained_models/ad_2rindices/saved_model',
        ('sex', 'age'),
        {
            'r1': 'diffuse cortical atrophy',
            'r2': 'focal atrophy of the medial temporal lobes',
        },
        'Yang Z, Wen J, Davatzikos C. Surreal-GAN: semi-supervised representation learning via GAN '
        'for uncovering heterogeneous disease-related imaging patterns. ICLR 2022. '
        'https://openreview.net/forum?id=nf3A0WZsXS5',
    ),
    'e9bba17c8709b0bf3015d0c83fd2e0c5b159f29b651632fd0c4113e27fc41a9d': Published(
        "the authors' model of brain ageing",
        'pretrained_models/brain_aging_5rindices/saved_model',
        ('sex', 'icv'),
        {
            'r1': 'subcortical atrophy (basal ganglia)',
            'r3': 'parieto-temporal atrophy',
            'r4': 'diffuse cortical atrophy (frontal, parietal)',
            'r5': 'perisylvian atrophy (insula)',
            'r2': 'atrophy of the medial temporal lobe',
        },
        'Yang Z, Wen J, Erus G, et al. Brain aging patterns in a large and diverse cohort of '
        '49,482 individuals. Nature Medicine 2024. https://doi.org/10.1038/s41591-024-03144-x',
    ),
}
"""The published checkpoints by the SHA-256 of their files."""

NAMES = {'ad': 'ad', 'ageing': 'ageing', 'aging': 'ageing'}
"""Folders of the published models in this package by the names that users may give."""


def describe(published: Published) -> dict[str, object]:
    """Describe a published model for its card, as plain JSON values."""
    return {
        'File': published.checkpoint,
        'Title': published.title,
        'Source': REPOSITORY,
        'License': LICENCE,
        'Citation': published.citation,
        'Patterns': dict(sorted(published.patterns.items())),
    }


def is_published(model: Path) -> bool:
    """Tell whether a model is given by a published name; an existing path takes precedence."""
    return str(model) in NAMES and not model.exists()


def find_model(model: str | Path) -> Path:
    """Return the folder of a model, which may be given by the name of a published one."""
    path = Path(model)
    if not is_published(path):
        return path
    return Path(str(package_files('surreal_bids') / 'data' / 'models' / NAMES[str(path)]))


def model_name(model: Path) -> str:
    """Return how reports call a model: by its folder, and the one above if its name is usual."""
    folder = model.absolute()
    is_usual = folder.name in ('model', 'models')
    return f'{folder.parent.name}/{folder.name}' if is_usual else folder.name
