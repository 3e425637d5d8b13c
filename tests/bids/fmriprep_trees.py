"""Trees with the names that fMRIPrep 20 to 25 gives its anatomical outputs."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

TEMPLATE = 'MNI152NLin2009cAsym'

IMAGES = {
    't1w': 'desc-preproc_T1w',
    'mask': 'desc-brain_mask',
    'GM': 'label-GM_probseg',
    'WM': 'label-WM_probseg',
    'CSF': 'label-CSF_probseg',
}
XFMS = {
    'anat2std_xfm': 'from-T1w_to-{}_mode-image_xfm',
    'std2anat_xfm': 'from-{}_to-T1w_mode-image_xfm',
}


@dataclass(frozen=True)
class Layout:
    """How the outputs for the first of some raw images are named.

    Attributes
    ----------
    raw
        The raw T1w images, without extension; the first is the one to look for.
    stem
        How paths of the outputs begin, below their root.
    sources
        Which of the raw images they were made of, by position; None: nothing is noted.
    decoys
        How paths of outputs begin that are not of the first image.
    root, extension, res
        Folder below the outputs, extension of images, and entity of their resolution.
    """

    raw: tuple[str, ...] = ('sub-01/anat/sub-01_T1w',)
    stem: str = 'sub-01/anat/sub-01'
    sources: tuple[int, ...] | None = (0,)
    decoys: tuple[str, ...] = ()
    root: str = ''
    extension: str = '.nii.gz'
    res: str = ''


SESSIONS = tuple(f'sub-01/ses-{s}/anat/sub-01_ses-{s}_T1w' for s in 'ab')
RUNS = tuple(f'sub-01/anat/sub-01_run-{number}_T1w' for number in (1, 2))
ACQUISITIONS = tuple(f'sub-01/anat/sub-01_acq-{name}_T1w' for name in ('high', 'low'))

LAYOUTS = {
    'plain': Layout(),
    'session': Layout(raw=SESSIONS[:1], stem='sub-01/ses-a/anat/sub-01_ses-a'),
    'runs': Layout(raw=RUNS, sources=(0, 1)),
    'acquisitions': Layout(
        raw=ACQUISITIONS, stem='sub-01/anat/sub-01_acq-high', decoys=('sub-01/anat/sub-01_acq-low',)
    ),
    'legacy': Layout(root='fmriprep'),
    '.nii': Layout(extension='.nii'),
    'res-': Layout(res='_res-1', decoys=(f'sub-01/anat/sub-01_space-{TEMPLATE}_res-2',)),
}
"""Layouts; in each, all outputs are of the first raw image."""


def write_tree(
    root: Path,
    layout: Layout,
    put: Callable[[str, Path], None] = lambda _, path: path.touch(),
    template: str = TEMPLATE,
) -> dict[str, Path]:
    """Write the outputs for the first raw image, and what is noted of their sources.

    Parameters
    ----------
    root
        Folder of the outputs, which `-d fmriprep=` names.
    layout
        How files are named.
    put
        Puts a file, named by a key of `IMAGES` or `XFMS`, at a path.
    template
        Name of the template.
    """
    paths = {
        **{
            key: root / layout.root / f'{layout.stem}{layout.res}_{ending}{layout.extension}'
            for key, ending in IMAGES.items()
        },
        **{
            key: root / layout.root / f'{layout.stem}_{ending.format(template)}.h5'
            for key, ending in XFMS.items()
        },
    }
    for key, path in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        put(key, path)
    for decoy in layout.decoys:
        for ending in IMAGES.values():
            (root / layout.root / f'{decoy}_{ending}{layout.extension}').write_text('another image')
    description = {'Name': 'fMRIPrep outputs', 'GeneratedBy': [{'Name': 'fMRIPrep'}]}
    write_json(root / layout.root / 'dataset_description.json', description)
    if layout.sources is not None:
        sidecar = paths['mask'].with_name(paths['mask'].name.split('.')[0] + '.json')
        named = [f'{layout.raw[number]}.nii.gz' for number in layout.sources]
        write_json(sidecar, {'RawSources': named, 'Type': 'Brain'})
    return paths


def write_json(path: Path, content: Mapping) -> None:
    """Write a JSON file."""
    path.write_text(json.dumps(content))
