"""Equality with neuroCombat and neuroHarmonize, stored (always) and live (where installed).

To run the live tests, put the programs in a folder of their own and name it in PYTHONPATH:

    pip install --target FOLDER --no-deps neuroCombat==0.2.12 neuroHarmonize==2.5.2 \\
        statsmodels patsy formulaic interface_meta narwhals wrapt
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from surreal_bids.harmonization.combat import ComBat
from tests.harmonization.simulated_sites import harmonize
from tests.shared_data import shared_data

RTOL = 1e-6


@pytest.fixture(scope='module')
def reference():
    """Answers of both programs on simulated people (see make_reference.py)."""
    with np.load(Path(__file__).parent / 'reference_combat.npz') as stored:
        return dict(stored)


@pytest.fixture(scope='module')
def people(reference):
    """Frames of the people that were harmonized, and of new ones."""
    names = (('X', 'site', 'covariates'), ('new', 'new_site', 'new_covariates'))
    return [
        (
            pd.DataFrame(reference[X]).add_prefix('roi'),
            pd.Series(reference[site]),
            pd.DataFrame(reference[covariates]).add_prefix('covariate'),
        )
        for X, site, covariates in names
    ]


def test_equals_the_stored_answers(reference, people):
    combat = ComBat().fit(*people[0])
    for answer in ('neurocombat', 'neuroharmonize'):
        ours = combat.transform(*people[0])
        np.testing.assert_allclose(ours, reference[answer], rtol=RTOL)
    ours = combat.transform(*people[1])
    np.testing.assert_allclose(ours, reference['neuroharmonize_new'], rtol=RTOL)


@pytest.fixture(scope='module')
def fcon1000():
    """1078 people, 23 sites: features that vary, site, covariates (ages in float32, as theirs)."""
    table = pd.read_csv(shared_data('tables/fcon1000.csv'), index_col='sub_id')
    X = table.drop(columns=['age', 'sex', 'site'])
    covariates = table[['age', 'sex']].astype({'age': np.float32})
    return X.loc[:, X.std() > 0], table['site'], covariates


def test_equals_neurocombat_on_fcon1000(fcon1000):
    program = pytest.importorskip('neuroCombat', reason='neuroCombat 0.2.12 is not installed')
    X, site, covariates = fcon1000
    theirs = program.neuroCombat(
        dat=X.to_numpy().T.copy(),
        covars=covariates.assign(SITE=site),
        batch_col='SITE',
        categorical_cols=['sex'],
        continuous_cols=['age'],
    )['data'].T
    ours = harmonize(X, site, covariates)
    np.testing.assert_allclose(ours, theirs, rtol=RTOL)


def test_equals_neuroharmonize_on_fcon1000(fcon1000):
    program = pytest.importorskip('neuroHarmonize', reason='neuroHarmonize 2.5.2 not installed')
    X, site, covariates = fcon1000
    _, theirs = program.harmonizationLearn(X.to_numpy(), covariates.assign(SITE=site))
    ours = harmonize(X, site, covariates)
    np.testing.assert_allclose(ours, theirs, rtol=RTOL)
