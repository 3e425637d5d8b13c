"""Build the graph of docs/plugging_in.md with the real sMRIPrep, and check every connection.

    python smriprep_graph.py PAGE WORK_DIR

Run by test_smriprep.py in an environment that has sMRIPrep. It writes, as JSON, the connections
between the two programs after workflows and buffers have been taken out of the graph.
"""

import json
import re
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import templateflow.conf
from nipype.interfaces.base import traits
from nipype.interfaces.base.traits_extension import MultiObject
from nipype.pipeline.engine.utils import generate_expanded_graph

TEMPLATES = ('MNI152NLin6Asym', 'MNI152NLin2009cAsym', 'OASIS30ANTs')


def fill_templates(image: Path) -> None:
    """Put an image in the place of each template, which sMRIPrep would download."""
    for template in TEMPLATES:
        for path in (templateflow.conf.TF_HOME / f'tpl-{template}').rglob('*.nii.gz'):
            path.write_bytes(image.read_bytes())


def run_page(page: Path, work_dir: Path) -> dict:
    """Execute the blocks of the page as one script, without what is under `__main__`."""
    blocks = re.findall(r'```python\n(.+?)```', page.read_text(), re.DOTALL)
    image = work_dir / 'sub-01_T1w.nii.gz'
    nib.save(nib.Nifti1Image(np.ones((7, 8, 9), np.float32), np.eye(4)), image)
    fill_templates(image)
    sys.argv = ['script.py', str(image), str(work_dir), str(work_dir / 'out'), str(work_dir)]
    names = {'__name__': 'page'}
    exec(compile('\n'.join(blocks), str(page), 'exec'), names)  # noqa: S102
    return names


def kind(trait: traits.CTrait) -> str:
    """What a port holds: `one` thing, a `list`, or either (`any`; a list of one becomes one)."""
    if isinstance(trait.handler, MultiObject):
        return 'any'
    return 'list' if isinstance(trait.handler, traits.List) else 'one'


def check(graph) -> list[list[str]]:
    """All connections to and from steps of ours; every port must exist."""
    found = []
    for source, target, data in graph.edges(data=True):
        if not (is_ours(source) or is_ours(target)):
            continue
        for output, port in data['connect']:
            outputs, inputs = source.interface._outputs(), target.inputs
            if output not in outputs.copyable_trait_names():
                raise SystemExit(f'{source.fullname} has no output {output}')
            if port not in inputs.copyable_trait_names():
                raise SystemExit(f'{target.fullname} has no input {port}')
            given, taken = kind(outputs.trait(output)), kind(inputs.trait(port))
            found.append([source.fullname, output, given, target.fullname, port, taken])
    return found


def is_ours(node) -> bool:
    return type(node.interface).__module__.startswith('surreal_bids')


if __name__ == '__main__':
    graph = run_page(Path(sys.argv[1]), Path(sys.argv[2]))['host_wf']._create_flat_graph()
    sys.stdout.write(json.dumps(check(generate_expanded_graph(graph))) + '\n')
