"""Results of fMRIPrep's names, made from our own of one head, give what we give without them."""

import json
import shutil
from dataclasses import replace

import ants
import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from surreal_bids.cli.app import main
from surreal_bids.cli.simulate import main as simulate
from tests.bids.fmriprep_trees import IMAGES, LAYOUTS, XFMS, write_tree

pytestmark = pytest.mark.slow

OPTIONS = ['--template-resolution', '4', '--nprocs', '1']
HEAD = 'sub-CN0001'


@pytest.fixture(scope='module')
def processed(tmp_path_factory):
    """A simulated head of 4 mm, without its skull, and its outputs."""
    root = tmp_path_factory.mktemp('reuse')
    people = ['--n-cn', '1', '--n-pt', '0', '--nprocs', '1']
    image = ['--voxel-size', '4', '--skull-stripped']
    assert simulate(['cohort', str(root / 'raw'), *people, *image]) == 0
    words = [str(root / 'raw'), str(root / 'out'), 'participant', *OPTIONS, *_work(root)]
    assert main(words) == 0
    return root


def _work(root):
    return ['-w', str(root / 'work')]


def _put(processed):
    """How results become files of fMRIPrep: copied, unzipped, or written as a composite."""
    anat = processed / 'out' / HEAD / 'anat'
    names = IMAGES | {key: name.format('MNI152NLin2009cAsym') for key, name in XFMS.items()}

    def put(key, path):
        source = anat / f'{HEAD}_{names[key]}.nii.gz'
        if key in XFMS:
            transform = ants.transform_from_displacement_field(ants.image_read(str(source)))
            ants.write_transform(ants.compose_ants_transforms([transform]), str(path))
        elif path.suffix == '.gz':
            shutil.copy(source, path)
        else:
            nib.Nifti1Image.from_filename(source).to_filename(path)

    return put


def _write_raw(processed, root, *names):
    for name in names:
        path = root / f'{name}.nii.gz'
        path.parent.mkdir(parents=True)
        shutil.copy(processed / 'raw' / HEAD / 'anat' / f'{HEAD}_T1w.nii.gz', path)
    description = {'Name': 'Raw', 'BIDSVersion': '1.10.0'}
    (root / 'dataset_description.json').write_text(json.dumps(description))


def _content(path):
    if path.suffix == '.tsv':
        return pd.read_csv(path, sep='\t')['volume_mm3'].to_numpy()
    return nib.Nifti1Image.from_filename(path).get_fdata()


def test_volumes_and_maps_are_those_without_reuse(processed, tmp_path, caplog):
    # Not compressed, below OUT/fmriprep.
    layout = replace(LAYOUTS['session'], extension='.nii', root='fmriprep')
    write_tree(tmp_path / 'theirs', layout, _put(processed))
    _write_raw(processed, tmp_path / 'raw', *layout.raw)
    arguments = [str(tmp_path / 'raw'), str(tmp_path / 'out'), 'participant', *OPTIONS]
    arguments += [*_work(tmp_path), '-d', str(tmp_path / 'theirs'), '-v']
    assert main(arguments) == 0
    assert 'found for' not in caplog.text, 'nothing is missing'
    ours = tmp_path / 'out' / 'sub-01' / 'ses-a' / 'anat'
    theirs = [*(processed / 'out' / HEAD / 'anat').glob('*')]
    compared = [path for path in theirs if path.suffix in {'.tsv', '.gz'}]
    assert len(compared) == 12
    given = {
        path.name: _content(ours / path.name.replace(HEAD, 'sub-01_ses-a')) for path in compared
    }
    expected = {path.name: _content(path) for path in compared}
    for both in (given, expected):
        # Maps given are taken as shares of voxels (fMRIPrep's are), so that those of our own, in
        # which a mixed voxel is of one tissue, divide grey matter and fluid in another way.
        maps = [name for name in both if 'GM_ravens' in name or 'CSF_ravens' in name]
        both['GM and CSF'] = sum(both.pop(name) for name in maps)
    for name, content in expected.items():
        np.testing.assert_allclose(given[name], content, rtol=1e-5, atol=1e-5, err_msg=name)
    steps = (tmp_path / 'out' / 'logs' / 'sub-01_ses-a.log').read_text()
    assert 'label: done' in steps
    for computed in ('find_brain', 'n4', 'register_template', 'classify'):
        assert computed not in steps
    links = json.loads((tmp_path / 'out' / 'dataset_description.json').read_text())['DatasetLinks']
    assert links['fmriprep'] == '../theirs/fmriprep'
