"""Methods text: says what was done and no more, and cites what belongs to it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from surreal_bids import __version__
from surreal_bids.bids.derivatives import Reusable
from surreal_bids.bids.outputs import output_path
from surreal_bids.reports.methods import Methods, imaging_methods, references
from tests.reports.html_page import HOSTILE, Page
from tests.reports.studies import METHODS

NAMES = {'template': 'MNI152NLin2009cAsym', 'atlas': 'network', 'n_atlases': 0}
IMAGING = imaging_methods([Reusable()], ['deepbet'], **NAMES)
GROUP = METHODS | {
    'n_controls': 50, 'n_patients': 70, 'n_features': 139, 'n_structures': 0, 'averaged': False,
    'harmonized': False, 'covariates': (),
    'icv': 'none', 'associations': False, 'adjusted_for': '', 'change': False, 'folds': 0,
    'other_groups': [], 'noise_controls': 0,
    'preset': 'iclr2022', 'candidates': [], 'map_tissues': (), 'map_smoothing': 0,
}  # fmt: skip

CASES = [
    ({}, None, ['N4', 'deepbet', 'partial-volume', 'MNI152NLin2009cAsym', 'RAVENS'],
     ['Surreal-GAN', 'Nachev']),
    ({}, GROUP | {'n_structures': 72}, ['Left and right regions were added to 72 structures'], []),
    ({}, GROUP, ['139 regional'], ['Left and right']),
    ({'masks': ('stripped',)}, None, ['Skull-stripped images'], ['deepbet [', 'deepbet: fast']),
    ({'masks': ('given', 'deepbet')}, None, ['masks were taken', 'deepbet: fast'], []),
    ({'registered': False, 'transforms_reused': True, 'atlas': 'network'}, None,
     ['Transforms to the template MNI152NLin2009cAsym ['], ['Images were', 'fluid smoothing']),
    ({'registered': False, 'transforms_reused': True, 'atlas': 'own', 'n_atlases': 2}, None,
     ['Labelled brains were registered to', 'elastic'], ['fluid smoothing', 'Images were']),
    ({'transforms_reused': True}, None, ['Images were registered', 'Where they existed'], []),
    ({'template': 'mine', 'atlas': 'own', 'n_atlases': 8}, None,
     ['8 labelled', 'Each labelled brain was'], ['Fonov', 'regions of MUSE']),
    ({'atlas': 'own', 'n_atlases': 1}, None, ['one labelled brain', 'sums of'],
     ['voting', 'registered to each']),
    ({'atlas': 'network'}, None, ['U-Net', 'Neuromorphometrics', 'sums of'], ['voting', 'Mori']),
    ({'reused': ('fmriprep', 'dlmuse')}, None, ['fmriprep and dlmuse were used'], []),
    ({'lesions': 3, 'lesions_left_out': ('tissue',), 'lesions_filled': ('brain mask', 'regions')},
     None, ['(n = 3), the lesion was left out of the estimation of tissue, filled with',
            'hemisphere for brain mask and regions', 'Nachev'], []),
    ({'lesions': 1, 'lesions_left_out': ('bias field', 'tissue')}, None,
     ['left out of the estimation of bias field and tissue and measured'], ['filled', 'Nachev']),
    ({'lesions': 1}, None, ['the lesion was measured in each region'], ['left out', 'Nachev']),
    (None, {}, ['50 controls and 70 patients', 'Surreal-GAN'], ['ComBat', 'N4', 'voxel by voxel']),
    (None, {'harmonized': True}, ['ComBat', 'Fortin', 'Johnson'], ['Beer']),
    (None, {'harmonized': True, 'model': 'ad'}, ['as estimated in the training sample'], []),
    (None, {'harmonized': True, 'model': 'ad', 'adapted_to': 12},
     ['in controls of the same sites (n = 12)'], ['in the training sample.']),
    (None, {'model': 'ad', 'n_patterns': 1}, ['model ad', 'how strongly the pattern of change is'],
     ['each of 1', 'ComBat']),
    (None, {'harmonized': True, 'longitudinal': True}, ['within participants', 'Beer'], []),
    (None, {'features': 'z-scores', 'harmonized': True}, ['Z-scores were harm'], ['Volumes were']),
    (None, {'covariates': ('age', 'sex')}, ['Linear effects of age and sex'], ['intracranial']),
    (None, {'icv': 'covariate'}, ['Linear effects of intracranial volume'], ['divided']),
    (None, {'icv': 'power'}, ['log-transformed', 'power-proportion'], ['divided', 'ComBat']),
    (None, {'icv': 'proportion'}, ['divided by the intracranial volume'], ['effects of']),
    (None, {'model': 'clinic', 'published': "the authors' model (Yang 2024)"},
     ["model clinic, the authors' model (Yang 2024)."], []),
    (None, {'candidates': (2, 3, 4), 'n_patterns': 3}, ['(3) was chosen among 2, 3 and 4'], []),
    (None, {'preset': 'correlated'}, ['may correlate', '49,482'], []),
    (None, {'preset': 'sparse', 'members': 8, 'iterations': 300},
     ['8 models (members)', 'own random subsample', 'at most 300 iterations each',
      'initialised from sparse linear factors', 'trained adversarially'], ['at least']),
    (None, {'map_tissues': ('GM',)}, ['voxel by voxel', 'Benjamini'], ['permutations']),
    (None, {'map_tissues': ('GM',), 'map_smoothing': 8.0}, ['Gaussian of 8 mm'], []),
    (None, {'deviation_maps': ('GM',)}, ['deleted residuals'], []),
    (None, {'map_tissues': ('GM', 'WM'), 'permutations': 5000}, ['5,000 permutations'], []),
    (None, {'folds': 5}, ['divided into 5 folds', 'out of fold'], ['site']),
    (None, {'associations': True, 'n_patterns': 0, 'candidates': (1, 2), 'map_tissues': ('GM',)},
     ['No pattern is supported'], ['rank correlation', 'describe the patterns']),
    (None, {'change': True}, ['one least-squares slope per participant'], []),
    (None, {'change': True, 'other_groups': ['MCI', 'SCD']},
     ['between patients, MCI, SCD and controls'], ['reliable']),
    (None, {'noise_controls': 67},
     ['repeated visits of controls (n = 67). ', '5 % of participants would have at least one',
      '(Sidak correction for visits and R-indices). '], ['false-alarm']),
    (None, {'associations': True, 'other_groups': ['MCI', 'SCD']}, ['within MCI and SCD'], []),
    (None, {'associations': True}, ['by rank', 'Benjamini'], ['voxel by voxel', 'partial']),
    (None, {'associations': True, 'adjusted_for': 'age, site'},
     ['by partial rank correlation, adjusted for age, site,'], []),
]  # fmt: skip


REUSED = {
    'none': Reusable(),
    'images': Reusable('fmriprep', Path('t1w'), Path('mask')),
    'transforms': Reusable(
        'fmriprep', Path('t1w'), Path('mask'), (Path('GM'),) * 3, Path('there'), Path('back')
    ),
}


@pytest.mark.parametrize(
    ('images', 'registered', 'reused'),
    [
        (['none'], True, False),
        (['images'], True, False),
        (['transforms'], False, True),
        (['transforms', 'none'], True, True),
    ],
)
def test_images_whose_transforms_were_reused_are_not_called_registered(images, registered, reused):
    methods = imaging_methods([REUSED[name] for name in images], ['fmriprep'], **NAMES)
    text = Methods(imaging=methods).markdown
    assert ('registered to the template' in text) == registered
    assert ('ransforms to the template' in text) == reused
    assert ('N4 [' in text) == ('none' in images)
    assert methods['masks'] == ['given']


@pytest.mark.parametrize('both', [False, True])
def test_results_that_only_some_images_have_are_not_called_those_of_all(both):
    whole = replace(REUSED['transforms'], dseg=Path('dseg'), dseg_name='freesurfer')
    methods = imaging_methods([whole, whole if both else Reusable()], ['given'], **NAMES)
    text = Methods(imaging=methods).markdown
    assert 'segmentation of freesurfer' in text
    assert 'cerebrospinal fluid were taken from existing derivatives' in text
    for words in ('U-Net', 'mixture model', 'existed, maps', 'existed, regions'):
        assert (words in text) == (not both), words


@pytest.mark.parametrize(
    ('image', 'method', 'left_out', 'filled'),
    [
        ('none', 'deepbet', ('bias field', 'tissue'), ('brain mask', 'registration', 'regions')),
        ('none', 'stripped', ('bias field', 'tissue'), ('registration', 'regions')),
        ('images', 'fmriprep', ('tissue',), ('registration', 'regions')),
        ('transforms', 'fmriprep', (), ('regions',)),
    ],
)
def test_only_steps_that_were_done_here_left_lesions_out_or_filled_them(
    image, method, left_out, filled
):
    damaged = replace(REUSED[image], lesion=Path('lesion'))
    segmented = replace(damaged, dseg=Path('dseg'), dseg_name='freesurfer')
    for each, expected in ((damaged, filled), (segmented, filled[:-1])):
        methods = imaging_methods([each, REUSED['transforms']], [method], **NAMES)
        assert (methods['lesions'], methods['lesions_left_out']) == (1, list(left_out))
        assert methods['lesions_filled'] == list(expected)


def make(imaging, group):
    return Methods(
        None if imaging is None else IMAGING | imaging, None if group is None else GROUP | group
    )


def test_the_text_says_what_was_done_and_no_more():
    for imaging, group, said, unsaid in CASES:
        text = make(imaging, group).markdown
        for phrase in [*said, f'surreal_bids {__version__}', 'Nipype']:
            assert phrase in text, (phrase, imaging, group)
        for phrase in unsaid:
            assert phrase not in text, (phrase, imaging, group)


def test_numbers_match_and_every_reference_is_used():
    used = set()
    for imaging, group, _, _ in CASES:
        methods = make(imaging, group)
        text, listed = methods.markdown.split('# References')
        assert '[@' not in text
        assert '.R' not in text
        cited = [int(n) for each in re.findall(r'\[([\d, ]+)\]', text) for n in each.split(',')]
        in_order = list(dict.fromkeys(cited))
        assert in_order == list(range(1, len(in_order) + 1))
        numbers = re.findall(r'^(\d+)\. ', listed, re.MULTILINE)
        assert [int(number) for number in numbers] == in_order
        used |= {each['key'] for each in methods.references}
    assert used == set(references())
    link = r'https://(doi\.org/10\.\d{4,5}/\S+|(arxiv\.org|openreview\.net|www\.jmlr\.org)/\S+)'
    for each in references().values():
        assert re.fullmatch(link, each['link'])
        assert re.search(r'(19|20)\d\d', each['source'])


def test_the_text_is_written_as_markdown_html_and_bibtex(tmp_path):
    methods = Methods(IMAGING, GROUP)
    methods.write(tmp_path)
    methods.write(tmp_path, 'group')
    for level in (None, 'group'):
        texts = {
            extension: output_path(tmp_path, 'citation', level=level, extension=extension)
            for extension in ('md', 'html', 'bib')
        }
        page = Page(texts['html'])
        text = texts['md'].read_text().split('# References')[0].split('# Methods')[1]
        assert ' '.join(text.split()) in ' '.join(page.words.split())
        entries = re.findall(r'@article\{(\w+),', texts['bib'].read_text())
        assert len(entries) == len(page.of('li')) == len(set(entries))
        assert 'bids' in entries


@pytest.mark.parametrize('name', [HOSTILE, '[@bids] [@nobody]'])
def test_names_of_others_do_no_harm(tmp_path, name):
    path = tmp_path / 'm.html'
    path.write_text(Methods(IMAGING | {'atlas': name, 'template': name}).html, encoding='utf-8')
    page = Page(path)
    assert not page.of('script', 'img')
    assert name.split()[-1] in page.words
