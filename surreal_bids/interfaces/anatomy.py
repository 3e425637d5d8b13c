"""Interfaces of the anatomical steps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from nipype.interfaces.base import (
    BaseInterfaceInputSpec,
    Directory,
    File,
    InputMultiObject,
    TraitedSpec,
    isdefined,
    traits,
)

from surreal_bids.files import MISSING, write_image, write_json, write_tsv
from surreal_bids.images import Image, like, load_image, require_same_grid
from surreal_bids.imaging.atlas import LABELS_ENDING, read_regions
from surreal_bids.imaging.belonging import require_overlap
from surreal_bids.imaging.bias import correct_bias
from surreal_bids.imaging.brain import brain_mask
from surreal_bids.imaging.quality import image_quality, region_overlaps, segmentation_quality
from surreal_bids.imaging.tissue import classify_tissue
from surreal_bids.interfaces import Step
from surreal_bids.parallel import find_device, in_threads
from surreal_bids.regions import FREESURFER_KINDS, MUSE, label_table
from surreal_bids.tables import prefix_errors
from surreal_bids.templates import MUSE_LABELS, TISSUES, read_template

# Modules that import torch, which is slow, are imported where they are used.
if TYPE_CHECKING:
    from surreal_bids.imaging.fusion import Candidate
    from surreal_bids.imaging.transforms import Transform


def save(runtime: Any, name: str, image: Image) -> str:
    """Write an image to the folder of a node."""
    return os.fspath(write_image(Path(runtime.cwd) / name, image))


def save_transform(runtime: Any, name: str, transform: Transform) -> str:
    """Write a transform to the folder of a node."""
    from surreal_bids.imaging.transforms import write_transform

    return os.fspath(write_transform(Path(runtime.cwd) / name, transform))


def load_brain(t1w_file: str, mask_file: str, lesion: Image | None = None) -> tuple[Image, Image]:
    """Read a T1w image and its brain mask; the image is set to 0 outside, and a lesion filled."""
    t1w, mask = load_image(t1w_file), load_image(mask_file)
    require_same_grid(mask, t1w, mask_file, t1w_file)
    inside = np.asarray(mask.dataobj) > 0
    t1w = filled(t1w, mask, lesion)
    return like(t1w, np.where(inside, t1w.dataobj, 0), np.float32), mask


def load_lesion(inputs: Any) -> Image | None:
    """Read the lesion mask of a step, if there is one."""
    return load_image(inputs.lesion_file) if isdefined(inputs.lesion_file) else None


def filled(t1w: Image, mask: Image, lesion: Image | None) -> Image:
    """Return a T1w image whose lesion, if there is one, is filled."""
    if lesion is None:
        return t1w
    from surreal_bids.imaging.lesions import fill_lesion

    return fill_lesion(t1w, mask, lesion)


def sound_part(mask: Image, lesion: Image | None) -> Image:
    """Return a brain mask without the lesion, if there is one."""
    if lesion is None:
        return mask
    from surreal_bids.imaging.lesions import without_lesion

    return without_lesion(mask, lesion)


def torch_device(name: str) -> str:
    """Return the device for torch; `auto` is a GPU if there is one.

    Images are processed on the CPU with `mps`, which has neither double precision nor all
    operations on volumes.
    """
    if name == 'auto':
        return find_device(name)
    return 'cpu' if name == 'mps' else name


class _LesionInput(BaseInterfaceInputSpec):
    lesion_file = File(exists=True, desc='lesion mask')


class _BrainInput(_LesionInput):
    t1w_file = File(exists=True, mandatory=True, desc='corrected T1w image')
    mask_file = File(exists=True, mandatory=True, desc='brain mask')


class _TorchInput(BaseInterfaceInputSpec):
    device = traits.Str('cpu', usedefault=True, nohash=True, desc='device for torch')


class _FindBrainInput(_LesionInput, _TorchInput):
    in_file = File(exists=True, mandatory=True, desc='T1w image')


class _FindBrainOutput(TraitedSpec):
    mask_file = File(exists=True, desc='brain mask')
    method = traits.Str(desc='method: stripped or deepbet')


class FindBrain(Step):
    """Extract the brain; see :func:`surreal_bids.imaging.brain.brain_mask`."""

    input_spec = _FindBrainInput
    output_spec = _FindBrainOutput

    def _run_step(self, runtime: Any) -> Any:
        t1w, lesion = load_image(self.inputs.in_file), load_lesion(self.inputs)
        device = torch_device(self.inputs.device)
        mask, method = brain_mask(t1w, device=device)
        if lesion is not None and method != 'stripped':
            mask, method = brain_mask(filled(t1w, mask, lesion), device=device)
        self._results['mask_file'] = save(runtime, 'mask.nii.gz', mask)
        self._results['method'] = method
        return runtime


class _CorrectBiasInput(_LesionInput):
    in_file = File(exists=True, mandatory=True, desc='T1w image')
    mask_file = File(
        exists=True, mandatory=True, desc='brain mask, in which the field is estimated'
    )


class _CorrectBiasOutput(TraitedSpec):
    out_file = File(exists=True, desc='corrected T1w image')


class CorrectBias(Step):
    """Divide a T1w image by its bias field; see :func:`surreal_bids.imaging.bias.correct_bias`."""

    input_spec = _CorrectBiasInput
    output_spec = _CorrectBiasOutput

    def _run_step(self, runtime: Any) -> Any:
        t1w, mask = load_image(self.inputs.in_file), load_image(self.inputs.mask_file)
        mask = sound_part(mask, load_lesion(self.inputs))
        self._results['out_file'] = save(runtime, 'corrected.nii', correct_bias(t1w, mask))
        return runtime


class _ClassifyTissueInput(_BrainInput):
    xfm_file = File(exists=True, mandatory=True, desc='transform of template images to the T1w')
    template_dir = Directory(exists=True, mandatory=True, desc='template, with priors')


class _ClassifyTissueOutput(TraitedSpec):
    tpm_files = traits.List(File(exists=True), desc='probabilities of GM, WM and CSF')
    share_files = traits.List(File(exists=True), desc='partial-volume fractions of GM, WM and CSF')


class ClassifyTissue(Step):
    """Classify tissue with warped priors; see :mod:`surreal_bids.imaging.tissue`."""

    input_spec = _ClassifyTissueInput
    output_spec = _ClassifyTissueOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.imaging.transforms import read_transform, resample_all

        priors = read_template(self.inputs.template_dir).priors
        warped = resample_all(list(priors.values()), read_transform(self.inputs.xfm_file))
        t1w, mask = load_image(self.inputs.t1w_file), load_image(self.inputs.mask_file)
        mask = sound_part(mask, load_lesion(self.inputs))
        found = classify_tissue(t1w, mask, dict(zip(priors, warped)))
        for name, maps in (('tpm', found.probabilities), ('share', found.shares)):
            self._results[f'{name}_files'] = [
                save(runtime, f'{tissue}_{name}.nii.gz', maps[tissue]) for tissue in TISSUES
            ]
        return runtime


class _RegisterTemplateInput(_BrainInput, _TorchInput):
    template_dir = Directory(exists=True, mandatory=True, desc='template')


class _RegisterTemplateOutput(TraitedSpec):
    anat2std_xfm = File(exists=True, desc='resamples T1w images on the grid of the template')
    std2anat_xfm = File(exists=True, desc='resamples template images on the grid of the T1w')


class RegisterTemplate(Step):
    """Register a T1w image to the template; see :mod:`surreal_bids.imaging.registration`."""

    input_spec = _RegisterTemplateInput
    output_spec = _RegisterTemplateOutput

    def _run_step(self, runtime: Any) -> Any:
        # Imported here because torch is slow to import.
        from surreal_bids.imaging.deformation import FLUID
        from surreal_bids.imaging.registration import register

        lesion = load_lesion(self.inputs)
        brain, mask = load_brain(self.inputs.t1w_file, self.inputs.mask_file, lesion)
        template = read_template(self.inputs.template_dir)
        registration = register(
            template.t1w,
            brain,
            settings=FLUID,
            fixed_mask=template.mask,
            moving_mask=mask,
            device=torch_device(self.inputs.device),
        )
        transforms = {'anat2std_xfm': registration.forward, 'std2anat_xfm': registration.inverse}
        for name, transform in transforms.items():
            self._results[name] = save_transform(runtime, f'{name}.nii', transform)
        return runtime


class _ConvertTransformInput(BaseInterfaceInputSpec):
    in_file = File(exists=True, mandatory=True, desc='ITK transform')
    reference = File(exists=True, mandatory=True, desc='image that defines the grid of the output')


class _ConvertTransformOutput(TraitedSpec):
    out_file = File(exists=True, desc='displacement field')


class ConvertTransform(Step):
    """Convert an ITK transform of another program to a displacement field."""

    input_spec = _ConvertTransformInput
    output_spec = _ConvertTransformOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.imaging.transforms import read_composite

        transform = read_composite(self.inputs.in_file, load_image(self.inputs.reference))
        self._results['out_file'] = save_transform(runtime, 'xfm.nii', transform)
        return runtime


class _MakeRavensInput(BaseInterfaceInputSpec):
    in_files = InputMultiObject(File(exists=True), mandatory=True, desc='partial-volume fractions')
    xfm_file = File(exists=True, mandatory=True, desc='transform of T1w images to the template')


class _MakeRavensOutput(TraitedSpec):
    out_files = traits.List(File(exists=True), desc='RAVENS map of each tissue')


class MakeRavens(Step):
    """Compute RAVENS maps; see :func:`surreal_bids.imaging.ravens.ravens_maps`."""

    input_spec = _MakeRavensInput
    output_spec = _MakeRavensOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.imaging.ravens import ravens_maps
        from surreal_bids.imaging.transforms import read_transform

        maps = ravens_maps(
            [load_image(path) for path in self.inputs.in_files],
            read_transform(self.inputs.xfm_file),
        )
        self._results['out_files'] = [
            save(runtime, f'ravens{number}.nii.gz', each) for number, each in enumerate(maps)
        ]
        return runtime


class _RegisterAtlasInput(_BrainInput, _TorchInput):
    atlas_t1w = File(exists=True, mandatory=True, desc='T1w image of the atlas, brain only')


class _RegisterAtlasOutput(TraitedSpec):
    xfm_file = File(exists=True, desc='resamples the atlas on the grid of the T1w')


class RegisterAtlas(Step):
    """Register an atlas to a T1w image; see :mod:`surreal_bids.imaging.registration`."""

    input_spec = _RegisterAtlasInput
    output_spec = _RegisterAtlasOutput

    def _run_step(self, runtime: Any) -> Any:
        # Imported here because torch is slow to import.
        from surreal_bids.imaging.registration import register

        lesion = load_lesion(self.inputs)
        brain, _ = load_brain(self.inputs.t1w_file, self.inputs.mask_file, lesion)
        registration = register(
            brain,
            load_image(self.inputs.atlas_t1w),
            device=torch_device(self.inputs.device),
        )
        self._results['xfm_file'] = save_transform(runtime, 'xfm.nii.gz', registration.forward)
        return runtime


class _FuseLabelsInput(_BrainInput):
    atlas_t1ws = InputMultiObject(File(exists=True), mandatory=True, desc='T1w of each atlas')
    atlas_labels = InputMultiObject(File(exists=True), mandatory=True, desc='labels of each')
    xfm_files = InputMultiObject(File(exists=True), mandatory=True, desc='transform of each')
    regions_file = File(exists=True, mandatory=True, desc='table of regions')


class _SegmentationOutput(TraitedSpec):
    dseg_file = File(exists=True, desc='label map')
    volumes_file = File(exists=True, desc='volumes: index, name, volume_mm3')


class _FuseLabelsOutput(_SegmentationOutput):
    atlases = traits.List(traits.Str(), desc='names of the atlases')


class FuseLabels(Step):
    """Fuse the labels of warped atlases; see :func:`surreal_bids.imaging.fusion.fuse_labels`."""

    input_spec = _FuseLabelsInput
    output_spec = _FuseLabelsOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.imaging.fusion import fuse_labels, volume_table

        lesion = load_lesion(self.inputs)
        t1w, mask = load_brain(self.inputs.t1w_file, self.inputs.mask_file, lesion)
        fusion = fuse_labels(t1w, self._candidates(), mask)
        table = volume_table(fusion.volumes, read_regions(Path(self.inputs.regions_file)))
        self._results |= save_regions(runtime, fusion.labels, table, lesion)
        names = [Path(path).name.removesuffix(LABELS_ENDING) for path in self.inputs.atlas_labels]
        self._results['atlases'] = names
        return runtime

    def _candidates(self) -> Iterator[Candidate]:
        """Yield one atlas at a time to limit the memory."""
        from surreal_bids.imaging.fusion import Candidate
        from surreal_bids.imaging.transforms import read_transform

        inputs = self.inputs
        for t1w, labels, xfm in zip(inputs.atlas_t1ws, inputs.atlas_labels, inputs.xfm_files):
            yield Candidate(load_image(t1w), load_image(labels), read_transform(xfm))


class _LabelRegionsInput(_BrainInput, _TorchInput):
    regions_file = File(exists=True, mandatory=True, desc='table of regions')


class LabelRegions(Step):
    """Segment regions with the network; see :mod:`surreal_bids.imaging.network`."""

    input_spec = _LabelRegionsInput
    output_spec = _SegmentationOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.imaging.fusion import volume_table
        from surreal_bids.imaging.network import segment_regions

        t1w, mask = load_image(self.inputs.t1w_file), load_image(self.inputs.mask_file)
        lesion = load_lesion(self.inputs)
        found = segment_regions(
            filled(t1w, mask, lesion), mask, device=torch_device(self.inputs.device)
        )
        table = volume_table(found.volumes, read_regions(Path(self.inputs.regions_file)))
        table['confidence'] = table['index'].map(found.confidence).round(3)
        self._results |= save_regions(runtime, found.labels, table, lesion)
        return runtime


class _MeasureSegmentationInput(_BrainInput):
    in_file = File(exists=True, mandatory=True, desc='segmentation')
    regions_file = File(exists=True, desc='table of its labels')
    numbering = traits.Enum(
        MUSE, *FREESURFER_KINDS, usedefault=True, desc='numbering of labels without a table'
    )


class MeasureSegmentation(Step):
    """Measure the segmentation of another program."""

    input_spec = _MeasureSegmentationInput
    output_spec = _SegmentationOutput

    def _run_step(self, runtime: Any) -> Any:
        from surreal_bids.imaging.fusion import volume_table, volumes_of_labels

        dseg, table = load_image(self.inputs.in_file), self.inputs.regions_file
        with prefix_errors(Path(self.inputs.in_file)):
            volumes = volumes_of_labels(dseg)
            listed = (
                read_regions(Path(table)) if table else label_table(self.inputs.numbering, volumes)
            )
            require_overlap(dseg, load_image(self.inputs.mask_file), listed)
        table = volume_table(volumes, listed)
        self._results |= save_regions(runtime, dseg, table, load_lesion(self.inputs))
        return runtime


class _MeasureQualityInput(_BrainInput):
    raw_file = File(exists=True, mandatory=True, desc='T1w image as acquired')
    tpm_files = InputMultiObject(File(exists=True), mandatory=True, desc='GM, WM and CSF')
    dseg_file = File(exists=True, mandatory=True, desc='label map')
    volumes_file = File(exists=True, mandatory=True, desc='table of volumes')
    xfm_file = File(exists=True, mandatory=True, desc='transform of template images to the T1w')
    template_dir = Directory(exists=True, mandatory=True, desc='template')


class _MeasureQualityOutput(TraitedSpec):
    out_file = File(exists=True, desc='metrics')


class MeasureQuality(Step):
    """Measure the quality of an image; see :mod:`surreal_bids.imaging.quality`."""

    input_spec = _MeasureQualityInput
    output_spec = _MeasureQualityOutput

    def _run_step(self, runtime: Any) -> Any:
        inputs = self.inputs
        files = (inputs.raw_file, inputs.t1w_file, inputs.mask_file, *inputs.tpm_files)
        raw, t1w, mask, *tpms = in_threads(load_image, files)
        tissues = dict(zip(TISSUES, tpms))
        volumes = pd.read_csv(
            inputs.volumes_file, sep='\t', na_values=[MISSING], keep_default_na=False
        )
        template, overlaps = Path(inputs.template_dir) / MUSE_LABELS, {}
        if 'confidence' in volumes and template.is_file():  # Regions of the network.
            overlaps = template_overlaps(inputs.dseg_file, inputs.xfm_file, template)
        metrics = {
            **image_quality(raw, t1w, mask, tissues),
            **segmentation_quality(volumes, overlaps),
            'overlaps': {name: round(value, 4) for name, value in overlaps.items()},
        }
        lesion = load_lesion(inputs)
        if lesion is not None:
            from surreal_bids.imaging.lesions import lesion_ml

            metrics['lesion_ml'] = round(lesion_ml(lesion, mask), 3)
        path = write_json(Path(runtime.cwd) / 'quality.json', metrics)
        self._results['out_file'] = os.fspath(path)
        return runtime


def template_overlaps(dseg_file: str | Path, xfm_file: str | Path, template: Path) -> dict:
    """Overlap of large regions with those of the template, transformed to the image."""
    from surreal_bids.imaging.transforms import read_transform, resample

    registered = resample(load_image(template), read_transform(xfm_file), order=0)
    found = load_image(dseg_file)
    return region_overlaps(np.asarray(found.dataobj), np.asarray(registered.dataobj))


def save_regions(
    runtime: Any, labels: Image, table: pd.DataFrame, lesion: Image | None
) -> dict[str, str]:
    """Write a label map and its volumes, with the share of a lesion, to the folder of a node."""
    if lesion is not None:
        from surreal_bids.imaging.lesions import lesion_shares

        shares = table['index'].map(lesion_shares(labels, lesion))
        table = table.assign(lesion_share=shares.fillna(0.0).round(4))
    return {
        'dseg_file': save(runtime, 'dseg.nii.gz', labels),
        'volumes_file': os.fspath(write_tsv(Path(runtime.cwd) / 'dseg.tsv', table)),
    }
