"""Find results of other programs for a T1w image in the folders of `--derivatives`.

File names follow fMRIPrep and sMRIPrep 20 to 25. A name keeps the entities that all source images
share: the average of two runs has no `run`, that of two sessions has neither `ses` nor `run`. A
result is used only if all T1w images that its name allows are of one session and acquisition.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

from surreal_bids.bids.layout import DESCRIPTION, T1wImage, read_description
from surreal_bids.config import NETWORK, AppConfig, uses_network
from surreal_bids.exceptions import DataError, NotBIDSError, UsageError
from surreal_bids.files import require_file
from surreal_bids.names import is_label
from surreal_bids.regions import FREESURFER_KINDS, MUSE
from surreal_bids.templates import TEMPLATE_SPACE, TISSUES
from surreal_bids.text import list_briefly

ANATOMY = ('fmriprep', 'smriprep')
"""Names of folders with outputs of an anatomical workflow; other folders hold segmentations."""

LESIONS = 'lesions'
"""Name of a folder with lesion masks."""

LESION_MASKS = ('label-lesion_mask', 'label-lesion_roi')
"""Endings of the names of lesion masks, in such a folder or beside the T1w image; fMRIPrep reads
`sub-01_T1w_label-lesion_roi.nii.gz`."""

NICHART_ENDING = '_DLMUSE.nii.gz'
"""What NiChart adds to the name of the image: `01_T1_DLMUSE.nii.gz` for `01_T1.nii.gz`."""


class Program(NamedTuple):
    """What is known of a program by the name of its folder.

    Attributes
    ----------
    inside
        Folders below that may hold the results: `OUT/fmriprep` until fMRIPrep 20.2 and with
        `--output-layout legacy`, `OUT/sourcedata/freesurfer` in later versions.
    files
        Segmentations in the folder `mri` of each subject, in order of preference.
    labels
        Numbering of labels of its segmentations; a table of labels takes precedence.
    """

    inside: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    labels: str = ''


PROGRAMS = {
    'fmriprep': Program(('fmriprep',)),
    'smriprep': Program(('smriprep',)),
    # FastSurfer comes first because it also writes files with the names of FreeSurfer.
    'fastsurfer': Program(
        ('fastsurfer', 'sourcedata/fastsurfer'),
        ('aparc.DKTatlas+aseg.deep.mgz',),
        'aparc.DKTatlas+aseg.deep',
    ),
    'freesurfer': Program(
        ('freesurfer', 'sourcedata/freesurfer'),
        ('aparc+aseg.mgz', 'aparc.DKTatlas+aseg.mgz', 'aseg.mgz'),
        'aparc+aseg',
    ),
    'dlmuse': Program(('DLMUSE', 'DLMUSE_seg', 'dlmuse_seg'), labels=MUSE),
    'muse': Program(labels=MUSE),
    'synthseg': Program(labels='synthseg'),
}
"""Programs by the names of their folders; other names are those of segmentations."""

ACQUISITION = ('acq', 'ce', 'rec', 'echo', 'inv', 'chunk')
"""Entities of the kind of T1w image; images of different kinds must not be averaged."""

KIND = ('ses', *ACQUISITION)
"""Entities that tell sessions and acquisitions apart."""

RAW_ENTITIES = ('ses', 'run', 'part', 'task', 'dir', *ACQUISITION)
"""Entities that derivatives keep from the name of the raw image."""

NATIVE = frozenset({None, 'T1w', 'orig'})
"""Values of the entity `space` that mean the space of the T1w image."""

IMAGES = ('.nii.gz', '.nii', '.mgz')
TRANSFORMS = ('.h5', '.nii.gz', '.nii')
"""Extensions; transforms are ITK composites or displacement fields."""

MISSPELT = 0.85
"""Similarity to the name of a program from which a name counts as misspelt: fmriprp has 0.93."""

SEGMENTATIONS = ('dseg', 'DLMUSE', 'synthseg')
"""Suffixes of segmentations in BIDS, NiChart DLMUSE and SynthSeg."""

CHOOSING = ('desc', 'seg', 'atlas')
"""Entities that are compared with the name of the folder to choose one of several segmentations."""

SHARED_NAMES = {'aseg': 'aseg', 'aparcaseg': 'aparc+aseg'}
"""Kinds of FreeSurfer segmentations by their `desc` in the outputs of fMRIPrep. As the name of the
folder, such a `desc` selects this segmentation."""


def derivative_folders(config: AppConfig) -> dict[str, Path]:
    """Return the folders of `--derivatives` by their names, which are given or recognised.

    Raises
    ------
    UsageError
        A path is no folder, a name is given twice, or the program is not recognised.
    """
    folders: dict[str, Path] = {}
    for text in config.derivatives:
        name, path = _split(text)
        if not path.is_dir():
            remedy = 'correct the path' if name else 'give an existing folder, or NAME=PATH'
            raise UsageError(f'--derivatives {text}: no such folder; {remedy}')
        _refuse_misspelt(text, name)
        name = name or _recognise(text, path)
        if name in folders:
            raise UsageError(f'--derivatives {text}: {name} is given twice; use another name')
        folders[name] = _inner(name, path.absolute())
    return folders


def _split(text: str) -> tuple[str, Path]:
    """Split `NAME=PATH`; the name is empty for a path alone."""
    name, equals, path = text.partition('=')
    if equals and '/' not in name:
        if not (name and path):
            raise UsageError(
                f'--derivatives {text}: expected NAME=PATH, such as fmriprep=/data/out, or a path'
            )
        return name, Path(path)
    return '', Path(text)


def _refuse_misspelt(text: str, name: str) -> None:
    """Refuse a name that is nearly that of a program: it would count as a new segmentation."""
    known = (*PROGRAMS, LESIONS)
    if name in known:
        return
    near = difflib.get_close_matches(name.lower(), known, 1, MISSPELT)
    if not near:
        return
    # A number may tell two segmentations of one program apart, as in freesurfer7.
    is_numbered = re.fullmatch(rf'{near[0]}\W?\d.*', name) and near[0] not in (*ANATOMY, LESIONS)
    if not is_numbered:
        raise UsageError(
            f'--derivatives {text}: did you mean {near[0]}? Correct the name; the name of another '
            'segmentation should differ more from it'
        )


def _recognise(text: str, path: Path) -> str:
    """Recognise the program that wrote a folder by its description or its files."""
    for folder in (path, *(path / name for name in ANATOMY)):
        if name := _program(folder):
            return name
    for name, program in PROGRAMS.items():
        if any(next(path.glob(f'*/mri/{file}'), None) for file in program.files):
            return name
    if any(next(path.glob(f'{below}*{NICHART_ENDING}'), None) for below in ('', '*/')):
        return 'dlmuse'
    raise UsageError(
        f'--derivatives {text}: the program is not recognised; the folder has no {DESCRIPTION} '
        'with GeneratedBy, no mri/aparc+aseg.mgz of FreeSurfer and no '
        f'*{NICHART_ENDING} of NiChart; give a name, such as fmriprep={text}'
    )


def _program(folder: Path) -> str:
    """Read the name of the program in the description of a dataset, letters and digits only."""
    try:
        description = read_description(folder)
    except NotBIDSError:
        return ''
    # PipelineDescription is the name of the field in BIDS 1.3 and fMRIPrep 20.1.
    programs = description.get('GeneratedBy') or description.get('PipelineDescription')
    first = programs[0] if isinstance(programs, list) else programs
    name = str(first.get('Name', '')) if isinstance(first, dict) else ''
    return ''.join(filter(is_label, name.lower()))


def _inner(name: str, path: Path) -> Path:
    """Find the folder that holds the participants."""
    program = PROGRAMS.get(name, Program())
    if next(path.glob('*/mri' if program.files else 'sub-*'), None) is not None:
        return path
    inner = (path / below for below in program.inside)
    return next((folder for folder in inner if folder.is_dir()), path)


def segmentation_label(config: AppConfig) -> str:
    """Return the value of the entity `seg` in the names of outputs.

    It is the name of the segmentation in `--derivatives`, or else the name of the atlas.
    """
    others = (*ANATOMY, LESIONS)
    names = [name for name in derivative_folders(config) if name not in others]
    if len(names) > 1:
        raise UsageError(f'--derivatives: {" and ".join(names)} are segmentations; give only one')
    if names and not is_label(names[0]):
        raise UsageError(f'--derivatives {names[0]}: use letters and digits only in the name')
    return names[0] if names else atlas_label(config)


def atlas_label(config: AppConfig) -> str:
    """Return the name of the atlas: that of its folder, letters and digits only, or `network`."""
    if uses_network(config):
        return NETWORK
    name = Path(config.segmentation).resolve().name
    label = ''.join(letter for letter in name if is_label(letter))
    if not label:
        raise UsageError(
            f'--segmentation {config.segmentation}: rename the folder with letters or digits'
        )
    return label


LESION = 'lesion mask'
"""Meaning of this file among the files of :class:`Reusable`."""


@dataclass(frozen=True)
class Reusable:
    """Existing results for one T1w image; None or empty where there is none.

    Attributes
    ----------
    anatomy_name, t1w, mask
        Name of the anatomical program, the corrected T1w image and its brain mask.
    tpms
        Probabilities of GM, WM and CSF, in this order.
    anat2std_xfm, std2anat_xfm
        ITK transforms to the template and back.
    dseg, dseg_name, dseg_table
        Segmentation, its name, and the table of its labels.
    numbering
        Labels of the segmentation without a table: `muse`, or one of
        :data:`surreal_bids.regions.FREESURFER_KINDS`.
    lesion, lesion_name
        Lesion mask, unless it is empty, and the name of its folder; None if it is beside the T1w
        image.
    refused
        Reasons why existing results are not used, by the name of the program.
    """

    anatomy_name: str | None = None
    t1w: Path | None = None
    mask: Path | None = None
    tpms: tuple[Path, ...] = ()
    anat2std_xfm: Path | None = None
    std2anat_xfm: Path | None = None
    dseg: Path | None = None
    dseg_name: str | None = None
    dseg_table: Path | None = None
    numbering: str = MUSE
    lesion: Path | None = None
    lesion_name: str | None = None
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the programs whose results are used."""
        names = (self.anatomy_name, self.dseg_name, self.lesion_name)
        return tuple(name for name in names if name)

    @property
    def files(self) -> dict[str, Path]:
        """All files by their meaning."""
        single = {
            'T1w image': self.t1w,
            'brain mask': self.mask,
            'transform to the template': self.anat2std_xfm,
            'transform from the template': self.std2anat_xfm,
            'segmentation': self.dseg,
            'names of its labels': self.dseg_table,
            LESION: self.lesion,
        }
        found = {meaning: path for meaning, path in single.items() if path}
        return found | {f'{tissue} map': path for tissue, path in zip(TISSUES, self.tpms)}

    def found_in(self, name: str) -> dict[str, bool]:
        """Tell which of the possible results of a program were found."""
        if name == LESIONS:
            return {LESION: self.lesion_name == name}
        if name not in ANATOMY:
            return {'segmentation': self.dseg_name == name}
        here = self.anatomy_name == name
        return {
            'T1w image': here,
            'brain mask': here and self.mask is not None,
            'tissue maps': here and bool(self.tpms),
            'transforms': here and self.anat2std_xfm is not None,
        }


