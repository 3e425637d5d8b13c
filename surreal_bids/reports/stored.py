"""The report of a table, stored so that it can be written again without training anything."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from surreal_bids import __version__
from surreal_bids.analysis.engine import Analysis
from surreal_bids.analysis.findings import Findings, findings_of
from surreal_bids.bids.outputs import output_path
from surreal_bids.exceptions import DataError, OutputError
from surreal_bids.files import read_file, sole_use, staged, write_json
from surreal_bids.reports.group import GroupReport, write_group_report
from surreal_bids.reports.methods import GroupMethods, describe_group_methods
from surreal_bids.reports.pages import is_own_page

STORED = 'results.json'
"""File with everything that a report shows, in the folder of the report."""

FORMAT = 2
"""Version of the format of this file."""

PART = 'report'
"""The part of such a folder that is locked and replaced."""


def write_and_store(
    folder: Path, found: Analysis, title: str, tables: Mapping[str, str], model: str | None = None
) -> Path:
    """Write a report, and store everything that it shows: no volumes, and no covariates of anyone.

    Returns the path of the report.

    Parameters
    ----------
    folder
        Where the report will be.
    found
        The analysis.
    title
        Name of the data.
    tables
        Names of the tables of results that were written.
    model
        Name of the model that was applied; None if one was trained.
    """
    asked = {'model': model, 'map_tissues': (), 'from_table': True}
    content = {
        'Format': FORMAT,
        'GeneratedBy': {'Name': 'surreal_bids', 'Version': __version__},
        'Title': title,
        'Tables': dict(tables),
        'Methods': asdict(describe_group_methods(found, asked)),
        'Card': found.model.state()[1],
        'Found': findings_of(found).to_json(),
    }
    write_json(folder / STORED, content | {'SHA256': _checksum(content)})
    return write_group_report(_load_report(folder))


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, allow_nan=False).encode()).hexdigest()


def write_again(folder: Path) -> Path:
    """Write the report whose content is stored in a folder again; returns its path.

    Raises
    ------
    DataError
        The content is damaged, or of another version.
    OutputError
        A file that is not a report would be replaced, or nothing can be written.
    """
    report = _load_report(folder)
    page = output_path(folder, 'group_report')
    if page.exists() and not own_report(folder):
        raise OutputError(f'{page}: was not written by surreal-gan; move it')
    replaced = [path for path in report_files(folder) if path.name != STORED]
    with sole_use(folder, [PART]), staged(folder, PART, replaced) as new:
        write_group_report(replace(report, output_dir=new))
    return page


def report_files(folder: Path) -> list[Path]:
    """List the files of a report in its folder."""
    figures = output_path(folder, 'group_figure', figure='x', extension='svg')
    files = [folder / STORED, output_path(folder, 'group_report')]
    return [path for path in files if path.exists()] + sorted(figures.parent.glob('*.svg'))


def own_report(folder: Path) -> list[Path]:
    """List the files of a report if this program wrote them; else nothing."""
    page = output_path(folder, 'group_report')
    try:
        _read(folder / STORED)
        is_own = not page.exists() or is_own_page(page)
    except (DataError, OSError):
        return []
    return report_files(folder) if is_own else []


def _load_report(folder: Path) -> GroupReport:
    """Read what `write_and_store` wrote."""
    stored = _read(folder / STORED)
    lists = {name: tuple(it) for name, it in stored['Methods'].items() if isinstance(it, list)}
    return GroupReport(
        folder,
        stored['Title'],
        Findings.from_json(stored['Found']),
        stored['Card'],
        GroupMethods(**stored['Methods'] | lists),
        tables=stored['Tables'],
        has_individuals=False,
    )


def _read(path: Path) -> dict[str, Any]:
    """Read stored content, and check that it is complete and of this version."""
    try:
        stored = dict(json.loads(read_file(path)))
        expected = stored.pop('SHA256')
        is_whole = _checksum(stored) == expected
        version, made_by = stored['Format'], stored['GeneratedBy']['Version']
    except (ValueError, LookupError, TypeError, RecursionError):
        is_whole = False
    if not is_whole:
        raise DataError(
            f'{path}: was not written by surreal-gan, or was changed since; run "surreal-gan fit" '
            'or "apply" again with --overwrite'
        )
    if version != FORMAT:
        raise DataError(
            f'{path}: was written by surreal_bids {made_by} (format {version}), but this version '
            f'reads format {FORMAT}; run "surreal-gan fit" or "apply" again with --overwrite, or '
            f'use surreal_bids {made_by}'
        )
    return stored
