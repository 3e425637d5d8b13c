"""Names, sidecars and records of all outputs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Self

import yaml  # type: ignore[import-untyped]

from surreal_bids import __version__
from surreal_bids.bids.layout import Visit, is_label
from surreal_bids.exceptions import UsageError
from surreal_bids.files import write_json, write_text
from surreal_bids.text import alternatives

BIDS_VERSION = '1.10.0'
"""The version of the standard that the outputs follow."""

BIDSIGNORE = (
    '*.html',
    '/sub-*/figures',
    '/sub-*/log',
    '/models',
    '/group_*',
    '/phenotype',
    '*_xfm.*',
    '*_ravens.*',
)
"""Outputs that BIDS has no rule for, and those in phenotype, where it allows one row for each
participant but we have one for each visit, or more. With a slash at its end a line would have no
effect."""

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
        Below the output folder; `{entity}` is filled in, `[...]` omitted without its entity.
    content
        What it is, in words.
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
        Whether participants have sessions, which then appear in the paths.
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
        A name of the table, which lists the fields that are required.
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


Column = dict[str, Any]
"""What a sidecar holds for a column: `Description`, and perhaps `Units` or `Levels`."""


def describe_columns(table: str, **values: object) -> dict[str, Column]:
    """Return the descriptions of all columns of a table, from the data dictionary.

    Parameters
    ----------
    table
        A table of `columns.yaml`.
    **values
        What to fill in for words in braces, in descriptions and in names of columns.
    """
    rows = _fill_in(_data_dictionary()[table], values)
    return {
        name: {'Description': row} if isinstance(row, str) else row for name, row in rows.items()
    }


@cache
def _data_dictionary() -> Mapping[str, Any]:
    text = resources.files(__package__).joinpath('columns.yaml').read_text('utf-8')
    return dict(yaml.safe_load(text))


def _fill_in(content: Any, values: Mapping[str, object]) -> Any:
    """Fill values into all keys and texts of a nested mapping."""
    if isinstance(content, str):
        return content.format(**values)
    return {_fill_in(key, values): _fill_in(each, values) for key, each in content.items()}


def dataset_description(
    source: Path,
    source_description: Mapping[str, Any],
    derivatives: Mapping[str, Path] | None = None,
    earlier: Mapping[str, str] | None = None,
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
    earlier
        Links of outputs that are there already, to what these were made from.
    """
    links = {name: path.resolve().as_uri() for name, path in (derivatives or {}).items()}
    links = {name: url for name, url in (earlier or {}).items() if name != 'raw'} | links
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
    path = output_path(root, 'dataset_description')
    content = dataset_description(source, source_description, derivatives, _links(path))
    write_json(path, content)
    write_text(output_path(root, 'bidsignore'), '\n'.join(BIDSIGNORE) + '\n')


def other_source(root: Path, source: Path) -> str | None:
    """The dataset that outputs were made from so far, if it is another than `source`."""
    earlier = _links(output_path(root, 'dataset_description')).get('raw')
    return None if earlier == source.resolve().as_uri() else earlier


def _links(path: Path) -> dict[str, str]:
    """Links in a description of outputs; none where there is none that can be read."""
    try:
        links = json.loads(path.read_text(encoding='utf-8')).get('DatasetLinks')
    except (OSError, ValueError, AttributeError):
        return {}
    links = links if isinstance(links, dict) else {}
    return {name: url for name, url in links.items() if isinstance(url, str)}


CHUNK = 1 << 20
"""Bytes of a file held in memory at a time while its digest is taken."""


def digest_of(path: Path) -> str:
    """SHA-256 of a file's content: touching or copying a file does not change it."""
    digest = hashlib.sha256()
    with path.open('rb') as stream:
        for chunk in iter(lambda: stream.read(CHUNK), b''):
            digest.update(chunk)
    return digest.hexdigest()


def digest_of_files(paths: Iterable[Path]) -> str:
    """One digest of several files, of their names and content, in any order."""
    entries = sorted(f'{path.name} {digest_of(path)}' for path in paths)
    return hashlib.sha256('\n'.join(entries).encode()).hexdigest()


def fingerprint(files: Iterable[Path], options: Mapping[str, Any]) -> dict[str, Any]:
    """What the outputs of a participant depend on.

    Parameters
    ----------
    files
        The T1w image, and what is reused of other programs.
    options
        Those that change the outputs, as JSON can hold them.
    """
    digests = {path.name: digest_of(path) for path in files}
    return {'version': __version__, 'inputs': digests, 'options': dict(options)}


def record_path(root: Path, visit: Visit) -> Path:
    """Path of the record of one participant and session."""
    participant, session = visit
    return output_path(root, 'record', participant=participant, session=session)


def digest_of_records(root: Path, visits: Iterable[Visit]) -> str:
    """Return one digest of the records of visits; it changes when an image is processed again."""
    paths = (record_path(root, visit) for visit in visits)
    return digest_of_files(path for path in paths if path.is_file())


