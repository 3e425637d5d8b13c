"""The reader of tables with one row per participant or visit."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pandas as pd

from surreal_bids.bids.tabular import (
    Table,
    find_column,
    find_id_column,
    prefix_errors,
    read_sessions,
    read_table,
    session_values,
)
from surreal_bids.columns import column_of
from surreal_bids.exceptions import DataError
from surreal_bids.names import PARTICIPANT, SESSION, Visit, visit_name, without_prefix
from surreal_bids.regions import recognise, region_names
from surreal_bids.text import list_briefly

SUMMARIES = frozenset(
    {'mean', 'average', 'median', 'sum', 'total', 'sd', 'std', 'unit', 'units',
     'count', 'mittelwert', 'summe', 'gesamt', 'moyenne', 'media', 'promedio', 'gemiddelde'}
)  # fmt: skip
"""Ids of rows that summarise participants."""

_NAMED_VISIT = re.compile(r'(.+)_ses-([A-Za-z0-9]+)')
_PLAIN_ID = re.compile(r'[^\s/\\]+')
_LIKE_VISIT = re.compile(
    r'(.+?)[_.-]?(?:[_.-](?:bl|baseline|sc|screening|fu|followup|pre|post|test|t1w)'
    r'|(?:19|20)\d\d-?\d\d-?\d\d|re(?:scan|test|peat)\d*'
    r'|[_.-](?:v|visit|ses|session|m|mo|month|y|yr|year|t|tp|time|timepoint|w|wave|scan|fu|run|mr|mri)'
    r'[_.-]?\d+(?:[_.-](?:mr|mri|t1|t1w))?|(?:_(?:acq|ce|rec|run|echo|part|desc)-[a-z0-9]+)+)',
    re.IGNORECASE,
)
"""Ids that end like the name of a visit or scan: `0001_M12`, `A_v2`, `A_2019-03-02`, `A_run-2`."""

_ADDED = re.compile(r'[_.(-]|(?<=\d)(?:[a-d]|[^\W\d_]{2,}\d*)$')
"""Where an id may end and a suffix begin: `01_2`, `01b`, `01bis`, `01(2)`."""

MAX_VISITS = 10
"""Number of ids such as `HC_M_01` with one stem above which the stem is not a participant."""


MAX_LABEL = 64
"""Maximum length of an id or session: names of files hold both, and at most 255 bytes."""

VISIT = 'name of the visit'
"""Column of our own files that names a visit: `sub-01` or `sub-01_ses-2`."""


@dataclass(frozen=True, eq=False)
class VisitTable:
    """A table with one row per visit, such as one of volumes.

    Attributes
    ----------
    visits
        Participant and session of each row; the session is None where there are no sessions.
    table
        All columns except ids and sessions, indexed by the names of visits.
    names
        Names of the regions, by column.
    source
        File or folder, for messages.
    prefix
        `sub-`, or empty if ids are written without it.
    id_column
        Column of the ids.
    session_column
        Column of the sessions, if there is one.
    """

    visits: list[Visit]
    table: Table
    names: Mapping[str, str]
    source: Path
    prefix: str = 'sub-'
    id_column: str = PARTICIPANT
    session_column: str | None = None


def in_order(visits: Iterable[Visit]) -> list[Visit]:
    """Sort visits by participant and session; numbers in labels are sorted by value."""
    return sorted(visits, key=lambda visit: (_natural(visit[0]), _natural(visit[1] or '')))


def _natural(label: str) -> list[tuple[int, str]]:
    """Return a key that sorts `2` before `10`."""
    parts = re.findall(r'\d+|\D+', label)
    return [(int(part), '') if part.isdecimal() else (-1, part) for part in parts]


def visit_columns(visits: Iterable[Visit], prefix: str = 'sub-') -> pd.DataFrame:
    """Return `participant_id` and, if there are sessions, `session_id`, by the names of visits."""
    visits = list(visits)
    columns: dict[str, list[str | None]] = {
        PARTICIPANT: [f'{prefix}{participant}' for participant, _ in visits]
    }
    if any(session for _, session in visits):
        columns[SESSION] = [f'ses-{session}' if session else None for _, session in visits]
    return pd.DataFrame(columns, index=[visit_name(visit, prefix) for visit in visits])


def read_visit_table(path: Path, id_column: str | None = None) -> VisitTable:
    """Read a table with one row per participant or visit.

    Parameters
    ----------
    path
        TSV or CSV file with a column of ids and, optionally, one of sessions.
    id_column
        Column of the ids; by default it is found by its name.

    Raises
    ------
    DataError
        The table cannot be read, has no ids, or has two rows for one visit.
    """
    table = read_table(path)
    column = find_id_column(table, id_column)
    cells = table.categories(column)
    # One letter may be written in two ways, which look alike.
    ids = cells.where(cells.isna(), cells.fillna('').map(partial(normalize, 'NFC')))
    if not len(table):
        raise DataError(f'{path}: the table has no rows; add one row per participant')
    _check_ids(path, ids)
    session = _session_column(table, ids)
    sessions = table.categories(session) if session else [None] * len(ids)
    _check_lengths(path, ids, sessions)
    visits = [parse_visit(*cells) for cells in zip(ids, sessions)]
    prefix = 'sub-' if ids.str.startswith('sub-').any() else ''
    names = [visit_name(visit, prefix) for visit in visits]
    _require_distinct_visits(path, visits, names, session)
    text = table.text.drop(columns=[name for name in (column, session) if name])
    with prefix_errors(path):
        regions = {name: region_names()[index] for name, index in recognise(text).items()}
    own = Table(path, text.set_axis(names))
    return VisitTable(visits, own, regions, path, prefix, column, session)


def _check_ids(path: Path, ids: pd.Series) -> None:
    for line, name in ids.items():
        if name is None:
            raise DataError(f'{path}: {line} has no {ids.name}; add it')
        if not (_PLAIN_ID.fullmatch(name) and name.isprintable()):
            raise DataError(
                f'{path}: {line} has the id {ascii(name)[1:-1]}; remove spaces, slashes and '
                'invisible characters'
            )
        if name.lower() in SUMMARIES:
            raise DataError(f'{path}: {line} ({name}) is not a participant; remove it')
    if ids.str.fullmatch(r'\d+(\.0+|\.\d+[eE]\+\d+)').all():
        raise DataError(
            f'{path}: ids are decimal numbers such as {ids.iloc[0]}; write whole numbers'
        )


def _check_lengths(path: Path, ids: pd.Series, sessions: Iterable[str | None]) -> None:
    """Refuse ids and sessions that are too long for the names of files."""
    for (line, name), session in zip(ids.items(), sessions):
        for label in (name, session or ''):
            if len(label) > MAX_LABEL:
                raise DataError(
                    f'{path}: {line} has a label of {len(label)} characters ({label[:20]}...); '
                    f'use at most {MAX_LABEL}'
                )


def _session_column(table: Table, ids: pd.Series) -> str | None:
    repeat = column_of(table.columns, 'repeat') if ids.duplicated().any() else None
    return column_of(table.columns, 'session') or repeat


def parse_visit(participant: str, session: str | None) -> Visit:
    """Parse the labels of `sub-01`, `01`, `sub-01_ses-2`, or of two cells."""
    named = _NAMED_VISIT.fullmatch(participant)
    if named and session is None:
        return without_prefix(named[1], 'sub'), named[2]
    return without_prefix(participant, 'sub'), without_prefix(session, 'ses') if session else None


def _require_distinct_visits(
    path: Path, visits: list[Visit], names: list[str], session: str | None
) -> None:
    """Refuse two rows for one visit, and visits that look like participants."""
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(
            f'{path}: more than one row for {list_briefly(repeated)}; keep one row each, or add a '
            f'column {SESSION} that distinguishes visits'
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
            f'{path}: {list_briefly(both)} has rows with and without a session; add the session '
            'of every visit'
        )
    if session is None:
        _refuse_hidden_visits(path, names)


def _refuse_hidden_visits(path: Path, names: list[str]) -> None:
    """Refuse visits or scans of one participant with different ids, such as `01` and `01_2`."""
    known = set(names)
    of_stem: dict[str, list[str]] = {}
    for name in names:
        if '_ses-' not in name:
            of_stem.setdefault(_stem(name, known), []).append(name)
    for stem, same in of_stem.items():
        if len(same) > 1 and (stem in known or len(same) <= MAX_VISITS):
            raise DataError(
                f'{path}: {same[0]} and {same[1]} look like visits of one participant; use one id '
                f'and add a column {SESSION}, or add that column alone if they are two participants'
            )


def _stem(name: str, known: Collection[str]) -> str:
    """Return the id to which a name adds a visit or a number; the name itself if it adds none."""
    stems = [name[: mark.start()] for mark in _ADDED.finditer(name)]
    listed = next((stem for stem in stems if stem in known), None)
    like = _LIKE_VISIT.fullmatch(name)
    return listed or (like[1] if like else name)


def read_others(
    described: Table, used: Collection[str], files: Iterable[Path], visits: Mapping[str, Visit]
) -> pd.DataFrame:
    """Read the remaining columns about participants and those of other tables, as text.

    Parameters
    ----------
    described
        Facts about participants, indexed by the names of visits.
    used
        Columns of the diagnosis, covariates, ICV and site.
    files
        Tables with ids, optionally sessions, and measures.
    visits
        Visits by name; the result has one row for each, in this order.

    Raises
    ------
    DataError
        A table cannot be read, has none of the participants, or repeats a column.
    """
    sources = [described.source]
    tables = [described.text.loc[list(visits), [n for n in described.columns if n not in used]]]
    for path in dict.fromkeys(files):
        measures = rows_of(read_visit_table(path), visits)
        if measures.isna().all(axis=None):
            raise DataError(
                f'{path}: has none of the {len(visits)} visits of the analysis; write ids as in '
                'participants.tsv'
            )
        for source, table in zip(sources, tables):
            twice = [name for name in table if name in measures]
            if twice:
                raise DataError(
                    f'{path}: {list_briefly(twice)} is also in {source}; rename it in one of the '
                    'tables'
                )
        tables.append(measures)
        sources.append(path)
    return pd.concat(tables, axis=1)


def rows_of(table: VisitTable, visits: Mapping[str, Visit]) -> pd.DataFrame:
    """Return the rows of these visits; rows of participants apply to all of their visits."""
    of_visit = dict(zip(table.visits, table.table.text.index))
    rows = [of_visit.get(visit) or of_visit.get((visit[0], None)) for visit in visits.values()]
    text = table.table.text.reindex(pd.Index(rows, dtype=object)).set_axis(list(visits))
    return text.where(text.notna(), None)


def own_id_column(path: Path, id_column: str | None) -> str | None:
    """Return the id column that the user named, if this table has it."""
    return id_column and find_column(read_table(path).columns, id_column)


def require_ids(volumes: VisitTable, people: VisitTable) -> None:
    """Refuse two tables with different spellings of the same ids."""
    known, measured = (dict.fromkeys(p for p, _ in each.visits) for each in (people, volumes))
    absent = [name for name in measured if name not in known]
    alike = {*map(_key, absent)} & {_key(name) for name in known if name not in measured}
    if not alike and len(absent) < len(measured):
        return
    listed = list_briefly(_written_id(name, volumes.prefix) for name in absent)
    there = list_briefly((_written_id(name, people.prefix) for name in sorted(known)), 3)
    hint = 'ids differ in case, zeros or punctuation only: ' if alike else ''
    raise DataError(
        f'{listed}: in {volumes.source} but not in {people.source} (ids there: {there}); '
        f'{hint}write them alike in both tables'
    )


def _key(participant: str) -> tuple[str, ...]:
    """Reduce an id to its letters and numbers; `A-01` is like `a_1`, but `A-1-1` not like `A11`."""
    parts = re.findall(r'\d+|[^\W\d_]+', participant.lower().removeprefix('sub-'))
    return tuple(part.lstrip('0') or '0' for part in parts)


def _written_id(participant: str, prefix: str) -> str:
    return participant if participant.lower().startswith('sub-') else f'{prefix}{participant}'


def of_sessions(visits: Iterable[Visit], labels: Iterable[str]) -> list[Visit]:
    """Keep visits of these sessions and visits without a session, each once; no label: all."""
    wanted = {without_prefix(label, 'ses') for label in labels}
    return [visit for visit in dict.fromkeys(visits) if not wanted or visit[1] in {None, *wanted}]


def without_rows(people: VisitTable, volumes: VisitTable) -> list[Visit]:
    """Return the visits of participants without any volumes."""
    known = {participant for participant, _ in volumes.visits}
    return [visit for visit in people.visits if visit[0] not in known]


def with_sessions(
    people: VisitTable, known: pd.DataFrame, visits: Mapping[str, Visit]
) -> pd.DataFrame:
    """Replace values of participants by those of their `sessions.tsv`, if there is one."""
    values = {name: session_values(people.source.parent, *visit) for name, visit in visits.items()}
    found = pd.DataFrame.from_dict(values, orient='index', dtype=object)
    if found.empty:
        return known
    columns = [*known, *(name for name in found if name not in known)]
    joined = found.reindex(index=known.index).combine_first(known)[columns].astype(object)
    return joined.where(joined.notna(), None)


def sessions_of(people: VisitTable, participant: str, named: str | None) -> Sequence[str | None]:
    """Return the sessions of a participant: the one named, or those of `sessions.tsv`."""
    table = None if named else read_sessions(people.source.parent, participant)
    return [named] if table is None else table.categories(SESSION).tolist()


def read_exact(path: str | Path, text: Sequence[str] | None = ()) -> pd.DataFrame:
    """Read a table of visits, exact to the last digit.

    Parameters
    ----------
    path
        A table that :meth:`Cohort.save` wrote; the names of visits become the index.
    text
        Columns to read as text; None: all. Others are numbers if all their values are.
    """
    table = pd.read_csv(path, sep='\t', dtype=str, na_values=['n/a'], keep_default_na=False)
    table = table.set_index(VISIT).rename_axis(None)
    if text is None:
        return table
    columns = {name: table[name] if name in text else _numbers(table[name]) for name in table}
    return pd.DataFrame(columns, index=table.index)


def _numbers(cells: pd.Series) -> pd.Series:
    try:
        return cells.astype(np.float64)
    except ValueError:
        return cells
