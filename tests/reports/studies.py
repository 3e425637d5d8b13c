"""Canonical studies for reports: full, minimal, hostile, and unsupported; nothing is trained.

In the unsupported study, the permutation test supports no pattern.
"""

from dataclasses import replace
from types import SimpleNamespace

import nibabel as nib
import numpy as np
import pandas as pd

from surreal_bids.analysis.asymmetry import Asymmetry
from surreal_bids.analysis.engine import Flag, flags_of_result, store_flags
from surreal_bids.analysis.image_quality import ImageQuality
from surreal_bids.analysis.limits import count_reliable
from surreal_bids.analysis.maps import VoxelMaps
from surreal_bids.analysis.outputs import GroupTables, find_reference
from surreal_bids.analysis.statistics import (
    STATISTICS_COLUMNS,
    compare_groups,
    warn_of_differences,
)
from surreal_bids.bids.outputs import output_path, record_path, sidecar_path, write_record
from surreal_bids.cautions import MODEL, Caution
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.cohort.roles import FRAME, column_features
from surreal_bids.files import write_image, write_json, write_tsv
from surreal_bids.harmonization.combat import UNHARMONIZED
from surreal_bids.harmonization.options import PreprocessingOptions
from surreal_bids.model.agreement import NO_PATTERN
from surreal_bids.regions import Feature, FeatureList
from surreal_bids.reports.flags import NOT_HARMONIZED, OUTLIER
from surreal_bids.reports.group import GroupReport
from surreal_bids.reports.mosaics import Background, RegionPainter
from tests.reports.html_page import HOSTILE

N_CN, N_PT = 24, 18
SHAPE = (12, 14, 11)
AFFINE = np.array([[4.0, 0, 0, -24], [0, 4, 0, -28], [0, 0, 4, -22], [0, 0, 0, 1]])
REGIONS = {'Left hippocampus': 48, 'Right hippocampus': 47, 'Left amygdala': 32, 'Precuneus': 168}

METHODS = {
    'n_controls': N_CN, 'n_patients': N_PT, 'n_without_group': 0, 'n_features': 4,
    'n_structures': 0, 'averaged': False,
    'features': 'volumes', 'n_patterns': 2, 'folds': 5, 'covariates': ('age', 'sex'),
    'icv': 'power', 'harmonized': True, 'adapted_to': 0, 'longitudinal': False,
    'associations': True, 'adjusted_for': 'age, sex, site', 'change': True, 'published': None,
    'other_groups': [], 'noise_controls': 66,
    'preset': 'sparse', 'candidates': [1, 2, 3], 'members': 10, 'iterations': 3000,
    'map_tissues': ('GM',), 'map_smoothing': 6, 'deviation_maps': (), 'permutations': 0,
    'from_table': False, 'model': None,
}  # fmt: skip
"""What :func:`surreal_bids.reports.methods.describe_group_methods` returns."""

CARD = {
    'PatternNames': ['r1', 'r2'],
    'CardSHA256': 'abc',
    'GeneratedBy': {'Name': 'surreal_bids', 'Version': '9.9', 'Torch': '2', 'Python': '3'},
    'Selected': {
        'n_patterns': 2, 'ortho': 0.4, 'agreement': 0.83, 'members': [0, 1], 'reference': 0,
    },
    'Sample': {'n_cn': N_CN, 'n_pt': N_PT},
    'Repetitions': 3,
    'RandomState': 0,
    'Preset': 'sparse',
    'Stability': {
        'n_patterns': 2,
        'stabilities': [
            {'n_patterns': 1, 'value': 0.99, 'null': []},
            {'n_patterns': 2, 'value': 0.95, 'null': [0.2] * 39},
        ],
    },
    'Reproducibility': {
        'r1': {'Median': 0.93, 'Low': 0.81, 'High': 0.97},
        'r2': {'Median': 0.55, 'Low': 0.31, 'High': 0.74},
    },
    'CrossFit': {'Folds': 5, 'LeastCorrelation': {'r1': 0.93, 'r2': 0.81}},
    'FeatureDetails': [{'Name': name, 'MUSERegions': [k]} for name, k in REGIONS.items()],
    'Preprocessing': {
        'features': FeatureList(
            'columns', tuple(Feature(name, (k,)) for name, k in REGIONS.items()), 'mm3'
        ).to_json(),
        'options': {'covariates': ['age', 'sex'], 'icv_column': 'icv', 'icv': 'power'},
        'codes': {'sex': {'f': 0.0, 'm': 1.0}},
        'imputer': {},
        'combat': {'sites': ['a', 'b'], 'site_sizes': [12, 12]},
        'residualiser': {
            'encoder': {
                'covariates': ['age', 'sex'], 'range': {'age': [55.6496, 88.4408], 'sex': [0, 1]},
            }
        },
    },
}  # fmt: skip
"""Card of a model, as `model.json` holds it."""


