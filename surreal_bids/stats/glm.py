"""The general linear model: designs of the group contrasts, and their estimates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from surreal_bids.exceptions import DataError
from surreal_bids.text import counted

LOW = 0.4
"""Below it a pattern counts as hardly expressed (section 4.3)."""

HIGH = 0.7
"""Above it a pattern counts as strongly expressed (section 4.3)."""


@dataclass(frozen=True)
class Subgroup:
    """Some of the patients.

    Attributes
    ----------
    name
        Letters and digits only, so that it can be part of a BIDS file name: `low`, `r1mid`.
    pattern
        The pattern that varies; None for the patients who are low in all.
    description
        The rule in words.
    members : (N,) array of bool
        Who of the N patients is in it.
    """

    name: str
    pattern: str | None
    description: str
    members: NDArray[np.bool_]

    @property
    def size(self) -> int:
        """Number of patients in it."""
        return int(self.members.sum())


def form_subgroups(r_indices: pd.DataFrame) -> list[Subgroup]:
    """Subgroups of patients along each pattern, the others being low.

    Section 4.3 has r_i < 0.4, 0.4 < r_i < 0.7 and r_i > 0.7, each with r_j < 0.4 for all j != i.
    The first is the same for every i, so it comes once, as `low`. A value of exactly 0.4 or 0.7
    counts as in between.

    Parameters
    ----------
    r_indices : (N, M)
        R-indices of patients, one column per pattern.

    Returns
    -------
    list of 1 + 2 M Subgroup
        `low`, then `<pattern>mid` and `<pattern>high` of each pattern. They do not overlap; any
        may be empty.
    """
    values = r_indices.to_numpy(np.float64)
    if np.isnan(values).any():
        person = r_indices.index[np.isnan(values).any(axis=1)][0]
        raise DataError(f'{person} has no R-index; exclude participants without R-indices')
    is_low = values < LOW
    subgroups = [Subgroup('low', None, f'all patterns < {LOW}', np.all(is_low, axis=1))]
    others = f', others < {LOW}' if values.shape[1] > 1 else ''
    for number, pattern in enumerate(map(str, r_indices.columns)):
        value = values[:, number]
        alone = np.delete(is_low, number, axis=1).all(axis=1)
        rules = {
            'mid': (f'{LOW} to {HIGH}', (value >= LOW) & (value <= HIGH)),
            'high': (f'> {HIGH}', value > HIGH),
        }
        subgroups += [
            Subgroup(f'{pattern}{level}', pattern, f'{pattern} {text}{others}', chosen & alone)
            for level, (text, chosen) in rules.items()
        ]
    return subgroups


Floats = NDArray[np.float64]

MINIMUM_SIZE = 5
"""A smaller subgroup is not compared: its map would show its members, not the pattern."""

PATIENTS = 'patients'
"""Name of the comparison of all patients with controls."""

DEPENDENT = 1e-7
"""A column counts as a combination of others if less than this part of its length is its own."""


@dataclass(frozen=True)
class Design:
    """One linear model y = x beta + Z gamma + e of which beta is tested, in orthonormal form.

    The t statistic of beta depends on the space that Z spans, not on Z: it is held as an
    orthonormal basis, and x as what is left of it outside this space. So columns of Z that repeat
    one another do no harm.

    Attributes
    ----------
    name
        Letters and digits only, for file names: `r1high`, `r1slope`.
    description
        What is compared, and how many participants, in words.
    rows : (n,) array of int
        The participants, as positions among all N.
    tested : (n,)
        x without what Z explains of it, of length 1.
    nuisance : (n, q)
        Orthonormal basis of Z: the mean and the covariates. The first column is constant.
    scale : float
        Length of x without what Z explains of it.
    is_test : bool
        Whether chance finds nothing here. Where participants were chosen or ordered by R-indices,
        which are functions of their brains, it does: such a map describes, and tests nothing.
    """

    name: str
    description: str
    rows: NDArray[np.intp]
    tested: Floats
    nuisance: Floats
    scale: float
    is_test: bool = True

    @property
    def df(self) -> int:
        """Degrees of freedom of the residuals."""
        return self.rows.size - self.nuisance.shape[1] - 1


@dataclass(frozen=True)
class Skipped:
    """Something that was not tested, and why."""

    name: str
    reason: str


def make_design(
    name: str, description: str, rows: ArrayLike, tested: ArrayLike, columns: ArrayLike
) -> Design:
    """Build the model of `tested` (n,), with a mean and `columns` (n, c) held fixed.

    Raises
    ------
    DataError
        `tested` follows from what is held fixed, or there are too few participants for the columns.
    """
    x = np.asarray(tested, np.float64)
    nuisance = _orthonormal(np.asarray(columns, np.float64))
    centred = x - x.mean()
    own = centred - nuisance @ (nuisance.T @ centred)
    scale = float(np.linalg.norm(own))
    if scale <= DEPENDENT * np.linalg.norm(centred) or scale == 0:
        raise DataError(f'{name}: {description}: is determined by the covariates')
    design = Design(name, description, np.asarray(rows, np.intp), own / scale, nuisance, scale)
    if design.df < 1:
        raise DataError(
            f'{name}: {description}: {x.size} participants are too few for {nuisance.shape[1]} '
            'columns of mean and covariates; use fewer covariates'
        )
    return design


def _orthonormal(columns: Floats) -> Floats:
    """Orthonormal basis (n, q) of a constant and these columns (n, c), the constant first."""
    mean = columns.mean(axis=0)
    centred = columns - mean
    length = np.linalg.norm(centred, axis=0)
    varies = length > DEPENDENT * np.abs(mean)
    scaled = centred[:, varies] / length[varies]
    left, sizes, _ = np.linalg.svd(scaled, full_matrices=False)
    constant = np.full((len(columns), 1), len(columns) ** -0.5)
    return np.hstack([constant, left[:, sizes > DEPENDENT]])


def covariate_columns(covariates: pd.DataFrame) -> Floats:
    """Covariates of N participants as numbers (N, c): text becomes indicators of its levels.

    Raises
    ------
    DataError
        A value is missing or infinite.
    """
    if covariates.shape[1] == 0:
        return np.empty((len(covariates), 0))
    indicators = pd.get_dummies(covariates, drop_first=True, dtype=float)
    columns = indicators.to_numpy(np.float64, na_value=np.nan)
    lacking = covariates.isna().any(axis=1).to_numpy() | ~np.isfinite(columns).all(axis=1)
    if lacking.any():
        raise DataError(
            f'a covariate is missing in {counted(int(lacking.sum()), "participant")}, such as '
            f'{covariates.index[lacking][0]}; exclude these participants or the covariate'
        )
    return columns


def pattern_designs(
    r_indices: pd.DataFrame,
    is_control: ArrayLike,
    covariates: pd.DataFrame | None = None,
    *,
    minimum: int = MINIMUM_SIZE,
) -> tuple[list[Design], list[Skipped]]:
    """Make the designs of the group maps (section 4.3).

    They compare all patients with controls, and each subgroup of `form_subgroups` with controls.
    Among patients, they regress on each R-index with the other R-indices held fixed. Only the
    comparison of all patients is a test. R-indices, out of fold or not, are functions of the
    brains that are compared: subgroups and slopes differ even if nobody is ill
    (`benchmarks/nulls.py`).

    Parameters
    ----------
    r_indices : (N, M)
        R-indices, one row per participant, with one image each; those of controls are not used.
        Patients who lack one are among all patients, but in no subgroup and no regression.
    is_control : (N,) of bool
        Who is a control; the others are patients.
    covariates : (N, c)
        Columns held fixed in every model, such as age and sex; same rows.
    minimum
        Subgroups, and groups, of fewer participants are skipped.

    Returns
    -------
    designs
        Named `patients`, `low`, `r1mid`, `r1high`, ..., `r1slope`, ... by the columns of
        `r_indices`.
    skipped
        What was not compared, and why.
    """
    control = np.asarray(is_control, bool)
    if covariates is None:
        covariates = pd.DataFrame(index=r_indices.index)
    if not len(r_indices) == len(control) == len(covariates):
        raise DataError(
            f'R-indices of {len(r_indices)}, groups of {len(control)} and covariates of '
            f'{len(covariates)} participants; give the same participants in the same order'
        )
    sample = _Sample(r_indices, control, covariate_columns(covariates))
    designs: list[Design] = []
    skipped: list[Skipped] = []
    for name, description, counts, arguments in sample.comparisons():
        small = [f'{count} {group}' for group, count in counts.items() if count < minimum]
        if small:
            reason = f'{description}: only {" and ".join(small)}; at least {minimum} are needed'
            skipped.append(Skipped(name, reason))
            continue
        try:
            design = make_design(name, description, *arguments)
            designs.append(replace(design, is_test=name == PATIENTS))
        except DataError as error:
            skipped.append(Skipped(name, str(error)))
    return designs, skipped


Comparison = tuple[str, str, dict[str, int], tuple[NDArray[np.intp], Floats, Floats]]


@dataclass(frozen=True)
class _Sample:
    r_indices: pd.DataFrame
    control: NDArray[np.bool_]
    columns: Floats

    def comparisons(self) -> Iterator[Comparison]:
        """Name, description, sizes of groups, and rows, tested and fixed columns of each."""
        yield self._patients()
        if self.r_indices.shape[1]:
            yield from self._against_controls()
            yield from self._among_patients()

    def _patients(self) -> Comparison:
        counts = {'controls': int(self.control.sum()), 'patients': int((~self.control).sum())}
        return (
            PATIENTS,
            f'all patients (n = {counts["patients"]}) against controls (n = {counts["controls"]})',
            counts,
            (np.arange(self.control.size), (~self.control).astype(np.float64), self.columns),
        )

    @property
    def _described(self) -> NDArray[np.intp]:
        """Rows of the patients who have all R-indices."""
        return np.flatnonzero(~self.control & self.r_indices.notna().all(axis=1).to_numpy())

    def _against_controls(self) -> Iterator[Comparison]:
        patients = self._described
        for subgroup in form_subgroups(self.r_indices.iloc[patients]):
            belongs = np.zeros(self.control.size)
            belongs[patients[subgroup.members]] = 1
            rows = np.flatnonzero(self.control | (belongs > 0))
            counts = {'controls': int(self.control.sum()), 'patients': subgroup.size}
            yield (
                subgroup.name,
                f'{subgroup.description} (n = {subgroup.size}) against controls '
                f'(n = {counts["controls"]})',
                counts,
                (rows, belongs[rows], self.columns[rows]),
            )

    def _among_patients(self) -> Iterator[Comparison]:
        rows = self._described
        values = self.r_indices.iloc[rows].to_numpy(np.float64)
        for number, pattern in enumerate(map(str, self.r_indices.columns)):
            others = np.delete(values, number, axis=1)
            fixed = ', other R-indices held fixed' if others.shape[1] else ''
            yield (
                f'{pattern}slope',
                f'{pattern} among patients (n = {rows.size}){fixed}',
                {'patients': rows.size},
                (rows, values[:, number], np.hstack([self.columns[rows], others])),
            )


SLAB = 1 << 15
"""Voxels handled at once, so that intermediate results stay in the processor's cache."""

