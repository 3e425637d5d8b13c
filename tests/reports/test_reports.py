"""Reports: canonical ones as text, structure, nothing loaded, parts that each level replaces."""

import re
from dataclasses import replace
from pathlib import Path
from threading import Thread

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from surreal_bids import __version__
from surreal_bids.analysis.engine import (
    ANOTHER_FOLD,
    BEYOND,
    Flag,
    describe_flags,
    flags_of_result,
    read_flags,
    store_flags,
)
from surreal_bids.analysis.outputs import Reference
from surreal_bids.cautions import Caution
from surreal_bids.exceptions import DataError
from surreal_bids.files import write_tsv
from surreal_bids.imaging.quality import LEAST_OVERLAP
from surreal_bids.model.agreement import NO_PATTERN
from surreal_bids.reports import flags, participant
from surreal_bids.reports.card import card_text, meanings_of, pattern_words, verdict
from surreal_bids.reports.figures import GROUPS, PATTERNS, group_colours, plot_trajectories
from surreal_bids.reports.group import write_group_report
from surreal_bids.reports.mosaics import Background
from surreal_bids.reports.pages import render, table, write_page
from surreal_bids.reports.participant import (
    ANATOMY,
    RINDICES,
    SessionReport,
    ShownFigure,
    read_parts,
    write_failed_steps,
    write_individual,
    write_participant_report,
)
from tests.imaging.test_norms import WOMAN, usual_volumes
from tests.reports import studies
from tests.reports.html_page import HOSTILE, Page, check_offline, check_structure

CANONICAL = Path(__file__).parent / 'canonical'
KINDS = ('full', 'minimal', 'hostile')


@pytest.fixture(autouse=True)
def tiny_template(monkeypatch):
    monkeypatch.setattr(Background, 'read', classmethod(lambda cls: studies.background()))
    monkeypatch.setattr('surreal_bids.templates.muse_labels', studies.labels)


def make_sessions(folder, kind):
    volumes = usual_volumes(WOMAN)
    session = SessionReport('sub-01/anat/sub-01_T1w.nii.gz', 'deepbet', 'network', 'MNI', volumes)
    if kind in ('minimal', 'foreign'):
        return [replace(session, volumes=volumes[volumes['name'] == 'Brain stem'])]
    path = studies.painter().draw(
        folder / 'a.jpg', {'r1': {48: 1.0}}, participant.Scale('RdBu_r', -1, 1, 'x')
    )
    name = HOSTILE if kind == 'hostile' else 'noise'
    full = replace(
        session,
        subject=WOMAN,
        session='1',
        tissue_mm3={'GM': 610_000.0, 'WM': 480_000.0, 'CSF': 300_000.0},
        figures=(ShownFigure(path, 'Registration', name, path),),
        overlaps=dict(zip(LEAST_OVERLAP, (0.1, 0.9))),
        quality={'cnr': 2.345, 'lesion_ml': 12.34},
        warnings=(Caution(name, 'Volumes may be wrong', 'Look at it', 'Figures'),),
        reused={'T1w image': name},
        voxels_mm=(1.0, 1.0, 1.2),
        volumes=volumes.assign(
            volume_mm3=volumes['volume_mm3'].where(volumes.index != 3, 0.0),
            lesion_share=np.where(volumes.index < 2, 0.234, 0.0),
        ),
    )
    return [full, replace(full, session='2', warnings=())]


def write_one(folder, kind):
    """The report of a participant, both parts."""
    tables = studies.make_tables(folder, kind)
    sessions = make_sessions(folder, kind)
    write_participant_report(
        folder, '01', sessions, configuration=f'x = "{kind}"', following='02', made_from='a'
    )
    if kind in ('minimal', 'foreign'):
        tables = replace(tables, reference=Reference('', pd.DataFrame()))
        return write_individual(tables.of('sub-05' if kind == 'minimal' else 'sub-01'))
    meanings = {'r1': 'Smaller: hippocampus -14%', 'r2': HOSTILE}
    return write_individual(tables.of('sub-01'), studies.painter(), meanings, 'sub-02')


