"""Run both levels of the app on simulated data and compare the results with the truth.

python docs/demo.py FOLDER [--seed N] [--miniature]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

PROGRAMS = Path(sys.executable).parent

SMALLEST_REGION_MM3 = 1000
"""Volumes of smaller regions are not compared: they have few voxels of 2 mm."""


@dataclass(frozen=True)
class Size:
    """How much is simulated, and options that save time.

    Attributes
    ----------
    n_heads
        Number of patients with a T1w image.
    n_cn, n_pt
        Controls and patients of the study.
    participant, group
        Options of the two levels.
    """

    n_heads: int
    n_cn: int
    n_pt: int
    participant: str
    group: str


FULL = Size(2, 120, 180, '--template-resolution 2', '')
MINIATURE = Size(1, 60, 90, '--template-resolution 4', '--n-patterns 3 --iterations 300 --folds 2')


def run(command: str) -> None:
    """Show a command and run it; an error ends the demo."""
    sys.stdout.write(f'\n$ {command}\n')
    sys.stdout.flush()
    program, *arguments = command.split()
    done = subprocess.run([PROGRAMS / program, *arguments], check=False)
    if done.returncode:
        sys.exit(done.returncode)


def compare_heads(folder: Path) -> str:
    """Compare the volumes that the network measured with those simulated; a line for each head."""
    truth = pd.read_table(folder / 'heads' / 'sourcedata' / 'truth' / 'volumes.tsv')
    lines = []
    for participant, regions in truth.groupby('participant_id'):
        anat = folder / 'heads_out' / str(participant) / 'anat'
        found = pd.read_table(anat / f'{participant}_seg-network_dseg.tsv', index_col='index')
        true = regions.set_index('index')['achieved_mm3']
        true = true[true > SMALLEST_REGION_MM3]
        ratio = (found['volume_mm3'].reindex(true.index) / true).dropna()
        error = np.median(np.abs(ratio - 1))
        lines.append(
            f'  {participant}: {len(ratio)} regions, median difference from the true volume '
            f'{error:.1%}\n'
        )
    return ''.join(lines)


def read_indices(folder: Path) -> pd.DataFrame:
    """Read group and R-indices of the study."""
    table = pd.read_table(folder / 'study_out' / 'phenotype' / 'rindices.tsv')
    names = [name for name in table if name[0] == 'r' and name[1:].isdecimal()]
    return table.set_index('participant_id')[['group', *names]]


def summarise(folder: Path) -> None:
    """Print what was found beside the truth, what to open, and what to run next."""
    indices = read_indices(folder)
    values = indices.drop(columns='group')
    truth = pd.read_table(folder / 'study' / 'severities.tsv', index_col='participant_id')
    sys.stdout.write(
        '\nWHAT WAS FOUND\n'
        f'Heads, volumes measured by the network:\n{compare_heads(folder)}'
        f'Study: {values.shape[1]} patterns found, {truth.shape[1]} simulated; '
        f'{values.isna().any(axis=1).sum()} of {len(values)} participants lack an R-index.\n'
        'Order of the R-indices out of fold (c-index) and their maps (AUC); 0.5 is chance, 1 '
        'perfect:'
    )
    study = folder / 'study'
    run(
        f'surreal-simulate score {folder}/study_out/phenotype/rindices.tsv {study}/severities.tsv '
        f'--maps {folder}/study_out'
    )
    patients = values[indices['group'] == 'PT'].dropna()
    typical = patients.sum(axis=1).idxmax()
    sys.stdout.write(
        '\nOPEN\n'
        f'  {folder}/study_out/group.html  the group: patterns, R-indices, maps, methods\n'
        f'  {folder}/study_out/{typical}.html  the patient with the highest R-indices\n'
        f'  {folder}/heads_out/sub-PT0001.html  a head: mask, tissues, regions, volumes\n'
        'NEXT, on your own data (docs/demo.md explains)\n'
        '  surreal-bids BIDS_DIR OUTPUT_DIR participant group --dry-run\n'
        '  surreal-gan fit VOLUMES.tsv --participants PARTICIPANTS.tsv --out MODEL\n'
    )


def main(argv: list[str] | None = None) -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description='Both levels of the app on simulated data.')
    parser.add_argument('folder', type=Path, help='folder to write to; a second run resumes')
    parser.add_argument('--seed', type=int, default=0, help='seed of the simulation (default: 0)')
    parser.add_argument('--miniature', action='store_true', help='smaller, for tests')
    arguments = parser.parse_args(argv)
    folder, seed = arguments.folder, arguments.seed
    size = MINIATURE if arguments.miniature else FULL
    sys.stdout.write(
        f'Part 1: images of {size.n_heads} simulated head(s) to regional volumes and maps.\n'
        f'Part 2: a simulated study of {size.n_cn} controls and {size.n_pt} patients to R-indices.\n'
    )
    run(
        f'surreal-simulate cohort {folder}/heads --n-cn 0 --n-pt {size.n_heads} --sites 1 '
        f'--seed {seed}'
    )
    run(
        f'surreal-bids {folder}/heads {folder}/heads_out participant -w {folder}/work '
        f'{size.participant}'
    )
    run(
        f'surreal-simulate table {folder}/study --n-cn {size.n_cn} --n-pt {size.n_pt} '
        f'--seed {seed} --maps {folder}/study_out'
    )
    run(
        f'surreal-bids {folder}/study {folder}/study_out group -w {folder}/work '
        f'--roi-table {folder}/study/roi_volumes.tsv --template-resolution 4 {size.group}'
    )
    summarise(folder)


if __name__ == '__main__':
    main()
