"""From a T1w image to a corrected brain: mask, bias field, tissues."""

from __future__ import annotations

from typing import Any

from nipype.interfaces.base import (
    BaseInterfaceInputSpec,
    Directory,
    File,
    TraitedSpec,
    traits,
)

from surreal_bids.imaging.images import load_image
from surreal_bids.interfaces.images import load_template, save
from surreal_bids.interfaces.steps import Step


class _FindBrainInput(BaseInterfaceInputSpec):
    in_file = File(exists=True, mandatory=True, desc='T1w image')


class _FindBrainOutput(TraitedSpec):
    mask_file = File(exists=True, desc='brain mask')
    method = traits.Str(desc='how it was found: stripped, or deepbet')


class FindBrain(Step):
    """Find the brain in a T1w image; see :func:`surreal_bids.imaging.brain.brain_mask`."""

    input_spec = _FindBrainInput
    output_spec = _FindBrainOutput

    def _run_interface(self, runtime: Any) -> Any:
        # Brings in torch, which only the process that runs this needs.
        from surreal_bids.imaging.brain import brain_mask

        mask, method = brain_mask(load_image(self.inputs.in_file))
        self._results['mask_file'] = save(runtime, 'mask.nii.gz', mask)
        self._results['method'] = method
        return runtime


class _CorrectBiasInput(BaseInterfaceInputSpec):
    in_file = File(exists=True, mandatory=True, desc='T1w image')
    mask_file = File(exists=True, mandatory=True, desc='brain mask, where the field is estimated')


class _CorrectBiasOutput(TraitedSpec):
    out_file = File(exists=True, desc='corrected T1w image')


class CorrectBias(Step):
    """Divide a T1w image by its bias field; see :func:`surreal_bids.imaging.bias.correct_bias`."""

    input_spec = _CorrectBiasInput
    output_spec = _CorrectBiasOutput

    def _run_interface(self, runtime: Any) -> Any:
        from surreal_bids.imaging.bias import correct_bias

        t1w, mask = load_image(self.inputs.in_file), load_image(self.inputs.mask_file)
        self._results['out_file'] = save(runtime, 'corrected.nii.gz', correct_bias(t1w, mask))
        return runtime


class _ClassifyTissueInput(BaseInterfaceInputSpec):
    t1w_file = File(exists=True, mandatory=True, desc='corrected T1w image')
    mask_file = File(exists=True, mandatory=True, desc='brain mask')
    xfm_file = File(exists=True, mandatory=True, desc='transform of template images to the T1w')
    template_dir = Directory(exists=True, mandatory=True, desc='template, with priors')


class _ClassifyTissueOutput(TraitedSpec):
    tpm_files = traits.List(File(exists=True), desc='probabilities of GM, WM and CSF')


class ClassifyTissue(Step):
    """Classify tissue with warped priors; see :mod:`surreal_bids.imaging.tissue`."""

    input_spec = _ClassifyTissueInput
    output_spec = _ClassifyTissueOutput

    def _run_interface(self, runtime: Any) -> Any:
        from surreal_bids.imaging.tissue import TISSUES, classify_tissue
        from surreal_bids.imaging.transforms import read_transform, resample

        transform = read_transform(self.inputs.xfm_file)
        priors = load_template(self.inputs.template_dir).priors
        posteriors = classify_tissue(
            load_image(self.inputs.t1w_file),
            load_image(self.inputs.mask_file),
            {tissue: resample(prior, transform) for tissue, prior in priors.items()},
        )
        self._results['tpm_files'] = [
            save(runtime, f'{tissue}.nii.gz', posteriors[tissue]) for tissue in TISSUES
        ]
        return runtime
