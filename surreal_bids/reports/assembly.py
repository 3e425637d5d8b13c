"""The report of a participant, assembled from the fragments that each level stores.

The participant level stores the fragment `anatomy`, the group level the fragment `rindices`. Each
names by a digest what it was made from. Reports are written before fragments are stored: a run that
is killed in between repeats the step.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path

from surreal_bids.bids.outputs import output_path
from surreal_bids.exceptions import DataError
from surreal_bids.files import write_json
from surreal_bids.names import without_prefix
from surreal_bids.reports.pages import Fragment, is_own_page, rating_script, write_fragments

ANATOMY, RINDICES = 'anatomy', 'rindices'

ORDER = (RINDICES, ANATOMY)
"""Order of fragments in a report; the last one that exists gives the title."""

FIGURES = ('standing', 'contributions', 'map', 'course')
"""Names of the figures of a participant's R-indices."""


def report_path(root: Path, label: str) -> Path:
    """Return the path of the report of a participant."""
    return output_path(root, 'report', participant=label)


def _fragment_path(root: Path, label: str, name: str) -> Path:
    return output_path(root, 'report_fragment', participant=label, fragment=name)


def read_fragment(root: Path, label: str, name: str) -> Fragment | None:
    """Read a stored fragment; None where there is none that can be read."""
    try:
        path = _fragment_path(root, label, name)
        return Fragment(**json.loads(path.read_text(encoding='utf-8')))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def assemble_report(root: Path, label: str, changed: Mapping[str, Fragment | None]) -> Path:
    """Write the report of a participant from its fragments, and store those that changed.

    A report without any fragment is deleted.

    Parameters
    ----------
    root
        The output folder.
    label
        The participant, without `sub-`.
    changed
        New fragments by name; None removes one.
    """
    path = report_path(root, label)
    fragments = [
        changed[name] if name in changed else read_fragment(root, label, name) for name in ORDER
    ]
    there = [fragment for fragment in fragments if fragment is not None]
    if there:
        shows_images = fragments[ORDER.index(ANATOMY)] is not None
        write_fragments(path, there, rating_script() if shows_images else '')
    elif path.is_file() and is_own_page(path):
        path.unlink()
    for name, fragment in changed.items():
        if fragment is None:
            _fragment_path(root, label, name).unlink(missing_ok=True)
        else:
            write_json(_fragment_path(root, label, name), asdict(fragment))
    return path


def write_anatomy(root: Path, label: str, fragment: Fragment) -> Path:
    """Write what the participant level reports.

    R-indices in the report stay as long as the images are those that they were computed from; once
    an image was processed again, they are removed until the group level has run again.
    """
    require_own_report(root, label)
    earlier = read_fragment(root, label, ANATOMY)
    if earlier is not None and earlier.made_from == fragment.made_from:
        return assemble_report(root, label, {ANATOMY: fragment})
    _remove_figures(root, label)
    return assemble_report(root, label, {RINDICES: None, ANATOMY: fragment})


def require_own_report(root: Path, label: str) -> None:
    """Refuse to replace a report of another program, such as one of fMRIPrep."""
    path = report_path(root, label)
    if path.is_file() and not is_own_page(path):
        raise DataError(
            f'{path}: not a report of this version of surreal_bids; move it, and run the '
            'participant level with --reports-only'
        )


def remove_others(root: Path, kept: Collection[str]) -> None:
    """Remove R-indices of an earlier run from the reports of all but these participants.

    Parameters
    ----------
    root
        The output folder.
    kept
        Labels of participants.
    """
    pattern = _fragment_path(Path(), 'X', RINDICES).as_posix().replace('sub-X', 'sub-*')
    for path in sorted(root.glob(pattern)):
        label = without_prefix(path.parts[-3], 'sub')
        if label not in kept:
            _remove_figures(root, label)
            assemble_report(root, label, {RINDICES: None})


def rindices_figure(root: Path, label: str, name: str) -> Path:
    """Return the path of a figure of a participant's R-indices."""
    extension = 'jpg' if name == 'map' else 'svg'
    return output_path(root, 'rindices_figure', participant=label, figure=name, extension=extension)


def _remove_figures(root: Path, label: str) -> None:
    for name in FIGURES:
        rindices_figure(root, label, name).unlink(missing_ok=True)
