"""surreal_bids: R-indices of disease-related brain patterns from T1-weighted MRI.

The names below are the public interface, described with examples in `docs/api.md`. Each is loaded
when it is first used, so that `import surreal_bids` costs nothing. All else may change.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surreal_bids.analysis.engine import analyse
    from surreal_bids.cohort.cohort import Cohort
    from surreal_bids.harmonization.combat import ComBat
    from surreal_bids.imaging.bias import correct_bias
    from surreal_bids.imaging.brain import brain_mask
    from surreal_bids.imaging.fusion import fuse_labels
    from surreal_bids.imaging.ravens import ravens_maps
    from surreal_bids.imaging.registration import register
    from surreal_bids.imaging.tissue import classify_tissue
    from surreal_bids.model.estimator import SurrealGAN
    from surreal_bids.rindices.model import TableModel
    from surreal_bids.simulation.tables import simulate_table

__version__ = '0.1.0'

__all__ = [
    'Cohort',
    'ComBat',
    'SurrealGAN',
    'TableModel',
    '__version__',
    'analyse',
    'brain_mask',
    'classify_tissue',
    'correct_bias',
    'fuse_labels',
    'ravens_maps',
    'register',
    'simulate_table',
]

_HOMES = {
    'Cohort': 'cohort.cohort',
    'ComBat': 'harmonization.combat',
    'SurrealGAN': 'model.estimator',
    'TableModel': 'rindices.model',
    'analyse': 'analysis.engine',
    'brain_mask': 'imaging.brain',
    'classify_tissue': 'imaging.tissue',
    'correct_bias': 'imaging.bias',
    'fuse_labels': 'imaging.fusion',
    'ravens_maps': 'imaging.ravens',
    'register': 'imaging.registration',
    'simulate_table': 'simulation.tables',
}
"""Module of each public name."""


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    value = getattr(import_module(f'{__name__}.{_HOMES[name]}'), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted(__all__)
