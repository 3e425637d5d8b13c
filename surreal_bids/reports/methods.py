"""The methods of a run in words ready to paste, with the references that belong to them.

Only what was done is described. A sentence cites with ``[@key]``, a key of `references.json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as package_files
from typing import Literal

from markupsafe import Markup, escape


@dataclass(frozen=True)
class Reference:
    """A publication, with its number in the text."""

    number: int
    authors: str
    title: str
    source: str
    link: str


def cited_markdown(paragraphs: Sequence[str]) -> tuple[str, str]:
    """Paragraphs with numbers for citations, and the list of references, as Markdown."""
    numbers = _numbers(paragraphs)
    text = [
        _citation().sub(lambda found: f'[{_joined(found, numbers)}]', paragraph)
        for paragraph in paragraphs
    ]
    listed = [
        f'{each.number}. {each.authors}. {each.title}. *{each.source}*. <{each.link}>'
        for each in cited_references(paragraphs)
    ]
    return '\n\n'.join(text), '\n'.join(listed)


def cited_html(paragraphs: Sequence[str]) -> tuple[Markup, Markup]:
    """Paragraphs and references as HTML; numbers in the text lead to the references."""
    numbers = _numbers(paragraphs)
    text = Markup('\n').join(
        Markup('<p>{}</p>').format(_linked(paragraph, numbers)) for paragraph in paragraphs
    )
    listed = Markup('\n').join(
        Markup('<li id="reference-{}">{}. {}. <i>{}</i>. <a href="{}">{}</a></li>').format(
            each.number, each.authors, each.title, each.source, each.link, each.link
        )
        for each in cited_references(paragraphs)
    )
    return text, Markup('<ol class="references">\n{}\n</ol>').format(listed)


def cited_references(paragraphs: Sequence[str]) -> tuple[Reference, ...]:
    """The references of a text, in the order of their numbers."""
    known = _references()
    return tuple(
        Reference(
            number=number,
            authors=known[key]['authors'].removesuffix('.'),
            title=known[key]['title'],
            source=known[key]['source'],
            link=known[key].get('url') or f'https://doi.org/{known[key]["doi"]}',
        )
        for key, number in _numbers(paragraphs).items()
    )


@cache
def _references() -> dict[str, dict[str, str]]:
    path = package_files('surreal_bids.reports').joinpath('references.json')
    return dict(json.loads(path.read_text(encoding='utf-8')))


@cache
def _citation() -> re.Pattern[str]:
    """Pattern of a citation; names of a dataset that merely look like one stay what they are."""
    key = f'@(?:{"|".join(map(re.escape, _references()))})'
    return re.compile(rf'\[({key}(?:, {key})*)\]')


def _keys(found: re.Match[str]) -> list[str]:
    return [key.strip(' @') for key in found.group(1).split(',')]


def _numbers(paragraphs: Sequence[str]) -> dict[str, int]:
    """Number of each key that is cited, in the order of first citation."""
    cited = [
        key for text in paragraphs for found in _citation().finditer(text) for key in _keys(found)
    ]
    return {key: number for number, key in enumerate(dict.fromkeys(cited), start=1)}


def _joined(found: re.Match[str], numbers: dict[str, int]) -> str:
    return ', '.join(str(numbers[key]) for key in _keys(found))


def _linked(paragraph: str, numbers: dict[str, int]) -> Markup:
    """A paragraph with its text escaped and its citations as links."""

    def link(found: re.Match[str]) -> str:
        links = (f'<a href="#reference-{numbers[key]}">{numbers[key]}</a>' for key in _keys(found))
        return f'[{", ".join(links)}]'

    # The text is escaped before links are put into it; escaping leaves citations alone.
    return Markup(_citation().sub(link, str(escape(paragraph))))  # noqa: S704


BUILTIN_ATLAS = 'muse'
BUILTIN_TEMPLATE = 'MNI152NLin2009cAsym'

MaskOrigin = Literal['deepbet', 'stripped', 'given']

MASKS: dict[str, str] = {
    'deepbet': 'the brain was extracted with deepbet [@deepbet]',
    'stripped': 'images that came without the skull were taken as they were, the brain being '
    'where they are not zero',
    'given': 'brain masks were taken from existing derivatives',
}
"""What is said of each origin of a brain mask."""

PRESETS: dict[str, str] = {
    'iclr2022': 'with the settings of the paper',
    'correlated': 'with R-indices that may correlate, their correlation being learned '
    '[@surreal_gan_aging]',
    'robust': "with surreal_bids's own settings for steadier training",
}
"""What is said of each preset of hyper-parameters."""


@dataclass(frozen=True)
class ImagingMethods:
    """What was done with the images.

    Attributes
    ----------
    bias_corrected
        Intensities were corrected with N4.
    masks
        Where the brain masks came from; several where people differ.
    tissue_classified
        Atropos was run; else tissue maps were taken from derivatives.
    template
        Name of the template.
    atlas, n_atlases
        Name of the atlas set, and how many labelled brains it has.
    registrations_per_atlas
        More than 1: an ensemble with different parameters.
    template_library
        People of the dataset who served as intermediate templates.
    segmentation
        Name of the program whose segmentation was taken instead of fusing labels.
    ravens, ravens_smoothing
        RAVENS maps were made, smoothed by this full width at half maximum (mm).
    reused
        Names of the derivatives from which inputs were taken.
    """

    bias_corrected: bool = True
    masks: tuple[MaskOrigin, ...] = ('deepbet',)
    tissue_classified: bool = True
    template: str = BUILTIN_TEMPLATE
    atlas: str = BUILTIN_ATLAS
    n_atlases: int = 1
    registrations_per_atlas: int = 1
    template_library: int = 0
    segmentation: str | None = None
    ravens: bool = True
    ravens_smoothing: float = 0.0
    reused: tuple[str, ...] = ()


@dataclass(frozen=True)
class GroupMethods:
    """What was done with the volumes of the group.

    Attributes
    ----------
    n_controls, n_patients, n_features
        Who and what went in.
    harmonization
        ComBat with linear covariate effects, with splines, or none.
    covariates
        What was residualised.
    icv
        What was done with the intracranial volume.
    model
        Name of the model that was applied; None if one was trained.
    preset, candidates, n_patterns, repetitions, iterations
        Training: numbers of patterns tried, the one chosen, members of each setting.
    map_tissues, map_smoothing, permutations
        Tissues of the voxelwise maps, their smoothing (mm), and permutations for family-wise
        errors.
    associations
        R-indices were associated with clinical measures.
    diagnosis
        R-indices and volumes were tried as features of a classifier.
    split_half
        Training was repeated on two halves of the people.
    """

    n_controls: int
    n_patients: int
    n_features: int
    harmonization: Literal['linear', 'splines'] | None = None
    covariates: tuple[str, ...] = ()
    icv: Literal['covariate', 'proportion', 'none'] = 'none'
    model: str | None = None
    preset: str = 'iclr2022'
    candidates: tuple[int, ...] = ()
    n_patterns: int = 2
    repetitions: int = 10
    iterations: int = 100_000
    map_tissues: tuple[str, ...] = ()
    map_smoothing: float = 0.0
    permutations: int = 0
    associations: bool = False
    diagnosis: bool = False
    split_half: bool = False


@dataclass(frozen=True)
class MethodsOptions:
    """What was done: of the imaging half, of the group level, or of both."""

    version: str
    imaging: ImagingMethods | None = None
    group: GroupMethods | None = None


def methods_text(options: MethodsOptions) -> str:
    """Methods and numbered references as Markdown."""
    text, references = cited_markdown(_paragraphs(options))
    return '\n\n'.join(['# Methods', text, '# References', references]) + '\n'


def methods_html(options: MethodsOptions) -> Markup:
    """Methods and numbered references as HTML; numbers in the text lead to the references."""
    text, references = cited_html(_paragraphs(options))
    return text + Markup('<h3>References</h3>\n') + references


def citations(options: MethodsOptions) -> tuple[Reference, ...]:
    """The references of the methods, in the order of their numbers."""
    return cited_references(_paragraphs(options))


def _paragraphs(options: MethodsOptions) -> list[str]:
    """The text in paragraphs; empty sentences are left out."""
    paragraphs: list[list[str]] = [[_software(options)]]
    if options.imaging is not None:
        paragraphs += [_in_order(options.imaging, IMAGE_STEPS)]
        paragraphs += [_in_order(options.imaging, REGION_STEPS)]
    if options.group is not None:
        paragraphs += [_in_order(options.group, GROUP_STEPS)]
        paragraphs += [_in_order(options.group, FOLLOW_UP_STEPS)]
    return [' '.join(sentences) for sentences in paragraphs if sentences]


def _in_order(done: object, steps: Sequence[Callable[..., str]]) -> list[str]:
    return [sentence for step in steps if (sentence := step(done))]


def _software(options: MethodsOptions) -> str:
    return (
        f'Data organised by the Brain Imaging Data Structure [@bids] were processed with '
        f'surreal_bids {options.version}, a BIDS App [@bids_apps] built on Nipype [@nipype] and '
        'nilearn [@nilearn].'
    )


def _reuse(done: ImagingMethods) -> str:
    if not done.reused:
        return ''
    return f'Results of {_listing(done.reused)} were used where they existed.'


def _bias(done: ImagingMethods) -> str:
    if not done.bias_corrected:
        return ''
    return (
        'T1-weighted images were corrected for intensity non-uniformity with N4 [@n4], '
        'distributed with ANTs [@ants].'
    )


def _mask(done: ImagingMethods) -> str:
    text = '; '.join(MASKS[origin] for origin in done.masks)
    return f'{text[:1].upper()}{text[1:]}.' if text else ''


def _tissue(done: ImagingMethods) -> str:
    if not done.tissue_classified:
        return 'Maps of grey matter, white matter and fluid were taken from existing derivatives.'
    return (
        'Grey matter, white matter and cerebrospinal fluid were told apart with Atropos '
        '[@atropos], with tissue priors of the template.'
    )


def _template(done: ImagingMethods) -> str:
    cited = ' [@mni152]' if done.template == BUILTIN_TEMPLATE else ''
    return (
        f'Images were registered to the template {done.template}{cited} by an affine and then a '
        'diffeomorphic registration that maximises the local normalised cross-correlation [@syn] '
        'from coarse to fine with fluid smoothing (for atlases also elastic), written in PyTorch '
        '[@pytorch].'
    )


def _regions(done: ImagingMethods) -> str:
    if done.segmentation is not None:
        return (
            f'Regions were taken from the segmentation of {done.segmentation}; '
            'their volumes are voxel counts times the volume of a voxel.'
        )
    return ' '.join(filter(None, (_atlas(done), _candidates(done), _fusion(done))))


def _atlas(done: ImagingMethods) -> str:
    if done.atlas == BUILTIN_ATLAS:
        return (
            'The brain was divided into the regions of MUSE [@muse], with an atlas in '
            'MNI152NLin2009cAsym [@mni152] put together from the Neuromorphometrics labels and a '
            'white-matter atlas [@white_matter_atlas] as distributed with deepmriprep '
            '[@deepmriprep].'
        )
    brains = 'one labelled brain' if done.n_atlases == 1 else f'{done.n_atlases} labelled brains'
    return f'The brain was divided into the regions of the atlas set {done.atlas} ({brains}).'


def _candidates(done: ImagingMethods) -> str:
    if done.template_library > 0:
        return (
            f'Labels reached each person directly and through {done.template_library} people of '
            'the dataset who served as intermediate templates, as in MAGeT-Brain [@maget].'
        )
    if done.registrations_per_atlas > 1:
        return (
            f'Each labelled brain was registered {done.registrations_per_atlas} times with '
            'different parameters, as in MUSE [@muse].'
        )
    return 'Each labelled brain was registered to each person.' if done.n_atlases > 1 else ''


def _fusion(done: ImagingMethods) -> str:
    volumes = (
        'Regional volumes are sums of label probabilities times the volume of a voxel, not counts '
        'of voxels.'
    )
    if done.n_atlases * done.registrations_per_atlas == 1 and done.template_library == 0:
        return volumes
    return (
        'The labels were fused by voting, weighted by the local correlation of the images '
        f'[@voting]. {volumes}'
    )


def _ravens(done: ImagingMethods) -> str:
    if not done.ravens:
        return ''
    smoothing = (
        f' and smoothed ({done.ravens_smoothing:g} mm full width at half maximum)'
        if done.ravens_smoothing
        else ''
    )
    return (
        'RAVENS maps [@ravens] are the tissue maps in template space times the Jacobian '
        f'determinant of the whole transform, so that the amount of tissue is kept{smoothing}.'
    )


def _people(done: GroupMethods) -> str:
    return (
        f'The analysis included {done.n_controls} controls and {done.n_patients} patients with '
        f'{done.n_features} regional volumes each.'
    )


def _harmonization(done: GroupMethods) -> str:
    if done.harmonization is None:
        return ''
    if done.harmonization == 'linear':
        return 'Volumes were harmonized across sites with ComBat [@combat, @neuro_combat].'
    return (
        'Volumes were harmonized across sites with ComBat [@combat, @neuro_combat], with '
        'covariate effects as smooth curves [@combat_gam].'
    )


def _residuals(done: GroupMethods) -> str:
    proportion = (
        'Volumes were divided by the intracranial volume. ' if done.icv == 'proportion' else ''
    )
    removed = (*done.covariates, *(('intracranial volume',) if done.icv == 'covariate' else ()))
    effects = (
        f'Effects of {_listing(removed)}, estimated in controls, were removed. ' if removed else ''
    )
    return f'{proportion}{effects}Volumes were scaled so that controls have mean 1 and SD 0.1.'


def _model(done: GroupMethods) -> str:
    if done.model is not None:
        return (
            f'R-indices, which tell how strongly each of {done.n_patterns} patterns of change is '
            f'expressed, were computed with the Surreal-GAN [@surreal_gan] model {done.model}.'
        )
    tried = (
        f'; {done.n_patterns} was chosen among {_listing(done.candidates)} by the agreement of '
        'repetitions'
        if len(done.candidates) > 1
        else ''
    )
    return (
        f'R-indices, which tell how strongly each of {done.n_patterns} patterns of change is '
        f'expressed, were learned with Surreal-GAN [@surreal_gan], {PRESETS[done.preset]}, '
        f'{done.repetitions} repetitions of each setting and at least {done.iterations:,} '
        f'iterations{tried}. R-indices are averages over the members that agree.'
    )


def _maps(done: GroupMethods) -> str:
    if not done.map_tissues:
        return ''
    family = (
        f' Family-wise errors were controlled with {done.permutations:,} permutations.'
        if done.permutations
        else ''
    )
    smoothed = (
        f', smoothed with a Gaussian of {done.map_smoothing:g} mm (full width at half maximum),'
        if done.map_smoothing
        else ''
    )
    return (
        f'RAVENS maps [@ravens] of {_listing(done.map_tissues)}{smoothed} of people who mainly '
        'express one pattern were compared with those of controls voxel by voxel in a linear model '
        f'with the covariates; the false discovery rate [@fdr] was held at 0.05.{family}'
    )


def _associations(done: GroupMethods) -> str:
    if not done.associations:
        return ''
    return (
        'R-indices were related to clinical measures by Pearson correlation (point-biserial for '
        'measures with two values), with control of the false discovery rate [@fdr].'
    )


def _diagnosis(done: GroupMethods) -> str:
    if not done.diagnosis:
        return ''
    return (
        'How well R-indices tell patients from controls was measured by the area under the ROC '
        'curve of a support vector machine [@sklearn] in people left out of its training, beside '
        'that of all volumes.'
    )


def _split_half(done: GroupMethods) -> str:
    if not done.split_half:
        return ''
    return (
        'Reproducibility was measured by training on two halves of the people and comparing the '
        'R-indices that both give.'
    )


def _listing(items: Sequence[object]) -> str:
    """Items in a row, the last one after `and`."""
    words = [str(item) for item in items]
    return words[0] if len(words) == 1 else f'{", ".join(words[:-1])} and {words[-1]}'


IMAGE_STEPS = (_reuse, _bias, _mask, _tissue, _template)
REGION_STEPS = (_regions, _ravens)
GROUP_STEPS = (_people, _harmonization, _residuals, _model)
FOLLOW_UP_STEPS = (_maps, _associations, _diagnosis, _split_half)
"""The sentences of each paragraph, in order; a step that was not done says nothing."""
