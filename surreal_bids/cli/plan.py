"""The plan of the participant level: what has to be done for each image, and why."""

from __future__ import annotations

import hashlib
import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files as package_files
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

from surreal_bids import __version__
from surreal_bids.bids.derivatives import (
    ANATOMY,
    LESIONS,
    Reusable,
    atlas_label,
    derivative_folders,
    find_reusable,
)
from surreal_bids.bids.layout import T1wImage
from surreal_bids.bids.outputs import (
    Provenance,
    Record,
    VisitOutputs,
    digest_of,
    digest_of_files,
    fingerprint,
)
from surreal_bids.bids.survey import Problem, Survey, free_bytes, is_blank
from surreal_bids.cautions import FIGURES, Caution, log_cautions
from surreal_bids.cli.main import usable_cores
from surreal_bids.config import NETWORK, AppConfig, uses_network
from surreal_bids.exceptions import DataError
from surreal_bids.files import MISSING
from surreal_bids.images import Image, load_image
from surreal_bids.imaging.atlas import read_atlas_set, read_regions, strip_atlases
from surreal_bids.imaging.belonging import (
    check_known,
    check_lesion,
    check_mask,
    check_same_head,
    check_segmentation,
    check_tissue_maps,
)
from surreal_bids.names import Visit, visit_name
from surreal_bids.progress import PROGRESS, with_bar
from surreal_bids.regions import label_table
from surreal_bids.templates import TEMPLATE_SPACE, write_template
from surreal_bids.text import align, counted, list_briefly
from surreal_bids.workflows.anatomy import AtlasFiles
from surreal_bids.workflows.participant import AnatomySettings, init_participant_wf

if TYPE_CHECKING:
    from nipype.pipeline.engine import Workflow

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """One T1w image to process.

    Attributes
    ----------
    image
        The T1w image.
    reusable
        Results of other programs for this image.
    made_from
        Fingerprint of everything that its outputs depend on.
    reason
        Why the image has to be processed; empty if its outputs are complete.
    """

    image: T1wImage
    reusable: Reusable
    made_from: dict[str, Any]
    reason: str = ''

    @property
    def participant(self) -> str:
        """Label of the participant."""
        return self.image.participant

    @property
    def workflow_name(self) -> str:
        """Name of its workflow; Nipype does not allow plus signs."""
        return self.image.name.replace('+', '_plus_')

    @property
    def entities(self) -> dict[str, str | None]:
        """Participant and session as entities of output names."""
        return {'participant': self.image.participant, 'session': self.image.session}


@dataclass(frozen=True)
class Plan:
    """The work of the participant level.

    Attributes
    ----------
    jobs
        Images to process and finished images, in the order of the dataset.
    problems
        Images or participants that cannot be processed, and why.
    other_sessions
        Images of the same participants in sessions that were not selected.
    """

    jobs: list[Job]
    problems: list[Problem]
    other_sessions: list[Job]

    @property
    def pending(self) -> list[Job]:
        """Images that have to be processed."""
        return [job for job in self.jobs if job.reason]


def make_plan(config: AppConfig, survey: Survey) -> Plan:
    """Find the results to reuse and the complete outputs of each image."""
    identity = study_identity(config)
    bad = {problem.name for problem in survey.problems}
    sound = [image for image in survey.images if image.name not in bad]
    jobs, problems = _plan_jobs(config, identity, sound)
    others, _ = _plan_jobs(config, identity, survey.other_sessions)
    return Plan(jobs, [*survey.problems, *problems], others)


def _plan_jobs(
    config: AppConfig, identity: Mapping[str, Any], images: Iterable[T1wImage]
) -> tuple[list[Job], list[Problem]]:
    folders = derivative_folders(config)
    jobs, problems = [], []
    for image in images:
        try:
            reusable = _without_blank_mask(image, find_reusable(folders, image))
            options = {**identity, 'segmentation': reusable.dseg_name or atlas_label(config)}
            made_from = fingerprint([image.path, *reusable.files.values()], options)
        except (DataError, OSError) as error:
            problems.append(Problem(image.name, str(error), 'plan'))
            continue
        reason = why_not_done(config, image.visit, made_from)
        jobs.append(Job(image, reusable, made_from, reason))
    return jobs, problems


