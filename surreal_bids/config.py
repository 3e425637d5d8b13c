"""What a run of the BIDS App was asked to do: one frozen object that goes to TOML and back."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from surreal_bids.exceptions import UsageError
from surreal_bids.files import write_text

BUILTIN_ATLAS = 'muse'
BUILTIN_TEMPLATE = 'MNI152NLin2009cAsym'

NETWORK = 'network'
"""Regions by the built-in network; also their name in the names of outputs."""

CHOICES: Mapping[str, tuple[str, ...]] = {
    'analysis_levels': ('participant', 'group'),
    'segmentation': (NETWORK, 'multi-atlas'),
    'icv': ('power', 'covariate', 'proportion', 'none'),
    'preset': ('sparse', 'iclr2022', 'correlated', 'robust'),
    'map_tissues': ('GM', 'WM', 'CSF'),
    'device': ('auto', 'cpu', 'cuda'),
    'combat_fit_on': ('controls', 'all'),
}
"""Options that take one of a few words."""

LEAST: Mapping[str, float] = {
    'nprocs': 1,
    'omp_nthreads': 1,
    'mem_gb': 1,
    'slurm_memory': 1,
    'random_seed': 0,
    'template_resolution': 0.5,
    'n_patterns': 1,
    'ortho': 0,
    'repetitions': 1,
    'iterations': 1,
    'folds': 0,
    'map_smoothing': 0,
    'permutations': 0,
    'gamma': 0,
    'kappa': 0,
    'zeta': 0,
    'mu': 0,
    'eta': 0,
    'lr': 1e-9,
    'batch_size': 1,
}
"""The smallest value that each number may have."""

NOT_EMPTY = ('analysis_levels',)
"""Lists that need at least one value."""

EXPECTED: Mapping[type, str] = {str: 'text', Path: 'text', int: 'whole number', float: 'number'}


@dataclass(frozen=True, kw_only=True)
class CohortOptions:
    """Who is in a cohort, and what is done to volumes; named as on the command line.

    Attributes
    ----------
    id_column
        Column that names participants; by default one of the usual names.
    participant_label, session_label
        Labels without `sub-` and `ses-`; all where empty.
    group_column, control_label, patient_label
        Column of the diagnosis, and its values for the two groups.
    no_guess
        Refuse to guess these three.
    features
        `muse72`, `muse139`, or a text file with one column name per line; None: all regions.
    covariates
        Columns whose effect is removed; empty: age and sex, where known. `none`: none.
    icv_column, icv
        Column of the intracranial volume (None: one of the usual names), and what to do with it
        (None: `power`, removed by ratio: log volumes on log ICV).
    site_column
        Column of the site, whose effect ComBat removes; None: site or scanner. `none`: none.
    combat_fit_on
        Participants from whom ComBat learns: `controls` or `all`.
    impute
        Fill missing volumes instead of excluding participants who lack some.
    phenotype
        Tables of other measures, to associate with R-indices.
    """

    id_column: str | None = None
    participant_label: tuple[str, ...] = ()
    session_label: tuple[str, ...] = ()
    group_column: str | None = None
    control_label: tuple[str, ...] = ()
    patient_label: tuple[str, ...] = ()
    no_guess: bool = False
    features: str | None = None
    covariates: tuple[str, ...] = ()
    icv_column: str | None = None
    icv: str | None = None
    site_column: str | None = None
    combat_fit_on: str = 'controls'
    impute: bool = False
    phenotype: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How a model is trained: the defaults of every command.

    Attributes
    ----------
    n_patterns, ortho
        M and lambda to choose from; empty: as the preset has them.
    repetitions
        Members trained for each M and lambda; None: as the preset has them, which is as many as it
        takes with `sparse`.
    iterations
        Number of iterations, the most with `sparse`, the least with others; None: the preset's.
    preset
        How members start and are trained: `sparse`, `iclr2022`, `correlated` or `robust`.
    folds
        Parts of the participants that are held out in turn, so that R-indices are by models that
        were not trained on the participant; 0: none.
    device
        Where torch works.
    random_seed
        Seed of all random numbers.
    gamma, kappa, zeta, mu, eta, lr, batch_size
        Hyper-parameters that replace those of the preset.
    """

    n_patterns: tuple[int, ...] = ()
    ortho: tuple[float, ...] = ()
    repetitions: int | None = None
    iterations: int | None = None
    preset: str = 'sparse'
    folds: int = 5
    device: str = 'auto'
    random_seed: int = 0
    gamma: float | None = None
    kappa: float | None = None
    zeta: float | None = None
    mu: float | None = None
    eta: float | None = None
    lr: float | None = None
    batch_size: int | None = None


