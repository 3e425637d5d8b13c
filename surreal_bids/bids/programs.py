"""Folders of other programs' results: what each is called, and where in it the results are."""

from __future__ import annotations

from pathlib import Path

from surreal_bids.bids.layout import DESCRIPTION, is_label, read_description
from surreal_bids.config import BUILTIN_ATLAS, NETWORK, AppConfig, uses_network
from surreal_bids.exceptions import NotBIDSError, UsageError

ANATOMY = ('fmriprep', 'smriprep')
"""Names under which a folder holds an anatomical workflow's outputs; others, segmentations."""

RECONSTRUCTIONS = {
    'fastsurfer': ('aparc.DKTatlas+aseg.deep.mgz',),
    'freesurfer': ('aparc+aseg.mgz', 'aparc.DKTatlas+aseg.mgz', 'aseg.mgz'),
}
"""Segmentations in the `mri` of each subject, by the program that writes them, the best first.
FastSurfer comes first, since it also writes files under the names of FreeSurfer."""

LEGACY = {name: (name,) for name in ANATOMY} | {
    name: (name, f'sourcedata/{name}') for name in RECONSTRUCTIONS
}
"""Where results are below the folder of outputs: `OUT/fmriprep` until fMRIPrep 20.2, and with
`--output-layout legacy` later; `OUT/sourcedata/freesurfer` since."""


def derivative_folders(config: AppConfig) -> dict[str, Path]:
    """Folders of other programs' results by the names they were given, or that they show.

    Raises
    ------
    UsageError
        If one is not a folder, has the name of another, or has no name and shows none.
    """
    folders: dict[str, Path] = {}
    for text in config.derivatives:
        name, path = _split(text)
        if not path.is_dir():
            remedy = 'correct the path' if name else 'give an existing one, or NAME=PATH'
            raise UsageError(f'--derivatives {text}: no such folder; {remedy}')
        name = name or _recognise(text, path)
        if name in folders:
            raise UsageError(f'--derivatives {text}: {name} is given twice; use another name')
        folders[name] = _inner(name, path.absolute())
    return folders


def _split(text: str) -> tuple[str, Path]:
    """Name and path; the name is empty where only a path is given."""
    name, equals, path = text.partition('=')
    if equals and '/' not in name:
        if not (name and path):
            raise UsageError(
                f'--derivatives {text}: expected NAME=PATH, as fmriprep=/data/fmriprep, or a path'
            )
        return name, Path(path)
    return '', Path(text)


def _recognise(text: str, path: Path) -> str:
    """The name of the program that wrote a folder, by its description or its files."""
    for folder in (path, *(path / name for name in ANATOMY)):
        if name := _program(folder):
            return name
    for name, files in RECONSTRUCTIONS.items():
        if any(next(path.glob(f'*/mri/{file}'), None) for file in files):
            return name
    raise UsageError(
        f'--derivatives {text}: no {DESCRIPTION} there that says which program wrote it '
        '(GeneratedBy), and no mri/aparc+aseg.mgz of FreeSurfer; give its name, as '
        f'fmriprep={text}'
    )


def _program(folder: Path) -> str:
    """Name of the program in a dataset's description, letters and digits only."""
    try:
        description = read_description(folder)
    except NotBIDSError:
        return ''
    # Until BIDS 1.4, and fMRIPrep 20.1, the field had the second name.
    programs = description.get('GeneratedBy') or description.get('PipelineDescription')
    first = programs[0] if isinstance(programs, list) else programs
    name = str(first.get('Name', '')) if isinstance(first, dict) else ''
    return ''.join(filter(is_label, name.lower()))


def _inner(name: str, path: Path) -> Path:
    """The folder that holds the participants."""
    if next(path.glob('*/mri' if name in RECONSTRUCTIONS else 'sub-*'), None) is not None:
        return path
    inner = (path / below for below in LEGACY.get(name, ()))
    return next((folder for folder in inner if folder.is_dir()), path)


def segmentation_label(config: AppConfig) -> str:
    """Value of the entity `seg` under which regions are found in the outputs.

    It is the name given to an existing segmentation, if there is one, or else that of the atlas.
    """
    names = [name for name in derivative_folders(config) if name not in ANATOMY]
    if len(names) > 1:
        raise UsageError(f'--derivatives: {" and ".join(names)} are segmentations; give one')
    if names and not is_label(names[0]):
        raise UsageError(f'--derivatives {names[0]}: use letters and digits only in the name')
    return names[0] if names else atlas_label(config)


def atlas_label(config: AppConfig) -> str:
    """Name of the atlas: that of its folder, letters and digits only; `network` without one."""
    if uses_network(config):
        return NETWORK
    if config.atlas == BUILTIN_ATLAS:
        return BUILTIN_ATLAS
    name = Path(config.atlas).resolve().name
    label = ''.join(letter for letter in name if is_label(letter))
    if not label:
        raise UsageError(f'--atlas {config.atlas}: rename the folder: letters a-z and digits')
    return label