def compare(path, name, request):
    """Compare the text of a report with the committed file, or write it with --update-reports."""
    source = re.sub(r'<(script|style)\b.*?</\1>', '', path.read_text(), flags=re.DOTALL)
    page = Page.of_text(source)
    lines = [' '.join(line.split()) for line in ''.join(page.text).splitlines()]
    text = '\n'.join(line for line in lines if line).replace(__version__, 'VERSION') + '\n'
    file = CANONICAL / f'{name}.txt'
    if request.config.getoption('--update-reports'):
        file.write_text(text)
    assert text == file.read_text(), f'if this is intended: pytest {__file__} --update-reports'


def check_page(path):
    page = Page(path)
    check_offline(page)
    check_structure(page)
    assert path.stat().st_size < 1.5e6
    assert not [a for _, a in page.tags if 'onerror' in a]
    return page


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['full', 'hostile'])
def test_the_group_report_is_as_committed(tmp_path, kind, request):
    path = write_group_report(studies.make_report(tmp_path, kind))
    page = check_page(path)
    if kind == 'hostile':
        assert page.words.count(HOSTILE) >= 5
    compare(path, f'group_{kind}', request)


@pytest.mark.parametrize('kind', ['minimal', 'unsupported'])
def test_the_group_report_of_a_small_study_is_as_committed(tmp_path, kind, request, monkeypatch):
    monkeypatch.setattr('surreal_bids.reports.figures.plot_r_indices', lambda *_: Figure())
    path = write_group_report(studies.make_report(tmp_path, kind))
    check_page(path)
    compare(path, f'group_{kind}', request)


def test_a_report_without_patterns_promises_none(tmp_path):
    page = Page(write_group_report(studies.make_report(tmp_path, 'unsupported')))
    assert ' controls, 18 patients; no pattern\n' in page.words
    for words in (
        '--n-patterns',
        'a larger sample',
        'was scored by a model',
        'out of fold',
        'the final model',
        'Associations and separation',
        'Their R-indices',
    ):
        assert words not in page.words, words
    assert 'Look them up in phenotype/rindices.tsv, column flags' in page.words
    assert [link for link in page.of('a') if link['href'] == '#participants'][1:], 'differences'
    check_structure(page)


def test_a_participant_without_patterns_has_no_doubtful_r_indices(tmp_path):
    tables = studies.make_tables(tmp_path)
    stored = store_flags([Flag(BEYOND, 'age'), Flag(flags.OUTLIER)])
    results = tables.results.assign(flags=stored, outliers='efc')
    unsupported = replace(tables, results=results, card=studies.UNSUPPORTED_CARD, adapted=False)
    doubts = participant._doubts(unsupported.of('sub-01'))
    assert [each.found for each in doubts] == [flags.WARNINGS[flags.OUTLIER].found + ' (efc)']


def test_verdicts_that_seem_to_differ_are_joined():
    stability = {
        'n_patterns': 1,
        'stabilities': [{'n_patterns': 1, 'value': 0.93, 'null': 39 * [0.2]}],
    }
    card = studies.CARD | {
        'PatternNames': ['r1'],
        'Selected': studies.CARD['Selected'] | {'n_patterns': 1},
        'Stability': stability,
        'Reproducibility': {'r1': {'Median': 0.8479, 'Low': 0.7, 'High': 0.9}},
    }
    words = card_text(card)
    assert 'Reproducibility: r1 0.848 (0.70 to 0.90)' in words
    assert 'number of patterns is supported, but r1 is not reproducible' in words
    stability['stabilities'][0]['null'] = [0.95] * 5
    card['Reproducibility'] = {'r1': {'Median': 0.9, 'Low': 0.88, 'High': 0.97}}
    assert 'although the number of patterns is not supported' in card_text(card)
    stability['stabilities'][0]['null'] = [0.2] * 39
    assert 'Stability compares' not in card_text(card)


@pytest.mark.slow
@pytest.mark.parametrize('kind', [*KINDS, 'foreign'])
def test_the_report_of_a_participant_is_as_committed(tmp_path, kind, request):
    path = write_one(tmp_path, kind)
    check_page(path)
    compare(path, f'participant_{kind}', request)


