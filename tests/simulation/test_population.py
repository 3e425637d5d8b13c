import numpy as np
import pandas as pd
import pytest

from surreal_bids.regions import muse_indices, muse_table, recognise, region_mates
from surreal_bids.simulation.population import (
    AGE_RANGE,
    GROUPS,
    SITE_REGION_SHIFT,
    SITES,
    built_in_population,
    draw_controls,
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


@pytest.fixture(scope='module')
def drawn():
    return {
        seed: figures(draw_controls(1392, np.random.default_rng(seed)).volumes) for seed in (0, 1)
    }


@pytest.mark.parametrize('figure', PUBLISHED)
@pytest.mark.parametrize('seed', [0, 1])
def test_population_has_the_figures_of_real_people(drawn, figure, seed):
    expected, tolerance = PUBLISHED[figure]
    assert drawn[seed][figure] == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize('figure', PUBLISHED)
def test_the_figures_are_those_of_291_real_people(figure):
    volumes = pd.read_csv(shared_data('tables/ixi_muse145.csv'))[volume_columns()]
    rounding = 0.5 if figure.startswith('components') else 0.01
    assert figures(volumes)[figure] == pytest.approx(PUBLISHED[figure][0], abs=rounding)


def test_mean_volumes_are_those_of_real_people():
    real = pd.read_csv(shared_data('tables/ixi_muse145.csv'))[volume_columns()].mean()
    ours = draw_controls(3000, np.random.default_rng(2)).volumes.mean()
    assert np.corrcoef(np.log(real), np.log(ours))[0, 1] > 0.99
    assert np.abs(np.log(ours / real)).mean() < 0.1


def test_every_lobe_and_tissue_of_the_regions_has_a_group():
    table = muse_table()
    table = table[table['index'].isin(muse_indices())]
    assert set(zip(table['lobe'], table['tissue'])) == set(GROUPS)


def test_known_effects_leave_variance_to_chance_in_every_region():
    population = built_in_population()
    assert population.unique.shape == (139,)
    assert (population.unique > 0.01).all()


def test_known_effects_are_found_again_by_regression():
    controls = draw_controls(20_000, np.random.default_rng(3))
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


def test_sites_differ_by_a_plausible_amount():
    sites = built_in_population().sites
    assert sites.shape == (3, 139)
    assert np.abs(sites).max() < 2 * SITE_REGION_SHIFT + 0.05
    np.testing.assert_allclose(np.array(list(SITES.values())) @ sites, 0, atol=1e-12)


@pytest.mark.parametrize('n_people', [1, 7, 500])
def test_people_and_volumes_go_together(n_people):
    controls = draw_controls(n_people, np.random.default_rng(4))
    assert controls.volumes.shape == (n_people, 139)
    assert list(recognise(controls.volumes.columns).values()) == list(muse_indices())
    assert list(controls.people.columns) == ['age', 'sex', 'site', 'icv']
    assert controls.people['age'].between(*AGE_RANGE).all()
    assert set(controls.people['sex']) <= {'F', 'M'}
    assert set(controls.people['site']) <= set(SITES)
    assert controls.people['icv'].between(0.9e6, 2.2e6).all()


@pytest.mark.parametrize('seed', [0, 5])
def test_the_same_seed_gives_the_same_people(seed):
    first, second = (draw_controls(6, np.random.default_rng(seed)) for _ in range(2))
    pd.testing.assert_frame_equal(first.volumes, second.volumes)
    pd.testing.assert_frame_equal(first.people, second.people)
    other = draw_controls(6, np.random.default_rng(seed + 1))
    assert not np.allclose(first.volumes, other.volumes)
