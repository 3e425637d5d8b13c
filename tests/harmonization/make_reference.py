"""Run neuroCombat 0.2.12 and neuroHarmonize 2.5.2 on simulated people and store what they answer.

Not a test. These programs need an environment of their own (numpy < 2, pandas < 2.2):

    pip install --no-deps neuroCombat==0.2.12 neuroHarmonize==2.5.2
    pip install 'numpy<2' 'pandas<2.2' scipy statsmodels nibabel
    python -m tests.harmonization.make_reference
"""

from pathlib import Path

import numpy as np
from neuroCombat import neuroCombat
from neuroHarmonize import harmonizationApply, harmonizationLearn

from tests.harmonization.simulated_sites import simulate_sites

REFERENCE = Path(__file__).parent / 'reference_combat.npz'


def run_neurocombat(X, covars):
    result = neuroCombat(
        dat=X.to_numpy().T.copy(),
        covars=covars,
        batch_col='SITE',
        categorical_cols=['sex'],
        continuous_cols=['age'],
    )
    return result['data'].T


def main():
    X, site, covariates = simulate_sites(seed=20)
    covars = covariates.assign(SITE=site)
    model, linear = harmonizationLearn(X.to_numpy(), covars)
    new, new_site, new_covariates = simulate_sites(seed=21)
    np.savez_compressed(
        REFERENCE,
        X=X.to_numpy(),
        site=site.to_numpy().astype(str),
        covariates=covariates.to_numpy(),
        new=new.to_numpy(),
        new_site=new_site.to_numpy().astype(str),
        new_covariates=new_covariates.to_numpy(),
        neurocombat=run_neurocombat(X, covars),
        neuroharmonize=linear,
        neuroharmonize_new=harmonizationApply(
            new.to_numpy(), new_covariates.assign(SITE=new_site), model
        ),
    )


if __name__ == '__main__':
    main()
