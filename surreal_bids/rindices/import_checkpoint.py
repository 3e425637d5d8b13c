"""The authors' checkpoints (SurrealGAN 0.1.1 on PyPI) as models of ours.

Their files are pickles. They are read by torch's weights-only loader, which builds tensors and
plain containers and refuses everything else, with four names of numpy allowed beside: what an array
of numbers is made of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from numpy._core.multiarray import _reconstruct
from torch import Tensor

from surreal_bids.cohort.requirements import PreprocessingOptions
from surreal_bids.columns import Meaning, means
from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.harmonization.covariates import CNNormaliser, Residualiser
from surreal_bids.model.estimator import SurrealGAN
from surreal_bids.model.networks import weight_shapes
from surreal_bids.regions import FeatureList
from surreal_bids.rindices.model import TableModel
from surreal_bids.rindices.preprocessing import Preprocessing
from surreal_bids.text import list_briefly

ALLOWED: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
    np.ndarray,
    np.dtype,
    np.dtypes.Float64DType,
    (_reconstruct, 'numpy.core.multiarray._reconstruct'),
    (_reconstruct, 'numpy._core.multiarray._reconstruct'),
]
"""All that may be named in a checkpoint beside tensors: numpy arrays of float64."""

WEIGHTS = {
    'f.encode1': ('netMapping', 'model.0.weight'),
    'f.encode2': ('netMapping', 'model.2.weight'),
    'f.latent': ('netMapping', 'model.4.add_noise.0.weight'),
    'f.latent_bias': ('netMapping', 'model.4.add_noise.0.bias'),
    'f.decode1': ('netMapping', 'model.5.weight'),
    'f.decode2': ('netMapping', 'model.7.weight'),
    'g1.weight': ('netDecomposer', 'model.1.weight'),
    'g1.weight_bias': ('netDecomposer', 'model.1.bias'),
    'g2.layer1': ('netReconstruction', 'model.0.weight'),
    'g2.layer1_bias': ('netReconstruction', 'model.0.bias'),
    'g2.layer2': ('netReconstruction', 'model.2.weight'),
    'g2.layer2_bias': ('netReconstruction', 'model.2.bias'),
    'g2.layer3': ('netReconstruction', 'model.4.weight'),
    'g2.layer3_bias': ('netReconstruction', 'model.4.bias'),
}
"""Where the authors keep each of our weights: network and layer."""

SETTINGS = ('gamma', 'kappa', 'zeta', 'mu', 'eta', 'alpha', 'lr')
"""Hyper-parameters that a checkpoint may hold under the names we use."""

SEX_CODES = {'f': 0.0, 'female': 0.0, 'm': 1.0, 'male': 1.0}
"""How the authors' checkpoints number the sexes."""

LARGEST_USUAL_Z = 3.0
"""Root mean square of a person's z-scores (against CN) beyond which an imported model, which does
not know its training sample, takes the person for outside of it: wrong units, or wrong regions."""


@dataclass(frozen=True)
class Published:
    """What is known of a published checkpoint and not written in it."""

    title: str
    covariates: tuple[Meaning, ...]
    pattern_names: tuple[str, ...]


PUBLISHED = {
    'c3616ae5c5afb662622aae54416d25b15abd30bfe047f52c83784f1b2dbf38ca': Published(
        "the authors' model of Alzheimer's disease", ('sex', 'age'), ('r1', 'r2')
    ),
    'e9bba17c8709b0bf3015d0c83fd2e0c5b159f29b651632fd0c4113e27fc41a9d': Published(
        "the authors' model of brain ageing", ('sex', 'icv'), ('r1', 'r3', 'r4', 'r5', 'r2')
    ),
}
"""The authors' two models, by the SHA-256 of their files. Sex is 0 (F) or 1 (M), age in years, ICV
in mm3. The indices of the second are not in the order of their published numbers."""


