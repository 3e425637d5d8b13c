import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from surreal_bids.exceptions import OutputError
from surreal_bids.files import (
    LOCK,
    RUNS,
    atomic_path,
    final_path,
    is_interrupted,
    remove_leftovers,
    restore,
    sole_use,
    staged,
    write_image,
    write_json,
    write_text,
    write_tsv,
)

POSIX = pytest.mark.skipif(os.name != 'posix', reason='signals and flock are of POSIX')


def test_an_error_inside_the_block_leaves_the_old_file_and_no_litter(tmp_path):
    target = tmp_path / 'table.tsv'
    write_text(target, 'old')
    with pytest.raises(ZeroDivisionError), atomic_path(target) as temporary:
        temporary.write_text(str(1 / 0))
    assert target.read_text() == 'old'
    assert [path.name for path in tmp_path.iterdir()] == ['table.tsv']


@POSIX
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
    assert not target.exists()
    assert len(list(tmp_path.iterdir())) == 1
    remove_leftovers(target)
    assert not list(tmp_path.iterdir())


def test_leftovers_of_other_files_stay(tmp_path):
    for name in ('.0123abcd.other.nii.gz', 'image.nii.gz', '.hidden'):
        (tmp_path / name).write_text('')
    remove_leftovers(tmp_path / 'image.nii.gz')
    assert len(list(tmp_path.iterdir())) == 3


def test_the_temporary_name_keeps_the_extension_and_is_hidden(tmp_path):
    with atomic_path(tmp_path / 'a_T1w.nii.gz') as temporary:
        assert temporary.name.endswith('.nii.gz')
        assert temporary.name.startswith('.')
        temporary.write_bytes(b'')


def test_tsv_marks_missing_values(tmp_path):
    path = write_tsv(tmp_path / 't.tsv', pd.DataFrame({'a': [1.5, np.nan], 'b': ['x', None]}))
    assert path.read_text() == 'a\tb\n1.5\tx\nn/a\tn/a\n'


@pytest.mark.parametrize('value', [float('nan'), float('inf')])
def test_json_refuses_what_json_cannot_hold(tmp_path, value):
    with pytest.raises(ValueError):
        write_json(tmp_path / 'x.json', {'value': value})
    assert not list(tmp_path.iterdir())


def test_json_round_trip(tmp_path):
    content = {'Name': 'x', 'list': [1, 2.5, None]}
    assert json.loads(write_json(tmp_path / 'deep' / 'x.json', content).read_text()) == content


@pytest.mark.parametrize('number', [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT])
def test_a_place_that_cannot_be_written_is_named(tmp_path, number):
    with (
        pytest.raises(OutputError, match=r'x\.tsv: cannot be written'),
        atomic_path(tmp_path / 'x.tsv'),
    ):
        raise OSError(number, os.strerror(number))
    assert not list(tmp_path.iterdir())


def test_an_unreadable_input_inside_the_block_is_not_blamed_on_the_output(tmp_path):
    with pytest.raises(FileNotFoundError), atomic_path(tmp_path / 'x.tsv'):
        (tmp_path / 'absent').read_text()


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path):
    (tmp_path / 'file').write_text('')
    with pytest.raises(OutputError, match='file: cannot be written'):
        write_text(tmp_path / 'file' / 'x', '')


def test_a_file_is_as_readable_as_any_other(tmp_path):
    (tmp_path / 'usual').touch()
    with atomic_path(tmp_path / 'secret') as temporary:
        temporary.write_text('x')
        temporary.chmod(0o600)
    assert (tmp_path / 'secret').stat().st_mode == (tmp_path / 'usual').stat().st_mode


HOLD = (
    'import sys; from surreal_bids.files import sole_use\n'
    'with sole_use(sys.argv[1], sys.argv[2:]):\n'
    '    print("ready", flush=True); sys.stdin.read()\n'
)


@pytest.fixture
def holder(tmp_path):
    """Another process that uses sub-01 of the folder."""
    command = [sys.executable, '-c', HOLD, str(tmp_path), 'sub-01']
    pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'text': True}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout.readline() == 'ready\n'
        yield process
        process.kill()


def test_a_folder_in_use_is_refused_and_its_user_named(tmp_path, holder):
    with (
        pytest.raises(OutputError, match=rf'sub-01 \(process {holder.pid} on .*, since 20'),
        sole_use(tmp_path, ['sub-00', 'sub-01']),
    ):
        pass
    assert (tmp_path / LOCK).exists()


