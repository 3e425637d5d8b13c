"""New sites from few controls: FCON 1000 without its five largest sites.

    python benchmarks/add_site.py DATA/tables/fcon1000.csv [--repeats 20]

Regions are those that `surreal-gan fit` would choose (148 thicknesses and 27 volumes); covariates
are age, sex and head size. Two people with a missing thickness are excluded. A site is left out of
the fit, alone or with the other four. 5, 10 or 20 of its people, chosen at random, serve as
controls for the site. The rest are measured: the difference between their mean and that of the
known sites, in standard deviations (root mean square of the two groups), after covariates were
removed. `before` takes their volumes as measured. For comparison, ComBat with its
own prior for each feature by itself.

Few people are measured, and their mean differs from that of the site by chance. `fall_true` removes
this sampling error (mean of squares minus the squared standard error).
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from machine import write_results

from surreal_bids.cohort.features import choose_features, read_features
from surreal_bids.cohort.reader import read_visit_table
from surreal_bids.cohort.requirements import PreprocessingOptions, read_person_columns
from surreal_bids.harmonization.combat import ComBat
from surreal_bids.regions import FeatureList
from surreal_bids.rindices.preprocessing import Preprocessing, fit_preprocessing, prepare_inputs

SITES = ('Beijing_Zang', 'Cambridge_Buckner', 'Oulu', 'ICBM', 'NewYork_a')
"""The five sites with most people: 83 to 198."""

CONTROLS = (5, 10, 20)
OPTIONS = PreprocessingOptions(('age', 'sex'), 'eTIV', 'power', 'site', unseen_site='skip')
CN_SD = 0.1
"""Standard deviation of controls after preprocessing, whose mean is 1."""


class Study:
    """The table, and fits without some of its sites."""

    def __init__(self, path: Path) -> None:
        table = read_visit_table(path, 'sub_id').table
        self.wanted: FeatureList = choose_features(table, [*OPTIONS.columns])[0]
        features = read_features(table, self.wanted)
        measured = (features > 0).all(axis=1)
        self.features = features[measured]
        self.people = read_person_columns(table, OPTIONS, ())[measured]

    def fit(self, left_out: tuple[str, ...]) -> Preprocessing:
        known = ~self.people['site'].isin(left_out)
        controls = pd.Series(True, self.people.index[known])
        return fit_preprocessing(
            self.wanted, OPTIONS, self.features[known], self.people[known], controls
        )[0]

    def differences(self, steps: Preprocessing, people: pd.Index) -> tuple[np.ndarray, np.ndarray]:
        """Standardised difference of each feature from the known sites, and its standard error."""
        seen = steps.transform(self.features.loc[people], self.people.loc[people]).normalised
        spread = np.sqrt((seen.var() + CN_SD**2) / 2)
        error = seen.std() / np.sqrt(len(seen)) / spread
        return ((seen.mean() - 1) / spread).to_numpy(), error.to_numpy()

    def teach(self, steps: Preprocessing, people: pd.Index, covarying: bool) -> Preprocessing:
        inputs = prepare_inputs(self.features.loc[people], self.people.loc[people], OPTIONS)
        combat = ComBat.from_arrays(steps.combat.to_arrays())
        if not covarying:
            combat.shift_prior_ = None
        return replace(
            steps, combat=combat.add_site(inputs.features, inputs.site, inputs.covariates)
        )


def measure(study: Study, repeats: int) -> Iterator[dict]:
    """Return one row per site, number of controls and prior, averaged over repeats."""
    designs = [('alone', (site,)) for site in SITES] + [('all five', SITES)]
    for name, left_out in designs:
        steps = study.fit(left_out)
        for site in left_out:
            people = study.people.index[study.people['site'] == site]
            for n_controls in CONTROLS:
                for prior in ('covarying', 'each feature'):
                    rows = list(trials(study, steps, people, n_controls, prior, repeats))
                    yield {
                        'left_out': name,
                        'site': site,
                        'controls': n_controls,
                        'prior': prior,
                        **summarise(rows),
                    }


def trials(
    study: Study, steps: Preprocessing, people: pd.Index, n: int, prior: str, repeats: int
) -> Iterator[tuple[np.ndarray, ...]]:
    """Differences before and after, and their standard errors, one choice of controls each."""
    rng = np.random.default_rng(0)
    for _ in range(repeats):
        order = rng.permutation(len(people))
        taught = study.teach(steps, people[order[:n]], prior == 'covarying')
        rest = people[order[n:]]
        yield (*study.differences(steps, rest), *study.differences(taught, rest))


def summarise(rows: list[tuple[np.ndarray, ...]]) -> dict[str, object]:
    """Average over features and repeats; keep the change of each feature for the whole table."""
    before, before_error, after, after_error = (np.array(part) for part in zip(*rows))
    return {
        'before': np.abs(before).mean(),
        'after': np.abs(after).mean(),
        'before_squared': (before**2 - before_error**2).mean(),
        'after_squared': (after**2 - after_error**2).mean(),
        'worse': (np.abs(after) - np.abs(before)).mean(axis=0),
    }


def over_sites(table: pd.DataFrame) -> pd.DataFrame:
    """Average over the five sites, with the fall of the difference and the worst feature."""
    keys = ['left_out', 'prior', 'controls']
    means = table.groupby(keys)[['before', 'after', 'before_squared', 'after_squared']].mean()
    means['worst_feature'] = table.groupby(keys)['worse'].apply(lambda w: np.stack(w).mean(0).max())
    return means.assign(
        fall=1 - means['after'] / means['before'],
        fall_true=1 - np.sqrt(means['after_squared'] / means['before_squared']),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('table', type=Path)
    parser.add_argument('--repeats', type=int, default=20)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    table = pd.DataFrame(measure(Study(arguments.table), arguments.repeats))
    means = over_sites(table)
    print(means.round(3).to_string())
    each = table.assign(
        fall=1 - table['after'] / table['before'],
        worst_feature=[changes.max() for changes in table['worse']],
    )
    rows = pd.concat([each.drop(columns='worse'), means.reset_index().assign(site='all')])
    numbers = rows.select_dtypes('number').columns
    rows[numbers] = rows[numbers].round(4)
    write_results('add_site', rows.assign(repeats=arguments.repeats), 'surreal_bids', 'numpy')


if __name__ == '__main__':
    main()
