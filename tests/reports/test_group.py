"""The group report: what is in it, that it works offline, and that hostile names stay text."""

import re
from dataclasses import replace
from types import SimpleNamespace

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from surreal_bids.files import write_image
from surreal_bids.reports import figures
from surreal_bids.reports.figures import Background
from surreal_bids.reports.group import GroupReport, VoxelMaps, write_group_report
from surreal_bids.reports.methods import GroupMethods
from surreal_bids.stats.associations import associate
from surreal_bids.tables.analysis import GroupResults
from surreal_bids.tables.cohort import Cohort
from surreal_bids.tables.diagnosis import compare_groups
from surreal_bids.tables.features import column_features
from surreal_bids.tables.preprocessing import PreprocessingOptions
from tests.reports.html_page import HOSTILE, Page

N_CN, N_PT = 14, 18
SHAPE = (12, 14, 11)
AFFINE = np.array([[4.0, 0, 0, -24], [0, 4, 0, -28], [0, 0, 4, -22], [0, 0, 0, 1]])


def make_cohort(rng) -> Cohort:
    names = [f'sub-{k:02}' for k in range(N_CN + N_PT)]
    visits = pd.DataFrame({'participant_id': names}, names)
    visits['group'] = ['CN'] * N_CN + ['PT'] * N_PT
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
        'Selected': {'n_patterns': 2, 'ortho': 0.4, 'agreement': agreement, 'members': [0, 1]},
        'Agreement': rows,
        'History': history,
        'Repetitions': 3,
        'Sample': {'n_cn': 20, 'n_pt': 100},
        'Iterations': 20,
        'Preset': 'robust',
        'NumberOfFeatures': 5,
    }


def make_map(folder, name, rng):
    data = rng.normal(0, 2, SHAPE).astype(np.float32)
    return write_image(folder / f'{name}.nii.gz', nib.Nifti1Image(data, AFFINE))


def make_report(folder, title='Study', halves=True, maps=True, **changes) -> GroupReport:
    rng = np.random.default_rng(0)
    cohort = make_cohort(rng)
    index = cohort.visits.index
    results = pd.DataFrame(rng.uniform(size=(len(index), 2)), index, ['r1', 'r2'])
    results = results.assign(
        r1_member_spread=0.1, r2_member_spread=0.2, in_range=True, beyond_range='none'
    )
    results = results.assign(status='complete')
    results.loc['sub-03', 'beyond_range'] = 'age'
    results['in_range'] = results.index != 'sub-03'
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
    found = GroupResults(
        cohort=cohort,
        model=SimpleNamespace(pattern_names=('r1', 'r2')),
        results=results,
        harmonized=cohort.features,
        patterns=patterns,
        associations=associations,
        untested={each.name: each.reason for each in skipped},
        diagnosis=pd.DataFrame({'by': ['all regions'], 'auc': [0.71]}),
        differences=compare_groups(cohort),
        halves=pd.DataFrame({'comparison': ['half 1 and half 2'], 'c_index': [0.9]})
        if halves
        else None,
    )
    drawn = {
        'pattern_maps': {'r1': make_map(folder, 'r1', rng)},
        'voxel_maps': {'GM': VoxelMaps(images, summary, {'r2high': 'only 2 patients'})},
        'background': background(),
    }
    made = {
        'card': make_card(),
        'methods': GroupMethods(N_CN, N_PT, 5, harmonized=True, preset='robust'),
        **(drawn if maps else {}),
    }
    return GroupReport(folder / 'out', title, found, **{**made, **changes})


def background():
    ball = np.linalg.norm(np.indices(SHAPE) - np.array(SHAPE)[:, None, None, None] / 2, axis=0)
    mask = nib.Nifti1Image((ball < 5).astype(np.uint8), AFFINE)
    t1w = nib.Nifti1Image((10 * (ball < 5) * (6 - ball)).astype(np.float32), AFFINE)
    return Background('tiny', t1w, mask)


@pytest.fixture(scope='module')
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp('report')
    path = write_group_report(make_report(folder, HOSTILE))
    return Page(path), folder / 'out'


def test_everything_is_told(report):
    page, _ = report
    for words in (
        'found the same patterns',
        'sub-99',
        'outside the training population, covariate outside the training range',
        'Harmonization',
        'What was chosen, and why',
        'R-indices of controls and patients',
        'Regions that change most',
        'Pattern r1 on the atlas',
        'GM: r1 among patients',
        'only 2 patients',
        'mmse',
        'half 1 and half 2',
        'Surreal-GAN',
        'As Markdown',
    ):
        assert words in page.words, words


def test_only_patients_against_controls_is_called_a_test(report):
    page, _ = report
    assert 'describe the patterns, without a threshold' in page.words
    assert page.words.count('false discovery rate of 0.05') == 1


def test_what_else_groups_differ_in_is_beside_the_diagnosis(tmp_path):
    report = make_report(tmp_path, maps=False)
    cohort = report.found.cohort
    people = cohort.people.assign(age=cohort.people['age'] + 12 * cohort.is_patient)
    differences = compare_groups(replace(cohort, people=people))
    found = replace(report.found, differences=differences)
    words = Page(write_group_report(replace(report, found=found))).words
    assert re.search(r'patients are \d+\.\d years older \(p = .*No fold cures that', words)


STABILITY = {
    'n_patterns': 2,
    'stabilities': [
        {'n_patterns': 1, 'value': 0.99, 'null': []},
        {'n_patterns': 2, 'value': 0.95, 'null': [0.2] * 20},
    ],
}


