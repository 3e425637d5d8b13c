"""The authors' published checkpoints (SurrealGAN 0.1.1 on PyPI) as models of this app.

    python benchmarks/import_checkpoint.py CHECKPOINT surreal_bids/data/models/NAME

makes the models that are shipped as `ad` and `ageing`. The checkpoints are in the authors'
repository, https://github.com/zhijian-yang/SurrealGAN, as `pretrained_models/*/saved_model`. They
are pickles: torch's weights-only loader builds tensors and plain containers, numpy arrays are
allowed beside, and everything else is refused. A checkpoint of your own has other features or
covariates than the published ones: call `import_checkpoint` with them.

`checkpoints.json` has what the published files do not contain: covariates in order (sex is 0 or 1,
age in years, ICV in mm3), the published number of each R-index in the order of the file, and texts
for the card.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy._core.multiarray import _reconstruct
from torch import Tensor

from surreal_bids.cohort.roles import listed_features
from surreal_bids.harmonization.covariates import CNNormaliser, Residualiser
from surreal_bids.harmonization.options import PreprocessingOptions
from surreal_bids.model.estimator import SurrealGAN
from surreal_bids.model.networks import relabel_patterns, weight_shapes
from surreal_bids.regions import FeatureList
from surreal_bids.rindices.model import TableModel
from surreal_bids.rindices.preprocessing import Preprocessing

CHECKPOINTS = json.loads(Path(__file__).with_name('checkpoints.json').read_text('utf-8'))
"""What the published checkpoints do not contain, by the SHA-256 of their files."""

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


def read_checkpoint(path: Path) -> dict[Any, Any]:
    """Read a checkpoint without running anything that may be in it."""
    with torch.serialization.safe_globals(ALLOWED):
        content: dict[Any, Any] = torch.load(path, map_location='cpu', weights_only=True)
    return content


def import_checkpoint(
    path: Path, features: FeatureList | None = None, covariates: Sequence[str] | None = None
) -> TableModel:
    """Make a model of the last epoch of a checkpoint.

    Parameters
    ----------
    path
        A file that the authors' program saved.
    features, covariates
        What it was trained with, in order; the file does not say. By default, those of the
        published checkpoint.
    """
    content = read_checkpoint(path)
    published = CHECKPOINTS.get(hashlib.sha256(path.read_bytes()).hexdigest())
    if published is not None:
        features, covariates = listed_features('muse72'), published['covariates']
    elif features is None or covariates is None:
        raise SystemExit(f'{path}: not a published checkpoint; its features are not known')
    epoch = max(key for key in content if type(key) is int)
    names = tuple(f'r{number}' for number in range(1, content['npattern'] + 1))
    given = tuple(published['order']) if published else names
    order = [given.index(name) for name in names]
    imported = {
        'File': path.name,
        'Title': None,
        'Epoch': epoch,
        'Note': 'Trained by the authors of Surreal-GAN; the file does not describe the '
        'training sample.',
        **(published['card'] if published else {}),
    }
    return TableModel(
        _preprocessing(content, features, tuple(covariates)),
        _gan(content, epoch, features.names, order),
        names,
        {'Imported': imported, 'HyperParameters': _settings(content)},
    )


def _preprocessing(
    content: Mapping[Any, Any], features: FeatureList, covariates: tuple[str, ...]
) -> Preprocessing:
    """Theirs: x - (c - min) / (max - min) beta; ours: x - (c - min) (beta / (max - min))."""
    scale, correction = content['normalization_variables'], content['correction_variables']
    normaliser = CNNormaliser.from_arrays(
        {
            'features': features.names,
            'n_controls': 0,
            'mean': scale['cn_mean'],
            'sd': scale['cn_std'],
        }
    )
    low, high = correction['min_cov'], correction['max_cov']
    encoder = {
        'categorical': [],
        'covariates': list(covariates),
        'levels': {},
        'range': {name: bounds for name, *bounds in zip(covariates, low.tolist(), high.tolist())},
    }
    residualiser = Residualiser.from_arrays(
        {
            'features': features.names,
            'encoder': encoder,
            'n_controls': 0,
            'coefficients': correction['beta'] / (high - low)[:, None],
            'center': low,
        }
    )
    codes = {name: SEX_CODES for name in covariates if name == 'sex'}
    options = PreprocessingOptions(covariates=covariates)
    return Preprocessing(features, options, normaliser, residualiser=residualiser, codes=codes)


def _gan(content: Mapping[Any, Any], epoch: int, names: list[str], order: list[int]) -> SurrealGAN:
    """Make the network, with its patterns in another order."""
    saved = _weights(content[epoch], len(names), content['npattern'])
    tensors = relabel_patterns(saved, torch.tensor([order]))
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
            'n_patterns': content['npattern'],
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


def _weights(saved: Mapping[Any, Any], n_features: int, n_patterns: int) -> dict[str, Tensor]:
    """Weights of one member (1, inputs, outputs); torch's layers hold (outputs, inputs)."""
    shapes, weights = weight_shapes(n_features, n_patterns), {}
    for name, (part, layer) in WEIGHTS.items():
        n_inputs, n_outputs = shapes[name]
        matrix = saved[part][layer].detach().numpy().reshape(n_outputs, n_inputs).T
        weights[name] = torch.from_numpy(np.ascontiguousarray(matrix, dtype=np.float32))[None]
    return weights


def main() -> None:
    """Convert a published checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('checkpoint', type=Path, help='file of the authors')
    parser.add_argument('out', type=Path, help='folder of the model')
    arguments = parser.parse_args()
    import_checkpoint(arguments.checkpoint).save(arguments.out)


if __name__ == '__main__':
    main()
