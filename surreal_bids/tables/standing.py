"""How sure an R-index is, and where it stands among controls.

Both are learned from controls who were held out, and stored in the card of the model as plain
numbers of all of them together.

The error of an R-index is tried on simulated patients: held-out controls who lose from each region
the share that the model's generator takes from the mean control at a known severity. Their
R-indices differ from what is expected at that severity by all that makes people differ in R-index
without differing in severity: anatomy, the noise of the segmentation (controls were measured by the
same scanners and programs), other patterns, and what few people and a few members leave open (the
model of each fold is trained on other people). The interval of an R-index has the severities at
which it would not be unusual (Neyman, Phil. Trans. R. Soc. A 236:333-380, 1937).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from surreal_bids.bids.people import CONTROL, PARTICIPANT, SPREAD_SUFFIX, letters
from surreal_bids.harmonization.covariates import CN_MEAN, CN_SD
from surreal_bids.tables.visits import AGE_COLUMNS

if TYPE_CHECKING:
    from surreal_bids.tables.cohort import Cohort
    from surreal_bids.tables.folds import CrossFit
    from surreal_bids.tables.pipeline import TableModel

Floats = NDArray[np.floating]
Note = Mapping[str, Any]

INTERVALS, REFERENCE = 'Intervals', 'Reference'
"""Keys of the card."""
LOW_SUFFIX, HIGH_SUFFIX, CENTILE_SUFFIX = '_low', '_high', '_centile'
CENTILE_OF, CENTILE_CONTROLS = 'centile_of', 'centile_controls'
LIKE_AGE, ALL_CONTROLS, TRAINING_CONTROLS = 'like_age', 'all', 'training'
"""With which controls a centile compares; see `CENTILE_LEVELS`."""

SHARE = 0.68
"""Of the severities that intervals are meant to hold."""
SEVERITIES = np.linspace(0, 1, 11)
"""At which the error is tried."""
SIMULATED = 200
"""Patients at each severity, at least; as many as there are controls where these are more."""
FEWEST_FOR_INTERVALS = 20
"""Controls held out: of fewer, the sixth part on each side is two or three people."""
FEWEST_FOR_CENTILES = 30
FAR_FROM_ZERO = 3.0
"""Standard deviations of controls: a feature whose mean is not so far above zero is no volume, and
changes by as much in everyone."""
AGE_RANGE = 5.0
"""Years by which a control of like age may be younger or older."""
PER_CENT = np.arange(101)


def learn_standing(cohort: Cohort, fitted: CrossFit, random_seed: int = 0) -> dict[str, Any]:
    """What the card of the final model says of the error of R-indices, and of those of controls.

    Parameters
    ----------
    cohort
        Controls and patients.
    fitted
        Models of folds, and R-indices of the held out.
    random_seed
        Of the severities of other patterns.

    Returns
    -------
    dict
        `Intervals`: for each pattern, what R-indices are expected to be at each of `SEVERITIES`,
        and between which two most are. `Reference`: percentiles (0 to 100) of the R-indices of
        held-out controls and patients. Each of the patterns for which there are enough people:
        who was held out of a model that lost a pattern has no R-index of that one.
    """
    names = list(fitted.correlation.columns)
    known = fitted.results[names].notna()
    if not known.any(axis=None):
        return {}
    first = cohort.select(known.any(axis=1)).first_visits()
    controls = first.select(~first.is_patient)
    notes: dict[str, Any] = {}
    numbers = known.loc[controls.visits.index].sum()
    tried = list(numbers.index[numbers >= FEWEST_FOR_INTERVALS])
    if tried:
        notes[INTERVALS] = {
            'Share': SHARE,
            'Controls': int(numbers[tried].min()),
            'Patterns': _try_error(controls, fitted, tried, random_seed),
        }
    indices = fitted.results.loc[first.visits.index, names]
    found = {
        str(group): _describe_reference(rows)
        for group, rows in indices.groupby(first.visits['group'])
    }
    reference = {group: note for group, note in found.items() if note is not None}
    return notes | ({REFERENCE: reference} if reference else {})


def _describe_reference(indices: pd.DataFrame) -> dict[str, Any] | None:
    """Percentiles of the R-indices of a group, and of how many people at least; None: too few."""
    numbers = indices.notna().sum()
    numbers = numbers[numbers >= FEWEST_FOR_CENTILES]
    if numbers.empty:
        return None
    values = np.nanpercentile(indices[numbers.index].to_numpy(), PER_CENT, axis=0)
    percentiles = dict(zip(map(str, numbers.index), values.T.tolist()))
    return {'Number': int(numbers.min()), 'Percentiles': percentiles}


def _try_error(
    controls: Cohort, fitted: CrossFit, names: list[str], seed: int
) -> dict[str, dict[str, list[float]]]:
    """For each pattern: mean and outer quantiles of the R-index at each of `SEVERITIES`."""
    rng = np.random.default_rng(seed)
    fewest = int(fitted.results.loc[controls.visits.index, names].notna().sum().min())
    repeats = -(-SIMULATED // fewest)
    found: dict[str, list[Floats]] = {name: [] for name in names}
    for fold, model in fitted.models.items():
        own = controls.select(fitted.folds.number[controls.visits.index] == fold)
        if not len(own):
            continue  # All of the fold are of sites that its model does not know.
        preprocessing = model.with_unseen_site('skip').preprocessing
        people = preprocessing.transform(own.features, own.people).normalised
        rows = np.repeat(people.to_numpy(), repeats, axis=0)
        for number, pattern in enumerate(model.pattern_names):
            name = fitted.names[fold][pattern]
            is_lost = fitted.results.loc[own.visits.index, name].isna().all()
            if name in found and not is_lost:
                found[name].append(simulate_error(model, rows, number, rng))
    return {name: _quantiles(np.concatenate(parts)) for name, parts in found.items()}


def simulate_error(
    model: TableModel, controls: Floats, pattern: int, rng: np.random.Generator
) -> Floats:
    """R-indices of one pattern in controls who lose what the model's generator takes.

    Parameters
    ----------
    model
        A model.
    controls : (N, S)
        Controls that it was not trained on, normalised for it.
    pattern
        Number of the pattern whose severities are `SEVERITIES`; those of others are U[0, 1].
    rng
        Source of these.

    Returns
    -------
    (N, n_severities) array
    """
    gan, scale = model.gan, model.preprocessing.normaliser
    severities = rng.uniform(size=(len(SEVERITIES), len(controls), len(model.pattern_names)))
    severities[..., pattern] = SEVERITIES[:, None]
    # A share of what a person has: v (1 - l), where the mean control, m, changes by -l m.
    mean, sd = np.asarray(scale.mean_), np.asarray(scale.sd_)
    share = np.divide(sd, mean, out=np.zeros_like(mean), where=mean > FAR_FROM_ZERO * sd)
    relative = 1 + (controls - CN_MEAN) / CN_SD * share
    return np.stack(
        [
            np.asarray(gan.transform(controls + relative * gan.synthesise(z)))[:, pattern]
            for z in severities
        ],
        axis=1,
    )


def _quantiles(found: Floats) -> dict[str, list[float]]:
    """Mean and outer quantiles of each column, none of which falls."""
    tail = (1 - SHARE) / 2
    rows = {
        'Expected': found.mean(axis=0),
        'Lower': np.quantile(found, tail, axis=0),
        'Upper': np.quantile(found, 1 - tail, axis=0),
    }
    return {name: np.maximum.accumulate(row).tolist() for name, row in rows.items()}


def interval(r: Floats, curves: Mapping[str, Sequence[float]]) -> tuple[Floats, Floats]:
    """Lower and upper end of the interval of each R-index, in the unit of the R-index.

    The ends are what is expected at the severities at which R-indices as large, or as small, become
    unusual. Beyond the severities that were tried, the distance stays as at the last of them.
    """
    expected = np.asarray(curves['Expected'])
    low = _follow(r, np.asarray(curves['Upper']), expected)
    high = _follow(r, np.asarray(curves['Lower']), expected)
    return np.minimum(low, r), np.maximum(high, r)


def _follow(r: Floats, curve: Floats, expected: Floats) -> Floats:
    """Expected R-index where a curve passes r; parallel to the curve beyond its ends."""
    beyond = r - np.clip(r, curve[0], curve[-1])
    return np.interp(r, curve, expected) + beyond


def add_standing(
    cohort: Cohort, fitted: CrossFit, random_seed: int = 0
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Results of the held out with intervals and centiles, and what the card says of these."""
    notes = learn_standing(cohort, fitted, random_seed)
    results = fitted.results
    if INTERVALS in notes:
        results = with_intervals(results, notes[INTERVALS])
    names = [str(name) for name in fitted.correlation if results[name].notna().any()]
    return with_centiles(results, cohort, names), notes