def import_checkpoint(
    path: Path, features: FeatureList, covariates: Sequence[str], epoch: int | None = None
) -> TableModel:
    """Make a model of a checkpoint.

    Parameters
    ----------
    path
        A file that the authors' program saved.
    features
        The features it was trained with, in order; the file does not say.
    covariates
        The covariates it was trained with, in order; the file does not say.
    epoch
        Which of the states in the file; by default the last one.

    Raises
    ------
    DataError
        No checkpoint of the authors, or one that does not fit the features and covariates.
    """
    content = read_checkpoint(path)
    published = PUBLISHED.get(hashlib.sha256(path.read_bytes()).hexdigest())
    chosen = _choose_epoch(path, content, epoch)
    n_features, n_patterns = _sizes(path, content)
    if len(features) != n_features:
        raise DataError(
            f'{path}: the model has {n_features} features, but {len(features)} are named; correct '
            '--features'
        )
    _require_covariates(path, content, covariates, published)
    gan = _make_gan(path, content, chosen, features.names, n_patterns)
    names = tuple(f'r{number}' for number in range(1, n_patterns + 1))
    return TableModel(
        _make_preprocessing(content, features, tuple(covariates)),
        gan,
        published.pattern_names if published else names,
        {
            'Imported': {
                'File': path.name,
                'Title': published.title if published else None,
                'Epoch': chosen,
                'Note': 'Trained by the authors of Surreal-GAN; who the people were is not known.',
            },
            'HyperParameters': _settings(content),
        },
    )


