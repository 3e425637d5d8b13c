"""Joined things that do not belong together: ids, sites, rows of two tables, visits, copies."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from surreal_bids.cohort.plausibility import refuse_spellings
from surreal_bids.cohort.reader import read_visit_table
from surreal_bids.exceptions import DataError

SEEDS = range(10)

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