def test_others_may_use_other_parts_and_the_last_tidies_up(tmp_path, holder):
    with sole_use(tmp_path, ['sub-02']):
        assert len(json.loads((tmp_path / RUNS).read_text())) == 2
    assert (tmp_path / LOCK).exists()
    holder.communicate('')
    assert holder.returncode == 0
    assert not list(tmp_path.iterdir())


def test_a_killed_user_is_forgotten(tmp_path, holder):
    holder.kill()
    holder.wait()
    assert (tmp_path / LOCK).exists()
    with sole_use(tmp_path, ['sub-01']):
        pass
    assert not list(tmp_path.iterdir())


def test_a_killed_user_of_another_part_is_forgotten_by_the_last(tmp_path, holder):
    holder.kill()
    holder.wait()
    with sole_use(tmp_path, ['sub-02']):
        pass
    assert not list(tmp_path.iterdir())


def test_one_process_may_lock_a_folder_twice(tmp_path):
    with sole_use(tmp_path, ['sub-01']), sole_use(tmp_path, ['sub-01', 'sub-02']):
        assert len(json.loads((tmp_path / RUNS).read_text())) == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('damage', ['', '{"half', '[{"name": "0"}]', '[1]'])
def test_a_damaged_list_of_runs_is_replaced(tmp_path, damage):
    (tmp_path / RUNS).write_text(damage)
    with sole_use(tmp_path, ['sub-01']):
        (run,) = json.loads((tmp_path / RUNS).read_text())
        assert run['parts'] == ['sub-01']
    assert not list(tmp_path.iterdir())


RACE = (
    'import sys; from surreal_bids.files import sole_use\n'
    'from surreal_bids.exceptions import OutputError\n'
    'won = 0\n'
    'for _ in range(20):\n'
    '    try:\n'
    '        with sole_use(sys.argv[1] + "/out", ["sub-01"]):\n'
    '            open(sys.argv[1] + "/mark", "x").close()\n'
    '            __import__("os").unlink(sys.argv[1] + "/mark")\n'
    '            won += 1\n'
    '    except OutputError:\n'
    '        pass\n'
    'print(won)\n'
)


def test_of_several_processes_only_one_is_inside_at_a_time(tmp_path):
    """Each marks that it is inside; a mark that exists would be an error."""
    command = [sys.executable, '-c', RACE, str(tmp_path)]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    won = [int(run.communicate()[0]) for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert sum(won) > 0
    # The process that made the folder cannot remove it while another one uses it.
    assert [path.name for path in tmp_path.rglob('*')] in ([], ['out'])


@POSIX
def test_a_file_system_without_locks_is_a_warning(tmp_path, monkeypatch, caplog):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr('fcntl.flock', refuse)
    with sole_use(tmp_path, ['a', 'b']):
        pass
    assert [record.message.count('has no locks') for record in caplog.records] == [1]
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_not_locked(tmp_path):
    (tmp_path / 'file').write_text('')
    with (
        pytest.raises(OutputError, match='file: cannot be written'),
        sole_use(tmp_path / 'file', ['a']),
    ):
        pass


def test_a_folder_that_vanished_is_named(tmp_path):
    folder = tmp_path / 'out'
    with (
        pytest.raises(OutputError, match=r'x\.tsv: cannot be written'),
        atomic_path(folder / 'x.tsv'),
    ):
        shutil.rmtree(folder)


def test_a_folder_that_was_made_and_not_used_goes_again(tmp_path):
    with sole_use(tmp_path / 'out', ['a']):
        assert (tmp_path / 'out' / LOCK).exists()
    assert not list(tmp_path.iterdir())


EARLIER = {'a.tsv': 'old', 'b/c.json': 'old', 'gone.tsv': 'old', 'own.txt': 'by hand'}
REPLACED = {'a.tsv': 'new', 'b/c.json': 'new', 'd/e.txt': 'new', 'own.txt': 'by hand'}


def replace_outputs(folder):
    with staged(folder, 'set', [folder / 'gone.tsv', folder / 'a.tsv']) as new:
        for name in ('a.tsv', 'b/c.json', 'd/e.txt'):
            write_text(new / name, 'new')


def texts(folder):
    found = (path for path in folder.rglob('*') if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in found}


@pytest.fixture
def outputs(tmp_path):
    folder = tmp_path / 'out'
    for name, text in EARLIER.items():
        write_text(folder / name, text)
    return folder


def test_staged_files_replace_earlier_ones_together(outputs):
    replace_outputs(outputs)
    assert texts(outputs) == REPLACED


def test_an_error_leaves_all_earlier_files(outputs):
    with pytest.raises(ZeroDivisionError), staged(outputs, 'set', outputs.iterdir()) as new:
        write_text(new / 'a.tsv', str(1 / 0))
    assert texts(outputs) == EARLIER


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='Windows has no fork')
@pytest.mark.parametrize('end', ['error', 'interruption', 'kill'])
def test_earlier_or_new_files_are_there_whatever_call_fails(outputs, end, monkeypatch):
    monkeypatch.setattr(os, 'fsync', bool)
    at, ended = 0, False
    while not ended:
        at += 1
        shutil.rmtree(outputs)
        for name, text in EARLIER.items():
            write_text(outputs / name, text)
        ended = fails_at(at, end, lambda: replace_outputs(outputs))
        assert end == 'kill' or not is_interrupted(outputs)
        restore(outputs, 'set')
        assert texts(outputs) == REPLACED or (texts(outputs) == EARLIER and not ended)
    assert at > 30