@pytest.mark.slow
def test_patterns_in_words_join_both_sides_and_name_changes():
    rows = studies.make_found('full', None).patterns
    first, second = (rows[rows['pattern'] == name] for name in ('r1', 'r2'))
    assert pattern_words(first) == 'Smaller: hippocampus -13%, left amygdala -9%'
    assert pattern_words(second.assign(change_percent=np.nan)) == 'Smaller: precuneus -0.8 SD'
    assert pattern_words(first, most=1).endswith('hippocampus -13% and 1 more')
    assert 'No region' in pattern_words(first.assign(shown=False))
    larger = first.assign(change_percent=9.0, change_sd=1.0)
    assert pattern_words(larger).startswith('Larger: hippocampus +9%')


@pytest.mark.slow
def test_a_participant_reads_the_words_of_the_card(tmp_path):
    path = participant.output_path(tmp_path, 'patterns')
    path.parent.mkdir(parents=True, exist_ok=True)
    studies.make_found('full', None).patterns.to_csv(path, sep='\t', na_rep='n/a', index=False)
    assert meanings_of(studies.CARD, tmp_path)['r2'] == 'Parietal. Smaller: precuneus -8%'
    imported = studies.CARD | {'Imported': {'Patterns': {'r1': 'here'}}}
    assert meanings_of(imported, tmp_path) == {'r1': 'here'}


@pytest.mark.parametrize(
    ('centile', 'count', 'words'),
    [
        (98.4, 31, 'above all 31 controls'),
        (96.9, 31, 'above all 31 controls'),
        (93.0, 31, 'above 93% of 31 controls'),
        (1.6, 31, 'below all 31 controls'),
        (100.0, np.nan, 'above 99% of controls'),
    ],
)
def test_centiles_in_words_are_never_100(centile, count, words):
    row = {'r1_centile': centile, 'centile_controls': count, 'centile_of': 'all'}
    assert participant.describe_centile(row, 'r1') == words


def test_groups_and_patterns_have_colours_of_their_own():
    assert not set(GROUPS.values()) & set(PATTERNS)
    colours = group_colours(['MCI', 'PT', 'CN', 'SMC'])
    assert list(colours) == ['CN', 'PT', 'MCI', 'SMC']
    assert len(set(colours.values())) == 4


def test_change_over_visits_has_a_panel_for_each_group_and_r_index():
    years = np.tile([0.0, 1.2], 8)
    course = pd.DataFrame({'years': years, 'r1': years / 10, 'r2': 0.5})
    course['participant_id'] = np.repeat([f'sub-{number}' for number in range(8)], 2)
    course['group'] = np.repeat(['CN', 'PT', 'MCI', 'CN'], 4)
    figure = plot_trajectories(course, ['r1', 'r2'])
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ['controls (n = 4)', 'patients (n = 2)', 'MCI (n = 2)', '', '', '']
    assert [len(axes.collections[0].get_segments()) for axes in figure.axes] == [4, 2, 2] * 2


def test_the_card_names_levels_origins_and_warnings_and_rounds_ages():
    text = card_text(studies.CARD | {'RandomState': None})
    assert 'levels of sex: F, M' in text
    for words in ('range of sex', '88.4408', '  random seed: '):
        assert words not in text
    assert '55.6 to 88.4 years' in verdict(studies.CARD)['Applies to']
    imported = {'File': 'model.ckpt', 'Epoch': 3, 'Title': None, 'Note': 'of the authors'}
    text = card_text(studies.CARD | {'Imported': imported})
    assert 'imported from model.ckpt, epoch 3: a SurrealGAN checkpoint' in text
    empty = studies.CARD | {'PatternNames': [], 'Selected': {'n_patterns': 0}}
    assert str(NO_PATTERN) == verdict(empty)['To watch']


def test_links_to_figures_lead_to_the_figures_of_the_session(tmp_path):
    source = write_one(tmp_path, 'full').read_text()
    targets = re.findall(r'href="#([^"]*)">Figures</a>', source)
    assert set(targets) == {'ses-1-figures', 'ses-2-figures'}
    assert all(f'<section id="{name}">' in source for name in targets)


