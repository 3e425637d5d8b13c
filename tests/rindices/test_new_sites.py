"""Sites added to a model from a few controls, by the command, and how sure that is."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from surreal_bids.analysis.engine import analyse_applied
from surreal_bids.cli.gan import main
from surreal_bids.cohort.cohort import read_cohort
from surreal_bids.rindices.limits import NO_SITES, without_sites
from surreal_bids.rindices.model import TableModel
from surreal_bids.rindices.new_sites import REFERENCE, adapt_to_controls
from tests.cohort.study import QUICK_WORDS, make_study
from tests.conftest import drawing_nothing

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures('few_draws', 'undrawn')]

TINY = (*QUICK_WORDS, '--folds', 0)


def run(*words) -> int:
    return main([str(word) for word in words])


def read(path) -> pd.DataFrame:
    return pd.read_csv(path, sep='\t', index_col='participant_id', keep_default_na=False)


@pytest.fixture(scope='module')
def undrawn():
    with drawing_nothing():
        yield


@pytest.fixture(scope='module', params=[1, 2], ids=['one site', 'two sites'])
def model(request, few_draws, undrawn, tmp_path_factory):
    """A model whose training sample had one site, so no ComBat, or two."""
    folder = tmp_path_factory.mktemp('training')
    volumes, people = make_study(60, 60, seed=5, n_sites=request.param).write(folder)
    assert run('fit', volumes, '--participants', people, '--out', folder / 'model', *TINY) == 0
    return folder / 'model'


def new_scanner(folder, n_cn=12, n_pt=8, seed=9, name='new'):
    """Write a study of one scanner that shifts and stretches every region."""
    folder.mkdir(exist_ok=True)
    study = make_study(n_cn, n_pt, seed=seed, n_sites=1)
    study.features = 390 + 1.4 * (study.features - 300)
    study.people['site'] = name
    volumes, people = study.write(folder)
    return study, (volumes, '--participants', people)


def add(model, folder, *more, **study):
    made, tables = new_scanner(folder / 'scanner', **study)
    volumes, *people = tables
    return made, run('add-site', model, volumes, folder / 'out', *people, *more)


def test_a_published_model_without_sites_is_a_warning(model):
    loaded = TableModel.load(model)
    published = replace(
        loaded,
        preprocessing=replace(loaded.preprocessing, combat=None),
        notes={**loaded.notes, 'Imported': {}},
    )
    assert without_sites(published) == [NO_SITES]
    assert without_sites(loaded) == []


def test_a_site_of_the_training_sample_is_named_and_no_warning(model, tmp_path, capsys):
    for name in ('site0', 'new'):
        _, tables = new_scanner(tmp_path / name, name=name)
        out = tmp_path / f'{name}.tsv'
        run('apply', *tables, '--model', model, '--out', out, '--unseen-site', 'skip')
    has_sites = TableModel.load(model).preprocessing.combat is not None
    said = capsys.readouterr()
    assert ('like the same sites of the training sample: site0\n' in said.out) == has_sites
    assert 'Rename' not in said.err


FEW = 'Few controls at sites: new (12); at least 20 are recommended'


def test_one_participant_of_an_added_site_can_be_computed(model, tmp_path, capsys):
    study, code = add(model, tmp_path)
    assert code == 0
    said = capsys.readouterr()
    assert 'site new: learned from 12 controls' in said.out
    assert said.err.count('Few controls: 12') == 1
    assert said.out.count('standard error of its R-indices') == 1
    assert 'standard error' not in said.err
    assert run('-v', 'card', tmp_path / 'out') == 0
    card = capsys.readouterr().out
    assert 'Sites added after training\n  site new: learned' in card
    assert card.count(FEW) == 1
    known = {path.name for path in (tmp_path / 'out').iterdir()}
    assert known == {
        *('model.json', 'model.safetensors', 'exclusions.tsv', 'exclusions.json', 'summary.txt'),
    }
    everyone, one = tmp_path / 'everyone.tsv', tmp_path / 'one.tsv'
    tables = tmp_path / 'scanner' / 'volumes.tsv', tmp_path / 'scanner' / 'participants.tsv'
    common = ('--participants', tables[1], '--model', tmp_path / 'out')
    assert run('apply', tables[0], *common, '--out', everyone) == 0
    assert (read(everyone)['status'] == 'complete').all()
    taught = read(everyone)['flags'].str.contains('site learned from this participant')
    assert taught.tolist() == [True] * 12 + [False] * 8
    assert capsys.readouterr().err.count(FEW) == 1
    assert (tmp_path / 'everyone_report' / 'group.html').read_text().count(FEW) == 1
    study.features.iloc[[3]].to_csv(tmp_path / 'row.tsv', sep='\t')
    capsys.readouterr()
    assert run('apply', tmp_path / 'row.tsv', *common, '--out', one) == 0
    # R-indices are rounded to the sixth digit, and the last bits depend on how many are computed.
    pd.testing.assert_frame_equal(read(one), read(everyone).iloc[[3]], atol=2e-6)
    assert 'site new: learned from 12 controls' in capsys.readouterr().out


def test_people_trained_on_are_not_touched(model, tmp_path):
    assert add(model, tmp_path)[1] == 0
    taught, before = TableModel.load(tmp_path / 'out'), TableModel.load(model)
    study = make_study(60, 60, seed=5)
    if before.preprocessing.combat is None:
        study.people['site'] = REFERENCE
    expected = before.compute(study.features, study.people)
    found = taught.compute(study.features, study.people)
    pd.testing.assert_frame_equal(found, expected, rtol=1e-6, atol=1e-6)


def test_patients_do_not_teach_and_a_table_of_controls_needs_no_diagnosis(model, tmp_path, capsys):
    study, code = add(model, tmp_path)
    assert code == 0
    controls = study.features.join(study.people.drop(columns='diagnosis'))[~study.is_patient]
    controls.drop(columns='site').to_csv(tmp_path / 'controls.csv')
    table, out = tmp_path / 'controls.csv', tmp_path / 'again'
    assert run('add-site', model, table, out, '--site', 'new') == 65
    assert '--control-label all' in capsys.readouterr().err
    assert run('add-site', model, table, out, '--site', 'new', '--control-label', 'all') == 0
    paths = [folder / 'model.safetensors' for folder in (out, tmp_path / 'out')]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_held_out_participants_come_to_lie_where_controls_of_the_model_do(model, tmp_path):
    assert add(model, tmp_path, n_cn=25, n_pt=0)[1] == 0
    later, _ = new_scanner(tmp_path / 'later', n_cn=300, n_pt=0, seed=33)
    steps = TableModel.load(tmp_path / 'out').preprocessing
    normalised = steps.transform(later.features, later.people).normalised
    # The scanner's shift was 9 sd; 25 controls leave a standard error of 0.2.
    assert np.abs(normalised.mean() - 1).mean() < 0.03
    assert normalised.std().mean() == pytest.approx(0.1, rel=0.15)


def test_the_name_of_a_group_changes_no_r_index(model, tmp_path):
    """Participants of other groups are harmonized as patients are, at a site with a known name."""
    trained, scores = TableModel.load(model), []
    for name in ('PT', 'MCI'):
        _, (volumes, _, people) = new_scanner(tmp_path / name, name='site1')
        table = pd.read_table(people)
        table['diagnosis'] = table['diagnosis'].replace('PT', name)
        table.to_csv(people, sep='\t', index=False)
        cohort = read_cohort(volumes, people, model=trained.preprocessing.requirements)
        adapted, cohort = adapt_to_controls(trained, cohort)
        scores.append(analyse_applied(cohort, adapted).all_results['r1'].sort_index())
    np.testing.assert_array_equal(*scores)


def test_sites_can_be_added_one_after_the_other(model, tmp_path):
    (tmp_path / 'a').mkdir()
    assert add(model, tmp_path / 'a', name='a')[1] == 0
    assert add(tmp_path / 'a' / 'out', tmp_path, name='b', seed=3)[1] == 0
    both = TableModel.load(tmp_path / 'out')
    (tmp_path / 'c').mkdir()
    assert add(model, tmp_path / 'c', name='b', seed=3)[1] == 0
    alone = TableModel.load(tmp_path / 'c' / 'out')
    assert set(both.notes['AddedSites']) == {'a', 'b'}
    shifts = [m.preprocessing.combat.shift_[-1] for m in (both, alone)]
    np.testing.assert_allclose(*shifts, rtol=1e-9)


@pytest.mark.parametrize(
    ('more', 'study', 'words'),
    [
        ((), {'n_cn': 2}, 'site new has 2 controls, at least 3 are needed'),
        (('--control-label', 'all'), {}, 'no row has all'),
        (('--control-label', 'PT'), {}, 'CN, PT means the opposite'),
        (('--control-label', 'healthy'), {}, 'no row has healthy'),
        (('--site', 'a', '--site-column', 'site'), {}, 'give one of them'),
        (('--site-column', 'place'), {}, 'place'),
        (('--site-column', 'none'), {}, 'a site needs a name; add --site NAME'),
        (('--site', 'another'), {}, '--site another, but column site has new; remove --site'),
    ],
)
def test_what_cannot_be_added_is_an_error(model, tmp_path, capsys, more, study, words):
    assert add(model, tmp_path, *more, **study)[1] != 0
    assert words in capsys.readouterr().err
    assert not (tmp_path / 'out').exists()


def test_a_known_site_is_refused(model, tmp_path, capsys):
    assert add(model, tmp_path, '--site', 'new')[1] == 0
    volumes, people = (tmp_path / 'scanner' / f'{n}.tsv' for n in ('volumes', 'participants'))
    given = (tmp_path / 'out', volumes, tmp_path / 'twice', '--participants', people)
    assert run('add-site', *given) != 0
    assert 'already includes the site new' in capsys.readouterr().err
