"""Names, sidecars and records of all outputs."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import yaml  # type: ignore[import-untyped]

from surreal_bids import __version__
from surreal_bids.cautions import Caution
from surreal_bids.exceptions import UsageError
from surreal_bids.files import remove_leftovers, require_file, write_json, write_text
from surreal_bids.names import Visit, is_label, without_prefix

BIDS_VERSION = '1.11.2'
"""Version of BIDS that the outputs follow."""

BIDSIGNORE = (
    '*.html',
    '/sub-*/figures',
    '/sub-*/log',
    '/models',
    '/group_*',
    '/phenotype',
    '*_xfm.*',
    '*_ravens.*',
    '/sub-*/**/*_statmap.*',
    '*_desc-quality_T1w.json',
)
"""Outputs without a rule in BIDS, and phenotype, where BIDS allows one row per participant but the
outputs have one per visit or more. A line that ends in a slash has no effect."""

_OPTIONAL = re.compile(r'\[([^\[\]]*)\]')
_ENTITY = re.compile(r'\{(\w+)\}')


@dataclass(frozen=True)
class OutputName:
    """One row of the table of output names.

    Attributes
    ----------
    level
        Level that writes the output: `dataset`, `participant` or `group`.
    path
        Path below the output folder; `{entity}` is filled in, `[...]` omitted without its entity.
    content
        Description of the output.
    allowed
        Allowed values of entities; entities not listed accept any label.
    metadata
        Required fields of the sidecar; None without a sidecar.
    """

    level: str
    path: str
    content: str
    allowed: Mapping[str, list[str]] = field(default_factory=dict)
    metadata: list[str] | None = None

    @property
    def entities(self) -> list[str]:
        """Entities in the path, in order."""
        return list(dict.fromkeys(_ENTITY.findall(self.path)))

    @property
    def optional(self) -> set[str]:
        """Entities that may be omitted."""
        return {entity for part in _OPTIONAL.findall(self.path) for entity in _ENTITY.findall(part)}

    def fill(self, entities: Mapping[str, str]) -> str:
        """Fill in the entities and omit optional parts without their entity."""

        def optional_part(match: re.Match[str]) -> str:
            return match[1] if set(_ENTITY.findall(match[1])) <= set(entities) else ''

        path = _OPTIONAL.sub(optional_part, self.path)
        return _ENTITY.sub(lambda match: entities.get(match[1], match[0]), path)


@cache
def output_names() -> Mapping[str, OutputName]:
    """Read the table of all output names."""
    table = json.loads(resources.files(__package__).joinpath('names.json').read_text('utf-8'))
    return {name: OutputName(**row) for name, row in table.items()}


def group_outputs(root: Path) -> Iterator[Path]:
    """List the outputs of the group level that are there, and their sidecars."""
    for pattern in _group_patterns():
        yield from root.glob(pattern)


def _group_patterns() -> Iterator[str]:
    """Patterns of the names of all outputs of the group level, and of their sidecars."""
    for row in output_names().values():
        if row.level == 'group':
            required = [entity for entity in row.entities if entity not in row.optional]
            names = {row.fill(dict.fromkeys(each, '*')) for each in (required, row.entities)}
            yield from names
            if row.metadata is not None:
                yield from (sidecar_path(Path(name)).as_posix() for name in names)


def discard_outputs(root: Path) -> None:
    """Delete outputs of the group level: first the report, without which they are incomplete."""
    output_path(root, 'group_report').unlink(missing_ok=True)
    for pattern in _group_patterns():
        remove_leftovers(root / pattern)
        for path in list(root.glob(pattern)):
            path.unlink(missing_ok=True)


def output_path(root: str | Path, name: str, **entities: str | None) -> Path:
    """Build the path of an output.

    Parameters
    ----------
    root
        The output folder.
    name
        A name of the table, such as `rindices`.
    **entities
        Labels of its entities; None omits an entity.

    Raises
    ------
    UsageError
        A value is not a BIDS label, and so might contain path separators.
    """
    row = output_names()[name]
    given = {entity: value for entity, value in entities.items() if value is not None}
    if unfit := (set(given) ^ set(row.entities)) - row.optional:
        raise KeyError(f'output {name}: {unfit}')
    for entity, value in given.items():
        if not (value in row.allowed[entity] if entity in row.allowed else is_label(value)):
            raise UsageError(f'output {name}: {entity} {value!r}; use only letters and digits')
    return Path(root) / row.fill(given)


def visit_output(
    root: Path, name: str, participant: str, session: object = None, **entities: str
) -> Path | None:
    """Build the path of an output of a visit as tables write it, with or without prefixes.

    None if an id is not a BIDS label: such participants of tables have no images. A session that is
    not text is missing.
    """
    label = without_prefix(participant, 'sub')
    visit = without_prefix(session, 'ses') if isinstance(session, str) else None
    if not is_label(label) or not (visit is None or is_label(visit)):
        return None
    return output_path(root, name, participant=label, session=visit, **entities)


def sidecar_path(path: str | Path) -> Path:
    """Return the path of the JSON sidecar; files that differ in the extension share it."""
    path = Path(path)
    return path.with_name(path.name.split('.', 1)[0] + '.json')


def write_sidecar(name: str, path: str | Path, metadata: Mapping[str, Any]) -> Path:
    """Write the JSON sidecar of an output.

    Parameters
    ----------
    name
        A name of the table, which lists the required fields.
    path
        Path of the output from :func:`output_path`.
    metadata
        Fields of an image, or descriptions of the columns of a table.
    """
    if missing := set(output_names()[name].metadata or ()) - set(metadata):
        raise KeyError(f'sidecar of {name}: {missing}')
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


def start_dataset(
    root: Path,
    source: Path,
    source_description: Mapping[str, Any],
    derivatives: Mapping[str, Path] | None = None,
) -> None:
    """Write `dataset_description.json` and `.bidsignore`.

    Parameters
    ----------
    root
        Root of the outputs.
    source
        Root of the source dataset, which becomes `bids:raw:`.
    source_description
        Description of the source dataset; its DOI and name are copied.
    derivatives
        Folders of other programs that were used, by their names in `bids:NAME:`; links of earlier
        runs are kept.
    """
    path = output_path(root, 'dataset_description')
    links = {name: url for name, url in _links(path).items() if name != 'raw'}
    links |= {name: link_to(folder, root) for name, folder in (derivatives or {}).items()}
    origin = {'URL': link_to(source, root)}
    doi = source_description.get('DatasetDOI')
    content = {
        'Name': f'surreal_bids outputs of {source_description.get("Name", source.name)}',
        'BIDSVersion': BIDS_VERSION,
        'DatasetType': 'derivative',
        'GeneratedBy': [
            {
                'Name': 'surreal_bids',
                'Version': __version__,
                'Description': 'R-indices of disease-related brain patterns (Surreal-GAN)',
                **_code_and_container(),
            }
        ],
        'DatasetLinks': {'raw': origin['URL'], **links},
        'SourceDatasets': [
            {**origin, 'DOI': doi} if doi else origin,
            *({'URL': url} for url in links.values()),
        ],
    }
    write_json(path, content)
    write_text(output_path(root, 'bidsignore'), '\n'.join(BIDSIGNORE) + '\n')


def link_to(target: Path, root: Path) -> str:
    """Return the location of a dataset for the description of another.

    It is relative to `root` if both are in one folder, so that they can be moved together; and
    absolute if they have nothing in common but the file system.
    """
    target, root = target.resolve(), root.resolve()
    if target.anchor != root.anchor or target.parts[1:2] != root.parts[1:2]:
        return target.as_uri()
    return quote(Path(os.path.relpath(target, root)).as_posix())


def _code_and_container() -> dict[str, Any]:
    """Describe where the code and the container came from, which only the container knows."""
    image, source = os.environ.get('SURREAL_BIDS_IMAGE'), os.environ.get('SURREAL_BIDS_SOURCE')
    described: dict[str, Any] = {'CodeURL': source} if source else {}
    if image:
        inside = {'APPTAINER_CONTAINER', 'SINGULARITY_CONTAINER'} & set(os.environ)
        uri = {'URI': f'docker://{image}'} if '/' in image else {}
        kind = 'singularity' if inside else 'docker'
        described['Container'] = {'Type': kind, 'Tag': image, **uri}
    return described


def other_source(root: Path, source: Path) -> str | None:
    """Return the source dataset of existing outputs if it is not `source`."""
    earlier = _links(output_path(root, 'dataset_description')).get('raw')
    return None if earlier in (None, link_to(source, root)) else earlier


def _links(path: Path) -> dict[str, str]:
    """Read the links of a dataset description; empty if there is none."""
    try:
        return dict(json.loads(path.read_text(encoding='utf-8')).get('DatasetLinks', {}))
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def digest_of(path: Path) -> str:
    """Return the SHA-256 of the content of a file."""
    require_file(path)
    with path.open('rb') as stream:
        return hashlib.file_digest(stream, 'sha256').hexdigest()


def digest_of_files(paths: Iterable[Path]) -> str:
    """Return one digest of the names and content of several files, in any order."""
    entries = sorted(f'{path.name} {digest_of(path)}' for path in paths)
    return hashlib.sha256('\n'.join(entries).encode()).hexdigest()


def fingerprint(files: Iterable[Path], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything that the outputs of an image depend on.

    Parameters
    ----------
    files
        The T1w image and reused results of other programs.
    options
        Options that change the outputs, as JSON can store them.
    """
    digests = {path.name: digest_of(path) for path in files}
    return {'version': __version__, 'inputs': digests, 'options': dict(options)}


