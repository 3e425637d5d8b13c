"""Datasets, images, templates and atlases that cannot be used as they are."""

from __future__ import annotations

import gzip
import shutil
import struct

import nibabel as nib
import numpy as np

from tests.bad_input.cases import (
    ACCEPTED,
    NO_DATASET,
    NO_MATCH,
    OUTPUT,
    SOME_FAILED,
    USAGE,
    Case,
    options,
    people,
)
from tests.bad_input.studies import SHAPE, head, write_image

PARTICIPANT = ('participant',)
LEVELS = ('participant', 'both')
MAGIC_OFFSET, PIXDIM_OFFSET, SFORM_OFFSET, DIM_OFFSET = 344, 76, 280, 40
DATATYPE_OFFSET, VOX_OFFSET, SLOPE_OFFSET = 70, 108, 112


def dataset(name, damage, says, code=SOME_FAILED, doors=PARTICIPANT):
    return Case(name, damage, says, doors, code, kind='images')


def description(content):
    def damage(study):
        path = study.dataset / 'dataset_description.json'
        path.unlink()
        if content is not None:
            path.write_bytes(content)

    return damage


def renamed(name):
    """Rename the folder and the image of sub-02."""

    def damage(study):
        folder = study.dataset / name
        (study.dataset / 'sub-02').rename(folder)
        (folder / 'anat' / 'sub-02_T1w.nii.gz').rename(folder / 'anat' / f'{name}_T1w.nii.gz')

    return damage


def session_without_image(study):
    folder = study.dataset / 'sub-02'
    (folder / 'ses-1').mkdir()
    (folder / 'anat').rename(folder / 'ses-1' / 'anat')
    image = folder / 'ses-1' / 'anat' / 'sub-02_T1w.nii.gz'
    image.rename(image.with_name('sub-02_ses-1_T1w.nii.gz'))
    (folder / 'ses-2' / 'func').mkdir(parents=True)


def moved(**places):
    """Have another place for the outputs or for intermediate results."""

    def damage(study):
        for name, place in places.items():
            setattr(study, name, study.folder / place)

    return damage


def link(name, target):
    return lambda s: (s.folder / name).symlink_to(target)


def no_images(study):
    for path in study.dataset.glob('sub-*/anat/*_T1w.nii.gz'):
        path.unlink()


def no_participants(study):
    for folder in study.dataset.glob('sub-*'):
        shutil.rmtree(folder)


def image(data=None, affine=None):
    """Put another image in the place of that of sub-02."""
    return lambda s: write_image(s.image(), data, affine)


def image_bytes(change):
    def damage(study):
        path = study.image()
        path.write_bytes(change(path.read_bytes()))

    return damage


def nifti_bytes(change):
    """Change the bytes of the image before compression."""

    def changed(content):
        data = bytearray(gzip.decompress(content))
        change(data)
        return gzip.compress(bytes(data))

    return image_bytes(changed)


def header_field(offset, form, *values):
    return nifti_bytes(lambda data: struct.pack_into(form, data, offset, *values))


def colours(study):
    data = np.zeros(SHAPE, np.dtype([('R', 'u1'), ('G', 'u1'), ('B', 'u1')]))
    nib.Nifti1Image(data, np.eye(4)).to_filename(study.image())


def with_nan(study):
    data = head()
    data[3, 4, 5] = np.nan
    write_image(study.image(), data)


def with_inf(study):
    data = head()
    data[3, 4, 5] = np.inf
    write_image(study.image(), data)


def singular(study):
    affine = np.diag([1.0, 1, 1, 1])
    affine[:, 2] = affine[:, 1]
    image = nib.Nifti1Image(head(), np.eye(4))
    image.header.set_sform(affine, 1)
    image.header['qform_code'] = 0
    nib.save(nib.Nifti1Image(head(), None, image.header), study.image())


def zero_voxels(study):
    header_field(PIXDIM_OFFSET, '<ffff', 1, 0, 0, 0)(study)
    header_field(SFORM_OFFSET, '<12f', *[0.0] * 12)(study)


def overflowing(study):
    image = nib.Nifti1Image(
        np.full(SHAPE, 30000, np.int16) + np.arange(9, dtype=np.int16), np.eye(4)
    )
    image.to_filename(study.image())
    header_field(SLOPE_OFFSET, '<ff', 1e38, 0)(study)


def copied_image(study):
    shutil.copyfile(study.image('01'), study.image('02'))


def folder_for_image(study):
    study.image().unlink()
    study.image().mkdir()


def broken_link(study):
    study.image().unlink()
    study.image().symlink_to('../../.git/annex/objects/a.nii.gz')


