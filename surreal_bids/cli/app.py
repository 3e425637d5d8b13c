"""The BIDS App, `surreal-bids`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

from surreal_bids.bids.derivatives import list_outputs
from surreal_bids.bids.layout import T1wImage
from surreal_bids.bids.survey import Survey, survey_dataset
from surreal_bids.cli.main import run_command, set_up_logging
from surreal_bids.cli.parser import parse_arguments
from surreal_bids.config import AppConfig
from surreal_bids.exceptions import UsageError
from surreal_bids.files import MISSING


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command(run, sys.argv[1:] if arguments is None else arguments)


def run(arguments: Sequence[str]) -> int:
    """Check a dataset and show what was found; 1 if some participants have problems."""
    config, verbosity = parse_arguments(arguments)
    set_up_logging(verbosity)
    if not config.dry_run:
        raise UsageError(
            'this version checks datasets only and cannot process images yet; add --dry-run'
        )
    survey = survey_dataset(config)
    sys.stdout.write(summarise(config, survey))
    return 1 if survey.problems else 0


def summarise(config: AppConfig, survey: Survey) -> str:
    """Write a survey as text: images, groups, problems, and the names of outputs."""
    n_people = len({image.participant for image in survey.images})
    sections = [
        f'{survey.description.get("Name", "Dataset")} in {config.bids_dir}: '
        f'{len(survey.images)} T1w images of {n_people} participants',
        _align([('Participant', 'Session', 'Group', 'T1w image', 'Check'), *_rows(config, survey)]),
        _groups(config, survey),
        _problems(survey),
        _outputs(config, survey),
    ]
    return '\n\n'.join(section for section in sections if section) + '\n'


def _rows(config: AppConfig, survey: Survey) -> list[tuple[str, ...]]:
    bad = {(problem.participant, problem.session) for problem in survey.problems}
    groups = survey.groups.of_visit if survey.groups else {}
    return [
        (
            f'sub-{image.participant}',
            f'ses-{image.session}' if image.session else MISSING,
            groups.get(image.name) or MISSING,
            str(image.path.relative_to(config.bids_dir.absolute())),
            _check(image, bad),
        )
        for image in survey.images
    ]


def _check(image: T1wImage, bad: set[tuple[str, str | None]]) -> str:
    if (image.participant, image.session) in bad or (image.participant, None) in bad:
        return 'problem, see below'
    return f'first of {len(image.passed_over) + 1}' if image.passed_over else 'good'


def _align(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ('  '.join(cell.ljust(width) for cell, width in zip(row, widths)) for row in rows)
    return '\n'.join(line.rstrip() for line in lines)


def _groups(config: AppConfig, survey: Survey) -> str:
    if survey.groups is None:
        return ''
    roles = {config.control_label: ' (controls)', config.patient_label: ' (patients)'}
    counts = Counter(value or MISSING for value in survey.groups.of_visit.values())
    listed = [f'{value}{roles.get(value, "")} {n}' for value, n in sorted(counts.items())]
    return f'Images by {survey.groups.column}: {", ".join(listed)}'


def _problems(survey: Survey) -> str:
    if not survey.problems:
        return 'No problems.'
    return '\n'.join(['Problems:', *(f'  {problem}' for problem in survey.problems)])


def _outputs(config: AppConfig, survey: Survey) -> str:
    with_sessions = any(image.session for image in survey.images)
    outputs = list_outputs(['dataset', *config.analysis_levels], with_sessions)
    as_read = str.maketrans('{}', '<>')
    rows = [(f'  {path.translate(as_read)}', content) for path, content in outputs]
    return f'Where outputs go, below {config.output_dir}:\n{_align(rows)}'