def with_intervals(results: pd.DataFrame, note: Note) -> pd.DataFrame:
    """Add the interval of each R-index to a table of them."""
    columns: dict[str, Floats] = {}
    for name, curves in note['Patterns'].items():
        ends = interval(results[name].to_numpy(dtype=float), curves)
        columns |= dict(zip((f'{name}{LOW_SUFFIX}', f'{name}{HIGH_SUFFIX}'), ends))
    return _insert(results, pd.DataFrame(columns, results.index), list(note['Patterns']))


def with_training_centiles(
    results: pd.DataFrame, controls: Note, comparable: pd.Series
) -> pd.DataFrame:
    """Add centiles among the controls of the training sample, as the card has them.

    Only of the `comparable` (n_people,): what an unknown scanner adds would pass for a pattern.
    """
    names, n = list(controls['Percentiles']), controls['Number']
    least = 50 / (n + 1)
    known = results.index[results[names].notna().all(axis=1) & comparable[results.index]]
    places = {
        f'{name}{CENTILE_SUFFIX}': np.interp(results.loc[known, name], quantiles, PER_CENT)
        for name, quantiles in controls['Percentiles'].items()
    }
    table = pd.DataFrame(places, known).clip(least, 100 - least)
    table = table.assign(**{CENTILE_OF: TRAINING_CONTROLS, CENTILE_CONTROLS: n})
    return _insert(results, _tidy(table, results.index), names)


