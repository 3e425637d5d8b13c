"""fMRIPrep-compatible aliases of options."""

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
"""Options of fMRIPrep and other BIDS Apps that have another name here."""

CONVERTED: Mapping[str, tuple[str, Callable[[str], str]]] = {
    '--mem': ('--mem-gb', lambda value: f'{_gigabytes(value):g}'),
    '--mem-mb': ('--mem-gb', lambda value: f'{_gigabytes(value):g}'),
    '--fs-subjects-dir': ('--derivatives', lambda value: f'freesurfer={value}'),
}
"""Options whose value has another format here."""

NEEDLESS = {
    '--notrack': 'ignored, because usage is never tracked',
    '--anat-only': 'ignored, because only T1w images are processed',
    '--fs-no-reconall': 'ignored, because FreeSurfer is not run',
    '--fs-license-file': 'ignored, because FreeSurfer is not run and needs no licence',
}
"""Options that change nothing; the last one takes a value."""

INSTEAD = {
    '--output-spaces': 'remove this option; maps are in the space of --template '
    f'({BUILTIN_TEMPLATE} by default, with the voxel size of --template-resolution), other images '
    'in T1w space',
    '--clean-workdir': 'use --clean-on-success, or delete the folder of -w before the run',
    '--boilerplate-only': 'use --reports-only; the participant level writes the methods to '
    'logs/CITATION.md, the group level to group.html',
    '--longitudinal': 'remove this option; each session is processed separately',
    '--subject-anatomical-reference': 'remove this option; each session is processed separately',
    '--low-mem': 'use --mem-gb, or fewer processes with --nprocs',
    '--skull-strip-t1w': 'remove this option; skull stripping is automatic',
    '--output-layout': 'remove this option; the output is always a BIDS derivatives dataset',
    '--sloppy': 'use --template-resolution 2 for a quick test',
    '--participants': 'remove this option; participants.tsv of the dataset is always read, and '
    '--participant-label selects participants',
    '--task-id': 'remove this option; only T1w images are used',
    '--use-syn-sdc': 'remove this option; only T1w images are used',
}
"""Options without a meaning here, and what to do instead."""

UNITS_GB = {'K': 1e-6, 'M': 1e-3, 'G': 1.0, 'T': 1e3}
"""Units of memory in GB, as in fMRIPrep; a number without a unit is in MB."""


def with_our_names(arguments: Sequence[str]) -> list[str]:
    """Translate options of fMRIPrep that have another name here.

    Raises
    ------
    UsageError
        An option has no meaning here; the message names the alternative.
    """
    translated: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, value = argument.partition('=')
        if name in INSTEAD:
            raise UsageError(f'{name}: {INSTEAD[name]}')
        if name in NEEDLESS:
            LOGGER.info('%s: %s', name, NEEDLESS[name])
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
    """Convert `16000` (in MB), `16000MB` or `16G` to GB."""
    match = re.fullmatch(r'(\d+(?:\.\d+)?)([KMGT]?)B?', text.upper())
    if match is None:
        raise UsageError(
            f'--mem {text}: expected a size in MB or with a unit, such as 16000 or 16G'
        )
    return float(match[1]) * UNITS_GB[match[2] or 'M']
