"""
Volumes and RAVENS maps inside sMRIPrep
=======================================

In this tutorial you add our stages to the workflow of sMRIPrep (or fMRIPrep): it computes the
brain mask, tissues and transforms, and our stages compute regional volumes and RAVENS maps.
:doc:`/plugging_in` lists all stages. Both packages must be installed in one environment (tested
with sMRIPrep 0.19.5).
"""

# %%
# A head, and templates
# ---------------------
# The head is simulated at 4 mm. This page is built offline, so images of one voxel stand in for the
# templates that sMRIPrep downloads; omit the lines about TemplateFlow in your own pipeline.

import os
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path

folder = Path(tempfile.mkdtemp())
os.environ['TEMPLATEFLOW_HOME'] = str(folder / 'templateflow')

import networkx as nx
import nibabel as nib
import numpy as np
import pandas as pd
import templateflow.conf
from matplotlib import pyplot as plt
from nipype.pipeline import engine as pe
from niworkflows.interfaces.utility import KeySelect
from niworkflows.utils.spaces import Reference, SpatialReferences
from smriprep.workflows.anatomical import init_anat_fit_wf

from surreal_bids.files import write_image
from surreal_bids.templates import builtin_template
from surreal_bids.workflows.anatomy import (
    init_bias_correction_wf,
    init_brain_wf,
    init_network_segmentation_wf,
    init_ravens_wf,
    init_transforms_wf,
)

command = 'surreal-simulate cohort heads --n-cn 1 --n-pt 0 --voxel-size 4 --skull-stripped'
subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
t1w = folder / 'heads' / 'sub-CN0001' / 'anat' / 'sub-CN0001_T1w.nii.gz'

voxel = nib.Nifti1Image(np.ones((1, 1, 1), np.float32), np.eye(4))
for template in ('MNI152NLin6Asym', 'MNI152NLin2009cAsym', 'OASIS30ANTs'):
    for path in (templateflow.conf.TF_HOME / f'tpl-{template}').rglob('*.nii.gz'):
        nib.save(voxel, path)

# %%
# sMRIPrep
# --------
# It registers to two templates here, so its transforms are lists.

spaces = SpatialReferences(['MNI152NLin6Asym', 'MNI152NLin2009cAsym'])
spaces.checkpoint()
anat_fit_wf = init_anat_fit_wf(
    bids_root=str(folder / 'heads'),
    output_dir=str(folder / 'out'),
    t1w=[str(t1w)],
    t2w=[],
    spaces=spaces,
    skull_strip_mode='auto',
    skull_strip_template=Reference('OASIS30ANTs'),
    freesurfer=False,
    hires=False,
    longitudinal=False,
    msm_sulc=False,
    precomputed={},
    omp_nthreads=1,
)
anat_fit_wf.inputs.inputnode.t1w = [str(t1w)]

# %%
# Our stages
# ----------
# Each is a function that returns a workflow. None reads a global configuration or decides where
# outputs go. A node of niworkflows selects the transforms of our template from the lists.

template_t1w = write_image(folder / 'template_T1w.nii.gz', builtin_template().t1w)
select_transforms = pe.Node(
    KeySelect(fields=['anat2std_xfm', 'std2anat_xfm'], key='MNI152NLin2009cAsym'),
    name='select_transforms',
)
transforms_wf = init_transforms_wf(template_t1w=template_t1w)
segmentation_wf = init_network_segmentation_wf(
    regions_file=files('surreal_bids') / 'data' / 'muse.tsv', device='cpu', omp_nthreads=1
)
ravens_wf = init_ravens_wf()

# %%
# The connections
# ---------------
# Give each one its own list, because Nipype modifies the lists.

host_wf = pe.Workflow(name='host_wf', base_dir=str(folder / 'work'))
host_wf.connect(
    [
        (
            anat_fit_wf,
            select_transforms,
            [
                ('outputnode.template', 'keys'),
                ('outputnode.anat2std_xfm', 'anat2std_xfm'),
                ('outputnode.std2anat_xfm', 'std2anat_xfm'),
            ],
        ),
        (
            select_transforms,
            transforms_wf,
            [
                ('anat2std_xfm', 'inputnode.anat2std_xfm'),
                ('std2anat_xfm', 'inputnode.std2anat_xfm'),
            ],
        ),
        (anat_fit_wf, transforms_wf, [('outputnode.t1w_preproc', 'inputnode.t1w_preproc')]),
        (
            anat_fit_wf,
            segmentation_wf,
            [
                ('outputnode.t1w_preproc', 'inputnode.t1w_preproc'),
                ('outputnode.t1w_mask', 'inputnode.t1w_mask'),
            ],
        ),
        (anat_fit_wf, ravens_wf, [('outputnode.t1w_tpms', 'inputnode.t1w_shares')]),
        (transforms_wf, ravens_wf, [('outputnode.anat2std_xfm', 'inputnode.anat2std_xfm')]),
    ]
)
places = {
    anat_fit_wf: (0, 0),
    select_transforms: (1, 1),
    transforms_wf: (2, 1),
    segmentation_wf: (2, 0),
    ravens_wf: (3, 0.5),
}
figure, axis = plt.subplots(figsize=(9, 3), layout='constrained')
nx.draw_networkx(
    host_wf._graph,
    places,
    labels={node: node.name for node in places},
    node_size=5000,
    node_color=['C1' if node is anat_fit_wf else 'lightblue' for node in host_wf._graph],
    font_size=8,
    ax=axis,
)
axis.set_axis_off()
axis.margins(0.2, 0.35)
plt.show()

# %%
# ``host_wf.run(plugin='MultiProc')`` runs everything. The work folder then has the table of volumes
# in ``host_wf/segmentation_wf`` and the maps in ``host_wf/ravens_wf``. To use them elsewhere,
# connect ``segmentation_wf`` (``outputnode.volumes``, ``outputnode.dseg``) and ``ravens_wf``
# (``outputnode.ravens``) to your own nodes.
#
# The same stage, run
# -------------------
# sMRIPrep itself needs ANTs, FSL and an hour, so this page runs the stage of regional volumes with
# our own brain mask and bias correction in the place of sMRIPrep's.

brain_wf = init_brain_wf(device='cpu', omp_nthreads=1)
bias_wf = init_bias_correction_wf(omp_nthreads=1)
segmentation_wf = init_network_segmentation_wf(
    regions_file=files('surreal_bids') / 'data' / 'muse.tsv', device='cpu', omp_nthreads=1
)
own_wf = pe.Workflow(name='own_wf', base_dir=str(folder / 'work'))
own_wf.connect(
    [
        (brain_wf, bias_wf, [('outputnode.t1w_mask', 'inputnode.t1w_mask')]),
        (brain_wf, segmentation_wf, [('outputnode.t1w_mask', 'inputnode.t1w_mask')]),
        (bias_wf, segmentation_wf, [('outputnode.t1w_preproc', 'inputnode.t1w_preproc')]),
    ]
)
brain_wf.inputs.inputnode.t1w = str(t1w)
bias_wf.inputs.inputnode.t1w = str(t1w)
own_wf.run(plugin='Linear')

(table,) = (folder / 'work' / 'own_wf' / 'segmentation_wf').rglob('*.tsv')
volumes = pd.read_table(table)
volumes.nlargest(5, 'volume_mm3')
