"""Names and descriptions of every output. The names are in `names.json` and nowhere else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from surreal_bids import __version__
from surreal_bids.bids.labels import alternatives, is_label
from surreal_bids.exceptions import UsageError
from surreal_bids.files import write_json, write_text

BIDS_VERSION = '1.10.0'
"""The version of the standard that the outputs follow."""

BIDSIGNORE = (
    '*.html',
    '/sub-*/figures',
    '/sub-*/log',
    '/models',
    '/group_*',
    '*_xfm.*',
    '*_ravens.*',
)
"""Outputs that BIDS has no rule for. With a slash at its end a line would have no effect."""

_OPTIONAL = re.compile(r'\[([^\[\]]*)\]')
_ENTITY = re.compile(r'\{(\w+)\}')


@dataclass(frozen=True)
class OutputName:
    """One line of the table of names.

    Attributes
    ----------
    level
        `dataset`, `participant` or `group`: which run writes it.
    path
        Below the output folder; `{entity}` is filled in, `[...]` left out without its entity.
    content
        What it is, for people.
    allowed
        What an entity may be; any label where it is not named.
    metadata
        Fields that its sidecar must have; None where it has no sidecar.
    """

    level: str
    path: str
    content: str
    allowed: Mapping[str, list[str]] = field(default_factory=dict)
    metadata: list[str] | None = None

    @property
    def entities(self) -> list[str]:
        """Entities in the path, in their order."""
        return list(dict.fromkeys(_ENTITY.findall(self.path)))

    @property
    def optional(self) -> set[str]:
        """Entities that may be absent."""
        return {entity for part in _OPTIONAL.findall(self.path) for entity in _ENTITY.findall(part)}

    def fill(self, entities: Mapping[str, str]) -> str:
        """Fill entities in, and leave out the optional parts of those that are absent."""

        def optional_part(match: re.Match[str]) -> str:
            return match[1] if set(_ENTITY.findall(match[1])) <= set(entities) else ''

        path = _OPTIONAL.sub(optional_part, self.path)
        return _ENTITY.sub(lambda match: entities.get(match[1], match[0]), path)


@cache
def output_names() -> Mapping[str, OutputName]:
    """Read the table of names: what this package can write, by a short name of ours."""
    table = json.loads(resources.files(__package__).joinpath('names.json').read_text('utf-8'))
    return {name: OutputName(**row) for name, row in table.items()}


def output_path(root: str | Path, name: str, **entities: str | None) -> Path:
    """Build the path of an output.

    Parameters
    ----------
    root
        The output folder.
    name
        A name of the table, such as `rindices`.
    **entities
        Labels of its entities; None is the same as leaving one out.

    Raises
    ------
    UsageError
        If the table does not know the name or an entity, if an entity is missing, or if a value
        is not a BIDS label, which is also why no value can lead out of the folder.
    """
    row = _row(name)
    given = {entity: value for entity, value in entities.items() if value is not None}
    unknown = sorted(set(given) - set(row.entities))
    if unknown:
        raise UsageError(
            f'output {name}: unknown entity {", ".join(unknown)}; '
            f'{alternatives(unknown, row.entities)}'
        )
    missing = [e for e in row.entities if e not in given and e not in row.optional]
    if missing:
        raise UsageError(f'output {name}: entity {", ".join(missing)} is missing')
    for entity, value in given.items():
        _check_value(name, entity, value, row.allowed.get(entity))
    return Path(root) / row.fill(given)


def _row(name: str) -> OutputName:
    names = output_names()
    if name not in names:
        raise UsageError(f'no output is called {name}; {alternatives([name], names)}')
    return names[name]


def _check_value(name: str, entity: str, value: str, allowed: Iterable[str] | None) -> None:
    if allowed is not None and value not in allowed:
        raise UsageError(f'output {name}: {entity} {value!r}; expected {", ".join(allowed)}')
    if allowed is None and not is_label(value):
        raise UsageError(
            f'output {name}: {entity} {value!r} is not a label; use letters and digits only'
        )


def list_outputs(levels: Iterable[str], with_sessions: bool = False) -> list[tuple[str, str]]:
    """List path and content of what the levels write, entities left open.

    Parameters
    ----------
    levels
        Any of `dataset`, `participant` and `group`.
    with_sessions
        Whether the people have sessions, which then appear in the paths.
    """
    entities = {'session': '{session}'} if with_sessions else {}
    rows = [row for row in output_names().values() if row.level in set(levels)]
    return [(row.fill(entities), row.content) for row in rows]


def sidecar_path(path: str | Path) -> Path:
    """Path of the JSON file that describes an image or a table; those of one name share it."""
    path = Path(path)
    return path.with_name(path.name.split('.', 1)[0] + '.json')


def write_sidecar(name: str, path: str | Path, metadata: Mapping[str, Any]) -> Path:
    """Describe an output in a JSON file beside it.

    Parameters
    ----------
    name
        A name of the table, which tells the fields that are required.
    path
        The output, as :func:`output_path` gives it.
    metadata
        Fields of an image, or the description of each column of a table.
    """
    required = _row(name).metadata
    if required is None:
        raise UsageError(f'output {name} has no sidecar')
    missing = [key for key in required if key not in metadata]
    if missing:
        raise UsageError(f'sidecar of {name}: {", ".join(missing)} is missing')
    return write_json(sidecar_path(path), metadata)


def dataset_description(
    source: Path,
    source_description: Mapping[str, Any],
    derivatives: Mapping[str, Path] | None = None,
) -> dict[str, Any]:
    """Describe a dataset of outputs: what made it, and from which datasets.

    Parameters
    ----------
    source
        Root of the dataset it was made from, which `bids:raw:` then stands for.
    source_description
        That dataset's own description: its DOI and name are carried over.
    derivatives
        Results of other programs that were used, by the names that stand for them in `bids:NAME:`.
    """
    links = {name: path.resolve().as_uri() for name, path in (derivatives or {}).items()}
    origin = {'URL': source.resolve().as_uri()}
    doi = source_description.get('DatasetDOI')
    return {
        'Name': f'surreal_bids outputs of {source_description.get("Name", source.name)}',
        'BIDSVersion': BIDS_VERSION,
        'DatasetType': 'derivative',
        'GeneratedBy': [
            {
                'Name': 'surreal_bids',
                'Version': __version__,
                'Description': 'R-indices of disease-related brain patterns (Surreal-GAN)',
            }
        ],
        'DatasetLinks': {'raw': origin['URL'], **links},
        'SourceDatasets': [
            {**origin, 'DOI': doi} if doi else origin,
            *({'URL': url} for url in links.values()),
        ],
    }


def start_dataset(
    root: Path,
    source: Path,
    source_description: Mapping[str, Any],
    derivatives: Mapping[str, Path] | None = None,
) -> None:
    """Write what every dataset of outputs has: its description and `.bidsignore`."""
    content = dataset_description(source, source_description, derivatives)
    write_json(output_path(root, 'dataset_description'), content)
    write_text(output_path(root, 'bidsignore'), '\n'.join(BIDSIGNORE) + '\n')
