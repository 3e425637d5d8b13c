"""Command lines that cannot be meant, and outputs that must not or cannot be written."""

from __future__ import annotations

import errno
import os

import pytest

from tests.bad_input.cases import (
    ACCEPTED,
    OUTPUT,
    TABLES,
    TRAIN,
    USAGE,
    Case,
    nothing,
    options,
    several,
)

GROUP = ('group', 'group_apply')


def option(name, words, says, code=USAGE, doors=TRAIN):
    return Case(f'option-{name}', options(*words), says, doors, code)


OPTIONS = [
    option('no-pattern', ('--n-patterns', 0), ['n.patterns', r'\b0\b']),
    option('minus-one-pattern', ('--n-patterns', -1), ['n.patterns', '-1']),
    option('more-patterns-than-regions', ('--n-patterns', 400), ['n.patterns|patterns', '400'], 65),
    option('half-a-pattern', ('--n-patterns', 2.5), ['n.patterns', '2.5']),
    option('iterations-zero', ('--iterations', 0), ['iterations', r'\b0\b']),
    option('iterations-negative', ('--iterations', -5), ['iterations', '-5']),
    option('iterations-text', ('--iterations', 'many'), ['iterations', 'many']),
    option('repetitions-zero', ('--repetitions', 0), ['repetitions', r'\b0\b']),
    option('repetitions-one', ('--repetitions', 1), ['repetitions 1', 'seed'], ACCEPTED, ('fit',)),
    option('folds-one', ('--folds', 1), ['folds 1', '2 or more']),
    option('folds-negative', ('--folds', -1), ['folds', '-1']),
    option('folds-text', ('--folds', 'few'), ['folds', 'few']),
    option('folds-too-many', ('--folds', 500), ['folds 500', '24 folds'], ACCEPTED, ('group',)),
    option('preset-unknown', ('--preset', 'best'), ['preset', 'best', 'iclr2022']),
    option('lambda-nan', ('--ortho', 'nan'), ['ortho', 'nan']),
    option('lambda-inf', ('--ortho', 'inf'), ['ortho', 'inf']),
    option('lambda-negative', ('--ortho', -1), ['ortho', '-1']),
    option('lambda-text', ('--ortho', '0,2'), ['ortho', '0,2']),
    option('values-twice', ('--n-patterns', 2, 2, '--ortho', 0.2, 0.2), [], ACCEPTED),
    option('device-unknown', ('--device', 'tpu'), ['device', 'tpu', 'cpu'], doors=TRAIN),
    option('device-absent', ('--device', 'cuda'), ['device', 'cuda|gpu'], doors=TRAIN),
    option('seed-negative', ('--random-seed', -1), ['random.seed|seed', '-1']),
    option('icv-unknown', ('--icv', 'divide'), ['--icv', 'divide', 'proportion']),
    option('unknown', ('--no-such-option',), ['no-such-option'], doors=TABLES),
    option('without-value', ('--group-column',), ['group-column', 'argument']),
    option(
        'site-choice-unknown',
        ('--unseen-site', 'guess'),
        ['unseen-site', 'guess'],
        doors=('apply',),
    ),
    option(
        'covariates-with-model',
        ('--covariates', 'age'),
        ['covariates', 'model'],
        doors=('group_apply',),
    ),
    option(
        'permutations-negative', ('--permutations', -1), ['permutations', '-1'], doors=('group',)
    ),
    option('smoothing-nan', ('--map-smoothing', 'nan'), ['map-smoothing', 'nan'], doors=('group',)),
    option('tissue-unknown', ('--map-tissues', 'bone'), ['map-tissues', 'bone'], doors=('group',)),
    option('nprocs-zero', ('--nprocs', 0), ['nprocs', r'\b0\b'], doors=('group',)),
    option('memory-nan', ('--mem-gb', 'nan'), ['mem-gb', 'nan'], doors=('group',)),
]


def phenotype(name, content, says, code=65):
    def damage(study):
        path = study.folder / 'scores.tsv'
        if content is not None:
            path.write_bytes(content)
        study.add('--phenotype', path)

    return Case(f'phenotype-{name}', damage, says, ('group',), code)