def fails_at(at, end, function):
    """Fail at one call of the system, in a copy of this process; return whether it has ended."""
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    calls = []

    def failing(real):
        def call(*arguments, **options):
            calls.append(real)
            if len(calls) != at:
                return real(*arguments, **options)
            if end == 'kill':
                os._exit(1)
            raise KeyboardInterrupt if end == 'interruption' else OSError(28, 'full')

        return call

    for name in ('fsync', 'replace', 'mkdir', 'unlink', 'rmdir', 'open'):
        setattr(os, name, failing(getattr(os, name)))
    with suppress(OSError, KeyboardInterrupt):
        function()
    os._exit(len(calls) >= at)


def test_a_folder_in_the_place_of_a_file_stays(outputs):
    (outputs / 'd' / 'e.txt').mkdir(parents=True)
    with pytest.raises(OutputError, match=r'e\.txt: .*a folder'):
        replace_outputs(outputs)
    assert texts(outputs) == EARLIER


def test_messages_name_the_final_place(outputs):
    assert final_path(outputs / '.surreal_bids-set' / 'new' / 'b' / 'c') == outputs / 'b' / 'c'
    assert final_path(outputs / 'b') == outputs / 'b'


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 64 kB."""
    folder = tmp_path / 'disk'
    folder.mkdir()
    mount = ['mount', '-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip('mounting a file system needs root')
    yield folder
    subprocess.run(['umount', str(folder)], check=True)


def test_a_full_disk_is_named_and_leaves_the_earlier_file(tiny_disk):
    target = write_text(tiny_disk / 'table.tsv', 'old')
    with pytest.raises(OutputError, match=r'table\.tsv: cannot be written \(No space left'):
        write_text(target, 'new' * 100_000)
    assert target.read_text() == 'old'
    assert len(list(tiny_disk.iterdir())) == 1


def test_a_read_only_disk_is_named(tiny_disk):
    subprocess.run(['mount', '-o', 'remount,ro', str(tiny_disk)], check=True)
    with pytest.raises(OutputError, match=r'x\.json: cannot be written \(Read-only'):
        write_json(tiny_disk / 'x.json', {})
    with pytest.raises(OutputError, match='Read-only'), sole_use(tiny_disk, ['a']):
        pass


@pytest.mark.parametrize('order', ['C', 'F'])
@pytest.mark.parametrize('scale', [(None, None), (0.01, 0)])
@pytest.mark.parametrize('dtype', [np.int16, np.float32])
def test_images_are_written_as_nibabel_does(tmp_path, order, scale, dtype):
    values = np.arange(24 * 5 * 7).reshape(24, 5, 7)
    image = nib.Nifti1Image(np.array(values, dtype, order=order), np.diag([2.0, 3, 4, 1]))
    image.header.set_slope_inter(*scale)
    expected = image.to_bytes()
    assert write_image(tmp_path / 'image.nii', image).read_bytes() == expected
