"""What has to be done for which image, with what, and why."""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from nipype.pipeline import engine as pe

from surreal_bids import __version__
from surreal_bids.bids.derivatives import (
    Provenance,
    VisitOutputs,
    digest_of,
    digest_of_files,
    fingerprint,
    read_record,
    record_path,
    why_not_done,
)
from surreal_bids.bids.layout import T1wImage
from surreal_bids.bids.reuse import TISSUES, Reusable, atlas_label, find_reusable
from surreal_bids.config import BUILTIN_ATLAS, BUILTIN_TEMPLATE, AppConfig, derivative_folders
from surreal_bids.exceptions import DataError, UsageError
from surreal_bids.files import atomic_path, write_image, write_text
from surreal_bids.images import like, load_image
from surreal_bids.imaging.atlas import AtlasSet, default_atlas, read_atlas_set, strip_atlases
from surreal_bids.templates import Template, builtin_template, read_template
from surreal_bids.workflows.participant import AnatomySettings, init_participant_wf
from surreal_bids.workflows.segmentation import AtlasFiles

LOGGER = logging.getLogger(__name__)


FEWEST = 2
"""Nobody is an atlas of their own, so that even someone of the library needs another."""


def study_identity(config: AppConfig, images: Sequence[T1wImage]) -> dict[str, Any]:
    """Options and files that the outputs of every participant depend on, as JSON can hold them.

    What is built in is told by its name: the version of this package is in every fingerprint.

    Parameters
    ----------
    config
        What was asked for.
    images
        All images that can be read, of which some may serve as intermediate templates.
    """
    library = choose_library(images, config.template_library, config.random_seed)
    return {
        'template_name': template_name(config),
        'template': _identify(config, 'template', BUILTIN_TEMPLATE, 'tpl-*.nii.gz'),
        'template_resolution': config.template_resolution,
        'atlas': _identify(config, 'atlas', BUILTIN_ATLAS, '*'),
        'template_library': {image.name: digest_of(image.path) for image in library},
        'segmentation_mode': config.segmentation_mode,
        'ravens_smoothing': config.ravens_smoothing,
    }


def steps_dir(config: AppConfig) -> Path:
    """Folder for the steps of workflows; one of its own for all that a step does not look at.

    Nipype takes a step for done if its inputs are what they were. It does not see that the program
    is another, nor files in the template's folder; and it keeps nobody from working in its folder.
    """
    template = _identify(config, 'template', BUILTIN_TEMPLATE, 'tpl-*.nii.gz')
    digest = short_digest(config.bids_dir.resolve(), config.output_dir.resolve(), template)
    return config.work_dir.absolute() / f'surreal_bids-{__version__}-{digest}'


def short_digest(*parts: object) -> str:
    """Twelve letters and digits for the name of a folder that belongs to these and no others."""
    return hashlib.sha256('\n'.join(map(str, parts)).encode()).hexdigest()[:12]


def _identify(config: AppConfig, option: str, builtin: str, pattern: str) -> str:
    """The name of what is built in, or else the digest of the files in a folder."""
    value = getattr(config, option)
    if value == builtin:
        return builtin
    files = [path for path in Path(value).glob(pattern) if path.is_file()]
    if not files:
        raise DataError(f'--{option} {value}: no such folder, or nothing in it; correct the path')
    return digest_of_files(files)


def template_name(config: AppConfig) -> str:
    """Name of the template: that of its T1w image, if it is not built in."""
    if config.template == BUILTIN_TEMPLATE:
        return BUILTIN_TEMPLATE
    if config.template_resolution != 1:
        raise UsageError(
            '--template-resolution is that of the built-in template; your own has the voxels of '
            'its files'
        )
    names = {path.name for path in Path(config.template).glob('tpl-*_T1w.nii.gz')}
    if len(names) != 1:
        raise DataError(
            f'--template {config.template}: {len(names)} files tpl-NAME_T1w.nii.gz, where one is '
            'needed; give a folder with a template'
        )
    return names.pop().removeprefix('tpl-').split('_')[0]


def choose_library(images: Sequence[T1wImage], number: int, seed: int) -> list[T1wImage]:
    """Draw as many people as asked for, of each the first image, in the order of the dataset."""
    if number == 0:
        return []
    first = list({image.participant: image for image in reversed(images)}.values())[::-1]
    if not FEWEST <= number <= len(first):
        raise UsageError(
            f'--template-library {number}: expected {FEWEST} to {len(first)}, which is how many '
            'participants can be used'
        )
    drawn = np.random.default_rng(seed).choice(len(first), size=number, replace=False)
    return [first[index] for index in sorted(drawn)]


@dataclass(frozen=True)
class Failure:
    """A participant, perhaps in one session, who has no complete outputs, and why."""

    name: str
    step: str
    reason: str