def find_reusable(folders: Mapping[str, Path], image: T1wImage) -> Reusable:
    """Find all results that can replace a computation.

    Parameters
    ----------
    folders
        Folders of other programs by name; see :func:`derivative_folders`.
    image
        The T1w image.
    """
    found = _add_lesion(Reusable(), None, _named_for(image.path.parent, image), image)
    for name, folder in folders.items():
        if name in ANATOMY:
            found = _add_anatomy(found, name, folder, image)
        elif name == LESIONS:
            found = _add_lesion(found, name, _files_of(folder, image), image)
        else:
            found = _add_segmentation(found, name, folder, image)
    for path in found.files.values():
        require_file(path)
    return found


@dataclass(frozen=True)
class _File:
    """A file of another program, with the entities of its name or of its folder."""

    path: Path
    entities: Mapping[str, str]

    @property
    def raw_entities(self) -> dict[str, str]:
        """Entities that the file shares with its raw images."""
        return _raw_entities(self.entities)

    def ends_in(self, ending: str, extensions: Iterable[str] = IMAGES) -> bool:
        """Tell whether the name has this ending and one of the extensions."""
        return any(self.path.name.endswith(f'_{ending}{extension}') for extension in extensions)


def _add_anatomy(found: Reusable, name: str, folder: Path, image: T1wImage) -> Reusable:
    """Add the outputs of an anatomical workflow; without a T1w image, none is used."""
    files = _files_of(folder, image)
    t1w = _choose([each for each in files if each.ends_in('desc-preproc_T1w')], image, name)
    if t1w is None:
        return found
    same_sources = [each for each in files if each.raw_entities == t1w.raw_entities]
    beside = partial(_beside, same_sources, t1w, image)
    if reason := _why_not(t1w, image):
        return replace(found, refused={**found.refused, name: reason})
    maps = [beside(f'label-{tissue}_probseg') for tissue in TISSUES]
    there = beside(f'from-T1w_to-{TEMPLATE_SPACE}_mode-image_xfm', TRANSFORMS)
    back = beside(f'from-{TEMPLATE_SPACE}_to-T1w_mode-image_xfm', TRANSFORMS)
    return replace(
        found,
        anatomy_name=name,
        t1w=t1w.path,
        mask=beside('desc-brain_mask'),
        tpms=tuple(filter(None, maps)) if all(maps) else (),
        anat2std_xfm=there if back else None,
        std2anat_xfm=back if there else None,
    )