def make_cohort(rng, n_cn=N_CN, n_pt=N_PT, name='age') -> Cohort:
    ids = [f'sub-{k:02}' for k in range(n_cn + n_pt)]
    visits = pd.DataFrame({'participant_id': ids}, ids)
    visits['group'] = ['CN'] * n_cn + ['PT'] * n_pt
    people = pd.DataFrame({'age': rng.uniform(50, 80, len(ids)).round(1)}, ids)
    people['site'] = rng.choice(['a', 'b'], len(ids))
    features = pd.DataFrame(rng.normal(100, 10, (len(ids), 4)), ids, list(REGIONS))
    return Cohort(
        visits.assign(is_first=True),
        features,
        people,
        pd.DataFrame({'mmse': [str(k) for k in range(len(ids))]}, ids),
        column_features(list(REGIONS)),
        PreprocessingOptions(('age',), site_column='site'),
        ('Groups: as given', f'Odd: {name}'),
        pd.DataFrame({'participant_id': ['sub-98', 'sub-99'], 'reason': [name] * 2}),
        uses=pd.DataFrame([('volumes.tsv', name, 'not used: row number')], columns=FRAME),
    )


ONE_SIDED = Asymmetry(
    pd.DataFrame(),
    pd.DataFrame(
        {
            'index': ['r1', 'r2'], 'group': 'PT', 'beyond': [9, 1], 'n': 20, 'share': [0.45, 0.05],
            'low': [0.25, 0.01], 'high': [0.66, 0.24], 'n_controls': N_CN,
        }
    ),
)  # fmt: skip


def make_found(kind, folder, sizes=(N_CN, N_PT)) -> SimpleNamespace:
    """Results as :class:`surreal_bids.analysis.engine.Analysis` has them."""
    rng, name = np.random.default_rng(0), HOSTILE if kind == 'hostile' else 'mmse'
    cohort = make_cohort(rng, *sizes, name=name)
    index, full = cohort.visits.index, kind != 'minimal'
    results = pd.DataFrame(rng.uniform(size=(len(index), 2)), index, ['r1', 'r2']).round(3)
    results.loc[cohort.groups == 'PT', 'r1'] += 0.6
    results = results.assign(status='complete', fold=1, held_out=True, reason=None)
    for pattern in ('r1', 'r2'):
        results[f'{pattern}_low'] = results[pattern] - 0.2
        results[f'{pattern}_high'] = results[pattern] + 0.2
        results[f'{pattern}_centile'] = 96.8
    results['covariates_out_of_range'] = np.where(results.index == 'sub-03', 'age', 'none')
    patterns = pd.DataFrame(
        {
            'pattern': ['r1'] * 4 + ['r2'] * 4,
            'region': [*REGIONS] * 2,
            'muse_regions': [str(k) for k in REGIONS.values()] * 2 if full else None,
            'change_percent': [-14.0, -12, -9, 0.2, 0.1, 0.2, -0.3, -8.0],
            'change_sd_spread': 0.1,
            'change_sd': [-1.4, -1.2, -0.9, 0.02, 0.01, 0.02, -0.03, -0.8],
            'contribution': [0.1, 0.1, 0.05, 0.0, 0.0, 0.0, 0.0, 0.2],
            'shown': [True] * 3 + [False] * 4 + [True],
        }
    )
    associations = pd.DataFrame(
        [('r1', name, 0.41, 0.1, 0.7, 0.04, 0.08, 18, None, 'age, sex, site')],
        columns=[*STATISTICS_COLUMNS[1:], 'higher_level', 'adjusted_for'],
    )
    change = {'index': ['r1'], 'estimate': [0.031], 'p': [0.02], 'p_corrected': [0.02]}
    changes = pd.DataFrame({'participant_id': ['sub-01'], 'years': 2.0, 'reliable': 'true'})
    changes[['noise_from', 'noise_controls', 'noise_years']] = 'controls', 66, 1.2
    caution = Caution(f'Few controls ({name})', 'Numbers are uncertain', 'Add controls', MODEL)
    return SimpleNamespace(
        cohort=cohort,
        names=['r1', 'r2'],
        whose='patients',
        trained_here=True,
        fitted=object(),
        results=results,
        scored=cohort,
        all_results=results,
        flags=pd.Series([tuple(flags_of_result(row)) for row in results.to_dict('records')], index),
        first_visits=results.assign(group=cohort.groups),
        patterns=patterns,
        asymmetry=ONE_SIDED if full else None,
        associations=associations if full else associations.iloc[:0],
        associations_of_others=pd.DataFrame(),
        untested={'ptid': 'an id'} if full else {},
        separation=pd.DataFrame({'index': ['r1'], 'measure': ['AUC'], 'estimate': [0.8123]}),
        differences=compare_groups(cohort),
        group_change=pd.DataFrame(change) if full else None,
        changes=changes,
        reliable_changes=count_reliable(changes, pd.Series({'sub-01': 'CN'})),
        excluded_visits='',
        sites=pd.DataFrame({'site': [f'{name} 1'], 'participants': [42]}),
        quality=None,
        images=None,
        cautions=[caution] if full else [],
        model=SimpleNamespace(state=lambda: ({}, CARD), notes={}),
    )


