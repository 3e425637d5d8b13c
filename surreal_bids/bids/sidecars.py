"""What the sidecars of a participant's outputs say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MASK_METHODS = {
    'stripped': 'The image shows the brain only: where it is not 0',
    'deepbet': 'Found by deepbet',
}
"""How a brain mask was found, by what brain extraction answers; else it is another program's."""

VOLUME_COLUMNS: dict[str, dict[str, str]] = {
    'index': {'Description': 'Value of the region in the label map', 'Format': 'integer'},
    'name': {'Description': 'Name of the region'},
    'volume_mm3': {
        'Description': 'Volume of the region: sum of its probability over voxels, or of its voxels '
        'where another program made the label map',
        'Units': 'mm^3',
    },
}
"""Columns of the table of volumes."""


@dataclass(frozen=True)
class Provenance:
    """Where the outputs of a participant come from, as far as it is known before they are made.

    Attributes
    ----------
    t1w, mask, segmentation
        Sources of these outputs, as BIDS URIs.
    atlas, atlas_licence
        Name of the segmentation, and its terms of use.
    template, template_licence
        Name of the template, and its terms of use.
    smoothing
        Full width at half maximum in mm of the smoothing of RAVENS maps.
    """

    t1w: Sequence[str]
    mask: Sequence[str]
    segmentation: Sequence[str]
    atlas: str
    atlas_licence: str
    template: str
    template_licence: str
    smoothing: float


def describe_outputs(provenance: Provenance, mask_method: str) -> dict[str, dict[str, Any]]:
    """Content of the sidecars of a participant, by the names of the outputs.

    Parameters
    ----------
    provenance
        What is known beforehand.
    mask_method
        How the brain mask was found: a key of :data:`MASK_METHODS`, or the name of a program.
    """
    words = MASK_METHODS.get(mask_method, f'Taken from {mask_method}')
    return {
        't1w': {'SkullStripped': mask_method == 'stripped', 'Sources': list(provenance.t1w)},
        'brain_mask': {
            'Type': 'Brain',
            'Sources': list(provenance.mask),
            'Method': mask_method,
            'Description': words,
        },
        'segmentation_volumes': {
            **VOLUME_COLUMNS,
            'Sources': list(provenance.segmentation),
            'Atlas': provenance.atlas,
            'AtlasLicense': provenance.atlas_licence,
        },
        'ravens': _describe_ravens(provenance),
    }


def _describe_ravens(provenance: Provenance) -> dict[str, Any]:
    return {
        'Description': 'Probability of the tissue in template space, times the Jacobian '
        'determinant of the transform: its integral over a region is the volume of the tissue',
        'Sources': list(provenance.t1w),
        'Template': provenance.template,
        'TemplateLicense': provenance.template_licence,
        'SmoothingFWHM': provenance.smoothing,
        'SmoothingFWHMUnits': 'mm',
    }