def _beside(
    files: Iterable[_File],
    t1w: _File,
    image: T1wImage,
    ending: str,
    extensions: Sequence[str] = IMAGES,
) -> Path | None:
    """Find a result of the same source images; an image must have the `res` of the T1w image."""
    resolutions = {t1w.entities.get('res')} if extensions is IMAGES else {None}
    meant = [each for each in files if each.ends_in(ending, extensions)]
    same_grid = [each for each in meant if each.entities.get('res') in resolutions]
    chosen = _choose(same_grid, image, ending)
    return chosen.path if chosen else None


def _add_lesion(
    found: Reusable, name: str | None, files: Iterable[_File], image: T1wImage
) -> Reusable:
    masks = [each for each in files if any(map(each.ends_in, LESION_MASKS))]
    lesion = _choose(masks, image, LESIONS)
    return replace(found, lesion=lesion.path, lesion_name=name) if lesion else found


def _add_segmentation(found: Reusable, name: str, folder: Path, image: T1wImage) -> Reusable:
    candidates = [
        each
        for each in _files_of(folder, image)
        if any(each.ends_in(ending) for ending in SEGMENTATIONS)
        and (name not in SHARED_NAMES or each.entities.get('desc') == name)
    ]
    others = (*_reconstructions(name, folder, image), *_named_like_image(folder, image))
    dseg = _choose([*candidates, *others], image, name)
    if dseg is None:
        return found
    if reason := _why_not(dseg, image):
        return replace(found, refused={**found.refused, name: reason})
    table, numbering = _label_names(name, folder, dseg)
    return replace(found, dseg=dseg.path, dseg_name=name, dseg_table=table, numbering=numbering)