def with_centiles(results: pd.DataFrame, cohort: Cohort, names: Sequence[str]) -> pd.DataFrame:
    """Add centiles among the controls of a cohort, of like age where there are enough of them.

    Nobody is compared with themselves, and only R-indices that both have are compared;
    `centile_controls` is the smallest number of controls behind a centile of the row. Results stay
    as they are where there are too few controls.

    Parameters
    ----------
    results
        R-indices by models that were not trained on the controls.
    cohort
        Whose they are.
    names
        Of the R-indices.
    """
    known = results.index[results[list(names)].notna().any(axis=1)]
    first = cohort.select(list(cohort.visits.index.isin(known))).first_visits()
    controls = first.select(first.visits['group'] == CONTROL)
    if not len(names) or len(controls) < FEWEST_FOR_CENTILES:
        return results
    reference = results.loc[controls.visits.index, list(names)].to_numpy(dtype=float)
    owner, age = controls.visits[PARTICIPANT].to_numpy(), _ages(cohort)
    age_of_controls = age[controls.visits.index].to_numpy()
    rows = {}
    for visit in known:
        own = results.loc[visit, list(names)].to_numpy(dtype=float)
        other = owner != cohort.visits.loc[visit, PARTICIPANT]
        near = other & (np.abs(age_of_controls - age[visit]) <= AGE_RANGE)
        enough = _numbers(reference[other], own) >= FEWEST_FOR_CENTILES
        if enough.any():
            is_near = _numbers(reference[near], own)[enough].min() >= FEWEST_FOR_CENTILES
            compared = reference[near if is_near else other]
            numbers = _numbers(compared, own)
            centiles = np.full(len(names), np.nan)
            centiles[~np.isnan(own)] = np.where(enough, _centile(own, compared), np.nan)
            kind = LIKE_AGE if is_near else ALL_CONTROLS
            rows[visit] = [*centiles, kind, numbers[enough].min()]
    columns = [*(f'{name}{CENTILE_SUFFIX}' for name in names), CENTILE_OF, CENTILE_CONTROLS]
    table = pd.DataFrame.from_dict(rows, orient='index', columns=columns)
    others = results.drop(columns=columns, errors='ignore')
    return _insert(others, _tidy(table, results.index), names)


def _tidy(centiles: pd.DataFrame, everyone: pd.Index) -> pd.DataFrame:
    """Centiles to a tenth, for everyone; numbers of controls stay whole where some are missing."""
    table = centiles.round(1).reindex(everyone)
    return table.astype({CENTILE_CONTROLS: 'Int64'})


def _numbers(reference_NM: Floats, own: Floats) -> Floats:
    """How many of the reference have each of the R-indices that somebody has."""
    return (~np.isnan(reference_NM[:, ~np.isnan(own)])).sum(axis=0)


def _centile(own: Floats, reference_NM: Floats) -> Floats:
    """Centile of each R-index that somebody has, never 0 or 100: the middle of its place."""
    r, reference = own[~np.isnan(own)], reference_NM[:, ~np.isnan(own)]
    below, equal = (reference < r).sum(axis=0), (reference == r).sum(axis=0)
    return 100 * (below + equal / 2 + 0.5) / (_numbers(reference_NM, own) + 1)


def _ages(cohort: Cohort) -> pd.Series:
    """Age of each visit; missing where it is not known."""
    for table in (cohort.people, cohort.others):
        for name in table:
            if letters(str(name)) in AGE_COLUMNS:
                return pd.to_numeric(table[name], errors='coerce')
    return pd.Series(np.nan, cohort.visits.index)


def _insert(results: pd.DataFrame, new: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Put columns behind those of the R-indices, of which `names` need not be all."""
    own = {f'{name}{end}' for name in names for end in ('', LOW_SUFFIX, HIGH_SUFFIX)}
    place = 1 + max(
        number
        for number, column in enumerate(map(str, results))
        if column in own or column.endswith(SPREAD_SUFFIX)
    )
    return pd.concat([results.iloc[:, :place], new, results.iloc[:, place:]], axis=1)


def is_sound(notes: Note, names: Sequence[str]) -> bool:
    """Whether what a card says of intervals and of its sample can be of these patterns."""
    tables = [each['Percentiles'] for each in notes.get(REFERENCE, {}).values()]
    curves = [(row, len(PER_CENT)) for table in tables for row in table.values()]
    if INTERVALS in notes:
        tables.append(notes[INTERVALS]['Patterns'])
        curves += [
            (each[name], len(SEVERITIES))
            for each in tables[-1].values()
            for name in ('Expected', 'Lower', 'Upper')
        ]
    numbers = [each['Number'] for each in notes.get(REFERENCE, {}).values()]
    return (
        all(tables)
        and all(list(table) == [name for name in names if name in table] for table in tables)
        and all(isinstance(number, int) and number > 0 for number in numbers)
        and all(
            len(row) == length and np.isfinite(row).all() and (np.diff(row) >= 0).all()
            for row, length in curves
        )
    )
