"""`surreal-gan replicate`: the patterns of a model in a second cohort."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from surreal_bids import __version__
from surreal_bids.cautions import describe_cautions, log_cautions
from surreal_bids.cli.main import summarise, usable_cores
from surreal_bids.config import CohortOptions, TrainingOptions
from surreal_bids.exceptions import DataError, OutputError, UsageError
from surreal_bids.files import is_unfinished, refuse_inputs, replacing, sole_use, write_text
from surreal_bids.parallel import find_device
from surreal_bids.published import find_model, model_name
from surreal_bids.text import list_briefly

if TYPE_CHECKING:
    import pandas as pd

    from surreal_bids.analysis.replication import Replication
    from surreal_bids.cohort.cohort import Cohort
    from surreal_bids.rindices.model import TableModel

RESULTS, EXCLUSIONS = 'replication.tsv', 'exclusions.tsv'
REPORT, SUMMARY, CHECKPOINTS = 'replication.html', 'summary.txt', 'checkpoints'
FIGURES = 'group_figures'
"""Files and folders of the results."""

FILES = (RESULTS, 'replication.json', EXCLUSIONS, 'exclusions.json', REPORT, SUMMARY)

RINDICES = 'rindices.tsv'
"""Out-of-fold R-indices in the folder of a model that `surreal-gan fit` wrote."""

# Tables and models are imported where they are used: torch takes seconds, which help need not.


def write_replication(
    arguments: argparse.Namespace,
    options: CohortOptions,
    training: TrainingOptions,
    model_files: Sequence[Path],
) -> int:
    """Read the model and the second cohort, compare their patterns, and write the results.

    Parameters
    ----------
    arguments
        Command line of `surreal-gan replicate`.
    options, training
        How the tables are read, and how the model of the second cohort is trained.
    model_files
        Files of the folder of the model, which are not to be replaced.
    """
    out, tables = arguments.out, (arguments.table, arguments.participants)
    originals = (arguments.original, arguments.original_participants)
    if arguments.original is None and arguments.original_participants is not None:
        raise UsageError('--original-participants: give the table of volumes with --original, too')
    _require_free_folder(out, arguments.overwrite)
    outputs = [out, *(out / name for name in FILES)]
    refuse_inputs(outputs, [*tables, *originals, options.exclude, *model_files])

    from surreal_bids.analysis.outputs import summarise_cohort
    from surreal_bids.analysis.replication import replicate, require_second_cohort
    from surreal_bids.cohort.cohort import with_logged
    from surreal_bids.model.bundle import claim_checkpoints, remove_checkpoints
    from surreal_bids.rindices.model import TableModel
    from surreal_bids.tables import prefix_errors

    model = TableModel.load(arguments.model)
    cohort = _read_second_cohort(model, *tables, options)
    original, indices = _read_original(model, arguments)
    log_cautions(cohort.warnings)
    summarise(summarise_cohort(cohort))
    names = ', '.join(str(path) for path in tables if path is not None)
    with prefix_errors(names):
        require_second_cohort(model, cohort)
    n_procs = usable_cores() if find_device(training.device) == 'cpu' else 1
    made_from = cohort.fingerprint(asdict(training), __version__, str(arguments.model))
    with sole_use('replication', out), prefix_errors(names):
        claim_checkpoints(out / CHECKPOINTS, made_from, arguments.overwrite)
        found = replicate(
            model,
            with_logged(cohort),
            training,
            original,
            indices,
            checkpoint_dir=out / CHECKPOINTS,
            n_procs=n_procs,
        )
        text = _write_results(out, found, model_name(arguments.model), arguments.table.name)
        remove_checkpoints(out / CHECKPOINTS)
    summarise(f'\n{text}\n')
    sys.stdout.write(f'The results are in {out}; open {out / REPORT}.\n')
    log_cautions(found.cautions)
    return 0


def _require_free_folder(folder: Path, overwrite: bool) -> None:
    """Refuse a folder that holds other files, unless told to overwrite results there."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f'{folder}: a file of this name exists; choose another output folder')
    if overwrite or not folder.exists():
        return
    allowed = {CHECKPOINTS}
    if is_unfinished(folder / RESULTS):
        allowed |= {*FILES, FIGURES}
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith('.'))
    foreign = [name for name in names if name not in allowed]
    if foreign:
        raise OutputError(
            f'{folder}: holds {list_briefly(foreign)}; choose another folder or use --overwrite'
        )


def _read_second_cohort(
    model: TableModel, table: Path, participants: Path | None, options: CohortOptions
) -> Cohort:
    """Read the second cohort for the model, which is to learn its sites; warn of children."""
    from surreal_bids.cohort.cohort import read_cohort
    from surreal_bids.rindices.limits import children

    needs = model.preprocessing.requirements
    cohort = read_cohort(table, participants, options, model=needs)
    return replace(cohort, warnings=(*cohort.warnings, *children(model, cohort)))


def _read_original(
    model: TableModel, arguments: argparse.Namespace
) -> tuple[Cohort | None, pd.DataFrame | None]:
    """Read the participants of the original study, and their out-of-fold R-indices."""
    if arguments.original is None:
        return None, None
    from surreal_bids.analysis.replication import require_original
    from surreal_bids.cohort.cohort import read_cohort
    from surreal_bids.tables import prefix_errors

    needs = model.preprocessing.requirements
    with prefix_errors('--original'):
        original = read_cohort(arguments.original, arguments.original_participants, model=needs)
        original = require_original(model, original)
    path = find_model(arguments.model) / RINDICES
    if not path.is_file():
        return original, None
    return original, _read_held_out(path, model.pattern_names)


def _read_held_out(path: Path, names: Iterable[str]) -> pd.DataFrame | None:
    """Read out-of-fold R-indices by visit; None if the table has none."""
    import pandas as pd

    from surreal_bids.rindices.crossfit import HELD_OUT
    from surreal_bids.tables import read_visit_table

    table = read_visit_table(path)
    lacking = [name for name in (*names, HELD_OUT) if name not in table.columns]
    if lacking:
        raise DataError(
            f'{path}: no column {list_briefly(lacking)}; give the folder that "surreal-gan fit" '
            'wrote, or remove this file'
        )
    indices = pd.DataFrame({name: table.numbers(name) for name in names})
    is_held_out = table.text[HELD_OUT].eq('true')
    return indices[is_held_out] if is_held_out.any() else None


def _write_results(folder: Path, found: Replication, model: str, title: str) -> str:
    """Write tables, report and summary; return the sentence to quote."""
    from surreal_bids.analysis.outputs import write_described
    from surreal_bids.reports.replication import (
        ReplicationReport,
        describe_own_number,
        quote,
        write_replication_report,
    )

    text = '\n'.join([quote(found), *describe_own_number(found)])
    earlier = [folder / name for name in FILES if name != RESULTS]
    with replacing(folder / RESULTS, [path for path in earlier if path.exists()]):
        write_described('exclusions', folder / EXCLUSIONS, found.forward.cohort.exclusions)
        write_replication_report(ReplicationReport(folder / REPORT, found, model, title))
        write_text(folder / SUMMARY, f'{text}\n\n{describe_cautions(found.cautions)}')
        write_described('replication', folder / RESULTS, found.table)
    return text
