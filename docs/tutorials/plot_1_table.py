"""
From a table to R-indices
=========================

In this tutorial you train a model on a table of regional volumes, decide whether its patterns can
be trusted, and apply it to new participants. The study is simulated, so you can compare the
result with the truth. Replace its two tables with your own.

The commands are those of a terminal. ``run`` shows what they print.
"""

# %%
# Two tables
# ----------
# ``study/roi_volumes.tsv`` has one row per participant and one column per region.
# ``study/participants.tsv`` has diagnosis, age, sex and site. ``study/severities.tsv`` holds the
# truth, which a real study lacks. Tables of DLMUSE (the segmentation of the NiChart platform) and
# FreeSurfer are read directly; see :doc:`/tables`.

import subprocess
import tempfile
from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt

folder = Path(tempfile.mkdtemp())


def run(command: str) -> None:
    """Run a command in the folder and show what it prints."""
    done = subprocess.run(command.split(), cwd=folder, text=True, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    print(done.stdout)


run('surreal-simulate table study --n-cn 120 --n-pt 180 --seed 1')
pd.read_table(folder / 'study' / 'participants.tsv').head(3)

# %%
# Fit
# ---
# The first lines show how the tables were understood: the diagnosis column, the controls, the
# covariates, the site, and who is excluded and why. Check them: no later step can correct a wrong
# choice, and an option overrides each of them. ``--iterations 300`` and ``--folds 2`` keep this
# page fast; omit them for real data. If the command is interrupted, rerun it to resume.

run(
    'surreal-gan fit study/roi_volumes.tsv --participants study/participants.tsv '
    '--iterations 300 --folds 2 --out model'
)

# %%
# Is there a pattern?
# -------------------
# Two things on this card decide whether you continue:
#
# - **The number of patterns** (M) that are stable across subsamples of the participants. Zero is a
#   valid result; no R-indices are then written.
# - **Reproducibility**: the correlation of each R-index with the severities that are estimated in
#   random subsamples of the participants. Below 0.75 (0.85 if there is only
#   one), do not interpret the pattern.
#
# Then open ``model/report/group.html``: patterns, what to check, and who was excluded and why.
#
# R-indices
# ---------
# ``model/rindices.tsv`` has one row per participant, with an interval and a centile among the
# controls. The values are out of fold: no participant was used to train the model that scores them.
# Compare patients with the controls of the same table; an R-index is not a probability, and
# controls are not at 0.

rindices = pd.read_table(folder / 'model' / 'rindices.tsv').set_index('participant_id')
rindices[['group', 'r1', 'r1_low', 'r1_high', 'r1_centile']].tail(3)

# %%
# Because the truth is known here, the result can be scored, and drawn against it.

run('surreal-simulate score model/rindices.tsv study/severities.tsv')
truth = pd.read_table(folder / 'study' / 'severities.tsv').set_index('participant_id')
names = [name for name in truth if name in rindices]
figure, axes = plt.subplots(1, len(names), figsize=(9, 3), sharey=True, layout='constrained')
for axis, name in zip(axes, names):
    patients = rindices[rindices['group'] == 'PT']
    severity = truth.loc[patients.index].corrwith(patients[name]).idxmax()
    axis.scatter(truth.loc[patients.index, severity], patients[name], s=8)
    axis.set(xlabel=f'true severity, pattern {severity[1:]}', title=name)
axes[0].set_ylabel('R-index, out of fold')
plt.show()

# %%
# New participants
# ----------------
# One row is enough. Participants from a scanner that was not in the training sample are refused;
# the next tutorial adds a scanner to a model.

run('surreal-simulate table new --n-cn 10 --n-pt 10 --seed 2')
run(
    'surreal-gan apply new/roi_volumes.tsv --participants new/participants.tsv '
    '--model model --out new_rindices.tsv'
)

# %%
# Reports of participants
# -----------------------
# ``surreal-bids study OUTPUT_DIR group --roi-table study/roi_volumes.tsv`` trains the same model,
# and adds a report for each participant. It needs no images. The first folder must contain
# ``participants.tsv`` and a ``dataset_description.json`` with ``Name`` and ``BIDSVersion``, as
# ``study`` does.