def record_path(root: Path, visit: Visit) -> Path:
    """Return the path of the record of a visit."""
    participant, session = visit
    return output_path(root, 'record', participant=participant, session=session)


def digest_of_records(root: Path, visits: Mapping[Visit, Sequence[Any]]) -> str:
    """Return one digest of what reports of visits are made from.

    It changes when an image is processed again, and when what is known of a visit, such as the age,
    is corrected.
    """
    paths = (record_path(root, visit) for visit in visits)
    records = digest_of_files(path for path in paths if path.is_file())
    known = json.dumps([list(each) for each in visits.values()])
    return hashlib.sha256(f'{records} {known}'.encode()).hexdigest()


def write_record(
    path: Path,
    root: Path,
    made_from: Mapping[str, Any],
    outputs: Iterable[Path],
    warnings: Sequence[Caution] = (),
) -> Path:
    """Write the record of complete outputs: fingerprint, file sizes and warnings.

    Parameters
    ----------
    path
        Path of the record.
    root
        The output folder.
    made_from
        Fingerprint of everything that the outputs depend on.
    outputs
        All files that were written.
    warnings
        Warnings of the processing steps.
    """
    sizes = {output.relative_to(root).as_posix(): output.stat().st_size for output in outputs}
    content = {'made_from': made_from, 'outputs': dict(sorted(sizes.items()))}
    return write_json(path, {**content, 'warnings': list(warnings)})