@pytest.mark.slow
def test_r_indices_stay_until_an_image_is_processed_again(tmp_path):
    path, sessions = write_one(tmp_path, 'full'), make_sessions(tmp_path, 'full')
    write_participant_report(tmp_path, '01', sessions, made_from='a')
    assert set(read_parts(tmp_path, '01')) == {RINDICES, ANATOMY}
    before = path.read_bytes()
    one = studies.make_tables(tmp_path).of('sub-01')
    write_individual(one)
    assert path.read_bytes() == before
    write_individual(one, again=True)
    assert path.read_bytes() != before
    write_participant_report(tmp_path, '01', sessions, made_from='b')
    assert set(read_parts(tmp_path, '01')) == {ANATOMY}


@pytest.mark.slow
def test_a_level_that_writes_meanwhile_does_not_lose_its_part(tmp_path, monkeypatch):
    """The participant level replaces its part while the group level writes its own."""
    sessions, one = make_sessions(tmp_path, 'minimal'), studies.make_tables(tmp_path).of('sub-01')
    write_participant_report(tmp_path, '01', sessions, made_from='old')
    new = Thread(
        target=write_participant_report,
        args=(tmp_path, '01', sessions),
        kwargs={'made_from': 'new'},
    )
    write = participant.write_parts

    def write_after_the_other(*parts):
        monkeypatch.setattr(participant, 'write_parts', write)
        new.start()
        new.join(1.0)  # It has to wait.
        return write(*parts)

    monkeypatch.setattr(participant, 'write_parts', write_after_the_other)
    write_individual(one)
    new.join()
    digest, _ = read_parts(tmp_path, '01')[ANATOMY]
    assert digest == 'new'


def test_r_indices_of_others_are_removed(tmp_path):
    tables = studies.make_tables(tmp_path)
    tables.results.loc[3, [*tables.names, 'reason']] = np.nan, np.nan, 'age is missing'
    for name in ('sub-03', 'sub-04'):
        write_individual(tables.of(name))
    assert 'There are no R-indices: age is missing.' in (tmp_path / 'sub-03.html').read_text()
    write_one(tmp_path, 'full')
    participant.remove_others(tmp_path, {'03'})
    assert sorted(path.name for path in tmp_path.glob('*.html')) == ['sub-01.html', 'sub-03.html']
    assert set(read_parts(tmp_path, '01')) == {ANATOMY}


def test_reports_of_other_programs_are_refused(tmp_path):
    path = tmp_path / 'sub-01.html'
    path.write_text('<html>fMRIPrep</html>')
    one = studies.make_tables(tmp_path).of('sub-01')
    with pytest.raises(DataError, match='not a report of this version'):
        write_individual(one)
    participant.write_failure(one, 'why')
    with pytest.raises(DataError, match='not a report of this version'):
        write_participant_report(tmp_path, '01', make_sessions(tmp_path, 'minimal'))
    assert path.read_text() == '<html>fMRIPrep</html>'


def test_errors_of_failed_steps_are_on_the_page(tmp_path):
    write_failed_steps(tmp_path, '01', {'sub-01, n4': HOSTILE}, 'logs/sub-01.log')
    one = studies.make_tables(tmp_path).of('sub-01')
    participant.write_failure(one, 'no figure')
    page = check_page(tmp_path / 'sub-01.html')
    for words in ('sub-01, n4', HOSTILE, 'logs/sub-01.log', 'no figure'):
        assert words in page.words
    write_individual(one)
    assert 'no figure' not in (tmp_path / 'sub-01.html').read_text()


def test_flags_are_words_with_warnings():
    row = {'status': 'not_held_out', 'brain_in_range': False, 'covariates_out_of_range': 'age'}
    of_visit = flags_of_result(row | {'n_imputed': 2, 'fold_correlation': 0.2})
    assert describe_flags(of_visit) == (
        'no out-of-fold model; volumes unlike the training participants; '
        'age outside the training range; 2 regions imputed'
    )
    assert all(flags.warning_of(flag) for flag in of_visit)
    in_another_fold = {'status': 'complete', 'fold_correlation': 0.2}
    assert flags_of_result(in_another_fold) == [Flag(ANOTHER_FOLD)]
    assert flags_of_result({'status': 'complete'}) == []
    unknown = dict.fromkeys(['brain_in_range', 'n_imputed', 'fold_correlation'])
    assert flags_of_result({'status': 'complete'} | unknown) == [], 'participants of other groups'


