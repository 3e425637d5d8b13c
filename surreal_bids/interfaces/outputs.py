"""Put results in their places, whole or not at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import nibabel as nib
from nipype.interfaces.base import (
    BaseInterfaceInputSpec,
    File,
    InputMultiObject,
    SimpleInterface,
    TraitedSpec,
    traits,
)

from surreal_bids.bids.derivatives import output_path, write_sidecar
from surreal_bids.bids.record import write_record
from surreal_bids.bids.sidecars import Provenance, describe_outputs
from surreal_bids.files import atomic_path, write_image
from surreal_bids.interfaces.steps import warnings_in


class _SaveOutputInput(BaseInterfaceInputSpec):
    in_file = File(exists=True, mandatory=True, desc='result')
    output_dir = traits.Str(mandatory=True, desc='root of the outputs')
    output_name = traits.Str(mandatory=True, desc='which of the table of names')
    entities = traits.Dict(mandatory=True, desc='labels of its entities')
    metadata = traits.Dict(desc='content of its sidecar')


class _SaveOutputOutput(TraitedSpec):
    out_files = traits.List(File(exists=True), desc='the output, and its sidecar')


class SaveOutput(SimpleInterface):
    """Copy a result to its place among the outputs, and describe it beside."""

    input_spec = _SaveOutputInput
    output_spec = _SaveOutputOutput
    # An output that someone deleted must come back, even if the node itself is cached.
    _always_run = True

    def _run_interface(self, runtime: Any) -> Any:
        inputs = self.inputs
        target = output_path(inputs.output_dir, inputs.output_name, **inputs.entities)
        copy_whole(Path(inputs.in_file), target)
        written = [os.fspath(target)]
        if inputs.metadata:
            written.append(os.fspath(write_sidecar(inputs.output_name, target, inputs.metadata)))
        self._results['out_files'] = written
        return runtime


def copy_whole(source: Path, target: Path) -> None:
    """Copy a file atomically; a NIfTI image that is not compressed becomes so."""
    if source.suffixes[-1:] == target.suffixes[-1:]:
        with atomic_path(target) as temporary:
            shutil.copyfile(source, temporary)
    else:
        write_image(target, nib.Nifti1Image.from_filename(source))


class _WriteRecordInput(BaseInterfaceInputSpec):
    out_files = InputMultiObject(File(exists=True), mandatory=True, desc='all outputs')
    output_dir = traits.Str(mandatory=True, desc='root of the outputs')
    made_from = traits.Dict(mandatory=True, desc='what they depend on')
    entities = traits.Dict(mandatory=True, desc='participant and session')


class _WriteRecordOutput(TraitedSpec):
    out_file = File(exists=True, desc='the record')


class WriteRecord(SimpleInterface):
    """Note that all outputs of a participant are there; see :mod:`surreal_bids.bids.record`.

    Warnings are those of all steps in the workflow around the one that this is a step of.
    """

    input_spec = _WriteRecordInput
    output_spec = _WriteRecordOutput
    _always_run = True

    def _run_interface(self, runtime: Any) -> Any:
        root = Path(self.inputs.output_dir)
        path = output_path(root, 'record', **self.inputs.entities)
        outputs = map(Path, self.inputs.out_files)
        warnings = warnings_in(Path(runtime.cwd).parents[1])
        self._results['out_file'] = os.fspath(
            write_record(path, root, self.inputs.made_from, outputs, warnings)
        )
        return runtime


class _DescribeOutputsInput(BaseInterfaceInputSpec):
    mask_method = traits.Str(mandatory=True, desc='how the brain mask was found')
    provenance = traits.Dict(mandatory=True, desc='fields of Provenance')


class _DescribeOutputsOutput(TraitedSpec):
    t1w = traits.Dict(desc='sidecar of the T1w image')
    brain_mask = traits.Dict(desc='sidecar of the mask')
    segmentation_volumes = traits.Dict(desc='sidecar of the regions')
    ravens = traits.Dict(desc='sidecar of RAVENS maps')


class DescribeOutputs(SimpleInterface):
    """Write the content of sidecars; see :mod:`surreal_bids.bids.sidecars`."""

    input_spec = _DescribeOutputsInput
    output_spec = _DescribeOutputsOutput

    def _run_interface(self, runtime: Any) -> Any:
        provenance = Provenance(**self.inputs.provenance)
        self._results.update(describe_outputs(provenance, self.inputs.mask_method))
        return runtime
