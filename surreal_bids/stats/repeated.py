"""Change between visits of healthy participants: a trend with time, and noise around it.

The noise of a change is the standard deviation of changes in participants in whom nothing but time
and measurement differs (Jacobson and Truax, J Consult Clin Psychol 59:12-19, 1991). The trend is
what changes in them on average (Chelune et al., Neuropsychology 7:41-52, 1993).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Floats = NDArray[np.float64]

SHARED_VISITS = 1.5
"""By how much pairs of visits of one participant exceed the number of independent pairs.

Visits 1 and 2, 2 and 3, and 1 and 3 share their errors: three pairs have two degrees of freedom.
"""


class ExpectedChange(NamedTuple):
    """How measures change between pairs of visits where only time and measurement differ.

    Attributes
    ----------
    expected, noise, error : (n_pairs, n_measures)
        Mean change; standard deviation of a change around it; and the same with the error of the
        mean change.
    df : (n_pairs,)
        Degrees of freedom of the noise.
    n_participants : (n_pairs,)
        How many participants these were learned from.
    """

    expected: Floats
    noise: Floats
    error: Floats
    df: Floats
    n_participants: NDArray[np.intp]


class ChangeWithTime:
    """Changes of several measures in a reference group, as a line through zero over time.

    A participant of the reference group is compared with the others in it, as if the line had been
    fitted without that participant.

    Parameters
    ----------
    changes : (n_pairs, n_measures)
        Later minus earlier value.
    years : (n_pairs,)
        Time between the two visits.
    participant : (n_pairs,)
        Who.
    """

    def __init__(self, changes: Floats, years: ArrayLike, participant: ArrayLike) -> None:
        time = np.asarray(years, np.float64)[:, np.newaxis]
        self.participants, code = np.unique(np.asarray(participant, object), return_inverse=True)
        n_pairs = np.bincount(code).astype(np.float64)
        overlap = np.where(n_pairs > 1, SHARED_VISITS, 1.0) * n_pairs
        of_pairs = np.hstack([time**2, time * changes, changes**2])
        # A row of sums for each participant, so that one can be taken out of the total.
        self._sums = np.zeros((len(n_pairs), 2 + of_pairs.shape[1]))
        self._sums[:, :2] = np.column_stack([n_pairs, overlap])
        np.add.at(self._sums[:, 2:], code, of_pairs)

    def predict(self, years: ArrayLike, participant: ArrayLike) -> ExpectedChange:
        """Return what is expected of pairs of visits of these participants.

        Parameters
        ----------
        years, participant : (n_pairs,)
            Time between the visits, and who.
        """
        time = np.asarray(years, np.float64)[:, np.newaxis]
        row = pd.Index(self.participants).get_indexer(np.asarray(participant, object))
        is_member = row >= 0
        own_sums = np.where(is_member[:, np.newaxis], self._sums[row], 0.0)
        sums = self._sums.sum(axis=0) - own_sums
        n_pairs, overlap, squared_time = sums[:, :1], sums[:, 1:2], sums[:, 2:3]
        with_time, squares = np.split(sums[:, 3:], 2, axis=1)
        # Scans of one day tell nothing of a change with time.
        per_time = np.divide(1.0, squared_time, out=np.zeros_like(time), where=squared_time > 0)
        slope = with_time * per_time
        # Of as many independent pairs, one is spent on the line.
        independent = n_pairs**2 / overlap
        rest = np.maximum(squares - slope * with_time, 0.0)
        variance = rest / n_pairs * independent / (independent - 1)
        error_of_slope = variance * (n_pairs / independent) * per_time
        return ExpectedChange(
            expected=slope * time,
            noise=np.sqrt(variance),
            error=np.sqrt(variance + error_of_slope * time**2),
            df=independent[:, 0] - 1,
            n_participants=len(self.participants) - is_member.astype(np.intp),
        )


def limit_of_chances(
    false_alarms: float, n_measures: int, n_pairs: ArrayLike, df: ArrayLike
) -> Floats:
    """Return the limit, in standard deviations of noise, that few participants exceed by chance.

    A participant with several pairs of visits and several measures has as many chances. Of
    independent ones, at least one exceeds the limit in the share `false_alarms` of participants
    (Sidak, J Am Stat Assoc 62:626-633, 1967); of dependent ones, in fewer. Noise that is known
    from few participants only has a larger limit (Student's t).

    Examples
    --------
    >>> limit_of_chances(0.05, n_measures=1, n_pairs=[1, 4], df=[60, 60]).round(2)
    array([2.  , 2.57])
    """
    n_chances = n_measures * np.asarray(n_pairs, np.float64)
    of_one_chance = 1 - (1 - false_alarms) ** (1 / n_chances)
    return np.asarray(stats.t.isf(of_one_chance / 2, np.asarray(df, np.float64)), np.float64)