def read_checkpoint(path: Path) -> dict[Any, Any]:
    """Read a checkpoint without running anything that may be in it.

    Raises
    ------
    DataError
        The file cannot be read, or names anything beyond tensors and arrays of numbers.
    """
    try:
        with torch.serialization.safe_globals(ALLOWED):
            content = torch.load(path, map_location='cpu', weights_only=True)
    except UnpicklingError as error:
        raise DataError(
            f'{path}: refused: the file is damaged, or holds objects other than numbers, which '
            'could '
            'run code on this computer; only checkpoints of SurrealGAN are read'
        ) from error
    except (OSError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise DataError(f'{path}: cannot be read as a checkpoint ({_brief(error)})') from error
    if not isinstance(content, dict) or 'npattern' not in content or 'nROI' not in content:
        raise DataError(f'{path}: not a checkpoint of SurrealGAN; it lacks npattern and nROI')
    return content


def _brief(error: Exception) -> str:
    """The line of torch's long message that names what was found."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if 'WeightsUnpickler' in line or 'GLOBAL' in line]
    return (telling or lines or [type(error).__name__])[0][:200]


def _choose_epoch(path: Path, content: Mapping[Any, Any], epoch: int | None) -> int:
    there = sorted(key for key in content if isinstance(key, int))
    if not there or (epoch is not None and epoch not in there):
        found = f'there are {list_briefly(there)}' if there else 'it holds none'
        raise DataError(f'{path}: no epoch {"at all" if epoch is None else epoch}; {found}')
    return there[-1] if epoch is None else epoch


def _sizes(path: Path, content: Mapping[Any, Any]) -> tuple[int, int]:
    n_features, n_patterns = content['nROI'], content['npattern']
    if not isinstance(n_features, int) or not isinstance(n_patterns, int):
        raise DataError(f'{path}: nROI {n_features!r} and npattern {n_patterns!r} are not numbers')
    return n_features, n_patterns


def _require_covariates(
    path: Path, content: Mapping[Any, Any], covariates: Sequence[str], published: Published | None
) -> None:
    correction = content.get('correction_variables')
    expected = 0 if correction is None else len(correction['min_cov'])
    if len(covariates) != expected:
        raise DataError(
            f'{path}: the model has {expected} covariates, but {len(covariates)} are named '
            f'({list_briefly(covariates) or "none"}); correct --covariates'
        )
    if published and not all(map(means, covariates, published.covariates)):
        raise UsageError(
            f'{path}: the covariates of {published.title} are {" and ".join(published.covariates)} '
            f'in this order, not {" and ".join(covariates)}; name columns accordingly'
        )


def _make_preprocessing(
    content: Mapping[Any, Any], features: FeatureList, covariates: tuple[str, ...]
) -> Preprocessing:
    scale = content['normalization_variables']
    normaliser = CNNormaliser.from_arrays(
        {
            'features': features.names,
            'n_controls': 0,
            'mean': scale['cn_mean'],
            'sd': scale['cn_std'],
        }
    )
    correction = content.get('correction_variables')
    residualiser = None if correction is None else _residualiser(correction, features, covariates)
    codes = {name: SEX_CODES for name in covariates if means(name, 'sex')}
    options = PreprocessingOptions(covariates=covariates)
    return Preprocessing(features, options, normaliser, residualiser=residualiser, codes=codes)


def _residualiser(
    correction: Mapping[str, Any], features: FeatureList, covariates: tuple[str, ...]
) -> Residualiser:
    """Theirs: x - (c - min) / (max - min) beta; ours: x - (c - min) (beta / (max - min))."""
    low, high = correction['min_cov'], correction['max_cov']
    encoder = {
        'categorical': [],
        'covariates': list(covariates),
        'levels': {},
        'range': {name: bounds for name, *bounds in zip(covariates, low.tolist(), high.tolist())},
    }
    return Residualiser.from_arrays(
        {
            'features': features.names,
            'encoder': encoder,
            'n_controls': 0,
            'coefficients': correction['beta'] / (high - low)[:, None],
            'center': low,
        }
    )


def _make_gan(
    path: Path, content: Mapping[Any, Any], epoch: int, names: list[str], n_patterns: int
) -> SurrealGAN:
    tensors = _weights(path, content[epoch], len(names), n_patterns)
    card = {
        'Features': names,
        'NumberOfFeatures': len(names),
        'Preset': 'correlated',
        'Iterations': epoch,
        'Repetitions': 1,
        'RandomState': None,
        'HyperParameters': _settings(content),
        'Sample': {'n_cn': None, 'n_pt': content.get('n_val_data')},
        'Selected': {
            'n_patterns': n_patterns,
            'ortho': content.get('lam'),
            'agreement': None,
            'reference': 0,
            'members': [0],
        },
        'Agreement': [],
        'Members': [],
        'History': [],
        'DomainLimit': LARGEST_USUAL_Z,
    }
    members = {f'members/{name}': value for name, value in tensors.items()}
    return SurrealGAN.from_state(members | _domain(len(names)), card)


def _domain(n_features: int) -> dict[str, Tensor]:
    """A domain whose distance is the root mean square of the z-scores: CN have mean 1, sd 0.1."""
    variance = 0.1**2
    return {
        'domain/mean': torch.ones(n_features, dtype=torch.float64),
        'domain/precision': torch.eye(n_features, dtype=torch.float64) / (variance * n_features),
    }


def _settings(content: Mapping[Any, Any]) -> dict[str, Any]:
    """Hyper-parameters that the file holds; others are not known."""
    known = {name: content[name] for name in SETTINGS if name in content}
    return known | {'betas': [content.get('beta1', 0.5), 0.999]}


def _weights(
    path: Path, saved: Mapping[str, Mapping[str, Tensor]], n_features: int, n_patterns: int
) -> dict[str, Tensor]:
    """Weights of one member (1, inputs, outputs); torch's layers hold (outputs, inputs)."""
    shapes = weight_shapes(n_features, n_patterns)
    weights = {}
    for name, (part, layer) in WEIGHTS.items():
        value = saved.get(part, {}).get(layer)
        if value is None:
            raise DataError(f'{path}: {layer} of {part} is missing; not a file of SurrealGAN 0.1')
        matrix = value[None] if value.ndim == 1 else value.T
        if matrix.shape != shapes[name]:
            raise DataError(
                f'{path}: {layer} of {part} is {tuple(matrix.shape)}, expected {shapes[name]}'
            )
        weights[name] = matrix.float().contiguous()[None]
    return weights
