"""The authors' checkpoints (SurrealGAN 0.1.1 on PyPI) as models of ours.

Their files are pickles. They are read by torch's weights-only loader, which builds tensors and
plain containers and refuses everything else, with four names of numpy allowed beside: what an array
of numbers is made of.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from numpy._core.multiarray import _reconstruct
from numpy.typing import NDArray
from torch import Tensor

from surreal_bids.cohort.requirements import PreprocessingOptions
from surreal_bids.columns import means, normalise_name
from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.files import read_file, require_file
from surreal_bids.harmonization.covariates import CNNormaliser, Residualiser
from surreal_bids.model.bundle import LARGEST_MODEL, reading_model
from surreal_bids.model.estimator import SurrealGAN
from surreal_bids.model.networks import relabel_patterns, weight_shapes
from surreal_bids.published import CHECKPOINTS, NAMES, Published, describe
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


SAVED = 'saved_model'
"""Name of the checkpoints in the authors' repository."""

UNREADABLE = (
    *(ArithmeticError, AssertionError, AttributeError, EOFError, ImportError, LookupError),
    *(MemoryError, OSError, RuntimeError, struct.error, TypeError, ValueError),
)
"""What torch raises for files that are no checkpoints, or damaged ones."""


def import_checkpoint(
    path: Path, features: FeatureList, covariates: Sequence[str], epoch: int | None = None
) -> TableModel:
    """Make a model of a checkpoint.

    Parameters
    ----------
    path
        A file that the authors' program saved, or a folder of their repository that holds it.
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
    path = find_checkpoint(path)
    content = read_checkpoint(path)
    published = CHECKPOINTS.get(hashlib.sha256(read_file(path, LARGEST_MODEL)).hexdigest())
    with reading_model(path):
        _require_sizes(path, content, len(features))
        _require_covariates(path, content, covariates, published)
        chosen = _choose_epoch(path, content, epoch)
        preprocessing = _make_preprocessing(path, content, features, tuple(covariates))
        names = tuple(f'r{number}' for number in range(1, content['npattern'] + 1))
        given = tuple(published.patterns) if published else names
        order = [given.index(name) for name in names]
        gan = _make_gan(path, content, chosen, features.names, order)
    return TableModel(
        preprocessing,
        gan,
        names,
        {
            'Imported': {
                'File': path.name,
                'Title': None,
                'Epoch': chosen,
                'Note': 'Trained by the authors of Surreal-GAN; the file does not describe the '
                'training sample.',
                **(describe(published) if published else {}),
            },
            'HyperParameters': _settings(path, content),
        },
    )


def find_checkpoint(path: Path) -> Path:
    """Return the file of a checkpoint, which may be given by a folder of the authors' repository.

    Raises
    ------
    DataError
        There is no such file, or the folder holds none or several.
    """
    if not path.exists():
        raise DataError(
            f'{path}: no such file or folder; correct the path. The published models need no '
            f'checkpoint: --model {" or ".join(dict.fromkeys(NAMES.values()))}'
        )
    if not path.is_dir():
        require_file(path)
        return path
    found = [file for level in ('', '*/', '*/*/') for file in sorted(path.glob(f'{level}{SAVED}'))]
    files = [file for file in found if file.is_file()]
    if len(files) == 1:
        return files[0]
    there = f'holds {list_briefly(map(str, files))}' if files else f'holds no {SAVED}'
    raise DataError(f'{path}: {there}; give the file of one checkpoint')


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
            'could run code on this computer; only checkpoints of SurrealGAN are read'
        ) from error
    except UNREADABLE as error:
        raise DataError(f'{path}: cannot be read as a checkpoint ({_brief(error)})') from error
    if not isinstance(content, dict) or 'npattern' not in content or 'nROI' not in content:
        raise DataError(f'{path}: not a checkpoint of SurrealGAN; it lacks npattern and nROI')
    return content


def _brief(error: Exception) -> str:
    """The line of torch's long message that names what was found."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if 'WeightsUnpickler' in line or 'GLOBAL' in line]
    return (telling or lines or [type(error).__name__])[0][:200]


def _require_sizes(path: Path, content: Mapping[Any, Any], n_named: int) -> None:
    """Check the numbers of features and patterns."""
    for name in ('nROI', 'npattern'):
        if type(content[name]) is not int or content[name] < 1:
            raise _damaged(path, f'{name} is {content[name]!r:.40}, not a positive whole number')
    if n_named != content['nROI']:
        raise DataError(
            f'{path}: the model has {content["nROI"]} features, but {n_named} are named; correct '
            '--features'
        )


def _damaged(path: Path, problem: str) -> DataError:
    return DataError(f'{path}: {problem}; the file is damaged, or not of SurrealGAN 0.1')


def _choose_epoch(path: Path, content: Mapping[Any, Any], epoch: int | None) -> int:
    there = sorted(key for key in content if type(key) is int)
    if not there or (epoch is not None and epoch not in there):
        found = f'there are {list_briefly(there)}' if there else 'it holds none'
        raise DataError(f'{path}: no epoch {"at all" if epoch is None else epoch}; {found}')
    return there[-1] if epoch is None else epoch


def _require_covariates(
    path: Path, content: Mapping[Any, Any], covariates: Sequence[str], published: Published | None
) -> None:
    """Check the number, names and order of the covariates that the user names."""
    if len({normalise_name(name) for name in covariates}) < len(covariates):
        raise UsageError(f'--covariates {" ".join(covariates)}: name each covariate once')
    expected = _n_covariates(path, content)
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


