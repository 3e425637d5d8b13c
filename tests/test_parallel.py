"""Worker processes, and files that threads compress."""

import gzip
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch

from surreal_bids.cohort.cohort import read_cohort
from surreal_bids.files import GZIP_PART, write_image
from surreal_bids.parallel import _huge_pages, in_threads, in_workers, set_threads, start_server
from surreal_bids.rindices.crossfit import fit_folds, prepare_folds
from surreal_bids.rindices.model import TableModel
from tests.cohort.study import QUICK, make_study
from tests.conftest import drawing_few

ORPHAN = """
import multiprocessing, os, time
from concurrent.futures import ProcessPoolExecutor
from surreal_bids.parallel import end_with_parent

if __name__ == '__main__':
    context = multiprocessing.get_context('forkserver')
    pool = ProcessPoolExecutor(1, context, initializer=end_with_parent)
    print(pool.submit(os.getpid).result(), flush=True)
    pool.submit(time.sleep, 600).result()
"""


WHERE = """
from concurrent.futures import ProcessPoolExecutor
from surreal_bids.parallel import start_server

def find():
    import surreal_bids.cli.execution, random
    return surreal_bids.__file__, random.__file__

if __name__ == '__main__':
    with ProcessPoolExecutor(1, start_server()) as pool:
        print(*pool.submit(find).result())
    print(*find())
"""


INTERRUPTED = """
import signal
import time
from surreal_bids.cli.main import run_command
from surreal_bids.parallel import start_server

# A suite that runs in the background ignores interruptions, and so do its children.
signal.signal(signal.SIGINT, signal.default_int_handler)

def work(_):
    start_server()
    print('started', flush=True)
    while True:  # A signal just before a long sleep would not end it.
        time.sleep(0.1)

if __name__ == '__main__':
    raise SystemExit(run_command(work, None))
"""


def _is_running(process: int) -> bool:
    status = Path(f'/proc/{process}/stat')
    return status.exists() and status.read_text().rsplit(')', 1)[1].split()[0] != 'Z'


@pytest.mark.skipif(not Path('/proc/self').is_dir(), reason='needs the /proc of Linux')
def test_workers_end_when_the_main_process_is_killed(tmp_path):
    script = tmp_path / 'orphan.py'
    script.write_text(ORPHAN)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE) as main:
        worker = int(main.stdout.readline())
        assert _is_running(worker)
        main.send_signal(signal.SIGKILL)
    until = time.monotonic() + 20
    while _is_running(worker) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _is_running(worker)


def test_workers_are_spawned_where_a_fork_is_not_safe(monkeypatch):
    monkeypatch.setattr(sys, 'platform', 'win32')
    assert start_server().get_start_method() == 'spawn'


def test_workers_whose_results_nobody_needs_end_at_once():
    began = time.monotonic()
    results = in_workers(time.sleep, [0, 60], 2)
    next(results)
    results.close()
    assert time.monotonic() - began < 40


@pytest.mark.parametrize('seconds', [0.0, 1.0])
def test_an_interruption_is_reported_once(tmp_path, seconds):
    """Ctrl-C reaches the server too, while it starts or imports."""
    script = tmp_path / 'interrupted.py'
    script.write_text(INTERRUPTED)
    with subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    ) as main:
        main.stdout.readline()
        time.sleep(seconds)
        os.killpg(main.pid, signal.SIGINT)
        _, told = main.communicate()  # Until the server has ended too.
    assert (main.returncode, told) == (130, 'interrupted; rerun the command to resume\n')


@pytest.mark.slow
def test_workers_import_what_the_main_process_imports(tmp_path):
    """Python looks for modules in the current folder first when it starts the server."""
    for name in ('surreal_bids/__init__.py', 'random.py', 'nibabel.py'):
        (tmp_path / 'here' / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / 'here' / name).write_text("raise RuntimeError('of another project')")
    script = tmp_path / 'where.py'
    script.write_text(WHERE)
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path / 'here', capture_output=True, text=True, check=False
    )
    assert done.stderr == ''
    in_worker, in_main = done.stdout.splitlines()
    assert in_worker == in_main