def test_a_covariate_of_any_name_is_one_flag(tmp_path):
    row = {'status': 'complete', 'covariates_out_of_range': 'MMSE; total'}
    of_visit = flags_of_result(row)
    assert of_visit == [Flag(BEYOND, 'MMSE; total')]
    assert read_flags(store_flags(of_visit)) == of_visit
    found = studies.make_found('minimal', tmp_path)
    only_one = pd.Series([(), tuple(of_visit)], found.flags.index[:2])
    counts = flags.warn_of_flags(found, only_one, 'rindices.tsv')[0].found
    assert counts.endswith('has a quality flag (MMSE; total outside the training range: 1)')
    tables = studies.make_tables(tmp_path)
    tables.results['flags'] = store_flags(of_visit)
    file = write_tsv(tmp_path / 'individuals.tsv', tables.results)
    stored = pd.read_csv(file, sep='\t', na_values=['n/a'], keep_default_na=False)
    doubts = participant._doubts(replace(tables, results=stored).of('sub-01'))
    assert [each.found for each in doubts if 'MMSE' in each.found] == [
        'MMSE; total more than 5% beyond the range of the training controls'
    ]


@pytest.mark.parametrize(
    ('share', 'computed', 'lesion'),
    [
        (0.2, True, 'more than 5% of 1 region, most of Left hippocampus (20%)'),
        (0.2, False, 'a lesion of 20.0 ml, and the regions are those of freesurfer'),
        (0.04, True, ''),
    ],
)
def test_images_are_flagged(tmp_path, share, computed, lesion):
    studies.write_image_results(tmp_path, share, computed)
    found = flags.image_warnings(tmp_path, 'sub-01', 'ses-2')
    assert 'uncertain about 29 of 145 regions' in str(found['uncertain segmentation'])
    assert 'Noise' in str(found['warning on the image'])
    assert ('lesion' in found) == bool(lesion)
    assert lesion in str(found.get('lesion'))
    assert flags.image_warnings(tmp_path, 'no_label') == {}


def test_tables_escape_format_link_and_mark():
    frame = pd.DataFrame({'who': [HOSTILE, 'b'], HOSTILE: [1.234, np.nan]})
    html = str(table(frame, HOSTILE, {HOSTILE: '{:.1f}'}, {'who': ['a.html', None]}, [HOSTILE],
                     {HOSTILE: 2.0}, [True, False]))  # fmt: skip
    assert '<script' not in html
    assert html.count('&lt;script') >= 4
    assert '<a href="a.html">' in html
    assert '1.2<span class="gauge"' in html
    assert 'left:80.8%' in html or 'left:81' in html
    assert '\N{EN DASH}' in html
    assert html.count('marked') == 2


def test_figures_without_room_are_linked(tmp_path, monkeypatch):
    monkeypatch.setattr('surreal_bids.reports.pages.FIGURE_BYTES', 10)
    sessions = make_sessions(tmp_path, 'full')
    page = Page(write_participant_report(tmp_path, '01', sessions))
    assert not page.of('img')
    assert 'Open the file' in page.words
    sentence = 'Registration is not shown here, because the report would be too large; see a.jpg'
    assert f'{sentence} and a.jpg.' in page.words


def test_a_page_is_whole_or_not_there(tmp_path):
    content = render('failed.html', tmp_path, name='a', errors={}, log='')
    with pytest.raises(FileNotFoundError):
        write_page(tmp_path / 'page.html', 'T', content, scripts=['missing.js'])
    assert not list(tmp_path.iterdir())


def test_rows_of_participants_are_found_once(tmp_path, monkeypatch):
    """Not by a search of all rows for each report."""
    tables = studies.make_tables(tmp_path)
    expected = {
        name: table[table['participant_id'] == 'sub-01']
        for name in ('results', 'contributions', 'changes')
        if len(table := getattr(tables, name))
    }
    assert tables.of('sub-02').changes.empty
    for kind, method in ((pd.Series, '__eq__'), (pd.DataFrame, 'groupby')):
        monkeypatch.setattr(kind, method, lambda *_, **__: pytest.fail('searched again'))
    one = tables.of('sub-01')
    monkeypatch.undo()
    for name, rows in expected.items():
        pd.testing.assert_frame_equal(getattr(one, name), rows)
    assert len(tables.of('nobody').results) == 0