def align(rows: Sequence[tuple[str, ...]]) -> str:
    """Write rows as text in columns."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ('  '.join(cell.ljust(width) for cell, width in zip(row, widths)) for row in rows)
    return '\n'.join(line.rstrip() for line in lines)


def failure_table(failures: Sequence[Failure]) -> str:
    """Participants, steps and reasons as text."""
    rows = [(failure.name, failure.step, failure.reason) for failure in failures]
    return align([('Participant', 'Step', 'Reason'), *rows])


@dataclass(frozen=True)
class Job:
    """One T1w image to process.

    Attributes
    ----------
    image
        The T1w image.
    reusable
        What other programs have made of it.
    made_from
        Fingerprint of all that its outputs depend on.
    reason
        Why it has to be processed; empty where that is done.
    """

    image: T1wImage
    reusable: Reusable
    made_from: dict[str, Any]
    reason: str = ''

    @property
    def workflow_name(self) -> str:
        """Name of its workflow; Nipype allows no plus sign."""
        return self.image.name.replace('+', '_plus_')

    @property
    def entities(self) -> dict[str, str | None]:
        """Participant and session."""
        return {'participant': self.image.participant, 'session': self.image.session}


def plan_jobs(
    config: AppConfig, template: str, identity: Mapping[str, Any], images: Iterable[T1wImage]
) -> tuple[list[Job], list[Failure]]:
    """Find out for each image what exists already: inputs to reuse, and complete outputs.

    Parameters
    ----------
    config
        What was asked for.
    template
        Name of the template.
    identity
        What the outputs of everyone depend on.
    images
        Images that can be read.

    Returns
    -------
    jobs
        Images that can be processed, or are done.
    failures
        Images for which that cannot be found out.
    """
    folders = derivative_folders(config)
    jobs, failures = [], []
    for image in images:
        try:
            reusable = find_reusable(folders, image, template)
            options = {**identity, 'segmentation': reusable.dseg_name or atlas_label(config)}
            made_from = fingerprint([image.path, *reusable.files.values()], options)
        except (DataError, OSError) as error:
            failures.append(Failure(image.name, 'plan', str(error)))
            continue
        job = Job(image, reusable, made_from)
        jobs.append(replace(job, reason=why_unfinished(config, job)))
    return jobs, failures


def why_unfinished(config: AppConfig, job: Job) -> str:
    """Say why a job has to be done; empty where its outputs are complete and current."""
    record = read_record(record_path(config.output_dir, job.image.visit))
    return why_not_done(config.output_dir, record, job.made_from)


def tell(job: Job) -> None:
    """Say in the log what is to be done, why, and what need not be."""
    name = job.image.name
    if not job.reason:
        LOGGER.info('%s: outputs are complete and nothing changed, so nothing is done', name)
        return
    LOGGER.info('%s: to be processed (%s)', name, job.reason)
    for meaning, path in job.reusable.files.items():
        LOGGER.info('%s: %s taken from %s', name, meaning, path)


TEMPLATE_FILES = ('T1w', 'desc-brain_mask', *(f'label-{tissue}_probseg' for tissue in TISSUES))
"""How the names of a template's files end, before `.nii.gz`."""


@dataclass(frozen=True)
class Study:
    """What all participants of a run share.

    Attributes
    ----------
    settings
        Files and options of the workflows.
    atlas, atlas_licence, template, template_licence
        Names, and terms of use.
    library
        People of the dataset who serve as further atlases.
    """

    settings: AnatomySettings
    atlas: str
    atlas_licence: str
    template: str
    template_licence: str
    library: tuple[AtlasFiles, ...] = ()


def prepare_study(config: AppConfig) -> Study:
    """Read and check template and atlases; those that are built in are written, once.

    They go into the work folder, where every process can read them.
    """
    template_dir, template = _prepare_template(config)
    atlas = _prepare_atlas(config)
    settings = AnatomySettings(
        template_dir=template_dir,
        template_t1w=_template_file(template_dir, template.name, 'T1w'),
        atlases=tuple(AtlasFiles(each.t1w, each.labels) for each in atlas.atlases),
        regions_file=atlas.atlases[0].labels.parent / 'dseg.tsv',
        segmentation_mode=config.segmentation_mode,
        ravens_smoothing=config.ravens_smoothing,
        device=config.device,
        omp_nthreads=config.omp_nthreads,
    )
    return Study(
        settings=settings,
        atlas=atlas.name,
        atlas_licence=atlas.licence,
        template=template.name,
        template_licence=template.licence,
    )


def with_library(study: Study, library: AtlasSet) -> Study:
    """The same study with people of the dataset as further atlases."""
    people = tuple(AtlasFiles(atlas.t1w, atlas.labels) for atlas in library.atlases)
    return replace(study, library=people)


