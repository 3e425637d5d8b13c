"""Sensitivity of RAVENS maps in a simulated cohort, compared with maps of the true change.

    python benchmarks/sensitivity.py COHORT OUTPUT [--fwhm 8]

COHORT was written by `surreal-simulate cohort`, OUTPUT by the participant level of the app. The
true map of a participant is the template's grey matter times the Jacobian determinant of the
simulated deformation. Both kinds get the same test in all participants: regression on the true
severity of each pattern, adjusted for the other patterns, age, sex, site and the total of the map;
false discovery rate 0.05. Sensitivity is the share of voxels of the pattern's regions in which a
loss is discovered. The AUC measures how well |t| separates these voxels from others.

The severities are then permuted 100 times, which leaves nothing to find; the benchmark counts the
permutations with any discovery in the RAVENS maps.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory

import nibabel as nib
import numpy as np
import pandas as pd
from machine import write_results
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from tqdm import tqdm

from surreal_bids.simulation.anatomy import jacobian_determinant, prescribed_losses, sample_anatomy
from surreal_bids.simulation.cohort import (
    CohortPlan,
    Person,
    load_simulator,
    random_streams,
    sample_people,
)
from surreal_bids.simulation.templates import LabelMap, labels_at
from surreal_bids.stats.glm import Design, covariate_columns, make_design
from surreal_bids.stats.maps import MapSeries, PatternMap, compute_maps, mean_mask

REPEATS = 100
RAVENS = '{label}/anat/{label}_space-*_label-GM_ravens.nii.gz'


def read_plan(cohort: Path) -> CohortPlan:
    record = json.loads((cohort / 'sourcedata/truth/cohort.json').read_text())
    names = {field.name for field in fields(CohortPlan)}
    return CohortPlan(**{name: value for name, value in record.items() if name in names})


def true_map(plan: CohortPlan, person: Person) -> nib.Nifti1Image:
    """Return the true grey matter map of a participant in template space."""
    simulator = load_simulator(plan.voxel_size)
    template = simulator.template
    _, anatomy_rng, _ = random_streams(plan, person.group, person.number)
    anatomy = sample_anatomy(template, person.sex, anatomy_rng)
    losses = prescribed_losses(np.array(person.severities), template.regions)
    displacement = simulator.solver.solve(anatomy.displacement, losses).displacement
    amount = template.tissue[0] * jacobian_determinant(displacement) * anatomy.volume_scale
    return nib.Nifti1Image(amount.astype(np.float32), template.affine)


def covariates_of(people: Sequence[Person], paths: Sequence[Path]) -> NDArray:
    totals = [float(np.asarray(nib.load(path).dataobj).sum(dtype=float)) for path in paths]
    table = pd.DataFrame(
        {
            'age': [float(person.age) for person in people],
            'sex': [person.sex for person in people],
            'site': [f'site{person.site}' for person in people],
            'total': totals,
        }
    )
    return covariate_columns(table)


def designs_of(severities: NDArray, columns: NDArray) -> list[Design]:
    """Return one regression per pattern, adjusted for the others."""
    everyone = np.arange(len(severities))
    return [
        make_design(
            f'r{k + 1}',
            f'severity of pattern {k + 1}',
            everyone,
            severities[:, k],
            np.hstack([columns, np.delete(severities, k, axis=1)]),
        )
        for k in range(severities.shape[1])
    ]


def score(found: PatternMap, labels: LabelMap, indices: Sequence[int]) -> dict[str, float]:
    t = np.asarray(found.t.dataobj)
    tested = t != 0
    concerned = np.isin(labels_at(labels, found.t.affine, t.shape), indices)
    discovered = -t >= found.t_fdr
    return {
        'sensitivity': float(discovered[concerned & tested].mean()),
        'elsewhere': float(discovered[~concerned & tested].mean()),
        'auc': float(roc_auc_score(concerned[tested], np.abs(t[tested]))),
        'n_voxels': int((concerned & tested).sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('cohort', type=Path)
    parser.add_argument('output', type=Path)
    parser.add_argument('--fwhm', type=float, default=8.0, help='smoothing of all maps, mm')
    arguments = parser.parse_args()
    plan = read_plan(arguments.cohort)
    people = [person for person in sample_people(plan) if person.site is not None]
    severities = np.array([person.severities for person in people])
    patterns = pd.read_csv(arguments.cohort / 'sourcedata/truth/patterns.tsv', sep='\t')
    labels = load_simulator(plan.voxel_size).template.labels
    ravens = [next(arguments.output.glob(RAVENS.format(label=each.label))) for each in people]
    rows = []
    with TemporaryDirectory() as folder:
        truths = []
        for person in tqdm(people, desc='True maps'):
            truths.append(Path(folder) / f'{person.label}.nii.gz')
            true_map(plan, person).to_filename(truths[-1])
        for kind, paths in (('true', truths), ('RAVENS', ravens)):
            mask = mean_mask(paths, fwhm=arguments.fwhm)
            series = MapSeries.open(paths, mask, fwhm=arguments.fwhm)
            columns = covariates_of(people, paths)
            for number, found in enumerate(
                compute_maps(series, designs_of(severities, columns)), start=1
            ):
                concerned = patterns.loc[patterns['pattern'] == number, 'index']
                rows.append({'maps': kind, 'pattern': number, **score(found, labels, concerned)})
                print(rows[-1], flush=True)
        rng = np.random.default_rng(0)
        orders = [rng.permutation(severities) for _ in range(REPEATS)]
        null = [designs_of(order, columns)[0] for order in orders]
        discoveries = [found.n_discoveries > 0 for found in compute_maps(series, null)]
    table = pd.DataFrame(rows).assign(
        people=len(people), fwhm=arguments.fwhm, null_repeats_with_discoveries=sum(discoveries)
    )
    print(table.to_string(index=False))
    write_results('sensitivity', table, 'surreal_bids', 'numpy')


if __name__ == '__main__':
    main()
