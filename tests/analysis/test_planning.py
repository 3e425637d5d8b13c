"""Plans: simulated studies are like the controls, and predict what other studies show."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from surreal_bids.analysis.planning import (
    MIN_CONTROLS,
    Design,
    Study,
    default_sizes,
    draw_patterns,
    draw_study,
    examine,
    learn_law,
    make_design,
    plan_study,
    preprocess,
    verdict,
)
from surreal_bids.cohort.cohort import Cohort
from surreal_bids.cohort.requirements import PreprocessingOptions
from surreal_bids.config import PLANNED_SIZES
from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.names import CONTROL, PARTICIPANT, PATIENT
from surreal_bids.parallel import set_threads
from surreal_bids.regions import Z_SCORE, Feature, FeatureList
from tests.conftest import drawing_few

N_REGIONS = 30
WANTED = FeatureList('columns', tuple(Feature(f'v{k}', ()) for k in range(N_REGIONS)), 'mm3')
OPTIONS = PreprocessingOptions(('age', 'sex'), 'icv', 'power', 'site')
AGEING, SITE_EFFECT = -0.005, 0.3


def true_covariance():
    """Covariance of log volumes: regions of a group of five vary together."""
    group = np.arange(N_REGIONS) // 5
    sd = np.linspace(0.08, 0.16, N_REGIONS)
    return (0.5 * (group[:, None] == group) + 0.5 * np.eye(N_REGIONS)) * np.outer(sd, sd)


def healthy(n, seed, n_sites=1):
    """Features and facts of healthy participants of a known population."""
    rng = np.random.default_rng(seed)
    names = pd.Index([f'sub-{k:04}' for k in range(n)])
    site = np.arange(n) % n_sites
    people = pd.DataFrame(
        {
            'age': rng.uniform(50, 80, n).round(1),
            'sex': rng.choice(['F', 'M'], n),
            'icv': 1.4e6 * np.exp(rng.normal(0, 0.1, n)),
            'site': np.char.mod('s%d', site),
        },
        names,
    )
    log = rng.multivariate_normal(np.zeros(N_REGIONS), true_covariance(), n)
    log += (8 + np.log(people['icv'] / 1.4e6) + AGEING * (people['age'] - 65)).to_numpy()[:, None]
    log += SITE_EFFECT * site[:, None]
    return pd.DataFrame(np.exp(log), names, WANTED.names), people


def cohort_of(features, people, is_patient, options):
    names = features.index
    group = np.where(is_patient, PATIENT, CONTROL)
    visits = pd.DataFrame({PARTICIPANT: names, 'group': group, 'is_first': True}, names)
    return Cohort(visits, features, people, pd.DataFrame(index=names), WANTED, options)


def pilot(n=80, seed=0, n_sites=2):
    options = OPTIONS if n_sites > 1 else replace(OPTIONS, site_column=None)
    return cohort_of(*healthy(n, seed, n_sites), np.zeros(n, bool), options)


def test_the_law_is_that_of_the_population_without_its_sites():
    features, people = healthy(3000, 1, 3)
    law = learn_law(cohort_of(features, people, np.zeros(3000, bool), OPTIONS))
    np.testing.assert_allclose(law.covariance, true_covariance(), atol=0.0015)
    # Healthy participants of different sites are expected to have the same volumes.
    log_icv = np.log(people['icv'])
    design = np.column_stack([np.ones(3000), people['age'], log_icv, people['site'] == 's2'])
    slopes = np.linalg.lstsq(design, law.expected, rcond=None)[0]
    np.testing.assert_allclose(slopes[1], AGEING, atol=0.001)
    np.testing.assert_allclose(slopes[2], 1, atol=0.15)
    np.testing.assert_allclose(slopes[3], 0, atol=0.02)


def test_patterns_are_of_regions_that_vary_together():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        patterns = draw_patterns(true_covariance(), Design(3, 5, 0.2, 1), rng)
        assert len(set(np.concatenate(patterns))) == 15
        assert len(set(patterns[0] // 5)) == 1


@pytest.mark.parametrize('n_patterns', [1, 2, 3])
def test_a_seventh_of_the_regions_is_that_of_the_next_pattern(n_patterns):
    design = Design(n_patterns, 7, 0.2, 1)
    patterns = draw_patterns(true_covariance(), design, np.random.default_rng(1))
    assert [len(set(each)) for each in patterns] == [7] * n_patterns
    shared = n_patterns if n_patterns > 1 else 0
    assert len(set(np.concatenate(patterns))) == 7 * n_patterns - shared


@pytest.mark.parametrize('sites', [1, 3])
def test_a_study_has_the_loss_and_sites_that_were_asked_for(sites):
    law = learn_law(pilot())
    design = Design(2, 4, 0.3, sites)
    cohort, severities = draw_study(law, design, (300, 500), np.random.default_rng(3))
    assert cohort.counts == {CONTROL: 300, PATIENT: 500}
    assert severities.shape == (500, 2)
    loss = 1 - np.exp(np.log(cohort.features).groupby(cohort.is_patient).mean().diff().iloc[1])
    lost = np.sort(loss)[-8:]
    # At the mean severity of one half, half of 30 %.
    np.testing.assert_allclose(lost, 0.15, atol=0.04)
    assert np.abs(np.sort(loss)[:-8]).max() < 0.04
    column = cohort.options.site_column
    if sites == 1:
        assert column is None
        return
    assert pd.crosstab(cohort.people[column], cohort.is_patient)[True].max() <= 167
    by_site = np.log(cohort.features)[~cohort.is_patient].groupby(cohort.people[column]).mean()
    assert 0.015 < by_site.std().mean() < 0.08


def test_a_size_gives_the_same_result_beside_others(monkeypatch):
    monkeypatch.setattr('surreal_bids.analysis.planning.FEWEST', 2)
    monkeypatch.setattr('surreal_bids.analysis.planning.MOST', 2)
    law, design = learn_law(pilot()), Design(1, 4, 0.2, 2)
    with drawing_few():
        both = plan_study(law, design, [(30, 40), (20, 20)], 5)
        alone = plan_study(law, design, [(30, 40)], 5)
        assert both['controls'].tolist() == [20, 30]
        pd.testing.assert_frame_equal(both[1:].reset_index(drop=True), alone)
        set_threads(2)
        try:
            pd.testing.assert_frame_equal(plan_study(law, design, [(30, 40)], 5), alone)
        finally:
            set_threads(1)
        assert not plan_study(law, design, [(30, 40)], 6).equals(alone)


def real_study(design, size, seed):
    """A study of the population itself, by other means than those of plans."""
    rng = np.random.default_rng([seed, 9])
    features, people = healthy(sum(size), [seed, 8])
    is_patient = np.arange(sum(size)) >= size[0]
    severities = rng.uniform(size=(size[1], design.n_patterns))
    patterns = draw_patterns(true_covariance(), design, rng)
    for regions, severity in zip(patterns, severities.T):
        losses = rng.normal(1, 0.05, (size[1], len(regions))) * design.loss * severity[:, None]
        features.iloc[size[0] :, regions] *= 1 - losses
    options = replace(OPTIONS, site_column=None)
    return Study(cohort_of(features, people, is_patient, options), severities)


@pytest.mark.slow
def test_the_prediction_is_what_studies_of_the_population_show(monkeypatch):
    monkeypatch.setattr('surreal_bids.analysis.planning.MOST', 7)
    design, size = Design(2, 4, 0.2, 1), (50, 70)
    law = learn_law(pilot(70, 1, 1))
    studies = [real_study(design, size, seed) for seed in range(7)]
    found = [examine(preprocess(study, (k,))) for k, study in enumerate(studies)]
    actual = np.mean([each.reproducibility for each in found])
    assert 0.5 < actual < 0.95
    predicted = plan_study(law, design, [size])['reproducibility'][0]
    assert predicted == pytest.approx(actual, abs=0.1)
    # Were the variance of the controls doubled, the plan would be far off.
    wrong = plan_study(law._replace(covariance=2 * law.covariance), design, [size])
    assert wrong['reproducibility'][0] < actual - 0.1


def table_of(reproduced):
    n = len(reproduced)
    return pd.DataFrame(
        {
            'controls': range(10, 10 + n),
            'patients': range(20, 20 + n),
            'reproduced': reproduced,
            'studies': 8,
        }
    )


@pytest.mark.parametrize(
    ('reproduced', 'found'),
    [
        ([0.1, 0.9, 1.0], '11 controls and 21 patients suffice'),
        ([0.9, 0.5, 1.0], '12 controls'),
        ([1.0, 0.9, 0.8], 'smallest'),
        ([0.1, 0.9, 0.7], 'No size'),
    ],
)
def test_the_smallest_size_from_which_on_all_suffice_is_named(reproduced, found):
    assert found in verdict(table_of(reproduced))


@pytest.mark.parametrize(
    ('changes', 'named'),
    [
        ({'n_patterns': 0}, '--n-patterns 0'),
        ({'loss': 1.5}, '--loss 1.5'),
        ({'loss': float('nan')}, '--loss nan'),
        ({'sites': 0}, '--sites 0'),
        ({'n_regions': -1}, '--regions -1'),
    ],
)
def test_impossible_designs_are_refused(changes, named):
    with pytest.raises(UsageError, match=named):
        make_design(pilot(), [(60, 60)], **{'n_patterns': 2, 'loss': 0.2} | changes)


def test_by_default_a_design_has_the_sites_of_the_controls_and_a_tenth_of_the_regions():
    assert make_design(pilot(), [(60, 60)], 2, 0.2) == Design(2, 3, 0.2, 2)
    assert make_design(pilot(n_sites=1), [(60, 60)], 2, 0.2).sites == 1


@pytest.mark.parametrize(
    ('changes', 'size', 'named'),
    [
        ({'n_patterns': 4}, (30, 30), '--n-patterns 4'),
        ({'n_regions': 16}, (30, 30), '--regions'),
        ({}, (5, 30), r'--sizes 5\+30'),
        ({}, (30, 2), r'--sizes 30\+2'),
        ({'sites': 20}, (30, 30), r'--sizes 30\+30'),
    ],
)
def test_patterns_without_regions_and_small_sizes_are_refused(changes, size, named):
    wanted = {'n_patterns': 2, 'loss': 0.2, 'sites': 1, 'n_regions': 3} | changes
    with pytest.raises(UsageError, match=named):
        make_design(pilot(), [(60, 60), size], **wanted)


def test_few_controls_and_z_scores_are_refused():
    with pytest.raises(DataError, match=f'at least {MIN_CONTROLS}'):
        learn_law(pilot(MIN_CONTROLS - 1, n_sites=1))
    plain = replace(OPTIONS, covariates=(), icv_column=None, icv='none', site_column=None)
    unmeasured = replace(pilot(), options=plain)
    unmeasured.features.iloc[3, 4] = 0
    with pytest.raises(DataError, match='v4'):
        learn_law(unmeasured)
    scores = replace(pilot(), wanted=replace(WANTED, unit=Z_SCORE))
    with pytest.raises(DataError, match='z-scores'):
        learn_law(scores)


def test_a_rare_category_is_in_every_study():
    controls = pilot()
    controls.people['sex'] = ['F'] + ['M'] * (len(controls) - 1)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        study = draw_study(learn_law(controls), Design(2, 3, 0.2, 1), (20, 20), rng)
        assert study.cohort.people['sex'].nunique() == 2


def test_default_sizes_have_three_controls_at_each_site():
    assert default_sizes(Design(2, 3, 0.2, 1)) == list(PLANNED_SIZES)
    assert default_sizes(Design(2, 3, 0.2, 12)) == [s for s in PLANNED_SIZES if s[0] >= 36]
    assert default_sizes(Design(2, 3, 0.2, 400)) == [PLANNED_SIZES[-1]]
