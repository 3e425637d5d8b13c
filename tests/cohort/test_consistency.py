"""Joined things that do not belong together: ids, sites, rows of two tables, visits, copies."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from surreal_bids.cohort.cohort import check_participants, read_cohort
from surreal_bids.cohort.facts import refuse_spellings
from surreal_bids.cohort.reader import read_visit_table
from surreal_bids.columns import column_of
from surreal_bids.config import CohortOptions
from surreal_bids.exceptions import DataError
from surreal_bids.simulation.tables import simulate_table

SEEDS = range(3)

REPEATS = (
    *('_run-{n}', '_acq-highres', '_acq-a_run-{n}', '_retest', 'retest', '_{n}', '.{n}', '-b', 'b'),
    *(
        'rescan',
        '_rescan',
        '_T{n}',
        '_m{n}',
        '_post',
        '_T1w',
        '_2019-03-0{n}',
        '-v{n}',
        '_echo-{n}',
    ),
)
"""Ends of ids that name a second visit or scan."""

FORMS = ('sub-{k:03}', '{k:04}', 'S{k}', 'site1_{k:03}', '002_S_{k:04}', 'P-{k}', 'HC{k}', 'A_{k}')
"""Ids of different participants, including some that look like others with a number."""


def write_ids(folder: Path, ids) -> Path:
    path = folder / 'volumes.tsv'
    table = pd.DataFrame({'participant_id': ids, 'a': np.arange(1.0, len(ids) + 1)})
    table.to_csv(path, sep='\t', index=False)
    return path


@pytest.mark.parametrize('form', FORMS)
def test_ids_of_different_participants_are_accepted(tmp_path, form):
    ids = [form.format(k=k) for k in range(1, 31)]
    assert len(read_visit_table(write_ids(tmp_path, ids)).visits) == 30


@pytest.mark.parametrize('end', REPEATS)
@pytest.mark.parametrize('seed', range(2))
def test_a_second_scan_is_not_a_new_participant(tmp_path, end, seed):
    rng = np.random.default_rng(seed)
    form = FORMS[rng.integers(len(FORMS))]
    ids = [form.format(k=k) for k in range(1, 31)]
    who = ids[rng.integers(30)]
    repeated = who + end.format(n=rng.integers(2, 9))
    path = write_ids(tmp_path, rng.permutation([*ids, repeated]))
    with pytest.raises(DataError) as caught:
        read_visit_table(path)
    assert {str(path), who, repeated, 'session_id'} <= {
        *str(caught.value).replace(':', '').replace(',', '').split()
    }


@pytest.mark.parametrize(('first', 'second'), [('_test', '_retest'), ('_run-1', '_run-2')])
def test_two_scans_without_a_bare_id_are_one_participant(tmp_path, first, second):
    path = write_ids(tmp_path, ['01', '02', f'03{first}', f'03{second}'])
    with pytest.raises(DataError, match=f'03{first} and 03{second}'):
        read_visit_table(path)


def test_socio_economic_status_is_no_session(tmp_path):
    # Columns of OASIS.
    path = tmp_path / 'oasis.csv'
    path.write_text('ID,M/F,Age,SES\nA1,F,74,2\nA2,M,55,\nA3,F,60,4\n')
    table = read_visit_table(path)
    assert table.visits == [('A1', None), ('A2', None), ('A3', None)]
    assert column_of(table.table.columns, 'sex') == 'M/F'
    path.write_text('subject,ses,hippocampus\n01,1,5.1\n01,2,5.0\n')
    assert read_visit_table(path).visits == [('01', '1'), ('01', '2')]


def test_a_prefix_of_many_ids_is_not_a_participant(tmp_path):
    ids = [f'HC_{sex}_{k:02}' for sex in 'MF' for k in range(1, 21)]
    assert len(read_visit_table(write_ids(tmp_path, ids)).visits) == 40


def respell(name: str, rng: np.random.Generator) -> str:
    """Write a name such as `site1` in another way."""
    word, number = name.rstrip('0123456789'), name[len(name.rstrip('0123456789')) :]
    word = rng.choice([word, word.upper(), word.title(), word[0].upper() + word[1:]])
    between = rng.choice(['', ' ', '-', '_', '. '])
    zeros = rng.choice(['', '0', '00'])
    return f'{word}{between}{zeros}{number}'


@pytest.mark.parametrize('seed', SEEDS)
def test_one_site_has_one_spelling(seed):
    rng = np.random.default_rng(seed)
    name = f'{rng.choice(["site", "scanner", "guys", "Köln"])}{rng.integers(1, 30)}'
    other = respell(name, rng)
    column = pd.Series([name, 'other', other, name], name='scanner')
    if other == name:
        refuse_spellings(column)
        return
    with pytest.raises(DataError) as caught:
        refuse_spellings(column)
    assert 'scanner' in str(caught.value)
    assert name in str(caught.value)
    assert other in str(caught.value)


@pytest.mark.parametrize(
    'names',
    [
        ['1', '11', '1.1', '1.5T', '15T'],
        ['A', 'A+', 'B', 'AB'],
        ['site1', 'site10', 'site100', 'site2'],
        ['Prisma', 'Prisma fit', 'Trio'],
        [f'{word}{k}' for word in ('ge', 'siemens', '') for k in range(1, 12)],
    ],
)
def test_different_sites_are_accepted(names):
    refuse_spellings(pd.Series(names, name='site'))


@dataclass
class Joined:
    """A sound study: volumes and participants in the same order."""

    volumes: pd.DataFrame
    people: pd.DataFrame

    def read(self, folder, **options):
        paths = folder / 'volumes.tsv', folder / 'participants.tsv'
        for path, table in zip(paths, (self.volumes, self.people)):
            table.to_csv(path, sep='\t', na_rep='n/a')
        return read_cohort(*paths, CohortOptions(**options))


def simulated(seed: int, n: int = 60, n_regions: int = 139) -> Joined:
    table = simulate_table('basic', n // 2, n - n // 2, seed=seed)
    volumes = table.volumes.set_index('participant_id').iloc[:, :n_regions].round(2)
    return Joined(volumes, table.participants.set_index('participant_id').assign(site='A'))


def new_warnings(cohort):
    said = map(str, cohort.warnings)
    return [text for text in said if not text.startswith(('Few controls', 'Ages:'))]


@pytest.mark.parametrize('seed', range(2))
@pytest.mark.parametrize('n', [24, 130])
def test_sound_tables_are_accepted(tmp_path, seed, n):
    cohort = simulated(seed, n).read(tmp_path)
    assert len(cohort) >= n - 1
    assert not cohort.exclusions['reason'].str.contains('icv|almost').any()
    assert new_warnings(cohort) == []


@pytest.mark.parametrize('seed', SEEDS)
def test_permuted_rows_are_an_error(tmp_path, seed):
    """All facts, or the head size alone, belong to other participants."""
    rng = np.random.default_rng(seed)
    study = simulated(seed)
    columns = ['icv'] if seed % 2 else list(study.people)
    order = rng.permutation(len(study.people))
    study.people[columns] = study.people[columns].to_numpy()[order]
    with pytest.raises(DataError, match=r'participants\.tsv: column icv'):
        study.read(tmp_path)


@pytest.mark.parametrize('seed', SEEDS)
def test_shifted_rows_are_found(tmp_path, seed):
    """From a row on, cells are one to three rows too high or too low."""
    rng = np.random.default_rng(seed)
    study = simulated(seed)
    lag, start = int(rng.choice([-3, -2, -1, 1, 2, 3])), int(rng.integers(0, 40))
    cells = study.people['icv'].to_numpy()
    study.people['icv'] = [*cells[:start], *np.roll(cells[start:], lag)]
    with pytest.raises(DataError) as caught:
        study.read(tmp_path)
    message = str(caught.value)
    assert 'column icv seems shifted' in message
    assert f'by {abs(lag)} row' in message
    named = int(message.partition('from about sub-')[2][:4]) - 1
    assert abs(named - start) <= 3


def test_a_shift_is_found_in_sizes_that_follow_from_the_volumes(tmp_path):
    study = simulated(0)
    study.people['icv'] = np.roll(1.3 * study.volumes.sum(axis=1), 1)
    with pytest.raises(DataError, match='column icv seems shifted by 1 row'):
        study.read(tmp_path)


@pytest.mark.parametrize('seed', range(2))
def test_volumes_corrected_for_head_size_need_no_head_size(tmp_path, seed):
    study = simulated(seed)
    icv = study.people['icv'] = study.people['icv'] * np.random.default_rng(seed).uniform(0.7, 1.4)
    study.volumes = study.volumes.div(study.volumes.sum(axis=1) / 1e6, axis=0)
    study.volumes *= np.random.default_rng(seed).normal(1, 0.03, (len(icv), 1))
    with pytest.raises(DataError, match=r'column icv is hardly related.*--icv none'):
        study.read(tmp_path)
    assert any(
        'icv is hardly related' in text.found for text in study.read(tmp_path, icv='none').warnings
    )


@pytest.mark.parametrize('column', ['age', 'sex'])
@pytest.mark.parametrize('seed', range(2))
def test_shifted_ages_and_sexes_are_found_without_a_head_size(tmp_path, column, seed):
    study = simulated(seed, n=300)
    study.people = study.people.drop(columns='icv')
    study.people[column] = np.roll(study.people[column], 1 + seed)
    with pytest.raises(DataError, match=f'column {column} seems shifted by {1 + seed} row'):
        study.read(tmp_path)
    study.people[column] = np.random.default_rng(seed).permutation(study.people[column])
    said = new_warnings(study.read(tmp_path))
    assert any(f'{column} is not related' in text for text in said)


@pytest.mark.parametrize('seed', SEEDS)
def test_a_head_size_that_contradicts_the_volumes_is_excluded(tmp_path, seed):
    rng = np.random.default_rng(seed)
    study = simulated(seed)
    who = rng.choice(study.people.index)
    factor = rng.uniform(1.6, 2.2) ** rng.choice([-1, 1])
    study.people.loc[who, 'icv'] *= factor
    excluded = study.read(tmp_path).exclusions
    assert excluded.index.tolist() == [who]
    assert 'icv' in excluded.loc[who, 'reason']


def test_regions_cannot_be_larger_than_the_head(tmp_path):
    study = simulated(0)
    study.people['icv'] *= 0.7
    with pytest.raises(DataError, match=r'participants\.tsv: column icv.*--icv-column'):
        study.read(tmp_path)


@pytest.mark.parametrize('seed', SEEDS)
def test_copies_under_another_id_are_found(tmp_path, seed):
    rng = np.random.default_rng(seed)
    study = simulated(seed, n_regions=int(rng.integers(30, 139)))
    first, second = rng.choice(study.volumes.index, 2, replace=False)
    copy = study.volumes.loc[first]
    kind = ('rounded', 'scaled', 'noisy')[seed % 3]
    if kind == 'rounded':
        copy = copy.round(int(rng.integers(-1, 1)))
    elif kind == 'scaled':
        copy = copy * rng.uniform(0.9, 1.1)
    else:
        copy = copy * rng.normal(1, rng.uniform(0.006, 0.025), len(copy))
    study.volumes.loc[second] = copy
    if kind == 'noisy':
        excluded = study.read(tmp_path).exclusions
        assert {first, second} <= set(excluded.index)
        assert first in excluded.loc[second, 'reason']
        return
    with pytest.raises(DataError) as caught:
        study.read(tmp_path)
    assert 'volumes.tsv' in str(caught.value)
    assert first in str(caught.value)
    assert second in str(caught.value)


def with_visits(seed: int, n_visits: int = 2) -> Joined:
    """Visits a year apart; the volumes of later ones differ a little."""
    rng = np.random.default_rng(seed)
    study = simulated(seed)
    frames = []
    for visit in range(n_visits):
        noise = rng.normal(1, 0.01, study.volumes.shape) if visit else 1.0
        people = study.people.assign(
            session_id=f'ses-{visit + 1}',
            age=study.people['age'] + visit,
            acq_time=f'{2010 + visit}-06-01T10:00:00',
        )
        frames.append((people, (study.volumes * noise).assign(session_id=f'ses-{visit + 1}')))
    people, volumes = (pd.concat(tables) for tables in zip(*frames))
    return Joined(volumes, people)


def test_sound_visits_are_accepted(tmp_path):
    study = with_visits(0)
    born = 2010.45 - study.people.groupby(level=0)['age'].min()
    study.people['birth_year'] = born.astype(int)[study.people.index]
    cohort = study.read(tmp_path)
    assert len(cohort) == 120
    assert new_warnings(cohort) == []


def test_the_age_at_baseline_is_not_that_of_later_visits(tmp_path):
    study = with_visits(0, n_visits=4)
    age = study.people['age']
    baseline = age.groupby(level=0).transform('min')
    study.people['birth_year'] = (2010.45 - baseline).astype(int)
    # Another column is more complete, but it is not the age at each visit.
    missing = study.people['session_id'] == 'ses-2'
    study.people = study.people.assign(age_at_baseline=baseline, age=age.mask(missing))
    cohort = study.read(tmp_path)
    assert cohort.options.covariates == ('age', 'sex')
    assert len(cohort) == 180
    assert set(cohort.exclusions['reason']) == {'age is missing'}


def put(study: Joined, row: int, **values) -> str:
    """Change facts about one visit; the participant."""
    for name, value in values.items():
        study.people.iloc[row, study.people.columns.get_loc(name)] = value
    return study.people.index[row]


@pytest.mark.parametrize('seed', range(2))
@pytest.mark.parametrize('fact', ['sex', 'age', 'acq_time', 'birth_year'])
def test_visits_that_contradict_each_other_are_excluded(tmp_path, fact, seed):
    rng = np.random.default_rng(seed)
    study = with_visits(seed)
    study.people['birth_year'] = (2010.45 - study.people['age'] + 0).astype(int)
    late = study.people['session_id'] == 'ses-2'
    study.people.loc[late, 'birth_year'] += 1
    row = int(rng.integers(60, 120))
    old = study.people.iloc[row][fact]
    wrong = {
        'sex': {'F': 'male', 'M': 'Female'}.get(old),
        'age': old - rng.uniform(4, 9) if fact == 'age' else None,
        'acq_time': '2018-01-01T09:00:00',
        'birth_year': old - 20 if fact == 'birth_year' else None,
    }[fact]
    who = put(study, row, **{fact: wrong})
    excluded = study.read(tmp_path).exclusions
    assert set(excluded['participant_id']) == {who}
    assert excluded['reason'].str.contains('sex' if fact == 'sex' else 'age').all()


def test_ages_that_contradict_most_dates_are_an_error(tmp_path):
    study = with_visits(1)
    later = study.people['session_id'] == 'ses-2'
    study.people.loc[later, 'acq_time'] = '2016-01-01'
    with pytest.raises(DataError, match=r'participants\.tsv: column age contradicts the dates'):
        study.read(tmp_path)


@pytest.mark.parametrize('first', ['CN', 'PT'])
def test_changes_of_the_diagnosis_are_told(tmp_path, first):
    study = with_visits(2)
    row = 0 if first == 'CN' else 59
    who = put(study, 60 + row, diagnosis='PT' if first == 'CN' else 'CN')
    cohort = study.read(tmp_path)
    said = cohort.notes if first == 'CN' else new_warnings(cohort)
    assert any(who in text and 'patient' in text for text in said)
    assert len(new_warnings(cohort)) == (first == 'PT')


def test_a_head_that_grows_between_visits_is_told(tmp_path):
    study = with_visits(3)
    who = put(study, 70, icv=1.25 * study.people['icv'].iloc[70])
    assert any(
        f'icv changes between visits of {who[4:]}' in t.found for t in study.read(tmp_path).warnings
    )


@pytest.mark.parametrize('fact', ['sex', 'age'])
def test_contradictions_are_found_before_there_are_volumes(tmp_path, caplog, fact):
    study = with_visits(0)
    study.people['sex'] = study.people['sex'].astype(object)
    who = put(study, 65, **{fact: {'sex': 'x', 'age': 20.0}[fact]})
    if fact == 'sex':
        put(study, 65, sex='F' if study.people['sex'].iloc[5] == 'M' else 'M')
    path = tmp_path / 'participants.tsv'
    study.people.to_csv(path, sep='\t')
    check_participants(path, CohortOptions())
    assert who in caplog.text
    assert fact in caplog.text
