"""ROI volumes and RAVENS maps inside another Nipype pipeline; docs/plugging_in.md explains it.

    python docs/plugging_in.py T1W MASK TEMPLATE_DIR ATLAS_DIR WORK_DIR

The host pipeline has a bias-corrected T1w image and a brain mask, as fMRIPrep and sMRIPrep do.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from nipype.interfaces.utility import Function, IdentityInterface
from nipype.pipeline import engine as pe

from surreal_bids.imaging.atlas import AtlasSet, read_atlas_set
from surreal_bids.workflows.anatomy import (
    AtlasFiles,
    init_ravens_wf,
    init_registration_wf,
    init_segmentation_wf,
    init_tissue_wf,
)


def largest_region(volumes: str) -> str:
    """Read the table of `segmentation_wf`, as a step of the host pipeline would."""
    import pandas as pd

    table = pd.read_csv(volumes, sep='\t')
    return str(table.loc[table['volume_mm3'].idxmax(), 'name'])


def init_host_wf(*, template_dir: Path, atlas: AtlasSet, name: str = 'host_wf') -> pe.Workflow:
    """Build a host pipeline that computes volumes and RAVENS maps.

    Parameters
    ----------
    template_dir
        Folder with the template.
    atlas
        Labelled brains.
    name
        Name of the workflow.

    Inputs
    ------
    t1w_preproc, t1w_mask
        Bias-corrected T1w image, and brain mask.

    Outputs
    -------
    dseg, volumes, ravens
        Label map, table of volumes, and maps of GM, WM and CSF.
    largest
        Name of the largest region.
    """
    workflow = pe.Workflow(name=name)
    inputnode = pe.Node(IdentityInterface(fields=['t1w_preproc', 't1w_mask']), name='inputnode')
    outputnode = pe.Node(
        IdentityInterface(fields=['dseg', 'volumes', 'ravens', 'largest']), name='outputnode'
    )
    segmentation_wf = init_segmentation_wf(
        atlases=[AtlasFiles(each.t1w, each.labels) for each in atlas.atlases],
        regions_file=atlas.atlases[0].labels.parent / 'dseg.tsv',
        device='cpu',
    )
    registration_wf = init_registration_wf(template_dir=template_dir, device='cpu', omp_nthreads=1)
    tissue_wf = init_tissue_wf(template_dir=template_dir, omp_nthreads=1)
    ravens_wf = init_ravens_wf()
    largest = pe.Node(Function(function=largest_region, output_names=['out']), name='largest')
    anatomy = (
        ('t1w_preproc', 'inputnode.t1w_preproc'),
        ('t1w_mask', 'inputnode.t1w_mask'),
    )
    workflow.connect(
        [
            (inputnode, segmentation_wf, [*anatomy]),
            (inputnode, registration_wf, [*anatomy]),
            (inputnode, tissue_wf, [*anatomy]),
            (
                registration_wf,
                tissue_wf,
                [('outputnode.std2anat_xfm', 'inputnode.std2anat_xfm')],
            ),
            (
                registration_wf,
                ravens_wf,
                [('outputnode.anat2std_xfm', 'inputnode.anat2std_xfm')],
            ),
            (tissue_wf, ravens_wf, [('outputnode.t1w_shares', 'inputnode.t1w_shares')]),
            (segmentation_wf, largest, [('outputnode.volumes', 'volumes')]),
            (
                segmentation_wf,
                outputnode,
                [('outputnode.dseg', 'dseg'), ('outputnode.volumes', 'volumes')],
            ),
            (ravens_wf, outputnode, [('outputnode.ravens', 'ravens')]),
            (largest, outputnode, [('out', 'largest')]),
        ]
    )
    return workflow


def main(t1w: Path, mask: Path, template_dir: Path, atlas_dir: Path, work_dir: Path) -> None:
    """Run the pipeline on one image."""
    host_wf = init_host_wf(
        template_dir=template_dir.absolute(),
        atlas=read_atlas_set(atlas_dir.absolute()),
    )
    host_wf.base_dir = str(work_dir.absolute())
    host_wf.inputs.inputnode.t1w_preproc = str(t1w.absolute())
    host_wf.inputs.inputnode.t1w_mask = str(mask.absolute())
    host_wf.run(plugin='Linear')


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description='ROI volumes and RAVENS maps of one T1w image.')
    for name in ('t1w', 'mask', 'template_dir', 'atlas_dir', 'work_dir'):
        parser.add_argument(name, type=Path, metavar=name.upper())
    main(**vars(parser.parse_args()))
