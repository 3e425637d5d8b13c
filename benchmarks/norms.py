"""Norms for participant reports, from healthy people.

    python benchmarks/norms.py measure DATA HEADS [--part 3/16]
    python benchmarks/norms.py calibrate DATA HEADS
    python benchmarks/norms.py fit HEADS > surreal_bids/data/norms.tsv
    python benchmarks/norms.py overlaps HEADS

DATA holds `ixi2mm` and `ixi2mm_more` (IXI, one 3 T scanner, 2 mm; people with an age in
`tables/ixi_muse145.csv`) and `oasis35` (OASIS, 1.5 T, 1 mm, stripped; the first scan of each
person, also averaged to 2 mm). HEADS gets the default results of the app for each: corrected image,
mask, regions, and volumes without the factors of the network. Existing heads are not measured
again; `--part 3/16` is the third of 16 parts, for as many processes.

`calibrate` writes these factors into the weights of the network. At 2 mm they are the median ratio
of DLMUSE's volumes at 1 mm (`tables/ixi_muse145.csv`) to those of the network in the people of
`ixi2mm_more`; at 1 mm they also remove the mean difference of log volumes between 1 and 2 mm within
the OASIS people. All other actions use them.

The norm of a region is linear in its log volume: age, age squared, sex, log brain mask volume and
scanner, fitted to heads at 2 mm. A new scanner is assumed to lie between the two, and the
uncertainty of its position is part of the standard deviation. `overlaps` measures how well the
network's large regions agree with those of the registered template, which reports use as reference.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save_file

import surreal_bids
from surreal_bids.files import write_image, write_json, write_tsv
from surreal_bids.images import Image, like, load_image, voxel_volume
from surreal_bids.imaging.bias import correct_bias
from surreal_bids.imaging.brain import brain_mask
from surreal_bids.imaging.deformation import FLUID
from surreal_bids.imaging.network import (
    FINE_BELOW_MM,
    TrainedNetwork,
    builtin_network,
    segment_regions,
)
from surreal_bids.imaging.quality import LEAST_OVERLAP, NORM_AGES, Subject, region_overlaps
from surreal_bids.imaging.registration import register
from surreal_bids.imaging.transforms import resample
from surreal_bids.templates import builtin_template, muse_labels

COARSE_MM = 2.0

EXCLUDED = {'OAS1_0300'}
"""One with very mild dementia (Clinical Dementia Rating 0.5; the other four of OASIS above 60 are
rated 0, younger people were not rated)."""

ROOM = 0.1
"""How far below the lowest of these people an overlap is still usual: other scanners and older
people will differ more."""

TERMS = ('intercept', 'age', 'age_squared', 'male', 'log_icv')


@dataclass(frozen=True)
class Head:
    """A scan and its participant."""

    name: str
    source: str
    age: float
    male: bool
    voxel_mm: float
    path: str


def list_heads(data: Path) -> Iterator[Head]:
    """List scans of people with a known age, one per person and voxel size."""
    ages = pd.read_csv(data / 'tables' / 'ixi_muse145.csv', usecols=['ID', 'Age', 'Sex'])
    ages = ages.set_index(ages['ID'].str.removesuffix('-T1'))
    folders = [data / name / 'T1w' for name in ('ixi2mm', 'ixi2mm_more')]
    for path in sorted(path for folder in folders for path in folder.iterdir()):
        name = path.name.split('.')[0]
        if name in ages.index:
            age, sex = ages.loc[name, ['Age', 'Sex']]
            yield Head(name, 'IXI', float(age), sex == 'M', COARSE_MM, str(path))
    people = pd.read_csv(data / 'oasis35' / 'people.tsv', sep='\t', dtype={'name': str})
    for voxel_mm in (1.0, COARSE_MM):
        for row in people.drop_duplicates('person').itertuples():
            path = data / 'oasis35' / 'T1w' / f'{row.name}.nii.gz'
            name = f'{row.oasis_id}_{voxel_mm:g}mm'
            yield Head(name, 'OASIS', float(row.age), row.sex == 'M', voxel_mm, str(path))


def halve(image: Image) -> Image:
    """Average 2 x 2 x 2 voxels; blocks that are mostly 0, outside a stripped brain, are 0."""
    values = np.asarray(image.dataobj, dtype=np.float32)
    values = np.pad(values, [(0, size % 2) for size in values.shape])
    x, y, z = (size // 2 for size in values.shape)
    blocks = values.reshape(x, 2, y, 2, z, 2)
    means = blocks.mean(axis=(1, 3, 5))
    means[(blocks != 0).mean(axis=(1, 3, 5)) < 0.5] = 0
    affine = image.affine @ nib.affines.from_matvec(np.diag([2.0, 2.0, 2.0]), [0.5, 0.5, 0.5])
    return nib.Nifti1Image(means, affine)


def measure(head: Head, folder: Path) -> None:
    """Process a head as the app does; its volumes are written last."""
    t1w = load_image(Path(head.path))
    if head.source == 'OASIS' and head.voxel_mm == COARSE_MM:
        t1w = halve(t1w)
    mask, method = brain_mask(t1w)
    corrected = correct_bias(t1w, mask)
    found = segment_regions(corrected, mask, network=uncalibrated())
    folder.mkdir(parents=True, exist_ok=True)
    for name, image in (('t1w', corrected), ('mask', mask), ('dseg', found.labels)):
        write_image(folder / f'{name}.nii.gz', image)
    overlaps = overlap_with_template(corrected, mask, found.labels)
    icv = float(np.asarray(mask.dataobj).sum(dtype=float) * voxel_volume(mask))
    write_json(folder / 'head.json', {**asdict(head), 'mask': method, 'icv_mm3': icv, **overlaps})
    table = pd.DataFrame({'index': list(found.volumes), 'volume_mm3': list(found.volumes.values())})
    table['confidence'] = table['index'].map(found.confidence)
    write_tsv(folder / 'volumes.tsv', table)


def uncalibrated() -> TrainedNetwork:
    network = builtin_network()
    return replace(network, factors=((1.0,) * len(network.indices),) * 2)


def calibrate(data: Path, out: Path) -> None:
    """Write the factors of volumes into the weights."""
    heads, volumes = read_volumes(out)
    ixi = heads['source'] == 'IXI'
    dlmuse = pd.read_csv(data / 'tables' / 'ixi_muse145.csv')
    dlmuse = dlmuse.set_index(dlmuse['ID'].str.removesuffix('-T1')).loc[heads.loc[ixi, 'name']]
    dlmuse = dlmuse[[f'MUSE_{index}' for index in volumes]].to_numpy()
    ratios = pd.DataFrame(dlmuse / volumes[ixi], heads.index[ixi], volumes.columns)
    taught = heads.loc[ixi, 'path'].str.contains('ixi2mm_more')
    coarse = ratios[taught].median()
    healthy = is_healthy(heads)
    logs = np.log(volumes[healthy])
    norms = fit_norms(heads[healthy], logs)
    fine = coarse * np.exp(-fine_effect(heads[healthy], logs, norms['log_icv']))
    indices = list(builtin_network().indices)
    store_factors([each[indices].round(4).tolist() for each in (coarse, fine)])


def store_factors(factors: list[list[float]]) -> None:
    """Write factors at 2 and 1 mm to the metadata of the weights."""
    path = Path(surreal_bids.__file__).parent / 'data' / 'network' / 'weights.safetensors'
    with safe_open(path, framework='pt') as stored:
        metadata = stored.metadata() | {'factors': json.dumps(factors)}
        weights = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    save_file(weights, path, metadata)


def overlap_with_template(t1w: Image, mask: Image, labels: Image) -> dict[str, float]:
    """Measure the overlap of large regions with those of the template, registered at 2 mm."""
    template = builtin_template(COARSE_MM)
    brain = like(t1w, np.asarray(t1w.dataobj) * (np.asarray(mask.dataobj) > 0), np.float32)
    found = register(
        template.t1w, brain, settings=FLUID, fixed_mask=template.mask, moving_mask=mask
    )
    registered = resample(muse_labels(), found.inverse, order=0)
    return region_overlaps(np.asarray(labels.dataobj), np.asarray(registered.dataobj))


def measure_part(data: Path, out: Path, part: str) -> None:
    number, parts = map(int, part.split('/'))
    for head in list(list_heads(data))[number - 1 :: parts]:
        if not (out / head.name / 'volumes.tsv').exists():
            measure(head, out / head.name)
            print(head.name, flush=True)


def read_volumes(out: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Heads, and their volumes without the factors of the network (heads x regions)."""
    folders = [path.parent for path in sorted(out.glob('*/volumes.tsv'))]
    heads = pd.DataFrame([json.loads((f / 'head.json').read_text()) for f in folders])
    heads['person'] = heads['name'].str.replace('_[12]mm$', '', regex=True)
    volumes = pd.DataFrame(
        [pd.read_csv(f / 'volumes.tsv', sep='\t', index_col='index')['volume_mm3'] for f in folders]
    ).set_axis(heads.index)
    return heads, volumes


