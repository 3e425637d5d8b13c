"""Options of the BIDS App, in the groups in which its help shows them."""

from __future__ import annotations

import argparse
from pathlib import Path

from surreal_bids.config import BUILTIN_ATLAS, BUILTIN_TEMPLATE, CHOICES, AppConfig


def _default(name: str) -> str:
    """How help shows the default of an option."""
    value = AppConfig.__dataclass_fields__[name].default
    listed = ' '.join(map(str, value)) if isinstance(value, tuple) else value
    return f'(default: {listed})'


HYPER_PARAMETERS = {
    'gamma': 'weight of the change loss',
    'kappa': 'weight of the decomposition loss',
    'zeta': 'weight of the reconstruction loss',
    'mu': 'weight of the monotonicity loss',
    'eta': 'weight of the cn loss',
    'lr': 'learning rate',
}
"""Options that replace a value of the preset, by the names of the paper."""


def add_positionals(parser: argparse.ArgumentParser) -> None:
    """Add the three arguments that every BIDS App has."""
    parser.add_argument('bids_dir', type=Path, metavar='BIDS_DIR', help='root of a BIDS dataset')
    parser.add_argument(
        'output_dir',
        type=Path,
        metavar='OUTPUT_DIR',
        help='folder for the outputs: outside the dataset, or BIDS_DIR/derivatives/NAME',
    )
    parser.add_argument(
        'analysis_levels',
        nargs='+',
        choices=CHOICES['analysis_levels'],
        metavar='{participant,group}',
        help='what to run: each participant, the group, or both',
    )


def add_filters(parser: argparse.ArgumentParser) -> None:
    """Add options that select the data and the results to reuse."""
    group = parser.add_argument_group('Options for filtering the dataset')
    group.add_argument(
        '--participant-label',
        nargs='+',
        metavar='LABEL',
        help='participants to use, with or without "sub-"; all by default',
    )
    group.add_argument(
        '--session-label',
        '--session-id',
        nargs='+',
        metavar='LABEL',
        help='sessions to use, with or without "ses-"; all by default',
    )
    group.add_argument(
        '--bids-filter-file',
        type=Path,
        metavar='FILE',
        help='which T1w image to use where there are several: a JSON file as fMRIPrep takes it, '
        'such as {"t1w": {"acquisition": "mprage", "run": 2}}. A value may be a list, null (the '
        'entity is absent) or "*" (it is present). By default, the first image of each session',
    )
    group.add_argument(
        '--skip-bids-validation',
        action='store_true',
        help='do not read every image before the work starts, which finds those that are damaged, '
        'empty, constant, or the same as another',
    )
    group.add_argument(
        '-d',
        '--derivatives',
        nargs='+',
        action='extend',
        metavar='NAME=PATH',
        help='results of other programs to use. fmriprep=PATH or smriprep=PATH: T1w image, brain '
        'mask, tissues and transforms; any other NAME=PATH: a segmentation, used in place of our '
        'own: freesurfer or fastsurfer (a SUBJECTS_DIR), synthseg (*_synthseg.nii.gz), dlmuse, or '
        '*_dseg.nii.gz with a table of its labels; of several, the one whose desc- is NAME. '
        'Without NAME=, the folder shows what it is. What is missing is computed',
    )
    group.add_argument(
        '--derivatives-optional',
        action='store_true',
        help='continue where a folder of --derivatives has nothing for any of the images; by '
        'default that is an error',
    )
    group.add_argument(
        '--bids-database-dir',
        type=Path,
        metavar='DIR',
        help='folder to keep the index of the dataset in, which makes the next call faster; '
        'an index is used only while the dataset is unchanged',
    )


def add_anatomy(parser: argparse.ArgumentParser) -> None:
    """Add options of the participant level."""
    group = parser.add_argument_group('Options for the participant level')
    group.add_argument(
        '--segmentation',
        choices=CHOICES['segmentation'],
        help='how to find regions: with the built-in network (weights for research only, '
        'non-commercial), or by registering and fusing labelled brains; by default the network, '
        'unless --atlas is given',
    )
    group.add_argument(
        '--atlas',
        metavar='FOLDER',
        help=f'{BUILTIN_ATLAS}, the built-in atlas, or a folder of labelled brains: for each a '
        f'NAME_T1w.nii.gz and NAME_dseg.nii.gz, and dseg.tsv for all {_default("atlas")}',
    )
    group.add_argument(
        '--template',
        metavar='FOLDER',
        help=f'{BUILTIN_TEMPLATE}, the built-in template, or a folder with another: files '
        'tpl-NAME_T1w.nii.gz, tpl-NAME_desc-brain_mask.nii.gz and '
        f'tpl-NAME_label-{{GM,WM,CSF}}_probseg.nii.gz {_default("template")}',
    )
    group.add_argument(
        '--template-resolution',
        type=float,
        metavar='MM',
        help='voxel size of the built-in template, and so of RAVENS and group maps; 2 takes an '
        f'eighth of the time of 1 {_default("template_resolution")}',
    )


