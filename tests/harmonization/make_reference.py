"""Run neuroCombat 0.2.12 and neuroHarmonize 2.5.2 on simulated people and store what they answer.

Not a test. These programs need an environment of their own (numpy < 2, pandas < 2.2):

    pip install --no-deps neuroCombat==0.2.12 neuroHarmonize==2.5.2
    pip install 'numpy<2' 'pandas<2.2' scipy statsmodels nibabel
    python -m tests.harmonization.make_reference
"""

from pathlib import Path
from unittest import mock

import numpy as np
from neuroCombat import neuroCombat
from neuroHarmonize import harmonizationApply, harmonizationLearn
from statsmodels.gam.generalized_additive_model import GLMGam

from tests.harmonization.simulated_sites import simulate_sites

REFERENCE = Path(__file__).parent / 'reference_combat.npz'


def run_neurocombat(X, covars, **options):
    result = neuroCombat(
        dat=X.to_numpy().T.copy(),
        covars=covars,
        batch_col='SITE',
        categorical_cols=['sex'],
        continuous_cols=['age'],
        **options,
    )
    return result['data'].T


def run_gam(X, covars):
    """Return harmonized features and the penalty weight that was drawn for each feature."""
    drawn = []
    select = GLMGam.select_penweight_kfold

    def remember(self, *arguments, **options):
        answer = select(self, *arguments, **options)
        drawn.append(answer[0])
        return answer

    with mock.patch.object(GLMGam, 'select_penweight_kfold', remember):
        _, harmonized = harmonizationLearn(X.to_numpy(), covars, smooth_terms=['age'])
    return harmonized, np.array(drawn)


def main():
    X, site, covariates = simulate_sites(seed=20)
    covars = covariates.assign(SITE=site)
    model, linear = harmonizationLearn(X.to_numpy(), covars)
    new, new_site, new_covariates = simulate_sites(seed=21)
    gam, penalty = run_gam(X, covars)
    np.savez_compressed(
        REFERENCE,
        X=X.to_numpy(),
        site=site.to_numpy().astype(str),
        covariates=covariates.to_numpy(),
        new=new.to_numpy(),
        new_site=new_site.to_numpy().astype(str),
        new_covariates=new_covariates.to_numpy(),
        neurocombat=run_neurocombat(X, covars),
        neurocombat_mean_only=run_neurocombat(X, covars, mean_only=True),
        neurocombat_no_bayes=run_neurocombat(X, covars, eb=False),
        neuroharmonize=linear,
        neuroharmonize_reference=harmonizationLearn(X.to_numpy(), covars, ref_batch='Cork')[1],
        neuroharmonize_new=harmonizationApply(
            new.to_numpy(), new_covariates.assign(SITE=new_site), model
        ),
        neuroharmonize_gam=gam,
        neuroharmonize_gam_penalty=penalty,
    )


if __name__ == '__main__':
    main()
