"""Regional volumes of every visit: from the outputs of the participant level, or from a table."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd

from surreal_bids.bids.layout import Visit, is_label, visit_name, without_prefix
from surreal_bids.bids.outputs import Record, output_path
from surreal_bids.bids.tabular import (
    PARTICIPANT,
    SESSION,
    Table,
    find_column,
    find_id_column,
    prefix_errors,
    read_sessions,
    read_table,
    session_values,
)
from surreal_bids.columns import column_of
from surreal_bids.config import CohortOptions
from surreal_bids.exceptions import DataError
from surreal_bids.regions import recognise, region_names
from surreal_bids.text import list_briefly

ICV = 'icv'
"""Name of the column of head size."""

MUSE_COLUMN = 'MUSE_{}'
"""How a MUSE region is called in tables; the JSON file beside them has its name."""

SUMMARIES = frozenset({'mean', 'average', 'median', 'sum', 'total', 'sd', 'std', 'unit', 'units'})
"""Ids of rows that are no participants."""

_NAMED_VISIT = re.compile(r'(.+)_ses-([A-Za-z0-9]+)')
_PLAIN_ID = re.compile(r'[^\s/\\]+')
_LIKE_VISIT = re.compile(
    r'(.+?)[_.-]?(?:[_.-](?:bl|baseline|sc|screening|fu|followup)|(?:19|20)\d\d-?\d\d-?\d\d'
    r'|[_.-](?:v|visit|ses|session|m|mo|month|y|yr|year|t|tp|time|timepoint|w|wave|scan|fu)'
    r'[_.-]?\d+)',
    re.IGNORECASE,
)
"""An id that ends like that of one of several visits: `0001_M12`, `A_v2`, `A_2019-03-02`."""


@dataclass(frozen=True, eq=False)
class Volumes:
    """Volumes of visits.

    Attributes
    ----------
    visits
        Participant and session of each row, the latter None where there are no sessions.
    table
        Volumes in mm3 (and whatever else a table of the user has), indexed by the visit's name.
    names
        What the regions are called, by column; those that have a name beside their column.
    source
        What it was read from, for messages.
    prefix
        `sub-`, or nothing where ids are written without it.
    """

    visits: list[Visit]
    table: Table
    names: Mapping[str, str]
    source: Path
    prefix: str = 'sub-'


def in_order(visits: Iterable[Visit]) -> list[Visit]:
    """Visits by participant, then session, numbers in labels by their value."""
    return sorted(visits, key=lambda visit: (_natural(visit[0]), _natural(visit[1] or '')))


def _natural(label: str) -> list[tuple[int, str]]:
    """Key that puts `2` before `10`: numbers by value, all else as text."""
    parts = re.findall(r'\d+|\D+', label)
    return [(int(part), '') if part.isdecimal() else (-1, part) for part in parts]


def visit_columns(visits: Iterable[Visit], prefix: str = 'sub-') -> pd.DataFrame:
    """Columns `participant_id` and, if anyone has sessions, `session_id`, indexed by name."""
    visits = list(visits)
    columns: dict[str, list[str | None]] = {
        PARTICIPANT: [f'{prefix}{participant}' for participant, _ in visits]
    }
    if any(session for _, session in visits):
        columns[SESSION] = [f'ses-{session}' if session else None for _, session in visits]
    return pd.DataFrame(columns, index=[visit_name(visit, prefix) for visit in visits])


def find_segmented(output_dir: Path, atlas: str) -> dict[Visit, Path]:
    """The volumes of an atlas, by visit: those that the last run of the participant level made.

    Where a run has failed or not ended, files may be of an earlier one, or of both.
    """
    found: dict[Visit, Path] = {}
    for folder in output_dir.glob('sub-*'):
        participant = without_prefix(folder.name, 'sub')
        sessions = [None, *(path.name[len('ses-') :] for path in folder.glob('ses-*'))]
        for session in sessions:
            if is_label(participant) and (session is None or is_label(session)):
                visit = participant, session
                path = _output(output_dir, 'segmentation_volumes', visit, atlas)
                if path.is_file() and _is_current(output_dir, visit, path):
                    found[visit] = path
    return {visit: found[visit] for visit in in_order(found)}


def _is_current(output_dir: Path, visit: Visit, path: Path) -> bool:
    """Tell whether a file is of the last run for a visit, and that run is complete."""
    record = Record.read(output_dir, visit)
    return not record.why_not_done() and path.relative_to(output_dir).as_posix() in record.outputs


def _require_same_options(output_dir: Path, visits: Iterable[Visit]) -> None:
    """Refuse volumes that were not made alike, whose differences would pass for those of people."""
    first: tuple[str, dict[str, Any]] | None = None
    for visit in visits:
        options = (Record.read(output_dir, visit).made_from or {}).get('options', {})
        first = first or (visit_name(visit), options)
        other = [name for name in options | first[1] if options.get(name) != first[1].get(name)]
        if other:
            raise DataError(
                f'{output_dir}: {visit_name(visit)} and {first[0]} were processed with different '
                f'options ({", ".join(other)}); run the participant level again for all'
            )


def _output(output_dir: Path, name: str, visit: Visit, atlas: str | None = None) -> Path:
    entities = {'atlas': atlas} if atlas else {}
    return output_path(output_dir, name, participant=visit[0], session=visit[1], **entities)


def _other_atlases(output_dir: Path) -> set[str]:
    """Names of the atlases of which there are volumes."""
    paths = output_dir.glob('sub-*/**/*_seg-*_dseg.tsv')
    return {path.name.rsplit('_seg-', maxsplit=1)[1].split('_')[0] for path in paths}


def _why_none(output_dir: Path, atlas: str) -> str:
    """What there is instead of volumes of an atlas that can be used."""
    others = _other_atlases(output_dir)
    if atlas in others:
        return ' that a complete run has left (logs/*_record.json tell of such runs)'
    if others:
        names = ', '.join(sorted(others))
        return f' (there are some of {names}: give the same --segmentation and --atlas)'
    return ''


def collect_volumes(output_dir: Path, atlas: str) -> Volumes:
    """Read the volumes of everyone for whom the participant level has written some.

    The volume of the brain mask becomes the column `icv`: the nearest to head size that is there.

    Raises
    ------
    DataError
        There are none, or somebody's have other regions than the rest.
    """
    found = find_segmented(output_dir, atlas)
    if not found:
        raise DataError(
            f'{output_dir}: no regional volumes (sub-*/anat/*_seg-{atlas}_dseg.tsv) in it'
            f'{_why_none(output_dir, atlas)}; run the participant level first, or give a table '
            'with --roi-table'
        )
    _require_same_options(output_dir, found)
    tables = {visit_name(visit): _read_segmentation(path) for visit, path in found.items()}
    names = _common_regions(tables, output_dir)
    rows = pd.DataFrame({name: table['volume_mm3'] for name, table in tables.items()}).T
    rows = rows[list(names)]
    rows[ICV] = [_mask_volume(_output(output_dir, 'brain_mask', visit)) for visit in found]
    cells = rows.dropna(axis=1, how='all').map(_cell)
    return Volumes(list(found), Table(output_dir, cells.astype(object)), names, output_dir)


def _cell(value: float) -> str | None:
    """A number as a table holds it: text, None where missing."""
    return None if np.isnan(value) else repr(float(value))


def _read_segmentation(path: Path) -> pd.DataFrame:
    """Volume and name of each region, by the column it becomes."""
    table = read_table(path)
    volumes = table.numbers('volume_mm3')
    names = table.categories('name')
    index = table.categories('index')
    is_muse = region_names()
    columns = [
        MUSE_COLUMN.format(number) if is_muse.get(int(number or 0)) == name else name
        for number, name in zip(index, names)
    ]
    return pd.DataFrame({'volume_mm3': volumes.to_numpy(), 'name': names.to_numpy()}, columns)


def _common_regions(tables: Mapping[str, pd.DataFrame], output_dir: Path) -> dict[str, str]:
    """Names of the regions, which everyone must share."""
    first, expected = next(iter(tables.items()))
    for visit, table in tables.items():
        other = table.index.symmetric_difference(expected.index)
        if len(other):
            raise DataError(
                f'{output_dir}: {visit} and {first} were segmented into different regions '
                f'({list_briefly(other)}); run the participant level again for one of them'
            )
    return {str(column): str(name) for column, name in expected['name'].items()}


def _mask_volume(path: Path) -> float:
    """Volume in mm3 of a mask; NaN where there is none."""
    if not path.is_file():
        return np.nan
    mask = nib.Nifti1Image.from_filename(path)
    voxel = float(abs(np.linalg.det(mask.affine[:3, :3])))
    return float(np.count_nonzero(np.asanyarray(mask.dataobj))) * voxel


def read_rows(path: Path, id_column: str | None = None) -> Volumes:
    """Read a table with one row per participant or visit, such as one of volumes.

    Parameters
    ----------
    path
        TSV or CSV file with a column of ids, perhaps one of sessions, and others.
    id_column
        Column of the ids; by default one of the usual names.

    Raises
    ------
    DataError
        It cannot be read, has no ids, or two rows for one visit.
    """
    table = read_table(path)
    column = find_id_column(table, id_column)
    ids = table.categories(column)
    if not len(table):
        raise DataError(f'{path}: no row below the header; add one row per participant')
    _check_ids(path, ids)
    session = _session_column(table, ids)
    sessions = table.categories(session) if session else [None] * len(ids)
    visits = [_parse_visit(*cells) for cells in zip(ids, sessions)]
    prefix = 'sub-' if ids.str.startswith('sub-').any() else ''
    names = [visit_name(visit, prefix) for visit in visits]
    _require_distinct_visits(path, visits, names, session)
    text = table.text.drop(columns=[name for name in (column, session) if name])
    with prefix_errors(path):
        regions = {name: region_names()[index] for name, index in recognise(text).items()}
    return Volumes(visits, Table(path, text.set_axis(names)), regions, path, prefix)


def _check_ids(path: Path, ids: pd.Series) -> None:
    for line, name in ids.items():
        if name is None:
            raise DataError(f'{path}: {line} has no {ids.name}; add it')
        if not (_PLAIN_ID.fullmatch(name) and name.isprintable()):
            raise DataError(
                f'{path}: {line} has the id {ascii(name)[1:-1]}; ids may not hold spaces, slashes '
                'or invisible characters'
            )
        if name.lower() in SUMMARIES:
            raise DataError(f'{path}: {line} ({name}) is not a participant; drop it')
    if ids.str.fullmatch(r'\d+\.0+').all():
        raise DataError(f'{path}: ids are decimal numbers such as {ids.iloc[0]}; write whole ones')


def _session_column(table: Table, ids: pd.Series) -> str | None:
    repeat = column_of(table.columns, 'repeat') if ids.duplicated().any() else None
    return column_of(table.columns, 'session') or repeat


def _parse_visit(participant: str, session: str | None) -> Visit:
    """Labels of `sub-01`, `01`, `sub-01_ses-2`, or of two cells."""
    named = _NAMED_VISIT.fullmatch(participant)
    if named and session is None:
        return without_prefix(named[1], 'sub'), named[2]
    return without_prefix(participant, 'sub'), without_prefix(session, 'ses') if session else None


def _require_distinct_visits(
    path: Path, visits: list[Visit], names: list[str], session: str | None
) -> None:
    """Refuse two rows for one visit, and visits that would pass for participants."""
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(
            f'{path}: more than one row for {list_briefly(repeated)}; keep one row each, or tell '
            f'visits apart by a column {SESSION}'
        )
    of_key: dict[str, str] = {}
    for name in names:
        other = of_key.setdefault(name.lower(), name)
        if other != name:
            raise DataError(f'{path}: {other} and {name} differ in case only; correct the ids')
    with_session = {participant for participant, label in visits if label}
    both = [name for name, (who, label) in zip(names, visits) if not label and who in with_session]
    if both:
        raise DataError(
            f'{path}: {list_briefly(both)} has rows with and without a session; name the session '
            'of '
            'every visit'
        )
    if session is None:
        _refuse_hidden_visits(path, names)


def _refuse_hidden_visits(path: Path, names: list[str]) -> None:
    stems: dict[str, str] = {name: name for name in names}
    for name in names:
        like = _LIKE_VISIT.fullmatch(name)
        other = stems.setdefault(like[1], name) if like else name
        if other != name and '_ses-' not in name:
            raise DataError(
                f'{path}: {other} and {name} look like visits of one participant; add a column '
                f'{SESSION} (with the same id for both, or, if they are two participants, with '
                'ids as they are)'
            )


def read_others(
    described: Table, used: Collection[str], files: Iterable[Path], visits: Mapping[str, Visit]
) -> pd.DataFrame:
    """Columns about participants that nothing else uses, then those of other tables, as text.

    Parameters
    ----------
    described
        What is known of participants, indexed by the names of visits.
    used
        Its columns that are diagnosis, covariates, ICV or site.
    files
        Tables with ids, perhaps sessions, and measures.
    visits
        Whose measures are wanted, by name; one row for each, in this order.

    Raises
    ------
    DataError
        A table cannot be read, is of other participants, or has a column that another one has.
    """
    tables = [described.text.loc[list(visits), [n for n in described.columns if n not in used]]]
    for path in files:
        measures = rows_of(read_rows(path), visits)
        if measures.isna().all(axis=None):
            raise DataError(
                f'{path}: nobody in it is among the {len(visits)} participants of the analysis; '
                'write ids as in participants.tsv'
            )
        twice = [name for table in tables for name in table if name in measures]
        if twice:
            raise DataError(
                f'{path}: {list_briefly(twice)} is in another table too; rename it in one'
            )
        tables.append(measures)
    return pd.concat(tables, axis=1)


def rows_of(table: Volumes, visits: Mapping[str, Visit]) -> pd.DataFrame:
    """Cells of a table for these visits; what it says of a participant holds for all visits."""
    of_visit = dict(zip(table.visits, table.table.text.index))
    rows = [of_visit.get(visit) or of_visit.get((visit[0], None)) for visit in visits.values()]
    text = table.table.text.reindex(pd.Index(rows, dtype=object)).set_axis(list(visits))
    return text.where(text.notna(), None)


def own_id_column(path: Path | str, options: CohortOptions) -> str | None:
    """The column of ids as the user named it, if this table has it."""
    if options.id_column is None:
        return None
    return find_column(read_table(Path(path)).columns, options.id_column)


def require_ids(volumes: Volumes, people: Volumes) -> None:
    """Refuse two tables that name participants differently."""
    known = {participant for participant, _ in people.visits}
    absent = [participant for participant, _ in volumes.visits if participant not in known]
    folded = {name.lower(): name for name in known}
    alike = [name for name in absent if name.lower().removeprefix('sub-') in folded]
    if alike or len(absent) == len(volumes.visits):
        raise DataError(
            f'{people.source}: no row for {list_briefly(absent)} of {volumes.source}; ids there '
            'are '
            f'like {list_briefly(sorted(known), 3)}: write them in the same way'
        )


def of_sessions(visits: Iterable[Visit], labels: Iterable[str]) -> list[Visit]:
    """Keep visits of these sessions and visits without a session, each once; no label: all."""
    wanted = {without_prefix(label, 'ses') for label in labels}
    return [visit for visit in dict.fromkeys(visits) if not wanted or visit[1] in {None, *wanted}]


def without_rows(people: Volumes, volumes: Volumes) -> list[Visit]:
    """Participants of whom there is no volume at all."""
    known = {participant for participant, _ in volumes.visits}
    return [visit for visit in people.visits if visit[0] not in known]


def with_sessions(
    people: Volumes, known: pd.DataFrame, visits: Mapping[str, Visit]
) -> pd.DataFrame:
    """Values of `sessions.tsv`, where there is such a file, in place of those of a participant."""
    values = {name: session_values(people.source.parent, *visit) for name, visit in visits.items()}
    found = pd.DataFrame.from_dict(values, orient='index', dtype=object)
    if found.empty:
        return known
    columns = [*known, *(name for name in found if name not in known)]
    joined = found.reindex(index=known.index).combine_first(known)[columns].astype(object)
    return joined.where(joined.notna(), None)


def sessions_of(people: Volumes, participant: str, named: str | None) -> Sequence[str | None]:
    """Sessions of a participant: the one named, or those of `sessions.tsv`."""
    table = None if named else read_sessions(people.source.parent, participant)
    return [named] if table is None else table.categories(SESSION).tolist()