def add_cohort(parser: argparse.ArgumentParser) -> None:
    """Add options that say who is who, and what is done to volumes; of both commands."""
    group = parser.add_argument_group(
        'Options for controls and patients',
        'What is not named is guessed, and the guess is shown. Participants with other values are '
        'excluded.',
    )
    group.add_argument(
        '--id-column',
        metavar='NAME',
        help='column that names participants; by default participant_id, MRID, subject, PTID, ID '
        'and the like',
    )
    group.add_argument(
        '--group-column',
        metavar='NAME',
        help='column of the diagnosis; by default diagnosis, group or dx',
    )
    group.add_argument(
        '--control-label',
        nargs='+',
        metavar='VALUE',
        help='its value for controls; by default CN, control, HC and the like, 0 beside 1, or -1 '
        'beside 1',
    )
    group.add_argument(
        '--patient-label',
        nargs='+',
        metavar='VALUE',
        help='its value for patients; by default the only other one',
    )
    group.add_argument(
        '--no-guess',
        action='store_true',
        help='refuse to guess these three: all have to be named',
    )
    _add_preprocessing(parser)


def _add_preprocessing(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        'Options for volumes', 'Kept in the model, and done to whomever it is applied to.'
    )
    group.add_argument(
        '--features',
        metavar='{muse72,muse139,FILE}',
        help='muse139: the 139 single MUSE regions; muse72: left and right summed, as the authors '
        'do; or a text file with one column name per line. MUSE regions are found in all usual '
        'spellings (MUSE_47, DL_MUSE_Volume_47, 47, Right hippocampus). By default, the MUSE '
        'regions but ventricles; in other tables, all columns of numbers that neither describe '
        'participants nor sum other columns',
    )
    group.add_argument(
        '--covariates',
        nargs='+',
        metavar='NAME',
        help='columns whose effect, learned from controls, is removed; numbers act linearly, text '
        'as categories. By default age and sex, if they are known. "none": remove none',
    )
    group.add_argument(
        '--icv-column',
        metavar='NAME',
        help='column of the intracranial volume; by default icv, TIV, eTIV, DLICV, MUSE_702 and '
        'the like, or else the volume of the brain mask',
    )
    group.add_argument(
        '--icv',
        choices=CHOICES['icv'],
        help='what to do with it. power (default): remove head size and covariates by ratio, from '
        'logarithms of volumes and head size; covariate: remove its linear effect; proportion: '
        'divide all volumes by it; none: nothing',
    )
    group.add_argument(
        '--site-column',
        metavar='NAME',
        help='column of the site: harmonize with ComBat, which keeps the covariates; by default '
        'site or scanner, if there are several. "none": do not harmonize',
    )
    group.add_argument(
        '--combat-fit-on',
        choices=CHOICES['combat_fit_on'],
        help='participants from whom ComBat learns; "all" takes disease for a site effect where '
        f'sites differ in their share of patients {_default("combat_fit_on")}',
    )
    group.add_argument(
        '--impute',
        action='store_true',
        help='fill missing volumes with what a control of the same covariates and site would have; '
        'by default, who lacks one is excluded',
    )


def add_patterns(parser: argparse.ArgumentParser) -> None:
    """Add options of the group level: the model, and what is done with R-indices."""
    group = parser.add_argument_group('Options for the group level')
    group.add_argument(
        '--roi-table',
        type=Path,
        metavar='TSV',
        help='start from this table of volumes, not from the outputs of the participant level',
    )
    group.add_argument(
        '--model', type=Path, metavar='FOLDER', help='apply this model instead of training one'
    )
    group.add_argument(
        '--split-half',
        action='store_true',
        help='also train on two halves of the participants, to see whether patterns are found '
        'again',
    )
    group.add_argument(
        '--phenotype',
        type=Path,
        nargs='+',
        metavar='TSV',
        help='tables with participant_id and other measures, to associate with R-indices',
    )
    group.add_argument(
        '--map-tissues',
        nargs='*',
        choices=CHOICES['map_tissues'],
        metavar='{GM,WM,CSF}',
        help='tissues whose RAVENS maps are compared voxel by voxel; none of them if nothing '
        f'follows {_default("map_tissues")}',
    )
    group.add_argument(
        '--map-smoothing',
        type=float,
        metavar='MM',
        help='full width at half maximum of the smoothing of RAVENS maps before they are compared, '
        f'which makes up for what registration leaves apart {_default("map_smoothing")}',
    )
    group.add_argument(
        '--permutations',
        type=int,
        metavar='N',
        help='permutations for family-wise errors in these maps; 0: false discovery rate only '
        f'{_default("permutations")}',
    )


NUMBER_HELP = (
    'number of patterns; of several, the largest that is stable over resampled participants is '
    'chosen, or none if none is (other presets: that of best agreement; default: 1 to 6, or 2 3 4)'
)
ORTHO_HELP = (
    'weight of the orthogonality loss; of several, that of best agreement is chosen (default: 0.4; '
    'other presets: 0.1 0.2 0.4 0.6 0.8)'
)
REPETITIONS_HELP = (
    'members trained for each M and LAMBDA (default: as many as it takes until their consensus no '
    'longer changes, at most 20; other presets: 10)'
)
ITERATIONS_HELP = (
    'number of iterations: the most of the preset sparse (default: 2000), the least of others '
    '(default: 20000 for robust, else 100000)'
)
PRESET_HELP = (
    'sparse: members start from sparse linear factors and need minutes (default); iclr2022: as in '
    'the paper; correlated: as the program of the authors, whose R-indices may correlate; robust: '
    'random starts that train more steadily than in the paper'
)
"""Help of the options of training, the same for every command."""


