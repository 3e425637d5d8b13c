"""Run both levels of the app on simulated data and compare the results with the truth.

python docs/demo.py FOLDER [--seed N] [--miniature]
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

PROGRAMS = Path(sys.executable).parent

LOG = 'log.txt'
"""File that keeps what the commands print."""

COURSE = '--side-dominance 0.3 --memory --visits 2'
"""What the study has besides one visit of each participant: disease that is stronger on one side, a
memory score, and second visits."""

SMALLEST_REGION_MM3 = 1000
"""Volumes of smaller regions are not compared: they have few voxels of 2 mm."""


@dataclass(frozen=True)
class Size:
    """How much is simulated, and options that save time.

    Attributes
    ----------
    n_heads
        Number of patients with a T1w image.
    n_cn, n_pt, n_mci
        Controls, patients and participants with MCI of the study.
    simulation, participant, group
        Options of the simulation of heads and of the two levels.
    """

    n_heads: int
    n_cn: int
    n_pt: int
    n_mci: int
    simulation: str
    participant: str
    group: str


FULL = Size(2, 100, 150, 40, '', '--template-resolution 2', '')
MINIATURE = Size(
    1,
    50,
    75,
    20,
    '--voxel-size 3',
    '--template-resolution 4',
    '--n-patterns 3 --repetitions 4 --iterations 300 --folds 2',
)


def run(folder: Path, command: str) -> str:
    """Show and run a command with its progress; an error ends the demo.

    What it prints is kept in `log.txt` and returned.
    """
    sys.stdout.write(f'$ {command}\n')
    sys.stdout.flush()
    program, *arguments = shlex.split(command)
    done = subprocess.run(
        [PROGRAMS / program, *arguments], stdout=subprocess.PIPE, text=True, check=False
    )
    with (folder / LOG).open('a', encoding='utf-8') as log:
        log.write(f'$ {command}\n{done.stdout}\n')
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


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
            f'  {participant}: {len(ratio)} regions above 1 ml, median difference from the true '
            f'volume {error:.1%}\n'
        )
    return ''.join(lines)


def read_indices(folder: Path) -> pd.DataFrame:
    """Read group and R-indices of the study at first visits."""
    table = pd.read_table(folder / 'study_out' / 'phenotype' / 'rindices.tsv')
    first = table.drop_duplicates('participant_id').set_index('participant_id')
    return first[['group', *pattern_columns(table)]]


def pattern_columns(table: pd.DataFrame) -> list[str]:
    """Names of the columns r1, r2, ..."""
    return [name for name in table if name[0] == 'r' and name[1:].isdecimal()]


def summarise(folder: Path, score: str) -> None:
    """Print what was found beside the truth, what to open, and what to run next."""
    indices = read_indices(folder)
    values = indices.drop(columns='group')
    truth = pd.read_table(folder / 'study' / 'severities.tsv')
    sys.stdout.write(
        'WHAT WAS FOUND\n'
        f'Heads, volumes measured by the network:\n{compare_heads(folder)}'
        f'Study: {values.shape[1]} patterns found, {len(pattern_columns(truth))} simulated; '
        f'{values.isna().any(axis=1).sum()} of {len(values)} participants lack an R-index.\n'
        'How well R-indices order patients by severity (c-index), and maps show the affected\n'
        'regions (AUC); 0.5 is chance, 1 is perfect:\n'
        f'{score}'
    )
    patients = values[indices['group'] == 'PT'].dropna()
    typical = patients.sum(axis=1).idxmax()
    sys.stdout.write(
        'OPEN\n'
        f'  {folder}/study_out/group.html  the group: patterns, MCI, memory, change, methods\n'
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
    heads = 'a simulated head' if size.n_heads == 1 else f'{size.n_heads} simulated heads'
    sys.stdout.write(
        f'Part 1: images of {heads} to regional volumes and maps.\n'
        f'Part 2: a simulated study, {size.n_cn} controls, {size.n_pt} patients and '
        f'{size.n_mci} with MCI, to R-indices.\n'
    )
    folder.mkdir(parents=True, exist_ok=True)
    at = shlex.quote(str(folder))
    run(
        folder,
        f'surreal-simulate cohort {at}/heads --n-cn 0 --n-pt {size.n_heads} --sites 1 '
        f'--seed {seed} {size.simulation}'.rstrip(),
    )
    run(
        folder,
        f'surreal-bids {at}/heads {at}/heads_out participant -w {at}/work {size.participant}',
    )
    run(
        folder,
        f'surreal-simulate table {at}/study --n-cn {size.n_cn} --n-pt {size.n_pt} '
        f'--n-mci {size.n_mci} {COURSE} --seed {seed} --maps {at}/study_out',
    )
    run(
        folder,
        f'surreal-bids {at}/study {at}/study_out group -w {at}/work '
        f'--roi-table {at}/study/roi_volumes.tsv --patient-label PT --template-resolution 4 '
        f'{size.group}'.rstrip(),
    )
    score = run(
        folder,
        f'surreal-simulate score {at}/study_out/phenotype/rindices.tsv '
        f'{at}/study/severities.tsv --maps {at}/study_out',
    )
    summarise(folder, score)


if __name__ == '__main__':
    main()
