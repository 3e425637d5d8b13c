import heapq
import io
import json
import logging
import re
import sys

import numpy as np
import pytest

from surreal_bids import progress
from surreal_bids.progress import (
    Progress,
    Stage,
    portion,
    read_status,
    report,
    reporting_to,
    step,
    with_bar,
)

FACTOR = 1.5
"""The first estimate of the time left may differ by this from the truth."""


class FirstEstimate:
    """Remembers when the first estimate is made, and what it is."""

    def __init__(self, shown, clock):
        self.shown, self.clock, self.at, self.left = shown, clock, None, None

    def look(self):
        left = self.shown.time_left()
        if self.at is None and left is not None:
            self.at, self.left = self.clock.now, left

    def error(self):
        truth = self.clock.now - self.at
        return max(self.left / truth, truth / self.left)


def _run_images(shown, estimate, clock, durations, at_once, n_parts):
    """Run images on several processes; each tells of its parts as they end."""
    waiting = list(enumerate(durations))
    running = []
    while waiting or running:
        while waiting and len(running) < at_once:
            number, duration = waiting.pop(0)
            heapq.heappush(running, (clock.now + duration / n_parts, number, 1, duration))
        clock.now, number, part, duration = heapq.heappop(running)
        shown.update('images', f'{number}', part / n_parts)
        estimate.look()
        if part < n_parts:
            again = clock.now + duration / n_parts, number, part + 1, duration
            heapq.heappush(running, again)


@pytest.mark.parametrize('seed', range(12))
@pytest.mark.parametrize('n_parts', [1, 7])
def test_first_estimate_for_images_with_slow_first_ones(clock, seed, n_parts):
    rng = np.random.default_rng([seed, n_parts])
    at_once = int(rng.integers(1, 5))
    n_images = int(rng.integers(6 * at_once, 60))
    durations = rng.uniform(0.9, 1.1, n_images) * 10 ** rng.uniform(0, 3)
    slow = rng.choice(at_once, int(rng.integers(0, at_once + 1)), replace=False)
    durations[slow] *= rng.uniform(1, 4)
    stage = Stage('images', n_images, at_once=at_once, warm_up=at_once, least=2 * at_once)
    shown = Progress([stage], clock=clock)
    estimate = FirstEstimate(shown, clock)
    _run_images(shown, estimate, clock, durations, at_once, n_parts)
    assert estimate.at < 0.8 * clock.now
    assert estimate.error() < FACTOR


@pytest.mark.parametrize('seed', range(12))
def test_first_estimate_of_a_fit_covers_all_rounds_and_folds(clock, seed):
    rng = np.random.default_rng(seed)
    n_folds, of_round = int(rng.integers(4, 11)), 10 ** rng.uniform(0, 2)
    n_rounds, ratio = int(rng.integers(2, 4)), rng.uniform(0.8, 1.25)
    stages = [
        Stage('final model', size=5, seconds=20, kind='training'),
        Stage('folds', n_folds, seconds=20, kind='training'),
        Stage('analysis', seconds=10),
    ]

    def train(first, total, text):
        with portion(first, 1.0, total, text):
            for share in np.linspace(0.05, 1, 20):
                clock.now += of_round / 20 * rng.uniform(0.9, 1.1)
                report(share, 1.0, 'agreement 0.9')
                estimate.look()

    with Progress(stages, clock=clock) as shown:
        estimate = FirstEstimate(shown, clock)
        with step('final model'):
            # The choice of M takes about as long as three rounds, the choice of the plan.
            for done in np.linspace(0.1, 3, 30):
                clock.now += 0.1 * of_round * ratio
                report(done, 5, 'M=3')
                estimate.look()
            for number in range(n_rounds):
                train(3 + number, 3 + max(2, number + 1), f'round {number + 1} of at most 5')
        for fold in range(n_folds):
            with step('folds', f'{fold}'):
                clock.now += of_round * 0.1
                train(0, 1, 'M=2')
        with step('analysis'):
            clock.now += of_round / 2 * rng.uniform(0.5, 2)
    assert estimate.error() < FACTOR