def measured(study):
    """A measure that is in participants.tsv and in another table."""
    study.edit(study.people, lambda t: t.assign(mmse='28'))
    (study.folder / 'scores.tsv').write_text('participant_id\tmmse\nsub-001\t28\n')


PHENOTYPES = [
    phenotype('missing', None, [r'scores\.tsv', 'no such file|not found']),
    phenotype('empty', b'', [r'scores\.tsv']),
    phenotype('without-id', b'name\tmmse\nsub-001\t28\n', [r'scores\.tsv', 'participant_id']),
    phenotype(
        'of-others', b'participant_id\tmmse\nsub-901\t28\n', [r'scores\.tsv', 'none of the 48']
    ),
    phenotype(
        'twice', b'participant_id\tmmse\nsub-001\t28\nsub-001\t27\n', [r'scores\.tsv', 'sub-001']
    ),
    Case(
        'phenotype-twice-the-same-measure',
        several(measured, options('--phenotype', '{folder}/scores.tsv')),
        [r'scores\.tsv', 'mmse'],
        ('group',),
    ),
    phenotype('binary', b'\xff\xfe\0\1' * 99, [r'scores\.tsv']),
]


def config_file(name, content, says, code=USAGE):
    def damage(study):
        path = study.folder / 'options.toml'
        if content is not None:
            path.write_text(content)
        study.add('--config-file', path)

    return Case(f'config-{name}', damage, [r'options\.toml', *says], ('group',), code)


CONFIGS = [
    config_file('missing', None, ['no such file']),
    config_file('not-toml', 'n_patterns = = 2', ['toml']),
    config_file('unknown-option', 'n_pattern = 2', ['n_pattern']),
    config_file('wrong-type', 'work_dir = 5', ['work_dir', '5']),
    config_file('switch-as-text', 'dry_run = "no"', ['dry_run', 'true or false']),
    config_file('binary', '\x00\x01', ['toml']),
]


def plugin(name, content, says, code=USAGE):
    def damage(study):
        path = study.folder / 'plugin.yml'
        if content is not None:
            path.write_text(content)
        study.add('--use-plugin', path)

    return Case(f'plugin-{name}', damage, [r'plugin\.yml', *says], ('group',), code, dry=True)


PLUGINS = [
    plugin('missing', None, ['no such file|cannot be read|not found']),
    plugin('not-yaml', '{plugin: [', ['yaml|cannot be read']),
    plugin('a-list', '- 1\n- 2\n', ['plugin']),
    plugin('unknown', 'plugin: NoSuchPlugin\n', ['NoSuchPlugin']),
    plugin(
        'hostile', '!!python/object/apply:os.system ["touch x"]\n', ['yaml|cannot be read|plugin']
    ),
]


def into(*words):
    """Write the output elsewhere; `{folder}` stands for the folder of the study."""
    return options(*words)


def results_over(which):
    """`surreal-gan apply --overwrite`, its output in the place of an input."""

    def damage(study):
        study.add('--out', getattr(study, which), '--overwrite')

    return damage


def link_to_the_table(study):
    (study.folder / 'link.tsv').symlink_to(study.volumes)
    study.add('--out', study.folder / 'link.tsv', '--overwrite')


def hard_link_to_the_table(study):
    os.link(study.volumes, study.folder / 'same.tsv')
    study.add('--out', study.folder / 'same.tsv', '--overwrite')


def exists(study):
    study.results.write_text('precious')


def described(study):
    study.results.with_suffix('.json').write_text('precious')


def filled(study):
    study.out.mkdir()
    (study.out / 'thesis.txt').write_text('years of work')


def another_model_there(study):
    study.model.rename(study.out)
    study.add('--random-seed', '11')


def table_in_outputs(study):
    """The table of volumes is one that the group level itself would write."""
    place = study.out / 'phenotype' / 'roi_volumes.tsv'
    place.parent.mkdir(parents=True)
    study.volumes.rename(place)
    study.add('--roi-table', place)


def model_in_outputs(study):
    study.out.mkdir()
    study.model.rename(study.out / 'models')
    study.add('--model', study.out / 'models')


def phenotype_in_outputs(study):
    place = study.out / 'phenotype' / 'rindices.tsv'
    place.parent.mkdir(parents=True)
    place.write_text('participant_id\tmmse\n' + ''.join(f'sub-{k:03}\t{k}\n' for k in range(1, 49)))
    study.add('--phenotype', place)