def _reconstructions(name: str, folder: Path, image: T1wImage) -> Iterator[_File]:
    """Yield the preferred segmentation of each FreeSurfer or FastSurfer folder."""
    wanted = [file for program in PROGRAMS.values() for file in program.files]
    # aseg.mgz alone is left by a failed reconstruction, so only `-d aseg=PATH` uses it.
    named = [file for file in wanted if _letters(_stem(file)) == _letters(name)]
    usual = [file for file in wanted if file != 'aseg.mgz']
    sub = f'sub-{image.participant}'
    for subject in (folder / sub, *_starting_with(folder, f'{sub}_'), folder / image.participant):
        paths = [path for file in named or usual if os.path.lexists(path := subject / 'mri' / file)]
        entities = _entities(subject.name)
        if paths and _may_belong(entities, image):
            yield _File(paths[0], entities)


def _named_like_image(folder: Path, image: T1wImage) -> list[_File]:
    """List segmentations of NiChart whose names have the participant's label, but no `sub-`."""
    index = _index_of_nichart(folder, folder.stat().st_mtime_ns)
    of_all = [_File(path, {}) for path in index.get((image.participant, ''), [])]
    if image.session is None:
        return of_all
    own = index.get((image.participant, image.session), [])
    return [*(_File(path, {'ses': image.session}) for path in own), *of_all]


