"""Registration to the template, transforms of other programs, and RAVENS maps."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from nipype.interfaces.base import (
    BaseInterfaceInputSpec,
    Directory,
    File,
    InputMultiObject,
    TraitedSpec,
    traits,
)

from surreal_bids.imaging.images import load_image
from surreal_bids.interfaces.images import load_brain, load_template, save, torch_device
from surreal_bids.interfaces.steps import Step


class _RegisterTemplateInput(BaseInterfaceInputSpec):
    t1w_file = File(exists=True, mandatory=True, desc='corrected T1w image')
    mask_file = File(exists=True, mandatory=True, desc='brain mask')
    template_dir = Directory(exists=True, mandatory=True, desc='template')
    device = traits.Str('cpu', usedefault=True, nohash=True, desc='where torch works')


class _RegisterTemplateOutput(TraitedSpec):
    anat2std_xfm = File(exists=True, desc='resamples T1w images on the grid of the template')
    std2anat_xfm = File(exists=True, desc='resamples template images on the grid of the T1w')


class RegisterTemplate(Step):
    """Register a T1w image to the template; see :mod:`surreal_bids.imaging.registration`."""

    input_spec = _RegisterTemplateInput
    output_spec = _RegisterTemplateOutput

    def _run_interface(self, runtime: Any) -> Any:
        # Brings in torch, which only the process that runs this needs.
        from surreal_bids.imaging.registration import FLUID, register
        from surreal_bids.imaging.transforms import write_transform

        brain, mask = load_brain(self.inputs.t1w_file, self.inputs.mask_file)
        template = load_template(self.inputs.template_dir)
        registration = register(
            template.t1w,
            brain,
            settings=FLUID,
            fixed_mask=template.mask,
            moving_mask=mask,
            device=torch_device(self.inputs.device),
        )
        for name, transform in (
            ('anat2std_xfm', registration.forward),
            ('std2anat_xfm', registration.inverse),
        ):
            path = write_transform(Path(runtime.cwd) / f'{name}.nii.gz', transform)
            self._results[name] = os.fspath(path)
        return runtime


class _ConvertTransformInput(BaseInterfaceInputSpec):
    in_file = File(exists=True, mandatory=True, desc='transform as ITK writes it')
    reference = File(exists=True, mandatory=True, desc='image whose grid it leads to')


class _ConvertTransformOutput(TraitedSpec):
    out_file = File(exists=True, desc='displacement field')


class ConvertTransform(Step):
    """Turn a transform of another program, such as fMRIPrep's, into a displacement field."""

    input_spec = _ConvertTransformInput
    output_spec = _ConvertTransformOutput

    def _run_interface(self, runtime: Any) -> Any:
        from surreal_bids.imaging.transforms import read_composite, write_transform

        transform = read_composite(self.inputs.in_file, load_image(self.inputs.reference))
        path = write_transform(Path(runtime.cwd) / 'xfm.nii.gz', transform)
        self._results['out_file'] = os.fspath(path)
        return runtime


class _MakeRavensInput(BaseInterfaceInputSpec):
    in_files = InputMultiObject(File(exists=True), mandatory=True, desc='probabilities of tissues')
    xfm_file = File(exists=True, mandatory=True, desc='transform of T1w images to the template')
    smoothing = traits.Range(low=0.0, value=0.0, usedefault=True, desc='FWHM in mm')


class _MakeRavensOutput(TraitedSpec):
    out_files = traits.List(File(exists=True), desc='RAVENS map of each tissue')


class MakeRavens(Step):
    """Make RAVENS maps of tissues; see :func:`surreal_bids.imaging.ravens.ravens_maps`."""

    input_spec = _MakeRavensInput
    output_spec = _MakeRavensOutput

    def _run_interface(self, runtime: Any) -> Any:
        from surreal_bids.imaging.ravens import ravens_maps
        from surreal_bids.imaging.transforms import read_transform

        maps = ravens_maps(
            [load_image(path) for path in self.inputs.in_files],
            read_transform(self.inputs.xfm_file),
            smoothing_fwhm=self.inputs.smoothing,
        )
        self._results['out_files'] = [
            save(runtime, f'ravens{number}.nii.gz', each) for number, each in enumerate(maps)
        ]
        return runtime
