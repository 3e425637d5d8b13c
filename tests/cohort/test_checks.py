"""Each check of the list, by damage to a sound study; and that sound studies pass."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from surreal_bids.cohort.checks import CHECKS, summarise_reasons
from surreal_bids.cohort.cohort import read_cohort
from surreal_bids.config import CohortOptions
from surreal_bids.exceptions import DataError
from surreal_bids.rindices.model import prepare
from surreal_bids.simulation.tables import simulate_table
from tests.shared_data import shared_data

ROOT = Path(__file__).resolve().parents[2]


def study(seed=0, n_cn=40, n_pt=40, n_regions=40):
    simulated = simulate_table('basic', n_cn=n_cn, n_pt=n_pt, seed=seed)
    ids = 'participant_id'
    people = simulated.participants.set_index(ids).assign(site='A')
    return simulated.volumes.set_index(ids).iloc[:, :n_regions], people


def read(folder, volumes, people, **options):
    volumes.to_csv(folder / 'volumes.tsv', sep='\t', na_rep='n/a')
    people.to_csv(folder / 'people.tsv', sep='\t', na_rep='n/a')
    return read_cohort(folder / 'volumes.tsv', folder / 'people.tsv', CohortOptions(**options))


def put(table, column, value, rows=slice(3, 4)):
    table = table.astype({column: object})
    table.iloc[rows, table.columns.get_loc(column)] = value
    return table


def scaled(table, factor, rows):
    table = table.copy()
    table.iloc[rows] *= factor
    return table


def close_copy(v, p, sd=0.005):
    noise = np.random.default_rng(0).normal(1, sd, v.shape[1])
    return pd.concat([v[:3], v[2:3].set_axis(v.index[3:4]) * noise, v[4:]]), p


STOPS = {
    'residuals': (lambda v, p: (v - v.mean(), p), 'are negative; use volumes as measured'),
    'half in cm3': (lambda v, p: (scaled(v, 1e-3, slice(0, 40)), p), 'than those of others'),
    'one region in cm3': (
        lambda v, p: (v.assign(**{v.columns[0]: v.iloc[:, 0] / 1000}), p), 'other regions suggest'),
    'icv in metres': (lambda v, p: (v, p.assign(icv=p['icv'] / 1e9)), 'icv has a median of'),
    'some icv in cm3': (
        lambda v, p: (v, put(p, 'icv', 1500.0, slice(0, 30))), 'than that of others: units are'),
    'months': (lambda v, p: (v, p.assign(age=p['age'] * 12)), 'like months'),
    'birth years': (lambda v, p: (v, p.assign(age=1950 + p['age'] % 9)), 'like birth years'),
    'centred ages': (lambda v, p: (v, p.assign(age=p['age'] - 70)), 'like centred ages'),
    'age in text': (lambda v, p: (v, put(p, 'age', 'seventy')), 'has "seventy"'),
    'volume in text': (lambda v, p: (put(v, v.columns[0], 'big'), p), 'has "big"'),
    'third sex code': (lambda v, p: (v, p.assign(sex=np.arange(80) % 3)), 'holds 0, 1, 2'),
    'sex as code': (lambda v, p: (v, put(p, 'sex', '1')), 'is 1; others are F, M'),
    'a site per person': (lambda v, p: (v, p.assign(site=list(p.index))), '80 levels among 80'),
    'one site in two ways': (
        lambda v, p: (v, p.assign(site=['A', 'a '] * 40)), r'A = a|a = A'),
    'most ages missing': (
        lambda v, p: (v, put(p, 'age', None, slice(0, 30))), '10 controls left of 40.*age is miss'),
    'three regions': (lambda v, p: (v.iloc[:, :3], p), 'only 3 usable regions, at least 4'),
    'other ids': (lambda v, p: (v.rename(str.upper), p), 'the same case, zeros and punctuation'),
    'small sites': (
        lambda v, p: (v, p.assign(site=[f's{k % 20}' for k in range(80)])),
        r'site s0 has 2 controls.*--site-column none'),
}  # fmt: skip


@pytest.mark.parametrize('name', STOPS)
def test_what_cannot_be_stops(tmp_path, name):
    damage, message = STOPS[name]
    with pytest.raises(DataError, match=rf'(?s){message}'):
        read(tmp_path, *damage(*study()))


def test_what_is_named_but_constant_stops(tmp_path):
    volumes, people = study()
    options = {'icv': 'proportion', 'icv_column': 'icv', 'covariates': ('age',)}
    with pytest.raises(DataError, match=r'(?s)age is the same in all .*icv is the same in all '):
        read(tmp_path, volumes, people.assign(icv=1.5e6, age=70), **options)


def test_a_covariate_that_nobody_has_is_not_constant(tmp_path):
    volumes, people = study()
    with pytest.raises(DataError, match='age is missing in all controls; correct it'):
        read(tmp_path, volumes, people.assign(age=np.nan), covariates=('age', 'sex'))


def test_reasons_that_differ_in_numbers_are_one():
    reasons = ['icv is 1,423.5 (median 140)', 'icv is 7 (median 140)', 'age is missing']
    assert summarise_reasons(reasons) == (
        '2 for reasons like "icv is 1,423.5 (median 140)", 1 for "age is missing"'
    )
    assert summarise_reasons(['age is missing']) == '1 for "age is missing"'


def test_a_covariate_that_equals_the_group_stops(tmp_path):
    volumes, people = study()
    people['drug'] = people['diagnosis'].map({'CN': 'none taken', 'PT': 'some'})
    with pytest.raises(DataError, match='drug has other values in controls than in patients'):
        read(tmp_path, volumes, people, covariates=('age', 'drug'))
    with pytest.raises(DataError, match='is the diagnosis column; it cannot also be a covariate'):
        read(tmp_path, volumes, people, covariates=('age', 'diagnosis'))


EXCLUDED = {
    'missing age': (lambda v, p: (v, put(p, 'age', None)), 'age is missing'),
    'age 999': (lambda v, p: (v, put(p, 'age', 999)), r'age is 999 \(median'),
    'age -9': (lambda v, p: (v, put(p, 'age', -9)), 'age is -9'),
    'small head': (lambda v, p: (v, put(p, 'icv', 1e5)), r'icv is 100000 \(median'),
    'missing volume': (lambda v, p: (put(v, v.columns[1], None), p), 'no volume of'),
    'volume -9': (lambda v, p: (put(v, v.columns[1], -9.0), p), 'no volume of'),
    'empty region': (lambda v, p: (put(v, v.columns[1], 0.0), p), 'no volume of'),
    'copy': (lambda v, p: close_copy(v, p, 0.0), 'the same volumes'),
    'far volume': (lambda v, p: (put(v, v.columns[1], v.iloc[3, 1] / 50), p), 'in others; check'),
    'nearly empty': (lambda v, p: (scaled(v, 0.001, slice(3, 4)), p), 'check the segmentation'),
    'far too small': (lambda v, p: (scaled(v, 0.05, slice(3, 4)), p), 'check the segmentation'),
    'far too large': (lambda v, p: (scaled(v, 20, slice(3, 4)), p), 'check the segmentation'),
    'wrong mask': (lambda v, p: (scaled(v, 2.0, slice(3, 4)), p), 'of the regions are outlying'),
    'no row': (lambda v, p: (v, p.drop(p.index[3])), 'no row in people.tsv'),
    'no volumes': (lambda v, p: (v.drop(v.index[3]), p), 'not in .*volumes.tsv'),
    'lone site': (lambda v, p: (v, put(p, 'site', 'B')), 'site B has 1 control'),
}  # fmt: skip


@pytest.mark.parametrize('name', EXCLUDED)
def test_who_cannot_be_used_is_excluded(tmp_path, name):
    volumes, people = study()
    people['site'] = ['A', 'C'] * 40
    damage, reason = EXCLUDED[name]
    cohort = read(tmp_path, *damage(volumes, people))
    assert list(cohort.exclusions.index) == [people.index[3]]
    assert cohort.exclusions['reason'].str.contains(reason).all()
    assert len(cohort) == 79


WARNED = {
    'cm3': (lambda v, p: (v / 1000, p), 'All volumes are about 1,000 times smaller than in mm3'),
    'icv in ml': (lambda v, p: (v, p.assign(icv=p['icv'] / 1000)), 'icv has a .*, like ml'),
    'icv in litres': (lambda v, p: (v, p.assign(icv=p['icv'] / 1e6)), 'icv has a .*, like litres'),
    'permuted head sizes': (
        lambda v, p: (v, p.assign(icv=np.random.default_rng(1).permutation(p['icv']))),
        'icv is hardly related'),
    'near copy': (lambda v, p: close_copy(v, p, 3e-4), r'different ids: sub-\S+ = sub-'),
    'older patients': (
        lambda v, p: (v, p.assign(age=p['age'] + 40 * (p['diagnosis'] == 'PT') - 20)),
        'beyond the age range of controls'),
    'constant region': (lambda v, p: (v.assign(**{v.columns[0]: 800.0}), p), 'same in everyone'),
    'region as text': (
        lambda v, p: (v.assign(**{v.columns[0]: '1 234'}), p), 'no number in 100% of participants'),
    'foreign region': (
        lambda v, p: (v.assign(thalamus_x=v.iloc[:, 2]), p), 'thalamus_x .no region of the atlas'),
    'region twice': (
        lambda v, p: (v.add_prefix('x_').join(v.add_prefix('x_').add_suffix('_%') / 2), p),
        r'The same region twice: x_MUSE_\d+ = x_MUSE_\d+_%'),
    'few controls': (lambda v, p: (v[20:], p[20:]), 'Few controls: 20'),
}  # fmt: skip


@pytest.mark.parametrize('name', WARNED)
def test_what_is_unlikely_warns(tmp_path, name):
    damage, message = WARNED[name]
    cohort = read(tmp_path, *damage(*study()))
    assert pd.Series([each.found for each in cohort.warnings]).str.contains(message).any()
    assert cohort.exclusions.empty


def test_similar_rows_of_sound_tables_are_no_copies(tmp_path):
    """A second visit of the same participant, few regions, and volumes in coarse steps."""
    volumes, people = study()
    visits, described = (pd.concat([table, table[:9]]) for table in close_copy(volumes, people))
    visits[-9:] *= 1.0003
    visits, described = (
        table.assign(session_id=['a'] * 80 + ['b'] * 9) for table in (visits, described)
    )
    steps = volumes.map(lambda volume: float(f'{volume:.1g}'))
    few, ten = steps.iloc[:, :5], steps.iloc[:, :10]
    assert few.duplicated().any()
    for table, facts in ((visits, described), (few, people), (ten, people)):
        cohort = read(tmp_path, table, facts)
        assert not [why for why in cohort.exclusions['reason'] if 'same volumes' in why]
        assert not [each for each in cohort.warnings if 'different ids' in each.found]


def test_atrophy_does_not_look_like_exchanged_heads(tmp_path):
    volumes, people = study(n_cn=60, n_pt=100)
    rng = np.random.default_rng(0)
    relative = (volumes / volumes.mean()).mean(axis=1)
    people['icv'] = 1.3e6 * relative * rng.normal(1, 0.1, len(people))
    severity = rng.gamma(2, 0.2, len(people)) * (people['diagnosis'] == 'PT')
    shrunk = volumes * np.exp(-np.outer(severity, rng.uniform(0.5, 1.5, volumes.shape[1])))
    assert people['icv'].corr(shrunk.sum(axis=1), 'spearman') < 0.3
    exchanged = people.assign(icv=rng.permutation(people['icv']))
    for facts, warns in ((people, False), (exchanged, True)):
        warnings = read(tmp_path, shrunk, facts).warnings
        assert any('icv is hardly related' in each.found for each in warnings) == warns


@pytest.mark.slow
@pytest.mark.parametrize('seed', range(3))
def test_head_sizes_of_real_tables_are_told_from_exchanged_ones(tmp_path, seed):
    table = pd.read_csv(shared_data('tables') / 'lnm_two_visits.csv')
    table = table[table['visit'] == 1].set_index('sub_id').drop(columns='visit')
    table = table.loc[:, ~table.columns.str.contains('thickness')]
    table['group'] = table['group'].map({'control': 'CN', 'patient': 'PT'})
    table = table.sample(80, random_state=seed)
    size = 'EstimatedTotalIntraCranialVol'
    exchanged = table.assign(**{size: table[size].sample(frac=1, random_state=seed).to_numpy()})
    for one, warns in ((table, False), (exchanged, True)):
        one.to_csv(tmp_path / 'one.csv')
        warnings = read_cohort(tmp_path / 'one.csv').warnings
        assert any('hardly related' in each.found for each in warnings) == warns


@pytest.mark.slow
def test_who_is_like_another_or_far_from_others_stays(tmp_path):
    """As in samples of twins, and of students with a few old participants."""
    assert read(tmp_path, *close_copy(*study())).exclusions.empty
    volumes, people = study()
    people['age'] = [7, 80, 85, 88, *np.linspace(20, 26, 76)]
    assert read(tmp_path, volumes, people).exclusions.empty
    people.iloc[:2, people.columns.get_loc('age')] = [-9, 130]
    excluded = read(tmp_path, volumes, people).exclusions
    assert list(excluded.index) == list(people.index[:2])


@pytest.mark.slow
@pytest.mark.parametrize('share', [0.7, 0.85, 0.97])
def test_sound_studies_pass(tmp_path, share):
    """Whatever share of the head regions fill; names of sites may be similar."""
    for seed in range(3):
        volumes, people = study(seed, 60, 60, n_regions=None)
        people['icv'] *= (volumes.sum(axis=1) / people['icv']).median() / share
        cohort = read(tmp_path, volumes, people.assign(site=['Site 1', 'Scanner 1'] * 60))
        assert cohort.exclusions.empty
        assert [each.found for each in cohort.warnings] == []


def test_z_scores_are_accepted_as_given(tmp_path):
    volumes, people = study()
    scores = (volumes - volumes.mean()) / volumes.std()
    cohort = read(tmp_path, scores, people, covariates=('none',), icv='none')
    assert cohort.wanted.noun == 'z-scores'
    assert len(cohort) == 80


@pytest.mark.parametrize(('of_volumes', 'of_head'), [(1e-3, 1e-3), (1e-4, 1.0), (1.0, 1e-3)])
def test_r_indices_do_not_depend_on_a_unit_that_all_regions_share(tmp_path, of_volumes, of_head):
    volumes, people = study()
    usual = prepare(read(tmp_path, volumes, people)).normalised
    cohort = read(tmp_path, volumes * of_volumes, people.assign(icv=people['icv'] * of_head))
    np.testing.assert_allclose(prepare(cohort).normalised, usual, rtol=1e-6)
    assert (cohort.wanted.unit == 'mm3') == (of_volumes == 1)
    assert any(each.consequence.startswith('R-indices do not') for each in cohort.warnings)


@pytest.mark.parametrize('name', ['age', 'ICV', 'diagnosis'])
def test_a_feature_has_no_second_use(tmp_path, name):
    volumes, people = study()
    listed = [name, *volumes.columns[:8]]
    (tmp_path / 'regions.txt').write_text('\n'.join(listed))
    volumes = volumes.assign(**{name: people[name.lower()]})
    with pytest.raises(DataError, match=rf'(?i)regions.txt: {name} is also a covariate, head size'):
        read(tmp_path, volumes, people, features=str(tmp_path / 'regions.txt'))


def test_thickness_is_not_corrected_for_head_size(tmp_path):
    volumes, people = study()
    thick = volumes.set_axis([f'lh_area{k}_thickness' for k in range(40)], axis=1) / 1000
    cohort = read(tmp_path, thick, people)
    assert cohort.options.icv == 'none'
    assert cohort.wanted.noun == 'thicknesses'


def test_one_sided_names_stay_two_sided(tmp_path):
    volumes, people = study()
    names = [f'{tissue}_{side}' for tissue in ('Cortex', 'WM', 'GM') for side in 'LR']
    own = volumes.iloc[:, :6].set_axis(names, axis=1)
    assert read(tmp_path, own, people).wanted.names == names


def test_the_documentation_prints_the_checks():
    text = (ROOT / 'docs' / 'tables.md').read_text()
    rows = [
        f'| {str(check.find.__doc__).partition(".")[0]} | {check.severity} | {check.remedy} |'
        for check in CHECKS
    ]
    assert '\n'.join(rows) in text
    assert len({check.find for check in CHECKS}) == len(CHECKS)
