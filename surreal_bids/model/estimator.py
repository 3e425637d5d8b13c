"""Surreal-GAN as a scikit-learn estimator: fit on a table, transform participants into R-indices.

A member is one complete set of networks (f, g1, g2 and D), trained from its own random seed. All
members of one M and lambda form a setting. The members of the best setting that agree with each
other form the consensus, and R-indices are the mean over its members.

Shapes: N participants, S regions, M patterns, E members.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.covariance import LedoitWolf
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.model.agreement import (
    NO_PATTERN,
    Member,
    Selection,
    Setting,
    Trained,
    choose_setting,
    form_consensus,
    make_setting,
    train_in_rounds,
)
from surreal_bids.model.bundle import (
    checkpoint_path,
    fingerprint,
    generated_by,
    load_bundle,
    load_checkpoint,
    number_path,
    reading_model,
    save_bundle,
    save_checkpoint,
)
from surreal_bids.model.factors import (
    USUAL_PENALTY,
    Factors,
    fit_factors,
    fit_known,
    member_weights,
    most_patterns,
    refit,
    require_regions,
)
from surreal_bids.model.networks import (
    BATCHES_PER_EPOCH,
    CN_MEAN,
    MIN_FEATURES,
    MIN_PEOPLE,
    PAPER_ORTHO,
    PRESETS,
    RANDOM_CANDIDATES,
    RANDOM_ITERATIONS,
    RANDOM_REPETITIONS,
    SPARSE_ITERATIONS,
    SPARSE_ORTHO,
    HyperParameters,
    encode,
    hyperparameters,
    mean_contributions,
    one_pattern_at_a_time,
    synthesise,
)
from surreal_bids.model.number import (
    CANDIDATES,
    Number,
    Shuffle,
    choose_number,
    draw_subsample,
    shuffle_rows,
    stored_number,
    subsample_size,
)
from surreal_bids.model.training import (
    Sample,
    Stack,
    Training,
    members_by_ortho,
    members_r_indices,
)
from surreal_bids.parallel import find_device
from surreal_bids.text import list_briefly

if TYPE_CHECKING:
    import pandas as pd

LOGGER = logging.getLogger(__name__)

Floats = NDArray[np.floating]

_STREAM = 1
"""Keeps the random numbers of a start apart from those of random weights."""


class SurrealGAN(TransformerMixin, BaseEstimator):
    """Describe each participant by R-indices: how strongly each brain pattern is expressed.

    Parameters
    ----------
    n_patterns
        M, or several values to choose from. The choice is made by stability over resampled
        participants with `sparse`, and by agreement (section 4.3) with the other presets. None:
        1 to 6 with `sparse`, 2 to 4 with the other presets. 0: no patterns.
    ortho
        Lambda, the weight of the orthogonality loss, or several values to choose from. None: 0.4
        with `sparse`, the paper's five values with the other presets.
    repetitions
        Number of members trained for each M and lambda. None: with `sparse`, members are added
        until their consensus no longer changes (at most 20); 10 with the other presets.
    preset
        `sparse` (members start from linear factors), `iclr2022` (the paper) or `correlated`
        (the authors' program 0.1.1).
    iterations
        Number of training iterations: the maximum with `sparse`, the minimum with the other
        presets. None: 2,000 with `sparse`, 100,000 with the others.
    device
        `cpu`, `cuda` or `auto` (cuda if available).
    random_state
        Seed. The same seed gives the same result on the same device.
    hyperparameters
        Values that replace those of the preset, by the names of the fields of
        :class:`~surreal_bids.model.networks.HyperParameters`: gamma, kappa, zeta, mu, eta, lr,
        batch_size, ...

    Attributes
    ----------
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of str
        Names of the features. Defined only if `X` had column names that are all strings.
    selected_ : Selection
        The chosen M and lambda, and the members of the consensus.
    agreement_ : list of dict
        One row per M and lambda: number of members, number of healthy members, their agreement.
    members_ : list of Member
        Every trained member and its status.
    history_ : list of dict
        Losses and agreement during training.
    weights_ : dict of tensors
        f, g1 and g2 of the members of the consensus, with the same order of patterns. The
        reference member comes first.
    number_ : Number or None
        Stability of each number of patterns. None if the number was chosen by agreement.
    penalty_ : float or None
        With `sparse`: penalty of the linear factors that members started from.
    sample_ : dict
        Number of controls and patients.
    domain_ : Domain or None
        Region of feature space covered by the training sample. None for some imported models.

    Notes
    -----
    If no number of patterns is supported, or `n_patterns` is 0, `selected_.n_patterns` is 0. No
    member is trained then, and `transform` returns a table without columns.

    Examples
    --------
    >>> gan = SurrealGAN()
    >>> r = gan.fit(X, is_patient).transform(X)          # doctest: +SKIP
    """

    feature_names_in_: NDArray[np.object_]

    def __init__(
        self,
        n_patterns: int | Sequence[int] | None = None,
        *,
        ortho: float | Sequence[float] | None = None,
        repetitions: int | None = None,
        preset: str = 'sparse',
        iterations: int | None = None,
        device: str = 'auto',
        random_state: int = 0,
        hyperparameters: Mapping[str, Any] | None = None,
    ) -> None:
        self.n_patterns = n_patterns
        self.ortho = ortho
        self.repetitions = repetitions
        self.preset = preset
        self.iterations = iterations
        self.device = device
        self.random_state = random_state
        self.hyperparameters = hyperparameters

    def fit(
        self,
        X: ArrayLike | pd.DataFrame,
        y: ArrayLike,
        *,
        shuffle: Shuffle | None = None,
        assess_number: bool = True,
        like: SurrealGAN | None = None,
        least_of_several: float | None = None,
        checkpoint_dir: str | Path | None = None,
    ) -> SurrealGAN:
        """Train all members, choose M and lambda, and form the consensus.

        Parameters
        ----------
        X : (N, S)
            Regional volumes, harmonized, residualised and scaled: controls must have mean 1 and
            standard deviation 0.1 in every region.
        y : (N,) bool
            True for patients, False for controls.
        shuffle
            Samples controls and patients with permuted data, as a reference for the stability of
            patterns. None: labels are shuffled among the rows of X. This is too lenient if X was
            normalised with many coefficients learned from few controls.
        assess_number
            With `sparse`, assess the stability of patterns even if `n_patterns` is one number.
        like
            With `sparse`, a model with the same M whose patterns members start from, in its order,
            after they were fitted to this sample. None: patterns are found in this sample alone.
        least_of_several
            Minimum stability of several patterns; None: the usual one
            (`surreal_bids.model.number`).
        checkpoint_dir
            Folder for checkpoints. If `fit` is interrupted, the same call resumes.

        Returns
        -------
        SurrealGAN
            The fitted estimator.
        """
        values, names = feature_matrix(X)
        patient = np.array(y)
        sample = self._sample(values, names, patient)
        self.history_: list[dict[str, Any]] = []
        self.penalty_: float | None = None
        self.number_: Number | None = None
        if assess_number or len(self._candidates()) > 1:
            groups = values[~patient], values[patient]
            self.number_ = self._choose_number(*groups, shuffle, checkpoint_dir, least_of_several)
        self._set_features(values.shape[1], names)
        self.sample_ = {'n_cn': int((~patient).sum()), 'n_pt': int(patient.sum())}
        self.domain_: Domain | None = fit_domain(values, np.random.default_rng(self.random_state))
        candidates = self._candidates()
        if self.number_ is not None and len(candidates) > 1:
            candidates = (self.number_.n_patterns,)
        if like is not None and candidates != (like.selected_.n_patterns,):
            raise UsageError(f'set n_patterns to {like.selected_.n_patterns}, as that of `like`')
        if candidates == (0,):
            self._train_nothing()
        else:
            self._train_and_select(candidates, sample, checkpoint_dir, like)
        return self

    def _set_features(self, n_features: int, names: Sequence[str] | None) -> None:
        """Set the number of features and, if they have any, their names."""
        self.n_features_in_ = n_features
        self.__dict__.pop('feature_names_in_', None)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)

    def _choose_number(
        self,
        cn: Floats,
        pt: Floats,
        shuffle: Shuffle | None,
        checkpoint_dir: str | Path | None,
        least_of_several: float | None,
    ) -> Number | None:
        """Assess the stability of each candidate number of patterns; None with random starts."""
        if self._hyper.start == 'random' or self._candidates() == (0,):
            return None
        candidates = self._candidates(most_patterns(cn.shape[1]))
        shuffle = shuffle or shuffle_rows(cn, pt)
        permuted = shuffle(np.random.default_rng(self.random_state))
        arrays = [torch.from_numpy(np.ascontiguousarray(each)) for each in (cn, pt, *permuted)]
        asked: dict[str, Any] = {
            'candidates': [int(each) for each in candidates],
            'seed': int(self.random_state),
        }
        if least_of_several is not None:
            asked['least_of_several'] = least_of_several
        owner = fingerprint(self._hyper, asked, *arrays)
        path = None if checkpoint_dir is None else number_path(Path(checkpoint_dir), owner)
        if path is not None and path.is_file():
            return stored_number(load_checkpoint(path, owner)[1])

        found = choose_number(
            cn, pt, candidates, self.random_state, shuffle, self._device, least_of_several
        )
        if path is not None:
            save_checkpoint(path, {}, found.to_json(), owner)
        return found

    def _train_nothing(self) -> None:
        """Learn no pattern, because no number of patterns is supported or 0 was asked for."""
        if self.number_ is not None:
            LOGGER.warning(NO_PATTERN)
        self.members_: list[Member] = []
        self.agreement_: list[dict[str, Any]] = []
        self.weights_: dict[str, Tensor] = {}
        self.selected_ = Selection(0, self._ortho()[0], None, 0, ())

    def _train_and_select(
        self,
        candidates: tuple[int, ...],
        sample: Sample,
        checkpoint_dir: str | Path | None,
        like: SurrealGAN | None,
    ) -> None:
        """Train members of each candidate M, choose M and lambda, and form the consensus."""
        hyper = self._hyper
        settings = [
            setting
            for n_patterns in candidates
            for setting in self._train(n_patterns, sample, checkpoint_dir, like)
        ]
        self.members_ = [member for setting in settings for member in setting.members]
        self.agreement_ = [setting.record(hyper.core_members) for setting in settings]
        winner = choose_setting(settings, hyper)
        self.weights_, self.selected_, used = form_consensus(winner, hyper)
        self.members_ = [
            member
            for setting in settings
            for member in (used if setting is winner else setting.members)
        ]

    @property
    def _device(self) -> str:
        """Where factors are fitted; not on Apple's GPUs, which lack double precision."""
        device = find_device(self.device)
        return 'cpu' if device.startswith('mps') else device

    @property
    def _hyper(self) -> HyperParameters:
        return hyperparameters(self.preset, **(self.hyperparameters or {}))

    def _candidates(self, most: int = max(CANDIDATES)) -> tuple[int, ...]:
        """Return the numbers of patterns to choose from; the default ones are at most `most`."""
        if self.n_patterns is not None:
            return tuple(dict.fromkeys(int(each) for each in _as_tuple(self.n_patterns)))
        if self._hyper.start == 'random':
            return RANDOM_CANDIDATES
        return tuple(m for m in CANDIDATES if m <= most)

    def _ortho(self) -> tuple[float, ...]:
        """Return the values of lambda to train with."""
        if self.ortho is not None:
            return tuple(float(value) for value in _as_tuple(self.ortho))
        return PAPER_ORTHO if self._hyper.start == 'random' else SPARSE_ORTHO

    @property
    def most_iterations(self) -> int:
        """Number of iterations: `iterations`, or the default of the preset."""
        is_random = self._hyper.start == 'random'
        return self.iterations or (RANDOM_ITERATIONS if is_random else SPARSE_ITERATIONS)

    def train(
        self,
        X: ArrayLike | pd.DataFrame,
        y: ArrayLike,
        n_patterns: int,
        checkpoint_dir: str | Path,
    ) -> Path:
        """Train the members of one number of patterns and store them in a checkpoint.

        A later `fit` with the same settings, participants and `checkpoint_dir` reads the members
        from the checkpoint. This way, several processes or machines can train at the same time.

        Parameters
        ----------
        X, y
            As in `fit`.
        n_patterns
            M.
        checkpoint_dir
            Folder for the checkpoint.

        Returns
        -------
        Path
            The checkpoint. It contains the trained members; with `sparse`, the first round of them.
        """
        self.history_ = []
        self._train(n_patterns, self._sample(*feature_matrix(X), np.array(y)), checkpoint_dir)
        first = 0 if self._hyper.start == 'factors' else None
        return checkpoint_path(Path(checkpoint_dir), n_patterns, first)

    def check_sample(self, X: ArrayLike | pd.DataFrame, y: ArrayLike) -> None:
        """Raise an error if the settings do not suit a training sample."""
        self._sample(*feature_matrix(X), np.array(y))

    def _sample(
        self, values: Floats, names: list[str] | None, patient: NDArray[np.bool_]
    ) -> Sample:
        """Check both groups and copy them to the device."""
        self._check_numbers()
        device, hyper = find_device(self.device), self._hyper
        check_training_sample(values, patient, names)
        smallest = int(min(patient.sum(), (~patient).sum()))
        if hyper.start == 'factors':
            given = () if self.n_patterns is None else _as_tuple(self.n_patterns)
            require_regions(values.shape[1], given, self.preset)
            smallest = subsample_size(smallest)
        share = min(int(patient.sum()) // BATCHES_PER_EPOCH, smallest)
        share = min(share, hyper.largest_batch or share)
        batch_size = hyper.batch_size or max(share, MIN_PEOPLE)
        self._check_settings(batch_size, smallest)
        tensor = torch.tensor(values, dtype=torch.float32, device=device)
        return Sample(tensor[~patient], tensor[patient], batch_size)

    def _check_numbers(self) -> None:
        """Raise an error for settings that are no numbers."""
        whole = {'repetitions': self.repetitions, 'iterations': self.iterations}
        for name, value in {'n_patterns': self.n_patterns, **whole}.items():
            if not all(each is None or isinstance(each, Integral) for each in _as_tuple(value)):
                raise UsageError(f'{name}={value!r}: expected whole numbers')
        if not all(each is None or isinstance(each, Real) for each in _as_tuple(self.ortho)):
            raise UsageError(f'ortho={self.ortho!r}: expected numbers')

    def _check_settings(self, batch_size: int, smallest: int) -> None:
        """Raise an error for settings that cannot be trained.

        `smallest` is the number of participants of the smaller group that each member sees.
        """
        if batch_size > smallest:
            raise DataError(
                f'batch_size is {batch_size}, but each member sees only {smallest} participants of '
                f'the smaller group; set batch_size to at most {smallest}'
            )
        candidates = self._candidates()
        counts = (*(candidates if candidates != (0,) else ()), self.repetitions, self.iterations)
        if any(count is not None and count < 1 for count in counts):
            raise UsageError('n_patterns, repetitions and iterations must be at least 1')
        if min(self._ortho()) < 0:
            raise UsageError('ortho must not be negative')

    def _train(
        self,
        n_patterns: int,
        sample: Sample,
        checkpoint_dir: str | Path | None,
        like: SurrealGAN | None = None,
    ) -> list[Setting]:
        """Train the members of each lambda with this number of patterns."""

        def train(ortho: tuple[float, ...], first: int | None, count: int) -> dict[float, Trained]:
            repeated = tuple(np.repeat(ortho, count).tolist())
            shape = (sample.pt.shape[1], n_patterns)
            seed, device = self.random_state, sample.pt.device
            stack = Stack(*shape, repeated, self._hyper, seed, device, first or 0)
            if self._hyper.start == 'factors':
                stack.origin = origin
                _start_members(stack, cn, pt, factors, self._device)
            folder = None if checkpoint_dir is None else Path(checkpoint_dir)
            checkpoint = None if folder is None else checkpoint_path(folder, n_patterns, first)
            training = Training(stack, sample, self.most_iterations, checkpoint)
            trained = _members_by_lambda(training)
            self.history_ += training.progress.history
            return trained

        if self._hyper.start == 'random':
            trained = train(self._ortho(), None, self.repetitions or RANDOM_REPETITIONS)
            return [make_setting(value, *some) for value, some in trained.items()]
        cn, pt = (group.cpu().double().numpy() for group in (sample.cn, sample.pt))
        factors, origin = self._find_factors(cn, pt, n_patterns, like)
        self.penalty_ = factors.penalty
        return train_in_rounds(train, self._ortho(), self.repetitions, self._hyper)

    def _find_factors(
        self, cn: Floats, pt: Floats, n_patterns: int, like: SurrealGAN | None
    ) -> tuple[Factors, Tensor | None]:
        """Return the factors that members start from, and the patterns that these started from."""
        if like is None:
            return fit_factors(cn, pt, n_patterns, self._device), None
        patterns = like.synthesise(np.eye(n_patterns)).T
        penalty = USUAL_PENALTY if like.penalty_ is None else like.penalty_
        # Rounded, so that a run may go on on another machine, and without minus zero.
        origin = torch.from_numpy(patterns.round(2) + 0.0)
        return fit_known(cn, pt, patterns, penalty, self._device), origin

    def transform(
        self, X: ArrayLike | pd.DataFrame, return_std: bool = False
    ) -> Floats | tuple[Floats, Floats]:
        """Compute R-indices of patients or controls: the mean over the members of the consensus.

        0 corresponds to no expression of a pattern, 0.5 to the mean patient of the
        training sample. Values below 0 or above 1 are not cut off.

        Parameters
        ----------
        X : (N, S)
            Participants, normalised as in `fit`. Columns of a DataFrame are matched by name.
        return_std
            Also return the standard deviation over members (N, M). It is NaN if the consensus has
            one member only.

        Returns
        -------
        (N, M) array, or two of them
        """
        values = self._known_features(X)
        if self.selected_.n_patterns == 0:
            nothing = np.empty((len(values), 0))
            return (nothing, nothing) if return_std else nothing
        r_ENM = members_r_indices(self.weights_, torch.tensor(values, dtype=torch.float32))
        if not return_std:
            return r_ENM.mean(axis=0)
        spread = r_ENM.std(axis=0, ddof=1) if len(r_ENM) > 1 else np.full(r_ENM.shape[1:], np.nan)
        return r_ENM.mean(axis=0), spread

    def contributions(self, X: ArrayLike | pd.DataFrame) -> tuple[Floats, Floats]:
        """Compute the contribution of each region to the R-indices.

        Parameters
        ----------
        X : (N, S)
            As in `transform`.

        Returns
        -------
        baseline : (M,)
            R-indices of the mean control, which has 1 in every region.
        of_regions : (N, M, S)
            Contribution of each region (integrated gradients). An R-index is
            the baseline plus the sum over regions.
        """
        values = self._known_features(X)
        if self.selected_.n_patterns == 0:
            return np.empty(0), np.empty((len(values), 0, values.shape[1]))
        everyone = torch.from_numpy(values.astype(np.float32))
        baseline_M, of_regions_NMS = mean_contributions(self.weights_, everyone)
        return baseline_M.numpy(), of_regions_NMS.numpy()

    def synthesise(self, z: ArrayLike) -> Floats:
        """Compute the change that patterns impose on the mean control, by the generator f.

        Parameters
        ----------
        z : (N, M)
            Severity of each pattern, 0 to 1.

        Returns
        -------
        (N, S) array
            In the unit of the network. The changes of the patterns add up (section 2.2.3).
        """
        check_is_fitted(self, 'selected_')
        z_NM = torch.tensor(np.asarray(z), dtype=torch.float32)
        n_members = len(self.weights_['f.encode1'])
        with torch.no_grad():
            control_E1S = torch.full((n_members, 1, self.n_features_in_), CN_MEAN)
            code_ENQ = encode(self.weights_, control_E1S).expand(-1, len(z_NM), -1)
            z_EMNM = one_pattern_at_a_time(z_NM.expand(n_members, -1, -1))
            change_EMNS = synthesise(self.weights_, code_ENQ, z_EMNM)
        return change_EMNS.sum(dim=1).mean(dim=0).double().numpy()

    def in_range(self, X: ArrayLike | pd.DataFrame) -> NDArray[np.bool_]:
        """Check whether each participant lies within the range of the training sample."""
        values = self._known_features(X)
        if self.domain_ is None:
            raise UsageError('the range of the training sample is unknown for this imported model')
        return self.domain_.contains(values)

    def _known_features(self, X: ArrayLike | pd.DataFrame) -> Floats:
        """Return the columns of X in the order of training."""
        check_is_fitted(self, 'selected_')
        values, names = feature_matrix(X)
        if names is not None and hasattr(self, 'feature_names_in_'):
            missing = [name for name in self.feature_names_in_ if name not in names]
            if missing:
                raise DataError(
                    f'the table lacks columns of the model: {", ".join(missing)}; add them'
                )
            values = values[:, [names.index(name) for name in self.feature_names_in_]]
        if values.shape[1] != self.n_features_in_:
            raise DataError(
                f'X has {values.shape[1]} features, but SurrealGAN is expecting '
                f'{self.n_features_in_} features as input'
            )
        return values

    def _members_of_choice(self) -> int:
        """Count the members trained with the chosen M and lambda."""
        chosen = (self.selected_.n_patterns, self.selected_.ortho)
        return sum((member.n_patterns, member.ortho) == chosen for member in self.members_)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the fitted model as tensors and a card of plain JSON values."""
        check_is_fitted(self, 'selected_')
        names = getattr(self, 'feature_names_in_', None)
        tensors = {f'members/{name}': value for name, value in self.weights_.items()}
        if self.domain_ is not None:
            tensors['domain/mean'] = torch.from_numpy(np.asarray(self.domain_.mean))
            tensors['domain/precision'] = torch.from_numpy(np.asarray(self.domain_.precision))
        card = {
            'GeneratedBy': generated_by(),
            'Features': None if names is None else names.tolist(),
            'NumberOfFeatures': self.n_features_in_,
            'Preset': self.preset,
            'Iterations': self.most_iterations,
            'Repetitions': self.repetitions or self._members_of_choice(),
            'RandomState': self.random_state,
            'HyperParameters': asdict(self._hyper),
            'Sample': self.sample_,
            'Selected': asdict(self.selected_),
            'Stability': None if self.number_ is None else self.number_.to_json(),
            'Linear': None if self.penalty_ is None else {'penalty': self.penalty_},
            'Agreement': self.agreement_,
            'Members': [asdict(member) for member in self.members_],
            'History': self.history_,
            'DomainLimit': None if self.domain_ is None else self.domain_.limit,
        }
        return tensors, card

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], card: dict[str, Any]) -> SurrealGAN:
        """Rebuild a model from `state`."""
        hyper = dict(card['HyperParameters'])
        hyper['betas'] = tuple(hyper['betas'])
        selected = Selection(**{**card['Selected'], 'members': tuple(card['Selected']['members'])})
        model = cls(
            selected.n_patterns,
            ortho=selected.ortho,
            repetitions=card['Repetitions'] or None,
            # Earlier versions had another preset; all of its values are in the card.
            preset=card['Preset'] if card['Preset'] in PRESETS else 'iclr2022',
            iterations=card['Iterations'],
            random_state=card['RandomState'],
            hyperparameters=hyper,
        )
        model.selected_ = selected
        model.number_ = stored_number(card.get('Stability'))
        model.penalty_ = (card.get('Linear') or {}).get('penalty')
        model.agreement_ = card['Agreement']
        model.members_ = [Member(**member) for member in card['Members']]
        model.history_ = card['History']
        model.sample_ = card['Sample']
        model._set_features(card['NumberOfFeatures'], card['Features'])
        model.weights_ = {
            name.removeprefix('members/'): value
            for name, value in tensors.items()
            if name.startswith('members/')
        }
        model.domain_ = None
        if card['DomainLimit'] is not None:
            mean, precision = tensors['domain/mean'], tensors['domain/precision']
            model.domain_ = Domain(mean.numpy(), precision.numpy(), card['DomainLimit'])
        return model

    def save(self, folder: str | Path) -> Path:
        """Write the model to a folder: `model.safetensors` and `model.json`."""
        return save_bundle(folder, *self.state())

    @classmethod
    def load(cls, folder: str | Path) -> SurrealGAN:
        """Read a model written by `save`."""
        with reading_model(Path(folder)):
            return cls.from_state(*load_bundle(folder))


def _as_tuple(value: Any) -> tuple[Any, ...]:
    is_list = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)
    return tuple(value) if is_list else (value,)


def _start_members(
    stack: Stack, cn: Floats, pt: Floats, factors: Factors, device: str = 'cpu'
) -> None:
    """Start every member at the factors, fitted to its own subsample of participants."""
    rngs = [
        np.random.default_rng(
            np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, _STREAM))
        )
        for seed in stack.seeds
    ]
    rows = [(draw_subsample(len(cn), rng), draw_subsample(len(pt), rng)) for rng in rngs]
    own = refit(cn, pt, rows, factors.patterns, factors.penalty, device)
    # A pattern that a small subsample has lost is that of everyone.
    starts = [factors if fitted.has_empty else fitted for fitted in own]
    limit = stack.hyper.lipschitz
    weights = [member_weights(start, rng, limit) for start, rng in zip(starts, rngs)]
    stack.start_from(weights, rows)


def _members_by_lambda(training: Training) -> dict[float, Trained]:
    """Train a stack; return its members by lambda."""
    weights, stack = training.run(), training.stack
    r_ENM = members_r_indices(weights, training.sample.pt)
    on_cpu = {name: tensor.cpu() for name, tensor in weights.items()}
    return {
        value: Trained(
            {name: tensor[rows.tolist()] for name, tensor in on_cpu.items()},
            r_ENM[rows],
            [training.progress.converged[row] for row in rows],
        )
        for value, rows in members_by_ortho(stack.ortho).items()
    }


MEAN_TOLERANCE, SD_TOLERANCE = 0.02, 0.02
"""Tolerated deviation of the controls' mean from 1 and of their sd from 0.1."""


def feature_matrix(X: Any) -> tuple[Floats, list[str] | None]:
    """Return values (N, S) as float64, and column names if all of them are text."""
    names = _column_names(X)
    try:
        values = np.array(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f'the table has a value that is not a number: {error}') from error
    if values.ndim != 2:
        raise DataError(
            f'X must be a table of participants by features, not an array of shape {values.shape}; '
            'reshape it'
        )
    bad = ~np.isfinite(values)
    if bad.any():
        rows, columns = np.nonzero(bad)
        where = names[columns[0]] if names else f'column {columns[0]}'
        raise DataError(
            f'{bad.sum()} values are missing or infinite, the first in row {rows[0]}, {where}; '
            'exclude these participants, or impute'
        )
    return values, names


def _column_names(X: Any) -> list[str] | None:
    """Return the names of the columns; None for arrays and for names that are not text."""
    names = list(getattr(X, 'columns', ()))
    text = [name for name in names if isinstance(name, str)]
    if text and len(text) < len(names):
        raise DataError('some column names are text and others are not; make all of them text')
    if len(set(text)) < len(text):
        twice = sorted({name for name in text if text.count(name) > 1})
        raise DataError(f'columns occur more than once: {list_briefly(twice)}; rename or drop them')
    return text or None


def check_training_sample(values: Floats, patient: NDArray[Any], names: list[str] | None) -> None:
    """Raise an error if the sample cannot be used for training."""
    if patient.dtype != np.bool_ or patient.shape != (len(values),):
        raise DataError(
            f'y must be True (patient) or False (control) for each of {len(values)} participants, '
            f'not {patient.dtype} of shape {patient.shape}'
        )
    counts = {'controls': int((~patient).sum()), 'patients': int(patient.sum())}
    for group, count in counts.items():
        if count < MIN_PEOPLE:
            raise DataError(f'found {count} {group}, but training needs at least {MIN_PEOPLE}')
    if values.shape[1] < MIN_FEATURES:
        raise DataError(
            f'found {values.shape[1]} features, but training needs at least {MIN_FEATURES}'
        )
    labels = names or [f'column {k}' for k in range(values.shape[1])]
    mean, sd = values[~patient].mean(axis=0), values[~patient].std(axis=0)
    off = (abs(mean - 1) > MEAN_TOLERANCE) | (abs(sd - 0.1) > SD_TOLERANCE)
    if off.any():
        k = int(np.flatnonzero(off)[0])
        raise DataError(
            f'controls must have mean 1 and sd 0.1 in every column, but {off.sum()} differ, such '
            f'as {labels[k]} (mean {mean[k]:.3g}, sd {sd[k]:.3g}); normalise first: '
            '1 + 0.1 * (X - mean) / sd with mean and sd of the controls. surreal_bids.analyse does '
            'this, and corrects for covariates and sites'
        )


FOLDS = 5
COVERAGE = 0.995


@dataclass(frozen=True)
class Domain:
    """Range of the training sample: mean (S,), precision (S, S) and the largest distance."""

    mean: Floats
    precision: Floats
    limit: float

    def distances(self, X: Floats) -> Floats:
        """Compute the Mahalanobis distance (N,) of each participant."""
        centred = X - self.mean
        return np.sqrt(np.einsum('ns,st,nt->n', centred, self.precision, centred, optimize=True))

    def contains(self, X: Floats) -> NDArray[np.bool_]:
        """Check whether each participant (N,) lies in the range."""
        return self.distances(X) <= self.limit


def fit_domain(X: Floats, rng: np.random.Generator) -> Domain:
    """Estimate the range of a training sample (N, S) by cross-validation."""
    fold = rng.permutation(len(X)) % FOLDS
    held_out = np.empty(len(X))
    for k in range(FOLDS):
        held_out[fold == k] = _domain(X[fold != k], np.inf).distances(X[fold == k])
    return _domain(X, float(np.quantile(held_out, COVERAGE)))


def _domain(X: Floats, limit: float) -> Domain:
    fitted = LedoitWolf().fit(X)
    return Domain(fitted.location_, fitted.get_precision(), limit)
