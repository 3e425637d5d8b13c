"""What all participants share: template, atlases, and how to tell when they change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from nipype.pipeline import engine as pe

from surreal_bids.bids.reuse import TISSUES
from surreal_bids.bids.sidecars import Provenance
from surreal_bids.bids.visit import VisitOutputs
from surreal_bids.cli.identity import steps_dir, template_name
from surreal_bids.cli.jobs import Job
from surreal_bids.config import (
    BUILTIN_ATLAS,
    BUILTIN_TEMPLATE,
    AppConfig,
    derivative_folders,
)
from surreal_bids.files import write_image
from surreal_bids.imaging.atlas import AtlasSet, default_atlas, read_atlas_set, strip_atlases
from surreal_bids.imaging.template import Template, builtin_template, read_template
from surreal_bids.workflows.participant import AnatomySettings, init_participant_wf
from surreal_bids.workflows.segmentation import AtlasFiles

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
