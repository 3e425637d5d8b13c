"""When CI has to test the containers again: `singularity/tested.sh`."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ('test-image', 'test-slurm')
COPIED = (
    'Dockerfile',
    '.dockerignore',
    'constraints.txt',
    'pyproject.toml',
    'run.py',
    'singularity',
    'surreal_bids/cli',
    'tests/containers',
)


@pytest.fixture
def clone(tmp_path):
    """A copy of what counts, in which both targets have passed."""
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, tmp_path / name)
    (tmp_path / 'singularity' / 'tested').unlink(missing_ok=True)
    assert passed(tmp_path) == ()
    for target in TARGETS:
        subprocess.run([tmp_path / 'singularity' / 'tested.sh', 'record', target], check=True)
    assert passed(tmp_path) == TARGETS
    return tmp_path


def passed(clone):
    """Targets that have passed with the files as they are."""
    command = clone / 'singularity' / 'tested.sh'
    checks = {name: subprocess.run([command, 'check', name]).returncode for name in TARGETS}
    return tuple(name for name, code in checks.items() if code == 0)


@pytest.mark.parametrize(
    ('name', 'old', 'new', 'still'),
    [
        ('Dockerfile', 'WORKDIR /tmp', 'WORKDIR /', ('test-slurm',)),
        ('tests/containers/levels.sh', '--sites 1', '--sites 2', ('test-slurm',)),
        ('singularity/slurm/submit.sh', 'sbatch --parsable', 'sbatch', ('test-image',)),
        ('tests/containers/options.sh', '100', '200', TARGETS),
        ('constraints.txt', 'torch==', 'torch>=', ()),
        ('pyproject.toml', "'tqdm >=4.66'", "'tqdm >=4.67'", ()),
        ('pyproject.toml', 'line-length = 100', 'line-length = 99', TARGETS),
        ('surreal_bids/cli/app.py', 'BIDS App', 'program', TARGETS),
        ('singularity/README.md', 'Containers', 'Images', TARGETS),
    ],
)
def test_a_target_is_due_when_what_it_tests_has_changed(clone, name, old, new, still):
    text = (clone / name).read_text()
    assert old in text
    (clone / name).write_text(text.replace(old, new))
    assert passed(clone) == still


def test_a_file_that_is_gone_is_no_pass(clone):
    (clone / 'singularity' / 'slim.py').unlink()
    assert passed(clone) == ('test-slurm',)