@pytest.mark.parametrize('at_once', [1, 2, 4])
def test_first_estimate_of_folds_in_parallel_comes_from_the_final_model(clock, at_once):
    stages = [
        Stage('final model', size=2, kind='training', at_once=at_once),
        Stage('folds', 10, kind='training', at_once=at_once),
    ]
    shown = Progress(stages, clock=clock)
    for clock.now in (30.0, 40.0, 50.0):
        shown.update('final model', 'model', (clock.now - 25) / 50, 2.0)
    truth = 2 * 50 - 25 + 50 * -(-10 // at_once)
    assert truth / FACTOR < shown.time_left() < truth * FACTOR
    clock.now = 125.0
    shown.update('final model', 'model', 2.0, 2.0)
    for fold in range(8):
        shown.update('folds', f'fold_{fold}', 1.0, measured=False)
    assert 50 / FACTOR < shown.time_left() < FACTOR * 50 * (2 if at_once == 1 else 1)


@pytest.mark.parametrize('total', [3.0, 5.0, 8.0])
def test_a_step_that_is_done_leaves_nothing_whatever_was_expected_of_it(clock, total):
    stages = [Stage('final model', size=5, seconds=20, kind='t'), Stage('folds', 2, 20, kind='t')]
    with Progress(stages, clock=clock) as shown:
        with step('final model'):
            for clock.now in np.linspace(0, 20 * total, 50):
                report(clock.now / 20, total)
        assert shown.time_left() == pytest.approx(2 * 20, rel=0.1)


def test_no_estimate_from_what_took_no_time_or_is_a_small_part(clock):
    shown = Progress([Stage('images', 10, warm_up=1), Stage('maps', seconds=100)], clock=clock)
    for number in range(9):
        clock.now += 0.001
        shown.update('images', f'{number}', 1.0, measured=False)
    assert shown.time_left() is None
    shown = Progress([Stage('folds', 3), Stage('maps', seconds=100)], clock=clock)
    shown.update('folds', '1', 0.5)
    clock.now += 1
    shown.update('folds', '1', 1.0)
    assert shown.time_left() is None


def test_a_log_gets_at_most_one_line_per_minute(clock, caplog):
    stages = [Stage('final model', kind='t', size=2), Stage('folds', 5, kind='t')]
    with caplog.at_level('INFO', 'surreal_bids.progress'), Progress(stages, clock=clock):
        for stage, count in (('final model', 1), ('folds', 5)):
            for number in range(count):
                with step(stage, f'{number}'):
                    for done in range(200):
                        clock.now += 1.0
                        report(done / 200, 1, 'agreement 0.91')
    assert 1200 / 60 - 1 <= len(caplog.messages) <= 1200 / 60 + 1
    assert 'tep 1 of 2' in caplog.messages[0]
    last = caplog.messages[-1]
    assert re.search(r'step 2 of 2.*4 of 5 done.*agreement 0\.91.*elapsed.*left', last, re.I)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_one_line_below_all_messages(clock, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, 'stderr', terminal)
    monkeypatch.setattr(progress.PROGRESS, 'level', logging.INFO)
    handler = logging.StreamHandler(terminal)
    ours = logging.getLogger('surreal_bids')
    # Whatever other tests have left.
    monkeypatch.setattr(logging.root, 'handlers', [handler])
    for name, value in {
        'handlers': [],
        'filters': [],
        'propagate': True,
        'disabled': False,
    }.items():
        monkeypatch.setattr(ours, name, value)
    with Progress([Stage('folds', 30)], clock=clock):
        for number in range(30):
            clock.now += 1
            with step('folds', f'{number}'):
                if number == 20:
                    ours.warning('look here')
    assert handler.stream is terminal
    text = terminal.getvalue()
    assert '20 of 30 done' in text
    assert text.count('\n') == 1
    assert [line for line in re.split(r'[\r\n]', text) if line.strip() == 'look here']


def read_bar(terminal) -> list[int]:
    return [int(share) for share in re.findall(r'(\d+)%\|', terminal.getvalue())]


@pytest.mark.parametrize('seed', range(6))
def test_the_bar_advances_while_the_number_of_patterns_is_chosen(clock, monkeypatch, seed):
    terminal, rng = Terminal(), np.random.default_rng(seed)
    monkeypatch.setattr(sys, 'stderr', terminal)
    monkeypatch.setattr(progress.PROGRESS, 'level', logging.INFO)
    stages = [Stage('final model', size=2, seconds=20, kind='t')]
    stages += [Stage('folds', 5, seconds=20, kind='t')]

    def pass_time():
        clock.now += 10 * rng.uniform(0.2, 3)

    with Progress(stages, clock=clock):
        with step('final model'):
            for number in range(1, 31):
                pass_time()
                report(number / 10, 5 if number < 15 else 6, 'M=2')
            chosen = read_bar(terminal)[-1]
            assert chosen > 20
            for done in range(1, 11):
                pass_time()
                report(3 + done / 3, 6)
        for fold in range(5):
            with step('folds', f'{fold}'):
                pass_time()
                report(0.5, 1)
    shown = read_bar(terminal)
    assert shown == sorted(shown)
    assert len(set(shown)) > 20


def test_a_quiet_command_shows_nothing(clock, monkeypatch, caplog):
    terminal = Terminal()
    monkeypatch.setattr(sys, 'stderr', terminal)
    progress.PROGRESS.setLevel(logging.WARNING)
    try:
        with Progress([Stage('folds', 3)], clock=clock), step('folds'):
            report(1, 2)
        assert list(with_bar(iter('abc'), 'Checking images', 3)) == ['a', 'b', 'c']
    finally:
        progress.PROGRESS.setLevel(logging.NOTSET)
    assert terminal.getvalue() == ''
    assert caplog.messages == []


def test_reports_of_another_process_go_through_a_file(tmp_path):
    path = tmp_path / 'progress.json'
    path.write_text('of an earlier run')
    with reporting_to(path):
        assert read_status(path) is None
        report(1, 4, 'agreement 0.9')
        report(2, 4, 'too early for another one')
        assert read_status(path) == (1, 4, 'agreement 0.9')
        report(4, 4)
    assert read_status(path) == (4, 4, '')
    path.write_text(json.dumps([1, 2, 'x'])[:-3])
    assert read_status(path) is None


def test_outside_a_command_nothing_is_shown(capsys):
    with step('folds'), portion(0, 1, 2, 'M=2'):
        report(1, 2)
    assert capsys.readouterr() == ('', '')