def _prepare_template(config: AppConfig) -> tuple[Path, Template]:
    if template_name(config) != BUILTIN_TEMPLATE:
        folder = Path(config.template)
        return folder.absolute(), read_template(folder)
    resolution = config.template_resolution
    folder = steps_dir(config) / 'templates' / f'{BUILTIN_TEMPLATE}_{resolution:g}mm'
    paths = [_template_file(folder, BUILTIN_TEMPLATE, ending) for ending in TEMPLATE_FILES]
    template = builtin_template(resolution)
    if not all(path.is_file() for path in paths):
        images = (template.t1w, template.mask, *(template.priors[tissue] for tissue in TISSUES))
        for path, image in zip(paths, images):
            write_image(path, image)
    return folder, template


def _template_file(folder: Path, name: str, ending: str) -> Path:
    """File of a template; there may be other entities before the ending, such as `res-1`."""
    plain = folder / f'tpl-{name}_{ending}.nii.gz'
    return next(iter(sorted(folder.glob(f'tpl-{name}*_{ending}.nii.gz'))), plain)


def _prepare_atlas(config: AppConfig) -> AtlasSet:
    cache_dir = config.work_dir.absolute() / 'atlases'
    if config.atlas == BUILTIN_ATLAS:
        return default_atlas(cache_dir)
    return strip_atlases(read_atlas_set(Path(config.atlas).absolute()), cache_dir)


def make_workflow(config: AppConfig, study: Study, job: Job) -> pe.Workflow:
    """The workflow of one participant; nobody of a template library is their own atlas."""
    own = f'sub-{job.image.participant}_'
    others = (person for person in study.library if not person.t1w.name.startswith(own))
    atlases = (*study.settings.atlases, *others)
    return init_participant_wf(
        t1w=job.image.path,
        output_dir=config.output_dir.absolute(),
        entities=job.entities,
        settings=replace(study.settings, atlases=atlases),
        reusable=job.reusable,
        provenance=provenance_of(config, study, job),
        made_from=job.made_from,
        name=job.workflow_name,
    )


def provenance_of(config: AppConfig, study: Study, job: Job) -> Provenance:
    """Where the outputs of a job come from, as BIDS URIs."""
    reusable = job.reusable
    raw = [f'bids:raw:{job.image.path.relative_to(config.bids_dir.absolute()).as_posix()}']
    folders = derivative_folders(config)

    def sources(path: Path | None, name: str | None) -> list[str]:
        if path is None or name is None:
            return raw
        return [f'bids:{name}:{path.relative_to(folders[name]).as_posix()}']

    given = reusable.dseg_name is not None
    return Provenance(
        t1w=sources(reusable.t1w, reusable.anatomy_name),
        mask=sources(reusable.mask or reusable.t1w, reusable.anatomy_name),
        segmentation=sources(reusable.dseg, reusable.dseg_name),
        atlas=reusable.dseg_name or study.atlas,
        atlas_licence='that of the program it is from' if given else study.atlas_licence,
        template=study.template,
        template_licence=study.template_licence,
        smoothing=study.settings.ravens_smoothing,
    )


def visit_of(config: AppConfig, study: Study, job: Job) -> VisitOutputs:
    """Where the outputs of a job are."""
    return VisitOutputs(
        root=config.output_dir.absolute(),
        participant=job.image.participant,
        session=job.image.session,
        atlas=job.reusable.dseg_name or study.atlas,
        template=study.template,
    )


def write_library(folder: Path, visits: Sequence[VisitOutputs], regions_file: Path) -> AtlasSet:
    """Write the brains and regions of visits as an atlas set.

    Parameters
    ----------
    folder
        Where to; files that are there and current are kept, so that steps that used them hold.
    visits
        Outputs of the people of the library.
    regions_file
        Table of the regions.
    """
    for visit in visits:
        t1w, dseg = visit.path('t1w'), visit.path('segmentation')
        target = folder / f'{visit.name}_T1w.nii.gz'
        if target.is_file() and target.stat().st_mtime >= t1w.stat().st_mtime:
            continue
        copy_file(dseg, folder / f'{visit.name}_dseg.nii.gz')
        image, mask = load_image(t1w), load_image(visit.path('brain_mask'))
        inside = np.asarray(mask.dataobj) > 0
        write_image(target, like(image, np.where(inside, image.dataobj, 0), np.float32))
    copy_file(regions_file, folder / 'dseg.tsv')
    write_text(
        folder / 'LICENSE', 'That of the dataset, and of the atlas its people were labelled with\n'
    )
    return read_atlas_set(folder)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file atomically."""
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)