def add_training(parser: argparse.ArgumentParser) -> None:
    """Add options of training, of both commands."""
    group = parser.add_argument_group('Options for training')
    group.add_argument(
        '--n-patterns',
        type=int,
        nargs='+',
        metavar='M',
        help=NUMBER_HELP,
    )
    group.add_argument(
        '--ortho',
        type=float,
        nargs='+',
        metavar='LAMBDA',
        help=ORTHO_HELP,
    )
    group.add_argument(
        '--repetitions',
        type=int,
        metavar='N',
        help=REPETITIONS_HELP,
    )
    group.add_argument(
        '--iterations',
        type=int,
        metavar='N',
        help=ITERATIONS_HELP,
    )
    group.add_argument(
        '--preset',
        choices=CHOICES['preset'],
        help=PRESET_HELP,
    )
    group.add_argument(
        '--folds',
        type=int,
        metavar='N',
        help='train again without each of N parts of the participants, so that R-indices are by '
        'models that have not seen the participant; this takes one to two times as long as the '
        'final model. 0: by the final model only, to which controls look healthier than they are '
        f'{_default("folds")}',
    )
    group.add_argument(
        '--device',
        choices=CHOICES['device'],
        help=f'where registration and training run {_default("device")}',
    )
    group.add_argument(
        '--random-seed',
        type=int,
        metavar='N',
        help=f'seed of all random numbers {_default("random_seed")}',
    )
    for name, meaning in HYPER_PARAMETERS.items():
        group.add_argument(
            f'--{name}', type=float, metavar='X', help=f'{meaning} (default: that of the preset)'
        )
    group.add_argument(
        '--batch-size',
        type=int,
        metavar='N',
        help='participants of each group in a batch (default: an eighth of the patients, at least '
        '8)',
    )


def add_resources(parser: argparse.ArgumentParser) -> None:
    """Add options for the resources that may be used."""
    group = parser.add_argument_group('Options for performance')
    group.add_argument(
        '-w',
        '--work-dir',
        type=Path,
        metavar='DIR',
        help=f'folder for intermediate results, kept for the next call {_default("work_dir")}',
    )
    group.add_argument(
        '--nprocs', '--n-cpus', type=int, metavar='N', help='processes (default: all cores)'
    )
    group.add_argument(
        '--omp-nthreads',
        type=int,
        metavar='N',
        help='threads of each process; several processes of one thread are faster '
        f'{_default("omp_nthreads")}',
    )
    group.add_argument(
        '--mem-gb', type=float, metavar='GB', help='memory to use (default: 90 %% of what there is)'
    )
    group.add_argument(
        '--use-plugin',
        type=Path,
        metavar='FILE',
        help='YAML file with the Nipype plugin to run with, and its plugin_args',
    )


def add_running(parser: argparse.ArgumentParser) -> None:
    """Add options that say how to run, and what to write beside the results."""
    group = parser.add_argument_group('Options for running')
    group.add_argument(
        '--config-file',
        type=Path,
        metavar='FILE',
        help='TOML file of options, named as here with underscores; the command line wins',
    )
    switches = {
        '--stop-on-first-crash': 'stop when a participant fails; by default, the others continue',
        '--clean-on-success': 'delete the intermediate results of participants who succeeded',
        '--dry-run': 'check the dataset, every image and the files that options name; show what '
        'would be done, how long images would take and where outputs would go; write nothing but '
        'the index that --bids-database-dir asks for',
        '--reports-only': 'only write the reports again, from existing outputs',
        '--write-graph': 'draw the workflow of an image into logs/',
        '--resource-monitor': 'record time and memory of each step (needs psutil)',
    }
    for option, meaning in switches.items():
        group.add_argument(option, action='store_true', help=meaning)


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add options that write jobs for a cluster."""
    group = parser.add_argument_group('Options for clusters')
    group.add_argument(
        '--write-slurm',
        type=Path,
        metavar='DIR',
        help='write jobs for Slurm to this folder instead of running: an array of participants, '
        'the group level after it, and submit.sh, which submits both',
    )
    group.add_argument(
        '--slurm-partition', metavar='NAME', help='their partition (default: that of the cluster)'
    )
    group.add_argument(
        '--slurm-time',
        metavar='TIME',
        help='time limit of each job, as 04:00:00 (default: three times what --dry-run estimates)',
    )
    group.add_argument(
        '--slurm-memory',
        type=int,
        metavar='GB',
        help='memory of each job (default: what --dry-run estimates)',
    )
    group.add_argument(
        '--slurm-container',
        type=Path,
        metavar='SIF',
        help='Apptainer image to run the jobs in (default: the program that writes them)',
    )
