"""A small dataset for the group level: regions that disease, age, head size and site change."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from surreal_bids.cohort.cohort import Cohort, read_cohort
from surreal_bids.config import AppConfig
from tests.cohort.study import QUICK, Study, make_study


def write_dataset(folder: Path, study: Study | None = None) -> Path:
    """Write a BIDS dataset without images, and `volumes.tsv` beside it; the dataset."""
    study = study or make_study()
    root = folder / 'dataset'
    root.mkdir()
    description = {'Name': 'Tiny', 'BIDSVersion': '1.9.0'}
    (root / 'dataset_description.json').write_text(json.dumps(description))
    study.people.to_csv(root / 'participants.tsv', sep='\t', na_rep='n/a')
    study.features.to_csv(folder / 'volumes.tsv', sep='\t', na_rep='n/a')
    return root


def make_config(root: Path, **options: Any) -> AppConfig:
    """A configuration of the group level that starts from the table of volumes."""
    folder = root.parent
    defaults = {
        'roi_table': folder / 'volumes.tsv',
        'work_dir': folder / 'work',
        'nprocs': 1,
    }
    return AppConfig(root, folder / 'out', ('group',), **{**asdict(QUICK), **defaults, **options})


def read_study(folder: Path, study: Study | None = None, sessions: bool = False) -> Cohort:
    """Write a dataset and read it as the group level does; `sessions`: two of everyone."""
    study = study or make_study()
    config = make_config(write_dataset(folder, study))
    if sessions:
        with_sessions(study).to_csv(folder / 'volumes.tsv', sep='\t')
    return read_cohort(config.roi_table, config.bids_dir / 'participants.tsv', config)


def with_sessions(study: Study) -> pd.DataFrame:
    """Volumes of two sessions of everyone, the second smaller by one."""
    first = study.features.assign(session_id='ses-1')
    second = (study.features - 1).assign(session_id='ses-2')
    return pd.concat([first, second])