@dataclass(frozen=True)
class Record:
    """Record of the complete outputs of one visit.

    Attributes
    ----------
    root
        The output folder.
    made_from
        Fingerprint of everything that the outputs depend on; None without a record.
    outputs
        Size of each output by its path below the output folder.
    warnings
        Warnings of the processing steps.
    """

    root: Path
    made_from: Mapping[str, Any] | None = None
    outputs: Mapping[str, int] = field(default_factory=dict)
    warnings: Sequence[Caution] = ()

    @classmethod
    def read(cls, root: Path, visit: Visit) -> Self:
        """Read the record of a visit; without a readable one, return an empty record."""
        try:
            content = json.loads(record_path(root, visit).read_text(encoding='utf-8'))
        except (OSError, ValueError):
            return cls(root)
        warnings = [Caution(*each) for each in content['warnings']]
        return cls(root, content['made_from'], content['outputs'], warnings)

    def why_not_done(self, made_from: Mapping[str, Any] | None = None) -> str:
        """Explain why the outputs are not complete; empty if they are.

        Parameters
        ----------
        made_from
            Fingerprint to compare; None accepts any.
        """
        if self.made_from is None:
            return 'not processed yet'
        before, now = self.made_from, made_from or {}
        changed = [part for part in now if before.get(part) != now[part]]
        if changed:
            return f'{" and ".join(changed)} changed since the outputs were made'
        lost = [
            name
            for name, size in self.outputs.items()
            if not (path := self.root / name).is_file() or path.stat().st_size != size
        ]
        return f'{lost[0]} is missing or was changed' if lost else ''


