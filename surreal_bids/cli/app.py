"""The BIDS App, `surreal-bids`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from surreal_bids.bids.checks import check_output_folder
from surreal_bids.bids.layout import read_description
from surreal_bids.bids.reuse import segmentation_label
from surreal_bids.bids.survey import Survey, survey_dataset
from surreal_bids.cli.failures import failure_table
from surreal_bids.cli.main import run_command, set_up_logging
from surreal_bids.cli.overview import summarise
from surreal_bids.cli.parser import parse_arguments
from surreal_bids.cli.slurm import write_slurm
from surreal_bids.config import AppConfig


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
