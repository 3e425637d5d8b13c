"""What the columns of tables mean: all that their JSON sidecars say, in one place.

Those of changes are in :mod:`surreal_bids.analysis.change`, those of volumes, which users name, in
:mod:`surreal_bids.cohort.volumes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from surreal_bids.analysis.change import CHANGE_DESCRIPTIONS
from surreal_bids.bids.tabular import (
    CONTROL,
    PARTICIPANT,
    PATIENT,
    SESSION,
    SPREAD_SUFFIX,
    TRAINED_ON_SUFFIX,
)
from surreal_bids.files import write_json, write_tsv
from surreal_bids.harmonization.combat import UNHARMONIZED
from surreal_bids.regions import recognise, region_names
from surreal_bids.rindices.crossfit import FOUND_AGAIN, HELD_OUT, NOT_HELD_OUT, PATTERN_LOST
from surreal_bids.rindices.intervals import (
    ALL_CONTROLS,
    CENTILE_CONTROLS,
    CENTILE_OF,
    CENTILE_SUFFIX,
    HIGH_SUFFIX,
    LIKE_AGE,
    LOW_SUFFIX,
    TRAINING_CONTROLS,
)
from surreal_bids.rindices.model import BASELINE, R_INDEX
from surreal_bids.rindices.preprocessing import COMPLETE, INCOMPLETE, NONE_BEYOND
from surreal_bids.rindices.uncertainty import AGE_RANGE, MIN_FOR_CENTILES, SHARE
from surreal_bids.stats.associations import CORRELATION_RATIO, RANK_CORRELATION

Column = dict[str, Any]
"""What is said of a column: `Description`, and of numbers `Units`, of words their `Levels`."""

EXCLUDED = 'excluded'
"""Status of a participant who was screened out."""

_RESULTS: dict[str, Column] = {
    PARTICIPANT: {'Description': 'Participant, as in the table of volumes'},
    SESSION: {'Description': 'Session'},
    'group': {
        'Description': 'Group in training',
        'Levels': {CONTROL: 'control', PATIENT: 'patient'},
    },
    'brain_in_range': {
        'Description': 'Whether the brain, all regions taken together, is like those that the '
        'model was trained on; if not, the R-indices are an extrapolation. Of '
        'covariates such as age see covariates_out_of_range',
        'Levels': {'true': 'within', 'false': 'outside'},
    },
    'covariates_out_of_range': {
        'Description': 'Covariates, such as age, that lie outside the range seen among the '
        f'controls in training, or {NONE_BEYOND}; their effect was extrapolated. Of the '
        'brain itself see brain_in_range'
    },
    'fold': {
        'Description': 'Fold in which the participant was held out: R-indices without '
        f'{TRAINED_ON_SUFFIX} in their names are by the model that was trained without this fold'
    },
    'fold_correlation': {
        'Description': 'How R-indices of the model of the fold correlate with those of the final '
        'model among the patients that both were trained on: of the pattern with the least. Below '
        f'{FOUND_AGAIN}, it is another pattern, of which the fold has no R-index',
        'Units': '1',
    },
    CENTILE_OF: {
        'Description': 'With whom centiles compare; nobody is compared with themselves',
        'Levels': {
            LIKE_AGE: f'controls of this dataset who are at most {AGE_RANGE:g} years younger or '
            f'older; at least {MIN_FOR_CENTILES}',
            ALL_CONTROLS: 'all controls of this dataset, since fewer are of like age, or no age is '
            'known',
            TRAINING_CONTROLS: 'controls of the training sample of the model, held out there',
        },
    },
    CENTILE_CONTROLS: {
        'Description': 'Number of controls that centiles compare with',
        'Units': '1',
    },
    HELD_OUT: {
        'Description': 'Whether the R-indices are by a model that was not trained on the '
        'participant; if not, those of controls are too low and those of patients too high',
        'Levels': {'true': 'held out', 'false': 'trained on, or not computed'},
    },
    'n_imputed': {
        'Description': 'Number of features that were missing and filled in with what a control of '
        'the same covariates would have',
        'Units': '1',
    },
    'status': {
        'Description': 'Whether everything could be done',
        'Levels': {
            COMPLETE: 'everything was done',
            UNHARMONIZED: 'the site is not known to the model, so features were used as measured; '
            'the R-indices hold whatever the scanner does',
            INCOMPLETE: 'a covariate, the ICV or the site is missing, so nothing was computed',
            EXCLUDED: 'nothing was computed, for the reason given',
            NOT_HELD_OUT: 'no model could be learned without the participant, for the reason given',
            PATTERN_LOST: 'the model of the fold did not find a pattern again, so that there is no '
            'R-index of it',
        },
    },
    'reason': {'Description': 'Why nothing, or not every R-index, was computed'},
}


def _number(text: str, unit: str = '1') -> Column:
    return {'Description': text, 'Units': unit}


def _words(text: str, levels: Mapping[str, str] | None = None) -> Column:
    return {'Description': text, 'Levels': dict(levels)} if levels else {'Description': text}


_VISITS = {PARTICIPANT: _words('Participant'), SESSION: _words('Session')}
_CORRELATION: dict[str, Column] = {
    'pattern': _words('R-index'),
    'test': _words('How they were compared', {'spearman': 'correlation of ranks'}),
    'higher_level': _words(
        'Of a variable with two values, the one at which a positive r means a higher R-index'
    ),
    'n': _number('Number of participants, first visits'),
    'r': _number('Correlation of ranks'),
    'r_low': _number('Lower end of the 95 % interval of r'),
    'r_high': _number('Upper end of the 95 % interval of r'),
    'p': _number('p value, not corrected for the number of tests'),
}

TABLES: dict[str, dict[str, Column]] = {
    'exclusions': _VISITS | {'reason': _words('Why the participant or visit was excluded')},
    'agreement': {
        'n_patterns': _number('Number of patterns, M'),
        'ortho': _number('Weight of the orthogonality loss, lambda'),
        'n_members': _number('Number of members that were trained'),
        'n_healthy': _number('Number of members that neither diverged nor collapsed'),
        'agreement': _number('Mean agreement of all pairs of these members (pattern-agr-index)'),
        'score': _number(
            'What M and lambda are chosen by: the mean agreement, or that of the best member with '
            'those closest to it, as the preset has it'
        ),
    },
    'patterns': {
        'pattern': _words('R-index of the pattern'),
        'region': _words('Region, or sum of regions'),
        'muse_regions': _words('Indices of the MUSE regions, separated by spaces'),
        'change_percent': _number(
            'Mean change that the pattern makes, in per cent of the mean of controls: in patients, '
            'or in all participants where there are no patients',
            '%',
        ),
        'change_percent_member_spread': _number(
            'Standard deviation of change_percent over members: how far training runs differ', '%'
        ),
        'change_sd': _number('The same change in standard deviations of controls'),
        'contribution': _number(
            'What the region adds to the R-index, relative to the mean control: mean of the '
            'same participants'
        ),
    },
    'contrasts': {
        'contrast': _words('Name of the comparison, as in the names of its maps'),
        'description': _words('Who was compared with whom, or what was regressed on'),
        'participants': _number('Number of participants'),
        'degrees_of_freedom': _number('Degrees of freedom of t'),
        'kind': _words(
            'What it may be taken for',
            {
                'test': 'a test',
                'description': 'a description only: R-indices are functions of the same brains',
            },
        ),
        'voxels': _number('Number of voxels that were compared'),
        't_at_fdr_0.05': _number('Size of t beyond which the false discovery rate is 0.05'),
        'discoveries': _number('Number of voxels beyond it'),
    },
    'split_half': {
        'comparison': _words('Which models are compared: of half 1, half 2, or all participants'),
        'participants': _number('Number of patients in whom they are compared'),
        'trained_on': _words(
            'Whether models of halves were trained on these patients',
            {'yes': 'some were', 'no': 'patients are of neither half'},
        ),
        'outcome': _words('compared, or why nothing was, or that the numbers of patterns differ'),
        'pattern': _words('R-index of the model with fewer patterns'),
        'counterpart': _words('R-index of the other model that it was matched with'),
        'c_index': _number('Concordance of the two: 1 if they put patients in the same order'),
        'pearson': _number('Correlation of the two R-indices'),
        'regions_pearson': _number('Correlation over regions of what the two patterns change'),
    },
    'diagnosis': {
        'by': _words('What patients are told from controls by'),
        'controls': _number('Number of controls, held out'),
        'patients': _number('Number of patients, held out'),
        'auc': _number('Area under the curve: 0.5 is chance, 1 without error'),
        'auc_low': _number('Lower end of its 95 % interval'),
        'auc_high': _number('Upper end of its 95 % interval'),
    },
    'differences': {
        'covariate': _words('Covariate'),
        'controls': _words('Mean and standard deviation of controls, or shares of each value'),
        'patients': _words('Mean and standard deviation of patients, or shares of each value'),
        'test': _words('How the groups were compared'),
        'p': _number('p value, not corrected for the number of covariates'),
        'in_words': _words('What differs, in words'),
    },
    'group_change': {
        R_INDEX: _words('R-index'),
        'controls': _number('Number of controls with two visits or more'),
        'patients': _number('Number of patients with two visits or more'),
        'visits': _number('Number of their visits'),
        'visits_elsewhere': _number(
            'Number of visits that were left out, since they are of another site than the first'
        ),
        'visits_without_site': _number(
            'Number of visits that were left out, since their site is missing while others have one'
        ),
        'visits_without_time': _number(
            'Number of visits that were left out, since nobody says when they were'
        ),
        'controls_per_year': _number('Mean change per year of controls', '1/year'),
        'patients_per_year': _number('Mean change per year of patients', '1/year'),
        'difference': _number('Change per year of patients less that of controls', '1/year'),
        'standard_error': _number('Standard error of the difference', '1/year'),
        'low': _number('Lower end of the 95 % interval of the difference', '1/year'),
        'high': _number('Upper end of the 95 % interval of the difference', '1/year'),
        'p': _number('p value of the difference, not corrected for the number of R-indices'),
        'slopes': _words(
            'How mean slopes were found: random slopes of a mixed model (of one group or both), or '
            'one slope of each participant'
        ),
        'outcome': _words('compared, or why nothing was'),
    },
    'associations': {
        'variable': _words('Measure, a column of a table that was given'),
        **_CORRELATION,
        'adjusted_for': _words('Covariates whose ranks were removed from those of both'),
        'p_fdr': _number('p value, adjusted for the false discovery rate over the table'),
    },
    'covariates': {
        'group': _words('Among whom', {'controls': 'controls', 'patients': 'patients'}),
        'variable': _words('Covariate'),
        'pattern': _CORRELATION['pattern'],
        'by': _words(
            'How they were compared',
            {
                RANK_CORRELATION: "Spearman's, of a number or of two values",
                CORRELATION_RATIO: 'share of the variance of ranks between the values of a '
                'category, its root; without sign',
            },
        ),
        'higher_level': _CORRELATION['higher_level'],
        'n': _CORRELATION['n'],
        'r': _number('Correlation, or correlation ratio: see by'),
    },
    'site_shifts': {
        'site': _words('Site that was added to the model'),
        'feature': _words('Region, or sum of regions'),
        'shift': _number(
            'How much larger the feature is at this site than at those of the training sample, at '
            'equal covariates, in standard deviations of controls'
        ),
        'shift_sd': _number('Standard error of the shift, in the same unit'),
        'variance_ratio': _number('Variance at this site over that in the training sample'),
    },
    'changes': CHANGE_DESCRIPTIONS,
}
"""Columns of each table, by its name among outputs; not all columns are in each."""


def write_described(name: str, path: Path, table: pd.DataFrame) -> dict[str, Column]:
    """Write a table and, beside it, the JSON that describes its columns; returns the latter.

    Parameters
    ----------
    name
        One of `TABLES`.
    path
        The TSV file; the JSON has the same name with its own extension.
    table
        Its content.
    """
    described = {str(column): TABLES[name][str(column)] for column in table}
    write_tsv(path, table)
    write_json(path.with_suffix('.json'), described)
    return described


def describe_results(columns: Iterable[str], pattern_names: Sequence[str]) -> dict[str, Column]:
    """Describe the columns of a table of R-indices as a BIDS sidecar does."""
    known = _RESULTS | _describe_patterns(pattern_names)
    return {column: known[column] for column in columns}


def _describe_patterns(names: Sequence[str]) -> dict[str, Column]:
    indices = {
        name: {
            'Description': f'R-index of pattern {name}: how strongly the pattern is expressed, '
            'about 1 in the most affected training patients; compare with controls, who are low '
            'but not at 0',
            'Units': '1',
        }
        for name in names
    }
    spreads = {
        f'{name}{SPREAD_SUFFIX}': {
            'Description': f'Spread of {name} over the members of the consensus (standard '
            'deviation): how far training runs differ on the same participants. Not an interval: '
            f'the error of {name} is larger',
            'Units': '1',
        }
        for name in names
    }
    trained_on = {
        f'{name}{TRAINED_ON_SUFFIX}': {
            'Description': f'{name} by the final model, which was trained on this participant: '
            'too low in controls and too high in patients. Not for statistics; use '
            f'{name}, which is by a model that was not',
            'Units': '1',
        }
        for name in names
    }
    ends = {LOW_SUFFIX: 'Lower', HIGH_SUFFIX: 'Upper'}
    intervals = {
        f'{name}{suffix}': {
            'Description': f'{end} end of the interval of {name} that is meant to hold {SHARE:.0%} '
            'of true severities, in the unit of the R-index: what anatomy, the noise of the '
            'segmentation, other patterns, the members and the sample of participants leave open',
            'Units': '1',
        }
        for name in names
        for suffix, end in ends.items()
    }
    centiles = {
        f'{name}{CENTILE_SUFFIX}': {
            'Description': f'Centile of {name} among controls that the model was not trained on '
            f'({CENTILE_OF} and {CENTILE_CONTROLS} say which and how many): the per cent of them '
            'who have a smaller one',
            'Units': '%',
        }
        for name in names
    }
    return indices | spreads | intervals | centiles | trained_on


def describe_contributions(columns: Iterable[str]) -> dict[str, Column]:
    """Describe the columns of a table of contributions as a BIDS sidecar does."""
    columns = list(columns)
    names = {column: region_names()[index] for column, index in recognise(columns).items()}
    known = _RESULTS | {
        R_INDEX: {
            'Description': 'R-index of rindices.tsv that is taken apart in this row: baseline plus '
            'all regions is its value there'
        },
        BASELINE: {
            'Description': 'R-index of the mean control, whose regions are as usual among controls '
            'of the same covariates',
            'Units': '1',
        },
    }
    return {
        column: known.get(column)
        or {
            'Description': f'What {names.get(column, column)} adds to the R-index, as it differs '
            'from the mean control: integrated gradients along the straight line from there',
            'Units': '1',
        }
        for column in columns
    }