def _n_covariates(path: Path, content: Mapping[Any, Any]) -> int:
    correction = _correction(path, content)
    if correction is None:
        return 0
    low = correction.get('min_cov')
    if not isinstance(low, np.ndarray) or low.ndim != 1:
        raise _damaged(path, 'min_cov of correction_variables is missing')
    return len(low)


def _correction(path: Path, content: Mapping[Any, Any]) -> Mapping[Any, Any] | None:
    """Return what the authors correct for covariates with; None without covariates."""
    part = 'correction_variables'
    return None if content.get(part) is None else _part(path, content, part)


def _part(path: Path, holder: Mapping[Any, Any], name: Any) -> Mapping[Any, Any]:
    """Return a part of a checkpoint that has parts itself."""
    part = holder.get(name)
    if not isinstance(part, Mapping):
        raise _damaged(path, f'{name} is missing')
    return part


def _array(
    path: Path, part: Mapping[Any, Any], name: str, shape: tuple[int, ...], where: str
) -> NDArray[Any]:
    """Return an array of a checkpoint, which must have this shape and finite numbers only."""
    value = part.get(name)
    array = value.detach().numpy() if isinstance(value, Tensor) else value
    what = f'{name} of {where}'
    if not isinstance(array, np.ndarray):
        raise _damaged(path, f'{what} is missing')
    if array.dtype.kind != 'f' or array.shape != shape:
        raise _damaged(path, f'{what} is {array.dtype} {array.shape}, expected numbers {shape}')
    if not (np.abs(array) <= np.finfo(np.float32).max).all():
        raise _damaged(path, f'{what} has values that are not finite')
    return array


def _make_preprocessing(
    path: Path, content: Mapping[Any, Any], features: FeatureList, covariates: tuple[str, ...]
) -> Preprocessing:
    where = 'normalization_variables'
    scale = partial(_array, path, _part(path, content, where), shape=(len(features),), where=where)
    mean, sd = scale('cn_mean'), scale('cn_std')
    if not (sd > 0).all():
        raise _damaged(path, f'cn_std of {where} is not positive')
    normaliser = CNNormaliser.from_arrays(
        {'features': features.names, 'n_controls': 0, 'mean': mean, 'sd': sd}
    )
    correction = _correction(path, content)
    residualiser = None
    if correction is not None:
        residualiser = _residualiser(path, correction, features, covariates)
    codes = {name: SEX_CODES for name in covariates if means(name, 'sex')}
    options = PreprocessingOptions(covariates=covariates)
    return Preprocessing(features, options, normaliser, residualiser=residualiser, codes=codes)


def _residualiser(
    path: Path,
    correction: Mapping[Any, Any],
    features: FeatureList,
    covariates: tuple[str, ...],
) -> Residualiser:
    """Theirs: x - (c - min) / (max - min) beta; ours: x - (c - min) (beta / (max - min))."""
    array = partial(_array, path, correction, where='correction_variables')
    n_covariates = len(covariates)
    low, high = (array(name, shape=(n_covariates,)) for name in ('min_cov', 'max_cov'))
    beta = array('beta', shape=(n_covariates, len(features)))
    if not (high > low).all():
        raise _damaged(path, 'max_cov of correction_variables is not above min_cov')
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
            'coefficients': beta / (high - low)[:, None],
            'center': low,
        }
    )


def _make_gan(
    path: Path, content: Mapping[Any, Any], epoch: int, names: list[str], order: list[int]
) -> SurrealGAN:
    """Make the network, with its patterns in another order."""
    n_patterns = content['npattern']
    saved = _weights(path, _part(path, content, epoch), len(names), n_patterns)
    tensors = relabel_patterns(saved, torch.tensor([order]))
    card = {
        'Features': names,
        'NumberOfFeatures': len(names),
        'Preset': 'correlated',
        'Iterations': epoch,
        'Repetitions': 1,
        'RandomState': None,
        'HyperParameters': _settings(path, content),
        'Sample': {'n_cn': None, 'n_pt': _number(path, content, 'n_val_data')},
        'Selected': {
            'n_patterns': n_patterns,
            'ortho': _number(path, content, 'lam'),
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


def _settings(path: Path, content: Mapping[Any, Any]) -> dict[str, Any]:
    """Hyper-parameters that the file holds; others are not known."""
    known = {name: _number(path, content, name) for name in SETTINGS if name in content}
    beta1 = _number(path, content, 'beta1')
    return known | {'betas': [0.5 if beta1 is None else beta1, 0.999]}


def _number(path: Path, content: Mapping[Any, Any], name: str) -> int | float | None:
    """Return a hyper-parameter; None if the file lacks it."""
    value = content.get(name)
    if value is None:
        return None
    if type(value) not in (int, float) or not abs(value) <= np.finfo(np.float32).max:
        raise _damaged(path, f'{name} is {value!r:.40}, not a number')
    return value


def _weights(
    path: Path, saved: Mapping[Any, Any], n_features: int, n_patterns: int
) -> dict[str, Tensor]:
    """Weights of one member (1, inputs, outputs); torch's layers hold (outputs, inputs)."""
    shapes = weight_shapes(n_features, n_patterns)
    weights = {}
    for name, (part, layer) in WEIGHTS.items():
        n_inputs, n_outputs = shapes[name]
        shape = (n_outputs,) if layer.endswith('.bias') else (n_outputs, n_inputs)
        array = _array(path, _part(path, saved, part), layer, shape, part)
        matrix = np.ascontiguousarray(array.reshape(n_outputs, -1).T, dtype=np.float32)
        weights[name] = torch.from_numpy(matrix)[None]
    return weights
