"""Reports in a real browser: nothing is fetched, no script fails, tables and links work."""

from pathlib import Path
from urllib.parse import urlsplit

import pandas as pd
import pytest
from markupsafe import Markup

from surreal_bids.reports.group import write_group_report
from surreal_bids.reports.mosaics import Background
from surreal_bids.reports.pages import TABLES, table, write_page
from surreal_bids.reports.participant import write_individual, write_participant_report
from surreal_bids.tables import read_exclusions
from tests.reports import studies
from tests.reports.html_page import HOSTILE
from tests.reports.test_reports import make_sessions

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
    links = {'who': [f'{who}.html' for who in frame['who']]}
    content = table(frame, 'All', {'r1': '{:.2f}'}, links, classes='interactive')
    return write_page(folder / 'page.html', 'T', content, scripts=[TABLES])


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
    """The report of a group; one participant has a report."""
    folder = tmp_path_factory.mktemp('group')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Background, 'read', classmethod(lambda cls: studies.background()))
        patch.setattr('surreal_bids.templates.muse_labels', studies.labels)
        report = studies.make_report(folder)
        write_page(report.output_dir / 'sub-20.html', 'sub-20', Markup(''))
        return write_group_report(report)


def test_the_first_screen_shows_brain_regions_and_verdict(group, visit):
    page = visit(group)
    card = page.locator('.pattern').first
    for part in ('img', 'text=Smaller: hippocampus', '.verdict'):
        box = card.locator(part).first.bounding_box()
        assert box['y'] + box['height'] <= 900, part
    assert card.locator('img').evaluate('each => each.naturalWidth > 0')


def test_rows_lead_to_reports(group, visit):
    page = visit(group)
    assert page.locator('#r-indices td a').count() == studies.N_CN + studies.N_PT
    page.locator('#r-indices td a', has_text='sub-20').click()
    assert page.title() == 'sub-20'


def test_flags_are_seen_without_scrolling_sideways(group, visit):
    page = visit(group)
    box = page.locator('#r-indices td', has_text='outside the training range').bounding_box()
    assert box['x'] + box['width'] <= 1280


def test_pages_are_as_wide_as_the_window_and_letters_can_be_read(group, tmp_path, visit):
    one = write_individual(studies.make_tables(tmp_path).of('sub-01'), studies.painter())
    for path in (group, one):
        page = visit(path)
        for width in (1280, 800, 390):
            page.set_viewport_size({'width': width, 'height': 800})
            assert page.evaluate('document.documentElement.scrollWidth') <= width
            small = page.evaluate(
                """() => Array.from(document.querySelectorAll('main *'))
                .filter((each) => each.checkVisibility() && each.childNodes[0]?.nodeType === 3)
                .filter((each) => parseFloat(getComputedStyle(each).fontSize) < 11)
                .map((each) => each.textContent)"""
            )
            assert small == []


def test_registration_flickers(tmp_path, visit):
    path = write_participant_report(tmp_path, '01', make_sessions(tmp_path, 'full'))
    page = visit(path)
    picture = page.locator('.flicker').first
    name = 'each => getComputedStyle(each.lastElementChild).animationName'
    assert picture.evaluate(name) == 'none'
    picture.hover()
    assert picture.evaluate(name) == 'flicker'


def test_viewers_work_and_lead_back(group, visit):
    page = visit(group)
    title = page.title()
    page.get_by_role('link', name='Move through the map').first.click()
    assert page.title() == 'GM: all patients'
    sprite = page.locator('canvas').first
    sprite.wait_for(state='visible')
    pixels = 'canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height)'
    assert sprite.evaluate(f'canvas => {pixels}.data.some((value) => 0 < value)')
    page.get_by_role('link', name='Back to the report').click()
    assert page.title() == title


@pytest.fixture
def reports(tmp_path):
    """Reports of two participants, the first with two sessions."""
    write_participant_report(tmp_path, '001', make_sessions(tmp_path, 'full'))
    write_participant_report(tmp_path, '002', make_sessions(tmp_path, 'minimal'))
    return [tmp_path / f'sub-{label}.html' for label in ('001', '002')]


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
        "sub-001\tses-2\tfail\tmotion: 'ringing\n"
        'sub-002\tn/a\tpass\tn/a\n'
    )
    visits = [('001', '1'), ('001', '2'), ('002', None)]
    names = {'sub-001_ses-1': visits[0], 'sub-001_ses-2': visits[1], 'sub-002': visits[2]}
    reasons = read_exclusions(path, names, visits)
    assert reasons == {'sub-001_ses-2': "listed in ratings.tsv: motion: 'ringing"}
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