UNSUPPORTED_CARD = CARD | {
    'PatternNames': [],
    'Selected': CARD['Selected'] | {'n_patterns': 0, 'agreement': None, 'members': []},
    'Stability': {
        'n_patterns': 0,
        'stabilities': [
            {'n_patterns': 1, 'value': 0.73, 'null': [0.7, 0.74, 0.8, 0.75, 0.76, 0.77]},
            {'n_patterns': 2, 'value': 0.31, 'null': []},
        ],
    },
    'Reproducibility': {},
    'CrossFit': {'Folds': 5, 'LeastCorrelation': {}},
}


def make_unsupported(folder) -> SimpleNamespace:
    """Results without any pattern, and so without R-indices; groups differ in age."""
    found = make_found('minimal', folder)
    people = found.cohort.people
    older = people.assign(age=people['age'] + 9.0 * found.cohort.is_patient)
    found.cohort = found.scored = replace(found.cohort, people=older)
    found.differences = compare_groups(found.cohort)
    of_patterns = [name for name in found.results if name.startswith(('r1', 'r2'))]
    found.results = found.all_results = found.results.drop(columns=of_patterns)
    found.first_visits = found.results.assign(group=found.cohort.groups)
    found.names, found.group_change = [], None
    found.patterns, found.separation = found.patterns.iloc[:0], found.separation.iloc[:0]
    found.cautions = [NO_PATTERN, *warn_of_differences(found.differences)]
    found.model = SimpleNamespace(state=lambda: ({}, UNSUPPORTED_CARD), notes={})
    return found


def make_map(path, rng):
    data = rng.normal(0, 2, SHAPE).astype(np.float32)
    return write_image(path, nib.Nifti1Image(data, AFFINE))


def make_report(folder, kind='full', sizes=(N_CN, N_PT), **changes) -> GroupReport:
    unsupported = kind == 'unsupported'
    found = make_unsupported(folder) if unsupported else make_found(kind, folder, sizes)
    rng, made = np.random.default_rng(0), {}
    if kind == 'full':
        summary = pd.DataFrame(
            {
                'contrast': ['patients', 'r1slope'],
                'description': ['all patients', 'r1 among patients'],
                'kind': ['test', 'description'],
                't_at_fdr_0.05': [2.0, np.nan],
                'discoveries': [7, np.nan],
            }
        )
        images = {name: make_map(folder / f'{name}.nii.gz', rng) for name in summary['contrast']}
        scores = pd.DataFrame({'efc': rng.normal(size=len(found.results))}, found.results.index)
        table = found.cohort.visits[['participant_id']].assign(outliers=None)
        table.loc['sub-05', 'outliers'] = 'efc'
        made['voxel_maps'] = {'GM': VoxelMaps(images, summary, {'r2slope': 'only 2 patients'})}
        found.images = ImageQuality(table, scores)
        found.flags['sub-05'] = (Flag(OUTLIER),)
    title = HOSTILE if kind == 'hostile' else 'Study'
    methods = dict(METHODS)
    if kind in ('minimal', 'unsupported'):
        methods |= {'map_tissues': (), 'change': False, 'noise_controls': 0}
    if unsupported:
        methods['n_patterns'] = 0
    return GroupReport(folder / 'out', title, found, **({'methods': methods} | made | changes))


