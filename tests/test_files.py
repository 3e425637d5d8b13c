"""Files are complete or absent, whoever is killed; folders have one user at a time."""

import errno
import os
import signal
import subprocess
import sys
from contextlib import suppress

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from surreal_bids.exceptions import InUseError, OutputError
from surreal_bids.files import (
    atomic_path,
    is_unfinished,
    remove_leftovers,
    replacing,
    sole_use,
    system_error,
    write_image,
    write_json,
    write_text,
    write_tsv,
)

pytestmark = pytest.mark.skipif(os.name != 'posix', reason='signals and flock are of POSIX')


def test_an_error_inside_the_block_leaves_the_old_file_and_no_litter(tmp_path):
    target = tmp_path / 'table.tsv'
    write_text(target, 'old')
    with pytest.raises(ZeroDivisionError), atomic_path(target) as temporary:
        temporary.write_text(str(1 / 0))
    with pytest.raises(FileNotFoundError), atomic_path(target):  # It is not the output that lacks.
        (tmp_path / 'absent').read_text()
    assert target.read_text() == 'old'
    assert [path.name for path in tmp_path.iterdir()] == ['table.tsv']


def test_a_killed_writer_leaves_nothing_under_the_final_name(tmp_path):
    target = tmp_path / 'image.nii.gz'
    code = (
        'import os, signal, sys; from surreal_bids.files import atomic_path\n'
        'with atomic_path(sys.argv[1]) as temporary:\n'
        '    temporary.write_bytes(b"half")\n'
        '    os.kill(os.getpid(), signal.SIGKILL)\n'
    )
    done = subprocess.run([sys.executable, '-c', code, str(target)], check=False)
    assert done.returncode == -signal.SIGKILL
    (tmp_path / '.0123abcd.other.nii.gz').touch()
    (leftover,) = tmp_path.glob('.*.image.nii.gz')
    assert leftover.read_bytes() == b'half'
    remove_leftovers(target)
    assert [path.name for path in tmp_path.iterdir()] == ['.0123abcd.other.nii.gz']


def test_tables_mark_missing_values_and_json_refuses_them(tmp_path):
    path = write_tsv(tmp_path / 't.tsv', pd.DataFrame({'a': [1.5, np.nan], 'b': ['x', None]}))
    assert path.read_text() == 'a\tb\n1.5\tx\nn/a\tn/a\n'
    with pytest.raises(ValueError):
        write_json(tmp_path / 'x.json', {'value': float('nan')})
    assert [path.name for path in tmp_path.iterdir()] == ['t.tsv']


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    for number in (errno.EACCES, errno.EROFS, errno.ENOSPC):
        with (
            pytest.raises(OutputError, match=r'x\.tsv: cannot be written'),
            atomic_path(tmp_path / 'x.tsv'),
        ):
            raise OSError(number, os.strerror(number))
    (tmp_path / 'file').write_text('')
    with pytest.raises(OutputError, match='file/x: cannot be written'):
        write_text(tmp_path / 'file' / 'x', '')
    with (
        pytest.raises(OutputError, match='file: cannot be written'),
        sole_use('a', tmp_path / 'file'),
    ):
        pytest.fail('it is no folder')


def test_a_full_disk_names_the_copy_and_not_its_source(tmp_path):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), 'work/x.nii.gz', None, 'out/y.nii.gz')
    assert str(system_error(full)) == 'out/y.nii.gz: No space left on device'
    with (
        pytest.raises(OutputError, match=r'y\.tsv: cannot be written \(No space left'),
        atomic_path(tmp_path / 'y.tsv') as temporary,
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), 'work/x', None, os.fspath(temporary))


HOLD = (
    'import sys; from surreal_bids.files import sole_use\n'
    'with sole_use("sub-01", sys.argv[1]):\n'
    '    print("ready", flush=True); sys.stdin.read()\n'
)


def test_a_part_in_use_is_refused_until_its_user_ends_or_is_killed(tmp_path):
    pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'text': True}
    with subprocess.Popen([sys.executable, '-c', HOLD, str(tmp_path)], **pipes) as process:
        assert process.stdout.readline() == 'ready\n'
        with (
            pytest.raises(OutputError, match='another run is using it for sub-01; wait'),
            sole_use('sub-01', tmp_path / 'work', tmp_path),
        ):
            pytest.fail('both are inside')
        with sole_use('sub-02', tmp_path):
            assert (tmp_path / '.sub-02.lock').exists()
        process.kill()
    with sole_use('sub-01', tmp_path, tmp_path):
        pass
    assert [path.name for path in tmp_path.rglob('*')] == ['work']


def test_a_disk_without_locks_has_markers_in_their_place(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr('fcntl.flock', refused)
    for _ in range(2):
        with sole_use('sub-01', tmp_path):
            with (
                pytest.raises(InUseError, match='another run is using it for sub-01'),
                sole_use('sub-01', tmp_path),
            ):
                pytest.fail('both are inside')
            with sole_use('sub-02', tmp_path):
                pass
        assert list(tmp_path.iterdir()) == []


def replace_outputs(folder, text):
    marker = folder / 'marker.json'
    with replacing(marker, [folder / name for name in ('gone.tsv', 'a.tsv')]):
        write_text(folder / 'a.tsv', text)
        write_text(folder / 'b' / 'c.tsv', text)
        write_text(marker, text)


@pytest.mark.slow
def test_the_marker_is_there_only_if_all_files_are_of_one_run(tmp_path, monkeypatch):
    """Whatever call of the system is the last one of a process; the repeat succeeds."""
    monkeypatch.setattr(os, 'fsync', bool)
    at, ended = 0, False
    while not ended:
        at += 1
        replace_outputs(tmp_path, 'old')
        write_text(tmp_path / 'gone.tsv', 'old')
        ended = ends_before(at, lambda: replace_outputs(tmp_path, 'new'))
        texts = {
            path.name: path.read_text()
            for path in tmp_path.rglob('*')
            if path.is_file() and not path.name.startswith('.')
        }
        new, old = dict.fromkeys(('a.tsv', 'c.tsv', 'marker.json'), 'new'), 'gone.tsv'
        if 'marker.json' in texts:
            assert texts in (new, dict.fromkeys([*new, old], 'old'))
        else:
            assert is_unfinished(tmp_path / 'marker.json')
    assert texts == new
    assert at > 10


def ends_before(at, function):
    """Kill a copy of this process at one call of the system; return whether it ended before."""
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    calls = []

    def killing(real):
        def call(*arguments, **options):
            calls.append(real)
            return os._exit(1) if len(calls) == at else real(*arguments, **options)

        return call

    for name in ('fsync', 'replace', 'mkdir', 'unlink', 'open'):
        setattr(os, name, killing(getattr(os, name)))
    with suppress(OSError):
        function()
    os._exit(len(calls) >= at)


@pytest.mark.parametrize('order', ['C', 'F'])
def test_images_are_written_as_nibabel_does(tmp_path, order):
    values = np.arange(24 * 5 * 7).reshape(24, 5, 7)
    for scale, dtype in (((None, None), np.float32), ((0.01, 0), np.int16)):
        image = nib.Nifti1Image(np.array(values, dtype, order=order), np.diag([2.0, 3, 4, 1]))
        image.header.set_slope_inter(*scale)
        expected = image.to_bytes()
        assert write_image(tmp_path / 'image.nii', image).read_bytes() == expected
