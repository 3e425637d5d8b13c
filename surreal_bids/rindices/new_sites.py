"""Sites that a model has not seen, learned from their controls, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from surreal_bids.cohort.cohort import Cohort, read_cohort
from surreal_bids.cohort.roles import NONE, SITE, describe_uses
from surreal_bids.config import CohortOptions
from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.harmonization.combat import ComBat
from surreal_bids.harmonization.encoding import CovariateEncoder
from surreal_bids.names import means
from surreal_bids.rindices.model import (
    ADDED_SITES,
    INDEX_ERROR,
    TAUGHT_BY,
    TableModel,
    digests_of_rows,
)
from surreal_bids.rindices.preprocessing import Preprocessing
from surreal_bids.text import counted, list_briefly

HERE = '{} (this dataset)'
"""How a site of the dataset is called in the model: its name may be that of another site there."""

REFERENCE = 'reference'
"""Name of the site that the controls of a model without ComBat are taken for."""


def adapt_to_controls(model: TableModel, cohort: Cohort) -> tuple[TableModel, Cohort]:
    """Teach a model the sites of a cohort, from its controls.

    Parameters
    ----------
    model
        Any model for tables.
    cohort
        People with all that the model needs, and a site.

    Returns
    -------
    model, cohort
        The model that knows the sites, and the cohort with the sites' names in it.
    """
    column = str(cohort.options.site_column)
    named = _named_here(cohort, column)
    if cohort.apart is not None:
        named = replace(named, apart=_named_here(cohort.apart, column))
    first = named.first_visits()
    controls = first.select(~first.is_patient)
    return _with_errors(teach_sites(_as_learned(model), controls), controls), named


def _named_here(cohort: Cohort, column: str) -> Cohort:
    """A cohort whose sites have the names that the model learns them by."""
    people = cohort.people.assign(**{column: cohort.people[column].map(HERE.format)})
    return replace(cohort, people=people)


def _with_errors(taught: TableModel, controls: Cohort) -> TableModel:
    """Note the standard errors of the R-indices at new sites, which all participants there share.

    A site learned from n controls has the error of the mean R-index of n controls, as if the prior
    of ComBat did not help.
    """
    sizes = controls.people[str(controls.options.site_column)].value_counts().sort_index()
    sd = taught.apply(controls)[list(taught.pattern_names)].std().dropna()
    here = {
        str(site): {'Controls': int(n), INDEX_ERROR: (sd / np.sqrt(n)).to_dict()}
        for site, n in sizes.items()
    }
    added = {**taught.notes.get(ADDED_SITES, {}), **here}
    return replace(taught, notes={**taught.notes, ADDED_SITES: added})


def known_sites(model: TableModel, cohort: Cohort) -> list[str]:
    """Name the sites that are harmonized like those of the same name in the training sample."""
    column, combat = cohort.options.site_column, model.preprocessing.combat
    if column is None or combat is None:
        return []
    added = model.notes.get(ADDED_SITES, {})
    known = sorted((set(cohort.people[column].dropna()) & set(combat.sites_)) - set(added))
    return [f'Harmonized like the same sites of the training sample: {list_briefly(known)}'] * bool(
        known
    )


def teach_sites(model: TableModel, controls: Cohort) -> TableModel:
    """Add the sites of controls to a model; all else stays as learned.

    Raises
    ------
    DataError
        A site is known already.
    """
    return replace(model, preprocessing=_with_sites(model.preprocessing, controls))


def _with_sites(steps: Preprocessing, controls: Cohort) -> Preprocessing:
    """Add the sites of controls to ComBat, for single regions too where there are such steps."""
    column = str(controls.options.site_column)
    combat = steps.combat
    if combat is None or len(combat.sites_) == 1:
        combat = _reference(steps)
    options = replace(steps.options, site_column=column)
    inputs = replace(steps, options=options).inputs(controls.features, controls.people)
    taught = combat.copy().add_site(inputs.features, controls.people[column], inputs.covariates)
    regions = None if steps.regions is None else _with_sites(steps.regions, controls)
    return replace(steps, combat=taught, options=options, regions=regions)


def _as_learned(model: TableModel) -> TableModel:
    """A copy without the sites of datasets that the model has met since it was trained."""
    if model.preprocessing.combat is None:
        return model
    steps = _without_datasets(model.preprocessing)
    notes = dict(model.notes)
    added = notes.pop(ADDED_SITES, {})
    kept_sites = {site: told for site, told in added.items() if not site.endswith(HERE.format(''))}
    if kept_sites:
        notes[ADDED_SITES] = kept_sites
    return replace(model, preprocessing=steps, notes=notes)


def _without_datasets(steps: Preprocessing) -> Preprocessing:
    """Remove the sites of datasets from ComBat, for single regions too."""
    if steps.combat is None:
        return steps
    state = steps.combat.to_arrays()
    is_kept = np.array([not str(name).endswith(HERE.format('')) for name in state['sites']])
    lists = {name: list(compress(state[name], is_kept)) for name in ('sites', 'site_sizes')}
    arrays = {name: np.asarray(state[name])[is_kept] for name in ('shift', 'ratio')}
    learned = steps.combat.copy(**lists, **arrays)
    regions = None if steps.regions is None else _without_datasets(steps.regions)
    return replace(steps, combat=learned, regions=regions)


def _reference(steps: Preprocessing) -> ComBat:
    """ComBat of one site, which lies where the controls of the model do."""
    if steps.residualiser is None:
        encoder = CovariateEncoder().fit(pd.DataFrame(index=[0]))
        slopes, center = np.zeros((0, len(steps.structures))), np.zeros(0)
    else:
        encoder, slopes = steps.residualiser.encoder_, steps.residualiser.coefficients_
        center = steps.residualiser.center_
    mean, sd = steps.scale_of_sites
    combat = steps.options.make_combat()
    return combat.from_arrays(
        {
            **combat.settings,
            'features': steps.structures.names,
            'constant': [],
            'encoder': encoder.to_json(),
            'prior': None,
            'grand_mean': mean - center @ slopes,
            # Copies: tensors of a bundle may not share memory.
            'scale': np.array(sd),
            'slopes': np.array(slopes),
            'sites': [REFERENCE],
            'site_sizes': [0],
            'shift': np.zeros((1, len(steps.structures))),
            'ratio': np.ones((1, len(steps.structures))),
        }
    )


def read_site_controls(
    model: TableModel,
    table: Path,
    participants: Path | None,
    options: CohortOptions,
    site: str | None = None,
) -> Cohort:
    """Read the controls of new sites: the first visit of each, with all that a model needs.

    Parameters
    ----------
    model
        The model that is to know the sites.
    table, participants, options
        As of :func:`~surreal_bids.cohort.cohort.read_cohort`.
    site
        Name of the site, where it is not a column of the tables.

    Raises
    ------
    DataError
        A table cannot be read or cannot be true, a column is missing, or controls are too few.
    """
    if not site and options.site_column == NONE:
        raise UsageError('--site-column none: a site needs a name; add --site NAME instead')
    steps = model.preprocessing
    column = NONE if site else options.site_column or steps.options.site_column or SITE
    options = replace(options, site_column=column)
    cohort = read_cohort(table, participants, options, model=steps.requirements, groups='controls')
    if site:
        _require_one_site(cohort, site)
        named = cohort.people.assign(**{str(cohort.options.site_column): site})
        cohort = replace(cohort, people=named)
    return cohort.first_visits()


def _require_one_site(cohort: Cohort, site: str) -> None:
    """Refuse to take participants of other sites for this one."""
    for name in cohort.others:
        if not means(name, 'site'):
            continue
        others = sorted(set(cohort.others[name].dropna().astype(str)) - {site})
        if others:
            raise DataError(
                f'--site {site}, but column {name} has {list_briefly(others)}; remove --site, or '
                'exclude the participants of other sites'
            )


def add_sites(model: TableModel, controls: Cohort) -> TableModel:
    """Add sites to a model, and note what few controls leave open.

    Parameters
    ----------
    model
        Any model for tables.
    controls
        Controls of new sites, one visit of each, with all that the model needs.

    Raises
    ------
    DataError
        A site is known already.
    """
    taught = _with_errors(teach_sites(model, controls), controls)
    column, names = str(controls.options.site_column), model.preprocessing.features.names
    rows = digests_of_rows(controls.features, names).groupby(controls.people[column])
    noted = dict(taught.notes[ADDED_SITES])
    for place, digests in rows:
        noted[str(place)] = {**noted[str(place)], TAUGHT_BY: sorted(digests)}
    return replace(taught, notes={**taught.notes, ADDED_SITES: noted})


def summarise_added(taught: TableModel, controls: Cohort) -> str:
    """Which sites were added, from whom, and how sure this is."""
    sites = set(controls.people[str(controls.options.site_column)])
    added = {site: told for site, told in taught.notes[ADDED_SITES].items() if site in sites}
    lines = describe_added(added)
    lines += [*controls.notes, *describe_uses(controls.uses)]
    for why, who in controls.exclusions.groupby('reason').groups.items():
        lines.append(f'{counted(len(who), "participant")} excluded ({why}): {list_briefly(who)}')
    return '\n'.join(lines) + '\n'


def describe_added(notes: Mapping[str, Any]) -> list[str]:
    """One line for each site that was added to a model, from what its card says."""
    lines = []
    for site, told in notes.items():
        errors = ', '.join(f'{k} {sd:.3f}' for k, sd in told[INDEX_ERROR].items())
        parts = [f'site {site}: learned from {counted(told["Controls"], "control")}']
        if errors:
            parts.append(
                f'standard error of its R-indices {errors} (shared by all its participants)'
            )
        lines.append('; '.join(parts))
    return lines
