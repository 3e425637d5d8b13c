"""Options by the names that hands know from fMRIPrep and other BIDS Apps."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence

from surreal_bids.config import BUILTIN_TEMPLATE
from surreal_bids.exceptions import UsageError

LOGGER = logging.getLogger(__name__)

RENAMED = {
    '--nthreads': '--nprocs',
    '--ncpus': '--nprocs',
    '--n-procs': '--nprocs',
    '--participant-labels': '--participant-label',
    '--session-labels': '--session-label',
    '--nipype-plugin-file': '--use-plugin',
}
"""Options of fMRIPrep and other BIDS Apps that are called otherwise here."""

CONVERTED: Mapping[str, tuple[str, Callable[[str], str]]] = {
    '--mem': ('--mem-gb', lambda value: f'{_gigabytes(value):g}'),
    '--mem-mb': ('--mem-gb', lambda value: f'{_gigabytes(value):g}'),
    '--fs-subjects-dir': ('--derivatives', lambda value: f'freesurfer={value}'),
}
"""Options whose value is written otherwise here."""

NEEDLESS = {
    '--notrack': 'nothing is tracked anyway',
    '--anat-only': 'only T1w images are processed anyway',
    '--fs-no-reconall': 'FreeSurfer is not run anyway',
    '--fs-license-file': 'FreeSurfer is not run, so no licence is needed',
}
"""Options that ask for what is the case anyway; the last has a value."""

INSTEAD = {
    '--output-spaces': f'maps are in the space of --template ({BUILTIN_TEMPLATE} by default, its '
    'voxel size by --template-resolution), all else in that of the T1w image; leave it out',
    '--clean-workdir': 'use --clean-on-success, or delete the folder of -w before',
    '--boilerplate-only': 'the participant level writes the methods to logs/CITATION.md, the group '
    'level into group.html; with --reports-only nothing is computed',
    '--longitudinal': 'each session is processed on its own; leave it out',
    '--subject-anatomical-reference': 'each session is processed on its own; leave it out',
    '--low-mem': 'use --mem-gb, or fewer processes with --nprocs',
    '--skull-strip-t1w': 'skulls are removed where there are any; leave it out',
    '--output-layout': 'outputs are always a dataset of BIDS derivatives; leave it out',
    '--sloppy': 'for a quick trial, use --template-resolution 2',
    '--participants': 'participants.tsv of the dataset is read anyway, leave it out; '
    '--participant-label chooses participants',
    '--task-id': 'only T1w images are used; leave it out',
    '--use-syn-sdc': 'only T1w images are used; leave it out',
}
"""Options that have no meaning here, and what to do."""

UNITS_GB = {'K': 1e-6, 'M': 1e-3, 'G': 1.0, 'T': 1e3}
"""Units of memory as fMRIPrep takes them; a bare number is in MB."""


def with_our_names(arguments: Sequence[str]) -> list[str]:
    """Translate options of fMRIPrep that are called otherwise here.

    Raises
    ------
    UsageError
        An option has no meaning here; the message says what to use instead.
    """
    translated: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, value = argument.partition('=')
        if name in INSTEAD:
            raise UsageError(f'{name}: {INSTEAD[name]}')
        if name in NEEDLESS:
            LOGGER.warning('%s: %s', name, NEEDLESS[name])
            if name == '--fs-license-file' and not equals:
                next(remaining, '')
        elif name in CONVERTED:
            ours, convert = CONVERTED[name]
            given = value if equals else next(remaining, '')
            if not given or given.startswith('--'):
                raise UsageError(f'{name}: expected a value')
            translated += [ours, convert(given)]
        else:
            translated.append(RENAMED.get(name, name) + equals + value)
    return translated


def _gigabytes(text: str) -> float:
    """Memory in GB of `16000` (in MB), `16000MB` or `16G`."""
    match = re.fullmatch(r'(\d+(?:\.\d+)?)([KMGT]?)B?', text.upper())
    if match is None:
        raise UsageError(f'--mem {text}: expected MB, or a unit, such as 16000 or 16G')
    return float(match[1]) * UNITS_GB[match[2] or 'M']
