"""The BIDS App, `surreal-bids`."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from surreal_bids.cautions import Caution, log_cautions
from surreal_bids.cli.main import (
    OPTIONS,
    Parser,
    add_common_options,
    add_option,
    add_sections,
    end_dry_run,
    path_of,
    run_command,
    set_up_logging,
    with_hyphens,
    words_of,
)
from surreal_bids.config import (
    PATTERNS,
    SECTIONS,
    TRAINING,
    VOLUMES,
    AppConfig,
    check_config,
    flag_of,
)
from surreal_bids.exceptions import UsageError
from surreal_bids.names import visit_name
from surreal_bids.parallel import find_device, start_server
from surreal_bids.text import align, counted

if TYPE_CHECKING:
    from surreal_bids.bids.survey import Survey
    from surreal_bids.names import Visit
    from surreal_bids.rindices.model import TableModel

LOGGER = logging.getLogger(__name__)

REMOVED = {
    '--bids-database-dir': 'the dataset is always read, which takes seconds, and a stored index '
    'could be out of date or damaged; remove the option, and delete its folder',
}
"""Options of earlier versions, and why they are not needed."""


def parse_arguments(arguments: Sequence[str]) -> tuple[AppConfig, int]:
    """Turn a command line into a configuration and the number of `-v`.

    Options that are not given are absent from the namespace, and `--config-file` may set them.
    """
    given = _parse(with_hyphens(arguments))
    verbosity, config_file = given.pop('verbosity'), given.pop('config_file')
    options = given
    if config_file is not None:
        words = words_of(config_file)
        try:
            of_file = _parse(['in', 'out', 'group', *words])
        except UsageError as error:
            raise UsageError(f'--config-file {config_file}: {error}') from error
        options = {name: of_file[name] for name in of_file if name in OPTIONS} | given
    config = check_config(AppConfig(**options))
    _warn_of_unused(config, given)
    return config, verbosity


def _parse(words: Sequence[str]) -> dict[str, Any]:
    _refuse_removed(words)
    given = vars(build_parser().parse_args(words))
    return {n: tuple(value) if isinstance(value, list) else value for n, value in given.items()}


def _refuse_removed(words: Iterable[str]) -> None:
    """Refuse options of earlier versions before their values are taken for arguments."""
    for word in words:
        flag = word.partition('=')[0]
        if flag in REMOVED:
            raise UsageError(f'{flag} was removed: {REMOVED[flag]}')


def _warn_of_unused(config: AppConfig, given: Iterable[str]) -> None:
    """Warn of options of the command line that have no effect in this run."""
    if 'group' in config.analysis_levels:
        return
    for name in given:
        of_group = OPTIONS[name].section in (VOLUMES, PATTERNS, TRAINING)
        if of_group and name not in ('device', 'random_seed'):
            found = f'{flag_of(name)}: no effect at the participant level'
            LOGGER.warning(Caution(found, 'The option is ignored', 'Remove it'))


def build_parser() -> argparse.ArgumentParser:
    """Build the parser, with the options grouped as in fMRIPrep."""
    parser = Parser(
        prog='surreal-bids',
        usage='%(prog)s BIDS_DIR OUTPUT_DIR {participant,group} [{participant,group}] [options]',
        description='R-indices of disease-related brain patterns from T1-weighted MRI: a BIDS App. '
        'The participant level computes regional volumes and RAVENS maps of each T1w image. The '
        'group level finds the patterns. Rerun a command to resume it after an interruption.',
        epilog='Exit codes: 0 success; 1 some participants failed and are listed; 2 wrong '
        'usage; 16 not a BIDS dataset; 18 nothing matches the filters; 65 bad data; 73 the output '
        'cannot be written.',
        allow_abbrev=False,
    )
    for name in ('bids_dir', 'output_dir', 'analysis_levels'):
        add_option(parser, name)
    add_sections(parser, SECTIONS)
    add_common_options(parser).add_argument(
        '--config-file',
        type=path_of,
        metavar='FILE',
        help='TOML file with options, named as here but with underscores. Options of the command '
        'line take precedence',
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command(run, sys.argv[1:] if arguments is None else arguments)


def run(arguments: Sequence[str]) -> int:
    """Run the requested levels; return 1 if some participants failed.

    Slow modules are imported here to keep `--help` fast.
    """
    set_up_logging(0)
    config, verbosity = parse_arguments(arguments)
    set_up_logging(verbosity)
    from surreal_bids.bids.layout import read_description
    from surreal_bids.bids.outputs import other_source
    from surreal_bids.bids.survey import check_output_folder, survey_dataset

    read_description(config.bids_dir)
    if other := other_source(config.output_dir, config.bids_dir):
        LOGGER.warning(
            Caution(
                f'{config.output_dir}: contains outputs of another dataset, {other}',
                'Participants of both would be mixed',
                'Choose another output folder, unless the dataset was moved',
            )
        )
    elsewhere = config.dry_run or config.reports_only or config.use_plugin
    is_first = 'participant' in config.analysis_levels and not any(config.output_dir.glob('sub-*'))
    if is_first and not elsewhere:
        start_server()  # It is needed in any case.
    model = check_options(config)
    if config.roi_table is not None and config.analysis_levels == ('group',):
        check_output_folder(config.bids_dir, config.output_dir)
        return _run_group(config, (), model)
    survey = survey_dataset(config)
    log_cautions(survey.notes)
    return (_show if config.dry_run else _run_levels)(config, survey, model)


def _run_levels(config: AppConfig, survey: Survey, model: TableModel | None) -> int:
    """Run the requested levels on the images of a survey."""
    code = 0
    if 'participant' in config.analysis_levels:
        code = _run_participants(config, survey)
    else:
        for problem in survey.problems:
            used = 'The group level uses its earlier outputs, if there are any'
            remedy = 'Correct this, and run the participant level again'
            LOGGER.warning(Caution(problem.reason, used, remedy, who=problem.name))
    if 'group' in config.analysis_levels:
        code = max(code, _run_group(config, survey.expected, model))
    return code


def check_options(config: AppConfig) -> TableModel | None:
    """Check all files and folders given as options before the run starts.

    Returns the model to apply, if there is one.
    """
    from surreal_bids.bids.derivatives import segmentation_label
    from surreal_bids.cli.execution import read_plugin
    from surreal_bids.cli.plan import check_anatomy_options

    segmentation_label(config)
    if 'participant' in config.analysis_levels:
        check_anatomy_options(config)
    if config.use_plugin is not None:
        read_plugin(config.use_plugin)
    if 'group' in config.analysis_levels:
        from surreal_bids.cli.group import check_group_options

        return check_group_options(config)
    if config.device in ('cuda', 'mps') and config.use_plugin is None:
        find_device(config.device)
    return None


def _show(config: AppConfig, survey: Survey, model: TableModel | None) -> int:
    """Show what a run would do."""
    from surreal_bids.cli.plan import describe_plan, make_plan, without_bad_results

    plan = None
    if 'participant' in config.analysis_levels:
        plan = without_bad_results(make_plan(config, survey))
    sys.stdout.write(describe_plan(config, survey, plan))
    sys.stdout.flush()
    problems = plan.problems if plan else survey.problems
    if plan is None:
        _run_group(config, survey.expected, model)
    else:
        end_dry_run(counted(len(problems), 'problem') if problems else '')
    return 1 if problems else 0


def _run_participants(config: AppConfig, survey: Survey) -> int:
    from surreal_bids.cli.participants import IN_USE, run_participants

    outcome = run_participants(config, survey)
    if outcome.problems:
        rows = [(each.name, each.step, each.reason) for each in outcome.problems]
        sys.stdout.write(f'{align([("Participant", "Step", "Reason"), *rows])}\n')
    if done := outcome.describe(survey.images):
        sys.stdout.write(f'{done}; see {config.output_dir}.\n')
    failed = {problem.name for problem in outcome.problems}
    logged = {problem.name for problem in outcome.problems if problem.step != IN_USE}
    if logged & {visit_name(visit) for visit in survey.expected}:
        sys.stdout.write(f'Details are in {config.output_dir / "logs"}.\n')
    return 1 if failed else 0


def _run_group(config: AppConfig, expected: Sequence[Visit], model: TableModel | None) -> int:
    from surreal_bids.cli.group import run_group_level

    return run_group_level(config, expected, model)
