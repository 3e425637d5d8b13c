"""What a release says of itself, in all the places that say it."""

import json
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


def test_the_citation_names_software_and_paper():
    citation = yaml.safe_load((ROOT / 'CITATION.cff').read_text())
    assert (citation['type'], citation['title']) == ('software', 'surreal_bids')
    paper = citation['preferred-citation']
    assert paper['title'].startswith('Surreal-GAN')
    assert [author['family-names'] for author in paper['authors']] == ['Yang', 'Wen', 'Davatzikos']
    assert paper['url'] in (ROOT / 'singularity' / 'boutiques.json').read_text()


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


def test_the_archive_is_told_what_the_citation_says():
    citation, archive = yaml.safe_load(read('CITATION.cff')), json.loads(read('.zenodo.json'))
    assert archive['title'].startswith(f'{citation["title"]}: ')
    assert archive['license'] == citation['license']
    assert archive['keywords'] == citation['keywords']
    assert archive['creators'] == citation['authors']
    assert archive['upload_type'] == 'software'
    (paper,) = archive['related_identifiers']
    assert paper['identifier'] == citation['preferred-citation']['url']


def test_a_tag_builds_attests_and_publishes_package_and_image():
    jobs = yaml.safe_load(read('.github/workflows/release.yml'))['jobs']
    used = {name: [step.get('uses', '') for step in job['steps']] for name, job in jobs.items()}
    for name in ('package', 'image'):
        assert any(step.startswith('actions/attest-build-provenance@') for step in used[name])
        assert jobs[name]['permissions']['attestations'] == 'write'
    assert set(jobs['publish']['needs']) == {'package', 'image'}
    assert '${{ vars.REGISTRY }}' in jobs['image']['env']['SURREAL_IMAGE']
    assert len(jobs['image']['strategy']['matrix']['include']) == 2
    version = "__version__ = '${GITHUB_REF_NAME#v}'"
    assert any(version in step.get('run', '') for step in jobs['package']['steps'])


def test_tables_are_tested_on_other_platforms():
    jobs = yaml.safe_load(read('.github/workflows/ci.yml'))['jobs']
    machines = jobs['tables']['strategy']['matrix']['machine']
    assert {machine.split('-')[0] for machine in machines} == {'macos', 'windows'}
    (tests,) = (step['run'] for step in jobs['tables']['steps'] if 'pytest' in step.get('run', ''))
    assert all((ROOT / name).exists() for name in tests.split() if name.startswith('tests/'))


def read(name: str) -> str:
    return (ROOT / name).read_text()


def test_a_problem_is_reported_with_its_logs():
    template = yaml.safe_load(read('.github/ISSUE_TEMPLATE/problem.yml'))
    logs = next(field for field in template['body'] if field.get('id') == 'logs')
    assert 'logs/' in logs['attributes']['label']
    assert logs['validations']['required']
