"""Options of a run: defined once here, offered on the command line, stored as TOML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING as REQUIRED
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from surreal_bids.exceptions import UsageError

NETWORK = 'network'
"""Segmentation by the built-in network; also its label in the names of outputs."""

ARGUMENTS = 'Arguments'
FILTERS = 'Options for filtering the dataset'
ANATOMY = 'Options for the participant level'
GROUPS = 'Options for controls and patients'
VOLUMES = 'Options for volumes'
PATTERNS = 'Options for the group level'
TRAINING = 'Options for training'
RESOURCES = 'Options for performance'
RUNNING = 'Options for running'

SECTIONS: Mapping[str, str | None] = {
    **dict.fromkeys((FILTERS, ANATOMY)),
    GROUPS: 'Columns and labels that are not given are inferred and reported. Participants with '
    'other values in the group column are scored by the final model and do not train it.',
    VOLUMES: 'These settings are stored in the model and applied to new data.',
    **dict.fromkeys((PATTERNS, TRAINING, RESOURCES, RUNNING)),
}
"""Sections of the help, in order, with their introductions."""


@dataclass(frozen=True)
class Option:
    """What the command line needs to know about an option beside its name, type and default.

    Attributes
    ----------
    help
        Help text, without the default where that is one value.
    section
        Section of the help; None: that of the option before.
    metavar
        Name of the value in the help; None: one that suits its type.
    choices
        Allowed words.
    minimum, maximum
        Smallest and largest allowed number.
    aliases
        Other names on the command line.
    nargs
        How argparse collects the values of a list.
    """

    help: str
    section: str | None = None
    metavar: str | None = None
    choices: tuple[str, ...] | None = None
    minimum: float | None = None
    maximum: float = 2**31 - 1
    aliases: tuple[str, ...] = ()
    nargs: str = '+'


def option(text: str, default: Any = None, **details: Any) -> Any:
    """Define an option as the field of a dataclass; `details` are those of :class:`Option`."""
    return field(default=default, metadata={'option': Option(text, **details)})


def several(text: str, **details: Any) -> Any:
    """Define an option that takes a list of values."""
    return option(text, (), **details)


def switch(text: str, **details: Any) -> Any:
    """Define an option that is either on or off."""
    return option(text, False, **details)


def options_of(kind: Any) -> dict[str, Option]:
    """Collect the options of a configuration class by name, each with its section."""
    found: dict[str, Option] = {}
    section = ARGUMENTS
    for each in fields(kind):
        section = each.metadata['option'].section or section
        found[each.name] = replace(each.metadata['option'], section=section)
    return found


@dataclass(frozen=True, kw_only=True)
class CohortOptions:
    """Options that define the cohort and the preprocessing of volumes."""

    participant_label: tuple[str, ...] = several(
        'participants to process, with or without "sub-" (default: all)',
        section=FILTERS,
        metavar='LABEL',
        aliases=('--participant-labels',),
    )
    session_label: tuple[str, ...] = several(
        'sessions to process, with or without "ses-" (default: all)',
        metavar='LABEL',
        aliases=('--session-id', '--session-labels'),
    )
    id_column: str | None = option(
        'column with the participant IDs (default: a common name, such as participant_id, MRID, '
        'subject, PTID or ID)',
        section=GROUPS,
    )
    group_column: str | None = option('column with the diagnosis (default: diagnosis, group or dx)')
    control_label: tuple[str, ...] = several(
        'values of the group column that mark controls (default: CN, control, HC or similar; the '
        'lower value if the column is coded 0 and 1, or -1 and 1)',
        metavar='VALUE',
    )
    patient_label: tuple[str, ...] = several(
        'values of the group column that mark patients (default: the only other value)',
        metavar='VALUE',
    )
    exclude: Path | None = option(
        'table of participants to exclude, such as those who failed quality control, with '
        'participant_id and, if needed, session_id (a row without it excludes all visits), reason '
        'and rating (pass, unsure or fail; only fail excludes), as participant reports save it',
        metavar='TSV',
    )
    features: str | None = option(
        'regions used by the model: muse139 (the 139 single MUSE regions), muse72 (left and right '
        'summed, as in the original implementation), or a text file with one column name per '
        'line. MUSE regions are recognised under their common names (MUSE_47, DL_MUSE_Volume_47, '
        '47, Right hippocampus). Default: the MUSE regions without the ventricles; in tables '
        'without MUSE regions, all columns that behave like volumes of regions; the summary lists '
        'what each column was taken for',
        section=VOLUMES,
        metavar='{muse72,muse139,FILE}',
    )
    covariates: tuple[str, ...] = several(
        'columns whose effect is estimated in controls and removed. Numbers are modelled '
        'linearly, text as categories. "none" removes no effect (default: age and sex, if '
        'available)'
    )
    icv_column: str | None = option(
        'column with the intracranial volume (default: a common name, such as icv, TIV, eTIV, '
        'DLICV or MUSE_702)'
    )
    icv: str | None = option(
        'correction for head size. power: allometric (log-log) model fitted in controls, which '
        'also removes the covariates; covariate: remove the linear effect; proportion: divide '
        'all volumes by the intracranial volume; none: no correction (default: power)',
        choices=('power', 'covariate', 'proportion', 'none'),
    )
    site_column: str | None = option(
        'column with the site. ComBat removes site effects and keeps covariate effects. "none" '
        'skips harmonization (default: a column called like a site or scanner, if it has several '
        'values)'
    )
    impute: bool = switch(
        'replace missing volumes with those expected for a control with the same covariates and '
        'site (default: exclude participants with missing volumes)'
    )
    phenotype: tuple[Path, ...] = several(
        'tables with participant_id and other measures to test for association with R-indices',
        section=PATTERNS,
        metavar='TSV',
    )


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options that define how a model is trained, with the defaults of every command."""

    n_patterns: tuple[int, ...] = several(
        'number of patterns. From several values, the largest number that is stable across '
        'resampled participants is chosen, or none if no number is stable; presets other than '
        'sparse choose the number with the best agreement (default: 1 to 6; other presets: 2 3 4)',
        section=TRAINING,
        metavar='M',
        minimum=1,
    )
    ortho: tuple[float, ...] = several(
        'weight of the orthogonality loss. From several values, the one with the best agreement '
        'is chosen (default: 0.4; other presets: 0.1 0.2 0.4 0.6 0.8)',
        metavar='LAMBDA',
        minimum=0,
    )
    repetitions: int | None = option(
        'number of ensemble members trained for each M and LAMBDA (default: until their consensus '
        'no longer changes, at most 20; other presets: 10)',
        minimum=1,
        maximum=10_000,
    )
    iterations: int | None = option(
        'number of training iterations: the maximum for the preset sparse (default: 2000), the '
        'minimum for other presets (default: 100000)',
        minimum=1,
    )
    preset: str = option(
        'training procedure. sparse: members start from linear factors and train in '
        'minutes; iclr2022: as in the paper; correlated: as in the original implementation, whose '
        'R-indices may correlate',
        'sparse',
        choices=('sparse', 'iclr2022', 'correlated'),
    )
    folds: int = option(
        'number of cross-fitting folds; R-indices are computed out of fold. Cross-fitting takes '
        'one to two times as long as training the final model. With 0, R-indices are computed by '
        'the model trained on the same participants and overestimate group differences',
        5,
        minimum=0,
    )
    device: str = option(
        'device used for computations: auto uses CUDA if available; mps (Apple, not tried yet) '
        'only trains models, and images are processed on the CPU',
        'auto',
        choices=('auto', 'cpu', 'cuda', 'mps'),
    )
    random_seed: int = option('seed of all random numbers', 0, minimum=0)


