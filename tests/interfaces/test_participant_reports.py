"""R-indices in reports of participants: one that fails does not stop the others."""

import pytest

from surreal_bids.bids.outputs import output_path
from surreal_bids.exceptions import DataError, OutputError
from surreal_bids.files import write_json, write_tsv
from surreal_bids.interfaces.group import WriteIndividuals
from surreal_bids.progress import STATUS, read_status
from surreal_bids.reports import participant
from tests.reports.html_page import Page
from tests.reports.studies import CARD, make_tables


@pytest.fixture
def step(tmp_path):
    """The step, for three participants whose tables are among the outputs."""
    root = tmp_path / 'out'
    tables = make_tables(root)
    for name in ('contributions', 'changes'):
        table = getattr(tables, name)
        booleans = {column: str for column in table if table[column].dtype == bool}
        words = table.astype(booleans).replace({'True': 'true', 'False': 'false'})
        write_tsv(output_path(root, name), words)
    write_tsv(tmp_path / 'individuals.tsv', tables.results)
    write_json(tmp_path / 'card.json', CARD)
    return WriteIndividuals(
        output_dir=str(root),
        participants=['sub-01', 'sub-02', 'sub-03'],
        individuals_file=str(tmp_path / 'individuals.tsv'),
        model_card=str(tmp_path / 'card.json'),
        failures_dir=str(tmp_path / 'failures'),
    )


def test_the_number_of_written_reports_is_reported(step, tmp_path):
    step.run(cwd=str(tmp_path))
    assert read_status(tmp_path / STATUS) == (3, 3, '')


def test_parts_link_to_each_other_and_no_error_of_a_report_stops_them(step, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise KeyError('r1')

    step.inputs.part, step.inputs.parts = 0, 2
    step.run(cwd=str(tmp_path))
    assert 'Next participant: sub-02' in Page(tmp_path / 'out' / 'sub-01.html').words
    assert not (tmp_path / 'out' / 'sub-02.html').exists()
    monkeypatch.setattr('surreal_bids.reports.participant.write_individual', fail)
    step.run(cwd=str(tmp_path))
    assert {path.name for path in (tmp_path / 'failures').iterdir()} == {'01', '03'}


def test_a_report_that_fails_does_not_stop_the_others(step, tmp_path):
    path = tmp_path / 'out' / 'sub-02.html'
    path.write_text('something else')
    written = step.run(cwd=str(tmp_path)).outputs.out_files
    assert [name.rsplit('/', 1)[1] for name in written] == ['sub-01.html', 'sub-03.html']
    assert 'not a report of this version' in (tmp_path / 'failures' / '02').read_text()
    assert path.read_text() == 'something else'
    assert 'Changes of R-indices' in Page(tmp_path / 'out' / 'sub-01.html').words


@pytest.mark.slow
def test_r_indices_of_an_earlier_run_do_not_stay_where_new_ones_fail(step, tmp_path, monkeypatch):
    step.run(cwd=str(tmp_path))
    path = tmp_path / 'out' / 'sub-01.html'

    def fail(*_):
        raise DataError('no figure')

    step.inputs.again = True
    with monkeypatch.context() as patched:
        patched.setattr(participant, 'draw_standing', fail)
        step.run(cwd=str(tmp_path))
    words = Page(path).words
    assert 'no figure' in words
    assert 'Comparison with controls' not in words
    step.inputs.again = False
    step.run(cwd=str(tmp_path))
    assert 'Comparison with controls' in Page(path).words


def test_a_killed_run_resumes_where_it_was(step, tmp_path, monkeypatch):
    drawn = []
    plot = participant.draw_standing

    def count(*arguments):
        drawn.append(arguments)
        if len(drawn) == 2:
            raise KeyboardInterrupt
        return plot(*arguments)

    monkeypatch.setattr(participant, 'draw_standing', count)
    with pytest.raises(KeyboardInterrupt):
        step.run(cwd=str(tmp_path))
    step.run(cwd=str(tmp_path))
    # The first was there, the second was begun again.
    assert len(drawn) == 4
    assert not (tmp_path / 'failures').exists()
    for name in step.inputs.participants:
        assert 'Comparison with controls' in Page(tmp_path / 'out' / f'{name}.html').words


def test_a_full_disk_ends_the_step(step, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OutputError('disk full')

    monkeypatch.setattr(participant, 'write_parts', fail)
    with pytest.raises(OutputError, match='disk full'):
        step.run(cwd=str(tmp_path))
