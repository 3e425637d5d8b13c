"""The report of tables: as at the group level, written again from stored results."""

import json
import re
import shutil
from html.parser import HTMLParser
from types import SimpleNamespace

import pandas as pd
import pytest

from surreal_bids.analysis import engine
from surreal_bids.cli.gan import main
from surreal_bids.interfaces.group import AnalyseGroup
from surreal_bids.reports.stored import FORMAT
from tests.cohort.study import QUICK_WORDS, make_study
from tests.conftest import drawing_few
from tests.reports.html_page import Page, check_structure

COLUMNS = ('--covariates', 'age', 'sex', '--icv-column', 'icv', '--site-column', 'site')
VOID = {'meta', 'br', 'img', 'input', 'hr', 'link'}


def run(*words) -> int:
    return main([str(word) for word in words])


@pytest.fixture(scope='module')
def home(tmp_path_factory):
    """A folder with a study, a model and R-indices by it, and the analysis of the model."""
    folder, kept = tmp_path_factory.mktemp('home'), []
    volumes, participants = make_study().write(folder)
    people, analyse = ('--participants', participants), engine.analyse_trained
    with drawing_few(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            engine, 'analyse_trained', lambda *given: kept.append(analyse(*given)) or kept[0]
        )
        assert run('fit', volumes, *people, '--out', folder / 'model', *COLUMNS, *QUICK_WORDS) == 0
        given = ('--model', folder / 'model', '--out', folder / 'r.tsv')
        assert run('apply', volumes, *people, *given) == 0
    return SimpleNamespace(folder=folder, found=kept[0])


class Balanced(HTMLParser):
    """Fails where a tag is not closed in order."""

    def __init__(self, source):
        super().__init__()
        self.open = []
        self.feed(source)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def sections(page) -> dict[str, str]:
    """Content of each section by its title, without links and what leads to files."""
    parts = re.split(r'<section id="section-\d+"', page.source)[1:]
    titles = [re.search(r'<h2[^>]*>(.*?)</h2>', part)[1] for part in parts]
    shown = [re.sub(r'</?a\b[^>]*>|<title>.*?</title>', '', part) for part in parts]
    return dict(zip(titles, shown))


def content(section) -> list[str]:
    """Cells, numbers, facts, notices and words of figures of a section."""
    kinds = r'<(td|dd|dt|th|text)\b[^>]*>(.*?)</\1>|<p class="notice[^>]*>(.*?)</p>'
    return [''.join(found[1:]) for found in re.findall(kinds, section, re.DOTALL)]


def check_page(path):
    page = Page(path)
    check_structure(page)
    Balanced(page.source)
    files = [a['href'] for a in page.of('a') if not re.match('#|https?:', a.get('href', '#'))]
    assert files
    assert all((path.parent / name).is_file() for name in files)
    return page


def test_it_is_the_report_of_the_group_level_without_maps(home, tmp_path, monkeypatch):
    """Both are made from one analysis; the group level has gone through its own interface."""
    monkeypatch.setattr(AnalyseGroup, '_analyse', lambda _: home.found)
    (tmp_path / 'cohort').mkdir()
    methods = {'model': None, 'map_tissues': []}
    methods |= {'map_smoothing': 0.0, 'permutations': 0}
    methods['deviation_maps'] = []
    step = AnalyseGroup(
        cohort_dir=str(tmp_path / 'cohort'),
        model_card=str(home.folder / 'model' / 'model.json'),
        options={},
        output_dir=str(tmp_path / 'out'),
        title='volumes.tsv',
        methods=methods,
    )
    step._run_step(SimpleNamespace(cwd=str(tmp_path)))
    whole = sections(Page(tmp_path / 'out' / 'group.html'))
    own = sections(check_page(home.folder / 'model' / 'report' / 'group.html'))
    assert list(own) == list(whole)
    assert not [title for title in own if 'voxel' in title]
    for title, section in own.items():
        assert content(section) == content(whole[title]), title
        assert section.count('<svg') == whole[title].count('<svg'), title
    assert sum(section.count('<svg') for section in own.values()) == 4
    assert 'patterns.tsv' in own['Patterns by region']
    assert 'Brain Imaging Data Structure' not in own['Methods']