def _without_blank_mask(image: T1wImage, reusable: Reusable) -> Reusable:
    """Ignore a lesion mask without any voxel: there is no lesion."""
    if reusable.lesion is None or not is_blank(reusable.lesion):
        return reusable
    LOGGER.info('%s: no lesion, since all voxels of %s are 0', image.name, reusable.lesion)
    return replace(reusable, lesion=None)


def reuse_counts(config: AppConfig, jobs: Sequence[Job]) -> dict[tuple[str, str], int]:
    """Count the images for which each result of each program was found."""
    return {
        (name, result): sum(job.reusable.found_in(name)[result] for job in jobs)
        for name in derivative_folders(config)
        for result in Reusable().found_in(name)
    }


def reuse_table(config: AppConfig, jobs: Sequence[Job]) -> str:
    """Format the counts of :func:`reuse_counts` as text; empty without `--derivatives`."""
    counts = reuse_counts(config, jobs)
    rows = [(name, result, f'{n} of {len(jobs)}') for (name, result), n in counts.items()]
    return align([('Program', 'Result', 'Images'), *rows]) if rows else ''


def gaps(config: AppConfig, jobs: Sequence[Job]) -> list[Caution]:
    """List the results that were found for some images only, or for none."""
    found = []
    for name, result in reuse_counts(config, jobs):
        if name == LESIONS:  # Few participants have one.
            continue
        lacking = [job.image.name for job in jobs if not job.reusable.found_in(name)[result]]
        if lacking:
            found.append(_gap(config, name, result, lacking, len(jobs)))
    return found


def _gap(
    config: AppConfig, name: str, result: str, lacking: Sequence[str], n_images: int
) -> Caution:
    n = n_images - len(lacking)
    found = f'{name}: {result} found for {n} of {counted(n_images, "image")} to process'
    if n:
        found += f' (not for {list_briefly(lacking)})'
    if name in ANATOMY:
        others = 'the others, so images are processed in two ways' if n else 'these images'
        return Caution(
            found,
            f'This step is computed for {others}',
            f'Complete the results of {name}, unless this is intended',
        )
    return Caution(
        f'{found}; {counted(len(lacking), "image")} will be segmented by {atlas_label(config)}',
        f'Regions of two programs do not share a group analysis: with -d {name}, the group level '
        f'excludes images without a segmentation of {name}',
        f'Complete the results of {name}, or remove -d {name} for the same segmentation of all '
        'images',
    )


def refusals(jobs: Iterable[Job]) -> list[Caution]:
    """List the existing results that are not used, and why."""
    return [
        Caution(
            f'existing result not used: {reason}',
            'It is computed again, so images are processed in two ways',
            'Correct the result, or ignore this',
            who=job.image.name,
        )
        for job in jobs
        for reason in job.reusable.refused.values()
    ]


def why_not_done(
    config: AppConfig, visit: Visit, made_from: Mapping[str, Any] | None = None
) -> str:
    """Explain why a visit has to be processed; empty if its outputs are complete.

    Without `made_from`, the fingerprint of the outputs is not compared.
    """
    return Record.read(config.output_dir, visit).why_not_done(made_from)


def log_reuse(config: AppConfig, jobs: Sequence[Job]) -> None:
    """Warn of results of other programs that are missing or not used."""
    for caution in gaps(config, jobs):
        PROGRESS.warning(str(caution))  # Now, and in the list that ends the run.
    log_cautions([*gaps(config, jobs), *refusals(jobs)])


def study_identity(config: AppConfig) -> dict[str, Any]:
    """Return the options and files that all outputs depend on, as JSON can store them.

    Built-in files are identified by name, because every fingerprint contains the version of this
    package. The weights of the network can be exchanged and are identified by their digest.
    """
    return {
        'template': TEMPLATE_SPACE,
        'template_resolution': config.template_resolution,
        'labels': _network_digest() if uses_network(config) else _atlases_digest(config),
    }


