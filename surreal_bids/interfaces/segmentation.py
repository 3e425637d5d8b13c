"""Regions: one registration an atlas, fusion, volumes; or a segmentation that exists."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nipype.interfaces.base import (
    BaseInterfaceInputSpec,
    File,
    InputMultiObject,
    TraitedSpec,
    traits,
)

from surreal_bids.files import write_tsv
from surreal_bids.imaging.images import load_image
from surreal_bids.interfaces.images import load_brain, save, torch_device
from surreal_bids.interfaces.steps import Step
from surreal_bids.regions import muse_table

if TYPE_CHECKING:
    from surreal_bids.imaging.fusion import Candidate


class _RegisterAtlasInput(BaseInterfaceInputSpec):
    t1w_file = File(exists=True, mandatory=True, desc='corrected T1w image')
    mask_file = File(exists=True, mandatory=True, desc='brain mask')
    atlas_t1w = File(exists=True, mandatory=True, desc='T1w image of the atlas, brain only')
    settings = traits.Enum('default', 'fast', 'stiff', usedefault=True, desc='how to register')
    device = traits.Str('cpu', usedefault=True, nohash=True, desc='where torch works')


class _RegisterAtlasOutput(TraitedSpec):
    xfm_file = File(exists=True, desc='resamples the atlas on the grid of the T1w')


class RegisterAtlas(Step):
    """Bring an atlas onto a T1w image; see :func:`surreal_bids.imaging.registration.register`."""

    input_spec = _RegisterAtlasInput
    output_spec = _RegisterAtlasOutput

    def _run_interface(self, runtime: Any) -> Any:
        # Brings in torch, which only the process that runs this needs.
        from surreal_bids.imaging.registration import DEFAULT, FAST, STIFF, register
        from surreal_bids.imaging.transforms import write_transform

        brain, _ = load_brain(self.inputs.t1w_file, self.inputs.mask_file)
        registration = register(
            brain,
            load_image(self.inputs.atlas_t1w),
            settings={'default': DEFAULT, 'fast': FAST, 'stiff': STIFF}[self.inputs.settings],
            device=torch_device(self.inputs.device),
        )
        path = write_transform(Path(runtime.cwd) / 'xfm.nii.gz', registration.forward)
        self._results['xfm_file'] = os.fspath(path)
        return runtime


class _FuseLabelsInput(BaseInterfaceInputSpec):
    t1w_file = File(exists=True, mandatory=True, desc='corrected T1w image')
    mask_file = File(exists=True, mandatory=True, desc='brain mask')
    atlas_t1ws = InputMultiObject(File(exists=True), mandatory=True, desc='T1w of each atlas')
    atlas_labels = InputMultiObject(File(exists=True), mandatory=True, desc='labels of each')
    xfm_files = InputMultiObject(File(exists=True), mandatory=True, desc='transform of each')
    regions_file = File(exists=True, mandatory=True, desc='table of regions')


class _SegmentationOutput(TraitedSpec):
    dseg_file = File(exists=True, desc='regions')
    volumes_file = File(exists=True, desc='their volumes: index, name, volume_mm3')


class FuseLabels(Step):
    """Fuse the labels of warped atlases; see :func:`surreal_bids.imaging.fusion.fuse_labels`."""

    input_spec = _FuseLabelsInput
    output_spec = _SegmentationOutput

    def _run_interface(self, runtime: Any) -> Any:
        from surreal_bids.imaging.atlas import read_regions
        from surreal_bids.imaging.fusion import fuse_labels

        t1w, mask = load_brain(self.inputs.t1w_file, self.inputs.mask_file)
        fusion = fuse_labels(t1w, self._candidates(), mask)
        self._results['dseg_file'] = save(runtime, 'dseg.nii.gz', fusion.labels)
        regions = read_regions(Path(self.inputs.regions_file))
        self._results['volumes_file'] = save_volumes(runtime, fusion.volumes, regions)
        return runtime

    def _candidates(self) -> Iterator[Candidate]:
        """Atlases one at a time, so that memory does not grow with their number."""
        from surreal_bids.imaging.fusion import Candidate
        from surreal_bids.imaging.transforms import read_transform

        inputs = self.inputs
        for t1w, labels, xfm in zip(inputs.atlas_t1ws, inputs.atlas_labels, inputs.xfm_files):
            yield Candidate(load_image(t1w), load_image(labels), read_transform(xfm))


class _MeasureSegmentationInput(BaseInterfaceInputSpec):
    in_file = File(exists=True, mandatory=True, desc='segmentation')
    regions_file = File(exists=True, desc='table of its labels; without it, those of MUSE')


class MeasureSegmentation(Step):
    """Measure the regions of a segmentation that another program has made."""

    input_spec = _MeasureSegmentationInput
    output_spec = _SegmentationOutput

    def _run_interface(self, runtime: Any) -> Any:
        from surreal_bids.imaging.atlas import read_regions
        from surreal_bids.imaging.volumes import volumes_of_labels

        dseg = load_image(self.inputs.in_file)
        table = self.inputs.regions_file
        regions = read_regions(Path(table)) if table else muse_table()[['index', 'name']]
        self._results['dseg_file'] = save(runtime, 'dseg.nii.gz', dseg)
        self._results['volumes_file'] = save_volumes(runtime, volumes_of_labels(dseg), regions)
        return runtime


def save_volumes(runtime: Any, volumes: Mapping[int, float], regions: Any) -> str:
    """Write volumes with the names of their regions into the folder in which a node runs."""
    from surreal_bids.imaging.volumes import volume_table

    return os.fspath(write_tsv(Path(runtime.cwd) / 'dseg.tsv', volume_table(volumes, regions)))
