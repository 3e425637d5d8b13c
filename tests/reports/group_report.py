"""A group report of simulated results, for tests that look at the page."""

import nibabel as nib
import numpy as np
import pandas as pd

from surreal_bids.analysis.maps import VoxelMaps
from surreal_bids.analysis.statistics import SEPARATION_COLUMNS, compare_groups, warn_of_differences
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.cohort.features import column_features
from surreal_bids.cohort.requirements import PreprocessingOptions
from surreal_bids.cohort.uses import FRAME
from surreal_bids.files import write_image
from surreal_bids.reports.group import GroupReport
from surreal_bids.reports.methods import GroupMethods
from surreal_bids.reports.mosaics import Background
from surreal_bids.stats.associations import associate
from tests.reports.html_page import HOSTILE

N_CN, N_PT = 14, 18
SHAPE = (12, 14, 11)
AFFINE = np.array([[4.0, 0, 0, -24], [0, 4, 0, -28], [0, 0, 4, -22], [0, 0, 0, 1]])


def make_cohort(rng, n_cn=N_CN, n_pt=N_PT) -> Cohort:
    names = [f'sub-{k:02}' for k in range(n_cn + n_pt)]
    visits = pd.DataFrame({'participant_id': names}, names)
    visits['group'] = ['CN'] * n_cn + ['PT'] * n_pt
    people = pd.DataFrame({'age': rng.uniform(50, 80, len(names))}, names)
    people['site'] = rng.choice(['a', 'b'], len(names))
    features = pd.DataFrame(rng.normal(100, 10, (len(names), 5)), names, list('vwxyz'))
    return Cohort(
        visits.assign(is_first=True),
        features,
        people,
        pd.DataFrame({'mmse': [str(k) for k in range(len(names))]}, names),
        column_features('vwxyz'),
        PreprocessingOptions(('age',), site_column='site'),
        ('Groups: as given', f'Odd: {HOSTILE}'),
        pd.DataFrame({'participant_id': ['sub-99'], 'reason': [HOSTILE]}),
        uses=pd.DataFrame(
            [('volumes.tsv', HOSTILE, 'not used', 'small whole numbers')], columns=FRAME
        ),
    )


def make_card(agreement=0.83):
    rows = [
        {'n_patterns': m, 'ortho': o, 'n_members': 3, 'n_healthy': 3, 'agreement': a, 'score': a}
        for m, o, a in [(2, 0.1, 0.7), (2, 0.4, agreement), (3, 0.1, 0.6), (3, 0.4, 0.55)]
    ]
    history = [
        {'iteration': i, 'n_patterns': 2, 'ortho': o, 'agreement': 0.5 + i / 100}
        for i in (10, 20)
        for o in (0.1, 0.4)
    ]
    return {
        'PatternNames': ['r1', 'r2'],
        'Selected': {
            'n_patterns': 2,
            'ortho': 0.4,
            'agreement': agreement,
            'members': [0, 1],
            'reference': 0,
        },
        'Agreement': rows,
        'History': history,
        'Repetitions': 3,
        'Sample': {'n_cn': 20, 'n_pt': 100},
        'Iterations': 20,
        'Preset': 'iclr2022',
        'NumberOfFeatures': 5,
        'RandomState': 0,
    }


def make_map(folder, name, rng):
    data = rng.normal(0, 2, SHAPE).astype(np.float32)
    return write_image(folder / f'{name}.nii.gz', nib.Nifti1Image(data, AFFINE))


class Found:
    """Results in place of an `Analysis`, which would have to be trained."""

    quality, group_change, not_assessed, sites = None, None, '', pd.DataFrame()
    doubts = ()

    def __init__(self, **known):
        vars(self).update(known)

    def having(self, **changes):
        """Return the same results with other ones."""
        return Found(**vars(self) | changes)

    @property
    def cautions(self):
        return [*self.doubts, *warn_of_differences(self.differences)]

    @property
    def first_visits(self):
        return self.results.assign(group=self.cohort.visits['group'])


def make_report(folder, title='Study', maps=True, sizes=(N_CN, N_PT), **changes) -> GroupReport:
    rng = np.random.default_rng(0)
    cohort = make_cohort(rng, *sizes)
    index = cohort.visits.index
    results = pd.DataFrame(rng.uniform(size=(len(index), 2)), index, ['r1', 'r2'])
    results = results.assign(
        r1_member_spread=0.1,
        r2_member_spread=0.2,
        brain_in_range=True,
        covariates_out_of_range='none',
    )
    results = results.assign(status='complete')
    results.loc['sub-03', 'covariates_out_of_range'] = 'age'
    results['brain_in_range'] = results.index != 'sub-03'
    patterns = pd.DataFrame({'pattern': ['r1'] * 5 + ['r2'] * 5, 'region': list('vwxyz') * 2})
    patterns['change_percent'] = rng.normal(0, 10, 10)
    patterns['change_percent_member_spread'] = 2.0
    measures = pd.concat([cohort.people, cohort.others], axis=1)
    associations, skipped = associate(measures, results[['r1', 'r2']])
    summary = pd.DataFrame(
        {
            'contrast': ['patients', 'r1high', 'r1slope'],
            'description': ['all patients', 'r1 > 0.7', 'r1 among patients'],
            'kind': ['test', 'description', 'description'],
            't_at_fdr_0.05': [2.0, np.nan, np.nan],
            'discoveries': [7, np.nan, np.nan],
        }
    )
    images = {name: make_map(folder, name, rng) for name in summary['contrast']}
    found = Found(
        cohort=cohort,
        described=cohort,
        names=['r1', 'r2'],
        whose='patients',
        results=results,
        patterns=patterns,
        associations=associations,
        untested={each.name: each.reason for each in skipped},
        separation=pd.DataFrame([('r1', 14, 18, 0.71, 0.6, 0.8)], columns=SEPARATION_COLUMNS),
        differences=compare_groups(cohort),
    )
    drawn = {
        'pattern_maps': {'r1': make_map(folder, 'r1', rng)},
        'voxel_maps': {'GM': VoxelMaps(images, summary, {'r2high': 'only 2 patients'})},
        'background': background(),
    }
    made = {
        'card': make_card(),
        'methods': GroupMethods(N_CN, N_PT, 5, harmonized=True, preset='iclr2022'),
        **(drawn if maps else {}),
    }
    return GroupReport(folder / 'out', title, found, **{**made, **changes})


def background():
    ball = np.linalg.norm(np.indices(SHAPE) - np.array(SHAPE)[:, None, None, None] / 2, axis=0)
    mask = nib.Nifti1Image((ball < 5).astype(np.uint8), AFFINE)
    t1w = nib.Nifti1Image((10 * (ball < 5) * (6 - ball)).astype(np.float32), AFFINE)
    return Background(t1w, mask)
