"""R-indices as a file: a TSV with a JSON that says what each column means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from surreal_bids.bids.participants import PARTICIPANT, SESSION
from surreal_bids.files import write_json, write_tsv
from surreal_bids.harmonization.combat import UNHARMONIZED
from surreal_bids.tables.groups import CONTROL, PATIENT
from surreal_bids.tables.pipeline import STD_SUFFIX
from surreal_bids.tables.preprocessing import COMPLETE, INCOMPLETE, NONE_BEYOND

DECIMALS = 6
"""R-indices are written to the millionth: their rounding error is a tenth of that."""

_DESCRIPTIONS: dict[str, dict[str, Any]] = {
    PARTICIPANT: {'Description': 'Person, named as in the table of features'},
    SESSION: {'Description': 'Session'},
    'group': {
        'Description': 'Group in training',
        'Levels': {CONTROL: 'control', PATIENT: 'patient'},
    },
    'in_range': {
        'Description': "Whether the person's profile of features lies within the population that "
        'the model was trained on; if not, the R-indices are an extrapolation',
        'Levels': {'true': 'within', 'false': 'outside'},
    },
    'beyond_range': {
        'Description': 'Covariates that lie outside the range seen among the controls in training, '
        f'or {NONE_BEYOND}; their effect was extrapolated'
    },
    'n_imputed': {
        'Description': 'Number of features that were missing and filled in with what a control of '
        'the same covariates would have'
    },
    'status': {
        'Description': 'Whether everything could be done for this person',
        'Levels': {
            COMPLETE: 'everything was done',
            UNHARMONIZED: 'the site is not known to the model, so features were used as measured; '
            'the R-indices hold whatever the scanner does',
            INCOMPLETE: 'a covariate, the ICV or the site is missing, so nothing was computed',
        },
    },
}


def write_results(
    path: Path, results: pd.DataFrame, pattern_names: Sequence[str], group: pd.Series | None = None
) -> list[Path]:
    """Write R-indices and, beside them, the JSON that describes the columns.

    Parameters
    ----------
    path
        The TSV file; the JSON has the same name with its own extension.
    results
        What `TableModel.apply` returned.
    pattern_names
        Names of the R-indices.
    group
        CN or PT of each person, where it is known.
    """
    table = results.round(DECIMALS)
    if 'in_range' in table:
        table['in_range'] = table['in_range'].map({True: 'true', False: 'false'})
    if group is not None:
        table.insert(0, 'group', group)
    table = table.rename_axis(PARTICIPANT).reset_index()
    written = write_tsv(path, table)
    described = describe_results(table.columns, pattern_names)
    return [written, write_json(path.with_suffix('.json'), described)]


def describe_results(
    columns: Iterable[str], pattern_names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Describe the columns of a table of R-indices as a BIDS sidecar does."""
    known = _DESCRIPTIONS | _describe_patterns(pattern_names)
    return {column: known[column] for column in columns}


def _describe_patterns(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    indices = {
        name: {
            'Description': f'R-index of pattern {name}: how strongly the pattern is expressed, '
            'near 0 for not at all and 1 for as strongly as in training patients; not cut off',
            'Units': '1',
        }
        for name in names
    }
    spreads = {
        f'{name}{STD_SUFFIX}': {
            'Description': f'Standard deviation of {name} over the members of the consensus: its '
            'uncertainty from training',
            'Units': '1',
        }
        for name in names
    }
    return indices | spreads
