"""What other programs have already made of a T1w image, found by its name in their folders.

Names follow what fMRIPrep and sMRIPrep 20 to 25 write. They keep the entities that all T1w images
behind a result share: of one image, all of them; of two runs, all but `run`; of two sessions,
neither `ses` nor `run`. Such a result is used only if it was made of this session and acquisition.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from surreal_bids.bids.layout import T1wImage
from surreal_bids.bids.programs import ANATOMY, RECONSTRUCTIONS
from surreal_bids.exceptions import DataError
from surreal_bids.regions import FREESURFER_KINDS, MUSE
from surreal_bids.templates import TISSUES
from surreal_bids.text import list_briefly

ACQUISITION = ('acq', 'ce', 'rec', 'echo', 'inv', 'chunk')
"""Entities that tell one kind of T1w image from another, which are not to be averaged."""

VISIT = ('ses', 'run', 'part', 'task', 'dir', *ACQUISITION)
"""Entities of a raw image that its derivatives keep; some, no T1w image has."""

NATIVE = frozenset({None, 'T1w', 'orig'})
"""Values of the entity `space` of images that lie where the T1w image lies."""

IMAGES = ('.nii.gz', '.nii', '.mgz')
TRANSFORMS = ('.h5', '.nii.gz', '.nii')
"""Extensions, the preferred first; transforms are composites of ITK, or displacement fields."""

SEGMENTATIONS = ('dseg', 'DLMUSE', 'synthseg')
"""How names of segmentations end: in BIDS, and as NiChart's DLMUSE and SynthSeg write them."""

CHOOSING = ('desc', 'seg', 'atlas')
"""Entities by which a name given by the user chooses one of several segmentations."""

NUMBERED = {
    'muse': MUSE,
    'dlmuse': MUSE,
    'freesurfer': 'aparc+aseg',
    'fastsurfer': 'aparc.DKTatlas+aseg.deep',
    'synthseg': 'synthseg',
}
"""How labels are numbered, by the name of the segmentation, unless a table names them."""

SHARED_NAMES = {'aseg': 'aseg', 'aparcaseg': 'aparc+aseg'}
"""Kind of a segmentation of FreeSurfer by its `desc` among fMRIPrep's outputs; as the name of the
folder, it asks for this one."""

_ORIGINAL = re.compile(r'_from-orig_to-T1w_mode-image_xfm\.\w+')
"""Transform of one raw T1w image to the reference that was made of several."""


@dataclass(frozen=True)
class Reusable:
    """What need not be computed for one T1w image; None or empty where it must be.

    Attributes
    ----------
    anatomy_name, t1w, mask
        The program that made them, the corrected T1w image and its brain mask.
    tpms
        Probabilities of GM, WM and CSF, in this order.
    anat2std_xfm, std2anat_xfm
        Transforms to the template and back, as ITK has them.
    dseg, dseg_name, dseg_table
        A segmentation, the name it goes by, and the table that names its labels.
    numbering
        Which labels the segmentation has, where no table names them: `muse`, or one of
        :data:`surreal_bids.regions.FREESURFER_KINDS`.
    refused
        Why results that are there are not of this image.
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
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the programs."""
        return tuple(name for name in (self.anatomy_name, self.dseg_name) if name)

    @property
    def files(self) -> dict[str, Path]:
        """All files, by what they are."""
        single = {
            'T1w image': self.t1w,
            'brain mask': self.mask,
            'transform to the template': self.anat2std_xfm,
            'transform from the template': self.std2anat_xfm,
            'segmentation': self.dseg,
            'names of its labels': self.dseg_table,
        }
        found = {meaning: path for meaning, path in single.items() if path}
        return found | {f'{tissue} map': path for tissue, path in zip(TISSUES, self.tpms)}

    def found_in(self, name: str) -> dict[str, bool]:
        """Whether each result that a folder may hold was found there."""
        if name not in ANATOMY:
            return {'segmentation': self.dseg_name == name}
        here = self.anatomy_name == name
        return {
            'T1w image': here,
            'brain mask': here and self.mask is not None,
            'tissue maps': here and bool(self.tpms),
            'transforms': here and self.anat2std_xfm is not None,
        }