def steps_dir(config: AppConfig) -> Path:
    """Return the work folder of the workflows.

    Nipype reuses a step if its inputs are unchanged. It does not notice another version of the
    program, other weights of the network, or other outputs, so each combination of these has its
    own folder.
    """
    network = _network_digest() if uses_network(config) else ''
    parts = (config.bids_dir.resolve(), config.output_dir.resolve(), network)
    digest = hashlib.sha256('\n'.join(map(str, parts)).encode()).hexdigest()[:12]
    return config.work_dir.absolute() / f'surreal_bids-{__version__}-{digest}'


@cache
def _network_digest() -> str:
    return digest_of(
        Path(str(package_files('surreal_bids') / 'data' / 'network' / 'weights.safetensors'))
    )


def _atlases_digest(config: AppConfig) -> str:
    """Return the digest of the files in the folder of labelled brains."""
    folder = Path(config.segmentation)
    return digest_of_files(path for path in folder.glob('*') if path.is_file())


def check_anatomy_options(config: AppConfig) -> None:
    """Check the labelled brains of the user before any processing."""
    if not uses_network(config):
        read_atlas_set(Path(config.segmentation))


@dataclass(frozen=True)
class Study:
    """Settings that all participants of a run share.

    Attributes
    ----------
    settings
        Files and options of the workflows.
    atlas, atlas_licence
        Name and licence of the segmentation.
    """

    settings: AnatomySettings
    atlas: str
    atlas_licence: str


def prepare_study(config: AppConfig) -> Study:
    """Write the template to the work folder, and read and check the labelled brains."""
    name = f'{TEMPLATE_SPACE}_{config.template_resolution:g}mm'
    template_dir = write_template(
        steps_dir(config) / 'templates' / name, config.template_resolution
    )
    atlas = None
    if not uses_network(config):
        found = read_atlas_set(Path(config.segmentation).absolute())
        atlas = strip_atlases(found, config.work_dir.absolute() / 'atlases')
    atlases = atlas.atlases if atlas else ()
    muse = Path(str(package_files('surreal_bids') / 'data' / 'muse.tsv'))
    settings = AnatomySettings(
        template_dir=template_dir,
        atlases=tuple(AtlasFiles(each.t1w, each.labels) for each in atlases),
        regions_file=atlases[0].labels.parent / 'dseg.tsv' if atlases else muse,
        network=atlas is None,
        device=config.device,
        omp_nthreads=config.omp_nthreads,
    )
    return Study(
        settings=settings,
        atlas=atlas.name if atlas else NETWORK,
        atlas_licence=atlas.licence if atlas else network_licence(),
    )


def network_licence() -> str:
    """Read the licence of the weights of the built-in network."""
    path = package_files('surreal_bids') / 'data' / 'network' / 'LICENSE'
    return path.read_text('utf-8').strip()


NON_COMMERCIAL = re.compile(r'^.*(?:commercial|BY-NC).*$', re.MULTILINE)
"""Line of a licence that excludes commercial use."""


def log_licence(study: Study, jobs: Iterable[Job]) -> None:
    """Tell that the segmentation of images is not for commercial use, where this is so."""
    terms = NON_COMMERCIAL.search(study.atlas_licence)
    if terms and any(job.reusable.dseg is None for job in jobs):
        PROGRESS.info('Licence (%s): %s', study.atlas, terms[0])


def make_workflow(config: AppConfig, study: Study, job: Job) -> Workflow:
    """Build the workflow of one image."""
    return init_participant_wf(
        t1w=job.image.path,
        output_dir=config.output_dir.absolute(),
        entities=job.entities,
        settings=study.settings,
        reusable=job.reusable,
        provenance=provenance_of(config, study, job),
        made_from=job.made_from,
        name=job.workflow_name,
    )


