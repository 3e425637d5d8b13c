"""The group report: what is in it, that it works offline, and that hostile names stay text."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from surreal_bids.analysis.image_quality import METRICS, ImageQuality, outlier_scores
from surreal_bids.analysis.statistics import compare_groups
from surreal_bids.model.agreement import warn_of_agreement
from surreal_bids.reports import figures
from surreal_bids.reports.assembly import write_anatomy
from surreal_bids.reports.flags import flags_of, participant_table, visit_flags
from surreal_bids.reports.group import write_group_report
from surreal_bids.reports.methods import GroupMethods
from surreal_bids.reports.model_card import stability_table
from surreal_bids.reports.pages import Figure, Fragment, Section, table_rows, write_page
from surreal_bids.rindices.crossfit import doubts_of_model
from tests.reports.group_report import N_CN, N_PT, make_card, make_report
from tests.reports.html_page import HOSTILE, Page

FLAGGED = (
    'regional volumes unlike those of the training participants; age more than 5% beyond the '
    'range of the training controls'
)


@pytest.fixture(scope='module')
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp('report')
    path = write_group_report(make_report(folder, HOSTILE))
    return Page(path), folder / 'out'


def test_everything_is_told(report):
    page, _ = report
    for words in (
        'agree well (0.83',
        'sub-99',
        'small whole numbers',
        FLAGGED,
        '1 of 32 participants has a quality flag',
        'Not for diagnosis',
        'Separation of patients and controls',
        '0.710',
        'Harmonization',
        'R-indices of controls and patients',
        'Regions with the largest changes',
        'Pattern r1 on the atlas',
        'GM: r1 among patients',
        'only 2 patients',
        'mmse',
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
    found = report.found.having(differences=differences)
    words = Page(write_group_report(replace(report, found=found))).words
    assert re.search(
        r'patients are \d+\.\d years older \(p = .*Part of the difference in R-indices', words
    )


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
    assert 'p = 0.048' in words
    assert 'smallest possible with 20 permutations' in words
    assert 'Preprocessing was repeated for each permutation' in words
    assert 'Stability 0.95; with permuted data median 0.20, maximum 0.20' in words
    assert '3 training runs (members)' in words
    assert 'unrelated runs 0.51' in words
    assert '2 patterns chosen, the largest number that is supported: stability 0.95' in words
    (table,) = stability_table(card)
    assert [cells[-1].text for _, cells in table_rows(table)][1] == 'chosen'
    unsupported = STABILITY | {'stabilities': [{'n_patterns': 2, 'value': 0.5, 'null': [0.6] * 5}]}
    card |= {'Stability': unsupported}
    words = Page(write_group_report(make_report(tmp_path, card=card, maps=False))).words
    assert words.count('The permutation test supports no pattern') >= 2


@pytest.mark.parametrize('held_out', [True, False])
def test_by_which_models_r_indices_are_is_told(tmp_path, held_out):
    report = make_report(tmp_path, maps=False)
    results = report.found.results.assign(held_out=held_out, reason=None)
    results.loc['sub-05', ['status', 'reason']] = ['not_held_out', 'its site is small']
    note = {'Folds': 5, 'LeastCorrelation': {'r1': 0.9, 'r2': 0.4}}
    card = report.card | ({'CrossFit': note} if held_out else {})
    found = report.found.having(results=results)
    words = Page(write_group_report(replace(report, found=found, card=card))).words
    assert ('trained without them (5-fold cross-fitting)' in words) == held_out
    assert 'its site is small' in words
    assert ('between a fold and the final model: r1 0.90, r2 0.40' in words) == held_out


def test_patterns_that_the_training_sample_did_not_show_again_are_told_where_a_model_is_applied(
    tmp_path,
):
    report = make_report(tmp_path, maps=False)
    results = report.found.results.drop(columns='held_out', errors='ignore')
    note = {'CrossFit': {'LeastCorrelation': {'r1': 0.9, 'r2': 0.4}}}
    card = report.card | note
    found = report.found.having(results=results, doubts=doubts_of_model(card))
    path = write_group_report(replace(report, found=found, card=card))
    page = Page(path)
    assert page.words.count('of the training sample: r2 (correlation 0.40)') == 1
    # The warning and the flags of a participant: each links to a section that is there.
    checks = path.read_text('utf-8').split('class="checks"')
    assert len(checks) == 2
    links = re.findall(r'href="#([\w-]+)"', checks[1].split('</ul>')[0])
    sections = {each.get('id') for each in page.of('section')}
    assert len(links) == 2
    assert sections.issuperset(links)


def test_names_stay_text(report):
    page, _ = report
    assert page.words.count(HOSTILE) >= 3
    assert not [a for _, a in page.tags if 'onerror' in a]


def test_nothing_is_fetched(report):
    page, _ = report
    assert not page.of('link', 'object', 'embed', 'base')
    assert page.of('script') == [{}]
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            if tag == 'a' or name.startswith('xmlns'):
                continue
            for address in re.findall(r'(?:src|href)="?\s*(https?:[^"\s>]*)', value or ''):
                pytest.fail(f'{tag} {name} fetches {address}')
            assert not re.match(r'\s*(https?:|//)', value or ''), (tag, name)


def test_viewers_are_files_of_their_own(report):
    page, folder = report
    assert not page.of('iframe')
    shown = {'r1pattern': 'Pattern r1 on the atlas', 'patientsGM': 'GM: all patients'}
    shown |= {'r1slopeGM': 'GM: r1 among patients'}
    links = [f'group_figures/group_desc-{figure}.html' for figure in shown]
    leads_to = [a.get('href', '') for a in page.of('a')]
    assert [link for link in leads_to if re.match('group_figures.*html', link)] == links
    for link, title in zip(links, shown.values()):
        viewer = Page(folder / link)
        assert viewer.words.count(title) == 2  # In the tab, and as heading.
        assert '../group.html' in [a['href'] for a in viewer.of('a')]


@pytest.mark.parametrize(
    ('agreement', 'words'),
    [(0.6, ''), (0.7, 'agree fairly'), (0.9, 'agree well')],
)
def test_trust_follows_agreement(tmp_path, agreement, words):
    report = make_report(tmp_path, card=make_card(agreement), maps=False)
    page = Page(write_group_report(report))
    assert words in page.words
    # Members that hardly agree are a warning, and not told twice.
    assert [str(each) for each in doubts_of_model(report.card) if 'hardly agree' in each.found] == [
        str(each) for each in warn_of_agreement(agreement)
    ]
    assert bool(re.search(r'members.* agree (well|fairly|hardly)', page.words)) == bool(words)


def test_reproducibility_is_the_headline_where_it_is_known(tmp_path):
    told = {name: {'Low': 0.61, 'Median': 0.83, 'High': 0.94} for name in ('r1', 'r2')}
    card = make_card(0.9) | {'Reproducibility': told}
    words = Page(write_group_report(make_report(tmp_path, card=card, maps=False))).words
    assert 'Reproducibility' in words
    assert 'r2 0.83 (0.61 to 0.94)' in words
    assert 'agree well' not in words
    assert not doubts_of_model(card)
    told['r2']['Median'] = 0.65
    (doubt,) = doubts_of_model(card)
    assert 'r2 (0.65)' in str(doubt)


def test_what_was_not_done_is_not_there(tmp_path):
    words = Page(write_group_report(make_report(tmp_path, maps=False))).words
    assert 'Patterns by voxel' not in words


def test_an_applied_model_is_named(tmp_path):
    methods = GroupMethods(N_CN, N_PT, 5, model='ad_model')
    page = Page(write_group_report(make_report(tmp_path, methods=methods, maps=False)))
    assert 'the model ad_model was applied' in page.words
    assert 'Model selection' not in page.words


def test_good_agreement_is_no_comfort_where_a_fold_shows_another_pattern(tmp_path):
    note = {'Folds': 5, 'LeastCorrelation': {'r1': 0.9, 'r2': 0.4}}
    report = make_report(tmp_path, card=make_card(0.9) | {'CrossFit': note}, maps=False)
    words = Page(write_group_report(report)).words
    assert 'agree well (' not in words
    assert 'change when some participants are excluded' in words


def test_all_participants_are_in_a_table_with_intervals_and_flags(tmp_path):
    report = make_report(tmp_path, maps=False)
    results = report.found.results.assign(r1_low=0.25, r1_high=0.753, r1_centile=97.4)
    results.loc['sub-05', 'r1_low'] = -0.004
    results.loc['sub-07', ['r1_low', 'r1_centile']] = np.nan
    results = results.astype({'brain_in_range': object})
    results.loc['sub-08', ['status', 'brain_in_range']] = ['unharmonized', None]
    found = report.found.having(results=results.assign(fold_correlation=0.9, n_imputed=0))
    table = participant_table(found, visit_flags(found, tmp_path), [], 'rindices.tsv')
    assert list(table.frame) == [
        *(
            'participant',
            'group',
            'r1',
            'r1, 68% interval',
            'r1, centile among controls',
            'r2',
            'flags',
        )
    ]
    rows = {cells[0].text: [cell.text for cell in cells[1:]] for _, cells in table_rows(table)}
    assert len(rows) == N_CN + N_PT
    assert rows['sub-05'][2] == '0.00 to 0.75'
    assert rows['sub-06'][2:4] == ['0.25 to 0.75', '97.4']
    assert rows['sub-07'][2:4] == ['\N{EN DASH}', '\N{EN DASH}']
    assert rows['sub-03'][-1] == FLAGGED
    assert rows['sub-08'][-1] == 'site not harmonized'
    assert rows['sub-09'][-1] == ''
    assert [row for row, (marked, _) in enumerate(table_rows(table)) if marked] == [3, 8]


def test_where_groups_are_not_known_nothing_is_drawn_by_group(tmp_path):
    report = make_report(tmp_path, maps=False)
    visits = report.found.cohort.visits.assign(group=None)
    cohort = replace(report.found.cohort, visits=visits)
    nothing = report.found.separation.iloc[:0]
    found = report.found.having(
        cohort=cohort, described=cohort, whose='participants', separation=nothing
    )
    methods = GroupMethods(0, 0, 5, model='ad')
    words = Page(write_group_report(replace(report, found=found, methods=methods))).words
    assert 'R-indices of controls and patients' not in words
    assert f'Participants{N_CN + N_PT}\nExcluded1' in words
    assert 'Controls0' not in words
    assert 'Covariates of the two groups' not in words.partition('Separation of')[0]
    assert 'participants of unknown group' in words
    assert 'This dataset has no known patients' in words
    assert 'attributes to the pattern in participants' in words
    assert 'attributes to the pattern in patients' not in words
    assert 'sub-07' in words


def test_change_of_groups_is_drawn_and_told(tmp_path):
    report = make_report(tmp_path, maps=False)
    rng = np.random.default_rng(1)
    first = report.found.cohort
    later = {
        name: getattr(first, name).set_axis([f'{visit}_ses-2' for visit in first.visits.index])
        for name in ('visits', 'features', 'people', 'others')
    }
    both = {name: pd.concat([getattr(first, name), later[name]]) for name in later}
    both['visits'] = both['visits'].assign(
        years=[0.0] * len(first) + [1.5] * len(first),
        is_first=[True] * len(first) + [False] * len(first),
        session_id=['ses-1'] * len(first) + ['ses-2'] * len(first),
    )
    again = report.found.results.set_axis(later['visits'].index)
    again['r1'] += rng.normal(size=len(again))
    table = pd.DataFrame(
        {'r_index': ['r1', 'r2'], 'difference': [0.1234, np.nan], 'p': [0.01, np.nan]}
    )
    found = report.found.having(
        cohort=replace(first, **both),
        results=pd.concat([report.found.results, again]),
        group_change=table.assign(
            outcome=['compared', 'too few visits'],
            visits_elsewhere=7,
            visits_without_site=3,
            visits_without_time=2,
        ),
    )
    page = Page(write_group_report(replace(report, found=found)))
    assert 'patients (n = 18)' in page.words
    assert '0.123' in page.words
    assert 'too few visits' in page.words
    assert 'Excluded visits: 7 at another site' in page.words
    assert '3 without a site' in page.words
    assert '2 without a date or an age' in page.words


def test_contributions_are_beside_the_pattern():
    patterns = pd.DataFrame({'pattern': ['r1'] * 3 + ['r2'] * 3, 'region': list('xyz') * 2})
    patterns = patterns.assign(
        change_percent=[3.0, -5, 1, 2, 4, 6], change_percent_member_spread=1.0
    )
    assert len(figures.plot_regions(patterns).axes) == 2
    drawn = figures.plot_regions(patterns.assign(contribution=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]))
    assert len(drawn.axes) == 4
    assert [bar.get_width() for bar in drawn.axes[1].patches] == [0.3, 0.1, 0.2]


@pytest.mark.parametrize(
    ('held_out', 'whose'),
    [
        (True, 'controls of the other folds'),
        (False, 'training controls'),
        (None, 'training controls'),
    ],
)
def test_flags_name_the_controls_whose_range_counts(held_out, whose):
    row = {'status': 'complete', 'covariates_out_of_range': 'age', 'held_out': held_out}
    (flag,) = flags_of(row)
    assert flag.short == f'age more than 5% beyond the range of the {whose}'


def test_flags_of_folds_and_imputation():
    row = {'status': 'complete', 'n_imputed': 2.0, 'fold_correlation': 0.5}
    found = [flag.short for flag in flags_of(row)]
    assert found == ['2 regions were missing', 'pattern not reproduced in the fold']
    assert flags_of({'status': 'complete', 'n_imputed': 1.0})[0].short == '1 region was missing'
    assert flags_of({'status': 'complete', 'n_imputed': np.nan, 'brain_in_range': np.nan}) == []


def metrics_of(visits):
    """Quality of the images of all visits, the second of which is blurred."""
    values = np.random.default_rng(0).normal(10, 1, (len(visits), len(METRICS)))
    table = pd.DataFrame(values, visits.index, list(METRICS))
    table.iloc[1, table.columns.get_loc('efc')] = 30.0
    outliers = pd.Series(None, visits.index, dtype=object)
    outliers.iloc[1] = 'efc'
    named = pd.concat([visits[['participant_id']], table], axis=1).assign(outliers=outliers)
    return ImageQuality(named, outlier_scores(table, pd.Series('one', table.index)))


def test_images_to_look_at_are_listed_and_flagged(tmp_path):
    report = make_report(tmp_path)
    visits = report.found.cohort.visits
    report = replace(report, images=metrics_of(visits))
    page = Page(write_group_report(report))
    assert 'Images to look at' in page.words
    blurred = visits['participant_id'].iloc[1]
    assert f'{blurred}efc' in ''.join(page.words.split())
    assert 'image quality is an outlier' in report.flags.iloc[1]
    assert not report.flags.drop(visits.index[1]).str.contains('outlier').any()
    assert 'image quality is an outlier: 1' in report.cautions[-1].found


def test_z_scores_and_centiles_are_explained_where_there_are_any(tmp_path):
    report = make_report(tmp_path, maps=False)
    assert 'at a z-score of -1.64, the 5th centile' in Page(write_group_report(report)).words
    tables = {name: file for name, file in report.tables.items() if name != 'deviations'}
    words = Page(write_group_report(replace(report, tables=tables))).words
    assert 'z-score of -1.64' not in words


def test_only_reports_with_images_are_for_ratings(tmp_path):
    report = make_report(tmp_path)
    visits = report.found.cohort.visits
    report = replace(report, images=metrics_of(visits))
    assert 'list them in a table (--exclude)' in Page(write_group_report(report)).words
    label = visits['participant_id'].iloc[1].removeprefix('sub-')
    write_anatomy(report.output_dir, label, Fragment('T', '', ''))
    assert 'rate them in their reports (--exclude)' in Page(write_group_report(report)).words


@pytest.mark.drawn
@pytest.mark.parametrize('n_patterns', [1, 2, 3])
def test_points_lead_to_reports(tmp_path, n_patterns):
    rng = np.random.default_rng(0)
    names = [f'r{k + 1}' for k in range(n_patterns)]
    r_indices = pd.DataFrame(rng.uniform(size=(9, n_patterns)), columns=names)
    links = [None if k == 4 else f'../sub-{k}.html' for k in range(9)]
    group = pd.Series(['CN'] * 3 + ['PT'] * 6)
    drawn = figures.plot_r_indices(r_indices, group, links)
    path = figures.save_figure(tmp_path / 'figures' / 'a.svg', drawn)
    page = Page(write_page(tmp_path / 'a.html', 'T', [Section('S', (Figure(path, 'F'),))]))
    count = max(n_patterns * (n_patterns - 1) // 2, 1)
    shown = [a for a in page.of('a') if 'xlink:href' in a]
    assert [a['xlink:href'] for a in shown].count('sub-7.html') == count
    assert len(shown) == 8 * count
    assert {a['tabindex'] for a in shown} == {'-1'}
    assert page.words.count('sub-7') == count


@pytest.mark.parametrize('n_patterns', [2, 5])
def test_r_indices_are_drawn_pair_by_pair(n_patterns):
    rng = np.random.default_rng(0)
    names = [f'r{k + 1}' for k in range(n_patterns)]
    r_indices = pd.DataFrame(rng.uniform(size=(30, n_patterns)), columns=names)
    r_indices.loc[29] = -0.7
    group = pd.Series(['CN'] * 10 + ['PT'] * 20)
    drawn = figures.plot_r_indices(r_indices, group)
    scatters = [axes for axes in drawn.axes if len(axes.collections) == 2]
    assert len(scatters) == n_patterns * (n_patterns - 1) // 2
    points = scatters[0].collections[1].get_offsets()
    np.testing.assert_allclose(points, r_indices[['r1', 'r2']][10:])
    assert all(axes.get_ylim()[0] < -0.7 for axes in scatters)


@pytest.mark.drawn
def test_the_same_figure_gives_the_same_file(tmp_path):
    people = pd.DataFrame({'age': np.linspace(50, 80, 9), 'sex': list('FFFFMMMMM')})
    paths = [tmp_path / f'{name}.svg' for name in 'ab']
    for path in paths:
        figures.save_figure(
            path, figures.plot_participants(people, pd.Series(['CN', 'PT', 'PT'] * 3))
        )
    assert paths[0].read_bytes() == paths[1].read_bytes()
