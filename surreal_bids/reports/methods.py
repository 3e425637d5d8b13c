"""The methods text of a run, with numbered references, as Markdown, HTML and BibTeX.

The text is in `templates/methods.txt`, which describes only what was done. Sentences cite keys of
`references.json` with ``[@key]``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from surreal_bids import __version__
from surreal_bids.bids.derivatives import LESIONS, Reusable
from surreal_bids.bids.outputs import output_path
from surreal_bids.files import write_text
from surreal_bids.reports.pages import environment

if TYPE_CHECKING:
    from surreal_bids.analysis.engine import Analysis

COMPUTED_MASKS = ('deepbet', 'stripped')
"""Origins of masks that this package finds itself, the most frequent first."""

PATTERN = re.compile(r'\[(@\w+(?:, @\w+)*)\]')
"""A citation. Names of a dataset that merely look like one are left alone."""


def imaging_methods(
    reused: Sequence[Reusable], mask_methods: Iterable[str], **names: Any
) -> dict[str, Any]:
    """Describe what was done with images, for the template of the methods.

    Parameters
    ----------
    reused
        For each image, the results of other programs that were used.
    mask_methods
        How the brain masks of these images were found: `deepbet`, `stripped`, or the name of a
        program.
    **names
        `template`, `atlas` and `n_atlases`.
    """
    methods = set(mask_methods)
    masks = [origin for origin in COMPUTED_MASKS if origin in methods]
    if methods - set(COMPUTED_MASKS):
        masks.append('given')
    lesions = [each for each in reused if each.lesion]
    left_out = {'t1w': 'bias field', 'tpms': 'tissue'}
    filled = {'mask': 'brain mask', 'anat2std_xfm': 'registration', 'dseg': 'regions'}
    if 'deepbet' not in methods:
        del filled['mask']
    programs = dict.fromkeys(name for each in reused for name in each.names)
    return {
        'bias_corrected': _n_with(reused, 't1w') < len(reused),
        'masks': masks,
        'tissue_classified': _n_with(reused, 'tpms') < len(reused),
        'tissues_reused': _n_with(reused, 'tpms') > 0,
        'registered': _n_with(reused, 'anat2std_xfm') < len(reused),
        'transforms_reused': _n_with(reused, 'anat2std_xfm') > 0,
        'segmentation': next((each.dseg_name for each in reused if each.dseg_name), None),
        'segmented': _n_with(reused, 'dseg_name') < len(reused),
        'reused': [name for name in programs if name != LESIONS],
        'lesions': len(lesions),
        'lesions_left_out': _steps_done(lesions, left_out),
        'lesions_filled': _steps_done(lesions, filled),
        **names,
    }


def _n_with(reused: Sequence[Reusable], result: str) -> int:
    """Count the images with such a result of another program."""
    return sum(bool(getattr(each, result)) for each in reused)


def _steps_done(reused: Sequence[Reusable], steps: Mapping[str, str]) -> list[str]:
    """Return the steps, by name of their result, that were done for some of the images."""
    return [step for result, step in steps.items() if _n_with(reused, result) < len(reused)]


def describe_group_methods(found: Analysis, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Describe what was done with volumes, for the template of the methods.

    Parameters
    ----------
    found
        All results.
    asked
        What is no result: `model` (name of an applied model, or None), `map_tissues`,
        `map_smoothing`, `deviation_maps`, `permutations`, `from_table`.
    """
    from surreal_bids.rindices.model import ADDED_SITES

    cohort, combat, gan = found.cohort, found.model.preprocessing.combat, found.model.gan
    tried = gan.number_.stabilities if gan.number_ else gan.members_
    imported = found.model.notes.get('Imported', {})
    added = found.model.notes.get(ADDED_SITES, {})
    here = set(cohort.people.get(str(cohort.options.site_column), ()))
    paired = found.model.preprocessing.paired
    defaults = {'map_smoothing': 0, 'deviation_maps': (), 'permutations': 0, 'from_table': False}
    return {
        'n_controls': cohort.counts['CN'],
        'n_patients': cohort.counts['PT'],
        'n_without_group': cohort.n_without_group,
        'n_features': len(cohort.wanted),
        'features': cohort.wanted.noun,
        'n_structures': 0 if paired is None else len(paired),
        'averaged': paired is not None
        and all(f.averaged for f in paired.features if f.columns[1:]),
        'n_patterns': len(found.names),
        'folds': 0 if found.fitted is None else found.fitted.folds.count,
        'covariates': cohort.options.covariates,
        'icv': cohort.options.icv,
        'harmonized': _is_harmonized(found),
        'adapted_to': sum(each['Controls'] for site, each in added.items() if site in here),
        'longitudinal': combat is not None and combat.shift_error_ is not None,
        'associations': not found.associations.empty,
        'adjusted_for': next(iter(found.associations['adjusted_for'].dropna()), ''),
        'other_groups': found.other_groups,
        'noise_controls': _controls_of_limits(found),
        'change': found.group_change is not None and bool(found.group_change['p'].notna().any()),
        'published': imported.get('Title')
        and imported.get('Citation')
        and (f'{imported["Title"]} ({imported["Citation"]})'),
        'preset': gan.preset,
        'candidates': sorted({each.n_patterns for each in tried}) if found.trained_here else [],
        'members': len(gan.members_),
        'iterations': gan.most_iterations,
        **defaults,
        **asked,
    }


