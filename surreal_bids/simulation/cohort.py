"""BIDS datasets of simulated T1w heads with known truth."""

from __future__ import annotations

from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from surreal_bids import __version__
from surreal_bids.bids.outputs import BIDS_VERSION, describe_columns
from surreal_bids.exceptions import OutputError, UsageError
from surreal_bids.files import MISSING, write_image, write_json, write_text, write_tsv
from surreal_bids.images import Image
from surreal_bids.parallel import in_workers
from surreal_bids.progress import with_bar
from surreal_bids.simulation.anatomy import (
    LARGEST_LOSS,
    AtrophySolver,
    HeadTemplate,
    adjacent_regions,
    load_labels,
    load_regions,
    load_template,
    pattern_table,
    prescribed_losses,
    sample_anatomy,
)
from surreal_bids.simulation.scanner import (
    Protocol,
    Scanner,
    SimulatedScan,
    sample_protocol,
)
from surreal_bids.simulation.tables import claim_folder
from surreal_bids.text import counted

GROUPS = ('CN', 'PT', 'atlas')
"""Controls, patients and healthy atlases; the position is part of the seed."""

SITE_STREAM = len(GROUPS)
"""Position of the sites in the tree of seeds."""

AGE_MEAN, AGE_SD = 62.0, 7.0
AGE_RANGE = (45, 79)
"""Years, within the norms of participant reports; the same in controls and patients."""

MOST_PEOPLE = 9999
"""Maximum number of participants per group, limited by the digits of the labels."""

TRUTH = Path('sourcedata', 'truth')
ATLASES = Path('sourcedata', 'atlases')
RECORD = Path('sourcedata', 'truth', 'cohort.json')
"""Parameters of the simulation; the first file to be written."""


@dataclass(frozen=True)
class CohortPlan:
    """Parameters of a simulated cohort.

    Attributes
    ----------
    n_cn, n_pt
        Number of controls and of patients.
    sites
        Number of sites, to which the participants of a group are assigned in turn.
    patterns
        Number of patterns of atrophy.
    voxel_size
        Voxel size of the working grid in mm; voxel sizes of sites are similar.
    atlases
        Number of healthy brains in the atlas set.
    stripped
        Whether T1w images are skull-stripped.
    seed
        Random seed.
    """

    n_cn: int = 20
    n_pt: int = 30
    sites: int = 2
    patterns: int = 2
    voxel_size: float = 2.0
    atlases: int = 0
    stripped: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for option in ('n_cn', 'n_pt', 'atlases'):
            _require_range(option, getattr(self, option), 0, MOST_PEOPLE)
        if self.n_cn + self.n_pt == 0:
            raise UsageError('--n-cn 0 --n-pt 0: a cohort needs at least one participant')
        _require_range('sites', self.sites, 1, MOST_PEOPLE)
        _require_range('seed', self.seed, 0, 2**63)


@dataclass(frozen=True)
class Person:
    """A simulated participant or atlas.

    Attributes
    ----------
    group
        One of `GROUPS`.
    number
        Counted from 0 in the group.
    age, sex
        In years; F or M.
    site
        Counted from 0; None for an atlas, which has no site effects.
    severities
        Severity of each pattern, 0 to 1; 0 in controls and atlases.
    """

    group: str
    number: int
    age: int
    sex: str
    site: int | None
    severities: tuple[float, ...]

    @property
    def label(self) -> str:
        """Label in file names: sub-CN0001, sub-PT0001, atlas-0001."""
        prefix = 'atlas-' if self.group == 'atlas' else f'sub-{self.group}'
        return f'{prefix}{self.number + 1:04d}'


def simulate_cohort(root: Path, plan: CohortPlan, nprocs: int = 1) -> None:
    """Write a simulated cohort; an interrupted simulation of the same plan is resumed.

    Parameters
    ----------
    root
        Folder of the dataset.
    plan
        Parameters of the cohort.
    nprocs
        Number of processes; each uses one thread.
    """
    people = sample_people(plan)
    patterns = pattern_table(plan.patterns, load_regions())
    start_dataset(root, plan)
    write_tables(root, plan, people)
    write_regions(root, plan, load_labels(), patterns)
    simulate_all(root, plan, people, nprocs)
    collect_volumes(root, [person for person in people if person.site is not None])


def start_dataset(root: Path, plan: CohortPlan) -> None:
    """Start a plan in a folder, or resume the same plan."""
    record = asdict(plan) | {'surreal_bids': __version__}
    claim_folder(root, RECORD, record)
    write_json(root / RECORD, record)


def write_tables(root: Path, plan: CohortPlan, people: list[Person]) -> None:
    """Write the description, the participants and the true severities."""
    write_json(root / 'dataset_description.json', dataset_description(plan))
    write_text(root / 'README.md', readme(plan))
    write_tsv(root / 'participants.tsv', participants_table(people))
    write_json(root / 'participants.json', describe_columns('simulated_participants'))
    write_tsv(root / TRUTH / 'severities.tsv', severity_table(people))
    write_json(root / TRUTH / 'severities.json', severity_columns(plan))