def is_healthy(heads: pd.DataFrame) -> pd.Series:
    """Whether a head is of a healthy person within the ages."""
    youngest, oldest = NORM_AGES
    in_ages = heads['age'].between(youngest, oldest + 1, inclusive='left')
    return in_ages & ~heads['person'].isin(EXCLUDED)


def read_heads(out: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Heads of healthy people within the ages, and their log volumes (heads x regions)."""
    heads, volumes = read_volumes(out)
    network = builtin_network()
    factors = pd.DataFrame(network.factors, columns=network.indices)[volumes.columns].to_numpy()
    volumes = volumes * factors[(heads['voxel_mm'] < FINE_BELOW_MM).to_numpy(int)]
    kept = is_healthy(heads)
    return heads[kept], np.log(volumes[kept])


def design(heads: pd.DataFrame) -> NDArray[np.float64]:
    """Values of the terms for each head, and -0.5 or 0.5 for its scanner."""
    rows = []
    for head in heads.itertuples():
        terms = Subject(head.age, 'M' if head.male else 'F', head.icv_mm3).terms
        rows.append([*(terms[name] for name in TERMS), 0.5 if head.source == 'OASIS' else -0.5])
    return np.array(rows)


def fit_norms(heads: pd.DataFrame, logs: pd.DataFrame) -> pd.DataFrame:
    """Coefficients of each region, by index, and the standard deviation on a new scanner.

    The difference d between two scanners predicts that of a new one from their mean: if scanner
    effects have variance v, d**2 is 2 v on average, and the new one differs by 3/2 v. v is assumed
    to be the same fraction of the variance of people in all regions.
    """
    coarse = (heads['voxel_mm'] == COARSE_MM).to_numpy()
    x, y = design(heads[coarse]), logs[coarse].to_numpy()
    coefficients = np.linalg.lstsq(x, y, rcond=None)[0]
    people = ((y - x @ coefficients) ** 2).sum(axis=0) / (len(x) - x.shape[1])
    by_chance = np.linalg.inv(x.T @ x)[-1, -1]
    scanners = max(0.0, float(np.mean(coefficients[-1] ** 2 / people) - by_chance) / 2)
    table = pd.DataFrame(coefficients[:-1].T, logs.columns, TERMS)
    table['sd'] = np.sqrt(people * (1 + 1.5 * scanners))
    return table.rename_axis('index')


def fine_effect(heads: pd.DataFrame, logs: pd.DataFrame, log_icv: pd.Series) -> pd.Series:
    """Return the difference of log volumes at 1 mm and 2 mm for the same head and head size."""
    people = heads.assign(row=heads.index)[heads['source'] == 'OASIS']
    fine, coarse = (
        people[people['voxel_mm'] == size].set_index('person') for size in (1.0, COARSE_MM)
    )
    coarse = coarse.loc[fine.index]
    size = np.log(fine['icv_mm3'] / coarse['icv_mm3'])
    change = logs.loc[fine['row']].to_numpy() - logs.loc[coarse['row']].to_numpy()
    return pd.Series((change - np.outer(size, log_icv)).mean(axis=0), log_icv.index)


def tell_overlaps(out: Path) -> None:
    """Print the overlap of large regions with those of the template, and its usual minimum."""
    heads, _ = read_heads(out)
    overlaps = heads.loc[heads['voxel_mm'] == COARSE_MM, list(LEAST_OVERLAP)]
    table = pd.DataFrame({'mean': overlaps.mean(), 'lowest': overlaps.min()})
    table['least'] = table['lowest'] - ROOM
    print(table.round(2).rename_axis('region').reset_index().to_string(index=False))


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('action', choices=('measure', 'calibrate', 'fit', 'overlaps'))
    parser.add_argument('folders', type=Path, nargs='+', help='DATA, if needed, and HEADS')
    parser.add_argument('--part', default='1/1', help='which of how many parts to measure')
    options = parser.parse_args()
    if options.action == 'measure':
        measure_part(*options.folders, options.part)
    elif options.action == 'calibrate':
        calibrate(*options.folders)
    elif options.action == 'fit':
        norms = fit_norms(*read_heads(*options.folders))
        norms.round(5).to_csv(sys.stdout, sep='\t')
    else:
        tell_overlaps(*options.folders)


if __name__ == '__main__':
    main()
