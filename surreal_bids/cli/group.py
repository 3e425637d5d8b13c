"""The group level: read the cohort, fit preprocessing, estimate the time, run, report."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from surreal_bids import __version__
from surreal_bids.analysis.maps import MappedCohort, ravens_files
from surreal_bids.analysis.outputs import summarise_cohort
from surreal_bids.bids.derivatives import segmentation_label
from surreal_bids.bids.layout import read_description
from surreal_bids.bids.outputs import group_outputs, output_path, start_dataset
from surreal_bids.bids.survey import check_output_folder, check_work_folder
from surreal_bids.cautions import PARTICIPANTS, Caution, log_cautions
from surreal_bids.cli.execution import Crash, run_workflow
from surreal_bids.cli.main import (
    config_to_toml,
    end_dry_run,
    summarise,
    usable_cores,
    write_config,
)
from surreal_bids.cli.plan import steps_dir
from surreal_bids.cohort.cohort import Cohort, read_cohort, with_logged
from surreal_bids.cohort.volumes import collect_volumes
from surreal_bids.config import (
    NETWORK,
    AppConfig,
    CohortOptions,
    TrainingOptions,
    flag_of,
    set_by_model,
    training_options,
)
from surreal_bids.exceptions import DataError, SurrealError, UsageError
from surreal_bids.files import read_file, refuse_inputs, sole_use, write_text
from surreal_bids.harmonization.empirical_bayes import MIN_FOR_SCALE
from surreal_bids.interfaces.group import CAUTIONS
from surreal_bids.model.bundle import CARD
from surreal_bids.names import CONTROL, PARTICIPANT, PATIENT, Visit, is_label, without_prefix
from surreal_bids.parallel import find_device
from surreal_bids.progress import STATUS, read_status, report, stage
from surreal_bids.published import find_model, model_name
from surreal_bids.rindices.crossfit import FINAL, prepare_folds, usable_folds
from surreal_bids.rindices.limits import children
from surreal_bids.rindices.model import TableModel, prepare, require_trainable
from surreal_bids.rindices.new_sites import adapt_to_controls
from surreal_bids.tables import read_table
from surreal_bids.text import counted, list_briefly
from surreal_bids.workflows.group import init_group_wf, init_training_wf, separate_numbers

LOGGER = logging.getLogger(__name__)


STAGES = {
    'patterns': FINAL,
    'model': FINAL,
    'fold': 'folds',
    'analyse': 'analysis',
    'reports': 'reports of participants',
}
"""Stages that are shown, by the first word of the names of steps."""

FAILURES = 'failures'
"""Folder beside a cohort that says why reports could not be written."""

DONE = 'done'
"""File beside a cohort for which all results have been computed."""


ONLY_TRAINING = {flag_of(each.name) for each in fields(TrainingOptions)} - {
    *('--device', '--random-seed'),
}
"""Options that have no effect on a model to apply."""


def run_group_level(
    config: AppConfig, expected: Sequence[Visit] = (), model: TableModel | None = None
) -> int:
    """Run the group level.

    Everything that can be wrong with the data is found before anything is written.

    Parameters
    ----------
    config
        What was asked for.
    expected
        Visits that should have volumes: those with an image.
    model
        The model of `--model`, as `check_group_options` returned it; `None` trains one.

    Raises
    ------
    DataError
        The data cannot be used, or a step found that they cannot.
    OutputError
        Another run uses the output or work folder, or these cannot be written.
    """
    check_output_folder(config.bids_dir, config.output_dir)
    check_work_folder(config.bids_dir, config.work_dir)
    _require_inputs_kept(config)
    cohort = _read_cohort(config, model, expected)
    log_cautions(cohort.warnings)
    summarise(summarise_cohort(cohort.of_participants(config.participant_label)))
    if model is None:
        source: TableModel | int = _plan_training(config, cohort)
    elif cohort.has_enough_controls:
        source, cohort = adapt_to_controls(model, cohort)
    else:
        source = model.with_unseen_site('skip')
    _warn_of_ids(cohort.of_participants(config.participant_label))
    cohort = with_logged(cohort)
    chosen = cohort.of_participants(config.participant_label)
    # A model that is applied compares with all controls, whoever is chosen.
    analysed = chosen if model is None else cohort
    _check_deviation_maps(config, analysed, chosen)
    _warn_of_replaced(config)
    folder = _folder(config, analysed)
    if config.dry_run:
        end_dry_run()
        return 0
    with sole_use('the group level', config.output_dir, config.work_dir):
        failures = _run(config, analysed, source, folder)
    sys.stdout.write(f'Done; open {output_path(config.output_dir, "group_report")}.\n')
    log_cautions(Caution(*each) for each in json.loads(read_file(folder / CAUTIONS)))
    for label, reason in failures.items():
        LOGGER.warning(
            Caution(
                f'the report could not be written ({reason})',
                'It lacks R-indices, which are in phenotype/rindices.tsv',
                'Run again with --reports-only',
                who=f'sub-{label}',
            )
        )
    return 1 if failures else 0


def _read_cohort(config: AppConfig, model: TableModel | None, expected: Sequence[Visit]) -> Cohort:
    """Read and screen the cohort; warn of children where a model was trained on adults."""
    volumes = config.roi_table or collect_volumes(config.output_dir, segmentation_label(config))
    participants = _find_participants(config)
    if model is None:
        return read_cohort(volumes, participants, config, expected)
    needs = model.preprocessing.requirements
    cohort = read_cohort(volumes, participants, config, expected, needs)
    return replace(cohort, warnings=(*cohort.warnings, *children(model, cohort)))


def check_group_options(config: AppConfig) -> TableModel | None:
    """Check whatever the group level will need that is known before the participant level.

    Returns the model to apply, if there is one.

    Raises
    ------
    SurrealError
        A model, table, column or device is missing or cannot be used.
    """
    _check_model_options(config)
    _require_inputs_kept(config)
    model = None
    if config.model is not None:
        model = TableModel.load(config.model)
    else:
        find_device(config.device)
    # Without the participant level, the group level itself reads everything before it writes.
    if 'participant' in config.analysis_levels:
        _check_tables(config, model)
    return model


def _check_tables(config: AppConfig, model: TableModel | None) -> None:
    """Check the tables that the group level will read, as far as there are any yet."""
    needs = None if model is None else model.preprocessing.requirements
    participants = _find_participants(config)
    for table in filter(None, (config.exclude, *config.phenotype)):
        read_table(table)
    cohort = read_cohort(config.roi_table, participants, config, model=needs)
    counts = cohort.counts
    if config.roi_table is None:
        _warn_of_exclusions(cohort)
    if any(counts.values()):
        patients = counted(counts[PATIENT], 'patient')
        summarise(f'Group level: {counted(counts[CONTROL], "control")} and {patients}\n')
    if model is None:
        usable_folds(counts, config.folds)


def _warn_of_exclusions(cohort: Cohort) -> None:
    """Warn before there are volumes; participants that the user excludes are no surprise."""
    log_cautions(cohort.warnings)
    reasons = cohort.exclusions['reason'].to_dict()
    others = [f'{n} ({why})' for n, why in reasons.items() if not why.startswith('listed in')]
    if others:
        found = f'The group level will exclude {list_briefly(others)}'
        log_cautions([Caution(found, 'They get no R-indices', 'Complete or correct the tables')])


def _find_participants(config: AppConfig) -> Path:
    path = config.bids_dir / 'participants.tsv'
    if not path.exists():
        raise DataError(
            f'{path}: no such file; the group level reads diagnosis, age, sex and site from it: '
            'save your table of participants under this name'
        )
    return path


def _check_model_options(config: AppConfig) -> None:
    if config.model is None:
        return
    given = {
        flag_of(each.name)
        for kind in (CohortOptions, TrainingOptions)
        for each in fields(kind)
        if getattr(config, each.name) != each.default
    }
    if fixed := sorted(set_by_model(config)):
        raise UsageError(
            f'{", ".join(fixed)}: the model of --model defines its preprocessing; remove '
            f'{"this option" if len(fixed) == 1 else "these options"}, or --model to train a model'
        )
    ignored = sorted(given & ONLY_TRAINING)
    if ignored:
        found = f'{", ".join(ignored)}: no effect with --model, which trains nothing'
        LOGGER.warning(Caution(found, 'The options are ignored', 'Remove them'))


def _require_inputs_kept(config: AppConfig) -> None:
    """Refuse tables and a model that this run would replace by its own."""
    card = None if config.model is None else find_model(config.model) / CARD
    given = (config.roi_table, config.exclude, *config.phenotype, card)
    refuse_inputs(group_outputs(config.output_dir), given)


def _plan_training(config: AppConfig, cohort: Cohort) -> int:
    """Fit preprocessing to all participants, without each fold as a check."""
    data, options = prepare(cohort), training_options(config)
    require_trainable(data, options)
    folds = prepare_folds(cohort, options)
    return 0 if folds is None else folds.count


def _warn_of_replaced(config: AppConfig) -> None:
    """Warn of results that were made with other options, which this run replaces."""
    path = output_path(config.output_dir, 'configuration')
    if not (path.is_file() and output_path(config.output_dir, 'group_report').is_file()):
        return
    before, now = (tomllib.loads(text) for text in (path.read_text(), config_to_toml(config)))
    names = [each.name for kind in (CohortOptions, TrainingOptions) for each in fields(kind)]
    names = [*names, 'model', 'roi_table']
    changed = [flag_of(n) for n in names if n != 'device' and before.get(n) != now.get(n)]
    if changed and 'group' in before['analysis_levels']:
        LOGGER.warning(
            Caution(
                f'{config.output_dir}: its group results were made with other options '
                f'({", ".join(changed)})',
                'They are replaced',
                'Choose another output folder to keep both',
            )
        )


def _warn_of_ids(cohort: Cohort) -> None:
    """Warn of participants without a report, because their ids cannot be names of files."""
    others = set(cohort.visits[PARTICIPANT]) - set(reported(cohort))
    if others:
        LOGGER.warning(
            Caution(
                f'{list_briefly(sorted(others))}: the id is not a BIDS label',
                'There is no report of the participant',
                'Use only letters and digits to get one',
                PARTICIPANTS,
            )
        )


def _folder(config: AppConfig, cohort: Cohort) -> Path:
    """Return the work folder of a cohort; for `--reports-only`, it has to hold results."""
    identity = cohort.fingerprint(
        asdict(training_options(config)), _checksum(config), __version__, config.participant_label
    )
    folder = config.work_dir.absolute() / 'group' / identity
    if config.reports_only and not (folder / DONE).is_file():
        raise UsageError(
            f'--reports-only: {config.work_dir} holds no results for these participants and '
            'options; run once without it'
        )
    return folder


def _run(
    config: AppConfig, cohort: Cohort, source: TableModel | int, folder: Path
) -> dict[str, str]:
    """Write what the steps need, and run them; outputs of earlier runs are deleted.

    Returns why reports of participants could not be written, by label.
    """
    shutil.rmtree(folder / FAILURES, ignore_errors=True)
    cohort.save(folder)
    root = config.output_dir.absolute()
    start_dataset(root, config.bids_dir, read_description(config.bids_dir))
    write_config(output_path(root, 'configuration'), config)
    workflow = make_workflow(config, folder, cohort, source, root)
    with ExitStack() as shown:
        follow = _Follower(workflow, steps_dir(config), shown)
        crashes = run_workflow(workflow, config, follow)
    raise_crashes(config, crashes)
    write_text(folder / DONE, '')
    if not config.participant_label:
        from surreal_bids.reports.participant import remove_others

        remove_others(config.output_dir, {without_prefix(name, 'sub') for name in reported(cohort)})
    return {path.name: path.read_text('utf-8') for path in sorted((folder / FAILURES).glob('*'))}


def _checksum(config: AppConfig) -> str | None:
    if config.model is None:
        return None
    return hashlib.sha256((find_model(config.model) / CARD).read_bytes()).hexdigest()


def make_workflow(
    config: AppConfig,
    folder: Path,
    cohort: Cohort,
    source: TableModel | int,
    output_dir: Path,
) -> Any:
    """Build the graph that trains as planned, or applies a model.

    Parameters
    ----------
    config
        The configuration.
    folder
        Where the cohort is kept.
    cohort
        The participants.
    source
        Number of folds to train after the model, or the model to apply.
    output_dir
        The output folder.
    """
    options = asdict(training_options(config))
    chosen = cohort.of_participants(config.participant_label)
    if isinstance(source, TableModel):
        model = os.fspath(source.save(folder / 'model') / CARD)
    else:
        model = init_training_wf(
            cohort_dir=os.fspath(folder),
            options=options,
            checkpoint_dir=os.fspath(folder / 'checkpoints'),
            n_folds=source,
            n_threads=_training_threads(config),
        )
    analysis: dict[str, Any] = {
        'options': options,
        'title': read_description(config.bids_dir).get('Name', config.bids_dir.name),
        'methods': _methods(config, _mapped_tissues(config, chosen)),
        'labels': list(config.participant_label),
        'has_norms': config.roi_table is None and segmentation_label(config) == NETWORK,
    }
    individuals: dict[str, Any] = {
        'participants': reported(chosen),
        'failures_dir': os.fspath(folder / FAILURES),
        'again': config.reports_only,
        'adapted': config.model is None or cohort.has_enough_controls,
    }
    if config.model is not None:
        individuals['model'] = model_name(config.model)
    if cohort.wanted.atlas is not None:
        analysis['has_regions'] = individuals['has_regions'] = True
    return init_group_wf(
        cohort_dir=os.fspath(folder),
        output_dir=os.fspath(output_dir),
        model=model,
        analysis=analysis,
        individuals=individuals,
        n_threads=config.nprocs or usable_cores(),
    )


def reported(cohort: Cohort) -> list[str]:
    """Participants who get a report: those whose names can be those of files."""
    everyone = filter(None, (cohort, cohort.apart))
    names = dict.fromkeys(name for each in everyone for name in each.visits[PARTICIPANT])
    return [name for name in names if is_label(without_prefix(name, 'sub'))]


def _mapped_tissues(config: AppConfig, cohort: Cohort) -> list[str]:
    """Tissues whose RAVENS maps are compared: none where there are no controls to compare with."""
    if cohort.counts[CONTROL] < MIN_FOR_SCALE:
        return []
    visits = cohort.first_visits().visits
    tissues = dict.fromkeys(config.map_tissues)
    return [each for each in tissues if ravens_files(config.output_dir, visits, each)]


def _check_deviation_maps(config: AppConfig, cohort: Cohort, chosen: Cohort) -> None:
    """Refuse maps of deviations without RAVENS maps of controls; warn of visits without a map."""
    if not config.deviation_maps:
        return
    if not config.map_tissues:
        raise UsageError('--deviation-maps: --map-tissues is empty; give a tissue, such as GM')
    for tissue in config.map_tissues:
        mapped = MappedCohort.read(config.output_dir, cohort, tissue)
        lacking = mapped.not_comparable.intersection(chosen.visits.index)
        if len(lacking):
            LOGGER.warning(
                Caution(
                    f'No other control has the site, or category of a covariate, of '
                    f'{counted(len(lacking), "visit")} ({list_briefly(lacking)})',
                    f'They have no map of deviations of {tissue}',
                    'Add controls of these sites, or leave the visits without a map',
                    PARTICIPANTS,
                )
            )


def _methods(config: AppConfig, tissues: list[str]) -> dict[str, Any]:
    """What the methods text needs that is known before anything is found."""
    return {
        'model': None if config.model is None else model_name(config.model),
        'map_tissues': tissues,
        'map_smoothing': config.map_smoothing,
        'deviation_maps': list(config.map_tissues) if config.deviation_maps else [],
        'permutations': config.permutations,
    }


def _training_threads(config: AppConfig) -> int:
    """Threads of a step that trains: the cores are divided among the numbers of patterns.

    With `sparse`, folds are trained side by side, one thread each: the batches are small, and
    threads that wait for each other lose more than they gain, on a busy machine by far.
    """
    if config.preset == 'sparse':
        return config.omp_nthreads
    cores = config.nprocs or usable_cores()
    at_once = len(separate_numbers(asdict(config))) or 1
    return max(config.omp_nthreads, cores // at_once, 1)


class _Follower:
    """Shows the steps of a workflow, whose folders are in `folder`, one stage after the other."""

    def __init__(self, workflow: Any, folder: Path, shown: ExitStack) -> None:
        self._folder, self._shown, self._stage = folder, shown, ''
        names = (name.split('.')[-1] for name in workflow.list_node_names())
        self._counts = Counter(STAGES.get(name.partition('_')[0], '') for name in names)
        self._steps: dict[str, float] = {}

    def __call__(self, names: tuple[str, ...], status: str) -> None:
        """Add what a step has reported, or the whole step when it has ended."""
        step, done, text = names[-1], 1.0, ''
        name = STAGES.get(step.partition('_')[0])
        if name is None:
            return
        if name != self._stage:
            self._shown.close()
            self._shown.enter_context(stage(name))
            self._stage, self._steps = name, {}
        if status in ('start', 'running'):
            so_far, total, text = read_status(self._folder.joinpath(*names, STATUS)) or (0, 1, '')
            done = so_far / total if status == 'running' and total else 0.0
        self._steps[step] = done
        report(sum(self._steps.values()), self._counts[name], text)


def raise_crashes(config: AppConfig, crashes: Sequence[Crash]) -> None:
    """Keep the reports of failed steps, and raise the first error of them as it was raised."""
    for crash in crashes:
        step = ''.join(filter(str.isalnum, crash.step))
        write_text(output_path(config.output_dir, 'group_crash', step=step), crash.report)
    if crashes:
        first = max(crashes, key=lambda crash: crash.exit_code)
        error = SurrealError(
            f'group level, step {first.step}: {first.reason} (details in '
            f'{config.output_dir / "logs"})'
        )
        error.exit_code = first.exit_code
        raise error
