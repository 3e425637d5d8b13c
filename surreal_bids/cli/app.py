"""The BIDS App, `surreal-bids`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence

from surreal_bids.bids.layout import read_description
from surreal_bids.bids.reuse import segmentation_label
from surreal_bids.bids.survey import Survey, check_output_folder, survey_dataset
from surreal_bids.cli import options
from surreal_bids.cli.dry_run import summarise
from surreal_bids.cli.main import add_common_options, run_command, set_up_logging
from surreal_bids.cli.plan import failure_table
from surreal_bids.cli.slurm import write_slurm
from surreal_bids.config import AppConfig, make_config
from surreal_bids.files import sole_use


def parse_arguments(arguments: Sequence[str]) -> tuple[AppConfig, int]:
    """Turn a command line into a configuration, and tell how much to say on the way.

    Options that are not given are not in the namespace, so that those of `--config-file` count.
    """
    given = vars(build_parser().parse_args(with_hyphens(arguments)))
    verbosity = given.pop('verbosity')
    config_file = given.pop('config_file', None)
    given = {n: tuple(value) if isinstance(value, list) else value for n, value in given.items()}
    return make_config(given, config_file), verbosity


def with_hyphens(arguments: Iterable[str]) -> list[str]:
    """Spell options with hyphens: BIDS Apps of old have `--participant_label`."""
    return [_with_hyphens(argument) for argument in arguments]


def _with_hyphens(argument: str) -> str:
    if not argument.startswith('--'):
        return argument
    option, equals, value = argument.partition('=')
    return option.replace('_', '-') + equals + value


def build_parser() -> argparse.ArgumentParser:
    """Build the parser, options grouped as users of fMRIPrep know them."""
    parser = argparse.ArgumentParser(
        prog='surreal-bids',
        description='R-indices of disease-related brain patterns from T1-weighted MRI: a BIDS App. '
        'The participant level makes ROI volumes and RAVENS maps of each T1w image, the group '
        'level finds the patterns. Repeat a command to go on where it stopped.',
        epilog='Exit codes: 0 all is well; 1 some participants failed, each named; 2 wrong '
        'usage; 16 not a BIDS dataset; 18 nothing matches the filters; 65 bad data; 73 the output '
        'cannot be written.',
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    for add in (
        options.add_positionals,
        options.add_filters,
        options.add_anatomy,
        options.add_groups,
        options.add_patterns,
        options.add_resources,
        options.add_running,
        options.add_cluster,
        add_common_options,
    ):
        add(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command(run, sys.argv[1:] if arguments is None else arguments)


def run(arguments: Sequence[str]) -> int:
    """Do what the command line asks for; 1 if some participants have problems."""
    config, verbosity = parse_arguments(arguments)
    set_up_logging(verbosity)
    segmentation_label(config)
    if config.roi_table is not None and config.analysis_levels == ('group',):
        read_description(config.bids_dir)
        check_output_folder(config.bids_dir, config.output_dir)
        return _write_slurm(config, None) if config.write_slurm else _run_group(config, ())
    survey = survey_dataset(config)
    if config.dry_run:
        sys.stdout.write(summarise(config, survey))
        return 1 if survey.problems else 0
    if config.write_slurm:
        return _write_slurm(config, survey)
    code = 0
    if 'participant' in config.analysis_levels:
        code = _run_participants(config, survey)
    if 'group' in config.analysis_levels:
        code = max(code, _run_group(config, [image.visit for image in survey.images]))
    return code


def _write_slurm(config: AppConfig, survey: Survey | None) -> int:
    sys.stdout.write(write_slurm(config, survey))
    return 1 if survey and survey.problems else 0


def _run_participants(config: AppConfig, survey: Survey) -> int:
    # Nipype takes a second to import, which a dry run or --help need not wait for.
    from surreal_bids.cli.participants import run_participants

    people = [f'sub-{image.participant}' for image in survey.images]
    with sole_use(config.output_dir, people), sole_use(config.work_dir, people):
        failures = run_participants(config, survey)
    if not failures:
        sys.stdout.write(f'All {len(survey.images)} images are done; see {config.output_dir}.\n')
        return 0
    sys.stdout.write(f'{failure_table(failures)}\n')
    sys.stdout.write(f'Details are in {config.output_dir / "logs"}.\n')
    return 1


def _run_group(config: AppConfig, expected: Sequence[tuple[str, str | None]]) -> int:
    # Brings in torch, which takes seconds.
    from surreal_bids.cli.group import run_group_level

    return run_group_level(config, expected)
