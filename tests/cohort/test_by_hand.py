"""`--exclude`: participants and visits that a user lists stay out, and nobody else does."""

import pandas as pd
import pytest

from surreal_bids.cohort.cohort import check_participants, read_cohort
from surreal_bids.config import CohortOptions
from surreal_bids.exceptions import DataError
from tests.cohort.study import make_study


@pytest.fixture
def tables(tmp_path):
    return make_study().write(tmp_path)


def exclude(folder, content):
    path = folder / 'failed.tsv'
    path.write_text(content)
    return CohortOptions(exclude=path)


def test_listed_participants_are_excluded_with_their_reason(tables, tmp_path):
    listed = 'participant_id\treason\nsub-003\tmotion\nsub-040\tn/a\n'
    options = exclude(tmp_path, listed)
    cohort, everyone = read_cohort(*tables, options), read_cohort(*tables)
    assert set(everyone.visits.index) - set(cohort.visits.index) == {'sub-003', 'sub-040'}
    reasons = cohort.exclusions['reason']
    assert reasons['sub-003'] == 'listed in failed.tsv: motion'
    assert reasons['sub-040'] == 'listed in failed.tsv'
    assert check_participants(tables[1], options) == cohort.counts


def test_only_the_rating_fail_excludes(tables, tmp_path):
    rated = {'sub-003': 'fail', 'sub-004': 'pass', 'sub-005': 'Unsure', 'sub-006': 'n/a'}
    lines = [f'{name}\tn/a\t{rating}\tmotion\n' for name, rating in rated.items()]
    head = 'participant_id\tsession_id\trating\treason\n'
    cohort = read_cohort(*tables, exclude(tmp_path, head + ''.join(lines)))
    assert cohort.exclusions['reason'].to_dict() == {'sub-003': 'listed in failed.tsv: motion'}
    cohort = read_cohort(*tables, exclude(tmp_path, head + lines[1]))
    assert cohort.exclusions.empty


def test_other_ratings_are_refused(tables, tmp_path):
    options = exclude(tmp_path, 'participant_id\trating\nsub-003\tbad\n')
    with pytest.raises(DataError, match="line 2 has the rating 'bad'; use pass, unsure or fail"):
        read_cohort(*tables, options)


@pytest.mark.parametrize(
    'listed', ['subject,note\nsub-003,old\n', 'MRID\n003\n', 'id,reason,note\nsub-003,,old\n']
)
def test_ids_are_read_as_in_other_tables(tables, tmp_path, listed):
    cohort = read_cohort(*tables, exclude(tmp_path, listed))
    assert 'sub-003' in cohort.exclusions.index
    assert ('listed in failed.tsv: old' in set(cohort.exclusions['reason'])) == ('note' in listed)


def test_an_empty_list_excludes_nobody(tables, tmp_path):
    cohort = read_cohort(*tables, exclude(tmp_path, 'participant_id\treason\n'))
    assert len(cohort) == len(read_cohort(*tables))


def test_a_row_with_a_session_excludes_that_visit_only(tmp_path):
    study = make_study()
    twice = study.features.loc[study.features.index.repeat(2)].copy()
    twice.iloc[1::2] *= 0.99
    twice.insert(0, 'session_id', ['ses-1', 'ses-2'] * len(study.features))
    volumes, people = tmp_path / 'volumes.tsv', tmp_path / 'participants.tsv'
    twice.to_csv(volumes, sep='\t')
    study.people.to_csv(people, sep='\t')
    listed = 'participant_id\tsession_id\nsub-001\tses-2\nsub-002\tn/a\n'
    cohort = read_cohort(volumes, people, exclude(tmp_path, listed))
    gone = set(cohort.exclusions.index)
    assert gone == {'sub-001_ses-2', 'sub-002_ses-1', 'sub-002_ses-2'}
    assert 'sub-001_ses-1' in cohort.visits.index


@pytest.mark.parametrize('name', ['sub-999', 'sub-03'])
def test_someone_unknown_is_an_error(tables, tmp_path, name):
    options = exclude(tmp_path, f'participant_id\nsub-004\n{name}\n')
    expected = f'failed.tsv: {name} is in none of the other tables'
    with pytest.raises(DataError, match=expected):
        read_cohort(*tables, options)
    with pytest.raises(DataError, match=expected):
        check_participants(tables[1], options)


def test_participants_of_a_selection_may_be_listed_beside_others(tables, tmp_path):
    options = exclude(tmp_path, 'participant_id\nsub-001\nsub-050\n')
    some = [f'sub-{k:03}' for k in (*range(1, 20), *range(31, 49))]
    chosen = CohortOptions(exclude=options.exclude, participant_label=tuple(some))
    cohort = read_cohort(*tables, chosen)
    assert 'sub-001' not in cohort.visits.index
    assert len(cohort) == len(some) - 1


@pytest.mark.parametrize('column', ['session_id', 'visit', 'wave'])
def test_a_visit_is_named_by_any_column_of_visits(tmp_path, column):
    study = make_study()
    twice = study.features.loc[study.features.index.repeat(2)].copy()
    twice.iloc[1::2] *= 0.99
    twice.insert(0, column, ['bl', 'm12'] * len(study.features))
    volumes, people = tmp_path / 'volumes.tsv', tmp_path / 'participants.tsv'
    twice.to_csv(volumes, sep='\t')
    study.people.to_csv(people, sep='\t')
    listed = f'participant_id\t{column}\nsub-001\tm12\n'
    cohort = read_cohort(volumes, people, exclude(tmp_path, listed))
    assert list(cohort.exclusions.index) == ['sub-001_ses-m12']


def test_a_visit_without_volumes_may_be_listed(tables, tmp_path):
    """Images that fail quality control often have none."""
    volumes, people = tables
    rows = volumes.read_text().splitlines(keepends=True)
    volumes.write_text(''.join(row for row in rows if not row.startswith('sub-003')))
    cohort = read_cohort(volumes, people, exclude(tmp_path, 'participant_id\nsub-003\n'))
    assert list(cohort.exclusions.index) == ['sub-003']


def test_sessions_are_not_known_before_there_are_volumes(tables, tmp_path):
    listed = 'participant_id\tsession_id\nsub-003\tses-2\n'
    options = exclude(tmp_path, listed)
    check_participants(tables[1], options)
    with pytest.raises(DataError, match='sub-003_ses-2 is in none'):
        read_cohort(*tables, options)


def test_ids_of_a_short_list_may_end_in_numbers(tmp_path):
    study = make_study()
    names = [f'HC_M_{k:02}' for k in range(1, len(study.people) + 1)]
    study.people.index = study.features.index = pd.Index(names, name='participant_id')
    tables = study.write(tmp_path)
    cohort = read_cohort(*tables, exclude(tmp_path, 'participant_id\nHC_M_01\nHC_M_02\n'))
    assert list(cohort.exclusions.index) == ['HC_M_01', 'HC_M_02']
