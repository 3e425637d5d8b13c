"""
A published model on a new scanner
==================================

In this tutorial you compute the five R-indices of brain ageing that the authors of Surreal-GAN
published, for participants of a scanner that the model has not seen. The participants are
simulated: healthy people whose scanner measures volumes 3 % too large.
"""

# %%
# The model
# ---------
# ``ageing`` and ``ad`` are part of the package. The card shows what the model needs, where it comes
# from and under which licence; :doc:`/published` explains the R-indices.

import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

from surreal_bids import simulate_table

folder = Path(tempfile.mkdtemp())


def run(command: str) -> str:
    """Run a command in the folder and return what it prints."""
    done = subprocess.run(command.split(), cwd=folder, text=True, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


print('\n'.join(run('surreal-gan card ageing').splitlines()[:20]))

# %%
# New participants
# ----------------
# Tables of NiChart are read as they are: ``MRID``, and regions by their MUSE number.

healthy = simulate_table('basic', n_cn=60, n_pt=1, seed=3)
people = healthy.participants.query('diagnosis == "CN"').drop(columns='site')
volumes = healthy.volumes.set_index('participant_id').loc[people['participant_id']]
scanner = np.random.default_rng(0).normal(1.03, 0.01, volumes.shape[1])
(volumes * scanner).rename_axis('MRID').to_csv(folder / 'DLMUSE_Volumes.csv')
people.rename(columns={'participant_id': 'MRID'}).to_csv(folder / 'participants.csv', index=False)
people.head(3)

# %%
# Without adaptation, R-indices contain the effect of the scanner.

print(
    run(
        'surreal-gan apply DLMUSE_Volumes.csv --participants participants.csv '
        '--model ageing --out before.tsv'
    )
)

# %%
# Add the scanner
# ---------------
# Twenty controls of the scanner show how it differs. Only the model's knowledge of scanners
# changes, so R-indices stay comparable with those of the training sample.

people.iloc[:20].assign(site='new').to_csv(folder / 'controls.csv', index=False)
print(
    run(
        'surreal-gan add-site ageing DLMUSE_Volumes.csv adapted '
        '--participants controls.csv --site-column site'
    )
)

# %%
# The other forty participants, with the adapted model:

people.iloc[20:].assign(site='new').to_csv(folder / 'others.csv', index=False)
print(
    run(
        'surreal-gan apply DLMUSE_Volumes.csv --participants others.csv '
        '--model adapted --out after.tsv'
    )
)

# %%
# The shift of the scanner is gone, except for what twenty controls leave open (the standard error
# above).

before, after = (pd.read_table(folder / f'{name}.tsv') for name in ('before', 'after'))
before, after = (table.set_index('participant_id').dropna(subset='r1') for table in (before, after))
names = [f'r{number}' for number in range(1, 6)]
figure, axis = plt.subplots(figsize=(7, 3), layout='constrained')
for offset, table, label in ((-0.15, before.loc[after.index], 'before'), (0.15, after, 'after')):
    axis.boxplot(
        table[names].to_numpy(), positions=np.arange(5) + offset, widths=0.25, label=label,
        patch_artist=True, boxprops={'facecolor': 'C0' if label == 'before' else 'C1'},
    )  # fmt: skip
axis.set_xticks(range(5), names)
axis.set_ylabel('R-index of healthy participants')
axis.legend()
plt.show()
