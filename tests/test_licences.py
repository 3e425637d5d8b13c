"""Every file of the wheel has a licence that the metadata names, and its text lies beside it."""

import re
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.containers.licences import other_licences, with_texts

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / 'surreal_bids' / 'data'
CODE = 'Apache-2.0'
OURS = re.compile(r'\.(py|typed|json|yaml|html|css|js|svg|txt|sh|sbatch|md)$')
"""Endings of what we wrote. Anything else is data, whose licence has to be looked at."""


def expression(text: str) -> set[str]:
    return set(text.split(' AND '))


def project() -> dict:
    return tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']


@pytest.fixture(scope='module')
def wheel(tmp_path_factory):
    """The wheel, built without network."""
    builder = pytest.importorskip('hatchling.builders.wheel', reason='needs hatchling: make setup')
    folder = tmp_path_factory.mktemp('wheel')
    (path,) = builder.WheelBuilder(str(ROOT)).build(directory=str(folder), versions=['standard'])
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_the_metadata_of_the_wheel_name_all_licences(wheel):
    name = next(name for name in wheel.namelist() if name.endswith('.dist-info/METADATA'))
    metadata = Parser().parsestr(wheel.read(name).decode())
    assert expression(metadata['License-Expression']) >= {CODE, *other_licences(DATA).values()}
    texts = {
        path.relative_to(ROOT).as_posix() for path in [ROOT / 'LICENSE', *DATA.rglob('LICENSE')]
    }
    assert set(metadata.get_all('License-File')) == texts
    packed = {
        path.split('/licenses/')[1] for path in wheel.namelist() if '.dist-info/licenses/' in path
    }
    assert packed == texts


def test_every_file_of_the_wheel_that_is_not_ours_has_its_licence_beside_it(wheel):
    ours = {'data/freesurfer.tsv'}
    names = {name for name in wheel.namelist() if '.dist-info/' not in name}
    packed = {name.removeprefix('surreal_bids/') for name in names}
    covered = {f'data/{name}': licence for name, licence in other_licences(DATA).items()}
    texts = {name for name in packed if name.endswith('/LICENSE')}
    assert set(covered) <= packed
    assert {name for name in packed - texts - ours if not OURS.search(name)} <= set(covered)
    for name in covered:
        assert {f'{folder.as_posix()}/LICENSE' for folder in Path(name).parents} & texts


def test_each_licence_of_our_own_has_exactly_one_text():
    tags = [
        re.search(r'SPDX-License-Identifier: (LicenseRef-\S+)', path.read_text())
        for path in DATA.rglob('LICENSE')
    ]
    named = [tag[1] for tag in tags if tag]
    assert sorted(named) == sorted(n for n in image_licences() if n.startswith('LicenseRef'))


def image_licences() -> set[str]:
    label = re.search(r'image\.licenses="([^"]+)"', (ROOT / 'Dockerfile').read_text())
    assert label
    return expression(label[1])


def test_wheel_and_images_name_the_same_licences():
    assert image_licences() == expression(project()['license'])
    for name in ('singularity/surreal_bids.def', 'singularity/boutiques.json'):
        said = re.search(r'Licenses?"?:? "?(Apache.+ AND [\w.-]+)', (ROOT / name).read_text(), re.I)
        assert said, name
        assert expression(said[1]) == image_licences()


@pytest.mark.parametrize('name', ['README.md', 'docs/licences.md'])
def test_the_documents_list_every_licensed_part(name):
    text = (ROOT / name).read_text()
    for path in DATA.rglob('LICENSE'):
        assert path.relative_to(ROOT).as_posix() in text


@pytest.mark.slow
def test_dependencies_bring_the_texts_of_their_licences():
    """As in the image, where the same code runs."""
    needed = {re.match(r'[\w-]+', line)[0].lower() for line in project()['dependencies']}
    texts = with_texts()
    assert not {name for name in needed if not texts.get(name.replace('_', '-'))}
