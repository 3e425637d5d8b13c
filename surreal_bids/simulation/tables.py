"""Simulated tables of regional volumes and RAVENS maps: semi-synthetic data of section 4.2."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import truncnorm
from sklearn.covariance import LedoitWolf

from surreal_bids.bids.outputs import describe_columns
from surreal_bids.exceptions import DataError, OutputError, UsageError
from surreal_bids.files import is_unfinished, remove_leftovers, write_json, write_tsv
from surreal_bids.images import Image, like
from surreal_bids.names import CONTROL, Role, column_of, sex_of
from surreal_bids.regions import (
    Feature,
    build_features,
    muse_indices,
    muse_table,
    recognise,
    region_names,
)
from surreal_bids.simulation.anatomy import labels_at, load_labels, smooth
from surreal_bids.simulation.course import (
    LARGEST_LOSS,
    MCI,
    MCI_SEVERITY,
    NO_COURSE,
    RETEST_SD,
    YEARS_BETWEEN,
    Course,
    add_years,
    choose_second_visits,
    join_visits,
    label_groups,
    sample_dominance,
    sample_memory,
    sample_progress,
    signs_of_sides,
)
from surreal_bids.tables import Table, read_table, to_numbers
from surreal_bids.templates import builtin_template

Array = NDArray[np.float64]

KNOWN: tuple[Role, ...] = ('age', 'sex', 'site', 'icv')
"""What may be known of participants besides their volumes."""

MIN_FITTED = 10
"""Minimum number of participants to estimate how regions vary together."""


@dataclass(frozen=True)
class Controls:
    """Healthy participants: volumes (N, S) in mm3; age, sex, site and icv, row by row."""

    volumes: pd.DataFrame
    people: pd.DataFrame


def volume_columns() -> list[str]:
    """Names of the 139 volume columns, ``MUSE_23`` to ``MUSE_207``."""
    return [f'MUSE_{index}' for index in muse_indices()]


def read_controls(path: str | Path) -> Controls:
    """Read healthy participants from a CSV or TSV file, one row per participant.

    Regions are recognised as in :func:`surreal_bids.regions.recognise`; all 139 are needed, and
    ventricles are ignored. Age, sex, site and ICV are missing where there is no such column.

    Raises
    ------
    DataError
        If the file cannot be read, lacks a region, holds volumes that are missing or not positive,
        or has two rows for one participant.
    """
    table = read_table(Path(path))
    features = [Feature(f'MUSE_{index}', (index,)) for index in muse_indices()]
    try:
        _require_one_row_each(table.text)
        volumes = build_features(table.text.apply(to_numbers), features).reset_index(drop=True)
        _require_positive(volumes)
    except DataError as error:
        raise DataError(f'{path}: {error}') from error
    return Controls(volumes, _known_of_people(table))


def _known_of_people(table: Table) -> pd.DataFrame:
    people = {}
    for name in KNOWN:
        column = column_of(table.columns, name)
        cells = table.text.get(column, pd.Series(np.nan, table.text.index))
        people[name] = (to_numbers(cells) if name in ('age', 'icv') else cells).tolist()
    people['sex'] = [sex_of(str(sex)) or sex for sex in people['sex']]
    return pd.DataFrame(people)


def _require_one_row_each(table: pd.DataFrame) -> None:
    column = column_of(table.columns, 'participant')
    if column is None:
        return
    repeated = table.loc[table[column].duplicated(), column].unique()
    if repeated.size:
        raise DataError(
            f'column {column!r} has {repeated[0]} more than once; keep one row per participant'
        )


def _require_positive(volumes: pd.DataFrame) -> None:
    bad = ~(volumes.to_numpy() > 0)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise DataError(
            f'{bad.any(axis=1).sum()} of {len(volumes)} rows have a volume that is missing or not '
            f'positive, such as {volumes.columns[column]} in row {row + 1}; exclude these rows'
        )


def resample_gaussian(controls: Controls, n_people: int, rng: np.random.Generator) -> Controls:
    """Sample participants from a log-normal distribution fitted to the controls.

    Log volumes get the mean of the controls and their covariance as estimated by Ledoit and Wolf
    (2004), which is of full rank even where regions outnumber participants. Age, sex, site and ICV
    of those sampled are missing.
    """
    if len(controls.volumes) < MIN_FITTED:
        raise DataError(
            f'a distribution cannot be fitted to {len(controls.volumes)} participants; provide at '
            f'least {MIN_FITTED}'
        )
    log_volumes = np.log(controls.volumes.to_numpy())
    covariance = LedoitWolf().fit(log_volumes).covariance_
    drawn = rng.multivariate_normal(
        log_volumes.mean(axis=0), covariance, size=n_people, method='cholesky'
    )
    unknown = pd.DataFrame(np.nan, index=range(n_people), columns=controls.people.columns)
    return Controls(pd.DataFrame(np.exp(drawn), columns=controls.volumes.columns), unknown)


AGE_MEAN, AGE_SD, AGE_RANGE = 58.5, 10.5, (40.0, 86.0)
"""Years: a normal distribution cut off at both ends."""

STANDARD_AGE_RANGE = tuple((limit - AGE_MEAN) / AGE_SD for limit in AGE_RANGE)

ICV_MM3 = 1.4e6
"""Geometric mean of the intracranial volume of women and men."""

ICV_SEX_DIFFERENCE, ICV_SPREAD = 0.145, 0.085
"""Log ICV: men minus women, and the standard deviation among either."""

SITES = {'site1': 0.5, 'site2': 0.3, 'site3': 0.2}
"""Share of the participants scanned at each site."""


@dataclass(frozen=True)
class Population:
    """Parameters of a built-in healthy population, in natural logs of mm3.

    The log of a volume is linear in the known variables and in a few hidden factors::

        log v_j = m_j + age_j (age - 58.5 y) / 10 y + male_j (male - 1/2)
                  + icv_j log(ICV / 1.4 l) + site_j + sum_k L_jk f_k + u_j e_j

    with f_k and e_j standard normal. The parameters (`benchmarks/population.py`) were chosen so
    that the population resembles 291 healthy participants aged 40-86 years: coefficients of
    variation of 10-27 % (median 15 %); and, for log volumes, a mean absolute correlation of 0.49, a
    median left-right correlation of 0.82 (quartiles 0.71 and 0.88), a first component that carries
    half of the variance and 23 components that carry 80 %. Shapes: S = 139 regions, F factors.

    Attributes
    ----------
    log_mean
        m, (S,).
    known
        Effects of age (per decade), of being male and of log ICV, (3, S).
    sites
        Effect of each site, (number of sites, S).
    factors
        L, (F, S).
    unique
        u, (S,).
    """

    log_mean: Array
    known: Array
    sites: Array
    factors: Array
    unique: Array


@cache
def built_in_population() -> Population:
    """Load the parameters, which `benchmarks/population.py` makes."""
    path = package_files('surreal_bids') / 'data' / 'population.tsv'
    with path.open(encoding='utf-8') as file:
        table = pd.read_csv(file, sep='\t', dtype=str).astype(float)  # To the last digit.
    factors = table.columns[table.columns.str.startswith('factor')]
    return Population(
        log_mean=table['log_mean'].to_numpy(),
        known=np.column_stack([table[name] for name in ('age', 'male', 'icv')]).T,
        sites=np.array([table[site] for site in SITES]),
        factors=np.array([table[factor] for factor in factors]),
        unique=table['unique'].to_numpy(),
    )


def _sample_people(n_people: int, rng: np.random.Generator) -> pd.DataFrame:
    standard_age = truncnorm.rvs(*STANDARD_AGE_RANGE, size=n_people, random_state=rng)
    male = rng.integers(2, size=n_people)
    log_icv = ICV_SEX_DIFFERENCE * (male - 0.5) + rng.normal(scale=ICV_SPREAD, size=n_people)
    return pd.DataFrame(
        {
            'age': np.round(AGE_MEAN + AGE_SD * standard_age, 1),
            'sex': np.where(male == 1, 'M', 'F'),
            'site': rng.choice(list(SITES), size=n_people, p=list(SITES.values())),
            'icv': np.round(ICV_MM3 * np.exp(log_icv)),
        }
    )


def _expected_log_volumes(people: pd.DataFrame, population: Population) -> Array:
    """Log volumes (N, S) expected at this age, sex, ICV and site."""
    known = np.column_stack(
        [
            (people['age'] - AGE_MEAN) / 10,
            (people['sex'] == 'M') - 0.5,
            np.log(people['icv'] / ICV_MM3),
        ]
    )
    site = pd.Categorical(people['site'], categories=list(SITES)).codes
    return population.log_mean + known @ population.known + population.sites[site]


def sample_controls(n_people: int, rng: np.random.Generator) -> Controls:
    """Sample healthy participants from the built-in population."""
    population = built_in_population()
    people = _sample_people(n_people, rng)
    n_factors, n_regions = population.factors.shape
    log_volumes = (
        _expected_log_volumes(people, population)
        + rng.normal(size=(n_people, n_factors)) @ population.factors
        + rng.normal(size=(n_people, n_regions)) * population.unique
    )
    return Controls(pd.DataFrame(np.exp(log_volumes), columns=volume_columns()), people)


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
"""Rows: MUSE indices (right, left), then the patterns of the columns small overlapping, large
overlapping and scarce region. Both sides count, so a pattern has 14, 16 and 4 regions, and shares
4, 8 and 0 of them with others."""

SMALL_OVERLAP, LARGE_OVERLAP, SCARCE_REGION = 1, 2, 3
"""Columns of :data:`TABLE_5`."""


@dataclass(frozen=True)
class Task:
    """A semi-synthetic task.

    Attributes
    ----------
    name
        Its name.
    patterns
        MUSE indices of the regions of each pattern, ascending.
    noise_sd
        Standard deviation of the factor N(1, sd) by which losses vary within a pattern.
    max_loss
        Share of the volume that a region loses at severity 1.
    """

    name: str
    patterns: tuple[tuple[int, ...], ...]
    noise_sd: float = 0.05
    max_loss: float = 0.3


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


def sample_severities(n_people: int, rng: np.random.Generator) -> Array:
    """Sample the severity of each pattern in each participant from U[0, 1]; (N, M)."""
    return rng.uniform(size=(n_people, N_PATTERNS))


def impose_atrophy(
    volumes: Array,
    severities: Array,
    task: Task,
    rng: np.random.Generator,
    dominance: Array | None = None,
) -> Array:
    """Shrink the regions of each pattern: v -= v * s * N(1, noise_sd) * max_loss (section 4.2).

    Patterns are applied one after the other, so a region of two patterns has the volume
    v (1 - loss_1) (1 - loss_2). Noise is sampled for each participant, region and pattern.

    Parameters
    ----------
    volumes : (N, S)
        Volumes of healthy participants.
    severities : (N, M)
        Severity of each pattern, 0 to 1.
    task
        Regions of each pattern, the largest loss and its noise.
    rng
        Source of the noise.
    dominance : (N, M)
        Dominance d of the left side in each pattern: regions of the left side lose volume as at
        severity s (1 + d), those of the right side as at s (1 - d). None: both sides lose the same.

    Returns
    -------
    (N, S) array
        Volumes after the loss.
    """
    place = {index: position for position, index in enumerate(muse_indices())}
    columns = [[place[index] for index in pattern] for pattern in task.patterns]
    if dominance is None:
        return shrink_regions(volumes, severities, columns, task.max_loss, task.noise_sd, rng)
    signs = signs_of_sides()
    shrunk = volumes
    for pattern, severity, of_pattern in zip(columns, severities.T, dominance.T):
        of_region = severity[:, None] * (1 + of_pattern[:, None] * signs[pattern])
        after = shrunk.copy()
        after[:, pattern] = _shrink(
            shrunk[:, pattern], of_region, task.max_loss, task.noise_sd, rng
        )
        # The stronger side may lose nearly twice the severity, and noise adds to that.
        shrunk = np.maximum(after, shrunk * (1 - LARGEST_LOSS))
    return shrunk


def shrink_regions(
    volumes: Array,
    severities: Array,
    patterns: Iterable[Sequence[int] | NDArray[np.intp]],
    max_loss: float,
    noise_sd: float,
    rng: np.random.Generator,
) -> Array:
    """Shrink columns of `volumes` (N, S), those of each pattern; see :func:`impose_atrophy`."""
    volumes = volumes.copy()
    for columns, severity in zip(patterns, severities.T):
        volumes[:, columns] = _shrink(
            volumes[:, columns], severity[:, None], max_loss, noise_sd, rng
        )
    return volumes


def _shrink(
    volumes: Array, severity: Array, max_loss: float, noise_sd: float, rng: np.random.Generator
) -> Array:
    """Shrink the regions of one pattern, (N, R), by the severity in each, (N, 1) or (N, R)."""
    noise = rng.normal(1, noise_sd, size=volumes.shape)
    return volumes - volumes * severity * noise * max_loss


MOST_PEOPLE = 1_000_000
"""Most participants of a simulated table, which then takes some gigabytes."""

SEVERITY_COLUMNS = [f'r{pattern}' for pattern in range(1, N_PATTERNS + 1)]

DECIMALS = {'roi_volumes': 2, 'severities': 6}
"""Decimals of the tables: volumes are rounded to 0.01 mm3."""


@dataclass(frozen=True)
class SimulatedTable:
    """Tables with the same participants in the same order, controls (CN) first, and the truth.

    Attributes
    ----------
    volumes
        participant_id and the 139 volumes in mm3, ``MUSE_23`` to ``MUSE_207``.
    participants
        participant_id, diagnosis (CN, PT or MCI), age, sex, site and icv; missing if unknown; and
        memory, if it was simulated.
    severities
        participant_id and the true severities r1 to r3, zero in controls.
    patterns
        pattern (1 to 3) and index (MUSE numbering) of each region that loses volume.

    With second visits, all tables but `patterns` have a row for each visit, and session_id.
    """

    volumes: pd.DataFrame
    participants: pd.DataFrame
    severities: pd.DataFrame
    patterns: pd.DataFrame


def simulate_table(
    task: str,
    n_cn: int = 492,
    n_pt: int = 900,
    seed: int = 0,
    controls: Controls | None = None,
    resample: Literal['gaussian'] | None = None,
    course: Course = NO_COURSE,
) -> SimulatedTable:
    """Simulate one of the five semi-synthetic datasets of section 4.2.

    Healthy participants are split at random into controls and pseudo-patients. Pseudo-patients lose
    volume in three patterns, with severities sampled from U[0, 1]. Participants and severities only
    depend on the seed and the group sizes, so they are the same in all tasks.

    Parameters
    ----------
    task
        ``'basic'``, ``'overlap'``, ``'scarce'``, ``'noise'`` or ``'mild'``.
    n_cn, n_pt
        Number of controls and of pseudo-patients.
    seed
        Random seed.
    controls
        Real participants to use, each at most once; by default, the built-in population.
    resample
        ``'gaussian'``: participants sampled from a log-normal distribution fitted to `controls`.
    course
        What the study has besides: disease that is stronger on one side, participants with MCI, a
        memory score, second visits.
    """
    n_people = n_cn + n_pt + course.n_mci
    _check_request(task, n_cn, n_pt, seed, n_people)
    people_rng, severity_rng, noise_rng, course_rng = np.random.default_rng(seed).spawn(4)
    dominance_rng, visits_rng, memory_rng = course_rng.spawn(3)
    healthy = _choose_healthy(n_people, people_rng, controls, resample)
    groups = label_groups(n_cn, n_pt, course.n_mci)
    severities = np.zeros((n_people, N_PATTERNS))
    severities[n_cn:] = sample_severities(n_people - n_cn, severity_rng)
    severities[groups == MCI] *= MCI_SEVERITY
    dominance = sample_dominance(n_people, N_PATTERNS, course.side_dominance, dominance_rng)
    disease = _Disease(TASKS[task], groups, dominance, noise_rng)
    volumes = disease.impose(healthy.volumes.to_numpy(), severities)
    simulated = _assemble(healthy, volumes, severities, disease)
    if course.visits > 1:
        simulated = _follow_up(simulated, healthy, severities, disease, visits_rng)
    if course.memory:
        memory = sample_memory(simulated.severities, memory_rng)
        simulated = replace(simulated, participants=simulated.participants.assign(memory=memory))
    return simulated


def _check_request(task: str, n_cn: int, n_pt: int, seed: int, n_people: int) -> None:
    if task not in TASKS:
        raise UsageError(f'unknown task {task!r}; choose one of {", ".join(TASKS)}')
    if min(n_cn, n_pt) < 1:
        raise UsageError(
            f'--n-cn {n_cn} --n-pt {n_pt}: at least one control and one patient are required'
        )
    if n_people > MOST_PEOPLE:
        raise UsageError(f'--n-cn {n_cn} --n-pt {n_pt}: at most {MOST_PEOPLE} participants')
    if seed < 0:
        raise UsageError(f'--seed {seed}: use 0 or a positive number')


def _choose_healthy(
    n_people: int, rng: np.random.Generator, controls: Controls | None, resample: str | None
) -> Controls:
    """Choose `n_people` different healthy participants in random order."""
    if controls is None:
        if resample is not None:
            raise UsageError('resampling needs a table of controls; give one')
        return sample_controls(n_people, rng)
    if resample is not None:
        return resample_gaussian(controls, n_people, rng)
    if n_people > len(controls.volumes):
        raise DataError(
            f'{n_people} participants requested, but the table of controls has '
            f'{len(controls.volumes)}; request fewer (--n-cn, --n-pt) or sample similar ones '
            '(--resample gaussian)'
        )
    chosen = rng.permutation(len(controls.volumes))[:n_people]
    return Controls(controls.volumes.iloc[chosen], controls.people.iloc[chosen])


@dataclass(frozen=True)
class _Disease:
    """The disease of each participant, which is the same at all visits but for its severity.

    `groups` has shape (N,), `dominance` (N, M); controls have no disease.
    """

    task: Task
    groups: NDArray[np.str_]
    dominance: Array
    noise_rng: np.random.Generator

    def impose(self, volumes: Array, severities: Array) -> Array:
        """Volumes (N, S) after the loss at these severities (N, M)."""
        ill = self.groups != CONTROL
        # A copy, so that the loss of a participant varies between regions alike at all visits.
        noise_rng = deepcopy(self.noise_rng)
        shrunk = volumes.copy()
        shrunk[ill] = impose_atrophy(
            volumes[ill], severities[ill], self.task, noise_rng, self.dominance[ill]
        )
        return shrunk


def _follow_up(
    first: SimulatedTable,
    healthy: Controls,
    severities: Array,
    disease: _Disease,
    rng: np.random.Generator,
) -> SimulatedTable:
    """Add the second visits, at which disease has progressed and everyone is older."""
    seen_again = choose_second_visits(disease.groups, rng)
    years = rng.uniform(*YEARS_BETWEEN, size=len(severities)).round(1)
    later = sample_progress(severities, disease.groups, years, rng)
    log_change_per_year = built_in_population().known[0] / 10
    older = healthy.volumes.to_numpy() * np.exp(years[:, None] * log_change_per_year)
    errors = np.exp(rng.normal(scale=RETEST_SD, size=older.shape))
    volumes = disease.impose(older, later) * errors
    people = healthy.people.assign(age=add_years(healthy.people['age'], years))
    second = _assemble(Controls(healthy.volumes, people), volumes, later, disease)
    return replace(
        first,
        volumes=join_visits(first.volumes, second.volumes.iloc[seen_again]),
        participants=join_visits(first.participants, second.participants.iloc[seen_again]),
        severities=join_visits(first.severities, second.severities.iloc[seen_again]),
    )


def _assemble(
    healthy: Controls, volumes: np.ndarray, severities: np.ndarray, disease: _Disease
) -> SimulatedTable:
    n_people = len(volumes)
    width = max(4, len(str(n_people)))
    names = pd.DataFrame({'participant_id': [f'sub-{k:0{width}}' for k in range(1, n_people + 1)]})
    people = healthy.people.reset_index(drop=True)
    people.insert(0, 'diagnosis', disease.groups)
    return SimulatedTable(
        volumes=names.join(pd.DataFrame(volumes, columns=healthy.volumes.columns)),
        participants=names.join(people),
        severities=names.join(pd.DataFrame(severities, columns=SEVERITY_COLUMNS)),
        patterns=pd.DataFrame(
            [(k, index) for k, regions in enumerate(disease.task.patterns, 1) for index in regions],
            columns=['pattern', 'index'],
        ),
    )


def write_simulated_table(folder: str | Path, simulated: SimulatedTable) -> list[Path]:
    """Write the tables, each with a JSON file of column descriptions.

    Parameters
    ----------
    folder
        Where ``participants``, ``roi_volumes``, ``severities`` and ``patterns`` go, as TSV and
        JSON. Each file appears whole or not at all.
    simulated
        The tables.

    Returns
    -------
    list of Path
        The TSV files.
    """
    tables = {
        'participants': simulated.participants,
        'roi_volumes': simulated.volumes,
        'severities': simulated.severities,
        'patterns': simulated.patterns,
    }
    written = []
    for name, table in tables.items():
        if name in DECIMALS:
            table = table.round(DECIMALS[name])
        written.append(write_tsv(Path(folder) / f'{name}.tsv', table))
        write_json(Path(folder) / f'{name}.json', table_columns(table))
    return written


def claim_folder(
    folder: Path, record_file: str | Path, record: Mapping[str, Any], *, overwrite: bool = False
) -> None:
    """Check that a folder may hold a simulation, and clean up an interrupted one.

    Parameters
    ----------
    folder
        Output folder.
    record_file
        File in the folder that identifies the simulation.
    record
        Everything that the simulation depends on.
    overwrite
        Whether another simulation may be replaced.

    Raises
    ------
    OutputError
        The folder contains another simulation or other files.
    """
    if folder.exists() and not folder.is_dir():
        raise OutputError(f'{folder}: this is a file; choose another output folder')
    path = folder / record_file
    if path.is_file() and not overwrite:
        _require_same(path, record)
    others = [each for each in folder.rglob('[!.]*') if each.is_file()]
    if others and not path.is_file() and not is_unfinished(path):
        raise OutputError(f'{folder}: contains other files; choose an empty or a new folder')
    for place in folder.glob('**/'):
        remove_leftovers(place / '*')


def _require_same(path: Path, record: Mapping[str, Any]) -> None:
    try:
        found = dict(json.loads(path.read_text(encoding='utf-8')))
    except (ValueError, RecursionError) as error:
        raise OutputError(f'{path}: not readable ({error}); choose another folder') from error
    different = [
        f'{name} {found.get(name)} (now {record.get(name)})'
        for name in {**record, **found}
        if record.get(name) != found.get(name)
    ]
    if different:
        raise OutputError(
            f'{path}: the folder contains another simulation ({", ".join(different)}); use the '
            'same arguments, choose another folder or, for a table, use --overwrite'
        )


def table_columns(table: pd.DataFrame) -> dict[str, Any]:
    """Describe each column of a simulated table for its BIDS sidecar."""
    names, known = region_names(), describe_columns('simulated_table')
    for column, index in recognise(table.columns).items():
        known |= describe_columns('simulated_region', column=column, region=names[index])
    for number in range(1, N_PATTERNS + 1):
        known |= describe_columns('simulated_severity', number=number)
    if 'diagnosis' in table and table['diagnosis'].eq(MCI).any():
        known |= describe_columns('simulated_mci')
    return {column: known[column] for column in table.columns}


MAP_VOXEL_MM = 4.0
"""Coarse maps keep a study of hundreds of participants small and fast."""

VARIATION_MM, VARIATION_SD = 8.0, 0.15
"""Smoothness and relative strength of the variation within regions."""


def simulate_ravens(volumes: pd.DataFrame, rng: np.random.Generator) -> Iterator[Image]:
    """Simulate the RAVENS map of grey matter of each participant.

    The template's grey matter varies smoothly, and each region is scaled to its volume. Where the
    template has no grey matter region, there is only the variation.

    Parameters
    ----------
    volumes
        One row per participant, columns ``MUSE_23`` to ``MUSE_207``, in mm3.
    rng
        Source of the variation.
    """
    template = builtin_template(MAP_VOXEL_MM)
    grey = np.asarray(template.priors['GM'].dataobj)
    labels = labels_at(load_labels(), template.t1w.affine, grey.shape)
    table = muse_table()
    regions = [i for i in table.loc[table['tissue'] == 'GM', 'index'] if (labels == i).any()]
    column = np.searchsorted(regions, labels)
    column[~np.isin(labels, regions)] = len(regions)
    for wanted in volumes[[f'MUSE_{index}' for index in regions]].to_numpy(dtype=float):
        noise = smooth(
            rng.standard_normal(grey.shape, dtype=np.float32), VARIATION_MM / MAP_VOXEL_MM
        )
        own = grey * np.exp(VARIATION_SD * noise / noise.std())
        present = np.bincount(column.ravel(), own.ravel()) * MAP_VOXEL_MM**3
        factors = np.ones(len(regions) + 1)
        factors[:-1] = wanted / present[:-1]
        yield like(template.t1w, own * factors[column], np.float32)