def write_regions(root: Path, plan: CohortPlan, labels: Image, patterns: pd.DataFrame) -> None:
    """Write the tables of regions and patterns, and the regions of the atlases."""
    truth, regions = root / TRUTH, load_regions()
    write_tsv(truth / 'patterns.tsv', patterns.assign(loss=LARGEST_LOSS))
    write_json(truth / 'patterns.json', describe_columns('simulated_patterns'))
    adjacent_to: dict[int, list[str]] = {}
    for number, members in patterns.groupby('pattern')['index']:
        for index in adjacent_regions(labels, tuple(members)):
            adjacent_to.setdefault(index, []).append(str(number))
    beside = [','.join(adjacent_to.get(index, [])) or MISSING for index in regions['index']]
    write_tsv(truth / 'regions.tsv', regions.assign(adjacent_to=beside))
    described = describe_columns('simulated_regions')
    write_json(truth / 'regions.json', described)
    if plan.atlases:
        write_tsv(root / ATLASES / 'dseg.tsv', regions)
        columns = map(str, regions)
        write_json(root / ATLASES / 'dseg.json', {each: described[each] for each in columns})


def simulate_all(root: Path, plan: CohortPlan, people: list[Person], nprocs: int) -> None:
    """Simulate all participants that are not complete."""
    pending = [person for person in people if not volumes_path(root, person).is_file()]
    written = in_workers(partial(write_person, root, plan), pending, min(nprocs, len(pending)))
    try:
        for _ in with_bar(written, 'Simulating heads', len(pending)):
            pass
    except BrokenProcessPool as error:
        raise OutputError(
            'a process was killed, most likely because of insufficient memory; rerun the command '
            'with a lower --nprocs to resume'
        ) from error


def write_person(root: Path, plan: CohortPlan, person: Person) -> None:
    """Simulate a participant; the volumes are written last and mark it as complete."""
    scan, volumes = load_simulator(plan.voxel_size).simulate(plan, person)
    if person.site is None:
        write_image(t1w_path(root, person), skull_stripped(scan))
    else:
        t1w = t1w_path(root, person)
        write_image(t1w, skull_stripped(scan) if plan.stripped else scan.t1w)
        write_json(t1w.with_name(f'{person.label}_T1w.json'), sidecar(plan, person.site))
        write_image(truth_path(root, person, 'desc-brain_mask.nii.gz'), scan.brain)
    write_image(truth_path(root, person, 'dseg.nii.gz'), scan.labels)
    write_tsv(volumes_path(root, person), volumes)


class Simulator:
    """Simulates participants of any plan on one template.

    Parameters
    ----------
    template
        Template on its working grid.
    """

    def __init__(self, template: HeadTemplate) -> None:
        self.template = template
        self.solver = AtrophySolver(template)
        self.scanner = Scanner(template)

    def simulate(self, plan: CohortPlan, person: Person) -> tuple[SimulatedScan, pd.DataFrame]:
        """Simulate the scan and the true volumes of a participant."""
        _, anatomy_rng, scan_rng = random_streams(plan, person.group, person.number)
        regions = self.template.regions
        anatomy = sample_anatomy(self.template, person.sex, anatomy_rng)
        losses = prescribed_losses(np.array(person.severities), regions)
        atrophy = self.solver.solve(anatomy.displacement, losses)
        protocol = site_protocol(plan, person.site)
        scan = self.scanner.scan(atrophy.displacement, anatomy.placement, protocol, scan_rng)
        volumes = pd.DataFrame(
            {
                'participant_id': person.label,
                'index': regions['index'],
                'name': regions['name'],
                'baseline_mm3': (atrophy.baseline * anatomy.volume_scale).round(3),
                'achieved_mm3': (atrophy.achieved * anatomy.volume_scale).round(3),
                'prescribed_loss': losses.round(6),
                'loss': atrophy.loss.round(6),
            }
        )
        return scan, volumes


@cache
def load_simulator(voxel_size: float) -> Simulator:
    """Load the simulator once per process."""
    return Simulator(load_template(voxel_size))


def site_protocol(plan: CohortPlan, site: int | None) -> Protocol:
    """Return the protocol of a site; atlases have no site effects."""
    if site is None:
        return Protocol((plan.voxel_size,) * 3)
    seed = np.random.SeedSequence(plan.seed, spawn_key=(SITE_STREAM, site))
    return sample_protocol(site, plan.voxel_size, np.random.default_rng(seed))


def collect_volumes(root: Path, people: list[Person]) -> None:
    """Write the volumes of all participants to one table."""
    tables = [pd.read_csv(volumes_path(root, person), sep='\t') for person in people]
    write_tsv(root / TRUTH / 'volumes.tsv', pd.concat(tables))
    write_json(root / TRUTH / 'volumes.json', describe_columns('simulated_volumes'))