def background():
    ball = np.linalg.norm(np.indices(SHAPE) - np.array(SHAPE)[:, None, None, None] / 2, axis=0)
    mask = nib.Nifti1Image((ball < 5).astype(np.uint8), AFFINE)
    return Background(nib.Nifti1Image(((ball < 5) * (6 - ball)).astype(np.float32), AFFINE), mask)


def labels():
    """Left and right hippocampus, each half of a ball."""
    inside = np.asarray(background().mask.dataobj) > 0
    halves = np.where(np.arange(SHAPE[0])[:, None, None] < SHAPE[0] / 2, 48, 47) * inside
    return nib.Nifti1Image(halves.astype(np.int16), AFFINE)


def painter():
    return RegionPainter(background(), labels())


SESSIONS = ['ses-1', 'ses-2']


def write_image_results(root, share=0.2, computed=True):
    """What the participant level writes about the last image of sub-01: a lesion, and doubts."""
    image = {'participant': '01', 'session': '2'}
    regions = output_path(root, 'segmentation_volumes', **image, atlas='a')
    write_tsv(regions, pd.DataFrame({'name': [*REGIONS], 'lesion_share': [share, 0, 0, 0]}))
    write_json(sidecar_path(regions), {'RegionsComputed': computed, 'Atlas': 'freesurfer'})
    metrics = {'uncertain_regions': 29, 'lesion_ml': 20.04}
    write_json(output_path(root, 'quality', **image), metrics)
    warnings = [Caution('Noise', 'Volumes may be wrong', 'Look at it')]
    write_record(record_path(root, ('01', '2')), root, {}, [regions], warnings)


def make_tables(root, kind='full', **changes) -> GroupTables:
    """Two visits of sub-01, and single visits of 40 others.

    `foreign` ones have no dates, and are of a scanner that the model has not learned.
    """
    rng = np.random.default_rng(0)
    who = ['sub-01'] * 2 + [f'sub-{k:02}' for k in range(2, 42)]
    results = pd.DataFrame({'participant_id': who, 'session_id': [*SESSIONS, *['ses-1'] * 40]})
    results['group'] = ['PT'] * 22 + ['CN'] * 20
    for name in CARD['PatternNames']:
        results[name] = rng.uniform(size=42).round(3)
        results[f'{name}_low'], results[f'{name}_high'] = results[name] - 0.1, results[name] + 0.1
        results[f'{name}_centile'] = 96.0
    results = results.assign(centile_of='all', centile_controls=34, status='complete')
    results = results.assign(flags=None, held_out=True)
    results = results.assign(order_by='date', years=[0.0, 2.0, *[0.0] * 40], age=71.3412)
    results = results.assign(sex='F', site=HOSTILE if kind == 'hostile' else 'A')
    results[list(REGIONS)] = rng.normal(size=(42, 4)).round(2)
    identity = results[['participant_id', 'session_id']]
    parts = identity.assign(r_index='r1', baseline=0.1)
    parts = pd.concat([parts, parts.assign(r_index='r2')], ignore_index=True)
    parts[list(REGIONS)] = rng.normal(0, 0.1, (84, 4)).round(3)
    steps = pd.DataFrame(
        {
            'participant_id': 'sub-01', 'from_session': 'ses-1', 'to_session': 'ses-2',
            'years': 2.0, 'order_by': 'date', 'site_changed': False, 'measure': ['r1'],
            'change': [0.2], 'per_year': [0.1], 'expected': [0.01], 'noise': [0.05],
            'limit': [0.1], 'reliable': [True], 'noise_from': ['controls'],
            'noise_controls': [66], 'noise_years': [1.2],
        }
    )  # fmt: skip
    made = {'contributions': parts, 'changes': steps, **changes}
    if kind in ('minimal', 'foreign'):
        made = {**changes}
        results = results.drop(columns=['r1_centile', 'r2_centile', 'r1_low', 'r2_low'])
    if kind == 'foreign':
        write_image_results(root)
        made |= {'model': 'clinic', 'adapted': False}
        stored = store_flags([Flag(NOT_HARMONIZED), Flag('warning on the image')])
        results = results.drop(columns=['age', 'sex', 'years'])
        results = results.assign(status=UNHARMONIZED, flags=stored)
    known = find_reference(results, CARD, None)
    return GroupTables(root, results, CARD, **({'reference': known} | made))
