import numpy as np
import pandas as pd
import pytest

from surreal_bids.exceptions import DataError
from surreal_bids.stats.glm import form_subgroups


def table(*rows):
    values = np.array(rows, float)
    return pd.DataFrame(values, columns=[f'r{number + 1}' for number in range(values.shape[1])])


@pytest.mark.parametrize(
    ('r_indices', 'expected'),
    [
        ((0.1, 0.2), 'low'),
        ((0.39, 0.39), 'low'),
        ((0.4, 0.39), 'r1mid'),
        ((0.7, 0.0), 'r1mid'),
        ((0.71, 0.0), 'r1high'),
        ((1.3, -0.2), 'r1high'),
        ((0.1, 0.5), 'r2mid'),
        ((0.1, 0.9), 'r2high'),
        ((0.4, 0.4), None),
        ((0.9, 0.9), None),
    ],
)
def test_each_patient_is_in_one_subgroup_at_most(r_indices, expected):
    found = [group.name for group in form_subgroups(table(r_indices)) if group.members[0]]
    assert found == ([] if expected is None else [expected])


@pytest.mark.parametrize('n_patterns', [1, 2, 4])
def test_the_rule_of_section_4_3(n_patterns):
    values = table(*np.random.default_rng(0).uniform(size=(300, n_patterns)))
    groups = {group.name: group for group in form_subgroups(values)}
    assert len(groups) == 1 + 2 * n_patterns
    for person in range(300):
        r = values.iloc[person]
        for i, pattern in enumerate(values.columns):
            alone = all(r.iloc[j] < 0.4 for j in range(n_patterns) if j != i)
            assert groups[f'{pattern}high'].members[person] == (r.iloc[i] > 0.7 and alone)
            assert groups[f'{pattern}mid'].members[person] == (0.4 <= r.iloc[i] <= 0.7 and alone)
    assert sum(group.size for group in groups.values()) <= 300


def test_descriptions_say_the_rule():
    low, mid, high, *_ = form_subgroups(table((0.1, 0.2)))
    assert low.description == 'all patterns < 0.4'
    assert low.pattern is None
    assert mid.description == 'r1 0.4 to 0.7, others < 0.4'
    assert (high.description, high.pattern, high.size) == ('r1 > 0.7, others < 0.4', 'r1', 0)


def test_people_without_r_indices_are_refused():
    with pytest.raises(DataError, match='1 has no R-index'):
        form_subgroups(table((0.1, 0.2), (np.nan, 0.3)))
