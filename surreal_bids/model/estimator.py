"""Surreal-GAN as an estimator: fit on a table, transform people into R-indices.

Shapes: N people, S regions, M patterns, E members.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from surreal_bids import __version__
from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.model.agreement import (
    Member,
    Selection,
    Setting,
    choose_setting,
    form_consensus,
    make_setting,
)
from surreal_bids.model.bundle import load_bundle, reading_model, save_bundle
from surreal_bids.model.checks import Domain, check_training_sample, feature_matrix, fit_domain
from surreal_bids.model.contributions import MEAN_CONTROL, member_contributions
from surreal_bids.model.ensemble import Stack
from surreal_bids.model.factors import compare_with, fit_nonempty_factors, most_patterns
from surreal_bids.model.latent import one_pattern_at_a_time
from surreal_bids.model.networks import encode, synthesise
from surreal_bids.model.settings import HyperParameters, hyperparameters
from surreal_bids.model.stability import (
    CANDIDATES,
    ROUND,
    Number,
    Shuffle,
    Spent,
    Trained,
    TrainStack,
    choose_number,
    start_members,
    stored_number,
    subsample_size,
    train_in_rounds,
)
from surreal_bids.model.train import (
    PROGRESS,
    Sample,
    Training,
    members_by_ortho,
    members_r_indices,
    time_iteration,
)

if TYPE_CHECKING:
    import pandas as pd

LOGGER = logging.getLogger(__name__)

Floats = NDArray[np.floating]

PAPER_ORTHO = (0.1, 0.2, 0.4, 0.6, 0.8)
"""The values of lambda that the paper tries (sections 4.2 and 4.3)."""
USUAL_NUMBER = 3
"""Number of patterns to time training with before it is chosen."""
RANDOM_CANDIDATES, RANDOM_REPETITIONS = (2, 3, 4), 10
"""Numbers of patterns, and members of each setting, where members start at random weights."""
SPARSE_ORTHO = (0.4,)
"""Lambda of members that start from factors; others change their consensus by less than 0.001."""
DEFAULT_ITERATIONS = {
    'iclr2022': 100_000,
    'correlated': 100_000,
    'robust': 20_000,
    'sparse': 2_000,
}
"""Iterations of every preset where none are given."""
BATCHES_PER_EPOCH = 8
"""The batch is an eighth of the patients unless it is given (section 3.3)."""
SMALLEST_BATCH = 8
"""Fewer people tell too little of a distribution; the paper's samples are too large to need it."""
FEW_PEOPLE = 128
"""Whose contributions are computed at once, to bound memory."""


