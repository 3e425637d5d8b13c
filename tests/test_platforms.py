"""What only some platforms have is not needed: import, and tables to R-indices.

The public CI is meant to run the tests of tables on macOS and Windows; here their missing modules
are hidden.
"""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

MISSING = ('fcntl', 'grp', 'pwd', 'resource', 'syslog', 'termios')
"""Modules of Python on Linux that Windows lacks; macOS has them."""

RUN = """
import importlib, os, pkgutil, sys, warnings

missing = sys.argv[1].split(',')

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in missing:
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)

for name in missing:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Hidden())
for name in ('sched_getaffinity', 'statvfs', 'fork', 'getuid', 'geteuid', 'killpg'):
    if hasattr(os, name):
        delattr(os, name)

"""

IMPORT = """
import surreal_bids
for module in pkgutil.walk_packages(surreal_bids.__path__, 'surreal_bids.'):
    if not module.name.endswith('__main__'):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            print(module.name, error.name)
print('imported')
"""

ONLY_FOR_IMAGES = ('cli.execution', 'cli.group', 'cli.participants')
"""Modules that need the plugins of Nipype, which does not run on Windows."""

TABLES = """
import surreal_bids.model.number as stability
from surreal_bids.cli.gan import main
stability.PERMUTATIONS = stability.REPRODUCTIONS = 1
table, people, model, out = sys.argv[2:]
short = '--n-patterns 1 --repetitions 2 --iterations 20 --folds 0'.split()
given = [table, '--participants', people]
code = main(['fit', *given, '--out', model, *short])
sys.exit(code or main(['apply', *given, '--model', model, '--out', out]))
"""


def run(code, *arguments, folder):
    hidden = ','.join(MISSING)
    command = [sys.executable, '-X', 'warn_default_encoding', '-c', RUN + code, hidden]
    return subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, check=False, cwd=folder
    )


def encoding_warnings(done):
    """Places of ours that depend on the encoding of the platform, as files of Windows do."""
    lines = done.stderr.splitlines()
    return [line for line in lines if 'EncodingWarning' in line and 'surreal_bids' in line]


@pytest.fixture(scope='module')
def study(tmp_path_factory):
    """Tables of 40 controls and 40 patients with 12 regions, and a folder for the model."""
    folder = tmp_path_factory.mktemp('study')
    rng = np.random.default_rng(0)
    patient = np.repeat([0, 1], 40)
    values = rng.normal(1000, 100, (80, 12))
    values[:, :6] -= 300 * (patient * rng.uniform(size=80))[:, None]
    table = pd.DataFrame(values, columns=[f'region_{k}' for k in range(12)])
    table.insert(0, 'participant_id', [f'sub-{k:03}' for k in range(80)])
    people = table[['participant_id']].assign(diagnosis=np.where(patient, 'PT', 'CN'))
    people.to_csv(folder / 'participants.tsv', sep='\t', index=False)
    table.to_csv(folder / 'volumes.tsv', sep='\t', index=False)
    return folder


@pytest.mark.slow
def test_everything_imports(tmp_path):
    done = run(IMPORT, folder=tmp_path)
    *refused, last = done.stdout.splitlines()
    assert last == 'imported', done.stderr[-2000:]
    assert set(refused) == {f'surreal_bids.{name} pwd' for name in ONLY_FOR_IMAGES}


@pytest.mark.slow
def test_tables_become_r_indices(study):
    paths = (study / name for name in ('volumes.tsv', 'participants.tsv', 'model', 'rindices.tsv'))
    done = run(TABLES, *paths, folder=study)
    assert done.returncode == 0, done.stderr[-2000:]
    assert encoding_warnings(done) == []
    assert (study / 'rindices.tsv').is_file()
    written = [path for path in study.rglob('*') if path.suffix in ('.tsv', '.json')]
    assert not [path for path in written if b'\r' in path.read_bytes()]
    assert not list(study.rglob('.surreal_bids*'))