def test_workers_are_spawned_where_no_socket_can_be_made(monkeypatch):
    def refuse():
        raise OSError('AF_UNIX path too long')

    assert start_server().get_start_method() == 'forkserver'
    monkeypatch.setattr('surreal_bids.parallel.forkserver.ensure_running', refuse)
    assert start_server().get_start_method() == 'spawn'
    assert multiprocessing.get_start_method(allow_none=True) != 'forkserver'


@pytest.mark.slow
@pytest.mark.parametrize('level', [0, 1])
def test_images_are_the_same_whatever_compressed_them(tmp_path, level):
    rng = np.random.default_rng(0)
    values = rng.integers(0, 9, (GZIP_PART // 2000, 40, 120)).astype(np.float32)
    image = nib.Nifti1Image(values, np.diag([1, 2, 3, 1]))
    try:
        for threads in (1, 3):
            set_threads(threads)
            write_image(tmp_path / f'{threads}.nii.gz', image, level=level)
    finally:
        set_threads(1)
    written = (tmp_path / '1.nii.gz').read_bytes()
    assert written == (tmp_path / '3.nii.gz').read_bytes()
    assert gzip.decompress(written) == image.to_bytes()
    subprocess.run(['gzip', '--test', tmp_path / '1.nii.gz'], check=True)
    read = nib.load(tmp_path / '3.nii.gz')
    np.testing.assert_array_equal(np.asarray(read.dataobj), values)
    np.testing.assert_array_equal(read.affine, image.affine)


@pytest.mark.slow
def test_folds_in_processes_of_their_own_give_the_same_models(tmp_path):
    cohort = read_cohort(*make_study().write(tmp_path))
    options = replace(QUICK, iterations=20)
    folds = prepare_folds(cohort, options)
    with drawing_few():  # Not in folds: workers would not know.
        model = TableModel.fit(cohort, options)
    alone, together = (fit_folds(folds, model, options, n_procs=n)[1] for n in (1, 2))
    assert [*alone] == [*together] == [1, 2]
    for fold, each in alone.items():
        tensors, others = each.state()[0], together[fold].state()[0]
        assert tensors.keys() == others.keys()
        assert all(torch.equal(tensors[name], others[name]) for name in tensors)


@pytest.mark.parametrize(
    ('given', 'expected'),
    [
        ('', {'GLIBC_TUNABLES': 'glibc.malloc.hugetlb=1'}),
        ('glibc.malloc.check=0', {'GLIBC_TUNABLES': 'glibc.malloc.check=0:glibc.malloc.hugetlb=1'}),
        ('glibc.malloc.hugetlb=0', {}),
    ],
)
def test_huge_pages_do_not_replace_other_settings_of_glibc(given, expected, monkeypatch):
    monkeypatch.setenv('GLIBC_TUNABLES', given)
    assert _huge_pages() == expected


def test_threads_that_use_threads_do_not_wait_for_ever():
    set_threads(2)
    try:
        sums = in_threads(lambda n: sum(in_threads(abs, range(-n, 0))), range(20))
        assert list(sums) == [n * (n + 1) // 2 for n in range(20)]
    finally:
        set_threads(1)


WRITER = """
import sys, time
from concurrent.futures import ProcessPoolExecutor
from surreal_bids.files import atomic_path
from surreal_bids.parallel import end_with_parent, start_server

def write(path):
    with atomic_path(path) as temporary:
        temporary.write_text('half')
        print('writing', flush=True)
        while True:  # A signal just before a long sleep would not end it.
            time.sleep(0.1)

if __name__ == '__main__':
    with ProcessPoolExecutor(1, start_server(), initializer=end_with_parent) as pool:
        pool.submit(write, sys.argv[1]).result()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != 'linux', reason='interrupts a process group')
def test_an_interrupted_worker_leaves_no_half_written_file(tmp_path):
    script = tmp_path / 'writer.py'
    script.write_text(WRITER)
    out = tmp_path / 'out'
    out.mkdir()
    command = [sys.executable, script, out / 'image.nii']
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as main:
        main.stdout.readline()
        assert len(list(out.iterdir())) == 1
        os.killpg(main.pid, signal.SIGINT)
    assert list(out.iterdir()) == []