def random_streams(plan: CohortPlan, group: str, number: int) -> list[np.random.Generator]:
    """Return generators for age, sex and severities, for the anatomy, and for the scan."""
    root = np.random.SeedSequence(plan.seed, spawn_key=(GROUPS.index(group), number))
    return [np.random.default_rng(child) for child in root.spawn(3)]


def sample_person(plan: CohortPlan, group: str, number: int) -> Person:
    """Sample age, sex and severities; severities are uniform on [0, 1]."""
    rng = random_streams(plan, group, number)[0]
    age = int(np.clip(np.rint(rng.normal(AGE_MEAN, AGE_SD)), *AGE_RANGE))
    sex = 'FM'[rng.integers(2)]
    severities: NDArray = rng.uniform(size=plan.patterns) * (group == 'PT')
    site = None if group == 'atlas' else number % plan.sites
    return Person(group, number, age, sex, site, tuple(severities.tolist()))


def sample_people(plan: CohortPlan) -> list[Person]:
    """Sample controls, patients and atlases."""
    return [
        sample_person(plan, group, number)
        for group, size in zip(GROUPS, (plan.n_cn, plan.n_pt, plan.atlases))
        for number in range(size)
    ]


def participants_table(people: list[Person]) -> pd.DataFrame:
    """Build participants.tsv, without the atlases."""
    return pd.DataFrame(
        [
            (person.label, person.age, person.sex, person.group, f'site{person.site + 1}')
            for person in people
            if person.site is not None
        ],
        columns=['participant_id', 'age', 'sex', 'diagnosis', 'site'],
    )


def severity_table(people: list[Person]) -> pd.DataFrame:
    """Build the table of true severities: participant_id, pattern_1, pattern_2, ..."""
    participants = [person for person in people if person.site is not None]
    table = pd.DataFrame(
        [person.severities for person in participants],
        columns=[f'pattern_{k + 1}' for k in range(len(participants[0].severities))],
    )
    table.insert(0, 'participant_id', [person.label for person in participants])
    return table


def skull_stripped(scan: SimulatedScan) -> nib.Nifti1Image:
    """Set the scan to 0 outside the brain."""
    brain = np.asarray(scan.t1w.dataobj) * np.asarray(scan.brain.dataobj)
    return nib.Nifti1Image(brain, scan.t1w.affine, scan.t1w.header)


def sidecar(plan: CohortPlan, site: int) -> dict[str, Any]:
    """Return the sidecar of a T1w image of a site."""
    return {
        'Modality': 'MR',
        **site_protocol(plan, site).metadata,
        'InstitutionName': f'Simulated site {site + 1}',
        'PulseSequenceType': 'MPRAGE',
        'MRAcquisitionType': '3D',
        'SkullStripped': plan.stripped,
        'ImageComments': 'Simulated head',
    }


def t1w_path(root: Path, person: Person) -> Path:
    """Return the path of the T1w image of a participant or atlas."""
    if person.site is None:
        return root / ATLASES / f'{person.label}_T1w.nii.gz'
    return root / person.label / 'anat' / f'{person.label}_T1w.nii.gz'


def truth_path(root: Path, person: Person, ending: str) -> Path:
    """Return the path of a file with the truth, such as `sub-CN0001_dseg.nii.gz`."""
    folder = ATLASES if person.site is None else TRUTH / person.label
    return root / folder / f'{person.label}_{ending}'


def volumes_path(root: Path, person: Person) -> Path:
    """Return the path of the volumes, which are written last and mark a participant as complete."""
    return truth_path(root, person, 'volumes.tsv')


def dataset_description(plan: CohortPlan) -> dict[str, Any]:
    """Return the content of dataset_description.json."""
    return {
        'Name': f'Simulated heads: {counted(plan.n_cn, "control")} and '
        f'{counted(plan.n_pt, "patient")}',
        'BIDSVersion': BIDS_VERSION,
        'DatasetType': 'raw',
        'Authors': ['surreal_bids'],
        'GeneratedBy': [{'Name': 'surreal_bids', 'Version': __version__}],
    }


def severity_columns(plan: CohortPlan) -> dict[str, dict[str, Any]]:
    """Describe the columns of severities.tsv."""
    columns = {'participant_id': {'Description': 'Participant'}}
    for number in range(1, plan.patterns + 1):
        columns |= describe_columns('simulated_severities', number=number)
    return columns


def readme(plan: CohortPlan) -> str:
    """Return the text of the README, which describes the simulated images and the truth."""
    text = resources.files(__package__).joinpath('readme.md').read_text('utf-8')
    images = 'the brain only' if plan.stripped else 'the whole head, with skull, scalp and face'
    return text.format(plan=plan, images=images, loss=LARGEST_LOSS, version=__version__)


def _require_range(option: str, value: float, lowest: float, highest: float) -> None:
    if not lowest <= value <= highest:
        flag = option.replace('_', '-')
        raise UsageError(f'--{flag} {value}: give a number between {lowest} and {highest}')
