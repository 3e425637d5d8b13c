"""Sources of a result of another program, as its JSON sidecar names them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from surreal_bids.bids.layout import T1wImage
from surreal_bids.cautions import Caution
from surreal_bids.exceptions import DataError

LOGGER = logging.getLogger(__name__)

RAW_FIELDS = ('RawSources', 'Sources')
FIELDS = (*RAW_FIELDS, 'SpatialReference')
"""Fields of a sidecar that name other files: paths, BIDS URIs, or lists or tables of these."""

_NAMED = {entity: re.compile(rf'(?:^|[/:_])({entity}-[0-9A-Za-z+]+)') for entity in ('sub', 'ses')}


def named_sources(path: Path, fields: Iterable[str]) -> list[str]:
    """Read the sources that the sidecar of an image names; empty without a usable sidecar."""
    content, _ = _read_sidecar(path)
    return [text for field in fields for text in _texts(content.get(field))]


def _read_sidecar(path: Path) -> tuple[dict[str, Any], str]:
    """Read the sidecar of an image; return its content, or why it cannot be used."""
    sidecar = path.with_name(re.sub(r'\.(nii(\.gz)?|mgz|h5)$', '', path.name) + '.json')
    if not sidecar.is_file():
        return {}, ''
    try:
        content = json.loads(sidecar.read_text(encoding='utf-8'))
    except (OSError, ValueError, RecursionError) as error:
        return {}, f'{sidecar}: cannot be read ({error})'
    if not isinstance(content, dict):
        return {}, f'{sidecar}: {type(content).__name__} instead of an object'
    return content, ''


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def require_own_sources(path: Path, image: T1wImage) -> None:
    """Check that the sources of a result are of the participant and session of an image.

    Raises
    ------
    DataError
        The sidecar names another participant, or only other sessions.
    """
    _, unusable = _read_sidecar(path)
    if unusable:
        LOGGER.warning(
            Caution(
                unusable,
                f'It is not known whether {path.name} is of this participant and session',
                'Correct the file',
            )
        )
    sources = named_sources(path, FIELDS)
    wrong = _labels(sources, 'sub') - {f'sub-{image.participant}'}
    sessions = _labels(sources, 'ses')
    if not wrong and image.session and f'ses-{image.session}' not in sessions:
        wrong = sessions
    if wrong:
        raise DataError(
            f'{path}: its sidecar names sources of {", ".join(sorted(wrong))}, not of '
            f'{image.name}; replace the file, or correct Sources and SpatialReference'
        )


def _labels(sources: Iterable[str], entity: str) -> set[str]:
    """Return the label of an entity in each source: the last one, since any folder may be above."""
    return {label for source in sources for label in _NAMED[entity].findall(source)[-1:]}