def full_disk(patch, _):
    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    patch.setattr('os.fsync', refuse)


ROOT = pytest.mark.skipif(os.geteuid() == 0, reason='root may write everywhere')

OUTPUTS = [
    Case(
        'out-is-the-table',
        into('--out', '{folder}/volumes.tsv', '--overwrite'),
        [r'volumes\.tsv'],
        ('fit', 'apply'),
        OUTPUT,
    ),
    Case(
        'out-is-the-participants',
        into('--out', '{folder}/dataset/participants.tsv', '--overwrite'),
        [r'participants\.tsv'],
        ('fit', 'apply'),
        OUTPUT,
    ),
    Case(
        'out-is-a-link-to-the-table',
        link_to_the_table,
        [r'link\.tsv|volumes\.tsv'],
        ('fit', 'apply'),
        OUTPUT,
    ),
    Case(
        'out-is-a-hard-link-to-the-table',
        hard_link_to_the_table,
        [r'same\.tsv'],
        ('fit', 'apply'),
        OUTPUT,
    ),
    Case(
        'out-describes-itself-over-the-model',
        into('--out', '{folder}/model/model.tsv', '--overwrite'),
        [r'model\.(json|tsv)'],
        ('apply',),
        OUTPUT,
    ),
    Case(
        'out-is-r-indices-of-the-model',
        into('--out', '{folder}/model/rindices.tsv', '--overwrite'),
        [r'rindices\.(json|tsv)|model'],
        ('apply',),
        OUTPUT,
    ),
    Case(
        'out-in-a-file',
        into('--out', '{folder}/volumes.tsv/r.tsv'),
        [r'volumes\.tsv'],
        ('fit', 'apply'),
        OUTPUT,
    ),
    Case(
        'out-in-a-device', into('--out', '/dev/null/r.tsv'), ['/dev/null'], ('fit', 'apply'), OUTPUT
    ),
    Case('out-is-a-folder', lambda s: s.results.mkdir(), [r'rindices\.tsv'], ('apply',), OUTPUT),
    Case('out-exists', exists, [r'rindices\.tsv', '--overwrite'], ('apply',), OUTPUT),
    Case(
        'out-description-exists', described, [r'rindices\.json', '--overwrite'], ('apply',), OUTPUT
    ),
    Case(
        'out-without-extension',
        into('--out', '{folder}/results'),
        ['results', r'\.tsv'],
        ('apply',),
        USAGE,
    ),
    Case(
        'out-is-xlsx',
        into('--out', '{folder}/results.xlsx'),
        ['results', r'\.tsv'],
        ('apply',),
        USAGE,
    ),
    Case('out-holds-something-else', filled, ['out', r'thesis\.txt'], ('fit',), OUTPUT),
    Case('out-holds-another-model', another_model_there, ['out', '--overwrite'], ('fit',), OUTPUT),
    Case('out-parent-missing', into('--out', '{folder}/out/deep/r.tsv'), [], ('apply',), ACCEPTED),
    Case(
        'out-read-only',
        lambda s: s.folder.chmod(0o500),
        ['permission|writable'],
        TABLES,
        OUTPUT,
        marks=[ROOT],
    ),
    Case('out-on-a-full-disk', nothing, ['no space', 'space'], TABLES, OUTPUT, patch=full_disk),
    Case(
        'out-on-a-full-disk-over-results',
        several(exists, options('--overwrite')),
        ['no space'],
        ('apply',),
        OUTPUT,
        patch=full_disk,
    ),
    Case(
        'out-on-a-full-disk-over-a-model',
        several(another_model_there, options('--overwrite')),
        ['no space'],
        ('fit',),
        OUTPUT,
        patch=full_disk,
    ),
    Case('roi-table-is-an-output', table_in_outputs, [r'roi_volumes\.tsv'], GROUP, OUTPUT),
    Case('model-is-an-output', model_in_outputs, ['models'], ('group_apply',), USAGE),
    Case('phenotype-is-an-output', phenotype_in_outputs, [r'rindices\.tsv'], ('group',), OUTPUT),
]


CASES = [*OPTIONS, *PHENOTYPES, *CONFIGS, *PLUGINS, *OUTPUTS]