@dataclass(frozen=True)
class AppConfig(CohortOptions, TrainingOptions):
    """All options of the BIDS App, named as on its command line."""

    bids_dir: Path = option(
        'root folder of a BIDS dataset', REQUIRED, section=ARGUMENTS, metavar='BIDS_DIR'
    )
    output_dir: Path = option(
        'output folder: outside the dataset, or BIDS_DIR/derivatives/NAME',
        REQUIRED,
        metavar='OUTPUT_DIR',
    )
    analysis_levels: tuple[str, ...] = option(
        'level of analysis: participant (process images), group (find patterns), or both',
        REQUIRED,
        choices=('participant', 'group'),
    )
    bids_filter_file: Path | None = option(
        'JSON file that selects T1w images, in the format of fMRIPrep, such as {"t1w": '
        '{"acquisition": "mprage", "run": 2}}. A value may be a list, null (the entity is absent) '
        'or "*" (the entity is present). If several images match, the first one of each session '
        'is used',
        section=FILTERS,
    )
    skip_bids_validation: bool = switch(
        'do not read all images before processing starts. This check finds images that are '
        'damaged, empty, constant or duplicated'
    )
    derivatives: tuple[str, ...] = several(
        'results of other programs to reuse. fmriprep=PATH or smriprep=PATH: T1w image, brain '
        'mask, tissue maps and transforms. lesions=PATH: lesion masks (*_label-lesion_mask.nii.gz '
        'or *_label-lesion_roi.nii.gz). Any other NAME=PATH: a segmentation that replaces the '
        'built-in one, namely freesurfer or fastsurfer (a SUBJECTS_DIR), synthseg '
        '(*_synthseg.nii.gz), dlmuse, or *_dseg.nii.gz with a table of labels (from several, the '
        'one with desc-NAME). Without NAME=, the kind of folder is detected. Missing results are '
        'computed',
        metavar='NAME=PATH',
        aliases=('-d',),
    )
    segmentation: str = option(
        f'{NETWORK}, the built-in network (weights for non-commercial research only), or a folder '
        'of labelled brains to register and fuse: NAME_T1w.nii.gz and NAME_dseg.nii.gz for each '
        'brain, and one dseg.tsv',
        NETWORK,
        section=ANATOMY,
        metavar=f'{{{NETWORK},FOLDER}}',
    )
    template_resolution: float = option(
        'voxel size of the template MNI152NLin2009cAsym, of RAVENS maps and of group maps, 0.5 to '
        '4 mm. Registration at 2 mm takes an eighth of the time needed at 1 mm',
        1.0,
        metavar='MM',
        minimum=0.5,
        maximum=4,
    )
    roi_table: Path | None = option(
        'table of regional volumes to use instead of the outputs of the participant level',
        section=PATTERNS,
        metavar='TSV',
    )
    model: Path | None = option(
        'apply this model instead of training one: a folder, or a published model (ad or ageing)',
        metavar='MODEL',
    )
    map_tissues: tuple[str, ...] = option(
        'tissues whose RAVENS maps are analysed voxelwise. Without a value, there are no maps',
        ('GM',),
        choices=('GM', 'WM', 'CSF'),
        nargs='*',
    )
    map_smoothing: float = option(
        'full width at half maximum of the smoothing of RAVENS maps, which compensates for '
        'residual misregistration',
        8.0,
        metavar='MM',
        minimum=0,
        maximum=100,
    )
    deviation_maps: bool = switch(
        'also write a map of z-scores of each visit relative to the controls, from the same RAVENS '
        'maps (about 3 MB each at 1 mm). At least 20 controls are needed'
    )
    permutations: int = option(
        'number of permutations for the family-wise error rate in these maps. With 0, only the '
        'false discovery rate is controlled',
        0,
        minimum=0,
        maximum=1_000_000,
    )
    work_dir: Path = option(
        'folder for intermediate results, which the next run reuses',
        Path('work'),
        section=RESOURCES,
        metavar='DIR',
        aliases=('-w',),
    )
    nprocs: int | None = option(
        'number of parallel processes (default: all cores)',
        minimum=1,
        maximum=4096,
        aliases=('--n-cpus', '--nthreads', '--ncpus', '--n-procs'),
    )
    omp_nthreads: int = option(
        'number of threads per process. More processes are faster than more threads',
        1,
        minimum=1,
        maximum=4096,
    )
    mem_gb: float | None = option(
        'maximum memory (default: 90 % of the memory of the machine)', metavar='GB', minimum=1
    )
    use_plugin: Path | None = option(
        'YAML file with a Nipype plugin (MultiProc, Linear, SLURM, SGE, PBS or LSF) and its '
        'plugin_args',
        aliases=('--nipype-plugin-file',),
    )
    clean_on_success: bool = switch(
        'delete the intermediate results of participants without errors', section=RUNNING
    )
    dry_run: bool = switch(
        'check the dataset, every image and the files given with options; show the planned steps '
        'and the estimated time. Writes nothing'
    )
    reports_only: bool = switch('only write the reports again, from existing outputs')