CONSTANT = 1e-10
"""A voxel whose residuals are less than this part of its sum of squares counts as constant."""


@dataclass(frozen=True)
class Estimates:
    """What one design found in V voxels.

    Attributes
    ----------
    effect : (V,)
        beta: difference of means, or change per unit of the R-index, in units of the images.
    t : (V,)
        beta over its standard error.
    varies : (V,) array of bool
        Where there is something to test. Elsewhere, where all participants of the design have the
        same value, effect and t are 0.
    df : int
        Degrees of freedom.
    """

    effect: Floats
    t: Floats
    varies: NDArray[np.bool_]
    df: int


class LinearModels:
    """Least squares of voxels on several designs, from batches of images that come once.

    With an orthonormal basis Q of a design, the residual sum of squares is y'y - |Q'y|^2. To keep
    that difference accurate, the first image is subtracted from all: every design has a mean, so
    that nothing but the mean changes.

    Parameters
    ----------
    designs
        The models; rows refer to participants as numbered in `add`.
    n_participants, n_voxels
        Sizes N and V.
    """

    def __init__(self, designs: Sequence[Design], n_participants: int, n_voxels: int) -> None:
        self.designs = designs
        self._weights = _stack(designs, n_participants)
        self._belongs = _memberships(designs, n_participants)
        self._products = np.zeros((self._weights.shape[1], n_voxels))
        self._squares = np.zeros((len(designs), n_voxels))
        self._origin: NDArray | None = None

    @staticmethod
    def n_bytes(designs: Sequence[Design], n_voxels: int) -> int:
        """Memory that the sums take: a column's products with every voxel, and the squares."""
        n_sums = sum(2 + design.nuisance.shape[1] for design in designs)
        return n_sums * n_voxels * np.dtype(np.float64).itemsize

    def add(self, rows: NDArray[np.intp], values: NDArray) -> None:
        """Take in a batch: participants (B,) and their voxels (B, V)."""
        if self._origin is None:
            self._origin = values[0].copy()
        weights, belongs = self._weights[rows].T, self._belongs[rows].T
        for slab in _slabs(values.shape[1]):
            y = values[:, slab].astype(np.float64) - self._origin[slab]
            self._products[:, slab] += weights @ y
            self._squares[:, slab] += belongs @ y**2

    def estimates(self) -> Iterator[Estimates]:
        """Results of each design, in order."""
        start = 0
        for number, design in enumerate(self.designs):
            stop = start + 1 + design.nuisance.shape[1]
            yield _estimate(design, self._products[start:stop], self._squares[number])
            start = stop


