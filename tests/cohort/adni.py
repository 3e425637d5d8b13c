"""One table with everything: ids, visits, facts, scores, totals and regions, as ADNI has it."""

import numpy as np
import pandas as pd

REGIONS = {
    'Hippocampus': 7000, 'Entorhinal': 3500, 'Fusiform': 17_000, 'MidTemp': 20_000,
    'Amygdala': 3000, 'Insula': 14_000, 'Precuneus': 18_000, 'Thalamus': 15_000,
}  # fmt: skip


def make_table(seed: int = 0, n: int = 60) -> pd.DataFrame:
    """Regions follow head size; every second participant is a control."""
    rng = np.random.default_rng(seed)
    icv = rng.normal(1.5e6, 1.2e5, n)
    spread = np.exp(rng.normal(0, 0.08, (n, len(REGIONS))))
    regions = np.array(list(REGIONS.values())) * (icv / 1.5e6)[:, None] * spread
    facts = {
        'RID': rng.permutation(np.arange(2, 2 + 7 * n, 7)),
        'VISCODE': ['bl'] * n,
        'EXAMDATE': [f'2006-{m:02}-{d:02}' for m, d in rng.integers(1, 13, (n, 2))],
        'DX': np.where(np.arange(n) % 2, 'CN', 'AD'),
        'AGE_AT_BASELINE': rng.uniform(55, 90, n).round(1),
        'PTGENDER': rng.choice(['Male', 'Female'], n),
        'PTEDUCAT': rng.integers(6, 21, n),
        'MMSE': rng.integers(18, 31, n),
        'CDRSB': rng.integers(0, 20, n) / 2,
        'moca': rng.integers(10, 30, n),
        'r4': rng.uniform(0, 1, n),
        'TBV': 10 * regions.sum(axis=1),
        'ICV': icv.round(),
    }
    return pd.DataFrame(facts).assign(**dict(zip(REGIONS, regions.round(1).T)))