def provenance_of(config: AppConfig, study: Study, job: Job) -> Provenance:
    """Return the sources of the outputs of a job as BIDS URIs."""
    reusable = job.reusable
    folders = {'raw': config.bids_dir.absolute(), **derivative_folders(config)}

    def uri(path: Path, name: str) -> str:
        return f'bids:{name}:{path.relative_to(folders[name]).as_posix()}'

    computed = [uri(job.image.path, 'raw')]
    if reusable.lesion is not None:
        computed.append(uri(reusable.lesion, reusable.lesion_name or 'raw'))

    def sources(path: Path | None, name: str | None) -> list[str]:
        return computed if path is None or name is None else [uri(path, name)]

    given = reusable.dseg_name is not None
    return Provenance(
        t1w=sources(reusable.t1w, reusable.anatomy_name),
        mask=sources(reusable.mask or reusable.t1w, reusable.anatomy_name),
        segmentation=sources(reusable.dseg, reusable.dseg_name),
        atlas=reusable.dseg_name or study.atlas,
        atlas_licence='licence of the program that made it' if given else study.atlas_licence,
        regions_computed=not given,
    )


def outputs_of(config: AppConfig, study: Study, job: Job) -> VisitOutputs:
    """Return the paths of the outputs of a job."""
    return VisitOutputs(
        root=config.output_dir.absolute(),
        participant=job.image.participant,
        session=job.image.session,
        atlas=job.reusable.dseg_name or study.atlas,
    )


AT_A_TIME = 4
"""Images checked at a time; each needs up to 1 GB."""


def without_bad_results(plan: Plan) -> Plan:
    """Check the results that pending images would reuse, and exclude images with errors.

    Every file is compared with the T1w image. The dry run and the run use this function.
    """
    reusing = [job for job in plan.pending if job.reusable.files]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        checked = pool.map(_what_is_wrong, reusing)
        found = list(with_bar(checked, 'Checking derivatives', len(reusing)))
    problems = [Problem(job.image.name, reason) for job, reason in zip(reusing, found) if reason]
    bad = {problem.name for problem in problems}
    kept = [job for job in plan.jobs if job.image.name not in bad]
    return replace(plan, jobs=kept, problems=[*plan.problems, *problems])


def _what_is_wrong(job: Job) -> str:
    """Return the first error of the results of other programs; warn of doubts."""
    path = job.image.path
    try:
        for path, doubt in _compare(job, job.reusable):
            if doubt:
                remedy = (
                    'Compare it with the T1w image, and remove it to compute a new one if it is '
                    'wrong'
                )
                found = f'{path}: {doubt}'
                LOGGER.warning(
                    Caution(found, 'Volumes may be wrong', remedy, FIGURES, who=job.image.name)
                )
    except DataError as error:
        return str(error) if str(path) in str(error) else f'{path}: {error}'
    return ''


def _compare(job: Job, reusable: Reusable) -> Iterator[tuple[Path, str]]:
    """Yield each file before it is compared with the T1w image in use, and doubts about it."""
    yield (path := reusable.t1w or job.image.path), ''
    t1w = load_image(path)
    # An average of several images is in a place of its own.
    if reusable.t1w is not None and not job.image.passed_over:
        check_same_head(t1w, load_image(job.image.path))
    if reusable.mask is not None:
        yield reusable.mask, ''
        check_mask(load_image(reusable.mask), t1w)
    if reusable.lesion is not None:
        yield reusable.lesion, ''
        check_lesion(load_image(reusable.lesion), t1w)
    if reusable.tpms:
        yield reusable.tpms[0], ''
        maps = [load_image(path) for path in reusable.tpms]
        yield reusable.tpms[0], check_tissue_maps(maps, t1w)
    if reusable.dseg is not None:
        yield reusable.dseg, ''
        for doubt in _check_segmentation(reusable, reusable.dseg, t1w):
            yield reusable.dseg, doubt


def _check_segmentation(reusable: Reusable, path: Path, t1w: Image) -> Iterator[str]:
    # Imported here because torch is slow to import.
    from surreal_bids.imaging.fusion import volumes_of_labels

    dseg = load_image(path)
    volumes = volumes_of_labels(dseg)
    if reusable.dseg_table is not None:
        regions = read_regions(reusable.dseg_table)
    else:
        regions = label_table(reusable.numbering, volumes)
        yield check_known(volumes, regions)
    yield check_segmentation(dseg, regions, t1w)


