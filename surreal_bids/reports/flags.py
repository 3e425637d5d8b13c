"""Quality flags of visits: a few words in tables, a warning in reports."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from surreal_bids.analysis.engine import (
    ANOTHER_FOLD,
    BEYOND,
    IMPUTED,
    OUTSIDE,
    STATUS_FLAGS,
    Analysis,
    Flag,
)
from surreal_bids.analysis.image_quality import OUTLIERS
from surreal_bids.bids.outputs import Record, read_quality, sidecar_path, visit_output
from surreal_bids.cautions import FIGURES, R_INDICES, Caution
from surreal_bids.files import MISSING
from surreal_bids.harmonization.combat import UNHARMONIZED
from surreal_bids.harmonization.encoding import TOLERATED
from surreal_bids.imaging.quality import norms
from surreal_bids.names import PARTICIPANT, SESSION, without_prefix
from surreal_bids.rindices.crossfit import NOT_HELD_OUT
from surreal_bids.rindices.preprocessing import INCOMPLETE
from surreal_bids.text import counted

OUTLIER = 'image quality is an outlier'
NOT_HARMONIZED, NO_FOLD = STATUS_FLAGS[UNHARMONIZED], STATUS_FLAGS[NOT_HELD_OUT]

NO_INDICES = 'There are no R-indices'

WARNINGS = {
    NOT_HARMONIZED: Caution(
        'The model does not include this site',
        'Volumes were not harmonized, and the R-indices include scanner effects',
        'Compare within this scanner only, or add the site with controls (surreal-gan add-site)',
    ),
    STATUS_FLAGS[INCOMPLETE]: Caution(
        'A covariate, the intracranial volume or the site is missing',
        NO_INDICES,
        'Complete the table of participants, and run the group level again',
    ),
    NO_FOLD: Caution(
        'No model could be trained without this participant',
        NO_INDICES,
        'Add controls of the same site and covariates to the study',
    ),
    OUTSIDE: Caution(
        'The regional volumes are unlike those of the participants that this model was trained on',
        'The R-indices are extrapolated',
        'Check the segmentation',
    ),
    ANOTHER_FOLD: Caution(
        'Not all patterns were reproduced in the fold of this participant',
        'The model trained without this participant partly describes other patterns',
        'Do not use these R-indices alone; the study needs more participants',
    ),
    OUTLIER: Caution(
        'The quality of the image is an outlier among the images of its scanner',
        'Volumes and R-indices may be wrong',
        'Look at the figures of the image',
        FIGURES,
    ),
}
"""Warning of each kind of flag without a detail."""

OF_ALL = {ANOTHER_FOLD, NO_FOLD}
"""Kinds of flags that a warning about the whole study explains."""

AFFECTED_SHARE, UNCERTAIN_SHARE = 0.05, 0.1
"""Share of a region above which a lesion affects it; of uncertain regions that flags an image."""


def warning_of(flag: Flag) -> Caution | None:
    """Return the warning that a flag stands for; None for flags that images explain."""
    if flag.kind == BEYOND:
        return Caution(
            f'{flag.detail} more than {TOLERATED:.0%} beyond the range of the training controls',
            'Effects on volumes are extrapolated',
            'Interpret the R-indices with care, or add controls in this range',
        )
    if flag.kind == IMPUTED:
        return Caution(
            f'{flag.detail} missing',
            'Missing regions were imputed from controls, so the R-indices may be too low',
            'Check the segmentation or the table',
        )
    return WARNINGS.get(flag.kind)


def image_warnings(
    output_dir: Path, participant: str, session: object = None
) -> dict[str, list[Caution]]:
    """Return warnings of an image by kind of flag; none for participants without images."""
    path = visit_output(output_dir, 'quality', participant, session)
    if path is None:
        return {}
    name = without_prefix(session, 'ses') if isinstance(session, str) else None
    record = Record.read(output_dir, (without_prefix(participant, 'sub'), name))
    flags = {'warning on the image': list(record.warnings)}
    quality = read_quality(path)
    uncertain, n_regions = quality.get('uncertain_regions'), len(norms())
    if uncertain is not None and uncertain > UNCERTAIN_SHARE * n_regions:
        caution = Caution(
            f'the network is uncertain about {uncertain:.0f} of {n_regions} regions',
            'The image quality is poor or unusual, and volumes may be wrong',
            'Check the figure of the regions',
            FIGURES,
        )
        flags['uncertain segmentation'] = [caution]
    if quality.get('lesion_ml'):
        tables = [output_dir / name for name in record.outputs if name.endswith('_dseg.tsv')]
        flags['lesion'] = [
            caution
            for table in filter(Path.is_file, tables)
            for caution in _lesion(table, quality['lesion_ml'])
        ]
    return {flag: found for flag, found in flags.items() if found}


def _lesion(path: Path, volume_ml: float) -> list[Caution]:
    sidecar = sidecar_path(path)
    described = json.loads(sidecar.read_text('utf-8')) if sidecar.is_file() else {}
    if not described.get('RegionsComputed', True):
        return [
            Caution(
                f'there is a lesion of {volume_ml:.1f} ml, and the regions are those of '
                f'{described["Atlas"]}',
                'That program may have labelled the lesion wrongly, and volumes and R-indices may '
                'be wrong',
                'Check the figure of the regions, or exclude the participant',
                FIGURES,
            )
        ]
    table = pd.read_csv(path, sep='\t', na_values=[MISSING], keep_default_na=False)
    affected = table[table['lesion_share'] > AFFECTED_SHARE]
    if affected.empty:
        return []
    share, name = max(zip(affected['lesion_share'], affected['name']))
    return [
        Caution(
            f'a lesion takes more than {AFFECTED_SHARE:.0%} of {counted(len(affected), "region")}, '
            f'most of {name} ({share:.0%})',
            'Volumes of these regions are estimates of what was there before the lesion, and '
            'R-indices that depend on them do not show its effect',
            'Look the regions up in column lesion_share of dseg.tsv, or exclude the participant',
            FIGURES,
        )
    ]


def flags_of_images(found: Analysis, output_dir: Path) -> pd.Series:
    """Return the flags of the image of every visit, each a tuple of `Flag`."""
    visits = found.scored.visits
    outliers = None if found.images is None else found.images.table[OUTLIERS]
    flags = []
    for visit, row in zip(visits.index, visits.to_dict('records')):
        kinds = list(image_warnings(output_dir, row[PARTICIPANT], row.get(SESSION)))
        if outliers is not None and pd.notna(outliers.get(visit)):
            kinds.append(OUTLIER)
        flags.append(tuple(Flag(kind) for kind in kinds))
    return pd.Series(flags, visits.index, dtype=object)


def warn_of_flags(found: Analysis, flags: pd.Series, table: str) -> list[Caution]:
    """Warn of participants with quality flags of their own.

    Parameters
    ----------
    found
        All results.
    flags
        The flags of each visit.
    table
        Name of the written table that has them.
    """
    who = found.scored.visits.loc[flags.index, PARTICIPANT]
    flagged: dict[str, set[str]] = {}
    for participant, of_visit in zip(who, flags):
        for flag in of_visit:
            if flag.kind not in OF_ALL:
                flagged.setdefault(str(flag), set()).add(participant)
    count = len(set().union(*flagged.values()))
    if not count:
        return []
    kinds = ', '.join(f'{words}: {len(named)}' for words, named in sorted(flagged.items()))
    verb = 'has' if count == 1 else 'have'
    caution = Caution(
        f'{count} of {counted(who.nunique(), "participant")} {verb} a quality flag ({kinds})',
        'Their R-indices may be less reliable',
        'Look them up in the table of participants, column flags',
        R_INDICES,
    )
    if not found.names:
        caution = Caution(
            caution.found,
            'Their volumes, images or covariates are unusual',
            f'Look them up in {table}, column flags',
        )
    return [caution]