def write_record(
    path: Path,
    root: Path,
    made_from: Mapping[str, Any],
    outputs: Iterable[Path],
    warnings: Sequence[str] = (),
) -> Path:
    """Note what was written, with sizes, and what from; the last thing to be written.

    Parameters
    ----------
    path
        Path of the record.
    root
        The output folder.
    made_from
        The fingerprint of what the outputs depend on.
    outputs
        All files that were written.
    warnings
        What users should know of them.
    """
    sizes = {output.relative_to(root).as_posix(): output.stat().st_size for output in outputs}
    content = {'made_from': made_from, 'outputs': dict(sorted(sizes.items()))}
    return write_json(path, {**content, 'warnings': list(warnings)})


@dataclass(frozen=True)
class Record:
    """What was noted of the outputs of one participant and session when they were complete.

    Attributes
    ----------
    root
        The output folder.
    made_from
        The fingerprint of what the outputs depend on; None where there is no usable record.
    outputs
        Size of each output, by its path below the output folder.
    warnings
        What users should know of them.
    """

    root: Path
    made_from: Mapping[str, Any] | None = None
    outputs: Mapping[str, int] = field(default_factory=dict)
    warnings: Sequence[str] = ()

    @classmethod
    def read(cls, root: Path, visit: Visit) -> Self:
        """Read the record of a visit; an empty one where there is none that can be used."""
        try:
            content = json.loads(record_path(root, visit).read_text(encoding='utf-8'))
        except (OSError, ValueError):
            return cls(root)
        parts = ('made_from', 'outputs')
        if not isinstance(content, dict) or any(type(content.get(p)) is not dict for p in parts):
            return cls(root)
        return cls(root, content['made_from'], content['outputs'], content.get('warnings', ()))

    def why_not_done(self, made_from: Mapping[str, Any] | None = None) -> str:
        """Say why the outputs have to be made (again); empty where they are complete.

        Parameters
        ----------
        made_from
            What they should have been made from; None: from whatever it was.
        """
        if self.made_from is None:
            return 'not processed yet'
        before, now = self.made_from, made_from or {}
        changed = [part for part in now if before.get(part) != now[part]]
        if changed:
            return f'{" and ".join(changed)} changed since the outputs were made'
        lost = [name for name, size in self.outputs.items() if _size(self.root / name) != size]
        return f'{lost[0]} is missing or was changed' if lost else ''


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


MASK_METHODS = {
    'stripped': 'The image shows the brain only: where it is not 0',
    'deepbet': 'Found by deepbet',
}
"""How a brain mask was found, by what brain extraction answers; else it is another program's."""


@dataclass(frozen=True)
class Provenance:
    """Where the outputs of a participant come from, as far as it is known before they are made.

    Attributes
    ----------
    t1w, mask, segmentation
        Sources of these outputs, as BIDS URIs.
    atlas, atlas_licence
        Name of the segmentation, and its terms of use.
    template, template_licence
        Name of the template, and its terms of use.
    """

    t1w: Sequence[str]
    mask: Sequence[str]
    segmentation: Sequence[str]
    atlas: str
    atlas_licence: str
    template: str
    template_licence: str


def describe_outputs(
    provenance: Provenance, mask_method: str, atlases: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """Content of the sidecars of a participant, by the names of the outputs.

    Parameters
    ----------
    provenance
        What is known beforehand.
    mask_method
        How the brain mask was found: a key of :data:`MASK_METHODS`, or the name of a program.
    atlases
        Names of the labelled brains that were registered to the image.
    """
    words = MASK_METHODS.get(mask_method, f'Taken from {mask_method}')
    return {
        't1w': {'SkullStripped': mask_method == 'stripped', 'Sources': list(provenance.t1w)},
        'brain_mask': {
            'Type': 'Brain',
            'Sources': list(provenance.mask),
            'Method': mask_method,
            'Description': words,
        },
        'segmentation_volumes': {
            **describe_columns('segmentation_volumes'),
            'Sources': list(provenance.segmentation),
            'Atlas': provenance.atlas,
            'AtlasLicense': provenance.atlas_licence,
            **({'AtlasesUsed': list(atlases)} if atlases else {}),
        },
        'ravens': _describe_ravens(provenance),
    }


def _describe_ravens(provenance: Provenance) -> dict[str, Any]:
    return {
        'Description': 'Share of the tissue in each voxel, in template space, times the Jacobian '
        'determinant of the transform: its integral over a region is the volume of the tissue',
        'Sources': list(provenance.t1w),
        'Template': provenance.template,
        'TemplateLicense': provenance.template_licence,
    }


@dataclass(frozen=True)
class VisitOutputs:
    """Where the outputs of one participant in one session are.

    Attributes
    ----------
    root
        The output folder.
    participant, session
        Labels without their prefixes; None where there are no sessions.
    atlas, template
        Their names.
    """

    root: Path
    participant: str
    session: str | None
    atlas: str
    template: str

    def path(self, name: str, **labels: str) -> Path:
        """Path of an output; `labels` are those of its entities that a visit does not have."""
        known = {
            'participant': self.participant,
            'session': self.session,
            'atlas': self.atlas,
            'template': self.template,
            **labels,
        }
        entities = output_names()[name].entities
        return output_path(self.root, name, **{e: known[e] for e in entities if e in known})

    def sidecar(self, name: str, **labels: str) -> dict[str, Any]:
        """Content of the sidecar of an output."""
        content = sidecar_path(self.path(name, **labels)).read_text(encoding='utf-8')
        return dict(json.loads(content))
