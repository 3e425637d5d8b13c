"""Reports in a real browser: nothing is fetched, no script fails, tables and links work."""

from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pandas as pd
import pytest

from surreal_bids.cohort.by_hand import read_exclusions
from surreal_bids.reports.group import write_group_report
from surreal_bids.reports.methods import ImagingMethods, MethodsOptions
from surreal_bids.reports.pages import Section, Table, write_page
from surreal_bids.reports.participant import (
    ParticipantReport,
    SessionReport,
    write_participant_report,
)
from surreal_bids.reports.rindices_section import write_individual
from tests.imaging.test_norms import WOMAN, usual_volumes
from tests.reports.group_report import N_CN, N_PT, make_report
from tests.reports.html_page import HOSTILE
from tests.reports.test_rindices_section import make_tables

pytestmark = [pytest.mark.drawn, pytest.mark.slow]

CHROMIUM = Path('/usr/bin/chromium')
QUIET = ['--no-sandbox', '--disable-gpu', '--disable-background-networking']


@pytest.fixture(scope='module')
def browser():
    playwright = pytest.importorskip('playwright.sync_api')
    if not CHROMIUM.exists():
        pytest.skip(f'{CHROMIUM} is not installed: reports are not tried in a browser')
    with playwright.sync_playwright() as driver:
        yield driver.chromium.launch(executable_path=str(CHROMIUM), args=QUIET)


@pytest.fixture
def visit(browser):
    """Opens a report; afterwards nothing may have been fetched, and no error reported."""
    context = browser.new_context(viewport={'width': 1280, 'height': 900})
    context.grant_permissions(['clipboard-read', 'clipboard-write'])
    said, fetched = [], []

    def hear(message):
        if message.type == 'error':
            said.append(message.text)

    def open_report(path):
        page = context.new_page()
        page.on('console', hear)
        page.on('pageerror', lambda error: said.append(str(error)))
        page.on('request', lambda request: fetched.append(request.url))
        page.goto(path.as_uri())
        return page

    yield open_report
    context.close()
    assert said == []
    assert {urlsplit(url).scheme for url in fetched} <= {'file', 'data'}


def make_page(folder, rows):
    """A page with an interactive table of its own."""
    frame = pd.DataFrame(rows, columns=['who', 'r1', 'flags'])
    links = [f'{who}.html' for who in frame['who']]
    table = Table(frame, 'All', {'r1': '{:.2f}'}, links={'who': links}, interactive=True)
    return write_page(folder / 'page.html', 'T', [Section('S', (table,))])


ROWS = [('b10', 0.5, 'old'), ('b9', None, HOSTILE), ('c', -0.25, ''), ('a', 1.5, 'old site')]


def first_column(page):
    return page.locator('tbody tr:visible td:first-child').all_inner_texts()


def test_columns_are_sorted_with_missing_values_last(tmp_path, visit):
    page = visit(make_page(tmp_path, ROWS))
    head = page.locator('th', has_text='r1')
    for direction, order in {'descending': 'a b10 c b9', 'ascending': 'c b10 a b9'}.items():
        head.get_by_role('button').click()
        assert head.get_attribute('aria-sort') == direction
        assert first_column(page) == order.split()
    page.locator('th', has_text='who').get_by_role('button').press('Enter')
    assert first_column(page) == ['a', 'b9', 'b10', 'c']
    assert page.locator('[aria-sort]').all_inner_texts() == ['who']


def test_intervals_are_sorted_by_their_lower_ends(tmp_path, visit):
    intervals = {'a': '-0.02 to 0.10', 'b': '-0.19 to -0.05', 'c': None, 'd': '0.04 to 0.15'}
    page = visit(make_page(tmp_path, [(who, 0.5, text) for who, text in intervals.items()]))
    for order in ('b a d c', 'd a b c'):
        page.locator('th', has_text='flags').get_by_role('button').click()
        assert first_column(page) == order.split()


def test_rows_are_filtered_and_copied(tmp_path, visit):
    page = visit(make_page(tmp_path, ROWS))
    page.get_by_label('Rows with').fill('OLD b')
    assert first_column(page) == ['b10']
    assert page.get_by_role('status').inner_text() == '1 of 4 rows'
    page.get_by_label('Rows with').fill('b')
    page.get_by_role('button', name='Copy these rows').click()
    page.get_by_text('2 rows copied', exact=True).wait_for()  # Copying takes a moment.
    copied = page.evaluate('navigator.clipboard.readText()')
    assert copied == f'who\tr1\tflags\nb10\t0.50\told\nb9\tn/a\t{HOSTILE}\n'


def test_everything_is_reached_by_keyboard(tmp_path, visit):
    page = visit(make_page(tmp_path, ROWS[:2]))
    reached = []
    for _ in range(20):
        page.keyboard.press('Tab')
        reached.append(page.evaluate('document.activeElement.textContent.trim()'))
    assert {'Copy these rows (TSV)', 'who', 'r1', 'flags', 'b10', 'b9'} <= set(reached)


@pytest.fixture(scope='module')
def group(tmp_path_factory):
    """The report of a group; two participants have reports of their own."""
    folder = tmp_path_factory.mktemp('group')
    report = make_report(folder, HOSTILE)
    for name in ('sub-02', 'sub-20'):
        write_page(report.output_dir / f'{name}.html', name, [])
    return write_group_report(report)


def test_rows_and_points_lead_to_reports(group, visit):
    page = visit(group)
    assert page.locator('td a').count() == N_CN + N_PT
    page.locator('td a', has_text='sub-20').click()
    assert page.title() == 'sub-20'
    page.go_back()
    page.locator('svg a', has_text='sub-02').locator('use').first.click()
    assert page.title() == 'sub-02'


