"""Failed steps of Nipype workflows."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from nipype.pipeline.engine import Workflow

from surreal_bids.exceptions import SurrealError
from surreal_bids.interfaces import ERROR

ERROR_LINE = re.compile(r'^\s*((?:\w+\.)*)(\w+(?:Error|Exception)): (.+)$', re.MULTILINE)
"""Line of a traceback that names an error: its module, type and message."""

PART = re.compile(r'^_(.+?)(\d+)$')
"""Name of the parts of a step that Nipype runs for each item of a list."""


@dataclass(frozen=True)
class Crash:
    """A step that failed.

    Attributes
    ----------
    hierarchy
        Names of the workflows around the step, outermost first.
    step
        Name of the node; `name[2]` is the third part of a step that runs for each item.
    reason
        Last line of the error, without its type if this package raised it.
    report
        Crash report of Nipype.
    exit_code
        Exit code of the error, if this package raised it.
    """

    hierarchy: tuple[str, ...]
    step: str
    reason: str
    report: str
    exit_code: int = SurrealError.exit_code


def step_names(folder: str, base_dir: Path) -> tuple[str, ...]:
    """Derive the names of the workflows around a step and its own from its folder.

    Only the folder shows where a part belongs: `w/a/step/mapflow/_step2` becomes `w`, `a`,
    `step[2]`.
    """
    *hierarchy, name = Path(folder).relative_to(base_dir.resolve()).parts
    part = PART.match(name) if hierarchy[-1:] == ['mapflow'] else None
    if part is None:
        return (*hierarchy, name)
    return (*hierarchy[:-2], f'{part[1]}[{part[2]}]')


def crash_dir(workflow: Workflow) -> Path:
    """Return the folder of the crash reports of a workflow."""
    return Path(workflow.config['execution']['crashdump_dir'])


def collect_crashes(workflow: Workflow) -> list[Crash]:
    """Read and delete the crash reports of Nipype; their content is kept in the logs."""
    folder = crash_dir(workflow)
    reports = (path.read_text(encoding='utf-8') for path in folder.glob('crash-*'))
    crashes = [_read_crash(report, Path(workflow.base_dir)) for report in reports]
    shutil.rmtree(folder, ignore_errors=True)
    return sorted(crashes, key=lambda crash: (crash.hierarchy, crash.step))


def _read_crash(report: str, base_dir: Path) -> Crash:
    match = re.search(r'^Working directory: (.+)$', report, re.MULTILINE)
    if match is None:
        return Crash((), 'unknown', _reason(report), report)
    *hierarchy, step = step_names(match[1], base_dir)
    record = Path(match[1]) / ERROR
    if not record.is_file():
        return Crash(tuple(hierarchy), step, _reason(report), report)
    error = json.loads(record.read_text(encoding='utf-8'))
    return Crash(tuple(hierarchy), step, error['message'], report, error['exit_code'])


def _reason(report: str) -> str:
    """Find the last line that names an error, other than those of Nipype itself."""
    errors = [match for match in ERROR_LINE.finditer(report) if match[2] != 'NodeExecutionError']
    if not errors:
        return 'unknown; see the report'
    module, kind, message = errors[-1].groups()
    return message if module == 'surreal_bids.exceptions.' else f'{kind}: {message}'