def test_chance_is_beside_what_was_found(tmp_path):
    card = make_card() | {'Stability': STABILITY}
    words = Page(write_group_report(make_report(tmp_path, card=card, maps=False))).words
    assert 'p from 0.048' in words
    assert 'shuffled after preprocessing' in words
    assert 'stability 0.95; 0.20 with shuffled labels (highest of 20: 0.20)' in words
    assert '0.51 if unrelated' in words


@pytest.mark.parametrize('held_out', [True, False])
def test_by_which_models_r_indices_are_is_told(tmp_path, held_out):
    report = make_report(tmp_path, maps=False)
    results = report.found.results.assign(held_out=held_out, reason=None)
    results.loc['sub-05', ['status', 'reason']] = ['not_held_out', 'its site is small']
    note = {'Folds': 5, 'LeastCorrelation': {'r1': 0.9, 'r2': 0.4}}
    fitted = SimpleNamespace(note=note) if held_out else None
    found = replace(report.found, results=results, fitted=fitted)
    words = Page(write_group_report(replace(report, found=found))).words
    assert ('participants held out: by models that were trained without' in words) == held_out
    assert ('its site is small' in words) == held_out
    assert ('r2 (correlation 0.40). Do not interpret these' in words) == held_out
    assert ('do not compare the groups by them' in words) != held_out


def test_names_stay_text(report):
    page, _ = report
    assert page.words.count(HOSTILE) >= 3
    assert not [a for _, a in page.tags if 'onerror' in a]


def test_nothing_is_fetched(report):
    page, _ = report
    assert not page.of('link', 'object', 'embed', 'base', 'script')
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            if tag == 'a' or name.startswith('xmlns'):
                continue
            for address in re.findall(r'(?:src|href)="?\s*(https?:[^"\s>]*)', value or ''):
                pytest.fail(f'{tag} {name} fetches {address}')
            assert not re.match(r'\s*(https?:|//)', value or ''), (tag, name)


def test_viewers_are_in_the_page_and_cannot_reach_out_of_it(report):
    page, folder = report
    frames = page.of('iframe')
    assert [frame['title'] for frame in frames] == [
        'Move through: Pattern r1 on the atlas',
        'Move through: GM: all patients',
        'Move through: GM: r1 among patients',
    ]
    for frame in frames:
        assert frame['sandbox'] == 'allow-scripts'
        assert 'brainsprite' in frame['srcdoc']
    assert len(list((folder / 'group_figures').glob('*.html'))) == 3


def test_every_figure_is_a_file_too(report):
    page, folder = report
    figures_shown = [a for a in page.of('figure') if a.get('id', '').startswith('figure-')]
    files = sorted(path.name for path in (folder / 'group_figures').glob('*.svg'))
    assert len(files) == len(figures_shown)
    for name in ('people', 'agreement', 'rindices', 'regions', 'associations'):
        assert f'group_desc-{name}.svg' in files


@pytest.mark.parametrize(
    ('agreement', 'words'),
    [(0.6, 'hardly agree'), (0.7, 'agree fairly'), (0.9, 'found the same patterns')],
)
def test_trust_follows_agreement(tmp_path, agreement, words):
    report = make_report(tmp_path, card=make_card(agreement), maps=False)
    assert words in Page(write_group_report(report)).words


@pytest.mark.parametrize('halves', [True, False])
def test_what_was_not_done_is_not_there(tmp_path, halves):
    words = Page(write_group_report(make_report(tmp_path, halves=halves, maps=False))).words
    assert ('Split halves' in words) == halves
    assert 'Patterns by voxel' not in words


def test_an_applied_model_is_named(tmp_path):
    methods = GroupMethods(N_CN, N_PT, 5, model='ad_model')
    page = Page(write_group_report(make_report(tmp_path, methods=methods, maps=False)))
    assert 'the model ad_model was applied' in page.words
    assert 'What was chosen' not in page.words


@pytest.mark.parametrize('n_patterns', [1, 2, 5])
def test_r_indices_are_drawn_pair_by_pair(n_patterns):
    rng = np.random.default_rng(0)
    names = [f'r{k + 1}' for k in range(n_patterns)]
    r_indices = pd.DataFrame(rng.uniform(size=(30, n_patterns)), columns=names)
    group = pd.Series(['CN'] * 10 + ['PT'] * 20)
    drawn = figures.plot_r_indices(r_indices, group)
    scatters = [axes for axes in drawn.axes if len(axes.collections) == 2]
    assert len(scatters) == n_patterns * (n_patterns - 1) // 2
    if scatters:
        points = scatters[0].collections[1].get_offsets()
        np.testing.assert_allclose(points, r_indices[['r1', 'r2']][10:])


def test_the_same_figure_gives_the_same_file(tmp_path):
    people = pd.DataFrame({'age': np.linspace(50, 80, 9), 'sex': list('FFFFMMMMM')})
    paths = [tmp_path / f'{name}.svg' for name in 'ab']
    for path in paths:
        figures.save_figure(
            path, figures.plot_participants(people, pd.Series(['CN', 'PT', 'PT'] * 3))
        )
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_the_choice_is_marked():
    card = make_card()
    drawn = figures.plot_agreement(
        pd.DataFrame(card['Agreement']), pd.DataFrame(card['History']), card['Selected']
    )
    ring = next(line for line in drawn.axes[0].lines if line.get_label() == 'chosen')
    assert (ring.get_xdata()[0], ring.get_ydata()[0]) == (1, 0.83)
