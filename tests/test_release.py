"""What a release says of itself, in all the places that say it."""

import re
from pathlib import Path

import pytest
import yaml

from surreal_bids import __version__

ROOT = Path(__file__).resolve().parents[1]
PLACES = {
    'CITATION.cff': r'^version: (\S+)$',
    '.zenodo.json': r'"version": "([^"]+)"',
    'Dockerfile': r'image\.version="([^"]+)"',
    'singularity/surreal_bids.def': r'^ +Version (\S+)$',
    'singularity/boutiques.json': r'"tool-version": "([^"]+)"',
    'CHANGES.md': r'^## (\d\S*)',
}


@pytest.mark.parametrize('name', PLACES)
def test_the_version_is_the_same_everywhere(name):
    found = re.search(PLACES[name], (ROOT / name).read_text(), re.MULTILINE)
    assert found
    assert found[1] == __version__


def test_the_citation_follows_its_format():
    """The fields that version 1.2.0 of the Citation File Format requires or restricts."""
    citation = yaml.safe_load(read('CITATION.cff'))
    assert citation['cff-version'] == '1.2.0'
    assert citation['message']
    assert re.fullmatch(r'\d{4}-\d{2}-\d{2}', str(citation['date-released']))
    # The format knows no LicenseRef: the citation names the licence of the code.
    assert f"license = '{citation['license']} AND " in read('pyproject.toml')
    for work in (citation, citation['preferred-citation']):
        assert {'type', 'title', 'authors'} <= set(work)
        for author in work['authors']:
            assert set(author) in ({'name'}, {'family-names', 'given-names'})


def test_the_public_ci_runs_what_ours_does_on_both_architectures():
    jobs = yaml.safe_load((ROOT / '.github' / 'workflows' / 'ci.yml').read_text())['jobs']
    steps = [step.get('run') for step in jobs['test']['steps']]
    words = ' '.join(re.findall(r'^make (.+)$', read('.ci/run'), re.MULTILINE)).split()
    ours = {f'make {target}' for target in words if not target.startswith('-')}
    assert ours == {'make lint', 'make docs', 'make test'}
    assert ours <= set(steps)
    assert len(jobs['test']['strategy']['matrix']['machine']) == 2
    supported = re.search(r"requires-python = '>=3\.(\d+),<3\.(\d+)'", read('pyproject.toml'))
    assert supported
    versions = [f'3.{minor}' for minor in range(int(supported[1]), int(supported[2]))]
    assert jobs['install']['strategy']['matrix']['python'] == versions


def read(name: str) -> str:
    return (ROOT / name).read_text()