def test_a_participant_is_shown_at_any_width(tmp_path, visit):
    path = write_individual(make_tables(tmp_path).of('sub-01'))
    page = visit(path)
    page.locator('nav a', has_text='Change over time').click()
    assert page.locator('h3', has_text='Change over time').is_visible()
    for width in (1280, 400):
        page.set_viewport_size({'width': width, 'height': 800})
        assert page.evaluate('document.documentElement.scrollWidth') <= width


def test_the_own_marker_is_seen_on_a_phone(tmp_path, visit):
    path = write_individual(make_tables(tmp_path).of('sub-01'))
    write_page(tmp_path / 'group.html', 'Group', [])
    page = visit(path)
    page.set_viewport_size({'width': 400, 'height': 800})
    picture = page.locator('#figure-R1 .picture')
    assert picture.evaluate('each => each.scrollWidth <= each.clientWidth')
    normalise_name = picture.locator('svg text').first.bounding_box()
    assert normalise_name['height'] >= 7
    page.get_by_role('link', name='All participants').click()
    assert page.title() == 'Group'


def test_viewers_work_and_lead_back(group, visit):
    page = visit(group)
    assert page.locator('iframe').count() == 0
    title = page.title()
    page.get_by_role('link', name='Move through the map').first.click()
    assert page.title() == 'Pattern r1 on the atlas'
    pixels = 'canvas => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height)'
    sprite = page.locator('canvas').first
    sprite.wait_for(state='visible')
    assert sprite.evaluate(f'canvas => ({pixels})(canvas).data.some(value => 0 < value)')
    assert page.evaluate('document.documentElement.scrollWidth') <= 1280
    page.get_by_role('link', name='Back to the report').click()
    assert page.title() == title


@pytest.fixture
def reports(tmp_path):
    """Reports of two participants, the first with two sessions."""
    session = SessionReport('image', 'given', 'muse', 'MNI', usual_volumes(WOMAN))
    methods = MethodsOptions('9.9', ImagingMethods())
    visits = {'sub-001': ('a', 'b'), 'sub-002': (None,)}
    for name, labels in visits.items():
        sessions = tuple(replace(session, session=label) for label in labels)
        write_participant_report(tmp_path, ParticipantReport(name, sessions, methods, '9.9'))
    return [tmp_path / f'{name}.html' for name in visits]


def save_ratings(page, folder):
    with page.expect_download() as saved:
        page.get_by_role('button', name='Download ratings').first.click()
    assert saved.value.suggested_filename == 'ratings.tsv'
    saved.value.save_as(folder / 'ratings.tsv')
    return folder / 'ratings.tsv'


def test_ratings_are_kept_and_saved_for_exclude(reports, tmp_path, visit):
    page = visit(reports[0])
    second = page.get_by_role('group', name='Your rating of this image').nth(1)
    second.get_by_label('fail').check()
    second.get_by_label('Note').fill('motion:\t"ringing')
    assert second.get_by_role('status').inner_text() == '1 image rated, kept in this browser'
    page = visit(reports[1])
    page.get_by_label('pass').check()
    path = save_ratings(page, tmp_path)
    assert path.read_text() == (
        'participant_id\tsession_id\trating\treason\n'
        "sub-001\tses-b\tfail\tmotion: 'ringing\n"
        'sub-002\tn/a\tpass\tn/a\n'
    )
    visits = [('001', 'a'), ('001', 'b'), ('002', None)]
    names = {'sub-001_ses-a': visits[0], 'sub-001_ses-b': visits[1], 'sub-002': visits[2]}
    reasons = read_exclusions(path, names, visits)
    assert reasons == {'sub-001_ses-b': "listed in ratings.tsv: motion: 'ringing"}
    page = visit(reports[0])
    assert page.get_by_label('fail').nth(1).is_checked()
    page.get_by_label('not rated').nth(1).check()
    assert 'sub-001' not in save_ratings(page, tmp_path).read_text()


def test_without_a_store_ratings_of_the_page_are_saved(reports, tmp_path, visit):
    page = visit(reports[1])
    page.evaluate("Object.defineProperty(window, 'localStorage', { get() { throw Error(); } })")
    page.get_by_label('unsure').check()
    assert 'download before you leave' in page.get_by_role('status').inner_text()
    assert 'sub-002\tn/a\tunsure\tn/a\n' in save_ratings(page, tmp_path).read_text()


def test_other_scripts_do_not_run(tmp_path, browser):
    path = make_page(tmp_path, ROWS)
    source = path.read_text().replace('</main>', '<script>document.title = "run"</script></main>')
    path.write_text(source)
    page = browser.new_page()
    page.goto(path.as_uri())
    assert page.title() == 'T'
    page.close()


@pytest.mark.parametrize('width', [1280, 400])
def test_the_page_is_as_wide_as_the_window(group, visit, width):
    page = visit(group)
    page.set_viewport_size({'width': width, 'height': 800})
    assert page.evaluate('document.documentElement.scrollWidth') <= width


def test_a_table_of_a_thousand_participants_is_complete(tmp_path, visit):
    report = make_report(tmp_path, maps=False, sizes=(400, 600))
    page = visit(write_group_report(replace(report, title='Many')))
    assert page.get_by_role('status').inner_text() == '1000 of 1000 rows'
    page.get_by_label('Rows with').fill('PT')
    assert page.get_by_role('status').inner_text() == '600 of 1000 rows'
