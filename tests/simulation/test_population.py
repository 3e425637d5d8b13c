"""The built-in population beside figures of real participants, and controls from tables."""

import numpy as np
import pandas as pd
import pytest

from surreal_bids.exceptions import DataError
from surreal_bids.regions import muse_indices, region_mates
from surreal_bids.simulation.tables import (
    SITES,
    built_in_population,
    read_controls,
    resample_gaussian,
    sample_controls,
    volume_columns,
)
from tests.shared_data import shared_data


def figures(volumes: pd.DataFrame) -> dict[str, float]:
    """The figures of a table of volumes (N, 139) that a population must share with real people."""
    log_volumes = np.log(volumes.to_numpy())
    correlation = np.corrcoef(log_volumes, rowvar=False)
    place = {index: position for position, index in enumerate(muse_indices())}
    mates = [
        correlation[place[i], place[j]] for i, j in region_mates().items() if {i, j} <= set(place)
    ]
    explained = np.cumsum(np.linalg.eigvalsh(correlation)[::-1]) / len(correlation)
    cv = (volumes.std() / volumes.mean()).to_numpy()
    return {
        'least cv': cv.min(),
        'median cv': np.median(cv),
        'greatest cv': cv.max(),
        'mean absolute correlation': np.abs(correlation[np.triu_indices(139, 1)]).mean(),
        'left-right, lower quartile': np.quantile(mates, 0.25),
        'left-right, median': np.quantile(mates, 0.5),
        'left-right, upper quartile': np.quantile(mates, 0.75),
        'first component': explained[0],
        'components for 80 %': np.searchsorted(explained, 0.8) + 1,
    }


PUBLISHED = {
    'least cv': (0.10, 0.01),
    'median cv': (0.15, 0.01),
    'greatest cv': (0.27, 0.02),
    'mean absolute correlation': (0.49, 0.03),
    'left-right, lower quartile': (0.71, 0.03),
    'left-right, median': (0.82, 0.02),
    'left-right, upper quartile': (0.88, 0.03),
    'first component': (0.50, 0.03),
    'components for 80 %': (23, 2),
}
"""Each figure of real people, and how far a population of 1,392 may be from it."""


def test_population_has_the_figures_of_real_people():
    found = figures(sample_controls(1392, np.random.default_rng(0)).volumes)
    for figure, (expected, tolerance) in PUBLISHED.items():
        assert found[figure] == pytest.approx(expected, abs=tolerance), figure


def test_the_figures_are_those_of_291_real_people():
    real = pd.read_csv(shared_data('tables/ixi_muse145.csv'))[volume_columns()]
    found = figures(real)
    for figure, (expected, _) in PUBLISHED.items():
        rounding = 0.5 if figure.startswith('components') else 0.01
        assert found[figure] == pytest.approx(expected, abs=rounding), figure
    ours = sample_controls(3000, np.random.default_rng(2)).volumes.mean()
    assert np.corrcoef(np.log(real.mean()), np.log(ours))[0, 1] > 0.99


def test_known_effects_are_found_again_by_regression():
    controls = sample_controls(20_000, np.random.default_rng(3))
    people = controls.people
    design = np.column_stack(
        [
            people['age'] / 10,
            people['sex'] == 'M',
            np.log(people['icv']),
            *(people['site'] == site for site in SITES),
        ]
    ).astype(float)
    found = np.linalg.lstsq(design, np.log(controls.volumes.to_numpy()))[0]
    population = built_in_population()
    for effect, tolerance in enumerate((0.005, 0.015, 0.06)):
        np.testing.assert_allclose(found[effect], population.known[effect], atol=tolerance)
    between_sites = population.sites - population.sites[0]
    np.testing.assert_allclose(found[3:] - found[3], between_sites, atol=0.015)


@pytest.fixture
def table():
    """Twelve people, as a laboratory might keep them: with a ventricle and composite regions."""
    volumes = sample_controls(12, np.random.default_rng(0)).volumes
    known = {'MRID': [f'A{k}' for k in range(12)], 'Age': 61.5, 'Gender': 'female', 'SITE': 'x'}
    return volumes.assign(**known, MUSE_4=900.0, MUSE_702=1.4e6, MUSE_601=6e5)


def test_controls_are_read_from_a_table(tmp_path, table):
    path = tmp_path / 'controls.csv'
    table.sample(frac=1, axis=1, random_state=0).to_csv(path, index=False)
    controls = read_controls(path)
    assert list(controls.volumes.columns) == volume_columns()
    np.testing.assert_allclose(controls.volumes, table[volume_columns()])
    assert controls.people.loc[3].to_dict() == {'age': 61.5, 'sex': 'F', 'site': 'x', 'icv': 1.4e6}


@pytest.mark.parametrize(
    ('spoil', 'message'),
    [
        (
            lambda t: t.drop(columns='MUSE_47'),
            r'no column for MUSE region 47 \(Right hippocampus\)',
        ),
        (lambda t: t.assign(MUSE_47=[0.0, *t['MUSE_47'][1:]]), '1 of 12 rows .* MUSE_47 in row 1'),
        (lambda t: t.assign(MUSE_47=[*t['MUSE_47'][:9], *[np.nan] * 3]), '3 of 12 rows .* row 10'),
        (lambda t: t.assign(MRID='A7'), "'MRID' has A7 more than once"),
    ],
)
def test_bad_tables_are_refused_with_file_and_reason(tmp_path, table, spoil, message):
    path = tmp_path / 'controls.csv'
    spoil(table).to_csv(path, index=False)
    with pytest.raises(DataError, match=message) as caught:
        read_controls(path)
    assert str(path) in str(caught.value)


def test_correlations_of_real_people_survive_resampling():
    real = read_controls(shared_data('tables/ixi_muse145.csv'))
    assert real.people['sex'].value_counts().to_dict() == {'F': 188, 'M': 103}
    drawn = resample_gaussian(real, 4000, np.random.default_rng(3))
    upper = np.triu_indices(139, 1)
    before, after = (np.corrcoef(np.log(c.volumes.to_numpy()).T)[upper] for c in (real, drawn))
    assert np.abs(after - before).mean() < 0.03


def test_too_few_people_cannot_be_resampled():
    few = sample_controls(9, np.random.default_rng(5))
    with pytest.raises(DataError, match='fitted to 9 participants'):
        resample_gaussian(few, 20, np.random.default_rng(6))
