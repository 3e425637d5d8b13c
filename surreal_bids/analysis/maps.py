"""Voxelwise maps: RAVENS maps of the participants, compared voxel by voxel."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Collection, Mapping, Sequence
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
from surreal_bids.files import copy_file, write_image
from surreal_bids.images import describe_difference, load_image, same_grid
from surreal_bids.names import PARTICIPANT, SESSION
from surreal_bids.stats.linear import VALUES_AT_ONCE, ControlModel, covariate_columns, regress
from surreal_bids.text import counted

MIN_TISSUE = 0.1
"""Minimum mean tissue (probability times Jacobian) of compared voxels, as usual in VBM."""

FDR_LEVEL = 0.05
"""False discovery rate (Fig. 3 of the paper)."""

MIN_GROUP = 5
"""A smaller group is not compared: its map would show its members."""

PATIENTS = 'patients'
"""Name of the comparison of all patients with controls, which is the only test."""


@dataclass(frozen=True)
class MapOptions:
    """Which maps are compared, and how.

    Attributes
    ----------
    tissue
        What they are RAVENS maps of.
    smoothing
        Full width at half maximum of the smoothing of the RAVENS maps, in mm.
    permutations
        Number of permutations for family-wise errors; 0: none.
    random_seed
        Seed of the permutations.
    """

    tissue: str
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


def ravens_files(root: Path, visits: pd.DataFrame, tissue: str) -> dict[str, Path]:
    """Find the RAVENS maps of these visits, by visit; those that exist."""
    paths = _paths_of_visits(root, 'ravens', visits, tissue)
    return {visit: path for visit, path in paths.items() if path.is_file()}


def _paths_of_visits(root: Path, name: str, visits: pd.DataFrame, tissue: str) -> dict[str, Path]:
    """Build the path of a map by visit, for visits whose ids are BIDS labels."""
    paths = {
        str(visit): visit_output(root, name, row[PARTICIPANT], row.get(SESSION), tissue=tissue)
        for visit, row in visits.iterrows()
    }
    return {visit: path for visit, path in paths.items() if path}


def mean_mask(paths: Sequence[Path], fwhm: float = 0.0) -> nib.Nifti1Image:
    """Mask of the voxels whose mean over participants exceeds `MIN_TISSUE`."""
    reference = load_image(paths[0])
    total = np.zeros(reference.shape)
    for path in paths:
        total += _read(path, reference, fwhm)
    mask = total > MIN_TISSUE * len(paths)
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


def to_image(values: NDArray, mask: nib.Nifti1Image, dtype: Any = np.float32) -> nib.Nifti1Image:
    """Values (V,) of the voxels of a mask as an image, 0 outside."""
    array = np.zeros(mask.shape, dtype)
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
    fixed, n_patients = covariate_columns(covariates), int(is_patient.sum())
    text = f'all patients (n = {n_patients}) against controls (n = {(~is_patient).sum()})'
    everyone = np.arange(len(indices))
    contrasts = [Contrast(PATIENTS, text, everyone, is_patient.astype(float), fixed)]
    rows = np.flatnonzero(is_patient & indices.notna().all(axis=1).to_numpy())
    values = indices.iloc[rows].to_numpy(np.float64)
    for number, name in enumerate(indices):
        others = np.delete(values, number, axis=1)
        held = ', other R-indices held fixed' if others.shape[1] else ''
        text = f'{name} among patients (n = {rows.size}){held}'
        columns = np.hstack([fixed[rows], others])
        contrasts.append(Contrast(f'{name}slope', text, rows, values[:, number], columns))
    problems = {each.name: _problem(each) for each in contrasts}
    skipped = {each.name: f'{each.description}: {problems[each.name]}' for each in contrasts}
    possible = [each for each in contrasts if not problems[each.name]]
    return possible, {name: text for name, text in skipped.items() if problems[name]}


def _problem(contrast: Contrast) -> str:
    """Why a contrast cannot be computed; empty where it can."""
    patients = contrast.tested.sum() if contrast.is_test else contrast.rows.size
    controls = contrast.rows.size - patients if contrast.is_test else MIN_GROUP
    if min(patients, controls) < MIN_GROUP:
        return f'at least {MIN_GROUP} of each group are needed'
    try:
        regress(np.zeros((contrast.rows.size, 1)), contrast.tested, contrast.columns)
    except DataError as error:
        return str(error)
    return ''


def map_tissue(
    found: Analysis, root: Path, folder: Path, options: MapOptions, n_threads: int = 1
) -> VoxelMaps:
    """Compare the RAVENS maps of one tissue, and write maps and their table to the outputs.

    Parameters
    ----------
    found
        R-indices of the participants.
    root
        The output folder, which has the RAVENS maps.
    folder
        Where maps are kept; those of the same images and contrasts are reused.
    options
        Tissue, smoothing and permutations.
    n_threads
        Number of files that are read at once.
    """
    first = found.cohort.first_visits()
    files = ravens_files(root, first.visits, options.tissue)
    mapped = first.select([str(visit) in files for visit in first.visits.index])
    paths = list(files.values())
    indices = found.results.loc[mapped.visits.index, found.names]
    contrasts, skipped = make_contrasts(indices, mapped.is_patient.to_numpy(bool), mapped.people)
    own = folder / _fingerprint(paths, contrasts, options)
    table = output_path(own, 'contrasts', tissue=options.tissue)
    if not table.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        rows = []
        if contrasts:
            mask = mean_mask(paths, options.smoothing)
            values = read_voxels(paths, mask, options.smoothing, n_threads)
            rows = [_compute(each, values, mask, own, options) for each in contrasts]
        # The table is written last: maps of an interrupted run are computed again.
        columns = None if rows else ['contrast', 'description', 'kind']
        write_described('contrasts', table, pd.DataFrame(rows, columns=columns))
    shutil.copytree(own, root, copy_function=copy_file, dirs_exist_ok=True)
    summary = pd.read_csv(table, sep='\t', na_values=['n/a'], keep_default_na=False)
    drawn = {
        name: _map_path(root, options.tissue, name, 't' if kind == 'test' else 'effect')
        for name, kind in zip(summary['contrast'], summary['kind'])
    }
    return VoxelMaps(drawn, summary, skipped)


def _map_path(root: Path, tissue: str, contrast: str, statistic: str) -> Path:
    entities = {'tissue': tissue, 'contrast': contrast, 'statistic': statistic}
    return output_path(root, 'statistical_map', **entities)


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
    """Write the images of a contrast with their descriptions; return its row of the table."""
    own = values[contrast.rows] if contrast.rows.size < len(values) else values
    effect, t, df = regress(own, contrast.tested, contrast.columns)
    t = t.astype(np.float32)
    images = {'t': t, 'effect': effect}
    # Voxels that do not vary have a t of rounding errors, which may be the largest of all.
    varies = t != 0
    if contrast.is_test and options.permutations:
        images['logp'] = np.zeros(t.shape)
        images['logp'][varies] = _permute(own[:, varies], contrast, options)
    for statistic, voxels in images.items():
        path = _map_path(folder, options.tissue, contrast.name, statistic)
        write_image(path, to_image(voxels, mask))
        text = f'{STATISTICS[statistic]}: {contrast.description}, RAVENS maps of {options.tissue}'
        text += '' if contrast.is_test else DESCRIPTION_ONLY
        write_sidecar('statistical_map', path, {'Description': text, 'DegreesOfFreedom': df})
    row = {
        'contrast': contrast.name,
        'description': contrast.description,
        'participants': contrast.rows.size,
        'degrees_of_freedom': df,
        'kind': 'test' if contrast.is_test else 'description',
        'voxels': int(varies.sum()),
        't_at_fdr_0.05': None,
        'discoveries': None,
    }
    if contrast.is_test:
        size = np.abs(t[varies]).astype(np.float64)
        p = stats.false_discovery_control(2 * stats.t.sf(size, df)) if size.size else size
        discovered = size[p <= FDR_LEVEL]
        row |= {'discoveries': discovered.size, 't_at_fdr_0.05': pd.Series(discovered).min()}
    return row


def _permute(
    values: NDArray[np.float32], contrast: Contrast, options: MapOptions
) -> NDArray[np.float64]:
    """-log10 of family-wise corrected p values (V,), by Freedman and Lane's permutations."""
    from nilearn.mass_univariate import permuted_ols

    found = permuted_ols(
        contrast.tested[:, np.newaxis],
        values,
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


LEAST_CONTROLS = 20
"""Controls with RAVENS maps below which there are no maps of deviations."""

STEP_Z = 0.01
"""Step of the z-scores in maps, which are 16-bit numbers."""


@dataclass(frozen=True, eq=False)
class MappedCohort:
    """RAVENS maps of one tissue, and the model of those of controls.

    Attributes
    ----------
    root
        The output folder.
    tissue
        What they are maps of.
    visits
        All visits with a map.
    paths
        Their maps.
    model
        Model with the covariates of the group maps.
    """

    root: Path
    tissue: str
    visits: pd.DataFrame
    paths: Sequence[Path]
    model: ControlModel

    @classmethod
    def read(cls, root: Path, cohort: Cohort, tissue: str) -> MappedCohort:
        """Choose the visits of a cohort that have a map.

        Raises
        ------
        DataError
            There are too few controls.
        """
        files = ravens_files(root, cohort.visits, tissue)
        is_known = cohort.people.notna().all(axis=1)
        mapped = cohort.select(is_known & is_known.index.astype(str).isin(list(files)))
        model = model_of_controls(mapped, covariate_columns(mapped.people))
        if model.fitted.size < LEAST_CONTROLS or model.df < LEAST_DF:
            raise DataError(
                f'--deviation-maps: {counted(model.fitted.size, "control")} with a RAVENS map of '
                f'{tissue} and {counted(model.n_columns, "column")} of mean and covariates; at '
                f'least {LEAST_CONTROLS} controls, and {LEAST_DF} more than columns, are needed; '
                'run the participant level, use fewer covariates, or remove this option'
            )
        paths = [files[str(visit)] for visit in mapped.visits.index]
        return cls(root, tissue, mapped.visits, paths, model)

    @property
    def not_comparable(self) -> pd.Index:
        """Visits without a z-score, because no other control has their site or category."""
        return self.visits.index[~self.model.estimable]

    def write(self, chosen: Collection[str], fwhm: float, n_threads: int) -> None:
        """Write the z-scores of the chosen visits, where controls have tissue.

        Parameters
        ----------
        chosen
            Names of the visits.
        fwhm
            Smoothing of the maps (mm).
        n_threads
            Number of files that are read at once.
        """
        mask = mean_mask([self.paths[row] for row in self.model.fitted], fwhm)
        values = read_voxels(self.paths, mask, fwhm, n_threads)
        for start in range(0, values.shape[1], VALUES_AT_ONCE):
            part = np.s_[:, start : start + VALUES_AT_ONCE]
            values[part] = np.nan_to_num(self.model.z_scores(values[part]))
        description = (
            f'z-scores of the RAVENS map of {self.tissue}, negative where there is less tissue '
            'than in controls of this study with the same covariates; normal deviates with the p '
            'value of t. Controls are compared with the other controls. 0 where controls have no '
            'tissue'
        )
        paths = _paths_of_visits(self.root, 'deviation_map', self.visits, self.tissue)
        for row in np.flatnonzero(self.model.estimable & self.visits.index.isin(list(chosen))):
            path = paths[str(self.visits.index[row])]
            image = to_image(np.round(values[row] / STEP_Z), mask, np.int16)
            image.header.set_slope_inter(STEP_Z, 0)
            write_image(path, image)
            is_control = int(self.model.own[row] >= 0)
            metadata = {
                'Description': description,
                'SmoothingFWHM': fwhm,
                'NumberOfControls': self.model.fitted.size - is_control,
                'DegreesOfFreedom': self.model.df - is_control,
            }
            write_sidecar('deviation_map', path, metadata)
