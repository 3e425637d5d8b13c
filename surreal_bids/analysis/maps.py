"""Voxelwise maps: RAVENS maps of the participants, compared voxel by voxel."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import nibabel as nib
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from surreal_bids.analysis.deviations import LEAST_DF, model_of_controls
from surreal_bids.analysis.engine import Analysis
from surreal_bids.analysis.outputs import write_described
from surreal_bids.bids.outputs import output_path, visit_output, write_sidecar
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.exceptions import DataError
from surreal_bids.files import copy_file, write_image, write_tsv
from surreal_bids.images import describe_difference, load_image, same_grid
from surreal_bids.names import PARTICIPANT, SESSION
from surreal_bids.stats.linear import ControlModel, Regression, covariate_columns, regress
from surreal_bids.text import counted

MIN_TISSUE = 0.1
"""Minimum mean tissue (probability times Jacobian) of compared voxels, as usual in VBM."""

FDR_LEVEL = 0.05
"""False discovery rate (Fig. 3 of the paper)."""

MIN_GROUP = 5
"""A smaller group is not compared: its map would show its members."""

VOXELS_AT_ONCE = 1 << 13
"""Voxels that are computed at once in double precision."""

PATIENTS = 'patients'
"""Name of the comparison of all patients with controls, which is the only test."""

SUMMARY = 'summary.tsv'
MAP_NAME = '{contrast}_{statistic}.nii.gz'


@dataclass(frozen=True)
class MapOptions:
    """How maps are compared.

    Attributes
    ----------
    smoothing
        Full width at half maximum of the smoothing of the RAVENS maps, in mm.
    permutations
        Number of permutations for family-wise errors; 0: none.
    random_seed
        Seed of the permutations.
    """

    smoothing: float = 0.0
    permutations: int = 0
    random_seed: int = 0


@dataclass(frozen=True, eq=False)
class VoxelMaps:
    """Maps of one tissue.

    Attributes
    ----------
    images
        Image of each contrast that is drawn: t of the test, the effect of a description.
    summary : frame
        One row for each contrast: participants, degrees of freedom, number of discoveries.
    skipped
        Contrasts that were not computed, and the reasons.
    """

    images: Mapping[str, Path]
    summary: pd.DataFrame
    skipped: Mapping[str, str]


def ravens_files(output_dir: Path, visits: pd.DataFrame, tissue: str) -> dict[str, Path]:
    """Find the RAVENS maps of these visits, by visit; those that exist."""
    paths = {
        str(visit): visit_output(
            output_dir, 'ravens', row[PARTICIPANT], row.get(SESSION), tissue=tissue
        )
        for visit, row in visits.iterrows()
    }
    return {visit: path for visit, path in paths.items() if path and path.is_file()}


def mean_mask(paths: Sequence[Path], fwhm: float = 0.0) -> nib.Nifti1Image:
    """Mask of the voxels whose mean over participants exceeds `MIN_TISSUE`."""
    reference = load_image(paths[0])
    total = np.zeros(reference.shape)
    for path in paths:
        total += _read(path, reference, fwhm)
    mask = total > MIN_TISSUE * len(paths)
    if not mask.any():
        raise DataError(
            f'no voxel has a mean above {MIN_TISSUE:g} over {len(paths)} RAVENS maps, such as '
            f'{paths[0]}; rerun the participant level'
        )
    return nib.Nifti1Image(mask.astype(np.uint8), reference.affine)


def _read(path: Path, reference: nib.Nifti1Image, fwhm: float) -> NDArray[np.float32]:
    """Read a map, which must be on the grid of the others, and smooth it."""
    from nilearn.image import smooth_img

    image = load_image(path)
    if not same_grid(image, reference):
        raise DataError(
            f'{path}: grid differs from the other RAVENS maps '
            f'({describe_difference(image, reference)}); rerun the participant level'
        )
    return smooth_img(image, fwhm or None).get_fdata(dtype=np.float32)


def read_voxels(
    paths: Sequence[Path], mask: nib.Nifti1Image, fwhm: float = 0.0, n_threads: int = 1
) -> NDArray[np.float32]:
    """Voxels (N, V) of N maps within a mask."""
    inside = np.asanyarray(mask.dataobj) > 0
    values = np.empty((len(paths), int(inside.sum())), np.float32)
    with ThreadPoolExecutor(n_threads) as pool:
        for row, image in enumerate(pool.map(partial(_read, reference=mask, fwhm=fwhm), paths)):
            values[row] = image[inside]
    return values


def to_image(values: NDArray, mask: nib.Nifti1Image) -> nib.Nifti1Image:
    """Values (V,) of the voxels of a mask as an image, 0 outside."""
    array = np.zeros(mask.shape, np.float32)
    array[np.asanyarray(mask.dataobj) > 0] = values
    image = nib.Nifti1Image(array, mask.affine)
    image.header.set_xyzt_units('mm')
    return image


class Contrast(NamedTuple):
    """Participants (rows), a column that is compared or regressed on, and what is held fixed."""

    name: str
    description: str
    rows: NDArray[np.intp]
    tested: NDArray[np.float64]
    columns: NDArray[np.float64]

    @property
    def is_test(self) -> bool:
        """Whether chance finds nothing.

        R-indices, out of fold or not, are functions of the brains that are compared: slopes on
        them differ from 0 even if nobody is ill. They describe.
        """
        return self.name == PATIENTS


def make_contrasts(
    indices: pd.DataFrame, is_patient: NDArray[np.bool_], covariates: pd.DataFrame
) -> tuple[list[Contrast], dict[str, str]]:
    """Compare patients with controls and, among patients, regress on each R-index (section 4.3).

    Parameters
    ----------
    indices : (N, M)
        R-indices; patients who lack one are in no regression.
    is_patient : (N,)
        Who is a patient; the others are controls.
    covariates : (N, c)
        Held fixed, as are the other R-indices in a regression.

    Returns
    -------
    contrasts
        `patients`, then `r1slope` and so on.
    skipped
        What cannot be compared, and why.
    """
    fixed, contrasts, skipped = covariate_columns(covariates), [], {}
    counts = {'controls': int((~is_patient).sum()), 'patients': int(is_patient.sum())}
    text = f'all patients (n = {counts["patients"]}) against controls (n = {counts["controls"]})'
    everyone = np.arange(len(indices))
    candidates = [(counts, Contrast(PATIENTS, text, everyone, is_patient.astype(float), fixed))]
    rows = np.flatnonzero(is_patient & indices.notna().all(axis=1).to_numpy())
    values = indices.iloc[rows].to_numpy(np.float64)
    for number, name in enumerate(indices):
        others = np.delete(values, number, axis=1)
        held = ', other R-indices held fixed' if others.shape[1] else ''
        text = f'{name} among patients (n = {rows.size}){held}'
        columns = np.hstack([fixed[rows], others])
        contrast = Contrast(f'{name}slope', text, rows, values[:, number], columns)
        candidates.append(({'patients': rows.size}, contrast))
    for sizes, each in candidates:
        small = [f'{count} {group}' for group, count in sizes.items() if count < MIN_GROUP]
        reason = f'only {" and ".join(small)}; at least {MIN_GROUP} are needed' if small else ''
        if not small:
            try:
                regress(np.zeros((each.rows.size, 1)), each.tested, each.columns)
            except DataError as error:
                reason = str(error)
        if reason:
            skipped[each.name] = f'{each.description}: {reason}'
        else:
            contrasts.append(each)
    return contrasts, skipped


def _regress(values: NDArray[np.float32], contrast: Contrast) -> Regression:
    """Effect and t (V,) of a contrast."""
    parts = [
        regress(values[contrast.rows, start : start + VOXELS_AT_ONCE], *contrast[3:])
        for start in range(0, values.shape[1], VOXELS_AT_ONCE)
    ]
    effect, t = (np.concatenate(each) for each in zip(*(part[:2] for part in parts)))
    return Regression(effect, t.astype(np.float32), parts[0].df)


def map_tissue(
    found: Analysis,
    files: Mapping[str, Path],
    folder: Path,
    options: MapOptions,
    n_threads: int = 1,
) -> tuple[Path, dict[str, str]]:
    """Compare the RAVENS maps of one tissue; maps of the same images and contrasts are reused.

    Parameters
    ----------
    found
        R-indices of the participants.
    files
        RAVENS map of each visit that has one.
    folder
        Where the maps are kept.
    options
        Smoothing and permutations.
    n_threads
        Number of files that are read at once.

    Returns
    -------
    folder
        An image for each contrast and statistic (`MAP_NAME`), and `SUMMARY`.
    skipped
        What cannot be compared, and why.
    """
    first = found.cohort.first_visits()
    mapped = first.select([str(visit) in files for visit in first.visits.index])
    paths = [files[str(visit)] for visit in mapped.visits.index]
    indices = found.results.loc[mapped.visits.index, found.names]
    contrasts, skipped = make_contrasts(indices, mapped.is_patient.to_numpy(bool), mapped.people)
    own = folder / _fingerprint(paths, contrasts, options)
    if not (own / SUMMARY).is_file():
        shutil.rmtree(folder, ignore_errors=True)
        rows = []
        if contrasts:
            mask = mean_mask(paths, options.smoothing)
            values = read_voxels(paths, mask, options.smoothing, n_threads)
            rows = [_compute(each, values, mask, own, options) for each in contrasts]
        # The table is written last: maps of an interrupted run are computed again.
        columns = None if rows else ['contrast', 'description']
        write_tsv(own / SUMMARY, pd.DataFrame(rows, columns=columns))
    return own, skipped


def _fingerprint(paths: Sequence[Path], contrasts: Sequence[Contrast], options: MapOptions) -> str:
    """Hash of all that maps depend on."""
    digest = hashlib.sha256(repr(options).encode())
    for path in paths:
        status = path.stat()
        digest.update(repr((str(path), status.st_size, status.st_mtime_ns)).encode())
    for each in contrasts:
        digest.update(repr((each.name, each.description, each.columns.shape)).encode())
        for array in each[2:]:
            digest.update(array.tobytes())
    return digest.hexdigest()[:16]


def _compute(
    contrast: Contrast,
    values: NDArray[np.float32],
    mask: nib.Nifti1Image,
    folder: Path,
    options: MapOptions,
) -> dict[str, Any]:
    """Write the images of a contrast; return its row of the table."""
    effect, t, df = _regress(values, contrast)
    images = {'t': t, 'effect': effect}
    if contrast.is_test and options.permutations:
        # Voxels that do not vary have a t of rounding errors, which may be the largest of all.
        varies = t != 0
        images['logp'] = np.zeros(t.shape)
        if varies.any():
            images['logp'][varies] = _permute(values[:, varies], contrast, options)
    for statistic, voxels in images.items():
        name = MAP_NAME.format(contrast=contrast.name, statistic=statistic)
        write_image(folder / name, to_image(voxels, mask))
    row = {
        'contrast': contrast.name,
        'description': contrast.description,
        'participants': contrast.rows.size,
        'degrees_of_freedom': df,
        'kind': 'test' if contrast.is_test else 'description',
        'voxels': int(np.count_nonzero(t)),
        't_at_fdr_0.05': None,
        'discoveries': None,
    }
    if contrast.is_test:
        size = np.abs(t[t != 0]).astype(np.float64)
        p = stats.false_discovery_control(2 * stats.t.sf(size, df)) if size.size else size
        discovered = size[p <= FDR_LEVEL]
        row['discoveries'] = discovered.size
        row['t_at_fdr_0.05'] = float(discovered.min()) if discovered.size else None
    return row


def _permute(
    values: NDArray[np.float32], contrast: Contrast, options: MapOptions
) -> NDArray[np.float64]:
    """-log10 of family-wise corrected p values (V,), by Freedman and Lane's permutations."""
    from nilearn.mass_univariate import permuted_ols

    found = permuted_ols(
        contrast.tested[:, np.newaxis],
        values[contrast.rows],
        contrast.columns if contrast.columns.shape[1] else None,
        n_perm=options.permutations,
        random_state=options.random_seed,
        output_type='dict',
    )
    return np.asarray(found['logp_max_t'][0])


