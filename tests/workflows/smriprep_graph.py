"""Build the graph of a tutorial with the real sMRIPrep, and check every connection.

    python smriprep_graph.py SCRIPT

Run by test_smriprep.py in an environment that has sMRIPrep. It writes, as JSON, the connections
between the two programs after workflows and buffers have been taken out of the graph.
"""

import json
import sys
from pathlib import Path
from unittest.mock import patch
from zipfile import ZipFile

from nipype.interfaces.base import traits
from nipype.interfaces.base.traits_extension import MultiObject
from nipype.pipeline.engine.utils import generate_expanded_graph

RUN = '# The same stage, run'
"""Heading of the part of the script that runs the graph."""


TEMPLATES = ('tpl-MNI152NLin6Asym/', 'tpl-MNI152NLin2009cAsym/', 'tpl-OASIS30ANTs/')
"""Folders of templates in use; TemplateFlow lists all that it has for half a minute."""


def build(script: Path) -> dict:
    """Execute the script up to the part that runs the graph."""
    names, all_of = {'__name__': 'tutorial'}, ZipFile.namelist

    def few(file: ZipFile) -> list[str]:
        return [name for name in all_of(file) if name.startswith(TEMPLATES) or name[:4] != 'tpl-']

    with patch.object(ZipFile, 'namelist', few):
        exec(compile(script.read_text().partition(RUN)[0], str(script), 'exec'), names)  # noqa: S102
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
    graph = build(Path(sys.argv[1]))['host_wf']._create_flat_graph()
    sys.stdout.write(json.dumps(check(generate_expanded_graph(graph))) + '\n')