def training_options(config: TrainingOptions) -> TrainingOptions:
    """Extract the training options, without duplicate values of M and lambda."""
    values = {each.name: getattr(config, each.name) for each in fields(TrainingOptions)}
    once = {name: tuple(dict.fromkeys(values[name])) for name in ('n_patterns', 'ortho')}
    return TrainingOptions(**values | once)


def flag_of(name: str) -> str:
    """Spell a field as on the command line: `--n-patterns` for `n_patterns`."""
    return '--' + name.replace('_', '-')


def uses_network(config: AppConfig) -> bool:
    """Tell whether the network segments the images."""
    return config.segmentation == NETWORK


Options = TypeVar('Options', CohortOptions, TrainingOptions, AppConfig)


def check_config(config: Options) -> Options:
    """Check words, numbers and required lists; raise a :class:`UsageError` for the first error."""
    for each in fields(config):
        value, about = getattr(config, each.name), each.metadata['option']
        if each.default is REQUIRED and value == ():
            raise UsageError(f'{flag_of(each.name)}: expected at least one value')
        for one in value if isinstance(value, tuple) else (value,):
            if one is not None and (problem := _problem(one, about)):
                raise UsageError(f'{flag_of(each.name)} {one}: expected {problem}')
    return config


def _problem(value: Any, about: Option) -> str | None:
    """Describe the values that an option expects, unless this is one of them."""
    if about.choices and value not in about.choices:
        return ', '.join(about.choices)
    if about.minimum is None:
        return text_problem(str(value))
    if not value >= about.minimum:
        return f'{about.minimum:g} or more'
    return f'{about.maximum:g} or less' if value > about.maximum else None


def text_problem(text: str) -> str | None:
    """Describe the text that an option expects, unless this is one."""
    return 'text that is not empty' if not text.strip() or '\0' in text else None