def searched_for(name: str) -> str:
    """How names of a program's results go on after that of the visit, for messages."""
    if name in ANATOMY:
        return '_desc-preproc_T1w.nii.gz'
    return f'_{{{",".join(SEGMENTATIONS)}}}.nii.gz or /mri/aparc+aseg.mgz'


def find_reusable(folders: Mapping[str, Path], image: T1wImage, template: str) -> Reusable:
    """Look for everything that can be used in place of a computation.

    Parameters
    ----------
    folders
        Folders of other programs by name; see
        :func:`surreal_bids.bids.programs.derivative_folders`.
    image
        The T1w image.
    template
        Name of the template, to which transforms must lead.
    """
    found = Reusable()
    for name, folder in folders.items():
        if name in ANATOMY:
            found = _add_anatomy(found, name, folder, image, template)
        else:
            found = _add_segmentation(found, name, folder, image)
    return found


@dataclass(frozen=True)
class _File:
    """A file of another program, and the entities that its name, or its folder's, has."""

    path: Path
    entities: Mapping[str, str]

    @property
    def visit(self) -> dict[str, str]:
        """Entities that it shares with the raw image."""
        return _visit(self.entities)

    def ends_in(self, ending: str, extensions: Iterable[str] = IMAGES) -> bool:
        """Tell whether the name ends so."""
        return any(self.path.name.endswith(f'_{ending}{extension}') for extension in extensions)


