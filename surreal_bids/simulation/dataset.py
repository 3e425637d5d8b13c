"""Where the files of a simulated cohort go, and what they say about themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from surreal_bids import __version__
from surreal_bids.simulation.atrophy import LARGEST_LOSS
from surreal_bids.simulation.people import CohortPlan, Person
from surreal_bids.simulation.templates import CSF_THRESHOLD

BIDS_VERSION = '1.10.0'

RECORD = Path('sourcedata', 'truth', 'cohort.json')
"""Says what was simulated; the first file to be written."""

TRUTH = Path('sourcedata', 'truth')
ATLASES = Path('sourcedata', 'atlases')

PARTICIPANTS_COLUMNS: dict[str, dict[str, Any]] = {
    'age': {
        'Description': 'Age of the participant; it has no influence on the simulated anatomy',
        'Units': 'year',
    },
    'sex': {
        'Description': 'Sex; the heads of men are larger on average',
        'Levels': {'F': 'female', 'M': 'male'},
    },
    'diagnosis': {
        'Description': 'Group of the participant',
        'Levels': {'CN': 'control', 'PT': 'patient, with simulated atrophy'},
    },
    'site': {'Description': 'Simulated scanner'},
}

VOLUME_COLUMNS: dict[str, dict[str, Any]] = {
    'participant_id': {'Description': 'Participant, or person of the atlas set'},
    'index': {'Description': 'Index of the region in MUSE numbering'},
    'name': {'Description': 'Name of the region'},
    'baseline_mm3': {
        'Description': "Volume of the region in the person's own anatomy before the disease: "
        'integral of the Jacobian determinant over the region of the template',
        'Units': 'mm^3',
    },
    'achieved_mm3': {
        'Description': 'Volume of the region in the image, with the disease: integral of the '
        'Jacobian determinant over the region of the template',
        'Units': 'mm^3',
    },
    'prescribed_loss': {'Description': 'Part of its baseline volume that the region should lose'},
    'loss': {'Description': 'Part of its baseline volume that the region lost'},
}

REGION_COLUMNS: dict[str, dict[str, Any]] = {
    'index': {'Description': 'Index of the region in MUSE numbering'},
    'name': {'Description': 'Name of the region'},
    'hemisphere': {'Description': 'L, R, or none'},
    'tissue': {'Description': 'Main tissue of the region: GM, WM or CSF'},
    'adjacent_to': {
        'Description': 'Numbers of the patterns with a region within 2 mm of this one, which is '
        'itself in none of them'
    },
}

PATTERN_COLUMNS: dict[str, dict[str, Any]] = {
    'pattern': {'Description': 'Number of the pattern'},
    'pattern_name': {'Description': 'Name of the pattern'},
    'index': {'Description': 'Index of a region of the pattern in MUSE numbering'},
    'name': {'Description': 'Name of the region'},
    'loss': {'Description': 'Part of its volume that the region loses at severity 1'},
}


def t1w_path(root: Path, person: Person) -> Path:
    """T1w image of a participant, or of a person of the atlas set."""
    if person.site is None:
        return root / ATLASES / f'{person.label}_T1w.nii.gz'
    return root / person.label / 'anat' / f'{person.label}_T1w.nii.gz'


def truth_path(root: Path, person: Person, ending: str) -> Path:
    """File with the truth about a person, such as `sub-CN0001_dseg.nii.gz`."""
    folder = ATLASES if person.site is None else TRUTH / person.label
    return root / folder / f'{person.label}_{ending}'


def volumes_path(root: Path, person: Person) -> Path:
    """Volumes of a person; written last, so that it says that the person is complete."""
    return truth_path(root, person, 'volumes.tsv')


def dataset_description(plan: CohortPlan) -> dict[str, Any]:
    """Content of dataset_description.json."""
    return {
        'Name': f'Simulated heads: {plan.n_cn} controls and {plan.n_pt} patients',
        'BIDSVersion': BIDS_VERSION,
        'DatasetType': 'raw',
        'Authors': ['surreal_bids'],
        'GeneratedBy': [{'Name': 'surreal_bids', 'Version': __version__}],
    }


def severity_columns(plan: CohortPlan) -> dict[str, dict[str, Any]]:
    """Describe the columns of severities.tsv."""
    columns = {'participant_id': {'Description': 'Participant'}}
    for number in range(1, plan.patterns + 1):
        columns[f'pattern_{number}'] = {
            'Description': f'Severity of pattern {number} (see patterns.tsv), 0 to 1; controls 0'
        }
    return columns


def readme(plan: CohortPlan) -> str:
    """Content of the README."""
    return f"""# Simulated T1-weighted heads

{plan.n_cn} controls (CN), {plan.n_pt} patients (PT), {plan.sites} site(s), {plan.patterns} \
pattern(s) of atrophy, voxels of about {plan.voxel_size:g} mm, seed {plan.seed}.
Made by `surreal-simulate cohort` of surreal_bids {__version__}; no person was scanned.

Each head is a smooth random deformation of the MNI152NLin2009cAsym template, with a skull, a scalp
and a face drawn around its brain. In patients, each pattern has a severity drawn uniformly from 0
to 1, and its regions lose {LARGEST_LOSS:g} times the severity of their volume; the fluid nearby \
takes up the space.
Sites differ in contrast, bias field, noise, voxel size and storage order.

## The truth

- `sourcedata/truth/severities.tsv`: severity of each pattern.
- `sourcedata/truth/patterns.tsv`: the regions of each pattern.
- `sourcedata/truth/regions.tsv`: all regions, and the patterns they are next to.
- `sourcedata/truth/volumes.tsv`: volume of each region before and after the disease.
- `sourcedata/truth/sub-*/`: label map (`dseg`) and brain mask (`desc-brain_mask`) of each image.
- `sourcedata/atlases/`, if asked for: skull-stripped healthy heads without site effects, their
  label maps and volumes, and `dseg.tsv`, which says what the labels are.

Labels are those of Neuromorphometrics in MUSE numbering, less the voxels of the template that are
more than {CSF_THRESHOLD:.0%} sulcal fluid.
"""