STATISTICS = {
    't': 'Student t',
    'effect': 'Difference of means, or change per unit of the R-index, of the RAVENS map',
    'logp': '-log10 of the family-wise corrected p value, by permutation',
}
"""What each statistical map holds."""

DESCRIPTION_ONLY = (
    '. A description, not a test: R-indices are computed from the same brains, which makes '
    'differences here even by chance'
)
"""Ends the description of regressions on R-indices."""


def write_maps(root: Path, maps: tuple[Path, Mapping[str, str]], tissue: str) -> VoxelMaps:
    """Copy the maps of one tissue to the outputs, with descriptions, and write their table.

    `maps` is what :func:`map_tissue` returns.
    """
    folder, skipped = maps
    summary = pd.read_csv(folder / SUMMARY, sep='\t', na_values=['n/a'], keep_default_na=False)
    write_described('contrasts', output_path(root, 'contrasts', tissue=tissue), summary)
    drawn = {}
    for _, row in summary.iterrows():
        for statistic, meaning in STATISTICS.items():
            source = folder / MAP_NAME.format(contrast=row['contrast'], statistic=statistic)
            if not source.is_file():
                continue
            entities = {'tissue': tissue, 'contrast': row['contrast']}
            target = output_path(root, 'statistical_map', **entities, statistic=statistic)
            copy_file(source, target)
            metadata = {
                'Description': f'{meaning}: {row["description"]}, RAVENS maps of {tissue}'
                + ('' if row['kind'] == 'test' else DESCRIPTION_ONLY),
                'DegreesOfFreedom': int(row['degrees_of_freedom']),
            }
            write_sidecar('statistical_map', target, metadata)
            if statistic == ('t' if row['kind'] == 'test' else 'effect'):
                drawn[row['contrast']] = target
    return VoxelMaps(drawn, summary, skipped)