class SurrealGAN:
    """Describe each patient by a few R-indices: how strongly each brain pattern is expressed.

    Parameters
    ----------
    n_patterns
        M, or several values of it to choose from: by stability over resampled participants with
        `sparse`, by agreement (section 4.3) with the others. None: 1 to 6 with `sparse`, 2 to 4
        with the others.
    ortho
        Lambda, the weight of the orthogonality loss, or several values to choose from. None: 0.4
        with `sparse`, the paper's five with the others.
    repetitions
        Members trained for every M and lambda, each from its own seed. None: with `sparse`, as
        many as it takes until their consensus no longer changes (at most 20); 10 with the others.
    preset
        `sparse` (members start from sparse factors), `iclr2022` (the paper), `correlated` (the
        authors' program 0.1.1) or `robust`.
    iterations
        The number of training iterations: the most with `sparse`, the least with the others.
        None: 2,000 with `sparse`, 20,000 with `robust`, 100,000 with the others.
    device
        `cpu`, `cuda` or `auto`: cuda where there is one.
    random_state
        Seed; the same seed gives the same result again on the same device.
    checkpoint_dir
        Folder for checkpoints: a killed `fit` that is called again resumes.
    assess_number
        With `sparse`, compute how stable the patterns are even where one number of them is given.
    **changes
        Any field of :class:`~surreal_bids.model.settings.HyperParameters`, in place of the
        preset's value: gamma, kappa, zeta, mu, eta, lr, batch_size, ...

    Attributes
    ----------
    selected_ : Selection
        The chosen M and lambda, and the members that are averaged.
    agreement_ : list of dict
        One row per M and lambda: members, how many are healthy, their agreement.
    members_ : list of Member
        Every member and what became of it.
    history_ : list of dict
        Losses and agreement in the course of training.
    weights_ : dict of tensors
        f, g1 and g2 of the members of the consensus, patterns in one order, the reference first.
    number_ : Number or None
        Stability of every number of patterns tried; None where agreement chose it.
    spent_ : Spent or None
        Members and iterations trained with `sparse`, and why training ended.
    linear_ : dict or None
        Agreement of the R-indices with the linear factors of all participants.
    domain_ : Domain or None
        Where training people lie; None for imported models.

    Where no number of patterns is supported (or `n_patterns` is 0), `selected_.n_patterns` is 0, no
    member is trained and `transform` gives a table without columns.

    Examples
    --------
    >>> gan = SurrealGAN()
    >>> r = gan.fit(X, is_patient).transform(X)          # doctest: +SKIP
    """

    def __init__(
        self,
        n_patterns: int | Sequence[int] | None = None,
        ortho: float | Sequence[float] | None = None,
        repetitions: int | None = None,
        preset: str = 'sparse',
        iterations: int | None = None,
        device: str = 'auto',
        random_state: int = 0,
        checkpoint_dir: str | Path | None = None,
        assess_number: bool = True,
        **changes: Any,
    ) -> None:
        self.n_patterns = n_patterns
        self.ortho = ortho
        self.repetitions = repetitions
        self.preset = preset
        self.iterations = iterations
        self.device = device
        self.random_state = random_state
        self.checkpoint_dir = checkpoint_dir
        self.assess_number = assess_number
        self.changes = changes

    def fit(
        self,
        X: ArrayLike | pd.DataFrame,
        is_patient: ArrayLike,
        shuffle: Shuffle | None = None,
    ) -> SurrealGAN:
        """Train all members, choose M and lambda by agreement, and form the consensus.

        Parameters
        ----------
        X : (N, S)
            Regional volumes, harmonized, residualised and scaled so that controls have mean 1 and
            sd 0.1 in every region.
        is_patient : (N,) bool
            True for patients, False for controls.
        shuffle
            Draws controls and patients with shuffled labels, which the stability of patterns is
            compared with. None: labels are shuffled among the rows of X, which is too lenient
            where X was normalised by many coefficients learned from few controls.
        """
        values, names = feature_matrix(X)
        patient = np.array(is_patient)
        device = find_device(self.device)
        sample = self._sample(values, names, patient, device)
        self.history_: list[dict[str, Any]] = []
        self.spent_: Spent | None = None
        self.linear_: dict[str, Any] | None = None
        self.number_: Number | None = self._choose_number(
            values[~patient], values[patient], shuffle
        )
        self.feature_names_in_ = names
        self.n_features_in_ = values.shape[1]
        self.sample_ = {'n_cn': int((~patient).sum()), 'n_pt': int(patient.sum())}
        self.domain_: Domain | None = fit_domain(values, np.random.default_rng(self.random_state))
        candidates = self._candidates()
        if self.number_ is not None and len(candidates) > 1:
            candidates = (self.number_.n_patterns,)
        if candidates == (0,):
            self._train_nothing()
        else:
            self._train_and_select(candidates, sample, device)
            self._compare_with_factors(values[~patient], values[patient])
        return self

    def _choose_number(self, cn: Floats, pt: Floats, shuffle: Shuffle | None) -> Number | None:
        """Stability of every candidate number of patterns, where members start from factors."""
        if self._hyper.start == 'random' or self._candidates() == (0,):
            return None
        candidates = self._candidates(most_patterns(cn.shape[1]))
        if len(candidates) == 1 and not self.assess_number:
            return None
        return choose_number(cn, pt, candidates, self.random_state, PROGRESS.info, shuffle)

    def _train_nothing(self) -> None:
        """Learn no pattern, where no number of patterns is supported."""
        if self.number_ is not None:
            LOGGER.warning(
                'no pattern is supported: none is found again in other subsamples of the '
                'participants, or not better than with shuffled labels; to train regardless, give '
                'one number of patterns'
            )
        self.members_: list[Member] = []
        self.agreement_: list[dict[str, Any]] = []
        self.weights_: dict[str, Tensor] = {}
        self.selected_ = Selection(0, self._ortho()[0], None, 0, ())

    def _train_and_select(
        self, candidates: tuple[int, ...], sample: Sample, device: torch.device
    ) -> None:
        """Train members of every candidate M, choose M and lambda, and form the consensus."""
        hyper = self._hyper
        settings = [
            setting
            for n_patterns in candidates
            for setting in self._train(n_patterns, sample, device)
        ]
        self.members_ = [m for setting in settings for m in setting.members]
        self.agreement_ = [setting.record(hyper.core_members) for setting in settings]
        winner = choose_setting(settings, hyper)
        self.weights_, self.selected_, used = form_consensus(winner, hyper)
        self.members_ = [
            member
            for setting in settings
            for member in (used if setting is winner else setting.members)
        ]

    def _compare_with_factors(self, cn: Floats, pt: Floats) -> None:
        """Set the R-indices beside the linear factors of all participants, a check for free."""
        n_patterns = self.selected_.n_patterns
        if self._hyper.start == 'random':
            return
        factors = fit_nonempty_factors(cn, pt, n_patterns)
        self.linear_ = compare_with(factors, pt, np.asarray(self.transform(pt)))

    @property
    def _hyper(self) -> HyperParameters:
        return hyperparameters(self.preset, **self.changes)

    def _candidates(self, most: int = max(CANDIDATES)) -> tuple[int, ...]:
        """Numbers of patterns to choose from; at most `most` where none are given."""
        if self.n_patterns is not None:
            return tuple(dict.fromkeys(_as_tuple(self.n_patterns)))
        if self._hyper.start == 'random':
            return RANDOM_CANDIDATES
        return tuple(m for m in CANDIDATES if m <= most)

    def _ortho(self) -> tuple[float, ...]:
        """Values of lambda to train with."""
        if self.ortho is not None:
            return tuple(float(value) for value in _as_tuple(self.ortho))
        return PAPER_ORTHO if self._hyper.start == 'random' else SPARSE_ORTHO

    @property
    def most_iterations(self) -> int:
        """Iterations as given, or the preset's."""
        return self.iterations or DEFAULT_ITERATIONS[self.preset]

    @property
    def trained_numbers(self) -> tuple[int, ...]:
        """Numbers of patterns whose members are trained, as far as it is known before `fit`."""
        candidates = self._candidates()
        if self._hyper.start == 'random' or len(candidates) == 1:
            return candidates
        return (USUAL_NUMBER,)

    def train(self, X: ArrayLike | pd.DataFrame, is_patient: ArrayLike, n_patterns: int) -> Path:
        """Train the members of one number of patterns only, for a later `fit` to find.

        `fit` with the same settings and people takes finished members from `checkpoint_dir`, so
        that the numbers of patterns can be trained side by side, in several processes or machines.

        Parameters
        ----------
        X, is_patient
            As in `fit`.
        n_patterns
            M.

        Returns
        -------
        Path
            The checkpoint, which holds the finished members, or the first round of them.
        """
        checkpoint = self._checkpoint(n_patterns, 0 if self._hyper.start == 'factors' else None)
        if checkpoint is None:
            raise UsageError('training one number of patterns needs a checkpoint_dir to keep it in')
        self.history_ = []
        values, names = feature_matrix(X)
        device = find_device(self.device)
        self._train(n_patterns, self._sample(values, names, np.array(is_patient), device), device)
        return checkpoint

    def seconds_per_iteration(
        self, X: ArrayLike | pd.DataFrame, is_patient: ArrayLike, n_patterns: int
    ) -> float:
        """Time one iteration of all members of one number of patterns, on this machine."""
        values, names = feature_matrix(X)
        device = find_device(self.device)
        sample = self._sample(values, names, np.array(is_patient), device)
        count = self.repetitions or (
            ROUND if self._hyper.start == 'factors' else RANDOM_REPETITIONS
        )
        stack = self._stack(n_patterns, values.shape[1], device, self._ortho(), 0, count)
        return time_iteration(stack, sample)

    def _sample(
        self,
        values: Floats,
        names: list[str] | None,
        patient: NDArray[np.bool_],
        device: torch.device,
    ) -> Sample:
        """Both groups on the device, checked."""
        check_training_sample(values, patient, names)
        self._check_number_of_regions(values.shape[1])
        hyper = self._hyper
        smallest = int(min(patient.sum(), (~patient).sum()))
        if hyper.start == 'factors':
            smallest = subsample_size(smallest)
        share = min(int(patient.sum()) // BATCHES_PER_EPOCH, smallest)
        share = min(share, hyper.largest_batch or share)
        batch_size = hyper.batch_size or max(share, SMALLEST_BATCH)
        self._check_settings(batch_size, smallest)
        tensor = torch.tensor(values, dtype=torch.float32, device=device)
        return Sample(tensor[~patient], tensor[patient], batch_size)

    def _check_settings(self, batch_size: int, smallest: int) -> None:
        """Refuse what cannot be trained; of the smaller group a member sees `smallest` people."""
        if batch_size > smallest:
            raise DataError(
                f'a batch of {batch_size} people, but a member is trained on {smallest} of the '
                f'smaller group; set batch_size to at most {smallest}'
            )
        candidates = self._candidates()
        counts = (*(candidates if candidates != (0,) else ()), self.repetitions, self.iterations)
        if any(count is not None and count < 1 for count in counts):
            raise UsageError('n_patterns, repetitions and iterations must be at least 1')
        if min(self._ortho()) < 0:
            raise UsageError('ortho, a weight, must not be negative')

    def _check_number_of_regions(self, n_regions: int) -> None:
        """Members that start from factors need eight regions for every pattern."""
        most = most_patterns(n_regions)
        given = () if self.n_patterns is None else _as_tuple(self.n_patterns)
        if self._hyper.start == 'factors' and max(1, *given, 0) > most:
            raise UsageError(
                f'{n_regions} regions are too few for {max(1, *given, 0)} patterns with the preset '
                f'{self.preset}, which needs eight for each; use the preset robust'
            )

    def _train(self, n_patterns: int, sample: Sample, device: torch.device) -> list[Setting]:
        """Train members of every lambda with this number of patterns."""
        hyper = self._hyper
        if hyper.start == 'random':
            count = self.repetitions or RANDOM_REPETITIONS
            stack = self._stack(n_patterns, sample.pt.shape[1], device, self._ortho(), 0, count)
            trained, _ = self._train_stack(stack, sample, self._checkpoint(n_patterns))
            return [make_setting(value, *some) for value, some in trained.items()]

        people = [group.cpu().double().numpy() for group in (sample.cn, sample.pt)]

        def train(
            ortho: tuple[float, ...], first: int, count: int
        ) -> tuple[dict[float, Trained], int]:
            stack = self._stack(n_patterns, sample.pt.shape[1], device, ortho, first, count)
            start_members(stack, *people)
            return self._train_stack(stack, sample, self._checkpoint(n_patterns, first))

        settings, self.spent_ = train_in_rounds(
            TrainStack(train, hyper), self._ortho(), self.repetitions
        )
        return settings

    def _train_stack(
        self, stack: Stack, sample: Sample, checkpoint: Path | None
    ) -> tuple[dict[float, Trained], int]:
        """Train a stack to its end; its members by lambda, and the iterations that it took."""
        training = Training(stack, sample, self.most_iterations, checkpoint)
        weights = training.run()
        self.history_ += training.progress.history
        r_ENM = members_r_indices(weights, sample.pt)
        on_cpu = {name: tensor.cpu() for name, tensor in weights.items()}
        trained = {
            value: Trained(
                {name: tensor[rows.tolist()] for name, tensor in on_cpu.items()},
                r_ENM[rows],
                [training.progress.converged[row] for row in rows],
            )
            for value, rows in members_by_ortho(stack.ortho).items()
        }
        return trained, training.progress.iteration

    def _stack(
        self,
        n_patterns: int,
        n_features: int,
        device: torch.device,
        ortho: tuple[float, ...],
        first: int,
        count: int,
    ) -> Stack:
        """Fresh members `first` to `first + count` of every lambda."""
        repeated = tuple(value for value in ortho for _ in range(count))
        return Stack(
            n_features, n_patterns, repeated, self._hyper, self.random_state, device, first
        )

    def _checkpoint(self, n_patterns: int, first: int | None = None) -> Path | None:
        if self.checkpoint_dir is None:
            return None
        part = '' if first is None else f'_members-{first:02d}'
        return Path(self.checkpoint_dir) / f'patterns-{n_patterns}{part}.safetensors'

    def transform(
        self, X: ArrayLike | pd.DataFrame, return_std: bool = False
    ) -> Floats | tuple[Floats, Floats]:
        """R-indices of people, patients or not: the mean over the members of the consensus.

        They lie near 0 (no expression) to 1 (as strong as among the training patients); values
        beyond are not cut off.

        Parameters
        ----------
        X : (N, S)
            People, normalised as in `fit`; columns of a DataFrame are matched by name.
        return_std
            Also return the spread over members: their standard deviation, (N, M); NaN where
            the consensus has one member only.

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
        """What each region contributes to the R-indices that `transform` gives.

        Parameters
        ----------
        X : (N, S)
            As in `transform`.

        Returns
        -------
        baseline : (M,)
            R-indices of the mean control, who has 1 in every region.
        of_regions : (N, M, S)
            What each region adds (:mod:`surreal_bids.model.contributions`): the baseline and the
            sum over regions are the R-index.
        """
        values = self._known_features(X)
        if self.selected_.n_patterns == 0:
            return np.empty(0), np.empty((len(values), 0, values.shape[1]))
        portions = [
            member_contributions(self.weights_, portion)
            for portion in torch.from_numpy(values.astype(np.float32)).split(FEW_PEOPLE)
        ]
        of_regions = torch.cat([each.of_regions_ENMS.mean(dim=0) for each in portions])
        return portions[0].baseline_EM.mean(dim=0).numpy(), of_regions.numpy()

    def synthesise(self, z: ArrayLike) -> Floats:
        """Change that patterns impose on the mean control, as the generator f has learned it.

        Parameters
        ----------
        z : (N, M)
            Severity of each pattern, 0 to 1.

        Returns
        -------
        (N, S) array
            In the unit of the network; the changes of the patterns add up (section 2.2.3).
        """
        z_NM = torch.tensor(np.asarray(z), dtype=torch.float32)
        n_members = len(self.weights_['f.encode1'])
        with torch.no_grad():
            control_E1S = torch.full((n_members, 1, self.n_features_in_), MEAN_CONTROL)
            code_ENQ = encode(self.weights_, control_E1S).expand(-1, len(z_NM), -1)
            z_EMNM = one_pattern_at_a_time(z_NM.expand(n_members, -1, -1))
            change_EMNS = synthesise(self.weights_, code_ENQ, z_EMNM)
        return change_EMNS.sum(dim=1).mean(dim=0).double().numpy()

    def in_range(self, X: ArrayLike | pd.DataFrame) -> NDArray[np.bool_]:
        """Whether each person's ROI profile lies within the training population (`Domain`)."""
        if self.domain_ is None:
            raise UsageError('an imported model does not know the people it was trained on')
        return self.domain_.contains(self._known_features(X))

    def _known_features(self, X: ArrayLike | pd.DataFrame) -> Floats:
        """The columns of X in the order of training."""
        if not hasattr(self, 'selected_'):
            raise UsageError('this model is not fitted yet; call fit, or load a saved one')
        values, names = feature_matrix(X)
        if names is not None and self.feature_names_in_ is not None:
            missing = [name for name in self.feature_names_in_ if name not in names]
            if missing:
                raise DataError(f'the table lacks columns of the model: {", ".join(missing)}')
            values = values[:, [names.index(name) for name in self.feature_names_in_]]
        if values.shape[1] != self.n_features_in_:
            raise DataError(
                f'{values.shape[1]} columns given, but the model takes {self.n_features_in_}'
            )
        return values

    def _members_of_choice(self) -> int:
        """How many members were trained with the chosen M and lambda."""
        chosen = (self.selected_.n_patterns, self.selected_.ortho)
        return sum((member.n_patterns, member.ortho) == chosen for member in self.members_)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything a fitted model needs: tensors, and the card as plain JSON values."""
        tensors = {f'members/{name}': value for name, value in self.weights_.items()}
        if self.domain_ is not None:
            tensors['domain/mean'] = torch.from_numpy(np.asarray(self.domain_.mean))
            tensors['domain/precision'] = torch.from_numpy(np.asarray(self.domain_.precision))
        card = {
            'GeneratedBy': {
                'Name': 'surreal_bids',
                'Version': __version__,
                'Torch': torch.__version__,
                'Python': platform.python_version(),
            },
            'Features': self.feature_names_in_,
            'NumberOfFeatures': self.n_features_in_,
            'Preset': self.preset,
            'Iterations': self.most_iterations,
            'Repetitions': self.repetitions or self._members_of_choice(),
            'RandomState': self.random_state,
            'HyperParameters': asdict(hyperparameters(self.preset, **self.changes)),
            'Sample': self.sample_,
            'Selected': asdict(self.selected_),
            'Stability': None if self.number_ is None else asdict(self.number_),
            'Spent': None if self.spent_ is None else asdict(self.spent_),
            'Linear': self.linear_,
            'Agreement': self.agreement_,
            'Members': [asdict(member) for member in self.members_],
            'History': self.history_,
            'DomainLimit': None if self.domain_ is None else self.domain_.limit,
        }
        return tensors, card

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], card: dict[str, Any]) -> SurrealGAN:
        """The model that `state` described."""
        hyper = dict(card['HyperParameters'])
        hyper['betas'] = tuple(hyper['betas'])
        selected = Selection(**{**card['Selected'], 'members': tuple(card['Selected']['members'])})
        model = cls(
            selected.n_patterns,
            selected.ortho,
            card['Repetitions'] or None,
            card['Preset'],
            card['Iterations'],
            random_state=card['RandomState'],
            **hyper,
        )
        model.selected_ = selected
        model.number_ = stored_number(card.get('Stability'))
        model.spent_ = Spent(**card['Spent']) if card.get('Spent') else None
        model.linear_ = card.get('Linear')
        model.agreement_ = card['Agreement']
        model.members_ = [Member(**member) for member in card['Members']]
        model.history_ = card['History']
        model.sample_ = card['Sample']
        model.feature_names_in_ = card['Features']
        model.n_features_in_ = card['NumberOfFeatures']
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
        """Write the model as a bundle: `model.safetensors` and `model.json`."""
        return save_bundle(folder, *self.state())

    @classmethod
    def load(cls, folder: str | Path) -> SurrealGAN:
        """Read a model that `save` wrote."""
        with reading_model(Path(folder)):
            return cls.from_state(*load_bundle(folder))


def find_device(name: str) -> torch.device:
    """The device to train on; asking for a GPU that is not there is an error."""
    if name not in ('auto', 'cpu', 'cuda'):
        raise UsageError(f'no device is called {name!r}; there are auto, cpu and cuda')
    if name == 'cuda' and not torch.cuda.is_available():
        raise UsageError('no CUDA device can be used here; choose device cpu or auto')
    if name == 'auto':
        name = 'cuda' if torch.cuda.is_available() else 'cpu'
    return torch.device(name)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, Sequence) else (value,)
