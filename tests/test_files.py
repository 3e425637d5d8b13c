import errno
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from surreal_bids.exceptions import OutputError
from surreal_bids.files import atomic_path, remove_leftovers, write_json, write_text, write_tsv


def test_an_error_inside_the_block_leaves_the_old_file_and_no_litter(tmp_path):
    target = tmp_path / 'table.tsv'
    write_text(target, 'old')
    with pytest.raises(ZeroDivisionError), atomic_path(target) as temporary:
        temporary.write_text(str(1 / 0))
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
    with pytest.raises(OutputError, match='cannot make this folder'):
        write_text(tmp_path / 'file' / 'x', '')


def test_a_file_is_as_readable_as_any_other(tmp_path):
    (tmp_path / 'usual').touch()
    with atomic_path(tmp_path / 'secret') as temporary:
        temporary.write_text('x')
        temporary.chmod(0o600)
    assert (tmp_path / 'secret').stat().st_mode == (tmp_path / 'usual').stat().st_mode
