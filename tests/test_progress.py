import io
import logging
import sys

import pytest

from surreal_bids import progress
from surreal_bids.progress import PROGRESS, read_status, report, reporting_to, stage, with_bar


@pytest.fixture
def wait(monkeypatch):
    """Let some seconds pass, also for tqdm."""
    now = [1000.0]
    monkeypatch.setattr(progress.time, 'monotonic', lambda: now[0])
    monkeypatch.setattr('time.time', lambda: now[0])
    monkeypatch.setattr('tqdm.std.time', lambda: now[0])

    def passes(seconds):
        now[0] += seconds

    return passes


def test_a_log_gets_a_line_a_minute_with_the_time_left_of_the_stage(wait, caplog):
    caplog.set_level(logging.INFO, PROGRESS.name)
    with stage('folds'):
        for done in range(1, 30):
            wait(10)
            report(done, 30, 'agreement 0.9')
    assert caplog.messages[0] == 'folds: 20 %, 01:00 elapsed, 04:00 left, agreement 0.9'
    assert len(caplog.messages) == 4


def test_what_an_earlier_run_has_done_does_not_count_as_fast(wait, caplog):
    caplog.set_level(logging.INFO, PROGRESS.name)
    with stage('folds'):
        report(0.5, 1.0)
        wait(60)
        report(0.6, 1.0)
    assert caplog.messages == ['folds: 60 %, 01:00 elapsed, 04:00 left']


def test_the_time_left_of_a_part_is_not_measured_on_the_part_before(wait, caplog):
    caplog.set_level(logging.INFO, PROGRESS.name)
    with stage('final model'):
        for part in range(2):
            for done in range(101):
                wait(0.7)
                report(done, 100, f'part {part}')
    assert caplog.messages[-1].startswith('final model: 70 %, 00:49 elapsed, 00:21 left')


def test_halfway_through_a_stage_half_of_its_time_is_left(wait, monkeypatch, caplog):
    """The estimate was made for the whole command: 4:39 left of a command of 0:29."""
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, 'stderr', terminal)
    caplog.set_level(logging.INFO, PROGRESS.name)
    handler = logging.StreamHandler(terminal)
    monkeypatch.setattr(logging.root, 'handlers', [handler])
    with stage('final model'):
        wait(15)
        report(15, 29, 'M=2')
        logging.getLogger('surreal_bids').warning('a message')
    shown = terminal.getvalue()
    assert 'final model:  52%' in shown
    assert '00:15 elapsed, 00:14 left, M=2' in shown
    assert 'a message\n' in shown
    assert handler.stream is terminal


def test_a_quiet_command_and_an_import_show_nothing(wait, caplog, capsys):
    caplog.set_level(logging.WARNING, PROGRESS.name)
    with stage('folds'):
        wait(70)
        report(1, 2)
    report(1, 2)
    assert list(with_bar('ab', 'Letters', 2)) == ['a', 'b']
    assert (caplog.messages, capsys.readouterr().err) == ([], '')


def test_reports_of_another_process_go_through_a_file(wait, tmp_path):
    path = tmp_path / 'progress.json'
    path.write_text('of another run')
    with reporting_to(path):
        assert read_status(path) is None
        report(1, 10, 'first')
        report(2, 10, 'too soon')
        assert read_status(path) == (1, 10, 'first')
        wait(1)
        report(3, 10, 'later')
        assert read_status(path) == (3, 10, 'later')
        report(10, 10, 'the end')
    assert read_status(path) == (10, 10, 'the end')
