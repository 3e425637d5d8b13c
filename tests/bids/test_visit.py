import json
from pathlib import Path

import pytest

from surreal_bids.bids.derivatives import VisitOutputs


@pytest.mark.parametrize(
    ('session', 'name', 'folder'),
    [(None, 'sub-01', 'sub-01/anat'), ('a', 'sub-01_ses-a', 'sub-01/ses-a/anat')],
)
def test_paths_of_a_visit(session, name, folder):
    visit = VisitOutputs(Path('out'), '01', session, 'muse', 'MNI')
    assert visit.name == name
    assert visit.path('t1w') == Path('out') / folder / f'{name}_desc-preproc_T1w.nii.gz'
    assert visit.path('segmentation').name == f'{name}_seg-muse_dseg.nii.gz'
    assert visit.path('ravens', tissue='GM').name == f'{name}_space-MNI_label-GM_ravens.nii.gz'
    assert visit.path('report') == Path('out/sub-01.html')


def test_sidecars_of_a_visit(tmp_path):
    visit = VisitOutputs(tmp_path, '01', None, 'muse', 'MNI')
    path = visit.path('brain_mask')
    path.parent.mkdir(parents=True)
    path.with_name('sub-01_desc-brain_mask.json').write_text(json.dumps({'Type': 'Brain'}))
    assert visit.sidecar('brain_mask') == {'Type': 'Brain'}