@lru_cache(maxsize=4)
def _index_of_nichart(folder: Path, changed: int) -> dict[tuple[str, str], list[Path]]:
    """Index the segmentations of NiChart by participant and session, which may be empty.

    Labels in BIDS have letters and digits only: `IXI012-HH-1211_T1` is of `sub-IXI012HH1211`, and
    `01_ses-2_T1` of session 2 of `sub-01`. `1-1` may be another participant than `sub-11`, so that
    numbers are not joined. `changed`, the time of the last change, is only a key.
    """
    index: dict[tuple[str, str], list[Path]] = {}
    for path in sorted(folder.glob(f'*{NICHART_ENDING}')):
        made_from = re.sub('_T1w?$', '', path.name.removesuffix(NICHART_ENDING))
        participant, _, session = made_from.partition('_')
        joined = participant.replace('-', '')
        label = participant if joined.isdecimal() else joined
        index.setdefault((label, session.removeprefix('ses-')), []).append(path)
    return index


def _files_of(folder: Path, image: T1wImage) -> list[_File]:
    """List the files in native space whose names allow that they are of this image."""
    sub = f'sub-{image.participant}'
    places = [folder / sub / 'anat', folder / sub, folder]
    if image.session:
        visit = folder / sub / f'ses-{image.session}'
        places = [visit / 'anat', visit, *places]
    return [each for place in places for each in _named_for(place, image)]


def _named_for(folder: Path, image: T1wImage) -> list[_File]:
    """List the files in one folder; see :func:`_files_of`."""
    paths = _starting_with(folder, f'sub-{image.participant}_')
    files = [_File(path, _entities(path.name)) for path in paths]
    return [
        each
        for each in files
        if each.entities.get('space') in NATIVE and _may_belong(each.entities, image)
    ]


