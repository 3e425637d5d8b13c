"""Volumes of heads with a painted lesion, with and without its mask, and without a face.

    python benchmarks/altered_heads.py DATA [--heads 3]

DATA holds `ixi2mm` (healthy heads, 2 mm). Lesions of 20 ml, as dark as fluid or as bright as grey
matter, are painted in one hemisphere and near the midline of each head. Faces are erased, blurred,
or replaced by that of another head. Volumes are those of the steps of the participant level, and
are compared with those of the head as it is, in regions that the lesion does not touch, and in
those that are also farther than `NEAR_MM` from it. RAVENS maps of the first head with its first
lesion are compared in the same way, over regions of the template.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import nibabel as nib
import numpy as np
import pandas as pd
import torch
from machine import write_results
from nibabel.affines import apply_affine, voxel_sizes
from nibabel.processing import resample_from_to
from scipy import ndimage
from tqdm import tqdm

from surreal_bids.files import write_image, write_tsv
from surreal_bids.images import Image, like, load_image, voxel_volume
from surreal_bids.imaging.atlas import muse_labels, muse_t1w
from surreal_bids.imaging.transforms import Transform, read_transform, resample
from surreal_bids.interfaces.anatomy import (
    ClassifyTissue,
    CorrectBias,
    FindBrain,
    LabelRegions,
    MakeRavens,
    RegisterTemplate,
)
from surreal_bids.regions import muse_table
from surreal_bids.templates import TISSUES, builtin_template

LESION_ML = 20
MIDLINE_MM = 20.0
"""Distance from the midline beyond which the middle of a lesion is lateral, not medial."""

NEAR_MM = 4.0
"""Regions that come this close to a lesion are near."""

DEPTH_MM = (10.0, 16.0)
"""Distance of the middle of a lesion from the surface of the brain."""

VENTRICLES = (51, 52)
FIRST_OF_CORTEX = 100
"""MUSE indices of the regions whose intensity lesions have."""

LIMIT = 2.0
"""Change in percent that regions without a lesion should not exceed."""

FORWARD_DOWN = np.array([0.0, 1.0, -1.0]) / np.sqrt(2)
"""Direction of the face in the world."""

FACE_MARGIN_MM = 5.0
"""Distance of the face from the foremost and lowest voxel of the brain in this direction."""

BLUR_MM = 8.0
TEMPLATE_MM = 3.0


class Steps:
    """Steps of the participant level, with their files in one folder."""

    def __init__(self, folder: Path, image: Image, lesion: Image | None = None) -> None:
        self._folder = folder
        self._lesion = {}
        t1w = write_image(folder / 't1w.nii.gz', image)
        if lesion is not None:
            self._lesion = {'lesion_file': write_image(folder / 'lesion.nii.gz', lesion)}
        self.mask_file = self._run(FindBrain(in_file=t1w)).mask_file
        corrected = self._run(CorrectBias(in_file=t1w, mask_file=self.mask_file)).out_file
        self._brain = {'t1w_file': corrected, 'mask_file': self.mask_file}

    def _run(self, step):
        step.inputs.trait_set(**self._lesion)
        folder = self._folder / type(step).__name__
        folder.mkdir()
        return step.run(cwd=str(folder)).outputs

    def regions(self) -> tuple[Image, pd.Series]:
        """Label map, and volumes by the name of the region."""
        table = write_tsv(self._folder / 'muse.tsv', muse_table())
        found = self._run(LabelRegions(regions_file=table, **self._brain))
        volumes = pd.read_csv(found.volumes_file, sep='\t').set_index('index')['volume_mm3']
        return load_image(found.dseg_file), volumes

    def ravens(self, template: Path, labels: Image) -> tuple[pd.Series, Transform]:
        """Sum of the RAVENS map of grey matter in each region of the template, and transform."""
        found = self._run(RegisterTemplate(template_dir=template, **self._brain))
        tissue = ClassifyTissue(template_dir=template, xfm_file=found.std2anat_xfm, **self._brain)
        shares = self._run(tissue).share_files
        ravens = MakeRavens(in_files=shares, xfm_file=found.anat2std_xfm)
        maps = ravens.run(cwd=str(self._folder)).outputs.out_files
        numbers = np.asarray(resample_from_to(labels, load_image(maps[0]), order=0).dataobj)
        sums = np.bincount(numbers.ravel(), np.asarray(load_image(maps[0]).dataobj).ravel())
        grey = muse_table().query('tissue == "GM"')['index']
        return pd.Series(sums).reindex(grey), read_transform(found.anat2std_xfm)


def measure(image: Image, lesion: Image | None = None) -> tuple[Image, pd.Series, Image]:
    """Label map, volumes and brain mask of a head."""
    with TemporaryDirectory() as folder:
        steps = Steps(Path(folder), image, lesion)
        return *steps.regions(), load_image(steps.mask_file)


def changes(
    before: pd.Series, after: pd.Series, touched: Collection[int] = (), near: Collection[int] = ()
) -> dict[str, object]:
    """Changes in percent of regions that are not touched, and of those that are not near either."""
    kept = before.index[(before > 0) & ~before.index.isin(list(touched))]
    change = 100 * (after[kept] / before[kept] - 1)
    size = change.abs().sort_values(ascending=False)
    names = muse_table().set_index('index')['name']
    beyond = size.index[size > LIMIT]
    far = size[~size.index.isin(list(near))]
    return {
        'regions': len(change),
        'median_percent': round(size.median(), 2),
        'p95_percent': round(size.quantile(0.95), 2),
        'max_percent': round(size.max(), 2),
        'share_beyond_2_percent': round((size > LIMIT).mean(), 4),
        'far_regions': len(far),
        'far_max_percent': round(far.max(), 2),
        'far_beyond_2_percent': int((far > LIMIT).sum()),
        'beyond_2_percent': '; '.join(f'{names[i]} {change[i]:+.1f}' for i in beyond) or None,
    }


def paint_lesions(
    image: Image, mask: Image, labels: Image, rng: np.random.Generator
) -> Iterator[tuple[str, Image, Image]]:
    """Yield places and intensities of lesions, heads with them, and their masks."""
    values, numbers = np.asarray(image.dataobj, dtype=np.float32), np.asarray(labels.dataobj)
    brain = np.asarray(mask.dataobj) > 0
    depth = ndimage.distance_transform_edt(brain, voxel_sizes(image.affine))
    centres = np.argwhere((depth > DEPTH_MM[0]) & (depth < DEPTH_MM[1]))
    places = np.argwhere(brain)
    aside = np.abs(centres - places.mean(axis=0))[:, 0] * voxel_sizes(image.affine)[0]
    middles = {'lateral': centres[aside > MIDLINE_MM], 'medial': centres[aside <= MIDLINE_MM]}
    tones = {
        'dark': values[np.isin(numbers, VENTRICLES)],
        'grey': values[numbers >= FIRST_OF_CORTEX],
    }
    for place, chosen in middles.items():
        distance = np.linalg.norm((places - rng.choice(chosen)) * voxel_sizes(image.affine), axis=1)
        nearest = places[np.argsort(distance)[: round(LESION_ML * 1000 / voxel_volume(image))]]
        lesion = np.zeros(brain.shape, np.uint8)
        lesion[tuple(nearest.T)] = 1
        for name, tone in tones.items():
            painted = values.copy()
            noise = rng.normal(0, 0.05 * np.median(tone), len(nearest))
            painted[tuple(nearest.T)] = np.median(tone) + noise
            yield (
                f'{name} {place} lesion',
                like(image, painted, np.float32),
                like(image, lesion, np.uint8),
            )


def face_of(image: Image, mask: Image) -> np.ndarray:
    """Voxels in front of and below the brain."""
    voxels = np.moveaxis(np.indices(image.shape), 0, -1)
    height = apply_affine(image.affine, voxels) @ FORWARD_DOWN
    return height > height[np.asarray(mask.dataobj) > 0].max() + FACE_MARGIN_MM


def without_face(image: Image, mask: Image, other: Image, other_mask: Image) -> dict[str, Image]:
    """The head without its face, in three ways."""
    values = np.asarray(image.dataobj, dtype=np.float32)
    face = face_of(image, mask)
    blurred = ndimage.gaussian_filter(values, BLUR_MM / voxel_sizes(image.affine))
    shift = np.subtract(*(_front(each) for each in (mask, other_mask))).round().astype(int)
    lent = ndimage.shift(np.asarray(other.dataobj, dtype=np.float32), shift, order=0)
    scale = np.divide(*(_brightness(*each) for each in ((image, mask), (other, other_mask))))
    changed = {'face erased': 0, 'face blurred': blurred, 'face of another': scale * lent}
    return {
        name: like(image, np.where(face, each, values), np.float32)
        for name, each in changed.items()
    }


def _front(mask: Image) -> np.ndarray:
    """Middle, front and bottom of a brain in RAS voxels."""
    x, y, z = ndimage.find_objects((np.asarray(mask.dataobj) > 0).astype(np.uint8))[0]
    return np.array([(x.start + x.stop) / 2, y.stop, z.start])


def _brightness(image: Image, mask: Image) -> float:
    return float(np.median(np.asarray(image.dataobj)[np.asarray(mask.dataobj) > 0]))


def regions_within(distance_mm: float, lesion: Image, labels: Image) -> list[int]:
    """Regions that come so close to a lesion; 0: of which it takes a voxel."""
    outside = np.asarray(lesion.dataobj) == 0
    distance = ndimage.distance_transform_edt(outside, voxel_sizes(lesion.affine))
    return np.unique(np.asarray(labels.dataobj)[distance <= distance_mm]).tolist()


def compare_ravens(image: Image, painted: Image, lesion: Image) -> Iterator[dict[str, object]]:
    """Yield changes of sums of the RAVENS map of grey matter, with and without the lesion mask."""
    template, labels = builtin_template(TEMPLATE_MM), muse_labels(muse_t1w())
    with TemporaryDirectory() as folder:
        root = Path(folder)
        parts: Mapping[str, Image] = {
            'T1w': template.t1w,
            'desc-brain_mask': template.mask,
            **{f'label-{name}_probseg': template.priors[name] for name in TISSUES},
        }
        for ending, part in parts.items():
            write_image(root / 'template' / f'tpl-{template.name}_{ending}.nii.gz', part)
        sums, to_template = {}, {}
        for name, head, mask in (
            ('', image, None),
            ('no', painted, None),
            ('yes', painted, lesion),
        ):
            (root / f'steps{name}').mkdir()
            steps = Steps(root / f'steps{name}', head, mask)
            sums[name], to_template[name] = steps.ravens(root / 'template', labels)
    moved = resample(lesion, to_template[''], order=0)
    coarse = resample_from_to(labels, moved, order=0)
    touched, near = (regions_within(mm, moved, coarse) for mm in (0, NEAR_MM))
    for name in ('no', 'yes'):
        yield {'mask_given': name, **changes(sums[''], sums[name], touched, near)}


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('data', type=Path)
    parser.add_argument('--heads', type=int, default=3)
    options = parser.parse_args()
    paths = sorted((options.data / 'ixi2mm/T1w').iterdir())[: options.heads]
    heads = [nib.as_closest_canonical(load_image(path)) for path in paths]
    normal = [measure(image) for image in tqdm(heads, 'as they are')]
    rng, rows = np.random.default_rng(0), []

    def note(head: int, what: str, found: dict[str, object]) -> None:
        rows.append({'head': head + 1, 'change': what, **found})
        print(rows[-1], flush=True)

    for number, (image, (labels, volumes, mask)) in enumerate(zip(heads, normal)):
        for what, painted, lesion in paint_lesions(image, mask, labels, rng):
            touched, near = (regions_within(mm, lesion, labels) for mm in (0, NEAR_MM))
            for given, known in (('no', None), ('yes', lesion)):
                _, after, found = measure(painted, known)
                icv = 100 * (np.sum(found.dataobj) / np.sum(mask.dataobj) - 1)
                more = {'mask_given': given, 'icv_percent': round(float(icv), 2)}
                note(number, what, {**more, **changes(volumes, after, touched, near)})
            if not number and what == 'dark lateral lesion':
                for found in compare_ravens(image, painted, lesion):
                    note(number, f'{what}, RAVENS', found)
        other = (number + 1) % len(heads)
        faceless = without_face(image, mask, heads[other], normal[other][2])
        for what, altered in faceless.items():
            _, after, found = measure(altered)
            icv = 100 * (np.sum(found.dataobj) / np.sum(mask.dataobj) - 1)
            more = {'icv_percent': round(float(icv), 2)}
            note(number, what, {**more, **changes(volumes, after)})
    write_results('altered_heads', rows, 'torch')


if __name__ == '__main__':
    main()