@dataclass(frozen=True)
class AppConfig(CohortOptions, TrainingOptions):
    """Options of the BIDS App, named as on its command line; those of the bases beside.

    Attributes
    ----------
    bids_dir, output_dir
        The dataset, and where outputs go.
    analysis_levels
        `participant`, `group`, or both.
    bids_filter_file
        Which T1w images count, in fMRIPrep's format.
    skip_bids_validation
        Do not read every image to its end before the long work starts.
    bids_database_dir
        Where the index of the dataset is kept between runs.
    derivatives
        Results of other programs to use, each `NAME=PATH`, or a path; see
        :func:`surreal_bids.bids.programs.derivative_folders`.
    derivatives_optional
        Continue where one of them has nothing for any image.
    segmentation
        `network` or `multi-atlas`; see :func:`uses_network` for where it is not set.
    atlas
        `muse`, the built-in atlas, or a folder of labelled brains.
    template
        `MNI152NLin2009cAsym`, the built-in template, or a folder with another.
    template_resolution
        Voxel size in mm of the built-in template, and so of RAVENS and group maps.
    roi_table
        Start the group level from this table instead of the outputs of the participant level.
    model
        Apply this model instead of training one.
    split_half
        Also train on two halves of the participants, to see whether patterns are found again.
    map_tissues
        Tissues whose RAVENS maps go into voxelwise maps of the R-indices.
    map_smoothing
        Full width at half maximum in mm of the smoothing of RAVENS maps before they are compared.
    permutations
        Permutations for family-wise errors in these maps; 0: none.
    work_dir
        Where intermediate results are kept.
    nprocs, omp_nthreads, mem_gb
        Processes, threads of each, and memory. None: all that this machine has.
    use_plugin
        Nipype plugin to run with, a YAML file.
    stop_on_first_crash, clean_on_success
        Stop at the first participant who fails; delete intermediate results of those who do not.
    dry_run
        Check everything and write nothing.
    reports_only
        Only write reports, from outputs that exist.
    write_graph, resource_monitor
        Draw the workflow; record memory and time of each step.
    write_slurm
        Folder to write jobs for Slurm to, instead of running.
    slurm_partition, slurm_time, slurm_memory, slurm_container
        Partition, time limit, memory in GB and container of these jobs.
    """

    bids_dir: Path
    output_dir: Path
    analysis_levels: tuple[str, ...]
    bids_filter_file: Path | None = None
    skip_bids_validation: bool = False
    bids_database_dir: Path | None = None
    derivatives: tuple[str, ...] = ()
    derivatives_optional: bool = False
    segmentation: str | None = None
    atlas: str = BUILTIN_ATLAS
    template: str = BUILTIN_TEMPLATE
    template_resolution: float = 1.0
    roi_table: Path | None = None
    model: Path | None = None
    split_half: bool = False
    map_tissues: tuple[str, ...] = ('GM',)
    map_smoothing: float = 8.0
    permutations: int = 0
    work_dir: Path = Path('work')
    nprocs: int | None = None
    omp_nthreads: int = 1
    mem_gb: float | None = None
    use_plugin: Path | None = None
    stop_on_first_crash: bool = False
    clean_on_success: bool = False
    dry_run: bool = False
    reports_only: bool = False
    write_graph: bool = False
    resource_monitor: bool = False
    write_slurm: Path | None = None
    slurm_partition: str | None = None
    slurm_time: str | None = None
    slurm_memory: int | None = None
    slurm_container: Path | None = None


def training_options(config: TrainingOptions) -> TrainingOptions:
    """The options of training alone, each M and lambda once."""
    values = {field.name: getattr(config, field.name) for field in fields(TrainingOptions)}
    once = {name: tuple(dict.fromkeys(values[name])) for name in ('n_patterns', 'ortho')}
    return TrainingOptions(**values | once)


def option_of(name: str) -> str:
    """Spell a field as on the command line: `--n-patterns` for `n_patterns`."""
    return '--' + name.replace('_', '-')


