"""The same rules at every entry: labels, ids, options and models, varied with fixed seeds.

A case is tried through the commands it applies to, in the dry run where there is one.
"""

from __future__ import annotations

import random
import string
from typing import Any

import pytest

from surreal_bids.cli.app import parse_arguments
from surreal_bids.names import CONTROL_WORDS, PATIENT_WORDS
from surreal_bids.tables import MAX_LABEL
from tests.bad_input.studies import N_CONTROLS, Study
from tests.bad_input.test_bad_input import run, take

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures('few_draws')]

SEEDS = range(4)
READERS = ('group', 'group_apply', 'add_site')
USAGE, NO_MATCH, DATA = 2, 18, 65


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311


def spell(rng: random.Random, word: str) -> str:
    """Write a word in capitals or not, perhaps with a mark in it."""
    changed = ''.join(rng.choice([letter.lower(), letter.upper()]) for letter in word)
    place = rng.randrange(1, len(changed)) if len(changed) > 2 else len(changed)
    return rng.choice([changed, f'{changed[:place]}-{changed[place:]}'.rstrip('-')])


def relabel(study: Study, control: str, patient: str, site: str | None = None) -> None:
    """Write other diagnoses, and a site that the model does not know."""

    def change(table):
        table['diagnosis'] = table['diagnosis'].map({'CN': control, 'PT': patient})
        return table if site is None else table.assign(site=site)

    study.edit(study.people, change)


@pytest.fixture
def attempt(sound, tmp_path, capsys, monkeypatch):
    """Damage a sound study and run a command on it; exit code and what it said."""

    def damaged(damage, door: str, kind: str = 'tables') -> tuple[int, str]:
        study = take(sound, kind, tmp_path / door)
        damage(study)
        code, said = run(capsys, monkeypatch, study, door, dry=True)
        assert 'Traceback' not in said, said
        return code, said

    return damaged


@pytest.mark.parametrize('door', READERS)
@pytest.mark.parametrize('seed', SEEDS)
def test_a_label_of_patients_is_never_one_of_controls(attempt, seed, door):
    rng = seeded(seed)
    control, patient = (spell(rng, rng.choice(sorted(w))) for w in (CONTROL_WORDS, PATIENT_WORDS))

    def damage(study):
        relabel(study, control, patient, 'new')
        study.columns = []
        study.add('--control-label', patient)

    code, said = attempt(damage, door)
    assert code == DATA, said
    assert '--control-label' in said
    assert patient in said


@pytest.mark.parametrize('seed', SEEDS)
def test_a_label_of_controls_is_recognised(attempt, seed):
    rng = seeded(seed)
    control, patient = (spell(rng, rng.choice(sorted(w))) for w in (CONTROL_WORDS, PATIENT_WORDS))
    code, said = attempt(lambda s: relabel(s, control, patient, 'new'), 'add_site')
    assert code == 0, said
    assert f'learned from {N_CONTROLS} controls' in said


@pytest.mark.parametrize('words', [(), ('--control-label', 'CN'), ('--group-column', 'dx')])
def test_without_a_diagnosis_controls_have_to_be_stated(attempt, words):
    def damage(study):
        relabel(study, 'CN', 'PT', 'new')
        study.edit(study.people, lambda table: table.drop(columns='diagnosis'))
        study.add(*words)

    code, said = attempt(damage, 'add_site')
    assert code == DATA, said
    assert 'participants.tsv' in said
    assert ('dx' if 'dx' in words else '--control-label all') in said


NAMES = {
    'adni': lambda k, rng: f'{k:03}_S_{k:04}',
    'letters': lambda k, rng: f'sub-{rng.choice("éßñ日ж")}{k:03}',
    'point': lambda k, rng: f'{rng.choice("ABC")}{k}.x{k}',
}


@pytest.mark.parametrize('door', ['group', 'group_apply'])
@pytest.mark.parametrize('name', NAMES)
def test_ids_that_are_no_bids_labels_run_without_reports(attempt, name, door):
    code, said = attempt(lambda s: rename(s, NAMES[name]), door)
    assert code == 0, said
    assert 'no report of the participant' in said


SLASHES = '/\\'

BAD_NAMES = {
    'long': lambda k, rng: 'x' * rng.randrange(MAX_LABEL, 300) + str(k),
    'path': lambda k, rng: f'a{rng.choice(SLASHES)}{k}',
}


@pytest.mark.parametrize('name', BAD_NAMES)
@pytest.mark.parametrize('seed', SEEDS[:2])
def test_ids_that_cannot_be_used_are_refused_in_the_dry_run(attempt, name, seed):
    door = READERS[seed]
    code, said = attempt(lambda s: rename(s, BAD_NAMES[name], seed), door)
    assert code == DATA, said
    assert 'volumes.tsv: line ' in said


def rename(study: Study, name: Any, seed: int = 0) -> None:
    """Give all participants other ids, the same in both tables."""
    for path in (study.volumes, study.people):
        rng = seeded(seed)
        study.edit(
            path,
            lambda table, rng=rng: table.set_axis(
                [name(k, rng) for k in range(1, len(table) + 1)]
            ).rename_axis('participant_id'),
        )


@pytest.mark.parametrize('door', ['group', 'group_apply', 'participant', 'both'])
@pytest.mark.parametrize('seed', SEEDS[:2])
def test_an_unknown_label_is_refused_whoever_else_matches(attempt, seed, door):
    rng = seeded(seed)
    unknown = ''.join(rng.choices(string.ascii_letters, k=rng.randrange(1, 9)))
    known = [f'{k:02}' if door in ('participant', 'both') else f'{k:03}' for k in range(1, 21)]
    labels = [*rng.sample(known, 3), unknown]
    rng.shuffle(labels)
    kind = 'images' if door in ('participant', 'both') else 'tables'
    code, said = attempt(lambda s: s.add('--participant-label', *labels), door, kind)
    assert code == NO_MATCH, said
    assert unknown in said


def test_a_participant_without_the_chosen_session_is_named(attempt):
    def damage(study):
        for path in (study.volumes, study.people):
            study.edit(path, lambda table: table.assign(session_id=['1'] * 47 + ['2']))
        study.add('--participant-label', '001', '048', '--session-label', '1')

    code, said = attempt(damage, 'group_apply')
    assert code == NO_MATCH, said
    assert '--participant-label 048' in said


@pytest.mark.parametrize(
    ('words', 'code', 'named'),
    [
        (('--folds', 3), 0, '--folds: no effect with --model'),
        (('--n-patterns', 3, '--ortho', 0.1), 0, '--n-patterns, --ortho: no effect'),
        (('--impute',), USAGE, '--impute'),
        (('--features', 'muse72', '--icv', 'none'), USAGE, '--features, --icv'),
        (('--reports-only',), USAGE, 'run once without it'),
        (('--deviation-maps', '--map-tissues'), USAGE, '--map-tissues is empty'),
    ],
)
def test_options_without_effect_are_named(attempt, words, code, named):
    found, said = attempt(lambda s: s.add(*words), 'group_apply')
    assert (found, named in said) == (code, True), said


def test_lists_may_be_given_in_parts():
    words = ['in', 'out', 'group', '--covariates', 'age', '--covariates', 'sex', 'educ']
    assert parse_arguments(words)[0].covariates == ('age', 'sex', 'educ')