LEAST_CONTROLS = 20
"""Controls with RAVENS maps below which there are no maps of deviations."""

STEP_Z = 0.01
"""Step of the z-scores in maps, which are 16-bit numbers."""


@dataclass(frozen=True, eq=False)
class MappedCohort:
    """RAVENS maps of one tissue, and the model of those of controls.

    Attributes
    ----------
    tissue
        What they are maps of.
    visits
        All visits with a map.
    paths
        Their maps.
    model
        Model with the covariates of the group maps.
    """

    tissue: str
    visits: pd.DataFrame
    paths: Sequence[Path]
    model: ControlModel

    @classmethod
    def read(cls, cohort: Cohort, files: Mapping[str, Path], tissue: str) -> MappedCohort:
        """Choose the visits of a cohort that have a map.

        Raises
        ------
        DataError
            There are too few controls.
        """
        is_known = cohort.people.notna().all(axis=1)
        mapped = cohort.select(
            [str(visit) in files and is_known[visit] for visit in is_known.index]
        )
        if len(mapped) == 0:
            raise DataError(
                f'--deviation-maps: there are no RAVENS maps of {tissue} in the output folder; run '
                'the participant level first, or remove this option'
            )
        model = model_of_controls(mapped, covariate_columns(mapped.people))
        if model.fitted.size < LEAST_CONTROLS or model.df < LEAST_DF:
            raise DataError(
                f'--deviation-maps: {counted(model.fitted.size, "control")} with a RAVENS map of '
                f'{tissue} and {counted(model.n_columns, "column")} of mean and covariates; at '
                f'least {LEAST_CONTROLS} controls, and {LEAST_DF} more than columns, are needed; '
                'remove this option, or use fewer covariates'
            )
        return cls(tissue, mapped.visits, [files[str(each)] for each in mapped.visits.index], model)

    @property
    def not_comparable(self) -> pd.Index:
        """Visits without a z-score, because no other control has their site or category."""
        return self.visits.index[~self.model.estimable]

    def z_scores(
        self, chosen: Collection[str], fwhm: float, n_threads: int
    ) -> Iterator[tuple[int, nib.Nifti1Image]]:
        """Rows of the chosen visits and their z-scores, where controls have tissue."""
        mask = mean_mask([self.paths[row] for row in self.model.fitted], fwhm)
        values = read_voxels(self.paths, mask, fwhm, n_threads)
        for start in range(0, values.shape[1], VOXELS_AT_ONCE):
            part = np.s_[:, start : start + VOXELS_AT_ONCE]
            values[part] = np.nan_to_num(self.model.z_scores(values[part]))
        for row in np.flatnonzero(self.model.estimable):
            if self.visits.index[row] in chosen:
                yield row, to_image(values[row], mask)

    def write(self, root: Path, chosen: Collection[str], fwhm: float, n_threads: int) -> None:
        """Write the z-scores of the chosen visits.

        Parameters
        ----------
        root
            The output folder.
        chosen
            Names of the visits.
        fwhm
            Smoothing of the maps (mm).
        n_threads
            Number of files that are read at once.
        """
        metadata = {
            'Description': f'z-scores of the RAVENS map of {self.tissue}, negative where there is '
            'less tissue than in controls of this study with the same covariates; normal deviates '
            'with the p value of t. Controls are compared with the other controls. 0 where '
            'controls have no tissue',
            'SmoothingFWHM': fwhm,
        }
        for row, z in self.z_scores(chosen, fwhm, n_threads):
            visit = self.visits.iloc[row]
            path = visit_output(
                root, 'deviation_map', visit[PARTICIPANT], visit.get(SESSION), tissue=self.tissue
            )
            if path is not None:
                write_image(path, in_16_bits(z))
                is_control = int(self.model.own[row] >= 0)
                counts = {
                    'NumberOfControls': self.model.fitted.size - is_control,
                    'DegreesOfFreedom': self.model.df - is_control,
                }
                write_sidecar('deviation_map', path, metadata | counts)


def in_16_bits(image: nib.Nifti1Image) -> nib.Nifti1Image:
    """Return a map of z-scores as multiples of `STEP_Z`; 0 stays 0."""
    steps = np.round(image.get_fdata(dtype=np.float32) / STEP_Z).astype(np.int16)
    small = nib.Nifti1Image(steps, image.affine)
    small.header.set_xyzt_units('mm')
    small.header.set_slope_inter(STEP_Z, 0)
    return small
