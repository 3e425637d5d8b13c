"""Limits of reliable change: learned from repeated visits of the controls of a study."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from surreal_bids.names import GROUP_NAMES, PARTICIPANT
from surreal_bids.rindices.measurement_noise import REAL_ERRORS
from surreal_bids.stats.repeated import ChangeWithTime
from surreal_bids.text import counted

Floats = NDArray[np.float64]

FALSE_ALARMS = 0.05
"""Share of participants without any change in whom at least one change is called reliable."""

MIN_PAIRS = 15
"""Pairs of visits of controls that limits are learned from; with fewer, the standard deviation of
changes is known to less than a fifth."""

MIN_CONTROLS = 5
"""Controls whom these pairs come from: noise differs between participants."""

MOST_YEARS = 2.5
"""Between visits that limits are learned from: about two years, as visits are rarely on the day.
Over a longer time, healthy participants age at different rates."""

CONTROLS, MODEL = 'controls', 'model'
"""Where noise is from: controls of the study, or the noise of volumes that the package knows."""

DESCRIBED_MODEL = (
    'Limits rest on the noise of volumes that the package knows, from five participants who were '
    f'scanned twice: this study has fewer than {MIN_PAIRS} pairs of visits of controls that can be '
    f'compared and are at most {MOST_YEARS:g} years apart.'
)

SOURCE_COLUMNS = ('noise_from', 'noise_controls', 'noise_years')


@dataclass(frozen=True, eq=False)
class PairNoise:
    """What is expected between two visits if only time and measurement differ.

    Attributes
    ----------
    expected, noise, error, df : (n_pairs, n_measures)
        Mean change; standard deviation of a change around it; the same with the errors of what is
        known of both, to which limits are proportional; and degrees of freedom. NaN if not known.
    source : frame with `SOURCE_COLUMNS`, one row per pair
        Where it is from: `controls`, how many, and the median time between their visits; or
        `model`.
    """

    expected: Floats
    noise: Floats
    error: Floats
    df: Floats
    source: pd.DataFrame

    def widened(self, factor: Floats) -> PairNoise:
        """Multiply noise by a factor of each pair (n_pairs,); NaN leaves it as it is."""
        column = np.nan_to_num(factor, nan=1.0)[:, np.newaxis]
        return replace(self, noise=self.noise * column, error=self.error * column)

    def completed_by(self, other: PairNoise) -> PairNoise:
        """Take pairs without a known noise from another source."""
        is_known = self.source['noise_from'].notna().to_numpy()
        rows = is_known[:, np.newaxis]
        source = self.source.copy()
        source.loc[~is_known] = other.source.loc[~is_known]
        return PairNoise(
            np.where(rows, self.expected, other.expected),
            np.where(rows, self.noise, other.noise),
            np.where(rows, self.error, other.error),
            np.where(rows, self.df, other.df),
            source,
        )


def noise_by_model(sd: Floats, df: Floats) -> PairNoise:
    """Return the noise of changes that follows from the noise of volumes: (n_pairs, n_measures)."""
    source = _no_source(len(sd))
    source.loc[np.isfinite(sd).any(axis=1), 'noise_from'] = MODEL
    return PairNoise(np.zeros_like(sd), sd, REAL_ERRORS * sd, df, source)


def _no_source(n_pairs: int) -> pd.DataFrame:
    return pd.DataFrame(None, range(n_pairs), SOURCE_COLUMNS, dtype=object)


def noise_by_controls(
    pairs: pd.DataFrame, changes: Floats, is_learned_from: NDArray[np.bool_]
) -> PairNoise:
    """Learn from pairs of visits of controls what is expected of all pairs.

    A control is described by the other controls. Visits more than `MOST_YEARS` apart are compared
    with visits of controls that are as far apart, if there are enough of them.

    Parameters
    ----------
    pairs : frame, one row per pair of visits
        `participant_id`, and the time between the visits in `years`, missing where it is not known.
    changes : (n_pairs, n_measures)
        Changes of R-indices, by models that were not trained on the participant.
    is_learned_from : (n_pairs,)
        Pairs of controls whose R-indices can be compared.
    """
    unknown = np.full(changes.shape, np.nan)
    learned = PairNoise(unknown, unknown, unknown, unknown, _no_source(len(pairs)))
    years = pairs['years'].to_numpy(np.float64)
    is_learned_from = is_learned_from & np.isfinite(changes).all(axis=1)
    close = is_learned_from & (years <= MOST_YEARS)
    far = is_learned_from & (years > MOST_YEARS)
    undated = is_learned_from & np.isnan(years)
    if _are_enough(pairs, close):
        times = np.where(np.isnan(years), np.median(years[close]), years)
        learned = _learn(pairs, changes, times, close)
    elif _are_enough(pairs, undated):
        # Without dates, the time from one visit to another is the unit.
        learned = _learn(pairs, changes, np.ones(len(pairs)), undated)
    if _are_enough(pairs, far):
        of_far_pairs = _learn(pairs, changes, years, far)
        of_far_pairs.source.loc[~(years > MOST_YEARS)] = None
        learned = of_far_pairs.completed_by(learned)
    return learned


def _are_enough(pairs: pd.DataFrame, chosen: NDArray[np.bool_]) -> bool:
    n_controls = pairs.loc[chosen, PARTICIPANT].nunique()
    return bool(chosen.sum() >= MIN_PAIRS and n_controls >= MIN_CONTROLS)


def _learn(
    pairs: pd.DataFrame, changes: Floats, times: Floats, reference: NDArray[np.bool_]
) -> PairNoise:
    """Describe all pairs by those of the `reference`; `times` is the time between visits."""
    who = pairs[PARTICIPANT].to_numpy()
    line = ChangeWithTime(changes[reference], times[reference], who[reference])
    predicted = line.predict(times, who)
    years = pairs['years'].to_numpy(np.float64)[reference]
    source = _no_source(len(pairs))
    source['noise_from'] = CONTROLS
    source['noise_controls'] = predicted.n_participants
    source['noise_years'] = round(float(np.median(years)), 2)
    # Another source may have text or nothing in these columns.
    source = source.astype(object)
    # R-indices that never differ are copies, and tell nothing of noise.
    source.loc[~(predicted.noise > 0).all(axis=1)] = None
    df = np.broadcast_to(predicted.df[:, np.newaxis], changes.shape)
    return PairNoise(predicted.expected, predicted.noise, predicted.error, df, source)


RELIABLE = 'participants with a reliable change'

UNKNOWN_GROUP = 'participants of unknown group'


def count_reliable(changes: pd.DataFrame, group_of: pd.Series) -> pd.DataFrame:
    """Count the participants of each group in whom at least one change is reliable.

    Parameters
    ----------
    changes : frame with `participant_id` and `reliable`
        As :func:`surreal_bids.analysis.change.describe_changes` returns it.
    group_of : Series
        Group of each participant; may be missing.

    Returns
    -------
    DataFrame
        One row per `group`: share of participants (`estimate`) with its 95 % interval (`low`,
        `high`; Clopper and Pearson, 1934), number of participants with a rated change (`n`), with
        a reliable one (`n_reliable`), and expected by chance (`n_expected`).
    """
    rated = changes.dropna(subset=['reliable'])
    is_reliable = rated['reliable'].eq('true').groupby(rated[PARTICIPANT]).any()
    groups = group_of.reindex(is_reliable.index)
    words = groups.map(_words_of_group, na_action='ignore').fillna(UNKNOWN_GROUP)
    rows = []
    for group in sorted(set(words), key=_place_of_group):
        members = is_reliable[words == group]
        n, n_reliable = len(members), int(members.sum())
        interval = stats.binomtest(n_reliable, n).proportion_ci()
        rows.append(
            {
                'group': group,
                'measure': RELIABLE,
                'estimate': n_reliable / n,
                'low': float(interval.low),
                'high': float(interval.high),
                'n': n,
                'n_reliable': n_reliable,
                'n_expected': FALSE_ALARMS * n,
            }
        )
    columns = ['group', 'measure', 'estimate', 'low', 'high', 'n', 'n_reliable', 'n_expected']
    return pd.DataFrame(rows, columns=columns)


def _words_of_group(group: str) -> str:
    return GROUP_NAMES.get(group, group)


def _place_of_group(words: str) -> tuple[bool, bool, str]:
    """Sort controls and patients before other groups, and participants of no group last."""
    return words == UNKNOWN_GROUP, words not in GROUP_NAMES.values(), words


def describe_source(changes: pd.DataFrame) -> str:
    """Say from whom limits were learned, in a sentence; empty where no change has a limit.

    Parameters
    ----------
    changes : frame with `SOURCE_COLUMNS` and `years`, at least one row
    """
    sources = changes['noise_from'].dropna()
    if CONTROLS not in set(sources):
        return DESCRIBED_MODEL if len(sources) else ''
    by_controls = changes[changes['noise_from'] == CONTROLS]
    close = by_controls[~by_controls['years'].gt(MOST_YEARS)]
    sentences = []
    if len(close):
        sentences.append(f'Limits were learned from {_whom(close)}.')
    far = by_controls[by_controls['years'].gt(MOST_YEARS)]
    if len(far) and (close.empty or _whom(far) != _whom(close)):
        sentences.append(
            f'Limits of changes over more than {MOST_YEARS:g} years were learned from {_whom(far)}.'
        )
    return ' '.join(sentences)


def _whom(changes: pd.DataFrame) -> str:
    """Name the controls; one of them is compared with one fewer."""
    n_controls = int(changes['noise_controls'].max())
    years = changes['noise_years'].dropna()
    apart = f', {float(years.iloc[0]):.1f} years apart' if len(years) else ''
    return f'{counted(n_controls, "control")} with two or more visits{apart}'