def _starting_with(folder: Path, prefix: str) -> list[Path]:
    """List the entries of a folder that start with a prefix, in half the time of a glob."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 (thousands of names for each image)
    except OSError:
        return []
    return [folder / name for name in sorted(n for n in names if n.startswith(prefix))]


def _may_belong(entities: Mapping[str, str], image: T1wImage) -> bool:
    """Tell whether the entities of a name do not contradict those of the image."""
    if entities.get('sub', image.participant) != image.participant:
        return False
    return _raw_entities(entities).items() <= _own(image).items()


def _choose(files: Iterable[_File], image: T1wImage, name: str) -> _File | None:
    """Choose the file whose name has most of the image's entities.

    Among these, a file without `res-` is preferred to resampled ones, and a segmentation whose
    `desc-`, `seg-` or `atlas-` is the name to others.
    """
    left = list(files)
    most = max((len(each.raw_entities) for each in left), default=0)
    for is_preferred in (
        lambda each: len(each.raw_entities) == most,
        lambda each: 'res' not in each.entities,
        lambda each: _letters(name) in {_letters(each.entities.get(e, '')) for e in CHOOSING},
    ):
        left = [each for each in left if is_preferred(each)] or left
    if len(left) > 1:
        listed = list_briefly(each.path.name for each in left)
        raise DataError(
            f'{image.name}: {len(left)} files in {left[0].path.parent} match: {listed}; keep one '
            'of them, or name the segmentation after its desc-, for example -d aseg=PATH'
        )
    return left[0] if left else None


def _why_not(file: _File, image: T1wImage) -> str:
    """Explain why a result is not used: its name allows several kinds of images; else empty."""
    others = [_raw_entities(_entities(name)) for name in _siblings(image)]
    named = file.raw_entities.items()
    allowed = [_own(image), *(each for each in others if named <= each.items())]
    kinds = {'_'.join(f'{k}-{each[k]}' for k in KIND if k in each) or 'none' for each in allowed}
    if len(kinds) == 1:
        return ''
    listed = ', '.join(sorted(kinds))
    return f'{file.path} may be from several sessions or acquisitions ({listed})'


def _siblings(image: T1wImage) -> list[str]:
    """List the names of all T1w images of the participant in the dataset."""
    folder = image.path.parents[2 if image.session else 1]
    found = [*folder.glob('anat/*.nii*'), *folder.glob('ses-*/anat/*.nii*')]
    return [path.name for path in found if _stem(path.name).endswith('_T1w')]


def _label_names(name: str, folder: Path, dseg: _File) -> tuple[Path | None, str]:
    """Find the table of the labels of a segmentation, or the numbering of the labels.

    The table is beside the image, or in the root of the dataset. Tables of FreeSurfer segmentations
    are built in, because those of fMRIPrep list every region of FreeSurfer.
    """
    path = dseg.path
    beside = path.with_name(f'{_stem(path.name)}.tsv')
    if beside.is_file():
        return beside, MUSE
    if kind := _freesurfer_kind(dseg):
        return None, kind
    shared = [each for each in folder.glob('*dseg.tsv') if not each.name.startswith('sub-')]
    parts = _stem(path.name).split('_')
    own = [each for each in shared if all(part in parts for part in _stem(each.name).split('_'))]
    if table := next(iter((*own, *shared[: len(shared) == 1])), None):
        return table, MUSE
    known = PROGRAMS.get(name.lower(), Program()).labels
    if dseg.ends_in('DLMUSE') or known:
        return None, known or MUSE
    raise DataError(
        f'{path}: no table of its labels was found; add {folder / "dseg.tsv"} with the columns '
        'index and name, or name the segmentation dlmuse if it has the labels of MUSE'
    )


def _freesurfer_kind(dseg: _File) -> str | None:
    """Return which labels of FreeSurfer a file has, by its name; None for other files."""
    if dseg.ends_in('synthseg'):
        return 'synthseg'
    kind = dseg.path.name.removesuffix('.mgz')
    if kind in FREESURFER_KINDS and kind != dseg.path.name:
        return kind
    return SHARED_NAMES.get(dseg.entities.get('desc', ''))


def _own(image: T1wImage) -> dict[str, str]:
    """Return the entities of the image that its derivatives keep."""
    named = {'ses': image.session, 'run': image.run}
    return _raw_entities(_entities(image.path.name) | {key: v for key, v in named.items() if v})


def _raw_entities(entities: Mapping[str, str]) -> dict[str, str]:
    """Return the entities of raw images; a run is a number, so its leading zeros are dropped."""
    kept = {key: value for key, value in entities.items() if key in RAW_ENTITIES}
    return kept | ({'run': kept['run'].lstrip('0')} if 'run' in kept else {})


def _stem(name: str) -> str:
    """Remove the extension of a name; names of FreeSurfer contain dots."""
    return re.sub(r'\.(nii(\.gz)?|mgz|h5|json|tsv|txt)$', '', name)


def _letters(text: str) -> str:
    return ''.join(filter(str.isalnum, text.lower()))


def _entities(name: str) -> dict[str, str]:
    parts = (part.partition('-') for part in _stem(name).split('_'))
    return {key: value for key, hyphen, value in parts if hyphen}