def _add_anatomy(
    found: Reusable, name: str, folder: Path, image: T1wImage, template: str
) -> Reusable:
    """Add an anatomical workflow's outputs; without its T1w image the others have no place."""
    files = _files_of(folder, image)
    t1w = _choose([each for each in files if each.ends_in('desc-preproc_T1w')], image, name)
    if t1w is None:
        return found
    beside = partial(_beside, [each for each in files if each.visit == t1w.visit], t1w, image)
    mask = beside('desc-brain_mask')
    sources = _sources(t1w.path) or (_sources(mask) if mask else [])
    sources = sources or _averaged(folder / f'sub-{image.participant}', t1w)
    if reason := _why_not(t1w, image, sources):
        return replace(found, refused={**found.refused, name: reason})
    tissues = [beside(f'label-{tissue}_probseg') for tissue in TISSUES]
    there = beside(f'from-T1w_to-{template}_mode-image_xfm', TRANSFORMS)
    back = beside(f'from-{template}_to-T1w_mode-image_xfm', TRANSFORMS)
    return replace(
        found,
        anatomy_name=name,
        t1w=t1w.path,
        mask=mask,
        tpms=tuple(path for path in tissues if path) if all(tissues) else (),
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
    """A result of the same images; one on a grid must be on that of the T1w image."""
    resolutions = {t1w.entities.get('res')} if extensions is IMAGES else {None}
    meant = [each for each in files if each.ends_in(ending, extensions)]
    same_grid = [each for each in meant if each.entities.get('res') in resolutions]
    chosen = _choose(same_grid, image, ending)
    return chosen.path if chosen else None


def _add_segmentation(found: Reusable, name: str, folder: Path, image: T1wImage) -> Reusable:
    candidates = [
        each
        for each in _files_of(folder, image)
        if any(each.ends_in(ending) for ending in SEGMENTATIONS)
        and (name not in SHARED_NAMES or each.entities.get('desc') == name)
    ]
    dseg = _choose([*candidates, *_reconstructions(name, folder, image)], image, name)
    if dseg is None:
        return found
    if reason := _why_not(dseg, image, _sources(dseg.path)):
        return replace(found, refused={**found.refused, name: reason})
    table, numbering = _label_names(name, folder, dseg)
    return replace(found, dseg=dseg.path, dseg_name=name, dseg_table=table, numbering=numbering)


def _reconstructions(name: str, folder: Path, image: T1wImage) -> Iterator[_File]:
    """Segmentations of FreeSurfer and FastSurfer: the best of each subject's folder."""
    wanted = [file for files in RECONSTRUCTIONS.values() for file in files]
    # `-d aseg=PATH` asks for aseg.mgz; which else is only there if all else has failed.
    named = [file for file in wanted if _letters(_stem(file)) == _letters(name)]
    usual = [file for file in wanted if file != 'aseg.mgz']
    sub = f'sub-{image.participant}'
    for subject in (folder / sub, *_starting_with(folder, f'{sub}_'), folder / image.participant):
        paths = [path for file in named or usual if (path := subject / 'mri' / file).is_file()]
        entities = _entities(subject.name)
        if paths and _may_belong(entities, image):
            yield _File(paths[0], entities)


def _files_of(folder: Path, image: T1wImage) -> list[_File]:
    """Files of a participant that may be of this image, in native space."""
    sub = f'sub-{image.participant}'
    places = [folder / sub / 'anat', folder / sub, folder]
    if image.session:
        visit = folder / sub / f'ses-{image.session}'
        places = [visit / 'anat', visit, *places]
    paths = [path for place in places for path in _starting_with(place, f'{sub}_')]
    files = [_File(path, _entities(path.name)) for path in paths if path.is_file()]
    return [
        each
        for each in files
        if each.entities.get('space') in NATIVE and _may_belong(each.entities, image)
    ]


def _starting_with(folder: Path, prefix: str) -> list[Path]:
    """What is in a folder under names that start so; a glob takes twice as long."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 (thousands of names for each image)
    except OSError:
        return []
    return [folder / name for name in sorted(n for n in names if n.startswith(prefix))]


def _may_belong(entities: Mapping[str, str], image: T1wImage) -> bool:
    """Tell whether all entities of a raw image that a name has are those of this one."""
    if entities.get('sub', image.participant) != image.participant:
        return False
    own = _own(image)
    return _contains(own, _visit(entities))


def _choose(files: Iterable[_File], image: T1wImage, name: str) -> _File | None:
    """The one of several files that names most of the image's entities.

    Among these, a compressed one is preferred to its copy, one without `res-` to resampled ones,
    and, of segmentations, the one whose `desc-`, `seg-` or `atlas-` is the name.
    """
    by_stem: dict[Path, _File] = {}
    for each in sorted(files, key=lambda each: (_preference(each), each.path)):
        by_stem.setdefault(each.path.with_name(_stem(each.path.name)), each)
    left = list(by_stem.values())
    if len(left) > 1:
        most = max(len(each.visit) for each in left)
        left = [each for each in left if len(each.visit) == most]
    chosen_by = (
        lambda each: 'res' not in each.entities,
        lambda each: any(_letters(each.entities.get(e, '')) == _letters(name) for e in CHOOSING),
    )
    for is_meant in chosen_by:
        meant = [each for each in left if is_meant(each)]
        left = meant if len(left) > 1 and meant else left
    if len(left) > 1:
        listed = list_briefly(each.path.name for each in left)
        raise DataError(
            f'{image.name}: {len(left)} files in {left[0].path.parent} may be meant: {listed}; '
            'keep the one to use, or name the segmentation after its desc-, as -d aseg=PATH'
        )
    return left[0] if left else None


def _preference(file: _File) -> int:
    """Position of the extension among the usual ones."""
    usual = ('.h5', *IMAGES)
    return next(k for k, ending in enumerate((*usual, '')) if file.path.name.endswith(ending))


def _why_not(file: _File, image: T1wImage, sources: Sequence[str]) -> str:
    """Say why a result is not of this image: made of another one, or of several kinds.

    Where no source is known, it may be of any image of the participant that its name allows. The
    answer is empty where it is of this image, or of runs of its session.
    """
    own = _own(image)
    known = [_visit(_entities(name)) for name in sources or _siblings(image)]
    if not sources:
        known = [own, *(each for each in known if _contains(each, file.visit))]
    if not any(_same_visit(each, own) for each in known):
        return f'{file.path} was made of {list_briefly(sources)}'
    for keys, what in ((('ses',), 'sessions'), (ACQUISITION, 'acquisitions')):
        kinds = sorted({_spelled(each, keys) for each in known})
        if len(kinds) > 1:
            made = 'was made of' if sources else 'may be of one or all of'
            return f'{file.path} {made} several {what} ({", ".join(kinds)})'
    return ''


def _spelled(entities: Mapping[str, str], keys: Iterable[str]) -> str:
    return '_'.join(f'{key}-{entities[key]}' for key in keys if key in entities) or 'none'


def _sources(path: Path) -> list[str]:
    """Names of the raw T1w images behind a result, as its sidecar has them; empty if unknown."""
    sidecar = path.with_name(f'{_stem(path.name)}.json')
    try:
        content = json.loads(sidecar.read_text(encoding='utf-8'))
    except (OSError, ValueError):
        return []
    if not isinstance(content, dict):
        return []
    fields = [content.get(key) for key in ('RawSources', 'Sources')]
    listed = [each for some in fields for each in (some if isinstance(some, list) else [some])]
    names = dict.fromkeys(re.split('[/:]', str(each))[-1] for each in listed)
    return [name for name in names if _stem(name).endswith('_T1w') and '_desc-' not in name]


def _averaged(participant: Path, t1w: _File) -> list[str]:
    """Names of the raw T1w images that were aligned with a reference, by their transforms."""
    paths = participant.glob('**/anat/*_xfm.*')
    names = [path.name for path in paths if _ORIGINAL.search(path.name)]
    of_reference = [name for name in names if _contains(_visit(_entities(name)), t1w.visit)]
    return sorted(_ORIGINAL.sub('_T1w.nii.gz', name) for name in of_reference)


def _siblings(image: T1wImage) -> list[str]:
    """Names of all T1w images of the participant in the dataset."""
    depth = 2 if image.session else 1
    if len(image.path.parents) <= depth:
        return []
    folder = image.path.parents[depth]
    found = [*folder.glob('anat/*'), *folder.glob('ses-*/anat/*')]
    return [
        path.name for path in found if _stem(path.name).endswith('_T1w') and '.nii' in path.name
    ]


def _label_names(name: str, folder: Path, dseg: _File) -> tuple[Path | None, str]:
    """Table of the labels of a segmentation, and, without one, how they are numbered.

    The table is beside the image, or one for all of the dataset. fMRIPrep's own tables list every
    region that FreeSurfer knows; those of its segmentations are built in.
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
    if dseg.ends_in('DLMUSE') or name.lower() in NUMBERED:
        return None, NUMBERED.get(name.lower(), MUSE)
    raise DataError(
        f'{path}: no table names its labels; add {folder / "dseg.tsv"} with columns index and '
        'name, or call the segmentation dlmuse if it is numbered as MUSE is'
    )


def _freesurfer_kind(dseg: _File) -> str | None:
    """Which of FreeSurfer's sets of labels a file has, by its name; None for others."""
    if dseg.ends_in('synthseg'):
        return 'synthseg'
    kind = dseg.path.name.removesuffix('.mgz')
    if kind in FREESURFER_KINDS and kind != dseg.path.name:
        return kind
    return SHARED_NAMES.get(dseg.entities.get('desc', ''))


def _own(image: T1wImage) -> dict[str, str]:
    """Entities of the image that its derivatives keep."""
    named = {'ses': image.session, 'run': image.run}
    return _visit(_entities(image.path.name) | {key: v for key, v in named.items() if v})


def _visit(entities: Mapping[str, str]) -> dict[str, str]:
    """Entities that tell raw images apart; leading zeros of a run, an index, say nothing."""
    kept = {key: value for key, value in entities.items() if key in VISIT}
    return kept | ({'run': kept['run'].lstrip('0')} if 'run' in kept else {})


def _same_visit(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Tell whether two raw images are the same, the run apart where only one names it."""
    keys = [key for key in VISIT if key != 'run' or ('run' in one and 'run' in other)]
    return all(one.get(key) == other.get(key) for key in keys)


def _contains(entities: Mapping[str, str], some: Mapping[str, str]) -> bool:
    return all(entities.get(key) == value for key, value in some.items())


def _stem(name: str) -> str:
    """A name without its extension; those of FreeSurfer have dots in them."""
    return re.sub(r'\.(nii(\.gz)?|mgz|h5|json|tsv|txt)$', '', name)


def _letters(text: str) -> str:
    return ''.join(filter(str.isalnum, text.lower()))


def _entities(name: str) -> dict[str, str]:
    parts = (part.partition('-') for part in _stem(name).split('_'))
    return {key: value for key, hyphen, value in parts if hyphen}
