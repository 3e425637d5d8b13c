"""Make the table of usual volumes that participant reports compare with.

    python benchmarks/norms.py > surreal_bids/data/norms.tsv

It holds, of 2000 healthy participants sampled from the built-in population (40 to 86 years), the
mean volume of each MUSE region, and mean and standard deviation of the logarithm of its share in
the tissue of all regions.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd

from surreal_bids.regions import muse_indices
from surreal_bids.simulation.population import sample_controls

PARTICIPANTS = 2000


def make_norms() -> pd.DataFrame:
    """One row per region: index, volume_mm3, log_share_mean, log_share_sd."""
    volumes = sample_controls(PARTICIPANTS, np.random.default_rng(0)).volumes
    shares = np.log(volumes.div(volumes.sum(axis=1), axis=0))
    return pd.DataFrame(
        {
            'index': list(muse_indices()),
            'volume_mm3': volumes.mean().round(1).to_numpy(),
            'log_share_mean': shares.mean().round(5).to_numpy(),
            'log_share_sd': shares.std().round(5).to_numpy(),
        }
    )


if __name__ == '__main__':
    make_norms().to_csv(sys.stdout, sep='\t', index=False)