MASK_METHODS = {
    'stripped': 'Non-zero voxels of the skull-stripped image',
    'deepbet': 'Computed with deepbet',
}
"""Descriptions of the brain mask by method; other masks are from other programs."""


LESION_IN_VOLUMES = {
    True: 'Volumes include this part, as it may have been before the lesion',
    False: 'Another program made the label map, and volumes include this part as it labelled it',
}
"""What volumes tell of a lesion, by whether the regions were computed here."""


@dataclass(frozen=True)
class Provenance:
    """Sources and licences of the outputs of an image.

    Attributes
    ----------
    t1w, mask, segmentation
        Sources of these outputs as BIDS URIs.
    atlas, atlas_licence
        Name of the segmentation and its licence.
    regions_computed
        False if another program made the segmentation.
    """

    t1w: Sequence[str]
    mask: Sequence[str]
    segmentation: Sequence[str]
    atlas: str
    atlas_licence: str
    regions_computed: bool = True


def describe_outputs(
    provenance: Provenance, mask_method: str, atlases: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """Return the content of the sidecars by the names of the outputs.

    Parameters
    ----------
    provenance
        Sources and licences.
    mask_method
        Method of the brain mask: a key of :data:`MASK_METHODS`, or the name of a program.
    atlases
        Names of the atlases that were registered to the image.
    """
    # Imported here because SciPy is slow to import.
    from surreal_bids.templates import BUILTIN_LICENCE, TEMPLATE_SPACE

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
            **describe_columns(
                'segmentation_volumes', lesion=LESION_IN_VOLUMES[provenance.regions_computed]
            ),
            'RegionsComputed': provenance.regions_computed,
            'Sources': list(provenance.segmentation),
            'Atlas': provenance.atlas,
            'AtlasLicense': provenance.atlas_licence,
            **({'AtlasesUsed': list(atlases)} if atlases else {}),
        },
        'ravens': {
            'Description': 'Partial-volume fraction of the tissue in template space, multiplied by '
            'the Jacobian determinant of the transform; the integral over a region is the tissue '
            'volume',
            'Sources': list(provenance.t1w),
            'Template': TEMPLATE_SPACE,
            'TemplateLicense': BUILTIN_LICENCE,
        },
    }


def read_quality(path: Path) -> dict[str, Any]:
    """Read the quality of an image; empty if it was not processed."""
    return json.loads(path.read_text(encoding='utf-8')) if path.is_file() else {}


@dataclass(frozen=True)
class VisitOutputs:
    """Paths of the outputs of one visit.

    Attributes
    ----------
    root
        The output folder.
    participant, session
        Labels without prefixes; the session is None without sessions.
    atlas
        Name of the segmentation.
    """

    root: Path
    participant: str
    session: str | None
    atlas: str

    def path(self, name: str, **labels: str) -> Path:
        """Return the path of an output; `labels` are entities other than those of the visit."""
        known = {**vars(self), **labels}
        entities = output_names()[name].entities
        return output_path(self.root, name, **{e: known[e] for e in entities if e in known})

    def sidecar(self, name: str, **labels: str) -> dict[str, Any]:
        """Read the sidecar of an output."""
        content = sidecar_path(self.path(name, **labels)).read_text(encoding='utf-8')
        return dict(json.loads(content))