IMAGES = [
    dataset(f'image-{name}', damage, [rf'sub-02[^\n]*({says}|cannot be read as an image)'])
    for name, damage, says in [
        ('constant', image(np.full(SHAPE, 7.0, np.float32)), 'all voxels are 7'),
        ('zeros', image(np.zeros(SHAPE, np.float32)), 'all voxels are 0'),
        ('rgb', colours, 'rgb|colou?r'),
        ('complex', image(head() + 1j * head(1)), 'complex'),
        ('all-nan', image(np.full(SHAPE, np.nan, np.float32)), 'nan|finite|missing'),
        ('4d', image(head(0, (*SHAPE, 3))), '4|dimension'),
        ('2d', image(head(0, (7, 8))), '2|dimension'),
        ('one-slice', image(head(0, (7, 8, 1))), 'slice|dimension|voxel'),
        ('zero-bytes', image_bytes(lambda _: b''), 'empty'),
        ('truncated', image_bytes(lambda b: b[: len(b) // 2]), 'truncated|damaged'),
        ('end-missing', image_bytes(lambda b: b[:-8]), 'truncated|damaged'),
        (
            'bits-flipped',
            image_bytes(lambda b: b[:900] + bytes([b[900] ^ 255]) + b[901:]),
            'damaged|truncated|crc|header',
        ),
        ('not-compressed', image_bytes(gzip.decompress), 'gzip|compress|header'),
        ('wrong-magic', header_field(MAGIC_OFFSET, '<4s', b'abcd'), 'nifti|header|magic'),
        (
            'random',
            image_bytes(lambda b: np.random.default_rng(0).bytes(len(b))),
            'header|gzip|nifti',
        ),
        (
            'git-lfs',
            image_bytes(
                lambda _: b'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n'
            ),
            'header|git|lfs',
        ),
        ('html', image_bytes(lambda _: b'<!DOCTYPE html><html>Log in</html>'), 'header|nifti'),
        ('zero-voxel-size', zero_voxels, 'affine|voxel'),
        ('huge-voxel-size', image(affine=np.diag([1e6, 1e6, 1e6, 1])), 'voxel|mm|size'),
        ('tiny-voxel-size', image(affine=np.diag([1e-6, 1e-6, 1e-6, 1])), 'voxel|mm|size'),
        ('singular-affine', singular, 'affine'),
        ('nan-affine', header_field(SFORM_OFFSET, '<f', float('nan')), 'affine|finite'),
        (
            'negative-size',
            header_field(DIM_OFFSET, '<hhhh', 3, -7, 8, 9),
            'header|voxel|dimension|size',
        ),
        (
            'huge-size',
            header_field(DIM_OFFSET, '<hhhh', 3, 32767, 32767, 32767),
            'truncated|bytes|memory|large',
        ),
        ('eight-dimensions', header_field(DIM_OFFSET, '<h', 8), 'dimension|header'),
        ('unknown-type', header_field(DATATYPE_OFFSET, '<h', 12345), 'type|header'),
        ('offset-beyond-end', header_field(VOX_OFFSET, '<f', 1e9), 'truncated|bytes|offset|header'),
        ('overflowing-scale', overflowing, 'finite|overflow|intensit|large'),
        ('folder', folder_for_image, 'folder|directory|no T1w'),
        ('broken-link', broken_link, 'link|fetch|datalad'),
    ]
]

IMAGES += [
    dataset(f'image-{name}', damage, [r'sub-02[^\n]*1 voxels? .*(nan|finite)'], ACCEPTED)
    for name, damage in (('nan', with_nan), ('inf', with_inf))
]

DATASETS = [
    dataset(
        'dataset-missing',
        lambda s: s.dataset.rename(s.folder / 'elsewhere'),
        ['dataset', 'no such folder'],
        NO_DATASET,
        LEVELS,
    ),
    dataset(
        'dataset-without-description',
        description(None),
        ['dataset_description.json'],
        NO_DATASET,
        LEVELS,
    ),
    dataset(
        'dataset-description-not-json',
        description(b'{"Name": '),
        ['dataset_description.json', 'json'],
        NO_DATASET,
        LEVELS,
    ),
    dataset(
        'dataset-description-a-list',
        description(b'[]'),
        ['dataset_description.json'],
        NO_DATASET,
        LEVELS,
    ),
    dataset(
        'dataset-description-binary',
        description(b'\xff\xfe\0\1'),
        ['dataset_description.json'],
        NO_DATASET,
        LEVELS,
    ),
    dataset(
        'dataset-description-nested',
        description(b'[' * 100_000),
        ['dataset_description.json'],
        NO_DATASET,
        LEVELS,
    ),
    dataset(
        'dataset-without-participants-table',
        lambda s: s.people.unlink(),
        [r'participants\.tsv'],
        65,
        ('both',),
    ),
    dataset('dataset-without-images', no_images, ['T1w'], NO_MATCH, LEVELS),
    dataset('dataset-without-participants', no_participants, ['sub-'], NO_MATCH, LEVELS),
    dataset(
        'participant-without-image',
        lambda s: s.image().unlink(),
        ['sub-02', 'T1w'],
        SOME_FAILED,
        LEVELS,
    ),
    dataset('participant-folder-with-space', renamed('sub-a b'), ['sub-a b'], SOME_FAILED, LEVELS),
    dataset(
        'participant-folder-with-underscore', renamed('sub-x_y'), ['sub-x_y'], SOME_FAILED, LEVELS
    ),
    dataset(
        'participant-folder-without-label', renamed('sub-'), [r'sub-(?![0-9])'], SOME_FAILED, LEVELS
    ),
    dataset('participant-folder-in-capitals', renamed('Sub-02'), ['sub-02: '], ACCEPTED, LEVELS),
    dataset(
        'participant-not-in-table',
        people(lambda t: t.drop('sub-02')),
        ['sub-02', r'participants\.tsv'],
        ACCEPTED,
        ('both',),
    ),
    dataset(
        'participant-only-in-table',
        lambda s: shutil.rmtree(s.dataset / 'sub-02'),
        ['sub-02: '],
        ACCEPTED,
        LEVELS,
    ),
    dataset('session-without-image', session_without_image, ['sub-02_ses-2: '], ACCEPTED, LEVELS),
    dataset(
        'image-named-otherwise',
        lambda s: s.image().rename(s.image().with_name('sub-03_T1w.nii.gz')),
        ['sub-03_T1w|sub-02'],
        SOME_FAILED,
        LEVELS,
    ),
    dataset(
        'image-copied', copied_image, ['sub-01', 'sub-02', 'same|identical'], SOME_FAILED, LEVELS
    ),
    dataset(
        'label-absent',
        options('--participant-label', '99'),
        ['99', 'participant-label'],
        NO_MATCH,
        LEVELS,
    ),
    dataset(
        'session-label-absent',
        options('--session-label', 'x'),
        ['x', 'session-label'],
        NO_MATCH,
        LEVELS,
    ),
    dataset(
        'label-hostile',
        options('--participant-label', '../../etc'),
        [r'\.\./\.\./etc'],
        NO_MATCH,
        LEVELS,
    ),
    dataset(
        'output-is-the-dataset', moved(out='dataset'), ['dataset', 'output folder'], OUTPUT, LEVELS
    ),
    dataset(
        'output-in-the-dataset', moved(out='dataset/results'), ['dataset/results'], OUTPUT, LEVELS
    ),
    dataset('output-around-the-dataset', moved(out='.'), ['output folder'], OUTPUT, LEVELS),
    dataset(
        'output-is-a-file',
        moved(out='dataset/participants.tsv'),
        [r'participants\.tsv'],
        OUTPUT,
        LEVELS,
    ),
    dataset(
        'output-in-a-file',
        moved(out='atlas/a_T1w.nii.gz/out'),
        ['a_T1w'],
        OUTPUT,
        LEVELS,
    ),
    dataset('work-in-the-dataset', moved(work='dataset/work'), ['dataset/work'], OUTPUT, LEVELS),
    dataset(
        'work-is-a-file',
        moved(work='dataset/participants.tsv'),
        [r'participants\.tsv'],
        OUTPUT,
        LEVELS,
    ),
]


def filter_file(name, content, says):
    def damage(study):
        path = study.folder / 'filter.json'
        if content is not None:
            path.write_text(content)
        study.add('--bids-filter-file', path)

    return dataset(f'filter-{name}', damage, [r'filter\.json', *says], USAGE)


FILTERS = [
    filter_file('missing', None, ['no such file']),
    filter_file('not-json', '{"t1w": ', ['json']),
    filter_file('a-list', '[1]', ['t1w']),
    filter_file('unknown-query', '{"T1": {}}', ['T1']),
    filter_file('unknown-entity', '{"t1w": {"sesion": "1"}}', ['sesion']),
    filter_file('wrong-value', '{"t1w": {"run": {"a": 1}}}', ['run']),
    filter_file('nested', '[' * 100_000, ['json']),
]


def other(*words):
    """Options in the place of that for atlases."""

    def damage(study):
        study.options.clear()
        study.add(*(str(word).format(folder=study.folder) for word in words))

    return damage


def without(*names):
    return lambda s: [(s.folder / name).unlink() for name in names]


def atlas_grid(study):
    write_image(
        study.folder / 'atlas' / 'a_dseg.nii.gz',
        np.array([0, 47], np.int16).repeat(30).reshape(3, 4, 5),
    )


def atlas_labels(study):
    write_image(study.folder / 'atlas' / 'a_dseg.nii.gz', np.full(SHAPE, 99, np.int16))


def atlas_fractions(study):
    write_image(study.folder / 'atlas' / 'a_dseg.nii.gz', np.full(SHAPE, 47.5, np.float32))


def emptied(name):
    def damage(study):
        shutil.rmtree(study.folder / name)
        (study.folder / name).mkdir()

    return damage


REFERENCES = [
    dataset(name, damage, says, code)
    for name, damage, says, code in [
        ('atlas-missing', other('--segmentation', '{folder}/nowhere'), ['nowhere'], 65),
        ('atlas-empty', emptied('atlas'), ['atlas', 'T1w|dseg'], 65),
        ('atlas-without-regions', without('atlas/dseg.tsv'), [r'dseg\.tsv'], 65),
        ('atlas-half-a-pair', without('atlas/a_T1w.nii.gz'), ['a_T1w'], 65),
        ('atlas-on-other-grids', atlas_grid, ['a_dseg', 'grid'], 65),
        ('atlas-labels-unknown', atlas_labels, ['a_dseg', '99'], 65),
        ('atlas-labels-fractions', atlas_fractions, ['a_dseg', r'47\.5'], 65),
        (
            'atlas-damaged',
            lambda s: (s.folder / 'atlas' / 'a_dseg.nii.gz').write_bytes(b'x' * 50),
            ['a_dseg'],
            65,
        ),
        (
            'atlas-regions-twice',
            lambda s: (s.folder / 'atlas' / 'dseg.tsv').write_text('index\tname\n47\ta\n47\tb\n'),
            [r'dseg\.tsv', '47'],
            65,
        ),
        (
            'template-resolution-zero',
            other('--template-resolution', '0'),
            ['template-resolution', r'\b0'],
            USAGE,
        ),
        (
            'template-resolution-nan',
            other('--template-resolution', 'nan'),
            ['template-resolution', 'nan'],
            USAGE,
        ),
        (
            'template-resolution-huge',
            other('--template-resolution', '40'),
            ['template-resolution 40'],
            USAGE,
        ),
        (
            'derivatives-missing',
            options('-d', 'fmriprep={folder}/nowhere'),
            ['fmriprep', 'nowhere'],
            USAGE,
        ),
        (
            'derivatives-without-name',
            options('-d', '{folder}/nowhere'),
            ['nowhere', 'NAME=PATH'],
            USAGE,
        ),
        (
            'derivatives-without-folder',
            options('-d', 'fmriprep='),
            ['fmriprep', 'NAME=PATH'],
            USAGE,
        ),
        (
            'derivatives-twice',
            options('-d', 'a={folder}', 'a={folder}'),
            ['twice|more than once'],
            USAGE,
        ),
    ]
]


def at_both_levels(name, words, says, code):
    return dataset(f'both-{name}', options(*words), says, code, ('both',))


BOTH = [
    at_both_levels(
        'model-missing', ('--model', '{folder}/nowhere'), ['nowhere', 'not a model|no such'], 65
    ),
    at_both_levels(
        'phenotype-missing', ('--phenotype', '{folder}/scores.tsv'), [r'scores\.tsv'], 65
    ),
    at_both_levels(
        'plugin-missing', ('--use-plugin', '{folder}/plugin.yml'), [r'plugin\.yml'], USAGE
    ),
    at_both_levels('covariate-absent', ('--covariates', 'ages'), ['participants', 'ages'], 65),
    at_both_levels('site-absent', ('--site-column', 'scanner'), ['participants', 'scanner'], 65),
    at_both_levels('icv-absent', ('--icv-column', 'tiv'), ['participants', 'tiv'], 65),
    at_both_levels('group-column-absent', ('--group-column', 'dx'), ['participants', 'dx'], 65),
    at_both_levels('control-label-absent', ('--control-label', 'HC'), ['participants', 'HC'], 65),
    at_both_levels('atlas-missing', ('--segmentation', '{folder}/nowhere'), ['nowhere'], 65),
    dataset(
        'both-too-few-controls',
        people(lambda t: t.assign(diagnosis=['CN'] * 3 + ['PT'] * 17)),
        ['3 controls'],
        65,
        ('both',),
    ),
    dataset(
        'both-one-group',
        people(lambda t: t.assign(diagnosis='CN')),
        ['CN', '--group-column'],
        65,
        ('both',),
    ),
    dataset(
        'both-age-999',
        people(lambda t: t.assign(age=['999', *t['age'][1:]])),
        [r'exclude sub-01 \(age is 999'],
        ACCEPTED,
        ('both',),
    ),
]

CASES = [*DATASETS, *IMAGES, *FILTERS, *REFERENCES, *BOTH]
