"""What harmonization did to a cohort, as a file that figures can be drawn from later."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from surreal_bids.files import write_json
from surreal_bids.harmonization.combat import ComBat
from surreal_bids.harmonization.quality import (
    N_FOLDS,
    HarmonizationQuality,
    SiteClassification,
    assess_harmonization,
)
from surreal_bids.tables.cohort import Cohort
from surreal_bids.tables.preprocessing import prepare_inputs

ENOUGH_TO_REFIT = 2 * N_FOLDS
"""Controls that each site needs for ComBat to be learned again without a fold of them."""

_CLASSIFICATIONS = (
    'classification_before',
    'classification_after',
    'classification_held_out',
)


def assess_cohort(
    cohort: Cohort, harmonized: pd.DataFrame, random_state: int
) -> HarmonizationQuality | None:
    """Measure site effects among controls before and after.

    None where that is not possible: no numeric covariate, or fewer than two sites with enough
    controls to tell them apart.
    """
    first = cohort.first_visits()
    controls = first.select(~first.is_patient)
    inputs = prepare_inputs(controls.features, controls.people, controls.options)
    numeric = [str(name) for name in inputs.covariates.select_dtypes('number')]
    if inputs.site is None or not numeric:
        return None
    sizes = inputs.site.value_counts()
    large = inputs.site.isin(sizes.index[sizes >= N_FOLDS])
    if len(set(inputs.site[large])) < 2:
        return None
    age = next((name for name in numeric if name.lower() == 'age'), numeric[0])
    return assess_harmonization(
        inputs.features[large],
        harmonized.loc[inputs.features.index[large]],
        inputs.site[large],
        inputs.covariates[large],
        covariate=age,
        harmonizer=ComBat() if sizes[sizes >= N_FOLDS].min() >= ENOUGH_TO_REFIT else None,
        random_state=random_state,
    )


def write_quality(path: Path, quality: HarmonizationQuality) -> Path:
    """Write all measures as JSON."""
    plain = {name: getattr(quality, name) for name in _CLASSIFICATIONS}
    return write_json(
        path,
        {
            'features': json.loads(quality.features.to_json(orient='split')),
            'covariate': quality.covariate,
            'site_variance_by_chance': quality.site_variance_by_chance,
            **{name: None if value is None else asdict(value) for name, value in plain.items()},
        },
    )


def read_quality(path: Path) -> HarmonizationQuality:
    """Read what :func:`write_quality` wrote."""
    content = json.loads(path.read_text(encoding='utf-8'))
    table = content['features']
    features = pd.DataFrame(table['data'], table['index'], table['columns'])
    scores: dict[str, Any] = {
        name: None if content[name] is None else SiteClassification(**content[name])
        for name in _CLASSIFICATIONS
    }
    return HarmonizationQuality(
        features=features,
        covariate=content['covariate'],
        site_variance_by_chance=content['site_variance_by_chance'],
        **scores,
    )
