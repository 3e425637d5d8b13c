import pytest

from surreal_bids import progress
from surreal_bids.progress import ProgressReport, progress_of


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, 'monotonic', lambda: now[0])
    return now


def _run(clock, what, times):
    report = ProgressReport(what, 10)
    for done, clock[0] in times:
        report.step(done)


def test_lines_are_merged_and_give_the_time_left(clock, caplog):
    with caplog.at_level('INFO', 'surreal_bids.progress'):
        _run(clock, 'reports', [(1, 2.0), (2, 4.0), (5, 18.0), (6, 20.0), (10, 60.0)])
    assert caplog.messages == [
        'reports: 1 of 10, about 0:00:18 left',
        'reports: 5 of 10, about 0:00:18 left',
    ]


@pytest.mark.parametrize(('verbose', 'shown'), [(False, 2), (True, 4)])
def test_a_part_shows_one_line_and_the_rest_with_v(clock, caplog, verbose, shown):
    caplog.set_level('INFO' if verbose else 'WARNING', 'surreal_bids.details')
    caplog.set_level('INFO', 'surreal_bids.progress')
    for fold in (1, 2):
        with progress_of(f'fold {fold} of 2'):
            for _ in range(2):
                _run(clock, 'training', [(1, clock[0] + 1)])
    assert len(caplog.messages) == shown
    assert caplog.messages[0] == 'fold 1 of 2, training: 1 of 10, about 0:00:09 left'
    assert caplog.messages[-1].startswith('fold 2 of 2, ')


def test_nothing_done_gives_no_estimate(clock, caplog):
    with caplog.at_level('INFO', 'surreal_bids.progress'):
        _run(clock, 'reports', [(0, 5.0)])
    assert caplog.messages == []
