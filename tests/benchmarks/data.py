"""Data that every method must be able to read: patterns that do not overlap, and little else."""

import numpy as np


def easy_data(n_people=120, n_regions=24, n_patterns=3, seed=0):
    """CN-normalised volumes, who is a patient, and the true severities of the patients.

    A third are controls. Pattern k takes up to 10 standard deviations from its own sixth of the
    regions, so that chance hardly matters.
    """
    rng = np.random.default_rng(seed)
    is_patient = np.arange(n_people) >= n_people // 3
    severities = rng.uniform(size=(n_people, n_patterns)) * is_patient[:, None]
    affected = np.arange(n_regions) // (n_regions // 6)
    loss = severities @ (affected == np.arange(n_patterns)[:, None])
    z = rng.normal(size=(n_people, n_regions))
    z -= z[~is_patient].mean(axis=0)
    z /= z[~is_patient].std(axis=0)
    return 1 + 0.1 * (z - 10 * loss), is_patient, severities[is_patient]