CPU_SECONDS, PROCESS_GB, OUTPUT_GB, WORK_GB = 102.0, 3.0, 0.24, 0.34
"""Processor time, memory of the largest step, outputs and intermediate results of one head at
1 mm, segmented by the network."""


def estimate(config: AppConfig, n_images: int) -> str:
    """Estimate what images need, from one measured head."""
    nprocs = config.nprocs or usable_cores()
    minutes = n_images * CPU_SECONDS / nprocs / 60
    time = f'{minutes / 60:.1f} h' if minutes >= 60 else f'{max(1, round(minutes))} min'
    return (
        f'Estimate for images of 1 mm: about {time} on {counted(nprocs, "core")}, '
        f'{PROCESS_GB * nprocs:.0f} GB of memory, {OUTPUT_GB * n_images:.1f} GB for outputs and '
        f'{WORK_GB * n_images:.1f} GB for intermediate results'
    )


def lacking_space(config: AppConfig, n_images: int) -> list[Caution]:
    """Name the folders that have less free space than a run is estimated to need."""
    needed = {config.output_dir: OUTPUT_GB * n_images, config.work_dir: WORK_GB * n_images}
    free = {folder: free_bytes(folder) / 1e9 for folder in needed}
    return [
        Caution(
            f'{folder}: {free[folder]:.1f} GB are free, but about {size:.1f} GB are needed',
            'The run will stop when the disk is full',
            'Free some space, or choose another folder',
        )
        for folder, size in needed.items()
        if free[folder] < size
    ]


def describe_plan(config: AppConfig, survey: Survey, plan: Plan | None) -> str:
    """Summarise the dataset and the work of the participant level, if it is run, as text."""
    n_participants = len({image.participant for image in survey.images})
    problems = plan.problems if plan else survey.problems
    bad = {problem.name for problem in problems}
    rows = [
        (
            visit_name((image.participant, None)),
            f'ses-{image.session}' if image.session else MISSING,
            str(image.path.relative_to(config.bids_dir.absolute())),
            _check(image, bad),
        )
        for image in survey.images
    ]
    sections = [
        f'{survey.description.get("Name", "Dataset")} in {config.bids_dir}: '
        f'{counted(len(survey.images), "T1w image")} of {counted(n_participants, "participant")}',
        align([('Participant', 'Session', 'T1w image', 'Check'), *rows]),
        '\n'.join(['Problems:', *(f'  {each}' for each in problems)])
        if problems
        else 'No problems with images.',
    ]
    if plan:
        sections.append(_to_do(config, plan))
    return '\n\n'.join(sections) + '\n'


def _check(image: T1wImage, bad: set[str]) -> str:
    if image.name in bad or visit_name((image.participant, None)) in bad:
        return 'problem, see below'
    return f'first of {len(image.passed_over) + 1}' if image.passed_over else 'good'


def _to_do(config: AppConfig, plan: Plan) -> str:
    """Summarise the images to process, with reasons and costs."""
    pending = plan.pending
    done = len(plan.jobs) - len(pending)
    lines = [f'To process: {counted(len(pending), "image")}; already done: {done}']
    lines += [f'  {reason}: {names}' for reason, names in _by_reason(pending).items()]
    if n := sum(job.reusable.lesion is not None for job in plan.jobs):
        lines.append(f'With a lesion mask: {counted(n, "image")}')
    if table := reuse_table(config, plan.jobs):
        lines += ['Results found in --derivatives:', indent(table, '  ')]
        log_cautions([*gaps(config, plan.jobs), *refusals(plan.jobs)])
    if pending:
        lines.append(estimate(config, len(pending)))
        log_cautions(lacking_space(config, len(pending)))
    return '\n'.join(lines)


def _by_reason(jobs: Sequence[Job]) -> dict[str, str]:
    names = defaultdict(list)
    for job in jobs:
        names[job.reason].append(job.image.name)
    return {reason: list_briefly(of_reason) for reason, of_reason in names.items()}
