"""R-indices in the report of one participant: what is shown, where it goes, what stays."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from surreal_bids.analysis.individuals import GroupTables, Reference, find_reference
from surreal_bids.bids.outputs import output_path, record_path, sidecar_path, write_record
from surreal_bids.cautions import Caution
from surreal_bids.cohort.warnings import not_adapted
from surreal_bids.exceptions import DataError
from surreal_bids.files import write_json, write_tsv
from surreal_bids.reports.assembly import (
    ANATOMY,
    FIGURES,
    read_fragment,
    remove_others,
    write_anatomy,
)
from surreal_bids.reports.flags import image_flags
from surreal_bids.reports.mosaics import Background, RegionPainter
from surreal_bids.reports.pages import Fragment, Paragraph, Section, render_sections
from surreal_bids.reports.rindices_figures import (
    OTHERS,
    plot_contributions,
    plot_standing,
    strongest,
)
from surreal_bids.reports.rindices_section import (
    write_failure,
    write_individual,
)
from tests.reports.html_page import HOSTILE, Page, check_offline, check_structure

REGIONS = {'MUSE_47': 47, 'MUSE_48': 48, 'MUSE_31': 31, 'MUSE_32': 32}
CARD = {
    'PatternNames': ['r1', 'r2'],
    'CardSHA256': 'abc',
    'Preprocessing': {'combat': {}},
    'FeatureDetails': [{'Name': n, 'MUSERegions': [k]} for n, k in REGIONS.items()],
}
SESSIONS = ['ses-1', 'ses-2']


def make_tables(root, rng=None, **changes) -> GroupTables:
    """Two visits of sub-01, and single visits of 40 others."""
    rng = rng or np.random.default_rng(0)
    who = ['sub-01'] * 2 + [f'sub-{k:02}' for k in range(2, 42)]
    results = pd.DataFrame({'participant_id': who, 'session_id': [*SESSIONS, *['ses-1'] * 40]})
    results['group'] = ['PT'] * 22 + ['CN'] * 20
    for name in CARD['PatternNames']:
        results[name] = rng.uniform(size=42)
        results[f'{name}_low'], results[f'{name}_high'] = results[name] - 0.1, results[name] + 0.1
        results[f'{name}_centile'] = 96.0
    results = results.assign(centile_of='like_age', centile_controls=34)
    results = results.assign(
        status='complete', brain_in_range=True, covariates_out_of_range='none', held_out=True
    )
    deviations = results[['participant_id', 'session_id']].assign(
        order_by='date', years=[0.0, 2.0, *[0.0] * 40]
    )
    deviations[list(REGIONS)] = rng.normal(size=(42, 4))
    parts = results[['participant_id', 'session_id']].assign(r_index='r1', baseline=0.1)
    parts = pd.concat([parts, parts.assign(r_index='r2')], ignore_index=True)
    parts[list(REGIONS)] = rng.normal(0, 0.1, (84, 4))
    steps = pd.DataFrame(
        {
            'participant_id': 'sub-01',
            'from_session': 'ses-1',
            'to_session': 'ses-2',
            'years': 2.0,
            'order_by': 'date',
            'site_changed': False,
            'measure': ['r1', 'MUSE_47', 'MUSE_48'],
            'change': [0.2, -9.0, 5.0],
            'per_year': [0.1, -4.5, 2.5],
            'noise': [0.05, 2.0, 2.0],
            'limit': [0.1, 7.0, 7.0],
            'reliable': [True, True, False],
        }
    )
    known = find_reference(results, CARD, None)
    made = {'contributions': parts, 'changes': steps, 'reference': known, **changes}
    return GroupTables(root, results, deviations, CARD, **made)


def change_last(tables, **values):
    results = tables.results.astype(object)
    for name, value in values.items():
        results.loc[1, name] = value
    return replace(tables, results=results)


@pytest.fixture(scope='module')
def painter():
    shape = (24, 28, 22)
    affine = np.diag([7.0, 7, 7, 1]) - np.outer([84, 98, 77, 0], [0, 0, 0, 1])
    away = np.linalg.norm(np.indices(shape) - np.array(shape)[:, None, None, None] / 2, axis=0)
    mask = nib.Nifti1Image((away < 10).astype(np.uint8), affine)
    t1w = nib.Nifti1Image(((away < 10) * (12 - away)).astype(np.float32), affine)
    labels = np.where(away < 10, np.where(np.arange(24)[:, None, None] < 12, 48, 47), 0)
    return RegionPainter(Background(t1w, mask), nib.Nifti1Image(labels.astype(np.int16), affine))


def test_an_image_of_outlying_quality_is_flagged_at_its_visit(tmp_path):
    tables = make_tables(tmp_path)
    for last, expected in ((None, False), ('efc, cjv', True)):
        outliers = pd.Series(['snr_gm', last, *[None] * 40], dtype=object)
        changed = replace(tables, deviations=tables.deviations.assign(outliers=outliers))
        words = Page(write_individual(changed.of('sub-01'))).words
        assert ('an outlier among those of its scanner (efc, cjv)' in words) == expected
        assert ('No quality flags' in words) != expected
    assert 'Look at the image' in words
    write_anatomy_of(tmp_path)
    words = Page(write_individual(changed.of('sub-01'), again=True)).words
    assert 'Look at the figures of the image' in words


@pytest.mark.drawn
def test_everything_is_told(tmp_path, painter):
    tables = make_tables(tmp_path)
    path = write_individual(tables.of('sub-01'), painter)
    page = Page(path)
    check_offline(page)
    check_structure(page)
    last = tables.results.loc[1]
    for words in (
        'sub-01: R-indices',
        'No quality flags',
        f'68% interval {last["r1_low"]:.2f} to {last["r1_high"]:.2f}',
        '; centile 96 of 34 controls of similar age',
        'controls (n = 20)',
        'from the training sample, out of fold',
        'ses-2, the last of 2',
        'with a model trained on this dataset without the participant',
        'Right hippocampus',
        'years since the first visit',
        'ordered by date',
        'Regions that changed reliably',
        '-4.50',
    ):
        assert words in page.words, words
    assert '2.50' not in page.words.partition('Regions that changed reliably')[2]
    for name in FIGURES:
        extension = 'jpg' if name == 'map' else 'svg'
        assert (tmp_path / f'sub-01/figures/sub-01_desc-{name}_rindices.{extension}').is_file()
    assert path.stat().st_size < 3e6


@pytest.mark.parametrize(
    ('known', 'group', 'line'),
    [
        (
            {'age': 71.34, 'sex': 'Female', 'site': f'A {HOSTILE}'},
            'PT',
            f'Patient · 71.3 years old at the last visit · female · site A {HOSTILE} · 2 visits. ',
        ),
        ({'age': 60.0, 'sex': 1.0}, 'CN', 'Control · 60 years old at the last visit · sex 1 · '),
        ({'age': np.nan, 'site': None}, None, '2 visits. '),
    ],
)
def test_a_line_says_who_it_is_and_leads_to_the_group(tmp_path, known, group, line):
    tables = change_last(make_tables(tmp_path), group=group)
    tables = replace(tables, deviations=tables.deviations.assign(**known))
    page = Page(write_individual(tables.of('sub-01')))
    check_offline(page)
    assert f'\n{line}' in page.words
    assert 'group.html' in [a.get('href') for a in page.of('a')]


def test_only_what_is_there_is_shown(tmp_path):
    nothing = pd.DataFrame()
    none = Reference('', nothing)
    tables = make_tables(tmp_path, contributions=nothing, changes=nothing, reference=none)
    results = tables.results.drop(columns=[f'r{k}_{e}' for k in '12' for e in ('low', 'centile')])
    page = Page(write_individual(replace(tables, results=results).of('sub-05')))
    assert 'Regional contributions' not in page.words
    assert 'Change over time' not in page.words
    assert 'Comparison with controls' not in page.words
    assert 'no centile: no folds were made' in page.words
    applied = replace(tables, results=results, model='ad')
    words = Page(write_individual(applied.of('sub-05'))).words
    assert 'no centile: needs 30 controls' in words
    assert 'no interval: ' in page.words
    assert '68% interval' not in page.words


@pytest.mark.parametrize(
    ('card', 'reason', 'meaning'),
    [
        ({}, 'the model was not cross-fitted', 'Patterns by region'),
        ({'Imported': {'Patterns': {'r1': 'here', 'r2': 'there'}}}, 'the imported model', 'there'),
        ({'CrossFit': {}}, 'needs 20 controls', 'Patterns by region'),
        (
            {'CrossFit': {}, 'Intervals': {'Patterns': {'r1': {}, 'r2': {}}}},
            'the standard error of the added site is not known',
            'Patterns by region',
        ),
    ],
)
def test_a_missing_interval_has_its_reason_and_a_pattern_its_meaning(
    tmp_path, card, reason, meaning
):
    tables = replace(make_tables(tmp_path), card={**CARD, **card})
    tables = change_last(tables, r2_low=np.nan, r2_high=np.nan)
    page = Page(write_individual(tables.of('sub-01')))
    assert page.words.count('no interval: ') == 1
    assert f'no interval: {reason}' in page.words
    assert meaning in page.words


def test_doubts_are_told_in_sentences(tmp_path):
    tables = make_tables(tmp_path, adapted=False)
    tables.deviations.loc[1, ['MUSE_47', 'MUSE_31']] = [-4.25, 3.5]
    tables = change_last(
        tables, brain_in_range=False, covariates_out_of_range='age', status='unharmonized'
    )
    write_record(record_path(tmp_path, ('01', '2')), tmp_path, {}, [], [Caution('a', 'b', 'c')])
    words = Page(write_individual(tables.of('sub-01'))).words
    assert str(not_adapted()) in words
    assert (
        'differ most from controls: Right hippocampus (-4.2 SD), Right amygdala (+3.5 SD).' in words
    )
    assert 'age more than 5% beyond the range of the controls of the other folds.' in words
    assert 'Volumes were not harmonized' not in words  # It is what the first sentence means.
    assert 'The image has 1 warning' in words
    assert 'No quality flags' not in words


@pytest.mark.parametrize('knows_sites', [True, False])
def test_a_site_that_the_model_knows_by_name_is_told(tmp_path, knows_sites):
    card = CARD | {'Preprocessing': {'combat': {} if knows_sites else None}}
    tables = replace(make_tables(tmp_path, adapted=False, model='ad'), card=card)
    words = Page(write_individual(tables.of('sub-01'))).words
    assert ('treated as the site of the same name' in words) == knows_sites
    assert (str(not_adapted()) in words) != knows_sites
    assert ('does not include effects of the scanner' in words) != knows_sites


def test_images_that_the_network_is_not_sure_of_are_called_poor(tmp_path):
    tables = make_tables(tmp_path)
    path = output_path(tmp_path, 'quality', participant='01', session='2')
    for count, expected in {None: False, 14: False, 15: True}.items():
        write_json(path, {'uncertain_regions': count})
        words = Page(write_individual(tables.of('sub-01'), again=True)).words
        assert ('The image has 1 warning' in words) == expected


def test_images_with_a_lesion_are_flagged(tmp_path):
    table = tmp_path / 'sub-01_ses-2_dseg.tsv'
    quality = output_path(tmp_path, 'quality', participant='01', session='2')
    write_json(quality, {'lesion_ml': 20.0})
    for share, expected in {0.05: [], 0.31: ['lesion']}.items():
        regions = {'index': [1, 2], 'name': ['Insula', 'Pole'], 'lesion_share': [0.0, share]}
        write_tsv(table, pd.DataFrame(regions))
        write_record(record_path(tmp_path, ('01', '2')), tmp_path, {}, [table])
        flags = image_flags(tmp_path, 'sub-01', 'ses-2')
        assert [flag.short for flag in flags] == expected
    assert 'more than 5% of 1 region, most of Pole (31%)' in flags[0].caution.found
    table.unlink()
    assert image_flags(tmp_path, 'sub-01', 'ses-2') == []


def test_any_lesion_is_flagged_with_the_regions_of_another_program(tmp_path):
    quality = output_path(tmp_path, 'quality', participant='01', session='2')
    table = tmp_path / 'sub-01_ses-2_dseg.tsv'
    write_tsv(table, pd.DataFrame({'index': [1], 'name': ['Insula'], 'lesion_share': [0.0]}))
    write_record(record_path(tmp_path, ('01', '2')), tmp_path, {}, [table])
    for volume, computed, expected in ((20.0, True, 0), (20.0, False, 1), (0.0, False, 0)):
        write_json(quality, {'lesion_ml': volume})
        write_json(sidecar_path(table), {'RegionsComputed': computed, 'Atlas': 'freesurfer'})
        flags = image_flags(tmp_path, 'sub-01', 'ses-2')
        assert [flag.short for flag in flags] == ['lesion'] * expected
        for flag in flags:
            assert flag.caution.found == (
                'there is a lesion of 20.0 ml, and the regions are those of freesurfer'
            )
            assert 'before the lesion' not in ' '.join(flag.caution)


def test_no_r_indices_is_told_with_the_reason(tmp_path):
    tables = make_tables(tmp_path)
    one = tables.of('sub-07')
    results = one.results.assign(r1=np.nan, r2=np.nan, status='not_held_out', reason='small site')
    words = Page(write_individual(replace(one, results=results))).words
    assert 'There are no R-indices: small site.' in words
    assert 'Comparison with controls' not in words


def test_a_fold_that_has_not_reproduced_the_patterns_is_flagged(tmp_path):
    tables = make_tables(tmp_path)
    results = tables.results.assign(fold_correlation=0.41)
    words = Page(write_individual(replace(tables, results=results).of('sub-01'))).words
    assert 'Not all patterns were reproduced in the fold of this participant' in words
    assert 'Comparison with controls' in words


@pytest.mark.parametrize('agreement', [0.62, 0.9, None])
@pytest.mark.parametrize('r', [0.4, 0.9])
def test_what_speaks_against_the_model_is_told(tmp_path, agreement, r):
    known = {'Selected': {'agreement': agreement}, 'CrossFit': {'LeastCorrelation': {'r2': r}}}
    tables = replace(make_tables(tmp_path, model='ad'), card=CARD | known)
    words = Page(write_individual(tables.of('sub-01'))).words
    assert ('hardly agree (0.62' in words) == (agreement == 0.62)
    assert ('fold of the training sample: r2 (correlation 0.40)' in words) == (r == 0.4)
    assert ('No quality flags' in words) == (agreement != 0.62 and r == 0.9)


def test_no_pattern_is_told(tmp_path):
    tables = make_tables(tmp_path)
    named = [name for name in tables.results if not name.startswith(('r1', 'r2'))]
    without = replace(
        tables,
        results=tables.results[named],
        card=CARD | {'PatternNames': []},
        reference=Reference('', pd.DataFrame()),
    )
    words = Page(write_individual(without.of('sub-01'))).words
    assert 'no pattern is supported by the training sample' in words


def test_the_last_visit_with_r_indices_counts(tmp_path):
    tables = change_last(make_tables(tmp_path), r1=np.nan, r2=np.nan)
    words = Page(write_individual(tables.of('sub-01'))).words
    assert 'ses-1, the last of 2' in words
    assert 'Change over time' not in words


def test_visits_without_dates_are_in_the_order_of_names(tmp_path):
    tables = make_tables(tmp_path)
    deviations = tables.deviations.assign(years=np.nan, order_by='name')
    words = Page(write_individual(replace(tables, deviations=deviations).of('sub-01'))).words
    assert 'ordered by session label' in words


def write_anatomy_of(root, made_from='1'):
    """Write what the participant level would."""
    rendered = render_sections([Section('Summary', (Paragraph(HOSTILE),))], root)
    return write_anatomy(root, '01', Fragment('T', *rendered, made_from=made_from))


def test_sections_of_the_participant_level_stay(tmp_path):
    path = write_anatomy_of(tmp_path)
    before = path.read_text()
    tables = make_tables(tmp_path)
    for _ in range(2):
        write_individual(tables.of('sub-01'), again=True)
        page = Page(path)
        check_structure(page)
        assert page.words.count('Comparison with controls') == 2
        assert HOSTILE in page.words
        assert page.words.rindex('R-indices') < page.words.rindex('Summary')
    remove_others(tmp_path, {'02'})
    assert path.read_text() == before
    assert not list(tmp_path.rglob('*rindices*'))


@pytest.mark.parametrize(('made_from', 'stay'), [('1', True), ('2', False)])
def test_r_indices_stay_until_an_image_is_processed_again(tmp_path, made_from, stay):
    write_anatomy_of(tmp_path)
    one = make_tables(tmp_path).of('sub-01')
    write_individual(one)
    path = write_anatomy_of(tmp_path, made_from)
    assert read_fragment(tmp_path, '01', ANATOMY).made_from == made_from
    assert ('Comparison with controls' in Page(path).words) == stay
    write_individual(one)
    assert 'Comparison with controls' in Page(path).words


@pytest.mark.parametrize('damage', ['{', '[]', '{"title": 1, "old": 2}'])
def test_a_damaged_fragment_is_written_again(tmp_path, damage):
    one = make_tables(tmp_path).of('sub-01')
    path = write_individual(one)
    before = path.read_text()
    (fragment,) = tmp_path.rglob('.*_report.json')
    fragment.write_text(damage)
    write_individual(one)
    assert path.read_text() == before


def test_a_run_killed_before_a_fragment_is_stored_repeats_the_step(tmp_path, monkeypatch):
    def kill(*_):
        raise KeyboardInterrupt

    one = make_tables(tmp_path).of('sub-01')
    with monkeypatch.context() as patched:
        patched.setattr('surreal_bids.reports.assembly.write_json', kill)
        with pytest.raises(KeyboardInterrupt):
            write_individual(one)
    path = tmp_path / 'sub-01.html'
    path.write_text(path.read_text().replace('<h1>', '<h1 class="old">'))
    assert '<h1>' in write_individual(one).read_text()


def test_others_to_compare_with_are_a_reason_to_write_again(tmp_path):
    tables = make_tables(tmp_path)
    whose, rows, counts = tables.reference
    fewer = replace(tables, reference=Reference(whose, rows.iloc[1:], counts))
    digests = [each.of('sub-01').digest() for each in (tables, replace(tables), fewer)]
    assert digests[0] == digests[1] != digests[2]


def test_what_is_there_is_not_written_again(tmp_path):
    tables = make_tables(tmp_path)
    path = write_individual(tables.of('sub-01'))
    marked = path.read_text().replace('<h1>', '<h1 class="old">')
    path.write_text(marked)
    write_individual(tables.of('sub-01'))
    assert path.read_text() == marked
    write_individual(change_last(tables, r1=0.123).of('sub-01'))
    assert path.read_text() != marked
    assert '0.12' in Page(path).words


def test_reports_of_r_indices_only_go_with_them(tmp_path):
    tables = make_tables(tmp_path)
    paths = [write_individual(tables.of(name)) for name in ('sub-01', 'sub-02')]
    remove_others(tmp_path, {'02'})
    assert [path.is_file() for path in paths] == [False, True]


def test_a_page_of_something_else_is_left_alone(tmp_path):
    path = tmp_path / 'sub-01.html'
    path.write_text('<html>mine</html>')
    one = make_tables(tmp_path).of('sub-01')
    with pytest.raises(DataError, match='not a report of this version'):
        write_individual(one)
    write_failure(one, 'x')
    assert path.read_text() == '<html>mine</html>'
    write_failure(make_tables(tmp_path).of('sub-02'), 'too strange')
    assert 'could not be written (too strange)' in Page(tmp_path / 'sub-02.html').words


def test_tables_are_read_as_the_group_level_writes_them(tmp_path):
    tables = make_tables(tmp_path)
    results = tables.results.assign(
        brain_in_range='true', held_out='true', participant_id='sub-007'
    )
    results.loc[3, ['brain_in_range', 'held_out']] = ['n/a', 'false']
    write_tsv(output_path(tmp_path, 'rindices'), results)
    write_tsv(tmp_path / 'deviations.tsv', tables.deviations)
    write_json(tmp_path / 'card.json', CARD)
    found = GroupTables.read(
        tmp_path, tmp_path / 'deviations.tsv', tmp_path / 'card.json', 'ad', True
    )
    assert found.names == ['r1', 'r2']
    assert found.results['brain_in_range'].tolist()[:3] == [True] * 3
    assert found.results['participant_id'].tolist()[0] == 'sub-007'
    assert found.reference.whose == ''
    assert json.loads((tmp_path / 'card.json').read_text()) == CARD


def test_a_model_brings_its_training_sample_along():
    results = make_tables('').results
    rows = {'r1': np.linspace(0, 1, 101), 'r2': np.linspace(1, 2, 101)}
    told = {'CN': {'Number': 492, 'Percentiles': rows}, 'PT': {'Number': 900, 'Percentiles': rows}}
    found = find_reference(results, CARD | {'Reference': told}, 'ad')
    assert found.whose == 'the training sample'
    assert found.counts == {'CN': 492, 'PT': 900}
    assert found.rows.groupby('group')['r2'].median().to_dict() == {'CN': 1.5, 'PT': 1.5}
    # Cards of earlier versions may have nothing of a pattern.
    told['CN'] = {'Number': 31, 'Percentiles': {'r2': rows['r2']}}
    found = find_reference(results, CARD | {'Reference': told}, 'ad')
    assert found.rows.groupby('group')[['r1', 'r2']].count().loc['CN'].tolist() == [0, 101]
    # Without it, the dataset; one that the model was trained on is its training sample.
    assert find_reference(results, CARD, 'ad').whose == 'this dataset'
    assert find_reference(results, CARD, None).counts == {'PT': 21, 'CN': 20}
    patients = results[results['group'] == 'PT']
    assert find_reference(patients, CARD, 'ad').rows.empty
    # Those who were trained on say nothing.
    trained_on = results.assign(held_out=results['group'] == 'PT')
    assert find_reference(trained_on, CARD, None).counts == {'PT': 21}


def test_what_the_card_lacks_of_one_pattern_is_shown_of_the_others(tmp_path):
    told = {'CN': {'Number': 31, 'Percentiles': {'r2': np.linspace(0, 1, 101)}}}
    card = CARD | {'Reference': told}
    tables = make_tables(tmp_path, model='ad')
    results = tables.results.drop(columns=['r1_low', 'r1_high', 'r1_centile'])
    reference = find_reference(results, card, 'ad')
    tables = replace(tables, results=results, card=card, reference=reference)
    words = Page(write_individual(tables.of('sub-01'))).words
    assert 'not a 95% confidence interval' in words
    assert 'controls (n = 31)' in words


def test_bars_add_up_and_the_strongest_come_first():
    rng = np.random.default_rng(0)
    parts = pd.Series(rng.normal(size=30), [f'x{k}' for k in range(30)])
    bars = strongest(pd.concat([pd.Series({'baseline': 0.25}), parts]))
    assert bars.iloc[0] == 0.25
    assert bars.index[-1] == OTHERS
    assert bars.sum() == pytest.approx(0.25 + parts.sum())
    assert (np.diff(bars.iloc[1:-1].abs()) <= 0).all()


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)  # noqa: S314 -- our own


def test_regions_may_be_called_anything():
    parts = pd.Series([0.1, 0.2, 0.3], ['baseline', 'left $a_{$ <b>', r'$\right$ & "c"'])
    drawn = parse(plot_contributions({'r1': parts}, {}))
    assert {'left $a_{$ <b>', r'$\right$ & "c"'} <= {each.text for each in drawn.iter()}


def test_long_names_and_no_contributions_are_drawn():
    parts = pd.Series([0.0, 0.0], ['baseline', 'left ' + 'x' * 60 + ' gyrus'])
    drawn = plot_contributions({'r1': parts}, {})
    assert 'nan' not in drawn
    assert max(len(each.text or '') for each in parse(drawn).iter()) < 50


def test_bars_are_as_long_as_contributions():
    parts = pd.Series([0.1, 0.4, -0.2], ['baseline', 'a', 'b'])
    drawn = parse(plot_contributions({'r1': parts}, {}))
    _, baseline, first, second = (each for each in drawn.iter() if each.tag.endswith('rect'))
    assert float(first.get('width')) == pytest.approx(4 * float(baseline.get('width')), abs=0.02)
    assert float(second.get('width')) == pytest.approx(2 * float(baseline.get('width')), abs=0.02)
    zero = float(first.get('x'))
    assert float(second.get('x')) == pytest.approx(zero - float(second.get('width')), abs=0.02)


def test_an_r_index_stands_where_its_value_is_among_those_of_others():
    """The middle of 0 and 1 is in the middle of the axis between their labels."""
    own = pd.DataFrame({'value': [0.5], 'low': [0.0], 'high': [1.0]}, index=['r1'])
    others = pd.DataFrame({'r1': [0.1, 0.9], 'group': ['CN', 'PT']})
    drawn = parse(plot_standing(own, others, {'CN': 1, 'PT': 1}))
    labels = {each.text: float(each.get('x')) for each in drawn.iter() if each.get('x')}
    shapes = [each for each in drawn.iter() if each.tag.endswith('polygon')]
    diamond = [point.split(',') for point in shapes[2].get('points').split()]
    assert float(diamond[0][0]) == pytest.approx((labels['0'] + labels['1']) / 2, abs=0.1)
    assert {'controls (n = 1)', 'patients (n = 1)'} <= set(labels)
