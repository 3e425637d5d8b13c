"""The methods text of a run, with numbered references.

The text is in `templates/methods.txt`, which describes only what was done. Sentences cite keys of
`references.json` with ``[@key]``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as package_files
from typing import TYPE_CHECKING, Any, Literal

import jinja2
from markupsafe import Markup, escape

from surreal_bids.bids.derivatives import LESIONS, Reusable
from surreal_bids.config import NETWORK
from surreal_bids.templates import TEMPLATE_SPACE

if TYPE_CHECKING:
    from surreal_bids.analysis.engine import Analysis
    from surreal_bids.model.estimator import SurrealGAN

MaskOrigin = Literal['deepbet', 'stripped', 'given']
COMPUTED_MASKS: tuple[MaskOrigin, ...] = ('deepbet', 'stripped')
"""Origins of masks that this package finds itself, the most frequent first."""


@dataclass(frozen=True)
class ImagingMethods:
    """What was done with the images.

    Attributes
    ----------
    bias_corrected
        Intensities were corrected with N4.
    masks
        Where the brain masks came from; several where participants differ.
    tissue_classified, tissues_mixed
        Tissue was classified; else tissue maps were taken from derivatives. Mixed: those of some
        images were, although tissue was classified in others.
    registered, transforms_reused
        Images were registered to the template; transforms to it were taken from derivatives.
    template
        Name of the template.
    atlas, n_atlases
        Name of the atlas set, and how many labelled brains it has.
    segmentation
        Name of the program whose segmentation was used instead of our own ...
    regions_mixed
        ... in some of the images only.
    ravens
        RAVENS maps were made.
    reused
        Names of the derivatives from which inputs were taken.
    lesions, lesions_left_out, lesions_filled
        Number of images with a lesion mask, and the steps that left the lesion out or filled it.
    """

    bias_corrected: bool = True
    masks: tuple[MaskOrigin, ...] = ('deepbet',)
    tissue_classified: bool = True
    tissues_mixed: bool = False
    registered: bool = True
    transforms_reused: bool = False
    template: str = TEMPLATE_SPACE
    atlas: str = NETWORK
    n_atlases: int = 0
    segmentation: str | None = None
    regions_mixed: bool = False
    ravens: bool = True
    reused: tuple[str, ...] = ()
    lesions: int = 0
    lesions_left_out: tuple[str, ...] = ()
    lesions_filled: tuple[str, ...] = ()


def imaging_methods(
    reused: Sequence[Reusable], mask_methods: Iterable[str], **names: Any
) -> ImagingMethods:
    """Describe what was done with images.

    Parameters
    ----------
    reused
        For each image, the results of other programs that were used.
    mask_methods
        How the brain masks of these images were found: `deepbet`, `stripped`, or the name of a
        program.
    **names
        Template and atlas: other fields of :class:`ImagingMethods`.
    """
    if not reused:
        return ImagingMethods(**names)
    methods = set(mask_methods)
    segmentations = [each.dseg_name for each in reused if each.dseg_name]
    transforms = {each.anat2std_xfm is not None for each in reused}
    tissues = {bool(each.tpms) for each in reused}
    names_of = dict.fromkeys(name for each in reused for name in each.names)
    return ImagingMethods(
        bias_corrected=any(each.t1w is None for each in reused),
        masks=_mask_origins(methods),
        tissue_classified=False in tissues,
        tissues_mixed=len(tissues) > 1,
        registered=False in transforms,
        transforms_reused=True in transforms,
        segmentation=next(iter(segmentations), None),
        regions_mixed=0 < len(segmentations) < len(reused),
        reused=tuple(name for name in names_of if name != LESIONS),
        **_lesions([each for each in reused if each.lesion], 'deepbet' in methods),
        **names,
    )


def _lesions(images: Sequence[Reusable], masked: bool) -> dict[str, Any]:
    """Describe what was done with lesions; `masked`: brain masks were computed from heads."""
    left_out = {
        'bias field': any(each.t1w is None for each in images),
        'tissue': any(not each.tpms for each in images),
    }
    filled = {
        'brain mask': masked and any(each.mask is None for each in images),
        'registration': any(each.anat2std_xfm is None for each in images),
        'regions': any(each.dseg is None for each in images),
    }
    return {
        'lesions': len(images),
        'lesions_left_out': tuple(step for step, done in left_out.items() if done),
        'lesions_filled': tuple(step for step, done in filled.items() if done),
    }


def _mask_origins(methods: set[str]) -> tuple[MaskOrigin, ...]:
    computed = tuple(origin for origin in COMPUTED_MASKS if origin in methods)
    return (*computed, 'given') if methods - set(COMPUTED_MASKS) else computed


@dataclass(frozen=True)
class GroupMethods:
    """What was done with the volumes of the group.

    Attributes
    ----------
    n_controls, n_patients, n_without_group, n_features, features
        Who and what was included: volumes or z-scores.
    harmonized, longitudinal
        Whether site effects were removed with ComBat, and were compared within participants.
    covariates
        What was residualised.
    icv
        What was done with the intracranial volume.
    model
        Name of the model that was applied; None if one was trained.
    published
        What a published model is, and how to cite it.
    preset, candidates, n_patterns, members, iterations
        Training: numbers of patterns tried, the one chosen (0: none is supported), members trained.
    folds
        In how many folds participants were held out; 0: in none.
    map_tissues, map_smoothing, deviation_maps, permutations
        Tissues of the voxelwise maps, their smoothing (mm), tissues of the maps of single
        participants, and permutations for family-wise errors.
    associations
        R-indices were associated with clinical measures.
    change
        Change per year was compared between groups.
    retest_pairs
        Pairs of the user's repeated scans, by which changes of participants were judged; 0: none.
    from_table
        Volumes are from a table outside of a BIDS dataset.
    """

    n_controls: int
    n_patients: int
    n_features: int
    features: Literal['volumes', 'z-scores'] = 'volumes'
    harmonized: bool = False
    longitudinal: bool = False
    covariates: tuple[str, ...] = ()
    icv: Literal['power', 'covariate', 'proportion', 'none'] = 'none'
    model: str | None = None
    preset: str = 'iclr2022'
    candidates: tuple[int, ...] = ()
    n_patterns: int = 2
    members: int = 10
    iterations: int = 100_000
    folds: int = 0
    map_tissues: tuple[str, ...] = ()
    map_smoothing: float = 0.0
    deviation_maps: tuple[str, ...] = ()
    permutations: int = 0
    associations: bool = False
    change: bool = False
    retest_pairs: int = 0
    from_table: bool = False
    published: str = ''
    n_without_group: int = 0


def describe_group_methods(found: Analysis, asked: Mapping[str, Any]) -> GroupMethods:
    """Describe what was done, from what was asked for and what was found.

    Parameters
    ----------
    found
        All results.
    asked
        Fields of `GroupMethods` that are no results: `model`, `map_tissues` ...
    """
    cohort, change = found.cohort, found.group_change
    combat = found.model.preprocessing.combat
    options: dict[str, Any] = {
        name: tuple(each) if isinstance(each, list) else each for name, each in asked.items()
    }
    trained = _describe_training(found.model.gan) if found.trained_here else {}
    return GroupMethods(
        n_controls=cohort.counts['CN'],
        n_patients=cohort.counts['PT'],
        n_without_group=cohort.n_without_group,
        n_features=len(cohort.wanted),
        n_patterns=len(found.names),
        folds=0 if found.fitted is None else found.fitted.folds.count,
        covariates=cohort.options.covariates,
        features='z-scores' if cohort.wanted.are_z_scores else 'volumes',
        icv=cohort.options.icv,
        harmonized=_is_harmonized(found),
        longitudinal=combat is not None and combat.shift_error_ is not None,
        associations=not found.associations.empty,
        retest_pairs=cohort.retest_pairs if found.changes is not None else 0,
        change=change is not None and bool(change['p'].notna().any()),
        published=_origin_of(found.model.notes.get('Imported', {})),
        **options,
        **trained,
    )


def _describe_training(gan: SurrealGAN) -> dict[str, Any]:
    tried = gan.number_.stabilities if gan.number_ else gan.members_
    return {
        'preset': gan.preset,
        'candidates': tuple(sorted({each.n_patterns for each in tried})),
        'members': len(gan.members_),
        'iterations': gan.most_iterations,
    }


def _is_harmonized(found: Analysis) -> bool:
    """Whether site effects were removed: the model knows several sites, and those of someone."""
    # Imported here because it is slow, and reports of participants do not need it.
    from surreal_bids.harmonization.combat import UNHARMONIZED

    combat = found.model.preprocessing.combat
    if combat is None or len(combat.sites_) < 2:
        return False
    return bool((found.results['status'] != UNHARMONIZED).any())


def _origin_of(imported: Mapping[str, Any]) -> str:
    """Return what an imported model is and how to cite it, as far as this is known."""
    title, citation = imported.get('Title'), imported.get('Citation')
    return f'{title} ({citation})' if title and citation else ''


@dataclass(frozen=True)
class MethodsOptions:
    """What was done: with the images, with the group, or both."""

    version: str
    imaging: ImagingMethods | None = None
    group: GroupMethods | None = None


@dataclass(frozen=True)
class Reference:
    """A publication, with its number in the text."""

    number: int
    authors: str
    title: str
    source: str
    link: str


def methods_text(options: MethodsOptions) -> str:
    """Methods and numbered references as Markdown."""
    paragraphs = _paragraphs(options)
    numbers = _numbers(paragraphs)
    text = [_cite(paragraph, lambda key: str(numbers[key])) for paragraph in paragraphs]
    listed = [
        f'{each.number}. {each.authors}. {each.title}. *{each.source}*. <{each.link}>'
        for each in citations(options)
    ]
    return '\n\n'.join(['# Methods', *text, '# References', '\n'.join(listed)]) + '\n'


def methods_html(options: MethodsOptions) -> Markup:
    """Methods and numbered references as HTML; numbers in the text lead to the references."""
    paragraphs = _paragraphs(options)
    numbers = _numbers(paragraphs)
    # The text is escaped before links are put into it; escaping leaves citations alone.
    text = [
        _cite(
            str(escape(each)), lambda key: '<a href="#reference-{0}">{0}</a>'.format(numbers[key])
        )
        for each in paragraphs
    ]
    listed = [
        Markup('<li id="reference-{}">{}. {}. <i>{}</i>. <a href="{}">{}</a></li>').format(
            each.number, each.authors, each.title, each.source, each.link, each.link
        )
        for each in citations(options)
    ]
    return Markup('<p>{}</p>\n<h3>References</h3>\n<ol class="references">\n{}\n</ol>').format(
        Markup('</p>\n<p>'.join(text)),  # noqa: S704
        Markup('\n').join(listed),
    )


def citations(options: MethodsOptions) -> tuple[Reference, ...]:
    """The references of the methods, in the order of their numbers."""
    known = _references()
    return tuple(
        Reference(
            number=number,
            authors=known[key]['authors'].removesuffix('.'),
            title=known[key]['title'],
            source=known[key]['source'],
            link=known[key].get('url') or f'https://doi.org/{known[key]["doi"]}',
        )
        for key, number in _numbers(_paragraphs(options)).items()
    )


def _paragraphs(options: MethodsOptions) -> list[str]:
    text = _template().render(vars(options))
    return [' '.join(block.split()) for block in text.split('\n\n') if block.strip()]


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader('surreal_bids.reports'),
        autoescape=False,  # noqa: S701 (plain text, escaped where it becomes HTML)
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.filters['listing'] = _listing
    return environment.get_template('methods.txt')


def _listing(items: Sequence[object]) -> str:
    """Items in a row, the last one after `and`."""
    *others, last = map(str, items)
    return f'{", ".join(others)} and {last}' if others else last


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


def _cite(text: str, mark: Callable[[str], str]) -> str:
    """Replace citations by marks of their keys, in brackets."""
    return _citation().sub(lambda found: f'[{", ".join(map(mark, _keys(found)))}]', text)