def uses_network(config: AppConfig) -> bool:
    """Whether the network finds the regions: by default, unless atlases are given.

    Raises
    ------
    UsageError
        If the network is asked for together with atlases, which it does not use.
    """
    atlases = config.atlas != BUILTIN_ATLAS
    if atlases and config.segmentation == NETWORK:
        raise UsageError(
            f'--segmentation {NETWORK} uses no atlas; leave out --atlas, or choose '
            '--segmentation multi-atlas'
        )
    return config.segmentation == NETWORK or (config.segmentation is None and not atlases)


Options = TypeVar('Options', CohortOptions, TrainingOptions, AppConfig)


def check_config(config: Options) -> Options:
    """Check words, numbers and pairs of options; raise a :class:`UsageError` for the first bad."""
    for name, allowed in CHOICES.items():
        for value in _values(config, name):
            if value not in allowed:
                raise UsageError(f'{option_of(name)} {value}; expected {", ".join(allowed)}')
    for name, least in LEAST.items():
        for value in _values(config, name):
            if not (math.isfinite(value) and value >= least):
                raise UsageError(f'{option_of(name)} {value}; expected {least:g} or more')
    for name in NOT_EMPTY:
        if not getattr(config, name, True):
            raise UsageError(f'{option_of(name)}: expected at least one value')
    return config


def _values(config: CohortOptions | TrainingOptions, name: str) -> tuple[Any, ...]:
    """Values of an option: none, one, or those of a list."""
    value = getattr(config, name, None)
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (value,)


def config_to_toml(config: AppConfig) -> str:
    """Write a configuration as TOML; options that are not set are omitted."""
    values = {name: getattr(config, name) for name in _option_types()}
    lines = [f'{name} = {_to_toml(value)}' for name, value in values.items() if value is not None]
    return '\n'.join(lines) + '\n'


def _to_toml(value: Any) -> str:
    if isinstance(value, bool):
        return 'true' if value else 'false'
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple):
        return f'[{", ".join(map(_to_toml, value))}]'
    # A JSON string is a TOML string, but for DEL, which TOML wants escaped.
    return json.dumps(str(value), ensure_ascii=False).replace('\x7f', '\\u007f')


def _option_types() -> dict[str, Any]:
    """Type of each option; those that only the BIDS App has come first."""
    types = get_type_hints(AppConfig)
    return {name: types[name] for name in (*AppConfig.__annotations__, *types)}


def write_config(path: Path, config: AppConfig) -> Path:
    """Write a configuration to a TOML file."""
    return write_text(path, config_to_toml(config))


def read_options(path: Path) -> dict[str, Any]:
    """Read options from a TOML file, with the types that :class:`AppConfig` has.

    The file need not hold all of them: those of the command line are added, and win.
    """
    try:
        content = tomllib.loads(path.read_text(encoding='utf-8'))
    except (OSError, ValueError) as error:
        raise UsageError(f'--config-file {path}: cannot be read as TOML ({error})') from error
    types = _option_types()
    unknown = [name for name in content if name not in types]
    if unknown:
        raise UsageError(
            f'--config-file {path}: unknown option {", ".join(unknown)}; '
            f'there are: {", ".join(types)}'
        )
    return {name: _typed(name, value, types[name], path) for name, value in content.items()}


def _typed(name: str, value: Any, kind: Any, path: Path) -> Any:
    """Give a value of TOML the type of its field: a switch, a text, a path, a number, or a list."""
    wanted = next((option for option in get_args(kind) if option is not NoneType), kind)
    if get_origin(kind) is tuple:
        value = value if isinstance(value, list) else [value]
        expected = f'a list of {EXPECTED[wanted]}s'
        fits = isinstance(value, list) and all(_fits(item, wanted) for item in value)
    else:
        expected = 'true or false' if kind is bool else f'a {EXPECTED[wanted]}'
        fits = _fits(value, wanted)
    if not fits:
        raise UsageError(f'--config-file {path}: {name} = {value!r}; expected {expected}')
    return tuple(map(wanted, value)) if get_origin(kind) is tuple else wanted(value)


def _fits(value: Any, kind: type) -> bool:
    """Tell whether a value of TOML can become one of the type; a switch is not a number."""
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, str if kind is Path else kind)


def make_config(given: Mapping[str, Any], config_file: Path | None = None) -> AppConfig:
    """Put a configuration together: options that were given, over those of a file; and check it."""
    options = {**(read_options(config_file) if config_file else {}), **given}
    return check_config(AppConfig(**options))
