"""What other programs have already made of a T1w image, found by its name in their folders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from surreal_bids.bids.layout import T1wImage, is_label
from surreal_bids.config import BUILTIN_ATLAS, NETWORK, AppConfig, derivative_folders, uses_network
from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.templates import TISSUES

ANATOMY = ('fmriprep', 'smriprep')
"""Names under which a folder holds an anatomical workflow's outputs; others, segmentations."""

MUSE_NUMBERED = ('dlmuse', 'muse')
"""Names of segmentations whose labels are numbered as in MUSE, unless a table names them."""

DSEG = ('_dseg.nii.gz', '_dseg.nii', '_DLMUSE.nii.gz')
"""How names of segmentations end: in BIDS, and as NiChart's DLMUSE writes them."""

NATIVE = frozenset({None, 'T1w', 'orig'})
"""Values of the entity `space` of images that lie where the T1w image lies."""


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


def find_reusable(folders: Mapping[str, Path], image: T1wImage, template: str) -> Reusable:
    """Look for everything that can be used in place of a computation.

    Parameters
    ----------
    folders
        Folders of other programs by name; see :func:`surreal_bids.config.derivative_folders`.
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


def _add_anatomy(
    found: Reusable, name: str, folder: Path, image: T1wImage, template: str
) -> Reusable:
    """Add an anatomical workflow's outputs; without its T1w image the others have no place."""
    t1w = _find(folder, image, '_desc-preproc_T1w.nii.gz')
    if t1w is None:
        return found
    tissues = [_find(folder, image, f'_label-{tissue}_probseg.nii.gz') for tissue in TISSUES]
    there = _find(folder, image, f'_from-T1w_to-{template}_mode-image_xfm.h5')
    back = _find(folder, image, f'_from-{template}_to-T1w_mode-image_xfm.h5')
    return replace(
        found,
        anatomy_name=name,
        t1w=t1w,
        mask=_find(folder, image, '_desc-brain_mask.nii.gz'),
        tpms=tuple(path for path in tissues if path) if all(tissues) else (),
        anat2std_xfm=there if back else None,
        std2anat_xfm=back if there else None,
    )


def _add_segmentation(found: Reusable, name: str, folder: Path, image: T1wImage) -> Reusable:
    dseg = next((path for ending in DSEG if (path := _find(folder, image, ending))), None)
    if dseg is None:
        return found
    return replace(found, dseg=dseg, dseg_name=name, dseg_table=_label_table(name, folder, dseg))


def _label_table(name: str, folder: Path, dseg: Path) -> Path | None:
    """Table of the labels of a segmentation: beside it, or one for all of the dataset."""
    stem = dseg.name.split('.', 1)[0]
    shared = [path for path in folder.glob('*dseg.tsv') if not path.name.startswith('sub-')]
    entities = stem.split('_')
    own = [p for p in shared if all(part in entities for part in _stem(p).split('_'))]
    candidates = [dseg.with_name(f'{stem}.tsv'), *own, *shared[: len(shared) == 1]]
    table = next((path for path in candidates if path.is_file()), None)
    if table is None and name.lower() not in MUSE_NUMBERED:
        raise DataError(
            f'{dseg}: no table names its labels; add {folder / "dseg.tsv"} with columns index and '
            'name, or call the segmentation dlmuse if it is numbered as MUSE is'
        )
    return table


def _stem(path: Path) -> str:
    return path.name.split('.', 1)[0]


def _find(folder: Path, image: T1wImage, ending: str) -> Path | None:
    """Find the one file of a T1w image whose name ends so, in native space.

    A file that names a run must be of that of the T1w image; of several, one that names it wins.
    """
    files = _files_of(folder, image)
    matches = [path for path in files if path.name.endswith(ending) and _belongs(path, image)]
    if len(matches) > 1 and image.run:
        matches = [path for path in matches if 'run' in _entities(path)]
    if len(matches) > 1:
        raise DataError(
            f'{image.name}: {len(matches)} files of {folder} end in {ending}: '
            f'{", ".join(path.name for path in matches)}; keep the one to use'
        )
    return matches[0] if matches else None


def _files_of(folder: Path, image: T1wImage) -> list[Path]:
    """Files named after a participant and session, where programs put them."""
    visit = Path(*image.name.split('_'))
    places = (folder / visit / 'anat', folder / visit, folder)
    return [p for place in places for p in sorted(place.glob(f'{image.name}_*')) if p.is_file()]


def _belongs(path: Path, image: T1wImage) -> bool:
    """Tell whether a file lies in the space of the T1w image, and is of its session and run."""
    entities = _entities(path)
    same_run = 'run' not in entities or _number(entities['run']) == _number(image.run or '')
    native = entities.get('space') in NATIVE
    return native and same_run and entities.get('ses') == image.session


def _number(run: str) -> str:
    """Run without leading zeros, which say nothing."""
    return run.lstrip('0')


def _entities(path: Path) -> dict[str, str]:
    parts = (part.partition('-') for part in _stem(path).split('_'))
    return {key: value for key, hyphen, value in parts if hyphen}
