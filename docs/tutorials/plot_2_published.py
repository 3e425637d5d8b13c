"""
A published model on a new scanner
==================================

In this tutorial you compute the five R-indices of brain ageing that the authors of Surreal-GAN
published, for participants of a scanner that the model has not seen. The participants are
simulated: they are healthy, and their scanner measures volumes about 3 % too large.
"""

# %%
# The model
# ---------
# ``ageing`` and ``ad`` are part of the package. The card shows what the model needs, where it comes
# from, under which licence, and what each R-index means. :doc:`/published` has the details.

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


print(run('surreal-gan card -v ageing').partition('Hyper-parameters')[0])

# %%
# New participants
# ----------------
# Tables of NiChart are read as they are: ``MRID``, and regions by their MUSE number.

study = simulate_table('basic', n_cn=120, n_pt=1, seed=3)
healthy = study.participants.query('diagnosis == "CN" and site == "site1"').iloc[:60]
participants = healthy[['participant_id', 'age', 'sex', 'icv']].set_axis(
    ['MRID', 'Age', 'Sex', 'DLICV'], axis=1
)
volumes = study.volumes.set_index('participant_id').loc[participants['MRID']].rename_axis('MRID')
volumes.columns = volumes.columns.str.removeprefix('MUSE_')
volumes *= np.random.default_rng(0).normal(1.03, 0.01, volumes.shape[1])
volumes.to_csv(folder / 'DLMUSE_Volumes.csv')
participants.to_csv(folder / 'participants.csv', index=False)
participants.head(3)

# %%
# Without adaptation, R-indices contain the effect of the scanner. The command shows what each
# column was taken for.

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
# changes. Choose controls who resemble the reference sample of the model, above all in age: every
# other difference is attributed to the scanner, and ``ageing`` does not correct for age.
# There is no diagnosis in these tables; ``--control-label all`` states that everyone is a control.

volumes.iloc[:20].to_csv(folder / 'controls_volumes.csv')
participants.iloc[:20].to_csv(folder / 'controls.csv', index=False)
print(
    run(
        'surreal-gan add-site ageing controls_volumes.csv adapted '
        '--participants controls.csv --site Prisma --control-label all'
    )
)

# %%
# The other forty participants, with the adapted model. A column ``site`` now names the scanner of
# each participant, as it was spelled above. A name that ends in ``.csv`` gives the columns of
# NiChart.

volumes.iloc[20:].to_csv(folder / 'others_volumes.csv')
participants.iloc[20:].assign(site='Prisma').to_csv(folder / 'others.csv', index=False)
print(
    run(
        'surreal-gan apply others_volumes.csv --participants others.csv '
        '--model adapted --out after.csv'
    )
)

# %%
# R-indices no longer contain the shift of the scanner, nor any other mean difference between its
# controls and the reference sample. All participants of the scanner share the error that twenty
# controls leave (the standard errors above).

before = pd.read_table(folder / 'before.tsv', index_col='participant_id')
after = pd.read_csv(folder / 'after.csv', index_col='MRID')
after.columns = after.columns.str.replace('SurrealGAN_R', 'r')
names = [f'r{number}' for number in range(1, 6)]
figure, axis = plt.subplots(figsize=(7, 3), layout='constrained')
for offset, table, label in ((-0.15, before.loc[after.index], 'before'), (0.15, after, 'after')):
    axis.boxplot(
        table[names].to_numpy(), positions=np.arange(5) + offset, widths=0.25, label=label,
        patch_artist=True, boxprops={'facecolor': 'C0' if label == 'before' else 'C1'},
        medianprops={'color': 'black'},
    )  # fmt: skip
axis.set_xticks(range(5), names)
axis.set_ylabel('R-index of healthy participants')
figure.legend(loc='outside right upper')
plt.show()