def _controls_of_limits(found: Analysis) -> int:
    """Return how many controls limits of changes were learned from; 0 if from none."""
    if found.changes is None:
        return 0
    numbers = found.changes['noise_controls'].dropna()
    return int(numbers.max()) if len(numbers) else 0


def _is_harmonized(found: Analysis) -> bool:
    """Tell whether site effects were removed: the model includes several sites, and someone's."""
    from surreal_bids.harmonization.combat import UNHARMONIZED

    combat = found.model.preprocessing.combat
    if combat is None or len(combat.sites_) < 2:
        return False
    return bool((found.results['status'] != UNHARMONIZED).any())


class Methods:
    """The methods text.

    Parameters
    ----------
    imaging, group
        What was done with images and volumes; None: nothing.
    """

    def __init__(
        self, imaging: Mapping[str, Any] | None = None, group: Mapping[str, Any] | None = None
    ) -> None:
        template = environment().get_template('methods.txt')
        text = template.render(version=__version__, imaging=imaging, group=group)
        blocks = [' '.join(block.split()) for block in text.split('\n\n') if block.strip()]
        keys = [key for found in PATTERN.findall(' '.join(blocks)) for key in _keys(found)]
        self._keys = list(dict.fromkeys(key for key in keys if key in references()))
        self.paragraphs = [PATTERN.sub(self._number, block) for block in blocks]

    def _number(self, found: re.Match[str]) -> str:
        keys = _keys(found[1])
        if not set(keys) <= set(self._keys):
            return found[0]
        return f'[{", ".join(str(self._keys.index(key) + 1) for key in keys)}]'

    @property
    def references(self) -> list[dict[str, str]]:
        """References in the order of their numbers: key, authors, title, source and link."""
        return [{'key': key, **references()[key]} for key in self._keys]

    @property
    def markdown(self) -> str:
        """Text and numbered references."""
        listed = [
            f'{number}. {each["authors"]}. {each["title"]}. *{each["source"]}*. <{each["link"]}>'
            for number, each in enumerate(self.references, start=1)
        ]
        text = '\n\n'.join(self.paragraphs)
        return '\n'.join(['# Methods', '', text, '', '# References', '', *listed, ''])

    @property
    def html(self) -> Markup:
        """The same for a report."""
        text = Markup('\n').join(Markup('<p>{}</p>').format(each) for each in self.paragraphs)
        listed = Markup('\n').join(
            Markup(
                '<li>{authors}. {title}. <i>{source}</i>. <a href="{link}">{link}</a></li>'
            ).format(**each)
            for each in self.references
        )
        return Markup('{}\n<h3>References</h3>\n<ol class="references">\n{}\n</ol>').format(
            text, listed
        )

    @property
    def bibtex(self) -> str:
        """The references."""
        entry = (
            '@article{{{key},\n  author = {{{authors}}},\n  title = {{{{{title}}}}},\n'
            '  journal = {{{source}}},\n  url = {{{link}}}\n}}\n'
        )
        return '\n'.join(entry.format(**each) for each in self.references)

    def write(self, root: Path, level: str | None = None) -> None:
        """Write the text to the logs as Markdown, HTML and BibTeX, as fMRIPrep does."""
        page = Markup(
            '<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8"><title>Methods</title>\n'
            '<h1>Methods</h1>\n{}\n</html>\n'
        ).format(self.html)
        texts = {'md': self.markdown, 'html': page, 'bib': self.bibtex}
        for extension, text in texts.items():
            write_text(output_path(root, 'citation', level=level, extension=extension), text)


def _keys(found: str) -> list[str]:
    return [key.strip(' @') for key in found.split(',')]


@cache
def references() -> dict[str, dict[str, str]]:
    """Return all references by key, each with a link."""
    known = json.loads(Path(__file__).with_name('references.json').read_text(encoding='utf-8'))
    return {
        key: each
        | {'authors': each['authors'].removesuffix('.')}
        | {'link': each.get('url') or f'https://doi.org/{each["doi"]}'}
        for key, each in known.items()
    }