@pytest.mark.parametrize(('results', 'folder'), [('model', 'model/report'), ('r.tsv', 'r_report')])
def test_it_is_written_again_without_training(home, tmp_path, capsys, monkeypatch, results, folder):
    """And without the table, and without the model."""
    for name in ('rindices.model.prepare', 'rindices.crossfit.train', 'cohort.cohort.read_cohort'):
        monkeypatch.setattr(f'surreal_bids.{name}', None)
    shutil.copytree(home.folder, tmp_path / 'copy')
    page = tmp_path / 'copy' / folder / 'group.html'
    before = check_page(page).source
    for name in ('volumes.tsv', 'participants.tsv', 'model/model.safetensors'):
        (tmp_path / 'copy' / name).unlink()
    page.unlink()
    assert run('report', tmp_path / 'copy' / results) == 0
    assert str(page) in capsys.readouterr().out
    assert page.read_text() == before


def test_the_report_of_apply_names_the_model_and_everyone(home):
    page = check_page(home.folder / 'r_report' / 'group.html')
    assert f'the model {home.folder.name}/model was applied' in page.words
    assert 'Controls30' in page.words
    assert 'Patients41' in page.words
    assert all(name in page.words for name in make_study().features.index)


def test_the_report_of_apply_tells_why_sites_were_not_assessed(home):
    people = make_study().people
    counts = [
        [site, str(len(rows)), str((rows['diagnosis'] == 'CN').sum()), 'yes']
        for site, rows in people.groupby('site')
    ]
    shown = sections(Page(home.folder / 'r_report' / 'group.html'))['Harmonization']
    assert 'not assessed: the model was trained on other data, whose site effects' in shown
    assert content(shown)[4:] == [cell for row in counts for cell in row]


def test_each_r_index_of_apply_has_an_area(home):
    table = pd.read_csv(home.folder / 'r_diagnosis.tsv', sep='\t')
    assert table['by'].unique().tolist() == ['sum of R-indices', 'r1', 'r2']
    shown = sections(Page(home.folder / 'r_report' / 'group.html'))
    assert any({'r1', 'r2', 'sum of R-indices'} <= set(content(each)) for each in shown.values())


def test_neither_volumes_nor_covariates_of_participants_are_stored(home):
    """Covariates are there as distributions: sorted within groups."""
    text = (home.folder / 'model' / 'report' / 'results.json').read_text()
    study = make_study()
    assert not [v for v in study.features.to_numpy().ravel() if repr(float(v)) in text]
    ages = json.loads(text)['Found']['people']['values'][0]
    groups = [study.people.loc[study.is_patient == patient, 'age'] for patient in (False, True)]
    assert ages == [*sorted(groups[0]), *sorted(groups[1])]


def damage(path):
    path.write_text(path.read_text().replace('"Title"', '"Heading"'))


def age(path):
    path.write_text(path.read_text().replace(f'"Format": {FORMAT}', '"Format": 1'))


@pytest.mark.parametrize('change', [damage, age, lambda path: path.write_bytes(b'{')])
def test_stored_results_that_were_changed_are_refused(home, tmp_path, capsys, change):
    model = shutil.copytree(home.folder / 'model', tmp_path / 'model')
    change(model / 'report' / 'results.json')
    assert run('report', model) == 65
    found = capsys.readouterr().err
    assert str(model / 'report' / 'results.json') in found
    assert '--overwrite' in found


def test_what_holds_no_results_is_named(home, tmp_path, capsys):
    shutil.copytree(home.folder / 'model', tmp_path / 'old')
    shutil.rmtree(tmp_path / 'old' / 'report')
    for results, words in {
        tmp_path / 'old': ('earlier version', 'surreal-gan card'),
        tmp_path / 'nothing': ('no such file',),
        home.folder / 'volumes.tsv': ('volumes_report', 'surreal-gan apply'),
        home.folder: ('results.json', 'surreal-gan fit'),
        'ad': ('published', 'surreal-gan card ad', 'surreal-gan apply'),
    }.items():
        assert run('report', results) == 65
        found = capsys.readouterr().err
        assert all(word in found for word in (str(results).removesuffix('.tsv'), *words))


def test_a_page_of_someone_else_is_kept(home, tmp_path, capsys):
    model = shutil.copytree(home.folder / 'model', tmp_path / 'model')
    page = model / 'report' / 'group.html'
    page.write_text('mine')
    assert run('report', model) == 73
    assert str(page) in capsys.readouterr().err
    assert page.read_text() == 'mine'