def _stack(designs: Sequence[Design], n_participants: int) -> Floats:
    """Tested and nuisance columns of all designs side by side (N, P); 0 for who is not in one."""
    blocks = []
    for design in designs:
        block = np.zeros((n_participants, 1 + design.nuisance.shape[1]))
        block[design.rows, 0] = design.tested
        block[design.rows, 1:] = design.nuisance
        blocks.append(block)
    return np.hstack(blocks)


def _memberships(designs: Sequence[Design], n_participants: int) -> Floats:
    """1 where a participant is in a design, else 0 (N, D)."""
    belongs = np.zeros((n_participants, len(designs)))
    for number, design in enumerate(designs):
        belongs[design.rows, number] = 1
    return belongs


def _slabs(n_voxels: int) -> Iterator[slice]:
    for start in range(0, n_voxels, SLAB):
        yield slice(start, start + SLAB)


def _estimate(design: Design, products: Floats, squares: Floats) -> Estimates:
    """Effect and t from Q'y (1 + q, V), the tested column first, and y'y (V,)."""
    residual = squares - np.einsum('pv,pv->v', products, products)
    varies = residual > CONSTANT * squares
    sigma = np.sqrt(np.where(varies, residual, 1.0) / design.df)
    along = np.where(varies, products[0], 0.0)
    return Estimates(along / design.scale, along / sigma, varies, design.df)
